//! Implements `%p` and its extensions (`pointer()` of `lib/vsprintf.c`).

use super::array;
use super::bytes::{PayloadRange, Value, integer};
use super::number::{self, Spec, number, padded_hex};
use super::tables::errno;
use super::{Env, Fault, Show};
use lastwords_bytes::ByteOrder;
use lastwords_trace::text::number::unsigned;

/// A kind of `%p`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pointer {
    /// Hashed.
    Hidden,
    /// `%px`: the address without change.
    Raw,
    /// `%pS`, `%ps`, `%pB` and the older `%pF`, `%pf`.
    Symbol(Show),
    /// `%pe`: the name of an error.
    Error,
    /// `%pI4`, `%pi4`, `%pI6`, `%pI6c`, `%pi6`, `%pIS…`.
    Internet(Internet),
    /// `%pM`, `%pMF`, `%pMR`, `%pm`, `%pmR`.
    Hardware { separator: Option<u8>, reversed: bool },
    /// `%pU`.
    Uuid { little: bool, upper: bool },
    /// `%*ph` and its separators.
    Bytes(Option<u8>),
    /// `%*pE`.
    Escaped,
    /// `%p4cc`.
    FourCc,
    /// `%*pb`, `%*pbl`.
    Bitmap { list: bool },
    /// `%pa`, `%pNF`: eight bytes at the pointer.
    Eight,
}

/// The format of an internet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Internet {
    /// 4, 6, or 0 for a socket address, which has its family in its data.
    family: u8,
    /// Lower-case `i`: padded numbers and no separators.
    plain: bool,
    compressed: bool,
    reversed: bool,
    port: bool,
    flow: bool,
    scope: bool,
}

impl Pointer {
    /// Returns the kind that the letters after `%p` select, or `None` if the kind needs more than
    /// the payload.
    pub(crate) fn parse(letters: &[u8]) -> Option<Self> {
        let second = letters.get(1).copied();
        Some(match letters.first() {
            None | Some(b'K') => Self::Hidden,
            Some(b'x') => Self::Raw,
            Some(b'S' | b'F') => Self::Symbol(Show::Offset),
            Some(b's' | b'f') => Self::Symbol(Show::Plain),
            Some(b'B') => Self::Symbol(Show::Backtrace),
            Some(b'e') => Self::Error,
            Some(b'I' | b'i') => Self::Internet(internet(letters)?),
            Some(b'M') => {
                let separator = Some(if second == Some(b'F') { b'-' } else { b':' });
                Self::Hardware { separator, reversed: second == Some(b'R') }
            }
            Some(b'm') => Self::Hardware { separator: None, reversed: second == Some(b'R') },
            Some(b'U') => Self::Uuid {
                little: matches!(second, Some(b'l' | b'L')),
                upper: matches!(second, Some(b'B' | b'L')),
            },
            Some(b'h') => Self::Bytes(match second {
                Some(b'C') => Some(b':'),
                Some(b'D') => Some(b'-'),
                Some(b'N') => None,
                _ => Some(b' '),
            }),
            Some(b'E') => Self::Escaped,
            Some(b'4') => Self::FourCc,
            Some(b'b') => Self::Bitmap { list: second == Some(b'l') },
            Some(b'a') => Self::Eight,
            Some(b'N') if second == Some(b'F') => Self::Eight,
            // Letters without a meaning are skipped.
            Some(
                b'd' | b'D' | b'g' | b't' | b'r' | b'R' | b'C' | b'G' | b'O' | b'V' | b'N' | b'A',
            ) => return None,
            Some(_) => Self::Hidden,
        })
    }

    /// Appends the text of the directive for a value.
    pub(crate) fn show(
        self,
        spec: Spec,
        value: &Value<'_>,
        env: &mut Env<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        match (self, value) {
            (Self::Hidden, Value::Int((address, _))) => {
                raw(out, spec, env.names.hidden(*address), env)
            }
            (Self::Raw, Value::Int((address, _))) => raw(out, spec, *address, env),
            (Self::Symbol(show), Value::Int((address, _))) => {
                if spec == Spec::default() {
                    env.names.show(out, *address, show);
                } else {
                    let mut name = Vec::new();
                    env.names.show(&mut name, *address, show);
                    number::text(out, spec, &name);
                }
            }
            (Self::Error, Value::Int((address, _))) => error(out, spec, *address, env),
            (_, Value::Int((0, _))) => number::text(out, spec, b"(null)"),
            (_, Value::Payload(range)) => return self.show_at(spec, *range, env, out),
            (_, Value::Int(_)) => return Err(Fault::KernelPointer),
            (_, Value::Text(_) | Value::Made(_)) => return Err(Fault::Kind),
        }
        Ok(())
    }

