//! Formats the events of classes whose fields follow each other on byte boundaries. Such an event
//! takes one pass over its bytes, without a visitor.

use super::escape::{plain, readable, within_quotes};
use super::value::number;
use super::value_format::{ScopePlan, ValueFormat};
use lastwords_bytes::ByteOrder;
use lastwords_ctf::program::{Code, Flat};
use lastwords_trace::class::Encoding;
use lastwords_trace::integer::{extend, take_integer};
use lastwords_trace::nul;
use lastwords_trace::text::number::{Constant, hexadecimal, signed, unsigned};
use lastwords_trace::text::page::Put;

/// The steps that format the contexts and the payload of an event class.
pub(super) struct Line<'t> {
    /// The text before the first value, or the whole text if there is no value.
    head: Constant,
    steps: Vec<Step<'t>>,
    /// There are no fields and no braces.
    pub(super) is_empty: bool,
}

/// A value, and the text between it and the next value. The text after the last value includes the
/// line feed.
struct Step<'t> {
    value: Value<'t>,
    behind: Constant,
}

/// Collects the steps of a line.
#[derive(Default)]
struct Steps<'t> {
    head: Option<Constant>,
    steps: Vec<Step<'t>>,
    /// The value that was added last. The text after it is not complete.
    last: Option<Value<'t>>,
    /// The text after the last value.
    text: Vec<u8>,
}

impl<'t> Steps<'t> {
    /// Adds a value after the text.
    fn add(&mut self, value: Value<'t>) {
        self.complete();
        self.last = Some(value);
    }

    /// Adds the text to the value before it, or to the beginning of the line.
    fn complete(&mut self) {
        let text = Constant::new(&self.text);
        self.text.clear();
        match self.last.take() {
            Some(value) => self.steps.push(Step { value, behind: text }),
            None => self.head = Some(text),
        }
    }

    /// Returns the line. `tail` is the text after the last value.
    fn line(mut self, tail: &[u8], is_empty: bool) -> Line<'t> {
        self.text.extend_from_slice(tail);
        self.complete();
        let head = self.head.unwrap_or_else(|| Constant::new(b""));
        Line { head, steps: self.steps, is_empty }
    }
}

enum Value<'t> {
    Skip(usize),
    /// This integer and the next three are the most frequent.
    Unsigned32,
    Signed32,
    Unsigned64,
    Hexadecimal64,
    Integer {
        size: u8,
        signed: bool,
        order: ByteOrder,
        format: ValueFormat<'t>,
    },
    /// Text up to a NUL. The quotes around it are part of the text before and after it.
    Text,
    Chars(usize),
    /// Text up to a NUL. It has quotes only if it is not one plain word.
    Word,
    WordChars(usize),
}

