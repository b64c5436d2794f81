//! Compiles print formats to programs.

use super::arith::Int;
use super::bytes::{Value, locate, read};
use super::directive::{Directive, FormatPart, Kind, integer, next_part};
use super::lex::{Token, tokens};
use super::number::{self, WIDEST};
use super::parse::Parser;
use super::plain::{IntegerField, PlainPiece, chars, shown};
use super::tree::{Expr, Helper, Locator};
use super::{Env, Fault, Machine, Show, Unknown, helpers, raw};
use crate::{Format, Symbols};
use lastwords_bytes::{ByteOrder, low_u32};
use lastwords_trace::nul;
use lastwords_trace::text::number::Constant;
use lastwords_trace::text::page::Put;

/// Bytes of the longest print format that is compiled.
const LONGEST: usize = 1 << 20;
/// Most bytes of text of an event, in addition to a limit that grows with its payload. The kernel
/// has 8 KiB for a line.
const LONGEST_TEXT: usize = 1 << 13;
/// Most directives of a format.
const MOST: usize = 1024;

/// A compiled print format.
#[derive(Debug)]
pub struct Program {
    pieces: Vec<Piece>,
    /// The parts that only the kernel can evaluate. Raw values are shown in their place.
    unknown: Vec<Unknown>,
}

#[derive(Debug)]
pub(super) enum Piece {
    Text(Constant),
    /// A number, and the text before it.
    Number {
        before: Constant,
        number: IntegerField,
    },
    /// Text of at most `length` bytes, and the text before it.
    Chars {
        before: Constant,
        offset: u32,
        length: u32,
    },
    /// A text that a probe read.
    Probed(Locator),
    Show {
        directive: Directive,
        width: Option<Expr>,
        precision: Option<Expr>,
        value: Expr,
    },
    /// The stack in a synthetic event: a `long` that is no address, and the return addresses.
    Stack(Locator),
    /// The address of a dynamic event: a symbol of the kernel's, or a plain number.
    Address {
        offset: u32,
        kind: Int,
        show: Show,
    },
}

/// Compiles an event's print format.
///
/// A part that cannot be evaluated from the payload costs its own directive: [`Program::unknown`]
/// describes it.
///
/// # Errors
/// A description of why the text has no directives and arguments that belong together.
pub fn compile(
    format: &Format,
    machine: Machine,
    symbols: &dyn Symbols,
) -> Result<Program, String> {
    if format.print_format.len() > LONGEST {
        return Err(format!("{} bytes, more than {LONGEST}", format.print_format.len()));
    }
    let tokens = tokens(&format.print_format, machine.word_size)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        format,
        machine,
        symbols,
        spent: 0,
        unknown: Vec::new(),
        locals: Vec::new(),
    };
    if !matches!(parser.peek(), Some(Token::Text(_))) {
        return Err("no format string where the print format begins".into());
    }
    let text = parser.strings();
    let mut pieces = Vec::new();
    if let Some(probed) = &format.probed {
        pieces.push(Piece::Text(Constant::new(format!("({probed})").as_bytes())));
    }
    let mut rest = text.as_slice();
    while !rest.is_empty() {
        let (found, left) = next_part(rest)?;
        rest = left;
        if pieces.len() > MOST {
            return Err(format!("more than {MOST} directives"));
        }
        pieces.push(match found {
            FormatPart::Text(text) => Piece::Text(Constant::new(text)),
            FormatPart::Show(directive) => show(&mut parser, directive)?,
        });
    }
    merge_texts(&mut pieces);
    name_probe(&mut pieces, format);
    if format.system == "eprobes"
        || format.fields.iter().any(|f| matches!(f.name.as_str(), "__probe_ip" | "__probe_func"))
    {
        quote_probed(&mut pieces);
    }
    if format.system == "synthetic" {
        show_synthetic(&mut pieces, machine.word_size);
    }
    Ok(Program { pieces: simplify(pieces, machine.word_size), unknown: parser.unknown })
}

