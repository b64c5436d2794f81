//! The symbols that a file lists.

use std::ops::Range;
use std::sync::OnceLock;

use super::listing::whole_lines;
use crate::{Symbol, SymbolRow, Symbols};

/// Number of bytes after the start of the last symbol that belong to it.
const LAST: u64 = 1 << 16;

struct Row {
    address: u64,
    kind: char,
    name: (u32, u32),
    module: Option<(u32, u32)>,
}

/// Symbols of `/proc/kallsyms`. The text is parsed when the first symbol is asked for, because many
/// traces need none.
#[derive(Default)]
pub struct Listed {
    text: String,
    table: OnceLock<Table>,
}

/// The parsed lines of the text.
struct Table {
    /// Lines in the order of the file.
    rows: Vec<Row>,
    /// Positions in `rows`, sorted by address. Equal addresses keep the order of the file.
    sorted: Vec<u32>,
    /// Addresses between rows that a part of the text which reads as zero separates, or behind the
    /// last one of a text that is cut: their symbols are not known.
    lost: Vec<Range<u64>>,
}

/// A position in a text or a table, which are much smaller than 4 GiB.
fn small(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// Returns the rows of a text, and the addresses whose rows read as zero or are cut off.
fn rows(text: &str, row: impl Fn(&str) -> Option<Row>) -> (Vec<Row>, Vec<Range<u64>>) {
    let (mut rows, mut lost) = (Vec::<Row>::new(), Vec::new());
    let mut lost_from = None;
    let lines = whole_lines(text);
    for line in lines.lines() {
        if line.contains('\0') {
            // The symbol before the gap ends where the next one begins, which is not known either.
            lost_from = lost_from.or_else(|| Some(rows.last().map_or(0, |row| row.address)));
        } else if let Some(row) = row(line) {
            lost.extend(lost_from.take().map(|from: u64| from..row.address.max(from)));
            rows.push(row);
        }
    }
    if lines.len() < text.len() {
        lost_from = lost_from.or_else(|| Some(rows.last().map_or(0, |row| row.address)));
    }
    lost.extend(lost_from.map(|from| from..u64::MAX));
    (rows, lost)
}

impl Table {
    fn new(text: &str) -> Self {
        let place = |part: &str| {
            let begin = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            (small(begin), small(begin.saturating_add(part.len())))
        };
        let row = |line: &'_ str| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?.chars().next()?;
            let name = place(words.next()?);
            let module = words.next().map(|m| place(m.trim_matches(['[', ']'])));
            Some(Row { address, kind, name, module })
        };
        let (rows, lost) = rows(text, row);
        // Per-CPU and absolute symbols are not addresses. If the kernel hides addresses, all of
        // them are 0.
        let is_wide = rows.iter().any(|r| r.address >> 63 == 1);
        let counts = |r: &Row| if is_wide { r.address >> 63 == 1 } else { r.address != 0 };
        let mut sorted: Vec<u32> = (0..small(rows.len()))
            .filter(|at| rows.get(*at as usize).is_some_and(counts))
            .collect();
        sorted.sort_by_key(|at| rows.get(*at as usize).map(|row| row.address));
        Self { rows, sorted, lost }
    }

    fn address(&self, at: usize) -> Option<u64> {
        self.rows.get(*self.sorted.get(at)? as usize).map(|r| r.address)
    }
}

impl Listed {
    /// Makes the symbols of a text of `/proc/kallsyms`.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self { text, table: OnceLock::new() }
    }

    fn table(&self) -> &Table {
        self.table.get_or_init(|| Table::new(&self.text))
    }

    fn part(&self, place: (u32, u32)) -> &str {
        self.text.get(place.0 as usize..place.1 as usize).unwrap_or_default()
    }
}

impl Symbols for Listed {
    fn at(&self, address: u64) -> Option<Symbol> {
        let table = self.table();
        if table.lost.iter().any(|range| range.contains(&address)) {
            return None;
        }
        let of = |at: &u32| table.rows.get(*at as usize).map_or(0, |row| row.address);
        let behind = table.sorted.partition_point(|at| of(at) <= address);
        let start = table.address(behind.checked_sub(1)?)?;
        let end = table.address(behind).unwrap_or(start.saturating_add(LAST));
        if address >= end {
            return None;
        }
        let first = table.sorted.partition_point(|at| of(at) < start);
        let row = table.rows.get(*table.sorted.get(first)? as usize)?;
        Some(Symbol {
            name: self.part(row.name).to_owned(),
            offset: address.saturating_sub(start),
            size: end.saturating_sub(start),
            module: row.module.map(|place| self.part(place).to_owned()),
        })
    }

    fn each(&self, each: &mut dyn FnMut(SymbolRow<'_>)) {
        for row in &self.table().rows {
            let module = row.module.map(|place| self.part(place));
            each(SymbolRow {
                address: row.address,
                kind: row.kind,
                name: self.part(row.name),
                module,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of the list reads as zero. No address there has the name of a symbol in front of it.
    #[test]
    fn addresses_of_a_gap_have_no_names() {
        let address = |n: u64| 0xffff_ffff_8100_0000 + n * 16;
        let text: String = (0..100).map(|n| format!("{:x} t f{n}\n", address(n))).collect();
        let whole = Listed::new(text.clone());
        for (begin, end) in
            [(0, 30), (200, 201), (200, 400), (250, 1500), (text.len() - 40, text.len())]
        {
            let mut bytes = text.clone().into_bytes();
            bytes[begin..end].fill(0);
            let listed = Listed::new(String::from_utf8(bytes).unwrap());
            let mut unnamed = 0;
            for n in 0..100 {
                let (found, known) = (listed.at(address(n) + 3), whole.at(address(n) + 3).unwrap());
                unnamed += usize::from(found.is_none());
                if let Some(found) = found {
                    assert_eq!(
                        (found.name, found.offset, found.size),
                        (known.name, 3, known.size),
                        "{n} in {begin}..{end}"
                    );
                }
            }
            let lines = text.as_bytes()[begin..end].iter().filter(|byte| **byte == b'\n').count();
            assert!(
                (lines..lines + 4).contains(&unnamed),
                "{unnamed} of {lines} lines in {begin}..{end}"
            );
        }
        // The end of the list is missing: no symbol has a part of its name, or the addresses of
        // others behind it.
        for end in text.len() - 60..text.len() {
            if text[..end].ends_with('\n') {
                continue;
            }
            let listed = Listed::new(text[..end].to_owned());
            // The last whole line ends where the next one begins, which is not known.
            let known = text[..end].lines().count() as u64 - 2;
            for n in known - 4..100 {
                let found = listed.at(address(n) + 3).map(|symbol| symbol.name);
                assert_eq!(found, (n < known).then(|| format!("f{n}")), "{n}, cut at {end}");
            }
        }
    }
}
