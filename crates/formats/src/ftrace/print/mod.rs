//! The kernel's print formats: `"prev_comm=%s prev_pid=%d", REC->prev_comm, REC->prev_pid`.
//!
//! [`compile`] makes a [`Program`] of an event's format once; [`Program::print`] runs it over a payload. The language is
//! the part of C that `TP_printk` leaves in a `format` file: operators and casts with the machine's integer types, the
//! fields of `REC`, and the `__get_*` and `__print_*` helpers; its directives are those of the kernel's `printf`
//! (`lib/vsprintf.c`).

mod arith;
mod binary;
mod bytes;
mod compile;
mod directive;
mod eval;
mod helpers;
mod lex;
mod names;
mod number;
mod parse;
mod plain;
mod pointer;
mod primary;
mod siphash;
mod tables;
mod tree;

pub use binary::print_binary;
pub use compile::{Program, compile};
pub use names::{Names, Show};

use lastwords_bytes::ByteOrder;
use lastwords_trace::ftrace::Tracing;

pub(crate) use names::AddressHasher;
pub(crate) use number::{Spec, hex, number, text as padded};
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
}

impl Machine {
    /// Returns the properties of the traced machine.
    #[must_use]
    pub fn of(tracing: &Tracing) -> Self {
        Self { order: tracing.byte_order, word_size: tracing.word_size, page_size: tracing.page_size }
    }
}

/// The reason why a payload could not be printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
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
}
