//! Parses an expression by the precedence of its operators, and compiles it on the way.

use crate::error::{Error, quoted};
use crate::eval::MAX_HEIGHT;
use crate::lex::{Lexer, Operand, Operator, Result};
use crate::name::Name;
use crate::program::{Binary, Constant, EQUALITY, Filter, ORDER, Op, Unary};
use crate::{MAX_LENGTH, MAX_NESTING, severity};
use std::str::FromStr;

/// An operand that was parsed: its place and its kind.
#[derive(Debug, Clone, Copy)]
struct Parsed {
    /// Offset of its first byte.
    at: usize,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Text in double quotes.
    Text,
    /// A float.
    Float,
    /// A number or boolean that stands in the expression.
    Constant,
    /// A comparison that is not in parentheses.
    Comparison {
        level: u8,
        /// Both sides are constants.
        is_constant: bool,
    },
    Other,
}

struct Parser<'s> {
    lexer: Lexer<'s>,
    filter: Filter,
    /// Values on the stack at this point of the program.
    height: usize,
    /// Parentheses that are open.
    nesting: usize,
    /// The next operator and its offset, if it was read already.
    next: Option<(usize, Operator)>,
}

fn parse(text: &str) -> Result<Filter> {
    let lexer = Lexer::new(text);
    if text.len() > MAX_LENGTH {
        let at = (0..=MAX_LENGTH).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        return lexer.error(
            at,
            format!("{} bytes", text.len()),
            format!("an expression of at most {MAX_LENGTH} bytes"),
        );
    }
    let filter = Filter {
        ops: Vec::new(),
        constants: Vec::new(),
        globs: Vec::new(),
        names: Vec::new(),
        height: 0,
        places: Vec::new(),
        text: text.to_owned(),
    };
    let mut parser = Parser { lexer, filter, height: 0, nesting: 0, next: None };
    let whole = parser.expression(1)?;
    parser.check_condition(whole)?;
    match parser.operator()? {
        (_, Operator::End) => Ok(parser.filter),
        (at, _) => parser.lexer.error(at, "`)`", "an operator or the end: no parenthesis is open"),
    }
}

/// Returns a position as the program has it. An expression is too short for more positions than a
/// `u16` counts.
fn position(of: usize) -> u16 {
    u16::try_from(of).unwrap_or(u16::MAX)
}

