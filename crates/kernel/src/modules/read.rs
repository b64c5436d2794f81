//! Reads the loaded modules from the kernel's list.

use super::symbols::{Entry, Tables};
use super::{Module, Region};
use crate::{Error, Kernel, Object};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Most modules that are accepted.
const MODULES_MAX: usize = 1 << 13;

/// Most symbols of all modules together, which limits the cost of modules that share a table. Real
/// kernels have a million.
const SYMBOLS_MAX: u64 = 1 << 21;

/// Letters of the taint flags, by bit (`taint_flags` in `kernel/panic.c`).
const TAINTS: &[u8] = b"PFSRMBUDAWCIOELKXTNJ";

/// Reads the loaded modules, newest first. The list ends at the first module that cannot be read,
/// and the error has the reason.
pub(crate) fn all(kernel: &Kernel) -> (Vec<Module>, Option<Error>) {
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
        tables: Tables::from_module(kernel, object, &regions, left).ok(),
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

impl Tables {
    /// Finds a module's tables. `left` is the number of symbols that may still be read, for all
    /// modules together.
    fn from_module(
        kernel: &Kernel,
        module: Object<'_>,
        regions: &[Region],
        left: &mut u64,
    ) -> Result<Self, Error> {
        let tables = module.pointer("kallsyms")?;
        let entry = match kernel.memory.word_size() {
            8 => Entry { size: 24, section: 6, value: 8 },
            _ => Entry { size: 16, section: 14, value: 4 },
        };
        let count = take(left, tables.u64("num_symtab")?);
        kernel.budget().steps("symbols of a module", count)?;
        Ok(Self {
            symtab: tables.address("symtab")?,
            count,
            strtab: tables.address("strtab")?,
            // Before Linux 5.2, the kind was in the symbol itself.
            typetab: tables.address("typetab").unwrap_or_default(),
            entry,
            exported: exported(kernel, module, regions, left),
        })
    }
}

/// Takes up to `count` from `left`; returns the number taken.
fn take(left: &mut u64, count: u64) -> u64 {
    let taken = count.min(*left);
    *left = left.saturating_sub(taken);
    taken
}

/// Reads the addresses and names of a module's exported symbols. On most machines the members are
/// offsets from their own address.
fn exported(
    kernel: &Kernel,
    module: Object<'_>,
    regions: &[Region],
    left: &mut u64,
) -> HashMap<u64, Vec<String>> {
    let mut found: HashMap<u64, Vec<String>> = HashMap::new();
    // Until Linux 7.0, symbols exported only to GPL modules are in a separate table, which
    // /proc/kallsyms does not use.
    let count = take(left, module.u64("num_syms").unwrap_or_default());
    for index in 0..count {
        let Ok(symbol) = module.element("syms", index) else { break };
        let inside = |region: &Region| region.range.contains(&symbol.place());
        if !regions.iter().any(inside) || kernel.budget().steps("exported symbols", 1).is_err() {
            break;
        }
        if let Ok((value, name)) = export(kernel, symbol) {
            found.entry(value).or_default().push(name);
        }
    }
    found
}

fn export(kernel: &Kernel, symbol: Object<'_>) -> Result<(u64, String), Error> {
    if !symbol.has("value_offset") {
        return Ok((symbol.u64("value")?, symbol.text("name")?));
    }
    let target = |path: &str| -> Result<u64, Error> {
        let place = symbol.at(path)?.place();
        Ok(place.wrapping_add_signed(symbol.i64(path)?))
    };
    let name = kernel
        .memory
        .text(target("name_offset")?, 512)
        .map_err(Error::hole("name of an exported symbol"))?;
    Ok((target("value_offset")?, name))
}
