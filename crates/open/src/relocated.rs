//! The symbols of a kernel at the addresses of another boot, which wrote a region.
//!
//! The code of the kernel moved by one offset, and the code of each module by its own. The data of
//! a module do not move with its code, and a region does not save where they were.

use crate::describe::Landmarks;
use lastwords_ftrace::persistent::Boot;
use lastwords_ftrace::{NoSymbols, Parameter, Symbol, SymbolRow, Symbols};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The largest size of a module's code, in bytes.
const LONGEST_MODULE: u64 = 64 << 20;
/// The code of a module ends at a multiple of this number of bytes, the smallest page of a kernel.
const PAGE: u64 = 4096;

/// The symbols of a kernel, relocated to the addresses of another boot.
pub(super) struct RelocatedSymbols {
    listed: Arc<dyn Symbols>,
    /// The offset to add to the addresses of the kernel's own symbols.
    kernel: u64,
    /// The address behind the kernel's own code and data, as listed. The modules of the boot that
    /// wrote the region may have been anywhere else, also where the displaced addresses lie behind
    /// the last symbol of the kernel.
    end: u64,
    /// The modules of the boot that wrote the region, by the address of their code in it.
    modules: BTreeMap<u64, Module>,
}

/// A module of the boot that wrote a region.
struct Module {
    name: String,
    /// The listed addresses of its code; none if the symbols have no such module. The end is that
    /// of the page in which the last function begins, because a list of symbols does not tell the
    /// size of the last one.
    code: Option<Range<u64>>,
}

impl RelocatedSymbols {
    /// Relocates `listed` to the boot that wrote a region. `modules` are names and listed addresses
    /// of modules. Adds notes on what cannot be relocated.
    pub(super) fn new(
        listed: Arc<dyn Symbols>,
        landmarks: Landmarks,
        modules: Vec<(String, u64)>,
        boot: &Boot,
        notes: &mut Vec<String>,
    ) -> Self {
        let end = landmarks.end.unwrap_or(u64::MAX);
        let kernel = match (boot.text_address, landmarks.text.into_iter().flatten().next()) {
            (Some(there), Some(here)) => there.wrapping_sub(here),
            (Some(_), None) => {
                notes.push(
                    "the symbols have no address that the region could be compared with: they are taken as they are"
                        .into(),
                );
                0
            }
            (None, _) => {
                notes.push("the region does not tell where the kernel's code was: addresses and names are those of the boot of the symbols".into());
                0
            }
        };
        let mut symbols = Self { kernel, end, ..Self::unknown(boot) };
        let codes = codes(listed.as_ref(), modules, &symbols.modules);
        for (address, module) in &mut symbols.modules {
            module.code = codes.get(&module.name).cloned();
            if module.code.is_none() {
                let name = &module.name;
                notes.push(format!("module {name} at {address:#x} is not among the modules of the kernel that the symbols are of: its addresses are shown from there on"));
            }
        }
        Self { listed, ..symbols }
    }

    /// Makes symbols from the saved addresses of modules alone.
    pub(super) fn unknown(boot: &Boot) -> Self {
        let saved = boot.modules.iter();
        let modules = saved
            .map(|saved| (saved.address, Module { name: saved.name.clone(), code: None }))
            .collect();
        Self { listed: Arc::new(NoSymbols), kernel: 0, end: u64::MAX, modules }
    }

    /// Returns true if nothing that the region saves contradicts that the listed addresses are
    /// those of the boot that wrote it: the kernel and the modules that both have are at the same
    /// addresses.
    pub(super) fn are_of_the_boot(&self) -> bool {
        let is_there = |(base, module): (&u64, &Module)| {
            module.code.as_ref().is_none_or(|code| code.start == *base)
        };
        self.kernel == 0 && self.modules.iter().all(is_there)
    }

    /// Returns a listed address of the kernel's own code or data as it was in the boot that wrote
    /// the region.
    pub(super) fn kernel_address(&self, listed: u64) -> u64 {
        listed.wrapping_add(self.kernel)
    }

    /// Returns the module in whose code an address can be, with the address of that code: the code
    /// of modules does not overlap, so it is the nearest one below.
    fn owner(&self, address: u64) -> Option<(u64, &Module)> {
        self.modules.range(..=address).next_back().map(|(base, module)| (*base, module))
    }

    /// Names an address in the code of a module that both boots had.
    fn in_code(&self, address: u64) -> Option<Symbol> {
        let (base, module) = self.owner(address)?;
        let code = module.code.as_ref()?;
        let here = Some(code.start.wrapping_add(address.wrapping_sub(base)))
            .filter(|here| code.contains(here))?;
        let symbol =
            self.listed.at(here).filter(|symbol| symbol.module.as_ref() == Some(&module.name))?;
        let longest = code.end.saturating_sub(here.saturating_sub(symbol.offset));
        Some(Symbol { size: symbol.size.min(longest), ..symbol })
    }

