//! The symbols that the events of a file need. A kernel's whole table has several MiB, and most
//! files need some hundred symbols of it.
//!
//! A symbol is needed if an address in the recorded sub-buffers may be in it: a number at any
//! offset whose nearest symbol below it this is. The next symbol is needed too, because readers
//! take it as the end. All symbols of one address are kept.

use std::collections::HashSet;

use crate::{Ring, SymbolRow, Tracing};
use lastwords_trace::evidence::Verdict;

/// Most bytes of sub-buffers that are searched. The whole table is a small part of a file with
/// more.
const MOST: u64 = 256 << 20;

/// Symbols between which the graph of functions shows interrupts.
const NAMED: [&str; 2] = ["__irqentry_text_start", "__irqentry_text_end"];

/// The addresses of symbols, and which of them are needed.
#[derive(Default)]
struct Addresses {
    /// By rising address, each once.
    all: Vec<u64>,
    needed: Vec<bool>,
}

impl Addresses {
    fn new(mut all: Vec<u64>) -> Self {
        all.sort_unstable();
        all.dedup();
        Self { needed: vec![false; all.len()], all }
    }

    /// Marks the symbol of an address, and the next one.
    fn mark(&mut self, address: u64) {
        let next = self.all.partition_point(|symbol| *symbol <= address);
        let Some(symbol) = next.checked_sub(1) else { return };
        for position in [symbol, next] {
            if let Some(needed) = self.needed.get_mut(position) {
                *needed = true;
            }
        }
    }

    fn has(&self, address: u64) -> bool {
        self.all
            .binary_search(&address)
            .is_ok_and(|position| self.needed.get(position).is_some_and(|needed| *needed))
    }
}

/// The needed symbols.
pub(super) struct Needed {
    /// Symbols that our readers look among. Per-CPU symbols are no addresses there.
    ours: Addresses,
    /// Symbols that trace-cmd looks among: neither absolute ones nor arm's marks of code and data
    /// (`tep_parse_kallsyms`, trace-cmd's `tracecmd_parse_proc_kallsyms`).
    trace_cmd: Addresses,
    /// Names in print formats: trace-cmd takes the address of a symbol for a name that is no field
    /// (`vmemmap_base`).
    names: HashSet<String>,
}

impl Needed {
    /// Finds the symbols that the sub-buffers of `rings` need. Returns none if there is too much to
    /// search, or a sub-buffer cannot be read; then all symbols are needed.
    pub(super) fn new(tracing: &Tracing, rings: &[&dyn Ring]) -> Option<Self> {
        let cpus = rings.iter().flat_map(|ring| ring.cpus());
        let sizes =
            cpus.map(|cpu| (cpu.sub_buffers as u64).saturating_mul(u64::from(cpu.sub_buffer_size)));
        if sizes.fold(0, u64::saturating_add) > MOST {
            return None;
        }
        let mut needed = Self::none(tracing);
        let Some(lowest) =
            [&needed.ours, &needed.trace_cmd].iter().filter_map(|of| of.all.first()).min().copied()
        else {
            return Some(needed);
        };
        let mut bytes = Vec::new();
        for ring in rings {
            for (lane, cpu) in ring.cpus().iter().enumerate() {
                for index in 0..cpu.sub_buffers {
                    if ring.sub_buffer(lane, index, &mut bytes).verdict == Verdict::Missing {
                        return None;
                    }
                    needed.search(&bytes, tracing, lowest);
                }
            }
        }
        Some(needed)
    }

    fn none(tracing: &Tracing) -> Self {
        let (mut wide, mut others, mut trace_cmd) = (Vec::new(), Vec::new(), Vec::new());
        tracing.symbols.each(&mut |row| {
            match row.address {
                address if address >> 63 == 1 => wide.push(address),
                0 => {}
                address => others.push(address),
            }
            if !matches!(row.kind, 'a' | 'A') && !row.name.starts_with('$') {
                trace_cmd.push(row.address);
            }
        });
        let ours = Addresses::new(if wide.is_empty() { others } else { wide });
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names =
            tracing.formats.values().flat_map(|format| format.print_format.split(|c| !is_part(c)));
        let names = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Self { ours, trace_cmd: Addresses::new(trace_cmd), names }
    }

    /// Marks the symbols of all numbers in a sub-buffer that may be addresses.
    fn search(&mut self, bytes: &[u8], tracing: &Tracing, lowest: u64) {
        let mut last = None;
        let mut take = |address: u64| {
            if address >= lowest && last != Some(address) {
                last = Some(address);
                self.ours.mark(address);
                self.trace_cmd.mark(address);
            }
        };
        let order = tracing.byte_order;
        if tracing.word_size == 8 {
            for word in bytes.windows(8).filter_map(<[u8]>::first_chunk::<8>) {
                take(u64::from_le_bytes(order.little(*word)));
            }
        } else {
            for word in bytes.windows(4).filter_map(<[u8]>::first_chunk::<4>) {
                take(u32::from_le_bytes(order.little(*word)).into());
            }
        }
    }