fn show(parser: &mut Parser<'_>, directive: Directive) -> Result<Piece, String> {
    let mut argument = || -> Result<Expr, String> {
        if !parser.takes(",") {
            return Err("fewer arguments than directives".into());
        }
        parser.spent = 0;
        let begin = parser.at;
        let parsed = parser.expression();
        let is_whole = parser.peek().is_none() || parser.sees(",");
        parser.locals.clear();
        Ok(match parsed {
            Ok(expr) if is_whole => expr,
            Ok(_) => {
                parser.unknown_argument(begin, format!("{:?} behind an argument", parser.peek()))
            }
            Err(why) => parser.unknown_argument(begin, why),
        })
    };
    let width = if directive.width_given { Some(argument()?) } else { None };
    let precision = if directive.precision_given { Some(argument()?) } else { None };
    Ok(Piece::Show { directive, width, precision, value: argument()? })
}

fn merge_texts(pieces: &mut Vec<Piece>) {
    let mut merged: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces.drain(..) {
        match (merged.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => {
                *before = Constant::new(&[before.bytes(), text.bytes()].concat())
            }
            (_, piece) => merged.push(piece),
        }
    }
    *pieces = merged;
}

/// Shows the address of a probe as a symbol, as the kernel does although the format has `(%lx)`.
/// For a return probe, the return address is shown first.
fn name_probe(pieces: &mut [Piece], format: &Format) {
    let offset = |name: &str| format.fields.iter().find(|f| f.name == name).map(|f| f.offset);
    let mut wanted: Vec<(u32, u32, Show)> = Vec::new();
    if let Some(ip) = offset("__probe_ip") {
        wanted.push((ip, ip, Show::Offset));
    }
    if let (Some(func), Some(back)) = (offset("__probe_func"), offset("__probe_ret_ip")) {
        wanted.push((func, back, Show::Offset));
        wanted.push((back, func, Show::Bare));
    }
    let mut wanted = wanted.into_iter();
    let mut next = wanted.next();
    for piece in pieces.iter_mut() {
        let (Some((from, to, show)), Piece::Show { value: Expr::Field { offset, kind }, .. }) =
            (next, &*piece)
        else {
            continue;
        };
        if *offset == from {
            *piece = Piece::Address { offset: to, kind: *kind, show };
            next = wanted.next();
        }
    }
}

/// Replaces the quoted text of a probe by a piece that shows the text in quotes, or `(fault)` if
/// the probe could not read it.
fn quote_probed(pieces: &mut [Piece]) {
    for at in 1..pieces.len().saturating_sub(1) {
        let Some([before, piece, after]) =
            pieces.get_mut(at.saturating_sub(1)..=at.saturating_add(1))
        else {
            continue;
        };
        let (Piece::Text(open), Piece::Text(close)) = (&mut *before, &mut *after) else { continue };
        let Piece::Show { value: Expr::Located(locator), .. } = &*piece else { continue };
        let locator = *locator;
        if let (Some(left), Some(right)) =
            (open.bytes().strip_suffix(b"\""), close.bytes().strip_prefix(b"\""))
        {
            (*open, *close) = (Constant::new(left), Constant::new(right));
            *piece = Piece::Probed(locator);
        }
    }
}

/// Shows a synthetic event as the kernel does, whatever its format has: a space between fields in
/// place of a comma, and stacks line by line, without a space behind (`print_synth_event`).
fn show_synthetic(pieces: &mut [Piece], word_size: u8) {
    let mut follows_stack = false;
    for piece in pieces {
        match piece {
            Piece::Text(text) => {
                let rest =
                    text.bytes().strip_prefix(b", ").or_else(|| text.bytes().strip_prefix(b" "));
                if let Some(rest) = rest {
                    let space: &[u8] = if follows_stack { b"" } else { b" " };
                    *text = Constant::new(&[space, rest].concat());
                }
            }
            Piece::Show { value: Expr::Located(locator), .. }
                if locator.element.size == word_size =>
            {
                *piece = Piece::Stack(*locator);
            }
            _ => {}
        }
        follows_stack = matches!(piece, Piece::Stack(_));
    }
}

impl Program {
    /// Returns the parts that only the kernel can evaluate, once each.
    #[must_use]
    pub fn unknown(&self) -> &[Unknown] {
        &self.unknown
    }

    /// Returns the program with a text in front.
    #[must_use]
    pub fn with_prefix(mut self, head: &[u8]) -> Self {
        match self.pieces.first_mut() {
            Some(
                Piece::Text(text)
                | Piece::Number { before: text, .. }
                | Piece::Chars { before: text, .. },
            ) => {
                *text = Constant::new(&[head, text.bytes()].concat());
            }
            _ => self.pieces.insert(0, Piece::Text(Constant::new(head))),
        }
        self
    }