    /// Names an address of a module of the boot of the symbols, if that boot wrote the region.
    fn of_the_boot(&self, address: u64) -> Option<Symbol> {
        let symbol = self.are_of_the_boot().then(|| self.listed.at(address)).flatten()?;
        symbol.module.as_ref().is_some_and(|module| self.may_have_loaded(module)).then_some(symbol)
    }

    /// Returns true if the boot that wrote the region can have had this module: a region that saves
    /// modules saves all.
    fn may_have_loaded(&self, module: &str) -> bool {
        self.modules.is_empty() || self.modules.values().any(|saved| saved.name == module)
    }

    /// Names an address in a module without known symbols, by its distance from the module's saved
    /// base.
    fn near_base(&self, address: u64) -> Option<Symbol> {
        let (base, module) = self.owner(address)?;
        let offset = address.saturating_sub(base);
        let is_near = offset < LONGEST_MODULE && module.code.is_none();
        is_near.then(|| Symbol {
            name: format!("{base:#x}"),
            offset,
            size: 0,
            module: Some(module.name.clone()),
        })
    }
}

impl Symbols for RelocatedSymbols {
    fn at(&self, address: u64) -> Option<Symbol> {
        let here = Some(address.wrapping_sub(self.kernel)).filter(|here| *here < self.end);
        let of_kernel =
            here.and_then(|here| self.listed.at(here)).filter(|symbol| symbol.module.is_none());
        of_kernel
            .or_else(|| self.in_code(address))
            .or_else(|| self.of_the_boot(address))
            .or_else(|| self.near_base(address))
    }

    fn text_at(&self, address: u64) -> Option<Vec<u8>> {
        self.listed.text_at(address.wrapping_sub(self.kernel))
    }

    fn parameters(&self, function: &str) -> Option<Vec<Parameter>> {
        self.listed.parameters(function)
    }

    fn constant(&self, name: &str) -> Option<i64> {
        self.listed.constant(name).filter(|_| self.kernel == 0)
    }

