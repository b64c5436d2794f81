//! Resolves the kernel's addresses to names, and finds the parameters of its functions.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::{Mapped, Parameter, Symbol, SymbolRow, Symbols};
use lastwords_kernel::Kernel;
use lastwords_kernel::mapped;

/// The symbols of a kernel, and the types of the kernel and its modules.
pub(super) struct Names {
    kernel: Arc<Kernel>,
    /// The processes that lived, by number, with the addresses of their first tasks.
    processes: OnceLock<Processes>,
}

struct Processes {
    tasks: BTreeMap<u32, u64>,
    /// None is missing.
    is_all: bool,
}

impl Names {
    pub(super) fn new(kernel: Arc<Kernel>) -> Self {
        Self { kernel, processes: OnceLock::new() }
    }

    fn mapped(&self, tgid: u32, address: u64) -> Option<Mapped> {
        let processes = self.processes.get_or_init(|| {
            let found = self.kernel.tasks();
            let leaders = found.rows.iter().filter(|task| task.pid == task.tgid);
            Processes {
                tasks: leaders.map(|task| (task.pid, task.place)).collect(),
                is_all: found.missing.is_empty(),
            }
        });
        let Some(task) = processes.tasks.get(&tgid) else {
            return processes.is_all.then_some(Mapped::None);
        };
        let Some(memory) = self.kernel.user_memory(*task).ok()? else { return Some(Mapped::None) };
        Some(match self.kernel.mapped(memory, address).ok()? {
            Some(mapped::Mapped { path, offset }) => Mapped::File { path, offset },
            None => Mapped::None,
        })
    }
}

impl Symbols for Names {
    fn at(&self, address: u64) -> Option<Symbol> {
        self.kernel.symbols.at(address)
    }

    fn each(&self, each: &mut dyn FnMut(SymbolRow<'_>)) {
        self.kernel.symbols.each(each);
    }

    fn text_at(&self, address: u64) -> Option<Vec<u8>> {
        self.kernel.symbols.text_at(address)
    }

    fn mapped(&self, tgid: u32, address: u64) -> Mapped {
        self.mapped(tgid, address).unwrap_or(Mapped::Unknown)
    }

    /// Searches like `btf_find_func_proto`: in the kernel's types, then in those of its modules
    /// from the oldest on, whichever module has the function.
    fn parameters(&self, function: &str) -> Option<Vec<Parameter>> {
        let of_module = |name: &str| self.kernel.module_types(name)?.parameters(function);
        let modules =
            || self.kernel.modules.iter().rev().find_map(|module| of_module(&module.name));
        self.kernel.types.parameters(function).or_else(modules)
    }

    /// Searches the kernel, then the types of its modules. A name to which modules give different
    /// values is not known, because a format does not say whose it is.
    fn constant(&self, name: &str) -> Option<i64> {
        self.kernel.symbols.constant(name).or_else(|| {
            let mut values = self
                .kernel
                .modules
                .iter()
                .filter_map(|module| self.kernel.module_types(&module.name)?.enum_value(name));
            let first = values.next()?;
            values.all(|value| value == first).then_some(first)
        })
    }
}
