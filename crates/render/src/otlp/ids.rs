//! Ids of traces and spans: those that the program recorded, or derived ones.

use super::TraceNumber;
use crate::iter::{Field, Value};
use std::io::Write as _;

/// Names of a field that has the id of the trace: 32 hexadecimal digits, as W3C's trace context and
/// OpenTelemetry write it.
const TRACE_NAMES: [&str; 2] = ["trace_id", "otel.trace_id"];
/// Names of a field that has the id of the span: 16 hexadecimal digits as text. A number of the
/// first name is lastwords' own.
const SPAN_NAMES: [&str; 2] = ["span_id", "otel.span_id"];

/// Ids of a span, or those that a record is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
}

/// Ids that the program recorded in fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) trace: Option<[u8; 16]>,
    pub(super) span: Option<[u8; 8]>,
}

impl Recorded {
    /// Returns the ids in the fields of an event.
    pub(super) fn from_fields(fields: &[Field]) -> Self {
        Self {
            trace: texts(fields, &TRACE_NAMES).find_map(parse),
            span: texts(fields, &SPAN_NAMES).find_map(parse),
        }
    }

    /// Returns the ids in the text of an open span: `key=value` pairs. An id that occurs twice may
    /// be part of another value, and is not used.
    pub(super) fn from_text(fields: &str) -> Self {
        fn only<const N: usize>(fields: &str, names: [&str; 2]) -> Option<[u8; N]> {
            let pairs = fields.split(' ').filter_map(|pair| pair.split_once('='));
            let mut found = pairs
                .filter(|(key, _)| names.contains(key))
                .filter_map(|(_, value)| parse(value.as_bytes()));
            let first = found.next();
            first.filter(|_| found.next().is_none())
        }
        Self { trace: only(fields, TRACE_NAMES), span: only(fields, SPAN_NAMES) }
    }
}

/// Returns the texts of the fields of these names.
fn texts<'f>(
    fields: &'f [Field],
    names: &'static [&'static str; 2],
) -> impl Iterator<Item = &'f [u8]> {
    fields.iter().filter(|field| names.contains(&field.name.as_str())).filter_map(|field| {
        if let Value::Text(text) = &field.value { Some(text.as_slice()) } else { None }
    })
}

/// Parses an id of `N` bytes. Zeros are no id.
fn parse<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut id = [0; N];
    if digits.len() != N.checked_mul(2)? {
        return None;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(id).filter(|id| *id != [0; N])
}

/// Derives the ids of a span whose outermost known ancestor is `root`: the trace's id is the UUID
/// of the recorded trace, combined by exclusive or with the process (its last four bytes but eight)
/// and with the root span (the last eight bytes).
pub(super) fn derived(trace: &TraceNumber, pid: Option<i64>, root: u64, span: u64) -> Ids {
    let mut id = trace.uuid;
    let process = pid.unwrap_or(0).to_be_bytes().into_iter().skip(4);
    let mix = process.chain(root.to_be_bytes());
    id.iter_mut().skip(4).zip(mix).for_each(|(byte, mix)| *byte ^= mix);
    Ids { trace: id, span: span.to_be_bytes() }
}

/// Appends a member whose value is an id.
pub(super) fn member(out: &mut Vec<u8>, name: &str, id: &[u8]) {
    let _ = write!(out, ",\"{name}\":\"");
    id.iter().for_each(|byte| _ = write!(out, "{byte:02x}"));
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn only_whole_ids_are_taken() {
        let field = |name: &str, value| Field { name: name.into(), is_hexadecimal: false, value };
        let text = |text: &str| Value::Text(text.as_bytes().to_vec());
        let of = |name, value| Recorded::from_fields(&[field(name, value)]);
        assert_eq!(of("trace_id", text(TRACE)).trace.unwrap()[..2], [0x4b, 0xf9]);
        assert!(of("otel.trace_id", text(TRACE)).trace.is_some());
        for wrong in [&TRACE[1..], &TRACE.replace('4', "g"), &"0".repeat(32), ""] {
            assert_eq!(of("trace_id", text(wrong)), Recorded::default(), "{wrong}");
        }
        assert_eq!(of("other", text(TRACE)), Recorded::default());
        assert_eq!(of("span_id", Value::Unsigned(7)), Recorded::default());
        assert_eq!(of("span_id", text("00f067aa0ba902b7")).span.unwrap()[7], 0xb7);
    }

    #[test]
    fn an_id_in_the_text_of_a_span_counts_if_it_is_the_only_one() {
        let text = format!("order=7 trace_id={TRACE} user=ada");
        assert!(Recorded::from_text(&text).trace.is_some());
        assert_eq!(Recorded::from_text(&format!("{text} trace_id={TRACE}")).trace, None);
        assert_eq!(Recorded::from_text(&format!("mytrace_id={TRACE}")).trace, None);
    }

    #[test]
    fn derived_ids_differ_by_session_process_and_root() {
        let of = |uuid, pid, root| derived(&TraceNumber { uuid: [uuid; 16] }, pid, root, 9);
        let all = [of(1, None, 1), of(2, None, 1), of(1, Some(7), 1), of(1, None, 2)];
        for (at, one) in all.iter().enumerate() {
            assert!(all.iter().skip(at + 1).all(|other| other.trace != one.trace));
            assert_eq!(one.span, [0, 0, 0, 0, 0, 0, 0, 9]);
        }
        let one = derived(&TraceNumber { uuid: [0; 16] }, Some(0x0102), 0x0304, 9);
        assert_eq!(one.trace, [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4]);
    }
}
