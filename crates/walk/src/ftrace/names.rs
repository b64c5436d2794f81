//! Resolves the kernel's addresses to names, and finds the parameters of its functions.

use std::sync::Arc;

use lastwords_kernel::Kernel;
use lastwords_trace::ftrace::{Parameter, Symbol, SymbolRow, Symbols};

/// The symbols of a kernel, and the types of the kernel and its modules.
pub(super) struct Names(pub(super) Arc<Kernel>);

impl Symbols for Names {
    fn at(&self, address: u64) -> Option<Symbol> {
        self.0.symbols.at(address)
    }

    fn each(&self, each: &mut dyn FnMut(SymbolRow<'_>)) {
        self.0.symbols.each(each);
    }

    fn text_at(&self, address: u64) -> Option<Vec<u8>> {
        self.0.symbols.text_at(address)
    }

    /// Searches like `btf_find_func_proto`: in the kernel's types, then in those of its modules from the oldest on,
    /// whichever module has the function.
    fn parameters(&self, function: &str) -> Option<Vec<Parameter>> {
        let of_module = |name: &str| self.0.module_types(name)?.parameters(function);
        let modules = || self.0.modules.iter().rev().find_map(|module| of_module(&module.name));
        self.0.types.parameters(function).or_else(modules)
    }

    /// Searches the kernel, then the types of its modules. A name to which modules give different values is not known, because a format
    /// does not say whose it is.
    fn constant(&self, name: &str) -> Option<i64> {
        self.0.symbols.constant(name).or_else(|| {
            let mut values =
                self.0.modules.iter().filter_map(|module| self.0.module_types(&module.name)?.enum_value(name));
            let first = values.next()?;
            values.all(|value| value == first).then_some(first)
        })
    }
}
