//! The kernel's print formats: `"prev_comm=%s prev_pid=%d", REC->prev_comm, REC->prev_pid`.
//!
//! [`compile`] makes a [`Program`] of an event's format once; [`Program::print`] runs it over a
//! payload. The language is the part of C that `TP_printk` leaves in a `format` file: operators and
//! casts with the machine's integer types, the fields of `REC`, and the `__get_*` and `__print_*`
//! helpers; its directives are those of the kernel's `printf` (`lib/vsprintf.c`).

mod arith;
mod array;
mod binary;
pub(crate) mod bytes;
mod compile;
mod directive;
mod drivers;
mod eval;
mod helpers;
mod lex;
mod names;
mod number;
mod parse;
mod plain;
mod pointer;
mod primary;
mod raw;
mod siphash;
mod statement;
mod tables;
mod tree;

pub use binary::print_binary;
pub use compile::{Program, compile};
pub use names::{Names, Show};

use crate::{Format, Tracing};
use lastwords_bytes::ByteOrder;

pub(crate) use names::AddressHasher;
pub(crate) use number::{Spec, hex, number, padded_hex, text as padded};
pub(crate) use pointer::joined;

/// Properties of a machine that formats depend on.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Byte order.
    pub order: ByteOrder,
    /// Bytes of a `long`.
    pub word_size: u8,
    /// Bytes of a page.
    pub page_size: u32,
    /// Timer ticks per second (`HZ`); none if it is not known.
    pub ticks: Option<u32>,
}

impl Machine {
    /// Returns the properties of the traced machine.
    #[must_use]
    pub fn from_tracing(tracing: &Tracing) -> Self {
        Self {
            order: tracing.byte_order,
            word_size: tracing.word_size,
            page_size: tracing.page_size,
            ticks: tracing.formats.values().find_map(ticks),
        }
    }
}

/// Returns the timer ticks per second, which the kernel has in the print format of some events as a
/// number: `(jiffies - REC->dirtied_when) / 250` (`include/trace/events/writeback.h`, Linux 3.1 and
/// newer).
fn ticks(format: &Format) -> Option<u32> {
    if !format.name.starts_with("writeback_single_inode") {
        return None;
    }
    let (_, rest) = format.print_format.split_once("(jiffies - REC->dirtied_when) / ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|ticks| *ticks > 0)
}

/// A part of a print format that only the kernel can evaluate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unknown {
    /// A name whose value is not known.
    Name(String),
    /// A function.
    Function(String),
    /// Anything else, in words.
    Other(String),
}

/// The reason why a part of a payload could not be printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The value is known to the kernel alone.
    Unknown,
    /// A field of the format lies outside the payload.
    Outside,
    /// A division by zero.
    Division,
    /// The format dereferences a pointer to the kernel's memory.
    KernelPointer,
    /// The operation does not take a value of this kind.
    Kind,
    /// The text is longer than a line of the kernel can be.
    TooLong,
}

/// The input of a program: the event and the machine.
pub struct Env<'a, 'n> {
    /// The event, `common_type` first.
    pub payload: &'a [u8],
    /// The machine.
    pub machine: Machine,
    /// Buffer for intermediate text. It is empty between events.
    pub scratch: &'n mut Vec<u8>,
    /// Names for addresses.
    pub names: &'n mut Names,
    /// A number was shown that may have a name: the table of names has a row whose value is not
    /// known.
    unnamed: bool,
}

impl<'a, 'n> Env<'a, 'n> {
    /// Makes the input of a program. `scratch` is empty.
    pub fn new(
        payload: &'a [u8],
        machine: Machine,
        scratch: &'n mut Vec<u8>,
        names: &'n mut Names,
    ) -> Self {
        Self { payload, machine, scratch, names, unnamed: false }
    }
}
