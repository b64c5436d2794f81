//! The `__print_*` helpers (`trace_output.c`) and bitmaps.

use super::array::{array, bitmap};
use super::bytes::{Value, integer, locate, slice};
use super::number::{hex, padded_hex};
use super::tree::{Helper, Table};
use super::{Env, Fault, Machine, drivers, pointer};
use lastwords_bytes::{ByteOrder, low_u32};
use lastwords_trace::nul;

/// Appends the text of a helper.
pub(crate) fn run(helper: &Helper, env: &mut Env<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    match helper {
        Helper::Flags { value, delimiter, table } => {
            let (value, _) = value.int(env)?;
            env.unnamed |= !flags(out, value, delimiter, table, env.machine) && !table.is_complete;
        }
        Helper::Symbolic { value, table } => {
            let (value, _) = value.int(env)?;
            env.unnamed |= !symbolic(out, value, table, env.machine) && !table.is_complete;
        }
        Helper::Hex { buffer, length, joined } => {
            let length = length.int(env)?.0;
            let bytes = slice(buffer.value(env)?, env, length)?;
            pointer::joined(out, bytes, (!joined).then_some(b' '));
        }
        Helper::Array { buffer, count, size } => {
            let (count, size) = (count.int(env)?.0, size.int(env)?.0);
            let bytes =
                slice(buffer.value(env)?, env, count.checked_mul(size).ok_or(Fault::Outside)?)?;
            array(out, bytes, size, env.machine);
        }
        Helper::Dump { prefix, numbers, buffer } => dump(out, env, prefix, numbers, buffer)?,
        Helper::Bitmask(locator) => {
            let place = locate(env.payload, *locator, env.machine)?;
            let bytes = place.rest(env);
            bitmap(out, bytes, bytes.len().saturating_mul(8), env.machine);
        }
        Helper::Around { before, text, after } => drivers::around(before, text, after, env, out)?,
        Helper::Cdb { buffer, length } => drivers::command(buffer, length, env, out)?,
    }
    Ok(())
}

/// Converts the value to the kernel's `unsigned long` parameter. Tables of `u64` have the same
/// values on 64-bit machines.
fn cut(value: u64, machine: Machine) -> u64 {
    if machine.word_size == 4 && value >> 32 == 0xffff_ffff { value & 0xffff_ffff } else { value }
}

/// Appends the names of bits. Returns true if all have names.
fn flags(out: &mut Vec<u8>, value: u64, delimiter: &[u8], table: &Table, machine: Machine) -> bool {
    let mut left = cut(value, machine);
    let mut first = true;
    for (mask, name) in &table.rows {
        if left == 0 {
            break;
        }
        let mask = cut(*mask, machine);
        if left & mask != mask {
            continue;
        }
        left &= !mask;
        if !std::mem::take(&mut first) {
            out.extend_from_slice(delimiter);
        }
        out.extend_from_slice(name);
    }
    if left != 0 {
        if !first {
            out.extend_from_slice(delimiter);
        }
        out.extend_from_slice(b"0x");
        hex(out, left);
    }
    left == 0
}

/// Appends the name of a value. Returns true if it has one.
fn symbolic(out: &mut Vec<u8>, value: u64, table: &Table, machine: Machine) -> bool {
    let value = cut(value, machine);
    match table.rows.iter().find(|(other, _)| cut(*other, machine) == value) {
        // An empty name counts as no name, because the kernel checks whether anything was written.
        Some((_, name)) if !name.is_empty() => {
            out.extend_from_slice(name);
            true
        }
        found => {
            out.extend_from_slice(b"0x");
            hex(out, value);
            found.is_some()
        }
    }
}

fn dump(
    out: &mut Vec<u8>,
    env: &mut Env<'_, '_>,
    prefix: &super::tree::Expr,
    numbers: &[super::tree::Expr; 5],
    buffer: &super::tree::Expr,
) -> Result<(), Fault> {
    let mut values = [0u64; 5];
    for (value, expr) in values.iter_mut().zip(numbers) {
        *value = expr.int(env)?.0;
    }
    let [kind, row, group, length, ascii] = values;
    let prefix = match prefix.value(env)? {
        Value::Text(text) => nul::until(text),
        Value::Int((0, _)) => b"",
        _ => return Err(Fault::Kind),
    };
    let bytes = slice(buffer.value(env)?, env, length)?;
    let row = if row == 32 { 32 } else { 16 };
    let group = usize::try_from(group).ok().filter(|group| matches!(group, 2 | 4 | 8)).unwrap_or(1);
    out.push(b'\n');
    for (index, line) in bytes.chunks(row).enumerate() {
        out.extend_from_slice(prefix);
        // DUMP_PREFIX_ADDRESS (1) would show the address of the ring's memory.
        if let 1 | 2 = kind {
            padded_hex(out, index.saturating_mul(row) as u64, if kind == 1 { 16 } else { 8 });
            out.extend_from_slice(b": ");
        }
        dump_line(out, line, row, group, ascii != 0, env.machine.order);
        out.push(b'\n');
    }
    Ok(())
}

fn dump_line(
    out: &mut Vec<u8>,
    line: &[u8],
    row: usize,
    group: usize,
    ascii: bool,
    order: ByteOrder,
) {
    let begin = out.len();
    let group = if line.len().is_multiple_of(group) { group } else { 1 };
    for (index, part) in line.chunks(group).enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        padded_hex(out, integer(part, order), low_u32(group as u64).saturating_mul(2));
    }
    if ascii {
        let column = row
            .saturating_mul(2)
            .saturating_add(row.checked_div(group).unwrap_or(0))
            .saturating_add(1);
        out.resize(out.len().max(begin.saturating_add(column)), b' ');
        out.extend(line.iter().map(|b| if matches!(b, 0x20..=0x7e) { *b } else { b'.' }));
    }
}
