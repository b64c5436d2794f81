//! A compiled expression as bytes, for memory that several processes share. The writer parses the
//! expression and encodes it; a process that evaluates it reads the bytes, which it need not trust,
//! and neither parses nor allocates.
//!
//! Integers are in the byte order of the writer. The bytes are:
//!
//! | part | bytes |
//! | --- | --- |
//! | number of operations, number of names, length of the data | u16 each |
//! | operations | 4 each: code u8, flag u8, operand u16 |
//! | names | u16 each: offset in the data |
//! | data | constants, globs and names |
//!
//! | code | operation | flag | operand |
//! | --- | --- | --- | --- |
//! | 0 | push the value of a name | | position of the name |
//! | 1 | push a constant | | offset: kind u8, then 1: u64, 2: f64, 3: bool as u8, 4: length u16 and text |
//! | 2 | apply an operator to the top | 0 `!`, 1 `~`, 2 `-` | |
//! | 3 | apply an operator to the two values on top | position in the table of [`BINARIES`] | |
//! | 4 | match the top against a glob | 1: the result is negated | offset: length u16 and text |
//! | 5 | replace the top by its truth, and skip if that is the flag | 0 or 1 | the operation to continue at |
//!
//! A name is 1 for `$ctx.NAME` and else 0 (u8), the number of its steps (u8), and for each step a
//! kind (u8) and 0: a length (u16) and the text of a member, 1: the position (u64) of an element.

use crate::eval::{self, Step};
use crate::name;
use crate::program::{Binary, Constant, Filter, Op, Unary};
use crate::value::{Item, Value};

/// Most bytes of an encoded expression.
pub const MAX_CODE: usize = 8192;

/// Most values of an encoded expression that wait for their operator. It is evaluated on the stack
/// of signal handlers, too.
pub const MAX_CODE_HEIGHT: usize = 16;

/// The operators with two operands, in the order of their numbers.
const BINARIES: [Binary; 13] = [
    Binary::Or,
    Binary::And,
    Binary::BitOr,
    Binary::BitXor,
    Binary::BitAnd,
    Binary::Equal,
    Binary::NotEqual,
    Binary::Less,
    Binary::LessEqual,
    Binary::Greater,
    Binary::GreaterEqual,
    Binary::ShiftLeft,
    Binary::ShiftRight,
];
const UNARIES: [Unary; 3] = [Unary::Not, Unary::Complement, Unary::Minus];

const HEAD: usize = 6;

/// Collects the parts of an encoded expression.
#[derive(Default)]
struct Encoder {
    data: Vec<u8>,
    is_full: bool,
}

impl Encoder {
    /// Returns the offset of what is added next.
    fn here(&mut self) -> u16 {
        u16::try_from(self.data.len()).unwrap_or_else(|_| {
            self.is_full = true;
            0
        })
    }

    fn text(&mut self, text: &[u8]) {
        let len = u16::try_from(text.len()).unwrap_or_else(|_| {
            self.is_full = true;
            0
        });
        self.data.extend(len.to_ne_bytes());
        self.data.extend(text);
    }

    fn constant(&mut self, constant: &Constant) -> u16 {
        let at = self.here();
        match constant {
            Constant::Integer(number) => {
                self.data.push(1);
                // The lexer reads no integer above.
                self.data.extend(u64::try_from(*number).unwrap_or(u64::MAX).to_ne_bytes());
            }
            Constant::Float(number) => {
                self.data.push(2);
                self.data.extend(number.to_ne_bytes());
            }
            Constant::Bool(value) => self.data.extend([3, u8::from(*value)]),
            Constant::Text(text) => {
                self.data.push(4);
                self.text(text);
            }
        }
        at
    }

    fn name(&mut self, name: &name::Name) -> u16 {
        let at = self.here();
        let steps = u8::try_from(name.steps().len()).unwrap_or_else(|_| {
            self.is_full = true;
            0
        });
        self.data.extend([u8::from(name.is_context()), steps]);
        for step in name.steps() {
            match step {
                name::Step::Member(member) => {
                    self.data.push(0);
                    self.text(member.as_bytes());
                }
                name::Step::Element(index) => {
                    self.data.push(1);
                    self.data.extend(index.to_ne_bytes());
                }
            }
        }
        at
    }
}

