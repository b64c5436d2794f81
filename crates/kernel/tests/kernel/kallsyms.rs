//! kallsyms by a writer that shares nothing with the reader.

use crate::support::kallsyms::{Encoding, write};
use crate::support::memory::Regions;
use lastwords_bytes::Budget;
use lastwords_kernel::kallsyms::Kallsyms;

const AT: u64 = 0xffff_ffff_8200_0000;
const BASE: u64 = 0xffff_ffff_8100_0000;

fn long_name() -> String {
    "a_name_".repeat(40)
}

fn symbols(long: &str) -> Vec<(u64, char, &str)> {
    vec![
        (0, 'A', "fixed_percpu_data"),
        (0x1000, 'A', "cpu_info"),
        (BASE, 'T', "_stext"),
        (BASE, 'T', "_text"),
        (BASE + 0x10, 't', "sched_clock"),
        (BASE + 0x40, 't', "local"),
        (BASE + 0x50, 'T', long),
        (BASE + 0x90, 't', "local"),
        (BASE + 0x100, 'B', "_end"),
    ]
}

fn read(encoding: Encoding) -> Kallsyms {
    let long = long_name();
    let mut memory = Regions::default();
    let mut symbols = symbols(&long);
    if encoding != Encoding::Absolute {
        symbols.drain(..2);
    }
    let tables = write(&mut memory, AT, BASE, encoding, &symbols);
    Kallsyms::read(&memory, &tables, &Budget::default()).unwrap()
}

#[test]
fn every_encoding_gives_the_same() {
    for encoding in [Encoding::Absolute, Encoding::Based, Encoding::OwnPlace] {
        let table = read(encoding);
        assert_eq!(table.find("sched_clock"), Some(BASE + 0x10));
        assert_eq!(table.find(&long_name()), Some(BASE + 0x50));
        assert_eq!(table.find("nobody"), None);
        let locals: Vec<u64> = table.named("local").map(|index| table.address(index)).collect();
        assert_eq!(locals, [BASE + 0x40, BASE + 0x90]);
        assert!(table.missing().is_none());
    }
    assert_eq!(read(Encoding::Absolute).find("cpu_info"), Some(0x1000));
}

#[test]
fn an_address_is_in_the_first_of_its_names_up_to_the_next_address() {
    let table = read(Encoding::Absolute);
    let mut name = Vec::new();
    let mut at = |address| {
        let (index, start, size) = table.at(address)?;
        let kind = table.name(index, &mut name);
        Some((kind, String::from_utf8(name.clone()).unwrap(), start, size))
    };
    assert_eq!(at(BASE + 3), Some((b'T', "_stext".into(), BASE, 0x10)));
    assert_eq!(at(BASE + 0x4f), Some((b't', "local".into(), BASE + 0x40, 0x10)));
    assert_eq!(at(BASE + 0x100), None);
    assert_eq!(at(BASE - 1), None);
    assert_eq!(at(0x1000), None);
}

#[test]
fn rows_from_elsewhere_make_the_same_table() {
    let long = long_name();
    let mut rows: Vec<(u64, u8, &str)> = symbols(&long)
        .into_iter()
        .map(|(address, kind, name)| (address, kind as u8, name))
        .collect();
    rows.rotate_left(4);
    let table = Kallsyms::of_rows(rows);
    let image = read(Encoding::Absolute);
    for address in [BASE + 3, BASE + 0x20, BASE + 0x60, BASE + 0x99] {
        let of = |table: &Kallsyms| table.at(address).map(|(_, start, size)| (start, size));
        assert_eq!(of(&table), of(&image));
    }
    assert_eq!(table.find(&long), Some(BASE + 0x50));
}