impl Parser<'_> {
    /// Returns the next operator and its offset, and leaves it to be read again.
    fn operator(&mut self) -> Result<(usize, Operator)> {
        if self.next.is_none() {
            let at = self.lexer.skip_space();
            self.next = Some((at, self.lexer.operator()?));
        }
        Ok(self.next.unwrap_or((0, Operator::End)))
    }

    /// Parses operands and the operators between them that bind at least as strongly as `least`.
    fn expression(&mut self, least: u8) -> Result<Parsed> {
        let mut left = self.unary()?;
        loop {
            let (at, operator) = self.operator()?;
            let level = match operator {
                Operator::Binary(operator) => operator.level(),
                Operator::Glob { .. } => EQUALITY,
                Operator::Close | Operator::End => return Ok(left),
            };
            if level < least {
                return Ok(left);
            }
            self.next = None;
            let kind = match operator {
                Operator::Glob { is_negated } => self.glob(at, left, is_negated)?,
                Operator::Binary(operator @ (Binary::And | Binary::Or)) => {
                    self.logic(operator, left)?
                }
                Operator::Binary(operator) => self.binary(at, operator, left)?,
                Operator::Close | Operator::End => Kind::Other,
            };
            left = Parsed { at: left.at, kind };
        }
    }

    /// Parses `left && right` or `left || right` behind the operator.
    fn logic(&mut self, operator: Binary, left: Parsed) -> Result<Kind> {
        self.check_condition(left)?;
        let shortcut = self.filter.ops.len();
        self.filter.ops.push(Op::Shortcut { skips_on: operator == Binary::Or, to: 0 });
        let right = self.expression(operator.level().saturating_add(1))?;
        self.check_condition(right)?;
        self.put_binary(operator);
        let to = position(self.filter.ops.len());
        if let Some(op) = self.filter.ops.get_mut(shortcut) {
            *op = Op::Shortcut { skips_on: operator == Binary::Or, to };
        }
        Ok(Kind::Other)
    }

    fn binary(&mut self, at: usize, operator: Binary, left: Parsed) -> Result<Kind> {
        let level = operator.level();
        self.check_chain(at, operator.symbol(), level, left)?;
        let right = self.expression(level.saturating_add(1))?;
        if operator.is_of_bits() {
            self.check_bits(operator, left)?;
            self.check_bits(operator, right)?;
        } else if level == ORDER {
            for side in [left, right] {
                self.check_number(
                    side,
                    operator.symbol(),
                    "a number: text is compared by `==`, `!=`, `~` and `!~`",
                )?;
            }
        }
        let named =
            if matches!(level, EQUALITY | ORDER) { self.level_word(operator) } else { None };
        self.put_binary(named.unwrap_or(operator));
        if !matches!(level, EQUALITY | ORDER) {
            return Ok(Kind::Other);
        }
        let is_constant = [left, right]
            .iter()
            .all(|side| matches!(side.kind, Kind::Text | Kind::Float | Kind::Constant));
        Ok(Kind::Comparison { level, is_constant })
    }

    /// Replaces the word of a severity that is compared with `level`, as in `level <= warn`, by what
    /// it means. Returns the operator of the comparison then.
    fn level_word(&mut self, operator: Binary) -> Option<Binary> {
        let [.., Op::Name(left), Op::Name(right)] = *self.filter.ops else { return None };
        let plain = |at: u16| {
            let name = self.filter.names.get(usize::from(at))?;
            name.plain().filter(|_| !name.is_context())
        };
        let is_left = plain(left) == Some("level");
        if !is_left && plain(right) != Some("level") {
            return None;
        }
        let word = if is_left { right } else { left };
        let wanted = if is_left { operator } else { operator.flipped() };
        let (found, constant) = severity::comparison(wanted, plain(word)?)?;
        let place = position(self.filter.constants.len());
        self.filter.constants.push(constant);
        let behind = if is_left { 1 } else { 2 };
        let at = self.filter.ops.len().saturating_sub(behind);
        *self.filter.ops.get_mut(at)? = Op::Constant(place);
        self.forget(word);
        Some(if is_left { found } else { found.flipped() })
    }

    /// Removes a name that no operation reads any more.
    fn forget(&mut self, name: u16) {
        let filter = &mut self.filter;
        if filter.ops.contains(&Op::Name(name)) {
            return;
        }
        filter.names.remove(name.into());
        filter.places.remove(name.into());
        for op in &mut filter.ops {
            if let Op::Name(position) = op
                && *position > name
            {
                *position = position.saturating_sub(1);
            }
        }
    }

    /// Parses `left ~ "glob"` behind the operator.
    fn glob(&mut self, at: usize, left: Parsed, is_negated: bool) -> Result<Kind> {
        let symbol = if is_negated { "!~" } else { "~" };
        self.check_chain(at, symbol, EQUALITY, left)?;
        if matches!(left.kind, Kind::Float | Kind::Constant) {
            return self.lexer.error(
                left.at,
                "a number",
                format!("text on the left of `{symbol}`"),
            );
        }
        let right = self.expression(EQUALITY.saturating_add(1))?;
        let pattern = match (right.kind, self.filter.ops.last(), self.filter.constants.last()) {
            (Kind::Text, Some(Op::Constant(_)), Some(Constant::Text(bytes))) => {
                String::from_utf8(bytes.clone())
            }
            _ => {
                let expected = format!(
                    "a glob in double quotes behind `{symbol}`, as in `comm {symbol} \"kworker*\"`"
                );
                return self.lexer.error(right.at, "another operand", expected);
            }
        };
        let Ok(pattern) = pattern else {
            return self.lexer.error(right.at, "bytes that are not UTF-8", "a glob of characters");
        };
        self.filter.ops.pop();
        self.filter.constants.pop();
        self.height = self.height.saturating_sub(1);
        self.filter.ops.push(Op::Glob { glob: position(self.filter.globs.len()), is_negated });
        self.filter.globs.push(pattern);
        Ok(Kind::Comparison { level: EQUALITY, is_constant: false })
    }

    /// Parses operators before an operand, and the operand.
    fn unary(&mut self) -> Result<Parsed> {
        let mut operators = Vec::new();
        let begin = self.lexer.skip_space();
        loop {
            let at = self.lexer.skip_space();
            let kind = match self.lexer.operand()? {
                Operand::Unary(operator) => {
                    operators.push(operator);
                    continue;
                }
                Operand::Open => self.parenthesized(at)?,
                Operand::Constant(constant) => self.constant(at, constant)?,
                Operand::Name(name) => self.name(at, name)?,
            };
            let operand = Parsed { at, kind };
            for operator in operators.iter().rev() {
                let is_of_bits = *operator == Unary::Complement;
                let expected = if is_of_bits {
                    "an integer: `~` is for bits"
                } else {
                    "a number or a condition"
                };
                self.check_number(operand, &operator.symbol().to_string(), expected)?;
                if is_of_bits && operand.kind == Kind::Float {
                    return self.lexer.error(at, "a float", expected);
                }
                self.filter.ops.push(Op::Unary(*operator));
            }
            return Ok(match (operators.first(), kind) {
                (None, _) => operand,
                // `!1.5` and `!!1.5` are conditions.
                (_, Kind::Float) if operators.contains(&Unary::Not) => {
                    Parsed { at: begin, kind: Kind::Constant }
                }
                (_, Kind::Float | Kind::Constant) => Parsed { at: begin, kind },
                _ => Parsed { at: begin, kind: Kind::Other },
            });
        }
    }

    /// Parses the rest of `(…)`.
    fn parenthesized(&mut self, at: usize) -> Result<Kind> {
        if self.nesting >= MAX_NESTING {
            return self.lexer.error(
                at,
                "`(`",
                format!("at most {MAX_NESTING} parentheses in each other"),
            );
        }
        self.nesting = self.nesting.saturating_add(1);
        let inner = self.expression(1)?;
        let (end, operator) = self.operator()?;
        if operator != Operator::Close {
            return self.lexer.error(end, "the end", format!("`)` for the `(` at byte {at}"));
        }
        self.next = None;
        self.nesting = self.nesting.saturating_sub(1);
        Ok(match inner.kind {
            Kind::Comparison { .. } => Kind::Other,
            kind => kind,
        })
    }

    fn constant(&mut self, at: usize, constant: Constant) -> Result<Kind> {
        let kind = match constant {
            Constant::Text(_) => Kind::Text,
            Constant::Float(_) => Kind::Float,
            Constant::Integer(_) | Constant::Bool(_) => Kind::Constant,
        };
        let place = position(self.filter.constants.len());
        self.filter.constants.push(constant);
        self.push(at, Op::Constant(place))?;
        Ok(kind)
    }

    fn name(&mut self, at: usize, name: Name) -> Result<Kind> {
        let known = self.filter.names.iter().position(|other| *other == name);
        let place = known.unwrap_or(self.filter.names.len());
        if known.is_none() {
            self.filter.names.push(name);
            self.filter.places.push(at);
        }
        self.push(at, Op::Name(position(place)))?;
        Ok(Kind::Other)
    }

    /// Adds an operation that pushes a value.
    fn push(&mut self, at: usize, op: Op) -> Result<()> {
        self.filter.ops.push(op);
        self.height = self.height.saturating_add(1);
        self.filter.height = self.filter.height.max(self.height);
        if self.height > MAX_HEIGHT {
            let found = format!("{} operands that wait for their operator", self.height);
            return self.lexer.error(
                at,
                found,
                format!("at most {MAX_HEIGHT}: fewer parentheses on the right"),
            );
        }
        Ok(())
    }

    fn put_binary(&mut self, operator: Binary) {
        self.filter.ops.push(Op::Binary(operator));
        self.height = self.height.saturating_sub(1);
    }

    /// Refuses text as a condition.
    fn check_condition(&self, side: Parsed) -> Result<()> {
        self.check_number(side, "a condition", "a comparison, as in `comm == \"text\"`")
    }

    /// Refuses text where it has no meaning.
    fn check_number(&self, side: Parsed, of: &str, expected: &str) -> Result<()> {
        match side.kind {
            Kind::Text => {
                self.lexer.error(side.at, format!("text as an operand of {}", quoted(of)), expected)
            }
            _ => Ok(()),
        }
    }

    /// Refuses what has no bits, and a comparison of constants, where C's precedence was
    /// overlooked.
    fn check_bits(&self, operator: Binary, side: Parsed) -> Result<()> {
        let symbol = operator.symbol();
        self.check_number(side, symbol, "an integer")?;
        match side.kind {
            Kind::Float => self.lexer.error(side.at, format!("a float as an operand of `{symbol}`"), "an integer"),
            Kind::Comparison { is_constant: true, .. } => self.lexer.error(
                side.at,
                format!("a comparison of two constants beside `{symbol}`"),
                format!(
                    "parentheses: `==` binds more strongly than `{symbol}`, as in C; write `(flags {symbol} 4) == 4`"
                ),
            ),
            _ => Ok(()),
        }
    }

    /// Refuses `a < b < c`.
    fn check_chain(&self, at: usize, symbol: &str, level: u8, left: Parsed) -> Result<()> {
        match left.kind {
            Kind::Comparison { level: before, .. } if before == level => self.lexer.error(
                at,
                format!("`{symbol}` behind another comparison"),
                "`&&` between two comparisons, as in `1 < a && a < 5`, or parentheses",
            ),
            _ => Ok(()),
        }
    }
}

impl Filter {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression does not follow the grammar, or exceeds a limit. The error has the place,
    /// what was found there and what was expected.
    pub fn parse(expression: &str) -> std::result::Result<Self, Error> {
        parse(expression).map_err(|error| *error)
    }
}

impl FromStr for Filter {
    type Err = Error;

    fn from_str(expression: &str) -> std::result::Result<Self, Error> {
        Self::parse(expression)
    }
}
