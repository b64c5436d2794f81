//! Writes kallsyms tables.

use super::memory::Regions;
use lastwords_kernel::kallsyms::Tables;

/// How addresses are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// From a base; those below it as they are, the others negative.
    Absolute,
    /// All from a base.
    Based,
    /// From the place of the offset itself.
    OwnPlace,
}

/// Where the offsets of the symbols are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Before the number of symbols, up to Linux 6.3.
    OffsetsFirst,
    /// After the tokens.
    OffsetsLast,
}

/// Puts the tables at `at` and what is behind. Symbols: (address, kind, name), by address. The
/// token 0xff is for `sched_`.
pub(crate) fn write(
    memory: &mut Regions,
    at: u64,
    base: u64,
    encoding: Encoding,
    symbols: &[(u64, char, &str)],
) -> Tables {
    write_in(Order::OffsetsLast, memory, at, base, encoding, symbols)
}

/// The same in the order of some kernel.
pub(crate) fn write_in(
    order: Order,
    memory: &mut Regions,
    at: u64,
    base: u64,
    encoding: Encoding,
    symbols: &[(u64, char, &str)],
) -> Tables {
    let (mut names, mut markers) = (Vec::new(), Vec::new());
    for (n, (_, kind, name)) in symbols.iter().enumerate() {
        if n % 256 == 0 {
            markers.push(names.len() as u32);
        }
        let mut packed = vec![*kind as u8];
        let mut rest = name.as_bytes();
        while let Some((first, behind)) = rest.split_first() {
            if let Some(behind) = rest.strip_prefix(b"sched_") {
                packed.push(0xff);
                rest = behind;
            } else {
                packed.push(*first);
                rest = behind;
            }
        }
        if packed.len() > 127 {
            names.extend([(packed.len() & 0x7f) as u8 | 0x80, (packed.len() >> 7) as u8]);
        } else {
            names.push(packed.len() as u8);
        }
        names.extend(packed);
    }
    let mut tokens = Vec::new();
    let mut index = Vec::new();
    for token in 0..=255u8 {
        index.extend((tokens.len() as u16).to_le_bytes());
        match token {
            0xff => tokens.extend_from_slice(b"sched_"),
            token => tokens.push(token.max(1)),
        }
        tokens.push(0);
    }
    let size_of_offsets = (symbols.len() as u64 * 4).next_multiple_of(8);
    let num_syms = if order == Order::OffsetsFirst { at + size_of_offsets + 8 } else { at };
    let names_at = num_syms + 8;
    let markers_at = (names_at + names.len() as u64).next_multiple_of(8);
    let token_table = (markers_at + markers.len() as u64 * 4).next_multiple_of(8);
    let token_index = (token_table + tokens.len() as u64).next_multiple_of(8);
    let offsets_at = if order == Order::OffsetsFirst { at } else { token_index + 512 };
    let base_at = offsets_at + size_of_offsets;
    memory.add(at, vec![0; (base_at.max(token_index + 512) + 4096 - at) as usize]);
    memory.put_u32(num_syms, symbols.len() as u32);
    memory.put(names_at, &names);
    for (n, marker) in markers.iter().enumerate() {
        memory.put_u32(markers_at + n as u64 * 4, *marker);
    }
    memory.put(token_table, &tokens);
    memory.put(token_index, &index);
    for (n, (address, ..)) in symbols.iter().enumerate() {
        let place = offsets_at + n as u64 * 4;
        let offset = match encoding {
            Encoding::Absolute if *address < base => *address as u32,
            Encoding::Absolute => (base.wrapping_sub(1).wrapping_sub(*address)) as u32,
            Encoding::Based => address.wrapping_sub(base) as u32,
            Encoding::OwnPlace => address.wrapping_sub(place) as u32,
        };
        memory.put_u32(place, offset);
    }
    memory.put_u64(base_at, base);
    Tables {
        names: names_at,
        num_syms,
        token_table,
        token_index,
        offsets: offsets_at,
        relative_base: (encoding != Encoding::OwnPlace).then_some(base_at),
    }
}
