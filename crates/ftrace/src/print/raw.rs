//! Parts of a print format that only the kernel can evaluate. Such a part costs its own directive:
//! the fields of the event from which the kernel computes it are shown as they are.

use super::arith::Int;
use super::array::array;
use super::bytes::Value;
use super::directive::{Directive, Kind, integer};
use super::lex::Token;
use super::number::{self, Spec, hex};
use super::parse::Parser;
use super::primary::field_expression;
use super::tree::Expr;
use super::{Env, Unknown};
use lastwords_trace::nul;

/// Most fields that are shown for one directive.
const MOST: usize = 16;

impl Parser<'_> {
    /// Notes a part that is known to the kernel alone, once.
    pub(crate) fn note_unknown(&mut self, part: Unknown) {
        if !self.unknown.contains(&part) {
            self.unknown.push(part);
        }
    }

    /// Returns an expression of unknown value, which is made of another one.
    pub(crate) fn unknown_of(&mut self, part: Unknown, from: Expr) -> Expr {
        self.note_unknown(part);
        Expr::Unknown(Box::new([from]))
    }

    /// Skips the arguments of a function that only the kernel can run, up to the closing
    /// parenthesis.
    pub(crate) fn unknown_call(&mut self, name: &str) -> Expr {
        self.note_unknown(Unknown::Function(name.into()));
        let begin = self.at;
        self.skip_to(&[")"]);
        Expr::Unknown(self.fields_between(begin, self.at))
    }

    /// Skips an argument that cannot be parsed, which begins at a token.
    pub(crate) fn unknown_argument(&mut self, begin: usize, why: String) -> Expr {
        self.note_unknown(Unknown::Other(why));
        self.at = begin;
        self.skip_to(&[","]);
        Expr::Unknown(self.fields_between(begin, self.at))
    }

    /// Skips tokens up to one of these signs, or up to the end, outside of brackets.
    pub(crate) fn skip_to(&mut self, signs: &[&str]) {
        let mut depth = 0u32;
        while let Some(token) = self.peek() {
            match token {
                Token::Sign(sign) if depth == 0 && signs.contains(sign) => return,
                Token::Sign("(" | "{" | "[") => depth = depth.saturating_add(1),
                Token::Sign(")" | "}" | "]") if depth == 0 => return,
                Token::Sign(")" | "}" | "]") => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at = self.at.saturating_add(1);
        }
    }

    /// Returns the fields of the event that these tokens name.
    fn fields_between(&mut self, begin: usize, end: usize) -> Box<[Expr]> {
        let back = std::mem::replace(&mut self.at, begin);
        let mut fields = Vec::new();
        while self.at < end && fields.len() < MOST {
            let token = self.peek();
            self.at = self.at.saturating_add(1);
            fields.extend(match token {
                Some(Token::Word("REC")) if self.takes("->") => match self.peek() {
                    Some(Token::Word(name)) => {
                        self.field(name).ok().map(|f| field_expression(f, self.machine.word_size))
                    }
                    _ => None,
                },
                Some(Token::Word(name))
                    if name.starts_with("__get_") && self.takes("(") && !name.ends_with("_len") =>
                {
                    self.locator().ok().map(Expr::Located)
                }
                _ => None,
            });
        }
        self.at = back;
        fields.into()
    }
}

/// Appends the fields of the event from which the kernel computes a value: one as it is, several in
/// parentheses.
pub(super) fn show(directive: Directive, value: &Expr, env: &mut Env<'_, '_>, out: &mut Vec<u8>) {
    let mut fields = Vec::new();
    collect(value, env, &mut fields);
    match fields.as_slice() {
        [] => out.extend_from_slice(b"unknown"),
        [field] => show_field(directive, field, env, out),
        fields => {
            for (at, field) in fields.iter().enumerate() {
                out.extend_from_slice(if at == 0 { b"(" } else { b", " });
                show_field(Directive { kind: Kind::Text, ..directive }, field, env, out);
            }
            out.push(b')');
        }
    }
}

/// Collects the fields that the value of an expression depends on, each once.
fn collect<'p>(expr: &'p Expr, env: &mut Env<'_, '_>, fields: &mut Vec<&'p Expr>) {
    if let Expr::Choice(parts) = expr {
        let [condition, yes, no] = &**parts;
        if let Ok(is_true) = condition.value(env).map(|value| value.truth()) {
            return collect(if is_true { yes } else { no }, env, fields);
        }
    }
    let place = |expr: &Expr| match expr {
        Expr::Field { offset, .. } | Expr::Payload { offset, .. } => Some(*offset),
        Expr::Located(locator) | Expr::Length(locator) => Some(locator.offset),
        _ => None,
    };
    match place(expr) {
        Some(_)
            if fields.len() >= MOST || fields.iter().any(|known| place(known) == place(expr)) => {}
        Some(_) => fields.push(expr),
        None => expr.operands().into_iter().for_each(|operand| collect(operand, env, fields)),
    }
}

/// Appends a field: an integer in the form of the directive, an address in hexadecimal, text, or
/// the elements of an array.
fn show_field(directive: Directive, field: &Expr, env: &mut Env<'_, '_>, out: &mut Vec<u8>) {
    let machine = env.machine;
    match field.value(env) {
        Ok(Value::Int((value, _))) => match directive.kind {
            Kind::Signed(_) | Kind::Unsigned { .. } | Kind::Char => {
                integer(directive, value, machine, out)
            }
            Kind::Text | Kind::Pointer(_) => {
                out.extend_from_slice(b"0x");
                hex(out, value);
            }
        },
        Ok(Value::Payload(place)) if place.element == Int::CHAR => {
            number::text(out, Spec::default(), nul::until(place.rest(env)));
        }
        Ok(Value::Payload(place)) => {
            array(out, place.rest(env), u64::from(place.element.size), machine)
        }
        Ok(Value::Text(_) | Value::Made(_)) | Err(_) => out.extend_from_slice(b"unknown"),
    }
}
