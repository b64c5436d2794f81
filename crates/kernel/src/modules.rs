//! Reads the loaded modules and their symbols.
//!
//! `struct module` (`include/linux/module.h`) has its memory regions in `mem[]` from Linux 6.4 on;
//! before, in `core_layout` and `init_layout`.

mod symbols;

pub use symbols::ModuleSymbols;

use crate::memory::Memory;
use crate::{Error, Kernel, Object};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Most modules that are accepted.
const MODULES_MAX: usize = 1 << 13;
/// Most symbols of all modules together, which limits the cost of modules that share a table. Real
/// kernels have a million.
const SYMBOLS_MAX: u64 = 1 << 21;
/// Letters of the taint flags, by bit (`taint_flags` in `kernel/panic.c`).
const TAINTS: &[u8] = b"PFSRMBUDAWCIOELKXTNJ";

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

/// Reads the loaded modules, newest first. The list ends at the first module that cannot be read,
/// and the error has the reason.
pub(crate) fn read(kernel: &Kernel) -> (Vec<Module>, Option<Error>) {
    let mut modules = Vec::new();
    let mut left = SYMBOLS_MAX;
    let Ok(head) = list_head(kernel) else {
        return (modules, Some(Error::NoSymbol("modules".into())));
    };
    let entries = match kernel.list(head, "module", "list") {
        Ok(entries) => entries,
        Err(error) => return (modules, Some(error)),
    };
    for entry in entries {
        let module = entry.and_then(|entry| module(kernel, entry, &mut left));
        match module {
            // A module that is still being loaded has no tables yet.
            Ok(Some(module)) => modules.push(module),
            Ok(None) => {}
            Err(error) => return (modules, Some(error)),
        }
        if modules.len() >= MODULES_MAX {
            break;
        }
    }
    (modules, None)
}

/// Address of the list's head: of the symbols with that name, the one whose first entry points back
/// to it.
fn list_head(kernel: &Kernel) -> Result<u64, Error> {
    let word = u64::from(kernel.memory.word_size());
    let points_back = |head: &u64| {
        let next = kernel.memory.pointer(*head);
        next.and_then(|next| kernel.memory.pointer(next.wrapping_add(word)))
            .is_ok_and(|back| back == *head)
    };
    let heads: Vec<u64> =
        kernel.kallsyms().named("modules").map(|index| kernel.kallsyms().address(index)).collect();
    let head = heads.iter().find(|head| points_back(head)).or(heads.first());
    head.copied().ok_or_else(|| Error::NoSymbol("modules".into()))
}

fn module(kernel: &Kernel, object: Object<'_>, left: &mut u64) -> Result<Option<Module>, Error> {
    if kernel.types.enum_value("MODULE_STATE_UNFORMED") == Some(object.i64("state")?) {
        return Ok(None);
    }
    let regions = regions(kernel, object)?;
    let size = regions
        .iter()
        .map(|region| region.range.end.saturating_sub(region.range.start))
        .fold(0, u64::saturating_add);
    let base = regions.iter().find(|region| region.is_text).map_or(0, |region| region.range.start);
    let bits = object.u64("taints").unwrap_or_default();
    let taints =
        (0u32..).zip(TAINTS).filter(|(bit, _)| bits.checked_shr(*bit).unwrap_or(0) & 1 != 0);
    Ok(Some(Module {
        name: object.text("name")?,
        place: object.place(),
        base,
        size,
        taints: taints.map(|(_, letter)| char::from(*letter)).collect(),
        users: users(kernel, object).unwrap_or_default(),
        // The module's own reference is not counted.
        references: object.u64("refcnt").unwrap_or_default().saturating_sub(1),
        tables: symbols::Tables::from_module(kernel, object, &regions, left).ok(),
        regions,
        memory: Arc::clone(&kernel.memory),
        symbols: OnceLock::new(),
    }))
}

fn regions(kernel: &Kernel, object: Object<'_>) -> Result<Vec<Region>, Error> {
    let mut regions = Vec::new();
    let mut add = |base: u64, size: u64, is_text, is_init| {
        if size != 0 {
            regions.push(Region { range: base..base.saturating_add(size), is_text, is_init });
        }
    };
    if !object.has("mem") {
        for (layout, is_init) in [("core_layout", false), ("init_layout", true)] {
            let layout = object.at(layout)?;
            let (base, size, text) =
                (layout.address("base")?, layout.u64("size")?, layout.u64("text_size")?);
            add(base, text.min(size), true, is_init);
            add(base.saturating_add(text), size.saturating_sub(text), false, is_init);
        }
        return Ok(regions);
    }
    let kind = |name| kernel.types.enum_value(name).map(i64::cast_unsigned);
    let [text, init_text, init_data, init_rodata] =
        ["MOD_TEXT", "MOD_INIT_TEXT", "MOD_INIT_DATA", "MOD_INIT_RODATA"].map(kind);
    for index in 0..object.count("mem")?.min(32) {
        let part = object.element("mem", index)?;
        let is_text = [text, init_text].contains(&Some(index));
        let is_init = [init_text, init_data, init_rodata].contains(&Some(index));
        add(part.address("base")?, part.u64("size")?, is_text, is_init);
    }
    Ok(regions)
}

fn users(kernel: &Kernel, object: Object<'_>) -> Result<Vec<String>, Error> {
    let uses = kernel.list(object.at("source_list")?.place(), "module_use", "source_list")?;
    uses.take(MODULES_MAX).map(|one| one?.pointer("source")?.text("name")).collect()
}
