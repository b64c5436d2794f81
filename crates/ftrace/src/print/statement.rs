//! Statement expressions of GNU C, as the kernel's `min()` and `max()` leave them in a print
//! format: `({ int x = (REC->a); int y = (8); ((x) < (y) ? (x) : (y)); })`.

use super::Unknown;
use super::arith::{Int, named};
use super::lex::Token;
use super::parse::{Local, Parsed, Parser};
use super::primary::static_value;
use super::tree::Expr;

/// Most names that the statements of one expression declare.
const MOST: usize = 32;

impl Parser<'_> {
    /// Parses a statement expression. Its value is that of the last statement.
    pub(crate) fn statements(&mut self) -> Parsed<Expr> {
        self.spend()?;
        let outer = self.locals.len();
        self.expect("(")?;
        self.expect("{")?;
        let value = loop {
            let begin = self.at;
            if self.declaration() {
                continue;
            }
            self.at = begin;
            let value = self.expression();
            let is_last = self.takes(";") && self.takes("}");
            match value {
                Ok(value) if is_last => break value,
                Err(why) if is_last => return Err(why),
                // A statement without effect, such as a comparison of types.
                _ => {
                    self.at = begin;
                    self.skip_to(&[";"]);
                    self.expect(";")?;
                    if self.sees("}") {
                        return Err("statements without a value".into());
                    }
                }
            }
        };
        self.expect(")")?;
        self.locals.truncate(outer);
        Ok(value)
    }

    /// Parses `type name = value;`. Returns false if the tokens are something else.
    fn declaration(&mut self) -> bool {
        let begin = self.at;
        // The name is the last word before the sign.
        self.skip_to(&["=", ";"]);
        let Some(Token::Word(name)) = self.at.checked_sub(1).and_then(|at| self.tokens.get(at))
        else {
            return false;
        };
        let is_typed = self.at.saturating_sub(begin) > 1;
        if !is_typed || self.locals.len() >= MOST || !self.takes("=") {
            return false;
        }
        let value = self.at;
        self.skip_to(&[";"]);
        if !self.takes(";") {
            return false;
        }
        self.locals.push(Local { name, kind: begin, value });
        true
    }

    /// Returns the value of a name that a statement has declared.
    pub(crate) fn local(&mut self, name: &str) -> Parsed<Expr> {
        let Some(found) = self.locals.iter().rposition(|local| local.name == name) else {
            self.note_unknown(Unknown::Name(name.into()));
            return Ok(Expr::Unknown(Box::default()));
        };
        self.spend()?;
        // The value cannot name what was declared later.
        let later = self.locals.split_off(found);
        let back = self.at;
        let local = later.first().copied().unwrap_or_default();
        self.at = local.value;
        let value = self.expression();
        self.at = back;
        self.locals.extend(later);
        let value = value?;
        Ok(match self.integer_type(local) {
            Some(kind) => Expr::Cast(kind, Box::new(value)),
            None => value,
        })
    }

    /// Returns the type of a declared name if it is an integer's; none for `typeof(…)` and other
    /// types, which do not convert the value.
    fn integer_type(&self, local: Local<'_>) -> Option<Int> {
        // The name and the sign are between the type and the value.
        let words = self.tokens.get(local.kind..local.value.checked_sub(2)?)?;
        let words = words
            .iter()
            .map(|token| if let Token::Word(word) = token { Some(*word) } else { None });
        named(&words.collect::<Option<Vec<_>>>()?, self.machine.word_size)
    }

    /// Parses the arguments of `__builtin_choose_expr(constant, yes, no)`. If the constant is not
    /// known, both are the same value by different means, as in `min()`, and the one that can be
    /// evaluated is taken.
    pub(crate) fn chosen(&mut self) -> Parsed<Expr> {
        let begin = self.at;
        let condition = self
            .expression()
            .ok()
            .filter(|_| self.sees(","))
            .and_then(|value| static_value(&value));
        self.at = begin;
        self.skip_to(&[","]);
        self.expect(",")?;
        let begin = self.at;
        let yes = self.expression().ok().filter(|_| self.sees(","));
        self.at = begin;
        self.skip_to(&[","]);
        self.expect(",")?;
        match (condition, yes) {
            (Some(1..), Some(yes)) | (None, Some(yes)) => {
                self.skip_to(&[")"]);
                Ok(yes)
            }
            _ => self.expression(),
        }
    }
}