    /// Returns true if a row of the table is needed.
    pub(super) fn has(&self, row: &SymbolRow<'_>) -> bool {
        NAMED.contains(&row.name)
            || self.names.contains(row.name)
            || self.ours.has(row.address)
            || self.trace_cmd.has(row.address)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{Stats, Symbols as _};
    use lastwords_testkit::random::Random;

    use super::super::Listed;
    use super::super::parts::kallsyms;
    use super::*;
    use crate::samples::{ring, tracing};

    /// A kernel's table: per-CPU offsets, code with several names for some addresses, and modules.
    fn table(r: &mut Random) -> (String, u64) {
        let mut text: String =
            (0..300).map(|n| format!("{:016x} A per_cpu_{n}\n", n * 8)).collect();
        let mut address = 0xffff_ffff_8100_0000_u64;
        for n in 0..5000 {
            address += r.below(900);
            let kind = r.pick(&['t', 'T', 'd', 'a', 'W']);
            text += &format!(
                "{address:016x} {kind} {}symbol_{n}\n",
                if r.one_in(50) { "$" } else { "" }
            );
        }
        for n in 0..500 {
            text +=
                &format!("{:016x} t loaded_{n}\t[module]\n", 0xffff_ffff_c000_0000_u64 + n * 64);
        }
        (text, address)
    }

    /// Our readers and one that looks among the symbols as trace-cmd does find the same names,
    /// offsets and ends for every number in the rings, at any offset.
    #[test]
    fn each_number_has_the_symbol_that_it_has_in_the_whole_table() {
        for seed in 0..20 {
            let r = &mut Random(seed);
            let (text, end) = table(r);
            let mut page: Vec<u8> = (0..4096).map(|_| r.below(256) as u8).collect();
            for _ in 0..60 {
                let at = 16 + r.below(4000) as usize;
                let address = 0xffff_ffff_8100_0000 + r.below(end - 0xffff_ffff_8100_0000 + 100);
                let address =
                    if r.one_in(5) { 0xffff_ffff_c000_0000 + r.below(40_000) } else { address };
                page[at..at + 8].copy_from_slice(&address.to_le_bytes());
            }
            page[..16].copy_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x0f, 0, 0, 0, 0, 0, 0]);
            let rings = ring(vec![vec![page.clone()]], Stats::default());
            let symbols = Arc::new(Listed::new(text.clone()));
            let whole = Tracing { symbols, ..tracing(Arc::clone(&rings), Arc::clone(&rings)) };
            let needed = Needed::new(&whole, &[&*rings]).expect("not too much");
            let bytes = kallsyms(&whole, Some(&needed)).split_off(4);
            let reduced = String::from_utf8(bytes).expect("text");
            assert!(reduced.len() < text.len() / 4, "{} of {} bytes", reduced.len(), text.len());
            let (ours, both) = (Listed::new(text.clone()), Listed::new(reduced.clone()));
            let (rows_of_all, rows) = (rows(&text), rows(&reduced));
            for word in page.windows(8) {
                let address = u64::from_le_bytes(word.try_into().unwrap());
                assert_eq!(ours.at(address), both.at(address), "seed {seed}, {address:#x}");
                if address >> 48 == 0xffff {
                    let found = nearest(&rows, address);
                    assert_eq!(nearest(&rows_of_all, address), found, "seed {seed}, {address:#x}");
                }
            }
        }
    }

    /// Addresses and names, without absolute symbols and marks.
    fn rows(table: &str) -> Vec<(u64, &str)> {
        let row = |line| {
            let words: Vec<&str> = str::split_whitespace(line).collect();
            let [address, kind, name, ..] = words.as_slice() else { return None };
            let counts = !matches!(*kind, "a" | "A") && !name.starts_with('$');
            Some((u64::from_str_radix(address, 16).ok()?, *name)).filter(|_| counts)
        };
        table.lines().filter_map(row).collect()
    }

    /// The names at the address of the nearest symbol, and the address of the next.
    fn nearest<'t>(rows: &[(u64, &'t str)], address: u64) -> Option<(Vec<&'t str>, Option<u64>)> {
        let below =
            rows.iter().map(|(symbol, _)| *symbol).filter(|symbol| *symbol <= address).max()?;
        let next = rows.iter().map(|(symbol, _)| *symbol).filter(|symbol| *symbol > address).min();
        Some((
            rows.iter().filter(|(symbol, _)| *symbol == below).map(|(_, name)| *name).collect(),
            next,
        ))
    }
}