impl<'t> Line<'t> {
    /// Returns the steps for the scopes of an event class, in order. Returns none if a field has no
    /// simple form.
    pub(super) fn new(scopes: &[&ScopePlan<'t>]) -> Option<Self> {
        let mut steps = Steps::default();
        let mut is_empty = true;
        for (position, scope) in scopes.iter().enumerate() {
            if position > 0 {
                steps.text.extend_from_slice(b", ");
            }
            for flat in scope.code.flat()? {
                is_empty = false;
                if let Some(value) = value(scope, flat, &mut steps.text)? {
                    let quote: &[u8] =
                        if matches!(value, Value::Text | Value::Chars(_)) { b"\"" } else { b"" };
                    steps.text.extend_from_slice(quote);
                    steps.add(value);
                    steps.text.extend_from_slice(quote);
                }
            }
        }
        let is_empty = is_empty && steps.text.is_empty();
        Some(steps.line(b"\n", is_empty))
    }

    /// Returns the steps for the payload of an event class in columns: `head`, then ` name=value`
    /// for each field, then `tail`. `prefixes` has the text ` name=` of each node that is shown.
    /// Returns none if a field has no simple form.
    pub(super) fn of_columns(
        head: &[u8],
        code: &'t Code,
        prefixes: &[Option<Constant>],
        formats: &[ValueFormat<'t>],
        tail: &[u8],
    ) -> Option<Self> {
        let mut steps = Steps { text: head.to_vec(), ..Steps::default() };
        let mut is_empty = true;
        for (number, flat) in code.flat()?.into_iter().enumerate() {
            let (node, value) = match flat {
                Flat::Begin(_) if number == 0 => continue,
                Flat::End => continue,
                Flat::Begin(_) => return None,
                Flat::Skip(bytes) => (None, Value::Skip(usize::try_from(bytes).ok()?)),
                Flat::Integer { node, size, signed, order } => {
                    (Some(node), integer_step(size, signed, order, *formats.get(node as usize)?))
                }
                Flat::Text(node) => (Some(node), Value::Word),
                Flat::Chars(node, length) => {
                    (Some(node), Value::WordChars(usize::try_from(length).ok()?))
                }
            };
            if let Some(node) = node {
                let at = usize::try_from(node).ok()?;
                match (prefixes.get(at)?, formats.get(at)?, &value) {
                    (None, _, Value::Skip(_)) => {}
                    (None, _, _) | (_, ValueFormat::Enum(..) | ValueFormat::Bits(_), _) => {
                        return None;
                    }
                    (_, format, Value::Word | Value::WordChars(_))
                        if !matches!(format, ValueFormat::Text(Encoding::Utf8)) =>
                    {
                        return None;
                    }
                    (Some(prefix), _, _) => steps.text.extend_from_slice(prefix.bytes()),
                }
            }
            steps.add(value);
            is_empty = false;
        }
        Some(steps.line(tail, is_empty))
    }

    /// Returns the text before the first value.
    pub(super) fn head(&self) -> &Constant {
        &self.head
    }

    /// Appends an event whose first field is at the beginning of `bytes`. Returns none if the bytes
    /// end before the event does.
    #[inline(always)]
    pub(super) fn put(&self, bytes: &[u8], out: &mut impl Put) -> Option<()> {
        self.head.put(out);
        self.put_values(bytes, out)
    }

    /// Appends an event without the text before the first value.
    #[inline(always)]
    pub(super) fn put_values(&self, bytes: &[u8], out: &mut impl Put) -> Option<()> {
        let mut rest = bytes;
        for Step { value, behind } in &self.steps {
            rest = value.put(rest, out)?;
            behind.put(out);
        }
        Some(())
    }
}

impl Value<'_> {
    /// Appends the value at the beginning of `bytes`, and returns the bytes after it.
    #[inline(always)]
    fn put<'b>(&self, bytes: &'b [u8], out: &mut impl Put) -> Option<&'b [u8]> {
        match self {
            Self::Unsigned32 => {
                let (value, rest) = bytes.split_first_chunk()?;
                unsigned(out, u64::from(u32::from_le_bytes(*value)));
                Some(rest)
            }
            Self::Signed32 => {
                let (value, rest) = bytes.split_first_chunk()?;
                signed(out, i64::from(i32::from_le_bytes(*value)));
                Some(rest)
            }
            Self::Unsigned64 => {
                let (value, rest) = bytes.split_first_chunk()?;
                unsigned(out, u64::from_le_bytes(*value));
                Some(rest)
            }
            Self::Hexadecimal64 => {
                let (value, rest) = bytes.split_first_chunk()?;
                hexadecimal(out, u64::from_le_bytes(*value));
                Some(rest)
            }
            Self::Integer { size, signed, order, format } => {
                integer(bytes, *size, *signed, *order, *format, out)
            }
            Self::Text => text(bytes, out),
            Self::Chars(length) => chars(bytes, *length, out),
            Self::Word => {
                let end = nul::find(bytes)?;
                word(out, bytes.get(..end)?);
                bytes.get(end.wrapping_add(1)..)
            }
            Self::WordChars(length) => {
                let (all, rest) = bytes.split_at_checked(*length)?;
                word(out, all.get(..nul::find(all).unwrap_or(*length))?);
                Some(rest)
            }
            Self::Skip(length) => bytes.get(*length..),
        }
    }
}