    fn show_at(
        self,
        spec: Spec,
        range: PayloadRange,
        env: &mut Env<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let given = if spec.width == 0 { 1 } else { spec.width.min(64) as usize };
        match self {
            Self::Hidden | Self::Raw | Self::Symbol(_) | Self::Error => {
                return Err(Fault::KernelPointer);
            }
            Self::Internet(internet) => internet.show(range, env, out)?,
            Self::Hardware { separator, reversed } => {
                let mut bytes: [u8; 6] = fixed(range.bytes(env, 6)?)?;
                if reversed {
                    bytes.reverse();
                }
                joined(out, &bytes, separator);
            }
            Self::Uuid { little, upper } => {
                uuid(out, &fixed(range.bytes(env, 16)?)?, little, upper)
            }
            Self::Bytes(separator) => {
                let bytes = range.rest(env);
                joined(out, bytes.get(..given).unwrap_or(bytes), separator);
            }
            Self::Escaped => {
                let length = if spec.width == 0 { 1 } else { spec.width as usize };
                let bytes = range.rest(env);
                escaped(out, bytes.get(..length).unwrap_or(bytes));
            }
            Self::FourCc => four_cc(
                out,
                u32::try_from(integer(range.bytes(env, 4)?, env.machine.order)).unwrap_or(0),
            ),
            Self::Bitmap { list } => {
                let bits = spec.width as usize;
                let bytes = range.rest(env);
                bitmap(out, bytes, bits.min(bytes.len().saturating_mul(8)), list, env);
            }
            Self::Eight => {
                let value = integer(range.bytes(env, 8)?, env.machine.order);
                let spec = Spec { prefix: true, zero: true, width: 18, ..Spec::default() };
                number(out, spec, value, false, 16, false);
            }
        }
        Ok(())
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Fault> {
    bytes.try_into().map_err(|_| Fault::Outside)
}

fn raw(out: &mut Vec<u8>, spec: Spec, value: u64, env: &Env<'_, '_>) {
    let digits = u32::from(env.machine.word_size) * 2;
    let spec = if spec.width == 0 { Spec { width: digits, zero: true, ..spec } } else { spec };
    number(out, spec, value, false, 16, false);
}

fn error(out: &mut Vec<u8>, spec: Spec, value: u64, env: &Env<'_, '_>) {
    let number_of = value.cast_signed().wrapping_neg();
    match u32::try_from(number_of).ok().filter(|n| (1..4096).contains(n)) {
        None => raw(out, spec, env.names.hidden(value), env),
        Some(code) => match errno(code) {
            Some(name) => number::text(out, spec, format!("-{name}").as_bytes()),
            None => number(out, spec, u64::from(code), true, 10, false),
        },
    }
}

/// Appends bytes in hexadecimal with a separator between them.
pub(crate) fn joined(out: &mut Vec<u8>, bytes: &[u8], separator: Option<u8>) {
    for (index, byte) in bytes.iter().enumerate() {
        out.extend(separator.filter(|_| index > 0));
        padded_hex(out, u64::from(*byte), 2);
    }
}

fn uuid(out: &mut Vec<u8>, bytes: &[u8; 16], little: bool, upper: bool) {
    const BIG: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    const LITTLE: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let spec = Spec { zero: true, width: 2, ..Spec::default() };
    for (index, from) in if little { LITTLE } else { BIG }.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        number(out, spec, u64::from(bytes.get(from).copied().unwrap_or(0)), false, 16, upper);
    }
}

fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            11 => out.extend_from_slice(b"\\v"),
            12 => out.extend_from_slice(b"\\f"),
            7 => out.extend_from_slice(b"\\a"),
            27 => out.extend_from_slice(b"\\e"),
            0 => out.extend_from_slice(b"\\0"),
            0x20..=0x7e => out.push(*byte),
            _ => {
                out.push(b'\\');
                out.extend([byte >> 6, byte >> 3 & 7, byte & 7].map(|d| b'0'.saturating_add(d)));
            }
        }
    }
}

fn four_cc(out: &mut Vec<u8>, value: u32) {
    let code = value & 0x7fff_ffff;
    out.extend(code.to_le_bytes().map(|b| if matches!(b, 0x20..=0x7e) { b } else { b'.' }));
    out.extend_from_slice(if code == value { b" little-endian (0x" } else { b" big-endian (0x" });
    padded_hex(out, u64::from(value), 8);
    out.push(b')');
}

