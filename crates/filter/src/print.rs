//! Prints a compiled expression.

use crate::program::{Binary, Constant, EQUALITY, Filter, OPERAND, ORDER, Op, PREFIX};
use std::fmt::{self, Display, Formatter, Write};

/// The text of an operand, and the precedence of its outermost operator.
struct Printed {
    text: String,
    level: u8,
}

impl Printed {
    fn operand(text: String) -> Self {
        Self { text, level: OPERAND }
    }

    /// Puts parentheses around it unless its outermost operator binds at least as strongly as
    /// `least`.
    fn at_least(self, least: u8) -> String {
        if self.level >= least { self.text } else { format!("({})", self.text) }
    }
}

/// Prints the expression with the parentheses that it needs. [`Filter::parse`] makes an equal
/// filter of it, within its limits.
impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut stack: Vec<Printed> = Vec::new();
        for op in &self.ops {
            let mut pop = || stack.pop().unwrap_or_else(|| Printed::operand(String::new()));
            let printed = match *op {
                Op::Shortcut { .. } => continue,
                Op::Name(position) => Printed::operand(
                    self.names
                        .get(usize::from(position))
                        .map_or_else(String::new, ToString::to_string),
                ),
                Op::Constant(position) => Printed::operand(
                    self.constants.get(usize::from(position)).map_or_else(String::new, constant),
                ),
                Op::Unary(operator) => Printed {
                    text: format!("{}{}", operator.symbol(), pop().at_least(PREFIX)),
                    level: PREFIX,
                },
                Op::Glob { glob, is_negated } => {
                    let glob = self.globs.get(usize::from(glob)).map_or("", String::as_str);
                    let mut text = pop().at_least(ORDER);
                    text.push_str(if is_negated { " !~ " } else { " ~ " });
                    text.push_str(&quote(glob.as_bytes()));
                    Printed { text, level: EQUALITY }
                }
                Op::Binary(operator) => {
                    let right = pop();
                    binary(operator, pop(), right)
                }
            };
            stack.push(printed);
        }
        f.write_str(&stack.pop().map_or_else(String::new, |whole| whole.text))
    }
}

fn binary(operator: Binary, left: Printed, right: Printed) -> Printed {
    let level = operator.level();
    let next = level.saturating_add(1);
    // Comparisons do not chain. Beside operators of bits, people take comparisons for weaker than
    // they are.
    let (of_left, of_right) = match operator {
        Binary::BitOr | Binary::BitXor | Binary::BitAnd
            if left.is_comparison() || right.is_comparison() =>
        {
            let least =
                |side: &Printed, else_: u8| if side.is_comparison() { OPERAND } else { else_ };
            (least(&left, level), least(&right, next))
        }
        _ if matches!(level, EQUALITY | ORDER) => (next, next),
        _ => (level, next),
    };
    let mut text = left.at_least(of_left);
    // Writing into a `String` cannot fail.
    let _ = write!(text, " {} {}", operator.symbol(), right.at_least(of_right));
    Printed { text, level }
}

impl Printed {
    fn is_comparison(&self) -> bool {
        matches!(self.level, EQUALITY | ORDER)
    }
}

fn constant(constant: &Constant) -> String {
    match constant {
        Constant::Integer(number) => number.to_string(),
        Constant::Float(number) => format!("{number:?}"),
        Constant::Bool(value) => value.to_string(),
        Constant::Text(text) => quote(text),
    }
}

/// Puts text into double quotes, with escapes for all that is not printable ASCII or plain UTF-8.
fn quote(text: &[u8]) -> String {
    let mut out = "\"".to_owned();
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                c if c.is_ascii() && c.is_control() => {
                    out.push_str(&format!("\\x{:02x}", u32::from(c)))
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.push('"');
    out
}
