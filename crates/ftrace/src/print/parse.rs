//! Parses expressions by the precedence of their operators. Operands are in `primary.rs`.

use super::arith::{self, Op};
use super::lex::Token;
use super::tree::Expr;
use super::{Machine, Unknown};
use crate::{Format, Symbols};

/// Most operators and brackets of one expression. They also limit the depth of its tree.
const MOST: u32 = 300;

/// Parses expressions from tokens.
pub(crate) struct Parser<'a> {
    pub(crate) tokens: &'a [Token<'a>],
    pub(crate) at: usize,
    pub(crate) format: &'a Format,
    pub(crate) machine: Machine,
    pub(crate) symbols: &'a dyn Symbols,
    pub(crate) spent: u32,
    /// The parts of the format that cannot be evaluated, once each.
    pub(crate) unknown: Vec<Unknown>,
    /// Names that statements have declared.
    pub(crate) locals: Vec<Local<'a>>,
}

/// Result of parsing a part. The error is a description.
pub(crate) type Parsed<T> = Result<T, String>;

enum Infix {
    Plain(Op),
    Both,
    Either,
}

fn infix(token: Option<&Token<'_>>) -> Option<(u8, Infix)> {
    let Some(Token::Sign(sign)) = token else { return None };
    Some(match *sign {
        "||" => (1, Infix::Either),
        "&&" => (2, Infix::Both),
        "|" => (3, Infix::Plain(Op::Or)),
        "^" => (4, Infix::Plain(Op::Xor)),
        "&" => (5, Infix::Plain(Op::And)),
        "==" => (6, Infix::Plain(Op::Eq)),
        "!=" => (6, Infix::Plain(Op::Ne)),
        "<" => (7, Infix::Plain(Op::Lt)),
        ">" => (7, Infix::Plain(Op::Gt)),
        "<=" => (7, Infix::Plain(Op::Le)),
        ">=" => (7, Infix::Plain(Op::Ge)),
        "<<" => (8, Infix::Plain(Op::Shl)),
        ">>" => (8, Infix::Plain(Op::Shr)),
        "+" => (9, Infix::Plain(Op::Add)),
        "-" => (9, Infix::Plain(Op::Sub)),
        "*" => (10, Infix::Plain(Op::Mul)),
        "/" => (10, Infix::Plain(Op::Div)),
        "%" => (10, Infix::Plain(Op::Rem)),
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    /// Returns the next token.
    pub(crate) fn peek(&self) -> Option<&'a Token<'a>> {
        self.tokens.get(self.at)
    }

    /// Returns true if the next token is this sign.
    pub(crate) fn sees(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Sign(s)) if *s == sign)
    }

    /// Skips this sign if it is next. Returns true if it was.
    pub(crate) fn takes(&mut self, sign: &str) -> bool {
        let seen = self.sees(sign);
        self.at = self.at.saturating_add(usize::from(seen));
        seen
    }

    /// Skips this sign, which must be next.
    pub(crate) fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.takes(sign) {
            Ok(())
        } else {
            Err(format!("{:?} instead of {sign:?}", self.peek()))
        }
    }

    /// Counts an operator or a bracket.
    pub(crate) fn spend(&mut self) -> Parsed<()> {
        self.spent = self.spent.saturating_add(1);
        if self.spent > MOST {
            Err(format!("an expression of more than {MOST} operators"))
        } else {
            Ok(())
        }
    }

    /// Parses an expression without comma.
    pub(crate) fn expression(&mut self) -> Parsed<Expr> {
        self.spend()?;
        let condition = self.infixes(0)?;
        if !self.takes("?") {
            return Ok(condition);
        }
        let yes = self.expression()?;
        self.expect(":")?;
        let no = self.expression()?;
        Ok(match condition {
            Expr::Int(0, _) => no,
            Expr::Int(..) => yes,
            condition => Expr::Choice(Box::new([condition, yes, no])),
        })
    }

    fn infixes(&mut self, least: u8) -> Parsed<Expr> {
        let mut left = self.unary()?;
        while let Some((precedence, kind)) = infix(self.peek()).filter(|(p, _)| *p > least) {
            self.spend()?;
            self.at = self.at.saturating_add(1);
            let right = self.infixes(precedence)?;
            left = match kind {
                Infix::Plain(op) => folded(op, left, right)?,
                Infix::Both => Expr::Both(Box::new([left, right])),
                Infix::Either => Expr::Either(Box::new([left, right])),
            };
        }
        Ok(left)
    }

    pub(crate) fn unary(&mut self) -> Parsed<Expr> {
        self.spend()?;
        let Some(Token::Sign(sign)) = self.peek() else { return self.postfix() };
        let [byte] = *sign.as_bytes() else { return self.postfix() };
        if !matches!(byte, b'-' | b'~' | b'+' | b'!' | b'*' | b'&') {
            return self.postfix();
        }
        self.at = self.at.saturating_add(1);
        let operand = self.unary()?;
        Ok(match (byte, operand) {
            (b'!', operand) => Expr::Not(Box::new(operand)),
            (b'*', operand) => Expr::Index(Box::new([operand, Expr::Int(0, arith::Int::INT)])),
            (b'&', Expr::Field { offset, kind }) => {
                Expr::Payload { offset, length: u32::from(kind.size), element: kind }
            }
            (b'&', place @ Expr::Payload { .. }) => place,
            (b'&', Expr::Index(parts)) => Expr::Binary(Op::Add, parts),
            (b'&', unknown @ Expr::Unknown(_)) => unknown,
            (b'&', _) => return Err("the address of something that is not a field".into()),
            (sign, Expr::Int(value, kind)) => {
                let (value, kind) = arith::unary(sign, (value, kind));
                Expr::Int(value, kind)
            }
            (sign, operand) => Expr::Unary(sign, Box::new(operand)),
        })
    }
}

/// Returns `left op right`, evaluated if both are constants.
fn folded(op: Op, left: Expr, right: Expr) -> Parsed<Expr> {
    match (left, right) {
        (Expr::Int(a, x), Expr::Int(b, y)) => {
            let (value, kind) =
                arith::binary(op, (a, x), (b, y)).map_err(|_| "a division by zero".to_owned())?;
            Ok(Expr::Int(value, kind))
        }
        (Expr::Structure(size, base), right) if matches!(op, Op::Add | Op::Sub) => {
            let by = folded(
                Op::Mul,
                Expr::Cast(arith::Int::S64, Box::new(right)),
                Expr::Int(size, arith::Int::U64),
            )?;
            let base = Expr::Cast(arith::Int::U64, base);
            Ok(Expr::Structure(size, Box::new(Expr::Binary(op, Box::new([base, by])))))
        }
        (left, right) => Ok(Expr::Binary(op, Box::new([left, right]))),
    }
}

/// A name that a statement has declared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Local<'a> {
    pub(super) name: &'a str,
    /// The tokens at which its type and its value begin.
    pub(super) kind: usize,
    pub(super) value: usize,
}
