//! Writes events as lines of text.
//!
//! No event can control the terminal: control characters, bytes that are not UTF-8 and characters
//! that reorder a line are escaped.

mod babeltrace;
mod batch;
mod chains;
pub mod chosen;
mod columns;
pub(crate) mod escape;
mod line;
mod message;
mod one_value;
mod pipeline;
mod plan;
mod print;
mod raw;
pub(crate) mod time;
mod value;
mod value_format;

use crate::Totals;
use crate::choose::Chosen;
use crate::events::{Note, Out};
use crate::select::Selection;
use lastwords_ctf::read::{Trace, Watch, unwatched};
use lastwords_trace::clock::Rounding;
use std::io::Write;

pub use lastwords_ctf::names::is_unsafe;
pub(crate) use message::{format as format_of, message as message_of};
pub use time::{TimeOfDay, Zone};

/// The layout of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The default output of babeltrace2 2.1.1. Times are rounded and names are shown as
    /// babeltrace2 does.
    Babeltrace,
    /// The layout of the kernel's `trace` file: `comm-tid [cpu] level secs.usecs: provider:name:
    /// a=1 b=2`.
    Ftrace,
    /// A layout for people: time, level, CPU, thread, the spans around the event, name, and the
    /// message or the fields. Spans are shown as `tracing_subscriber::fmt` shows them,
    /// `order{id=202}:charge{order=202}:`; `?` is what is not recovered.
    Fields,
    /// The same with the ids of spans, all fields, and all addresses of backtraces.
    FieldsWithIds,
    /// A layout for debugging a trace: ticks, position, ids, and the bytes in hexadecimal.
    Raw,
}

impl Style {
    fn is_babeltrace(self) -> bool {
        self == Self::Babeltrace
    }

    /// Returns how times are computed from clock readings.
    fn rounding(self) -> Rounding {
        if self.is_babeltrace() { Rounding::Double } else { Rounding::Floor }
    }
}

/// Writes the selected events of `traces`, merged by time, to `out`. Losses and errors of reading
/// go to `notes`. `watch` receives the number of bytes that were read. Large traces are formatted
/// on as many threads as there are CPUs.
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
    print(traces, style, selection, zone, Out::File(out), watch, notes)
}

/// Calls `put` with the line of each selected event and with the event's time in nanoseconds since
/// the epoch, until `put` returns false. This function is slower than [`write()`]; it is for
/// callers that merge the lines with others.
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
    print(traces, style, selection, zone, Out::Lines(put), &unwatched, notes)
}

fn print<'o>(
    traces: &[Trace],
    style: Style,
    selection: &Selection,
    zone: &Zone,
    out: Out<'o>,
    watch: Watch<'_>,
    notes: &'o mut dyn FnMut(Note),
) -> crate::Result<Totals> {
    let chosen = Chosen::last(traces, selection, style.rounding(), watch);
    match style {
        Style::Raw => raw::write(chosen, out, notes),
        _ => print::print(chosen, style, zone, out, notes),
    }
}