    /// Returns true if the program shows only fields without expressions. [`Program::line`] can run
    /// such a program.
    pub(crate) fn is_plain(&self) -> bool {
        let is_plain = |piece: &Piece| {
            matches!(piece, Piece::Text(_) | Piece::Number { .. } | Piece::Chars { .. })
        };
        self.pieces.iter().all(is_plain)
    }

    /// Appends the same text as [`Program::print`]. The program must be plain.
    ///
    /// # Errors
    /// A field lies outside the event, or the program is not plain.
    #[inline]
    pub(crate) fn line(
        &self,
        payload: &[u8],
        order: ByteOrder,
        out: &mut impl Put,
    ) -> Result<(), Fault> {
        for piece in &self.pieces {
            piece.put_plain(payload, order, out)?;
        }
        Ok(())
    }

    /// Appends the text of the event in `env`.
    ///
    /// # Errors
    /// The first fault. [`Fault::TooLong`]: a part of the text was appended. Every other fault: the
    /// text is complete, with raw values where a part could not be evaluated.
    #[inline]
    pub fn print(&self, env: &mut Env<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        env.scratch.clear();
        env.unnamed = false;
        // The format sets the widths. Without a limit, short events could make any amount of text.
        let most = out
            .len()
            .saturating_add(LONGEST_TEXT)
            .saturating_add(env.payload.len().saturating_mul(16));
        let mut first = Ok(());
        for piece in &self.pieces {
            let begin = out.len();
            if let Err(fault) = piece.put(env, out) {
                out.truncate(begin);
                piece.put_raw(env, out);
                first = first.and(Err(fault));
            }
            if out.len() > most {
                return Err(Fault::TooLong);
            }
        }
        if env.unnamed { first.and(Err(Fault::Unknown)) } else { first }
    }
}

impl Piece {
    #[inline]
    fn put(&self, env: &mut Env<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        match self {
            Self::Probed(locator) => probed(*locator, env, out),
            Self::Stack(locator) => stack(*locator, env, out),
            Self::Show { directive, width, precision, value } => {
                show_value(*directive, width.as_ref(), precision.as_ref(), value, env, out)
            }
            Self::Address { offset, kind, show } => address(*offset, *kind, *show, env, out),
            plain => plain.put_plain(env.payload, env.machine.order, out),
        }
    }

    /// Appends what is known of a piece that cannot be evaluated.
    #[cold]
    fn put_raw(&self, env: &mut Env<'_, '_>, out: &mut Vec<u8>) {
        match self {
            Self::Show { directive, value, .. } => return raw::show(*directive, value, env, out),
            Self::Number { before, .. } | Self::Chars { before, .. } => before.put(out),
            Self::Text(_) | Self::Probed(_) | Self::Stack(_) | Self::Address { .. } => {}
        }
        out.extend_from_slice(b"unknown");
    }

    /// Appends the text of a plain piece. Returns [`Fault::Kind`] for other pieces.
    #[inline]
    fn put_plain(&self, payload: &[u8], order: ByteOrder, out: &mut impl Put) -> Result<(), Fault> {
        match self {
            Self::Number { before, number } => {
                before.put(out);
                number.put(payload, order, out)
            }
            Self::Text(text) => {
                text.put(out);
                Ok(())
            }
            Self::Chars { before, offset, length } => {
                before.put(out);
                chars(payload, *offset, *length, out)
            }
            Self::Probed(_) | Self::Stack(_) | Self::Show { .. } | Self::Address { .. } => {
                Err(Fault::Kind)
            }
        }
    }
}

fn probed(locator: Locator, env: &Env<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let place = locate(env.payload, locator, env.machine)?;
    match env.payload.get(place.at..place.end).filter(|text| !text.is_empty()) {
        None => out.extend_from_slice(b"(fault)"),
        Some(text) => {
            out.push(b'"');
            out.extend_from_slice(nul::until(text));
            out.push(b'"');
        }
    }
    Ok(())
}

