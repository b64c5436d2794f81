//! Splits an expression into tokens. Where an operand is expected, `~` is the complement and `!`
//! the negation; behind an operand, `~` and `!~` are globs.

use crate::error::{Error, quoted};
use crate::name::{Name, Step};
use crate::program::{Binary, Constant, Unary};

pub(crate) type Result<T> = std::result::Result<T, Box<Error>>;

/// A token where an operand is expected.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    Open,
    Unary(Unary),
    Constant(Constant),
    Name(Name),
}

/// A token behind an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Binary(Binary),
    Glob { is_negated: bool },
    Close,
    End,
}

/// Words of an error for a token that cannot begin an operand.
const AN_OPERAND: &str = "a name, a number, text in double quotes or `(`";
/// Words of an error for a token that cannot follow an operand.
const AN_OPERATOR: &str = "an operator (`&&`, `||`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `~`, `!~`, `&`, `|`, `^`, `<<`, `>>`) or the end";

/// Operators behind an operand. One that begins like another stands before it.
const OPERATORS: &[(&str, Operator)] = &[
    ("||", Operator::Binary(Binary::Or)),
    ("&&", Operator::Binary(Binary::And)),
    ("==", Operator::Binary(Binary::Equal)),
    ("!=", Operator::Binary(Binary::NotEqual)),
    ("!~", Operator::Glob { is_negated: true }),
    ("<<", Operator::Binary(Binary::ShiftLeft)),
    (">>", Operator::Binary(Binary::ShiftRight)),
    ("<=", Operator::Binary(Binary::LessEqual)),
    (">=", Operator::Binary(Binary::GreaterEqual)),
    ("<", Operator::Binary(Binary::Less)),
    (">", Operator::Binary(Binary::Greater)),
    ("|", Operator::Binary(Binary::BitOr)),
    ("^", Operator::Binary(Binary::BitXor)),
    ("&", Operator::Binary(Binary::BitAnd)),
    ("~", Operator::Glob { is_negated: false }),
    (")", Operator::Close),
];

