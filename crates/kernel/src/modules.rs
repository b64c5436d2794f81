//! Reads the loaded modules and their symbols.
//!
//! `struct module` (`include/linux/module.h`) has its memory regions in `mem[]` from Linux 6.4 on;
//! before, in `core_layout` and `init_layout`.

pub(crate) mod read;
mod symbols;

pub use symbols::ModuleSymbols;

use crate::memory::Memory;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
/// A module's region of the kernel's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Addresses of the region.
    pub range: Range<u64>,
    /// True if the region contains functions.
    pub is_text: bool,
    /// True if the region is freed after the module has started.
    pub is_init: bool,
}

/// A loaded module.
pub struct Module {
    /// Name of the module.
    pub name: String,
    /// Address of its `struct module`.
    pub place: u64,
    /// Address of its functions, as in `/proc/modules`.
    pub base: u64,
    /// Total size of its regions in bytes, as `lsmod` shows it.
    pub size: u64,
    /// Its regions, except freed ones.
    pub regions: Vec<Region>,
    /// Taint flags that it sets, as letters like in `/proc/modules`.
    pub taints: String,
    /// Names of the modules that use it.
    pub users: Vec<String>,
    /// Number of references to it, as `lsmod` shows it.
    pub references: u64,
    tables: Option<symbols::Tables>,
    memory: Arc<dyn Memory>,
    symbols: OnceLock<ModuleSymbols>,
}

impl Module {
    /// True if an address is in one of the module's regions.
    #[must_use]
    pub fn holds(&self, address: u64) -> bool {
        self.regions.iter().any(|region| region.range.contains(&address))
    }

    /// The module's symbols, read on first use; empty if the image lacks them.
    pub fn symbols(&self) -> &ModuleSymbols {
        self.symbols.get_or_init(|| {
            self.tables.as_ref().map(|tables| tables.read(&*self.memory)).unwrap_or_default()
        })
    }

    /// Name, address and size of the symbol that contains `address`, computed like the kernel does:
    /// a symbol ends where the next one begins, or with the region. (Before 2026 the kernel had the
    /// end of the functions for data too, and printed sizes of nearly 2^64.)
    #[must_use]
    pub fn symbol_at(&self, address: u64) -> Option<(String, u64, u64)> {
        let region = self.regions.iter().find(|region| region.range.contains(&address))?;
        self.symbols().at(address, &region.range)
    }
}