    fn each(&self, each: &mut dyn FnMut(SymbolRow<'_>)) {
        let are_of_the_boot = self.are_of_the_boot();
        self.listed.each(&mut |row| match row.module {
            // Absolute symbols and offsets in per-CPU memory are not relocated.
            None if row.address >> 63 == 0 => each(row),
            None => each(SymbolRow { address: self.kernel_address(row.address), ..row }),
            Some(name) if are_of_the_boot && !self.may_have_loaded(name) => {}
            Some(_) if are_of_the_boot => each(row),
            Some(name) => {
                for (base, module) in self.modules.iter().filter(|(_, module)| module.name == name)
                {
                    let code = module.code.as_ref().filter(|code| code.contains(&row.address));
                    let address =
                        code.map(|code| base.wrapping_add(row.address.wrapping_sub(code.start)));
                    address.into_iter().for_each(|address| each(SymbolRow { address, ..row }));
                }
            }
        });
    }
}

/// Returns the listed addresses of the code of those `modules` that are saved, by the name of the
/// module.
fn codes(
    listed: &dyn Symbols,
    modules: Vec<(String, u64)>,
    saved: &BTreeMap<u64, Module>,
) -> BTreeMap<String, Range<u64>> {
    let names: BTreeSet<&str> = saved.values().map(|module| module.name.as_str()).collect();
    let starts: BTreeMap<String, u64> =
        modules.into_iter().filter(|(name, _)| names.contains(name.as_str())).collect();
    if starts.is_empty() {
        return BTreeMap::new();
    }
    // The symbols of all modules, with the address of the code of the module to which a function
    // belongs.
    let mut rows: Vec<(u64, Option<u64>)> = Vec::new();
    listed.each(&mut |row| {
        let is_function = row.kind.eq_ignore_ascii_case(&'t');
        let start = |name| starts.get(name).copied().filter(|_| is_function);
        rows.extend(row.module.map(|name| (row.address, start(name))));
    });
    rows.sort_unstable();
    let code = |start: u64| {
        let first = rows.partition_point(|(address, _)| *address < start);
        let is_own = |row: &&(u64, Option<u64>)| {
            row.1 == Some(start) && row.0.saturating_sub(start) < LONGEST_MODULE
        };
        let last = rows.iter().skip(first).take_while(is_own).last();
        let next = rows
            .iter()
            .skip(first)
            .find(|row| !is_own(row))
            .map_or(u64::MAX, |(address, _)| *address);
        start
            ..last
                .map_or(start, |(last, _)| last.saturating_add(1).next_multiple_of(PAGE).min(next))
    };
    starts.into_iter().map(|(name, start)| (name, code(start))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_ftrace::dat::Listed;
    use proptest::prelude::*;

    const AREA: u64 = 0xffff_ffff_c000_0000;
    const PAGES: u64 = 8;

    /// A module as the test makes it: the sizes of its functions, and the size of its data.
    #[derive(Debug, Clone)]
    struct Made {
        functions: Vec<u64>,
        data: u64,
        /// The places of its code and data among those of all modules, and the gap in front of
        /// each, in pages, by boot.
        places: [[(u32, u64); 2]; 2],
        is_in: [bool; 2],
    }

    fn made() -> impl Strategy<Value = Made> {
        let place = || (any::<u32>(), 0..PAGES);
        let functions = proptest::collection::vec(prop_oneof![8..400_u64, 3000..9000_u64], 1..8);
        (functions, 0..9000_u64, any::<[bool; 4]>(), [place(), place(), place(), place()]).prop_map(
            |(functions, data, [a, b, c, d], [e, f, g, h])| Made {
                functions: functions.into_iter().map(|size| size.next_multiple_of(8)).collect(),
                data,
                places: [[e, f], [g, h]],
                is_in: [a || b, c || d],
            },
        )
    }

    /// Places code and data of the modules of one boot one behind the other. Returns the addresses
    /// of both, by module.
    fn place(modules: &[Made], boot: usize) -> BTreeMap<usize, [u64; 2]> {
        let present = || modules.iter().enumerate().filter(|(_, module)| module.is_in[boot]);
        let mut parts: Vec<_> = present().flat_map(|(at, _)| [(at, 0), (at, 1)]).collect();
        parts.sort_by_key(|(at, part)| modules[*at].places[boot][*part].0);
        let (mut next, mut placed) = (AREA, BTreeMap::new());
        for (at, part) in parts {
            let size = [modules[at].functions.iter().sum(), modules[at].data][part];
            let address = next + modules[at].places[boot][part].1 * PAGE;
            placed.entry(at).or_insert([0; 2])[part] = address;
            next = (address + size).next_multiple_of(PAGE);
        }
        placed
    }

    fn name(module: usize) -> String {
        format!("module{module}")
    }

    proptest! {
        #[test]
        fn no_address_is_named_as_another_and_whole_functions_are_named(
            modules in proptest::collection::vec(made(), 1..7),
            is_listed in any::<u8>(),
        ) {
            let [there, here] = [0, 1].map(|boot| place(&modules, boot));
            let mut text = format!("{:016x} T _text\n", 0xffff_ffff_8100_0000_u64);
            for (module, [code, data]) in &here {
                let mut at = *code;
                for (number, size) in modules[*module].functions.iter().enumerate() {
                    text.push_str(&format!("{at:016x} t f{number}\t[{}]\n", name(*module)));
                    at += size;
                }
                if modules[*module].data > 0 {
                    text.push_str(&format!("{data:016x} d d\t[{}]\n", name(*module)));
                }
            }
            let modules_here = here.iter().map(|(module, [code, _])| (name(*module), *code)).collect();
            // A region whose list is full does not save all modules.
            let is_saved = |module: usize| is_listed == 0 || is_listed >> module & 1 == 1;
            let saved = there.iter().filter(|(module, _)| is_saved(**module));
            let saved: BTreeMap<u64, Module> =
                saved.map(|(module, [code, _])| (*code, Module { name: name(*module), code: None })).collect();
            let listed = Listed::new(text);
            let codes = codes(&listed, modules_here, &saved);
            let with_code = |(base, module): (u64, Module)| (base, Module { code: codes.get(&module.name).cloned(), ..module });
            let symbols = RelocatedSymbols {
                listed: Arc::new(listed),
                kernel: 1 << 24,
                end: 0xffff_ffff_8200_0000,
                modules: saved.into_iter().map(with_code).collect(),
            };
            for (module, [code, data]) in &there {
                let mut at = *code;
                let last = code + modules[*module].functions.iter().rev().skip(1).sum::<u64>();
                for (number, size) in modules[*module].functions.iter().enumerate() {
                    for address in (at..at + size).step_by(8) {
                        let is_certain = address < last || address < (last + 1).next_multiple_of(PAGE);
                        match symbols.at(address) {
                            Some(found) if found.name.starts_with("0x") => {
                                prop_assert!(!is_saved(*module) || !here.contains_key(module));
                                if is_saved(*module) {
                                    prop_assert_eq!(found.name, format!("{code:#x}"));
                                    prop_assert_eq!((found.offset, found.module), (address - code, Some(name(*module))));
                                }
                            }
                            Some(found) => {
                                prop_assert_eq!(found.module, Some(name(*module)));
                                prop_assert_eq!((found.name, found.offset), (format!("f{number}"), address - at));
                            }
                            None => prop_assert!(!is_saved(*module) || here.contains_key(module) && !is_certain),
                        }
                    }
                    at += size;
                }
                for address in (*data..data + modules[*module].data).step_by(8) {
                    let found = symbols.at(address).filter(|found| !found.name.starts_with("0x"));
                    prop_assert_eq!(found, None);
                }
            }
        }
    }
}