/// An expression, and how far it was read.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'s> {
    pub(crate) text: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    pub(crate) fn new(text: &'s str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'s str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes the next character.
    fn take(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at = self.at.saturating_add(next.len_utf8());
        Some(next)
    }

    fn take_if(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.take();
        }
        is_there
    }

    /// Takes the characters for which `is_wanted` is true.
    fn take_while(&mut self, is_wanted: impl Fn(char) -> bool) -> &'s str {
        let rest = self.rest();
        let len = rest.find(|c| !is_wanted(c)).unwrap_or(rest.len());
        self.at = self.at.saturating_add(len);
        rest.get(..len).unwrap_or_default()
    }

    /// Skips white space and returns the offset of what follows.
    pub(crate) fn skip_space(&mut self) -> usize {
        self.take_while(|c| c.is_ascii_whitespace());
        self.at
    }

    pub(crate) fn error<T>(
        &self,
        at: usize,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Result<T> {
        Err(Error::new(self.text, at, found, expected))
    }

    /// Returns the error for what stands at an offset.
    fn unexpected<T>(&self, at: usize, expected: impl Into<String>) -> Result<T> {
        let rest = self.text.get(at..).unwrap_or_default();
        let found =
            rest.chars().next().map_or_else(|| "the end".to_owned(), |c| quoted(&c.to_string()));
        self.error(at, found, expected)
    }

    /// Takes the next operand.
    pub(crate) fn operand(&mut self) -> Result<Operand> {
        let at = self.skip_space();
        Ok(match self.peek() {
            Some('(') => self.one(Operand::Open),
            Some('!') => self.one(Operand::Unary(Unary::Not)),
            Some('~') => self.one(Operand::Unary(Unary::Complement)),
            Some('-') => self.one(Operand::Unary(Unary::Minus)),
            Some('"') => Operand::Constant(Constant::Text(self.string()?)),
            Some('\'') => Operand::Constant(Constant::Integer(self.character()?)),
            Some('$') => Operand::Name(self.context()?),
            Some(c) if begins_name(c) => match self.word() {
                "true" => Operand::Constant(Constant::Bool(true)),
                "false" => Operand::Constant(Constant::Bool(false)),
                first => Operand::Name(self.name(false, first)?),
            },
            Some(c) if c.is_ascii_digit() || c == '.' => Operand::Constant(self.number()?),
            _ => {
                return match self.operator_here() {
                    Some((symbol, _)) => self.error(at, quoted(symbol), AN_OPERAND),
                    None => self.unexpected(at, AN_OPERAND),
                };
            }
        })
    }

    fn one(&mut self, operand: Operand) -> Operand {
        self.take();
        operand
    }

    fn operator_here(&self) -> Option<(&'static str, Operator)> {
        OPERATORS.iter().find(|(symbol, _)| self.rest().starts_with(symbol)).copied()
    }

    /// Takes the next operator.
    pub(crate) fn operator(&mut self) -> Result<Operator> {
        let at = self.skip_space();
        if let Some((symbol, operator)) = self.operator_here() {
            self.at = self.at.saturating_add(symbol.len());
            return Ok(operator);
        }
        match self.peek() {
            None => Ok(Operator::End),
            Some('=') => self.unexpected(at, "`==`: one `=` does not compare"),
            Some('+' | '-' | '*' | '/' | '%') => {
                self.unexpected(at, format!("{AN_OPERATOR}; there is no arithmetic"))
            }
            Some(_) => self.unexpected(at, AN_OPERATOR),
        }
    }

    fn word(&mut self) -> &'s str {
        self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// Takes `$ctx.NAME`.
    fn context(&mut self) -> Result<Name> {
        let at = self.at;
        self.take();
        if self.word() != "ctx" || !self.take_if('.') {
            return self.error(at, "`$`", "`$ctx.NAME`, the name of a context");
        }
        let first = self.word_of_name()?;
        self.name(true, first)
    }

    fn word_of_name(&mut self) -> Result<&'s str> {
        if !self.peek().is_some_and(begins_name) {
            return self
                .unexpected(self.at, "a name: a letter or `_`, then letters, digits and `_`");
        }
        Ok(self.word())
    }

    /// Takes the rest of a name behind its first member: `.b[3]`.
    fn name(&mut self, is_context: bool, first: &str) -> Result<Name> {
        let mut steps = vec![Step::Member(first.to_owned())];
        loop {
            if self.take_if('.') {
                steps.push(Step::Member(self.word_of_name()?.to_owned()));
            } else if self.take_if('[') {
                let at = self.at;
                let digits = self.take_while(|c| c.is_ascii_digit());
                match digits.parse() {
                    Ok(index) => steps.push(Step::Element(index)),
                    Err(_) if digits.is_empty() => {
                        return self.unexpected(at, "the number of an element, as in `a[3]`");
                    }
                    Err(_) => {
                        return self.error(
                            at,
                            quoted(digits),
                            "the number of an element, below 2^64",
                        );
                    }
                }
                if !self.take_if(']') {
                    return self.unexpected(self.at, "`]` behind the number of the element");
                }
            } else {
                return Ok(Name::new(is_context, steps));
            }
        }
    }

    /// Takes a number.
    fn number(&mut self) -> Result<Constant> {
        let begin = self.at;
        let rest = self.rest().as_bytes();
        let radix = match (rest.first(), rest.get(1)) {
            (Some(b'0'), Some(b'x' | b'X')) => 16,
            (Some(b'0'), Some(b'b' | b'B')) => 2,
            _ => 10,
        };
        if radix != 10 {
            self.at = self.at.saturating_add(2);
            let digits = self.word();
            return self.integer(begin, digits, radix);
        }
        let whole = self.take_while(|c| c.is_ascii_digit());
        let mut is_float = false;
        if self.take_if('.') {
            is_float = true;
            let fraction = self.take_while(|c| c.is_ascii_digit());
            if whole.is_empty() && fraction.is_empty() {
                return self.error(begin, "`.`", AN_OPERAND);
            }
        }
        if matches!(self.peek(), Some('e' | 'E')) {
            is_float = true;
            self.take();
            if matches!(self.peek(), Some('+' | '-')) {
                self.take();
            }
            if self.take_while(|c| c.is_ascii_digit()).is_empty() {
                return self.unexpected(self.at, "the digits of an exponent, as in `1e9`");
            }
        }
        if self.peek().is_some_and(|c| begins_name(c) || c.is_ascii_digit() || c == '.') {
            let at = self.at;
            let number = self.text.get(begin..at).unwrap_or_default();
            return self.unexpected(
                at,
                format!("the end of the number {}, which takes no suffix", quoted(number)),
            );
        }
        let text = self.text.get(begin..self.at).unwrap_or_default();
        if is_float {
            return match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Constant::Float(number)),
                _ => self.error(begin, quoted(text), "a float below 1.8e308"),
            };
        }
        match whole.strip_prefix('0') {
            Some(octal) if !octal.is_empty() => self.integer(begin, octal, 8),
            _ => self.integer(begin, whole, 10),
        }
    }

    fn integer(&self, begin: usize, digits: &str, radix: u32) -> Result<Constant> {
        let what = match radix {
            2 => "binary digits, as in `0b101`",
            8 => "octal digits, because the number begins with 0, as in `0644`",
            16 => "hexadecimal digits, as in `0x1f`",
            _ => "digits",
        };
        if let Some(at) = digits.find(|c: char| !c.is_digit(radix)) {
            let ahead = self.at.saturating_sub(digits.len());
            return self.unexpected(ahead.saturating_add(at), what);
        }
        if digits.is_empty() {
            return self.unexpected(self.at, what);
        }
        match u64::from_str_radix(digits, radix) {
            Ok(number) => Ok(Constant::Integer(number.into())),
            Err(_) => self.error(begin, quoted(digits), "a number of 64 bits"),
        }
    }

    /// Takes the character behind a backslash.
    fn escape(&mut self) -> Result<u8> {
        let at = self.at.saturating_sub(1);
        Ok(match self.take() {
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('r') => b'\r',
            Some('0') => 0,
            Some('a') => 7,
            Some('b') => 8,
            Some('f') => 12,
            Some('v') => 11,
            Some('e') => 27,
            Some('\\') => b'\\',
            Some('"') => b'"',
            Some('\'') => b'\'',
            Some('x') => {
                let digits = self
                    .rest()
                    .get(..2)
                    .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
                match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                    Some(byte) => {
                        self.at = self.at.saturating_add(2);
                        byte
                    }
                    None => {
                        return self.error(
                            at,
                            "`\\x`",
                            "two hexadecimal digits behind it, as in `\\x1f`",
                        );
                    }
                }
            }
            _ => {
                return self.error(
                    at,
                    "`\\`",
                    "one of \\n \\t \\r \\0 \\a \\b \\f \\v \\e \\\\ \\\" \\' \\xHH",
                );
            }
        })
    }

    /// Takes text in double quotes.
    fn string(&mut self) -> Result<Vec<u8>> {
        let begin = self.at;
        self.take();
        let mut bytes = Vec::new();
        loop {
            match self.take() {
                Some('"') => return Ok(bytes),
                Some('\\') => bytes.push(self.escape()?),
                Some(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                None => return self.error(begin, "text without its end", "a second `\"`"),
            }
        }
    }

    /// Takes a character between single quotes; its number.
    fn character(&mut self) -> Result<i128> {
        let begin = self.at;
        self.take();
        let number = match self.take() {
            Some('\\') => i128::from(self.escape()?),
            Some(c) if c != '\'' => u32::from(c).into(),
            _ => return self.error(begin, "`'`", "one character in single quotes, as in `'a'`"),
        };
        if !self.take_if('\'') {
            return self.error(
                begin,
                "`'`",
                "one character in single quotes, as in `'a'`; text stands in double quotes",
            );
        }
        Ok(number)
    }
}

fn begins_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}
