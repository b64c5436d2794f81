//! Symbols of the kernel and its modules, by address and by name.

use crate::btf::Types;
use crate::kallsyms::Kallsyms;
use crate::memory::Memory;
use crate::modules::Module;
use crate::vmcoreinfo::VmcoreInfo;
use lastwords_trace::symbols::{Symbol, SymbolRow, Symbols};
use std::ops::Range;
use std::sync::Arc;

/// Variables of 8 bytes that print formats use.
const WORDS: &[&str] = &[
    "vmemmap_base",
    "page_offset_base",
    "vmalloc_base",
    "phys_base",
    "memstart_addr",
    "kimage_voffset",
    "jiffies",
];

/// Those of them that may be zero, and the numbers in VMCOREINFO that are then zero too.
const MAYBE_ZERO: [(&str, &str); 2] =
    [("phys_base", "phys_base"), ("memstart_addr", "PHYS_OFFSET")];

/// Longest text that is read from read-only memory, bytes.
const TEXT_MAX: usize = 4096;

/// The symbols of a kernel and of its modules.
pub struct SymbolTable {
    kernel: Arc<Kallsyms>,
    modules: Arc<[Module]>,
    memory: Arc<dyn Memory>,
    types: Arc<Types>,
    /// Addresses of the kernel's read-only data.
    constants: Range<u64>,
    /// The variables that may be zero.
    zeros: Vec<&'static str>,
}

impl SymbolTable {
    pub(crate) fn new(
        kernel: &Arc<Kallsyms>,
        modules: &Arc<[Module]>,
        memory: &Arc<dyn Memory>,
        types: &Arc<Types>,
        info: &VmcoreInfo,
    ) -> Self {
        let end = kernel.find("__end_rodata").unwrap_or_default();
        let zeros = MAYBE_ZERO
            .iter()
            .filter(|(_, number)| info.number(number).is_none_or(|value| value == 0));
        Self {
            zeros: zeros.map(|(name, _)| *name).collect(),
            kernel: Arc::clone(kernel),
            modules: Arc::clone(modules),
            memory: Arc::clone(memory),
            types: Arc::clone(types),
            constants: kernel.find("__start_rodata").unwrap_or(end)..end,
        }
    }

    /// The kernel's own symbols.
    #[must_use]
    pub fn kernel(&self) -> &Kallsyms {
        &self.kernel
    }

    /// Address of the first symbol with this name: in the kernel, or else in a module.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u64> {
        self.kernel
            .find(name)
            .or_else(|| self.modules.iter().find_map(|module| module.symbols().find(name)))
    }

    /// Addresses of all symbols with this name; local symbols may share it. The kernel's come
    /// first.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<u64> {
        let kernel = self.kernel.named(name).map(|index| self.kernel.address(index));
        let modules = self.modules.iter().flat_map(|module| module.symbols().named(name));
        kernel.chain(modules).collect()
    }

    /// Address of a module's symbol.
    #[must_use]
    pub fn find_in(&self, module: &str, name: &str) -> Option<u64> {
        self.modules.iter().find(|found| found.name == module)?.symbols().find(name)
    }
}

impl Symbols for SymbolTable {
    fn at(&self, address: u64) -> Option<Symbol> {
        if let Some((index, start, size)) = self.kernel.at(address) {
            let mut name = Vec::new();
            self.kernel.name(index, &mut name);
            let name = String::from_utf8(name)
                .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
            return Some(Symbol { name, offset: address.wrapping_sub(start), size, module: None });
        }
        let module = self.modules.iter().find(|module| module.holds(address))?;
        let (name, start, size) = module.symbol_at(address)?;
        let module = Some(module.name.clone());
        Some(Symbol { name, offset: address.wrapping_sub(start), size, module })
    }

    fn each(&self, each: &mut dyn FnMut(SymbolRow<'_>)) {
        let mut name = Vec::new();
        for index in 0..self.kernel.len() {
            let kind = self.kernel.name(index, &mut name).into();
            let address = self.kernel.address(index);
            if name.is_empty() {
                continue;
            }
            each(SymbolRow { address, kind, name: &String::from_utf8_lossy(&name), module: None });
        }
        for module in self.modules.iter() {
            module.symbols().each(&mut |row| each(SymbolRow { module: Some(&module.name), ..row }));
        }
    }

    fn text_at(&self, address: u64) -> Option<Vec<u8>> {
        let is_there = self.constants.contains(&address)
            || self.modules.iter().any(|module| module.holds(address));
        if !is_there {
            return None;
        }
        self.memory.text(address, TEXT_MAX).ok().map(String::into_bytes)
    }

    fn constant(&self, name: &str) -> Option<i64> {
        if let Some(value) = self.types.enum_value(name) {
            return Some(value);
        }
        if let Some(of) = name.strip_prefix("sizeof(").and_then(|rest| rest.strip_suffix(')')) {
            let structure =
                of.strip_prefix("struct ").or_else(|| of.strip_prefix("union ")).unwrap_or(of);
            return self.types.size_of(structure).ok().and_then(|size| i64::try_from(size).ok());
        }
        // These variables are set once at boot; formats of memory events count pages from them.
        let place = WORDS.contains(&name).then(|| self.find(name)).flatten()?;
        let value = self.memory.number(place, 8).ok().map(u64::cast_signed);
        // Memory that reads as zero has no value of those that are never zero.
        value.filter(|value| *value != 0 || self.zeros.contains(&name))
    }
}