/// Returns the encoded expression; none if it exceeds [`MAX_CODE`] or [`MAX_CODE_HEIGHT`].
fn encode(filter: &Filter) -> Option<Vec<u8>> {
    if filter.height > MAX_CODE_HEIGHT {
        return None;
    }
    let mut encoder = Encoder::default();
    let position = |is: bool| u8::from(is);
    let mut ops = Vec::new();
    for op in &filter.ops {
        let (code, flag, operand) = match *op {
            Op::Name(position) => (0, 0, position),
            Op::Constant(position) => {
                (1, 0, encoder.constant(filter.constants.get(usize::from(position))?))
            }
            Op::Unary(operator) => (2, number_of(&UNARIES, operator)?, 0),
            Op::Binary(operator) => (3, number_of(&BINARIES, operator)?, 0),
            Op::Glob { glob, is_negated } => {
                let at = encoder.here();
                encoder.text(filter.globs.get(usize::from(glob))?.as_bytes());
                (4, position(is_negated), at)
            }
            Op::Shortcut { skips_on, to } => (5, position(skips_on), to),
        };
        ops.extend([code, flag]);
        ops.extend(operand.to_ne_bytes());
    }
    let names: Vec<u16> = filter.names.iter().map(|name| encoder.name(name)).collect();
    let counts = [filter.ops.len(), names.len(), encoder.data.len()];
    let mut code = Vec::new();
    for count in counts {
        code.extend(u16::try_from(count).ok()?.to_ne_bytes());
    }
    code.extend(ops);
    code.extend(names.iter().flat_map(|offset| offset.to_ne_bytes()));
    code.extend(encoder.data);
    (!encoder.is_full && code.len() <= MAX_CODE).then_some(code)
}

fn number_of<T: PartialEq>(table: &[T], wanted: T) -> Option<u8> {
    u8::try_from(table.iter().position(|one| *one == wanted)?).ok()
}

/// An encoded expression that was checked.
#[derive(Debug, Clone, Copy)]
pub struct Code<'a> {
    ops: &'a [[u8; 4]],
    names: &'a [[u8; 2]],
    data: &'a [u8],
}

impl<'a> Code<'a> {
    /// Checks an encoded expression, which may be damaged or of a later version. Returns none if it
    /// cannot be evaluated.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let count = |at: usize| Some(usize::from(u16_at(bytes, at)?));
        let (ops, names, data) = (count(0)?, count(2)?, count(4)?);
        let (ops, rest) = bytes.get(HEAD..)?.split_at_checked(ops.checked_mul(4)?)?;
        let (names, rest) = rest.split_at_checked(names.checked_mul(2)?)?;
        let code =
            Self { ops: ops.as_chunks().0, names: names.as_chunks().0, data: rest.get(..data)? };
        (code.has_valid_names() && code.has_valid_ops()).then_some(code)
    }

    fn has_valid_names(&self) -> bool {
        self.names().all(|name| name.is_some_and(|name| name.check().is_some()))
    }

    /// Follows the height of the stack. Where shortcuts lead, the height is that of the operation
    /// before, because the operands that they skip leave one value in place of two.
    fn has_valid_ops(&self) -> bool {
        let mut height = 0usize;
        for (at, op) in self.ops.iter().enumerate() {
            let Some(instruction) = self.instruction(op) else { return false };
            let (takes, gives) = match instruction.0 {
                Step::Name(position) if usize::from(position) >= self.names.len() => return false,
                Step::Name(_) | Step::Push(_) => (0, 1),
                Step::Unary(_) | Step::Glob { .. } => (1, 1),
                Step::Shortcut { to, .. }
                    if usize::from(to) <= at || usize::from(to) > self.ops.len() =>
                {
                    return false;
                }
                Step::Shortcut { .. } => (1, 1),
                Step::Binary(_) => (2, 1),
            };
            let Some(left) = height.checked_sub(takes) else { return false };
            height = left.saturating_add(gives);
            if height > MAX_CODE_HEIGHT {
                return false;
            }
        }
        height == 1
    }

    /// Returns the operations in order. The item is none where an operation cannot be evaluated,
    /// which [`Code::new`] excludes.
    pub fn instructions(self) -> impl ExactSizeIterator<Item = Option<Instruction<'a>>> {
        self.ops.iter().map(move |op| self.instruction(op))
    }

    /// Returns the names in the order of their positions.
    pub fn names(self) -> impl ExactSizeIterator<Item = Option<CodeName<'a>>> {
        self.names.iter().map(move |offset| {
            let bytes = self.data.get(usize::from(u16::from_ne_bytes(*offset))..)?;
            let [is_context, steps, rest @ ..] = bytes else { return None };
            Some(CodeName { is_context: *is_context != 0, steps: *steps, rest })
        })
    }

    fn instruction(self, &[code, flag, low, high]: &[u8; 4]) -> Option<Instruction<'a>> {
        let operand = u16::from_ne_bytes([low, high]);
        let data = || self.data.get(usize::from(operand)..);
        Some(Instruction(match code {
            0 => Step::Name(operand),
            1 => Step::Push(constant(data()?)?),
            2 => Step::Unary(*UNARIES.get(usize::from(flag))?),
            3 => Step::Binary(*BINARIES.get(usize::from(flag))?),
            4 => Step::Glob {
                glob: std::str::from_utf8(text(data()?)?.0).ok()?,
                is_negated: flag != 0,
            },
            5 => Step::Shortcut { skips_on: flag != 0, to: operand },
            _ => return None,
        }))
    }
}

