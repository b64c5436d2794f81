//! Filter expressions on events, as users of ftrace (`events/*/filter`) and of LTTng (`lttng
//! enable-event --filter`) know them.
//!
//! ```
//! use lastwords_filter::{Filter, Value};
//!
//! let filter = Filter::parse(r#"prev_comm ~ "kworker/*" && (flags & 4) != 0"#)?;
//! let names: Vec<String> = filter.names().iter().map(ToString::to_string).collect();
//! assert_eq!(names, ["prev_comm", "flags"]);
//! let values = [Value::Text(b"kworker/0:1"), Value::Unsigned(6)];
//! assert_eq!(filter.eval(&mut |name| values.get(name).copied()), Some(true));
//! # Ok::<(), lastwords_filter::Error>(())
//! ```
//!
//! # Grammar
//!
//! Operators, from the weakest to the strongest. All that take two operands associate to the left.
//!
//! | operators | meaning |
//! | --- | --- |
//! | `\|\|` | or |
//! | `&&` | and |
//! | `\|`, then `^`, then `&` | bits of integers |
//! | `==` `!=` `~` `!~` | equal, matches a glob (`*`, `?`, `[a-z]`) |
//! | `<` `<=` `>` `>=` | order |
//! | `<<` `>>` | shifts, by 0 to 63 bits; what leaves the 64 bits is dropped |
//! | `!` `~` `-` | not, complement, negation |
//!
//! The precedence is C's, so that `&` binds more weakly than `==`: `flags & 4 == 4` means `flags &
//! (4 == 4)`. Write `(flags & 4) == 4`, or `flags & 4`, which is true if the bit is set. A
//! comparison of two constants beside a bit operator is refused for that reason, and so are chains
//! (`1 < a < 5`).
//!
//! Operands are numbers (`10`, `0x1f`, `017`, `0b101`, `1.5`, `'a'`), text (`"a\tb\x01"`), `true`
//! and `false`, and names: `a`, `a.b`, `a[3].b`, `$ctx.NAME`. A condition that is only a value
//! holds if the value is not zero. Compared with `level`, the words `error`, `warn`, `info`,
//! `debug` and `trace` are severities: `level <= warn` holds for warnings and errors.
//!
//! # Values
//!
//! A value that an event does not have is unknown. Unknown is neither true nor false: `unknown &&
//! false` is false, `unknown || true` is true, and all else that unknown takes part in is unknown.
//! The same goes for what has no meaning, such as comparing text with a number. A caller takes
//! events for which the filter is true, so that neither `a == 1` nor `!(a == 1)` selects an event
//! without `a`.
//!
//! Integers have no width: −1 is less than every unsigned number, and is equal to none of them.
//! Numbers and floats compare exactly. An enumeration compares with numbers by its number and with
//! text by its label. `==` compares all bytes of text; only `~` and `!~` take a glob.
//!
//! # Limits
//!
//! An expression has at most [`MAX_LENGTH`] bytes and [`MAX_NESTING`] parentheses in each other. It
//! is compiled once; evaluating it allocates nothing and does not recurse.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects,
        clippy::as_conversions
    )
)]

mod built_in;
mod code;
mod described;
mod error;
mod eval;
mod lex;
mod name;
mod parse;
mod print;
mod program;
mod severity;
mod value;

pub use built_in::BuiltIn;
pub use code::{Code, CodeName, CodeStep, Instruction, MAX_CODE, MAX_CODE_HEIGHT, eval};
pub use described::Described;
pub use error::Error;
pub use name::{Name, Step};
pub use program::Filter;
pub use severity::LEVEL_WORDS;
pub use value::Value;

/// Most bytes of an expression.
pub const MAX_LENGTH: usize = 4096;
/// Most parentheses in each other.
pub const MAX_NESTING: usize = 64;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