fn stack(locator: Locator, env: &mut Env<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let place = locate(env.payload, locator, env.machine)?;
    let word = usize::from(env.machine.word_size);
    out.extend_from_slice(b"STACK:\n");
    for at in
        (place.at..place.end.saturating_sub(word.saturating_sub(1))).step_by(word.max(1)).skip(1)
    {
        let address = read(env.payload, at, locator.element, env.machine.order)?;
        out.extend_from_slice(b"=> ");
        env.names.show(out, address, Show::Offset);
        out.push(b'\n');
    }
    Ok(())
}

fn address(
    offset: u32,
    kind: Int,
    show: Show,
    env: &mut Env<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let address = read(env.payload, offset as usize, kind, env.machine.order)?;
    // Probes of user programs have addresses in the lower half of the address space.
    if address >> (u32::from(kind.size) * 8).saturating_sub(1) == 0 && env.machine.word_size == 8 {
        out.extend_from_slice(b"0x");
        number::hex(out, address);
    } else {
        env.names.show(out, address, show);
    }
    Ok(())
}

fn show_value(
    mut directive: Directive,
    width: Option<&Expr>,
    precision: Option<&Expr>,
    value: &Expr,
    env: &mut Env<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    if let Some(width) = width {
        let given = low_u32(width.int(env)?.0).cast_signed();
        directive.spec.left |= given < 0;
        directive.spec.width = given.unsigned_abs().min(WIDEST);
    }
    if let Some(precision) = precision {
        // The kernel uses 0 for a negative precision.
        directive.spec.precision =
            Some(low_u32(precision.int(env)?.0).cast_signed().max(0).cast_unsigned());
    }
    print_value(directive, value, env, out)
}

fn print_value(
    directive: Directive,
    value: &Expr,
    env: &mut Env<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    match directive.kind {
        Kind::Signed(_) | Kind::Unsigned { .. } | Kind::Char => {
            let (number, _) = value.int(env)?;
            integer(directive, number, env.machine, out);
            Ok(())
        }
        Kind::Text => print_text(directive, value, env, out),
        Kind::Pointer(pointer) => {
            let value = value.value(env)?;
            pointer.show(directive.spec, &value, env, out)
        }
    }
}

fn print_text(
    directive: Directive,
    value: &Expr,
    env: &mut Env<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let spec = directive.spec;
    let is_plain = spec == number::Spec::default();
    if let (Expr::Helper(helper), true) = (value, is_plain) {
        return print_helper(helper, env, out);
    }
    match value.value(env)? {
        Value::Text(text) => number::text(out, spec, nul::until(text)),
        Value::Payload(place) => number::text(out, spec, nul::until(place.rest(env))),
        Value::Made(range) => {
            number::text(out, spec, nul::until(env.scratch.get(range).unwrap_or_default()))
        }
        Value::Int((address, _)) => kernel_text(out, spec, address, env),
    }
    Ok(())
}

fn print_helper(helper: &Helper, env: &mut Env<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    helpers::run(helper, env, out)
}

/// Appends a string of the kernel: its text, or the address in parentheses, as the kernel shows a
/// string that it does not trust.
pub(crate) fn kernel_text(out: &mut Vec<u8>, spec: number::Spec, address: u64, env: &Env<'_, '_>) {
    if address == 0 {
        return number::text(out, spec, b"(null)");
    }
    match env.names.text_at(address) {
        Some(text) => number::text(out, spec, nul::until(&text)),
        None => {
            out.extend_from_slice(b"(0x");
            number::hex(out, address);
            out.push(b')');
        }
    }
}

/// Replaces each plain argument and the text before it by one simple piece with the same output.
pub(super) fn simplify(pieces: Vec<Piece>, word_size: u8) -> Vec<Piece> {
    let mut simple: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let plain = match &piece {
            Piece::Show { directive, width: None, precision: None, value } => {
                shown(*directive, value, word_size)
            }
            _ => None,
        };
        let Some((text, found)) = plain else {
            simple.push(piece);
            continue;
        };
        let before = match simple.pop() {
            Some(Piece::Text(before)) => before,
            other => {
                simple.extend(other);
                Constant::new(b"")
            }
        };
        let before = Constant::new(&[before.bytes(), text].concat());
        simple.push(match found {
            PlainPiece::Number(number) => Piece::Number { before, number },
            PlainPiece::Chars { offset, length } => Piece::Chars { before, offset, length },
        });
    }
    simple
}

#[cfg(test)]
mod tests;