/// Returns the value for a step. Appends constant text, such as names and braces, to `before`; the
/// inner option is none if there is only constant text. The outer option is none if the field has
/// no simple form.
fn value<'t>(scope: &ScopePlan<'t>, flat: Flat, before: &mut Vec<u8>) -> Option<Option<Value<'t>>> {
    let format = |node: u32| {
        scope.formats.get(node as usize).map(|format| (format.prefix.bytes(), format.value))
    };
    let (node, value) = match flat {
        Flat::Begin(node) => {
            before.extend_from_slice(format(node)?.0);
            before.push(b'{');
            return Some(None);
        }
        Flat::End => {
            before.extend_from_slice(b" }");
            return Some(None);
        }
        Flat::Skip(bytes) => return Some(Some(Value::Skip(usize::try_from(bytes).ok()?))),
        Flat::Integer { node, size, signed, order } => {
            (node, integer_step(size, signed, order, format(node)?.1))
        }
        Flat::Text(node) => (node, Value::Text),
        Flat::Chars(node, length) => (node, Value::Chars(usize::try_from(length).ok()?)),
    };
    let (prefix, format) = format(node)?;
    match (format, &value) {
        (ValueFormat::Hidden, Value::Skip(_)) => return Some(Some(value)),
        (ValueFormat::Hidden, _) => return None,
        (ValueFormat::Text(Encoding::Utf8), _) => {}
        (_, Value::Text | Value::Chars(_)) => return None,
        _ => {}
    }
    before.extend_from_slice(prefix);
    Some(Some(value))
}

/// Appends text unchanged if it is one plain word, or else in quotes.
#[inline]
pub(super) fn word(out: &mut impl Put, text: &[u8]) {
    let is_plain = text
        .iter()
        .fold(true, |plain, b| plain & PLAIN.get(usize::from(*b)).copied().unwrap_or(false));
    if is_plain && !text.is_empty() { out.text(text) } else { readable(out, text) }
}

/// True for each byte that a word without quotes may contain.
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "the compiler evaluates it, and refuses what is outside"
)]
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        plain[byte as usize] = !matches!(byte, b'"' | b'\\' | b'\'' | b'=');
        byte += 1;
    }
    plain
};

fn integer_step(size: u8, signed: bool, order: ByteOrder, format: ValueFormat<'_>) -> Value<'_> {
    match (order, size, format) {
        (_, _, ValueFormat::Hidden) => Value::Skip(usize::from(size)),
        (ByteOrder::Little, 4, ValueFormat::Unsigned) => Value::Unsigned32,
        (ByteOrder::Little, 4, ValueFormat::Signed) => Value::Signed32,
        (ByteOrder::Little, 8, ValueFormat::Unsigned) => Value::Unsigned64,
        (ByteOrder::Little, 8, ValueFormat::Based(64, _, 16)) => Value::Hexadecimal64,
        _ => Value::Integer { size, signed, order, format },
    }
}

/// Appends an integer, and returns the bytes after it.
#[inline]
fn integer<'b>(
    mut bytes: &'b [u8],
    size: u8,
    is_signed: bool,
    order: ByteOrder,
    format: ValueFormat<'_>,
    out: &mut impl Put,
) -> Option<&'b [u8]> {
    let raw = take_integer(&mut bytes, size, order)?;
    let value = if is_signed { extend(raw, size).cast_unsigned() } else { raw };
    match format {
        ValueFormat::Unsigned => unsigned(out, value),
        ValueFormat::Signed => signed(out, value.cast_signed()),
        format => number(out, format, value),
    }
    Some(bytes)
}

/// Appends text up to its NUL, and returns the bytes after the NUL.
#[inline]
fn text<'b>(bytes: &'b [u8], out: &mut impl Put) -> Option<&'b [u8]> {
    if let Some(short) = bytes.first_chunk() {
        let length = plain(short);
        if short.get(length) == Some(&0) {
            out.block(short, length);
            return bytes.get(length.wrapping_add(1)..);
        }
    }
    let end = nul::find(bytes)?;
    within_quotes(out, bytes.get(..end)?);
    bytes.get(end.wrapping_add(1)..)
}

/// Appends text of this length up to its first NUL, and returns the bytes after the text.
#[inline]
fn chars<'b>(bytes: &'b [u8], length: usize, out: &mut impl Put) -> Option<&'b [u8]> {
    let (all, rest) = bytes.split_at_checked(length)?;
    if let Some(short) = all.first_chunk() {
        let length = plain(short);
        if short.get(length) == Some(&0) {
            out.block(short, length);
            return Some(rest);
        }
    }
    within_quotes(out, all.get(..nul::find(all).unwrap_or(length))?);
    Some(rest)
}