fn bitmap(out: &mut Vec<u8>, bytes: &[u8], bits: usize, list: bool, env: &Env<'_, '_>) {
    let is_set = |bit: usize| {
        bit < bits && array::group_of(bytes, bit / 32, env.machine) >> (bit % 32) & 1 == 1
    };
    if !list {
        return array::bitmap(out, bytes, bits, env.machine);
    }
    let mut bit = 0usize;
    let mut first = true;
    while bit < bits {
        if !is_set(bit) {
            bit = bit.saturating_add(1);
            continue;
        }
        let begin = bit;
        while is_set(bit.saturating_add(1)) {
            bit = bit.saturating_add(1);
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        unsigned(out, begin as u64);
        if bit > begin {
            out.push(b'-');
            unsigned(out, bit as u64);
        }
        bit = bit.saturating_add(1);
    }
}

/// Returns a range of bytes, or [`Fault::Outside`].
fn slice(bytes: &[u8], range: std::ops::Range<usize>) -> Result<&[u8], Fault> {
    bytes.get(range).ok_or(Fault::Outside)
}

fn internet(letters: &[u8]) -> Option<Internet> {
    let plain = letters.first() == Some(&b'i');
    let rest = letters.get(2..).unwrap_or_default();
    let has = |letter| rest.contains(&letter);
    let family = match letters.get(1)? {
        b'4' => 4,
        b'6' => 6,
        b'S' => 0,
        _ => return None,
    };
    let socket = family == 0;
    Some(Internet {
        family,
        plain,
        compressed: has(b'c'),
        reversed: has(b'l') || has(b'h'),
        port: socket && has(b'p'),
        flow: socket && has(b'f'),
        scope: socket && has(b's'),
    })
}

impl Internet {
    fn show(self, range: PayloadRange, env: &Env<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        match self.family {
            4 => self.four(out, &fixed(range.bytes(env, 4)?)?, env.machine.order),
            6 => self.six(out, &fixed(range.bytes(env, 16)?)?),
            _ => return self.socket(range, env, out),
        }
        Ok(())
    }

    fn socket(
        self,
        range: PayloadRange,
        env: &Env<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let family = integer(range.bytes(env, 2)?, env.machine.order);
        let big = |bytes: &[u8]| integer(bytes, ByteOrder::Big);
        match family {
            2 => {
                let bytes = range.bytes(env, 8)?;
                self.four(out, &fixed(slice(bytes, 4..8)?)?, env.machine.order);
                if self.port {
                    out.push(b':');
                    unsigned(out, big(slice(bytes, 2..4)?));
                }
            }
            10 => {
                let bytes = range.bytes(env, 28)?;
                let bracketed = self.port || self.flow || self.scope;
                out.extend(bracketed.then_some(b'['));
                self.six(out, &fixed(slice(bytes, 8..24)?)?);
                out.extend(bracketed.then_some(b']'));
                if self.port {
                    out.push(b':');
                    unsigned(out, big(slice(bytes, 2..4)?));
                }
                if self.flow {
                    out.push(b'/');
                    unsigned(out, big(slice(bytes, 4..8)?) & 0x0fff_ffff);
                }
                if self.scope {
                    out.push(b'%');
                    unsigned(out, integer(slice(bytes, 24..28)?, env.machine.order));
                }
            }
            _ => out.extend_from_slice(b"(einval)"),
        }
        Ok(())
    }

    fn four(self, out: &mut Vec<u8>, bytes: &[u8; 4], order: ByteOrder) {
        let mut bytes = *bytes;
        if self.reversed && order == ByteOrder::Little {
            bytes.reverse();
        }
        let spec = if self.plain {
            Spec { zero: true, width: 3, ..Spec::default() }
        } else {
            Spec::default()
        };
        for (index, byte) in bytes.iter().enumerate() {
            out.extend((index > 0).then_some(b'.'));
            number(out, spec, u64::from(*byte), false, 10, false);
        }
    }

    fn six(self, out: &mut Vec<u8>, bytes: &[u8; 16]) {
        let (pairs, _) = bytes.as_chunks::<2>();
        let mut words = [0; 8];
        words.iter_mut().zip(pairs).for_each(|(word, pair)| *word = u16::from_be_bytes(*pair));
        if self.compressed && !self.plain {
            return compressed(out, bytes, &words);
        }
        let spec = Spec { zero: true, width: 4, ..Spec::default() };
        for (index, word) in words.iter().enumerate() {
            out.extend((index > 0 && !self.plain).then_some(b':'));
            number(out, spec, u64::from(*word), false, 16, false);
        }
    }
}

/// Appends an address in the form of RFC 5952, with the two kinds of addresses that end in an IPv4
/// address.
fn compressed(out: &mut Vec<u8>, bytes: &[u8; 16], words: &[u16; 8]) {
    let mapped = matches!(words, [0, 0, 0, 0, 0, 0xffff, _, _]);
    let isatap = matches!(words, [_, _, _, _, 0 | 0x0200, 0x5efe, _, _]);
    let count = if mapped || isatap { 6 } else { 8 };
    let shown = words.get(..count).unwrap_or(words);
    let zeroes = |from: usize| shown.iter().skip(from).take_while(|w| **w == 0).count();
    let longest = (0..count).map(zeroes).max().unwrap_or(0);
    let gap = (0..count).find(|at| longest > 1 && zeroes(*at) == longest);
    let mut colon = false;
    let mut at = 0usize;
    while at < count {
        if gap == Some(at) {
            out.extend_from_slice(if colon || at == 0 { b"::" } else { b":" });
            colon = false;
            at = at.saturating_add(longest);
            continue;
        }
        out.extend(colon.then_some(b':'));
        number::hex(out, u64::from(shown.get(at).copied().unwrap_or(0)));
        colon = true;
        at = at.saturating_add(1);
    }
    if count == 6 {
        out.extend(colon.then_some(b':'));
        for (index, byte) in bytes.iter().skip(12).enumerate() {
            out.extend((index > 0).then_some(b'.'));
            unsigned(out, u64::from(*byte));
        }
    }
}
