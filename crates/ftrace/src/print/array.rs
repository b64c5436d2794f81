//! The text of arrays and bitmaps.

use super::Machine;
use super::bytes::integer;
use super::number::{hex, padded_hex};
use lastwords_bytes::{ByteOrder, low_u32};

pub(crate) fn array(out: &mut Vec<u8>, bytes: &[u8], size: u64, machine: Machine) {
    out.push(b'{');
    let width =
        usize::try_from(size).ok().filter(|size| matches!(size, 1 | 2 | 4 | 8)).unwrap_or(1);
    for (index, element) in bytes.chunks_exact(width).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        if width as u64 != size {
            out.extend_from_slice(b"BAD SIZE:");
            lastwords_trace::text::number::unsigned(out, if index == 0 { size } else { 1 });
            out.push(b' ');
        }
        out.extend_from_slice(b"0x");
        hex(out, integer(element, machine.order));
    }
    out.push(b'}');
}

/// Appends `%*pb` of so many bits: words of 32 bits in hexadecimal, the highest first, with commas
/// between.
pub(crate) fn bitmap(out: &mut Vec<u8>, bytes: &[u8], bits: usize, machine: Machine) {
    let groups = bits.div_ceil(32);
    for group in (0..groups).rev() {
        let first = group.saturating_add(1) == groups;
        let width = if first && !bits.is_multiple_of(32) { bits % 32 } else { 32 };
        if !first {
            out.push(b',');
        }
        let mask = u32::MAX.wrapping_shr(32u32.saturating_sub(low_u32(width as u64)));
        let value = group_of(bytes, group, machine) & mask;
        padded_hex(out, u64::from(value), low_u32(width.div_ceil(4) as u64));
    }
}

/// Returns the 32 bits from bit `32 * group` of a bitmap of `long` words.
pub(crate) fn group_of(bytes: &[u8], group: usize, machine: Machine) -> u32 {
    let order = machine.order;
    let swapped = order == ByteOrder::Big && machine.word_size == 8;
    let at = if swapped { group ^ 1 } else { group }.saturating_mul(4);
    let raw = bytes.get(at..at.saturating_add(4).min(bytes.len())).unwrap_or_default();
    low_u32(integer(raw, order))
}
