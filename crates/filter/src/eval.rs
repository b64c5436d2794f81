//! Evaluates a compiled expression.

use crate::program::{Binary, Constant, Filter, Op, Unary};
use crate::value::{Compared, Item, Value};
use lastwords_glob::matches_chars;
use std::cmp::Ordering;

/// Values of a small stack, which most expressions need.
const SMALL: usize = 8;
/// Most values that wait for their operator at a time.
pub(crate) const MAX_HEIGHT: usize = 128;

/// An operation with its operand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'v> {
    /// Pushes the value of the name at this position.
    Name(u16),
    /// Pushes a constant.
    Push(Item<'v>),
    Unary(Unary),
    Binary(Binary),
    /// Matches the top against the glob.
    Glob {
        glob: &'v str,
        /// The result is true if the glob does not match.
        is_negated: bool,
    },
    /// See [`Op::Shortcut`].
    Shortcut {
        skips_on: bool,
        to: u16,
    },
}

impl Filter {
    /// Evaluates the expression. `value` returns the value of the name at a position in
    /// [`Filter::names`], or `None` if the event does not have it; it is not called for names that
    /// cannot change the result any more. The result is `None` if it depends on a value that is not
    /// there; such an event does not match.
    #[inline]
    #[must_use]
    pub fn eval<'v>(&'v self, value: &mut impl FnMut(usize) -> Option<Value<'v>>) -> Option<bool> {
        let step = &mut |at| self.ops.get(at).map(|op| self.step(*op));
        if self.height <= SMALL {
            run::<SMALL>(step, value)
        } else {
            run::<MAX_HEIGHT>(step, value)
        }
    }

    #[inline]
    fn step(&self, op: Op) -> Step<'_> {
        match op {
            Op::Name(position) => Step::Name(position),
            Op::Constant(position) => Step::Push(constant(self, position)),
            Op::Unary(operator) => Step::Unary(operator),
            Op::Binary(operator) => Step::Binary(operator),
            Op::Glob { glob, is_negated } => Step::Glob {
                glob: self.globs.get(usize::from(glob)).map_or("", String::as_str),
                is_negated,
            },
            Op::Shortcut { skips_on, to } => Step::Shortcut { skips_on, to },
        }
    }
}

/// The values that wait for their operator.
struct Stack<'v, const N: usize> {
    items: [Item<'v>; N],
    len: usize,
}

impl<'v, const N: usize> Stack<'v, N> {
    /// Pushes a value. The parser has counted the values, so that there is room.
    #[inline]
    fn push(&mut self, item: Item<'v>) {
        if let Some(place) = self.items.get_mut(self.len) {
            *place = item;
        }
        self.len = self.len.wrapping_add(1);
    }

    #[inline]
    fn pop(&mut self) -> Item<'v> {
        self.len = self.len.saturating_sub(1);
        self.items.get(self.len).copied().unwrap_or(Item::Unknown)
    }
}

/// Evaluates the operations that `step` returns, in order, until it returns none.
#[inline]
pub(crate) fn run<'v, const N: usize>(
    step: &mut impl FnMut(usize) -> Option<Step<'v>>,
    value: &mut impl FnMut(usize) -> Option<Value<'v>>,
) -> Option<bool> {
    let mut stack = Stack { items: [Item::Unknown; N], len: 0 };
    let mut next = 0usize;
    // Shortcuts only lead forward.
    while let Some(step) = step(next) {
        next = next.wrapping_add(1);
        let item = match step {
            Step::Name(position) => value(position.into()).map_or(Item::Unknown, Item::from),
            Step::Push(constant) => constant,
            Step::Unary(operator) => unary(operator, stack.pop()),
            Step::Binary(operator) => {
                let right = stack.pop();
                binary(operator, stack.pop(), right)
            }
            Step::Glob { glob, is_negated } => {
                let text = stack.pop().text();
                let is_match = text.map(|text| text.is_some_and(|text| matches(glob, text)));
                Item::from(is_match.map(|is_match| is_match != is_negated))
            }
            Step::Shortcut { skips_on, to } => {
                let truth = stack.pop().truth();
                if truth == Some(skips_on) {
                    next = next.max(to.into());
                }
                Item::from(truth)
            }
        };
        stack.push(item);
    }
    stack.pop().truth()
}

