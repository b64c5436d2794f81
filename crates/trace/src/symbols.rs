//! Names of code addresses, and what else a kernel's file or memory tells of an address.

/// A symbol that contains an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Name of the symbol, without module.
    pub name: String,
    /// Bytes from the symbol's begin to the address.
    pub offset: u64,
    /// Size as kallsyms has it: up to the next symbol.
    pub size: u64,
    /// Module of the symbol; none for the kernel's own.
    pub module: Option<String>,
}

/// One row of a symbol table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolRow<'a> {
    /// Address of the symbol.
    pub address: u64,
    /// Kind of the symbol, as in `/proc/kallsyms`: `t`, `T`, `d`, ….
    pub kind: char,
    /// Name of the symbol.
    pub name: &'a str,
    /// Module of the symbol; none for the kernel's own.
    pub module: Option<&'a str>,
}

/// A parameter of a kernel function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Name of the parameter; empty if it has none.
    pub name: String,
    /// Type of the parameter.
    pub kind: ParameterKind,
}

/// The type of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParameterKind {
    /// The type is not known.
    Unknown,
    /// A pointer.
    Pointer,
    /// An integer.
    Number {
        /// The integer is signed.
        signed: bool,
    },
    /// An enumeration of up to 32 bits.
    Enumeration {
        /// Value and name of each enumerator.
        names: Vec<(i64, String)>,
    },
    /// Something else.
    Other {
        /// BTF's name of the kind of type: `STRUCT`, `UNION`, `ENUM64`, ….
        kind: &'static str,
        /// Size in bytes.
        size: u32,
    },
}

/// The mapping of a process at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapped {
    /// A file.
    File {
        /// The path.
        path: String,
        /// Bytes from the begin of the mapping.
        offset: u64,
    },
    /// The process has ended, or no file is mapped there.
    None,
    /// It is not known.
    Unknown,
}

/// Names for addresses.
pub trait Symbols: Send + Sync {
    /// Returns the symbol that contains `address`.
    fn at(&self, address: u64) -> Option<Symbol>;

    /// Calls `each` with every symbol: first the kernel's own, then the modules', each part by
    /// rising address.
    fn each(&self, each: &mut dyn FnMut(SymbolRow<'_>));

    /// Returns the text, without its NUL, in the kernel's read-only memory at `address`; none if it
    /// is not known.
    fn text_at(&self, _address: u64) -> Option<Vec<u8>> {
        None
    }

    /// Returns the parameters of the function with this name; none if they are not known.
    fn parameters(&self, _function: &str) -> Option<Vec<Parameter>> {
        None
    }

    /// Returns the file that the process `tgid` has mapped at an address, as the trace option
    /// `sym-userobj` shows it.
    fn mapped(&self, _tgid: u32, _address: u64) -> Mapped {
        Mapped::Unknown
    }

    /// Returns the value of a name in a print format: an enumerator, a kernel variable of the size
    /// of a `long` (`vmemmap_base`), or a size (`sizeof(struct page)`). Returns none if it is not
    /// known.
    fn constant(&self, _name: &str) -> Option<i64> {
        None
    }
}

/// A table without symbols.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn at(&self, _: u64) -> Option<Symbol> {
        None
    }

    fn each(&self, _: &mut dyn FnMut(SymbolRow<'_>)) {}
}
