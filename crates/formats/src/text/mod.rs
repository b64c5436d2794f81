//! Events as lines of text.
//!
//! Nothing that an event says can steer a terminal: control characters, bytes that are not UTF-8 and characters that
//! reorder a line are escaped.

mod babeltrace;
mod batch;
mod columns;
pub(crate) mod escape;
mod line;
mod look;
mod message;
pub(crate) mod number;
pub(crate) mod page;
mod pipeline;
mod plan;
mod print;
mod raw;
pub(crate) mod time;
mod value;

use crate::Totals;
use crate::events::{Chosen, Note};
use crate::select::Selection;
use lastwords_ctf::read::{Trace, Watch, unwatched};
use lastwords_trace::clock::Rounding;
use pipeline::Out;
use std::io::Write;

pub use lastwords_ctf::names::is_unsafe;
pub(crate) use message::format as format_of;
pub use time::Zone;
pub(crate) use value::decoded;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// What babeltrace2 2.1.1 prints by default: times as it rounds them, names as it shows them.
    Babeltrace,
    /// Like the kernel's `trace` file: `comm-tid [cpu] level secs.usecs: provider:name: a=1 b=2`.
    Ftrace,
    /// For people: time, level, CPU, thread, name, and the message of a marker or the fields.
    Fields,
    /// For debuggers: ticks, place, ids, and the bytes in hexadecimal.
    Raw,
}

impl Style {
    fn is_babeltrace(self) -> bool {
        self == Self::Babeltrace
    }

    /// How times are computed.
    fn rounding(self) -> Rounding {
        if self.is_babeltrace() { Rounding::Double } else { Rounding::Floor }
    }
}

/// Writes the selected events of `traces`, merged by time, to `out`. What is missing and what cannot be read goes to `notes`,
/// and how many bytes were read to `watch`. Large traces are written on as many threads as there are CPUs.
///
/// # Errors
/// `out` cannot be written.
pub fn write(
    traces: &[Trace],
    style: Style,
    selection: &Selection,
    zone: &Zone,
    out: &mut dyn Write,
    watch: Watch<'_>,
    notes: &mut dyn FnMut(Note),
) -> crate::Result<Totals> {
    let chosen = Chosen::last(traces, selection, style.rounding(), watch);
    match style {
        Style::Raw => raw::write(chosen, out, notes),
        _ => print::print(chosen, style, zone, Out::File(out), notes),
    }
}

/// Gives each selected event's line to `put`, with its time in nanoseconds since the epoch, until `put` returns false. This is
/// slower than [`write()`]: it is for those who merge the lines with others.
///
/// # Errors
/// `put` returned false.
pub fn each(
    traces: &[Trace],
    style: Style,
    selection: &Selection,
    zone: &Zone,
    put: &mut dyn FnMut(i64, &[u8]) -> bool,
    notes: &mut dyn FnMut(Note),
) -> crate::Result<Totals> {
    let chosen = Chosen::last(traces, selection, style.rounding(), &unwatched);
    match style {
        Style::Raw => raw::each(chosen, put, notes),
        _ => print::print(chosen, style, zone, Out::Lines(put), notes),
    }
}