#[inline]
fn constant(filter: &Filter, position: u16) -> Item<'_> {
    match filter.constants.get(usize::from(position)) {
        Some(Constant::Integer(number)) => Item::Integer(*number),
        Some(Constant::Float(number)) => Item::Float(*number),
        Some(Constant::Bool(value)) => Item::Bool(*value),
        Some(Constant::Text(text)) => Item::Text(text),
        None => Item::Unknown,
    }
}

#[inline]
fn unary(operator: Unary, item: Item<'_>) -> Item<'_> {
    match (operator, item) {
        (Unary::Not, item) => Item::from(item.truth().map(|truth| !truth)),
        (Unary::Minus, Item::Float(number)) => Item::Float(-number),
        (Unary::Minus, item) => {
            item.integer().map_or(Item::Unknown, |number| Item::Integer(number.wrapping_neg()))
        }
        (Unary::Complement, item) => {
            item.integer().map_or(Item::Unknown, |number| Item::Integer(!number))
        }
    }
}

#[inline]
fn binary<'v>(operator: Binary, left: Item<'v>, right: Item<'v>) -> Item<'v> {
    use Ordering::{Equal, Greater, Less};
    let is = |wanted: &[Ordering]| match left.compare(right) {
        Compared::Ordered(ordering) => Some(wanted.contains(&ordering)),
        Compared::Unordered => Some(false),
        Compared::Same(_) | Compared::Unknown => None,
    };
    let is_equal = || match left.compare(right) {
        Compared::Ordered(ordering) => Some(ordering == Equal),
        Compared::Same(is_same) => Some(is_same),
        Compared::Unordered => Some(false),
        Compared::Unknown => None,
    };
    Item::from(match operator {
        Binary::Or => any(left.truth(), right.truth()),
        Binary::And => any(left.truth().map(|t| !t), right.truth().map(|t| !t)).map(|t| !t),
        Binary::Equal => is_equal(),
        Binary::NotEqual => is_equal().map(|is_equal| !is_equal),
        Binary::Less => is(&[Less]),
        Binary::LessEqual => is(&[Less, Equal]),
        Binary::Greater => is(&[Greater]),
        Binary::GreaterEqual => is(&[Greater, Equal]),
        _ => {
            return left
                .integer()
                .zip(right.integer())
                .map_or(Item::Unknown, |(l, r)| bits(operator, l, r));
        }
    })
}

/// Returns true if one is true, false if both are false, and else none.
fn any(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

fn bits<'v>(operator: Binary, left: i128, right: i128) -> Item<'v> {
    let shift = u32::try_from(right).ok().filter(|shift| *shift < 64);
    let number = match operator {
        Binary::BitOr => Some(left | right),
        Binary::BitXor => Some(left ^ right),
        Binary::BitAnd => Some(left & right),
        Binary::ShiftRight => shift.map(|shift| left.wrapping_shr(shift)),
        _ => shift.map(|shift| shift_left(left, shift)),
    };
    number.map_or(Item::Unknown, Item::Integer)
}

/// Shifts a number of 64 bits, and drops what leaves them. A negative number stays a signed one.
fn shift_left(number: i128, shift: u32) -> i128 {
    let [a, b, c, d, e, f, g, h, ..] = number.wrapping_shl(shift).to_le_bytes();
    let low = [a, b, c, d, e, f, g, h];
    if number < 0 { i64::from_le_bytes(low).into() } else { u64::from_le_bytes(low).into() }
}

/// Matches text against a glob. Bytes that are not UTF-8 count as U+FFFD.
fn matches(glob: &str, text: &[u8]) -> bool {
    if let Ok(text) = std::str::from_utf8(text) {
        return lastwords_glob::matches(glob, text);
    }
    let characters = text.utf8_chunks().flat_map(|chunk| {
        let replacement = (!chunk.invalid().is_empty()).then_some('\u{fffd}');
        chunk.valid().chars().chain(replacement)
    });
    matches_chars(glob, characters)
}