/// Returns the constant at the begin of the bytes.
fn constant(bytes: &[u8]) -> Option<Item<'_>> {
    let (kind, bytes) = bytes.split_first()?;
    Some(match kind {
        1 => Item::Integer(u64::from_ne_bytes(*bytes.first_chunk()?).into()),
        2 => Item::Float(f64::from_ne_bytes(*bytes.first_chunk()?)),
        3 => Item::Bool(*bytes.first()? != 0),
        4 => Item::Text(text(bytes)?.0),
        _ => return None,
    })
}

/// Returns a text that has its length in front, and the bytes behind it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.get(2..)?.split_at_checked(usize::from(u16_at(bytes, 0)?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_ne_bytes(*two))
}

/// An operation of an encoded expression.
#[derive(Debug, Clone, Copy)]
pub struct Instruction<'a>(Step<'a>);

/// Evaluates the operations of an encoded expression, as [`Filter::eval`](crate::Filter::eval)
/// does. Allocates nothing.
#[inline]
pub fn eval<'v>(
    code: &[Instruction<'v>],
    value: &mut impl FnMut(usize) -> Option<Value<'v>>,
) -> Option<bool> {
    // Of an odd number of operations, half push a value that waits for an operator, and one more
    // does.
    match code.len() {
        0..=3 => run::<2>(code, value),
        4..=8 => run::<4>(code, value),
        _ => run_long(code, value),
    }
}

#[inline(never)]
fn run_long<'v>(
    code: &[Instruction<'v>],
    value: &mut impl FnMut(usize) -> Option<Value<'v>>,
) -> Option<bool> {
    run::<MAX_CODE_HEIGHT>(code, value)
}

#[inline]
fn run<'v, const N: usize>(
    code: &[Instruction<'v>],
    value: &mut impl FnMut(usize) -> Option<Value<'v>>,
) -> Option<bool> {
    eval::run::<N>(&mut |at| code.get(at).map(|instruction| instruction.0), value)
}

/// A name of an encoded expression.
#[derive(Debug, Clone, Copy)]
pub struct CodeName<'a> {
    is_context: bool,
    steps: u8,
    rest: &'a [u8],
}

/// A part of a [`CodeName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeStep<'a> {
    /// The member of this name.
    Member(&'a str),
    /// The element at this position, from 0.
    Element(u64),
}

impl<'a> CodeName<'a> {
    /// Returns true if the name was written as `$ctx.NAME`: only a context may have it.
    #[must_use]
    pub fn is_context(&self) -> bool {
        self.is_context
    }

    /// Returns the steps from the event to the value, without `$ctx`.
    pub fn steps(&self) -> impl Iterator<Item = CodeStep<'a>> + use<'a> {
        let mut rest = self.rest;
        (0..self.steps).map_while(move |_| step(&mut rest))
    }

    /// Returns the name if it is that of a field as a whole: one without members and elements.
    #[must_use]
    pub fn plain(&self) -> Option<&'a str> {
        match (self.steps, self.steps().next()?) {
            (1, CodeStep::Member(name)) => Some(name),
            _ => None,
        }
    }

    /// Returns none if a step is not whole.
    fn check(&self) -> Option<()> {
        (self.steps > 0 && self.steps().count() == usize::from(self.steps)).then_some(())
    }
}

/// Takes a step from the bytes.
fn step<'a>(bytes: &mut &'a [u8]) -> Option<CodeStep<'a>> {
    let (kind, after) = bytes.split_first()?;
    match kind {
        0 => {
            let (member, rest) = text(after)?;
            *bytes = rest;
            std::str::from_utf8(member).ok().map(CodeStep::Member)
        }
        1 => {
            let (index, rest) = after.split_first_chunk()?;
            *bytes = rest;
            Some(CodeStep::Element(u64::from_ne_bytes(*index)))
        }
        _ => None,
    }
}

impl Filter {
    /// Returns the compiled expression as bytes for [`Code::new`](crate::Code::new); none if it has
    /// more than [`MAX_CODE`](crate::MAX_CODE) bytes or is nested too deeply.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        encode(self)
    }
}