/// A page that is missing, or reads as zero, costs the names in it and up to the next marker, or
/// the addresses in it. No other symbol gets an address or a name that is not its own.
#[test]
fn a_lost_page_costs_its_symbols_alone() {
    let names: Vec<String> = (0..3000).map(|n| format!("symbol_number_{n}")).collect();
    let address = |n: usize| BASE + n as u64 * 16;
    let rows: Vec<(u64, char, &str)> =
        names.iter().enumerate().map(|(n, name)| (address(n), 't', name.as_str())).collect();
    for encoding in [Encoding::Based, Encoding::OwnPlace] {
        let mut memory = Regions::default();
        let tables = write(&mut memory, AT, BASE, encoding, &rows);
        let whole = memory.0.remove(&AT).unwrap();
        // Neither the count, the tokens nor the base.
        let kept = [AT, tables.token_table, tables.token_index, tables.relative_base.unwrap_or(AT)]
            .map(|at| (at - AT) / 4096);
        for page in (0..whole.len() / 4096).filter(|page| !kept.contains(&(*page as u64))) {
            for is_zero in [false, true] {
                let mut memory = Regions::default();
                let (begin, end) = (page * 4096, (page + 1) * 4096);
                memory.add(AT, whole[..begin].to_vec());
                if is_zero {
                    memory.add(AT + begin as u64, vec![0; 4096]);
                }
                memory.add(AT + end as u64, whole[end..].to_vec());
                let table = Kallsyms::read(&memory, &tables, &Budget::default()).unwrap();
                let (mut known, mut name) = (0, Vec::new());
                for (n, expected) in names.iter().enumerate() {
                    if let Some(found) = table.find(expected) {
                        assert_eq!(found, address(n), "page {page}, {is_zero}: {expected}");
                        known += 1;
                    }
                    if let Some((index, start, _)) = table.at(address(n) + 5) {
                        table.name(index, &mut name);
                        assert_eq!(
                            (start, std::str::from_utf8(&name).unwrap()),
                            (address(n), expected.as_str()),
                            "page {page}, {is_zero}"
                        );
                    }
                }
                assert!(
                    known > 3000 - 1024 - 520,
                    "page {page}, {is_zero}: {known} symbols are known"
                );
                let is_lost = known < 3000;
                assert_eq!(table.missing().is_some(), is_lost, "page {page}, {is_zero}");
            }
        }
    }
}

/// A damaged length of a name costs the names of its block: no symbol after it gets the name of
/// another.
#[test]
fn a_damaged_length_costs_the_names_up_to_the_next_marker() {
    let names: Vec<String> = (0..1500).map(|n| format!("symbol_number_{n}")).collect();
    let address = |n: usize| BASE + n as u64 * 16;
    let rows: Vec<_> =
        names.iter().enumerate().map(|(n, name)| (address(n), 't', name.as_str())).collect();
    let mut memory = Regions::default();
    let tables = write(&mut memory, AT, BASE, Encoding::Based, &rows);
    let mut at = tables.names;
    for (damaged, name) in names.iter().enumerate() {
        if damaged % 97 == 5 {
            for length in [1, name.len() as u8, name.len() as u8 + 2, 100] {
                memory.put(at, &[length]);
                let table = Kallsyms::read(&memory, &tables, &Budget::default()).unwrap();
                assert!(table.missing().is_some(), "{damaged}, {length}");
                let block = damaged / 256 * 256..damaged / 256 * 256 + 256;
                for (n, expected) in names.iter().enumerate().filter(|(n, _)| *n != damaged) {
                    let found = table.find(expected);
                    assert!(
                        found.is_none() || found == Some(address(n)),
                        "{damaged}, {length}: {expected}"
                    );
                    assert!(
                        found.is_some() || block.contains(&n),
                        "{damaged}, {length}: {expected} is lost"
                    );
                }
            }
            memory.put(at, &[name.len() as u8 + 1]);
        }
        at += name.len() as u64 + 2;
    }
}

#[test]
fn an_absurd_count_is_refused() {
    let mut memory = Regions::default();
    let tables = write(&mut memory, AT, BASE, Encoding::Based, &[(BASE, 'T', "_stext")]);
    memory.put_u32(tables.num_syms, u32::MAX);
    assert!(Kallsyms::read(&memory, &tables, &Budget::default()).is_err());
    // One that only the names' end refutes costs no more than the names.
    memory.put_u32(tables.num_syms, 1 << 20);
    let table = Kallsyms::read(&memory, &tables, &Budget::default()).unwrap();
    assert!(table.len() < 100);
}
