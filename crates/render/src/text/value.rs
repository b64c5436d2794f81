//! Writes the values of fields in babeltrace2's style.

use super::escape::quoted;
use super::value_format::{FieldFormat, ValueFormat};
use crate::decoded::decoded;
use lastwords_trace::class::Labels;
use lastwords_trace::text::number::{general, hexadecimal, octet, signed, unsigned};
use lastwords_trace::text::page::Put;
use lastwords_trace::visit::{NodeId, Visitor};

/// Writes the fields of a scope.
pub(super) struct Writer<'a, 't> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) formats: &'a [FieldFormat<'t>],
    /// Number of the innermost levels that are not shown.
    pub(super) hidden: usize,
}

impl<'t> Writer<'_, 't> {
    /// Appends the prefix of a field, and returns the format of the field's value. Returns none if
    /// the field is not shown.
    #[inline]
    fn begin_field(&mut self, node: NodeId) -> Option<ValueFormat<'t>> {
        let format = self.formats.get(node as usize)?;
        if matches!(format.value, ValueFormat::Hidden) || self.hidden > 0 {
            return None;
        }
        format.prefix.put(self.out);
        Some(format.value)
    }
}

impl Visitor for Writer<'_, '_> {
    #[inline]
    fn integer(&mut self, node: NodeId, value: u64) {
        match self.begin_field(node) {
            Some(ValueFormat::Unsigned) => unsigned(self.out, value),
            Some(ValueFormat::Signed) => signed(self.out, value.cast_signed()),
            Some(format) => number(self.out, format, value),
            None => {}
        }
    }

    fn float(&mut self, node: NodeId, value: f64) {
        if self.begin_field(node).is_some() {
            general(self.out, value);
        }
    }

    #[inline]
    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        if let Some(ValueFormat::Text(encoding)) = self.begin_field(node) {
            quoted(self.out, &decoded(bytes, encoding));
        }
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if self.begin_field(node).is_some() {
            self.out.extend_from_slice(b"{ ");
            for byte in bytes {
                self.out.extend_from_slice(&octet(*byte));
                self.out.push(b' ');
            }
            self.out.push(b'}');
        }
    }

    #[inline]
    fn begin(&mut self, node: NodeId) {
        if self.begin_field(node).is_some() {
            self.out.push(b'{');
        }
    }

    #[inline]
    fn end(&mut self, _: NodeId) {
        if self.hidden == 0 {
            self.out.extend_from_slice(b" }");
        }
    }

    fn begin_array(&mut self, node: NodeId, _: u64) {
        match self.begin_field(node) {
            Some(_) => self.out.push(b'['),
            None => self.hidden = self.hidden.wrapping_add(1),
        }
    }

    fn element(&mut self, index: u64) {
        if self.hidden == 0 {
            self.out.extend_from_slice(if index == 0 { b" [" } else { b", [" });
            unsigned(self.out, index);
            self.out.extend_from_slice(b"] = ");
        }
    }

    fn end_array(&mut self, _: NodeId) {
        if self.hidden == 0 {
            self.out.extend_from_slice(b" ]");
        } else {
            self.hidden = self.hidden.wrapping_sub(1);
        }
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        match (self.begin_field(node), case) {
            (Some(_), Some(_)) => self.out.extend_from_slice(b"{ "),
            (Some(_), None) => self.out.extend_from_slice(b"<none>"),
            (None, Some(_)) => self.hidden = self.hidden.wrapping_add(1),
            (None, None) => {}
        }
    }

    fn end_case(&mut self, _: NodeId) {
        if self.hidden == 0 {
            self.out.extend_from_slice(b" }");
        } else {
            self.hidden = self.hidden.wrapping_sub(1);
        }
    }
}

/// Appends a number in any format.
pub(super) fn number(out: &mut impl Put, format: ValueFormat<'_>, value: u64) {
    match format {
        ValueFormat::Based(length, is_signed, base) => based(out, value, length, is_signed, base),
        ValueFormat::Enum(mappings, length, is_signed, base) => {
            let wide = if is_signed { i128::from(value.cast_signed()) } else { i128::from(value) };
            out.text(b"( ");
            let mut matching = mappings.containing(wide);
            match (matching.next(), matching.next()) {
                (None, _) => out.text(b"<unknown>"),
                (Some(only), None) => quoted(out, only.label.as_bytes()),
                (Some(first), Some(second)) => {
                    out.text(b"{ ");
                    quoted(out, first.label.as_bytes());
                    for mapping in std::iter::once(second).chain(matching) {
                        out.text(b", ");
                        quoted(out, mapping.label.as_bytes());
                    }
                    out.text(b" }");
                }
            }
            out.text(b" : container = ");
            based(out, value, length, is_signed, base);
            out.text(b" )");
        }
        ValueFormat::Bool => out.text(if value == 0 { b"false" } else { b"true" }),
        ValueFormat::Bits(flags) => bit_map(out, value, flags),
        _ => unsigned(out, value),
    }
}

/// Appends the number and the names of the bits that are set.
fn bit_map(out: &mut impl Put, value: u64, flags: &Labels) {
    hexadecimal(out, value);
    let set = (0u8..64).filter(|bit| value >> bit & 1 == 1).map(i128::from);
    let mut names = flags.of_any(set).enumerate().peekable();
    while let Some((i, flag)) = names.next() {
        out.text(if i == 0 { b" { " } else { b", " });
        quoted(out, flag.label.as_bytes());
        if names.peek().is_none() {
            out.text(b" }");
        }
    }
}

/// Appends a number of this length in bits to a base. Numbers of any base but 2, 8 and 16 are
/// decimal.
pub(super) fn based(out: &mut impl Put, value: u64, length: u8, is_signed: bool, base: u8) {
    let rounded = |unit: u32| {
        let bits = u32::from(length).next_multiple_of(unit);
        if bits >= 64 || length == 64 { u64::MAX } else { (1u64 << bits).wrapping_sub(1) }
    };
    match base {
        2 => {
            out.text(b"0b");
            (0..length)
                .rev()
                .for_each(|bit| out.text(if value >> bit & 1 == 1 { b"1" } else { b"0" }));
        }
        8 => {
            let value = if is_signed { value & rounded(3) } else { value };
            out.text(b"0");
            let digits = 64u32.wrapping_sub((value | 1).leading_zeros()).div_ceil(3);
            (0..digits).rev().for_each(|digit: u32| {
                out.text(&[b'0'.wrapping_add((value >> digit.wrapping_mul(3) & 7) as u8)])
            });
        }
        16 => hexadecimal(out, value & rounded(4)),
        _ if is_signed => signed(out, value.cast_signed()),
        _ => unsigned(out, value),
    }
}
