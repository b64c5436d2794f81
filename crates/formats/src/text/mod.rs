//! Events as lines of text.
//!
//! Nothing that an event says can steer a terminal: control characters, bytes that are not UTF-8 and characters that
//! reorder a line are escaped.

mod babeltrace;
mod columns;
pub mod ctf;
pub(crate) mod escape;
pub(crate) mod number;
pub(crate) mod page;
mod raw;
pub(crate) mod time;

use crate::events::{Outcome, run};
use crate::select::Selection;
use lastwords_ctf::Result;
use lastwords_ctf::Version;
use lastwords_trace::clock::Rounding;
use lastwords_trace::merge::Progress;
use lastwords_trace::source::Source;
use std::io::Write;

pub use lastwords_ctf::names::is_unsafe;
pub use time::Zone;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// What `babeltrace2` prints of the CTF 1.8 that [`crate::ctf`] writes: times as it rounds them, names as it shows them.
    Babeltrace,
    /// The same for CTF 2 and babeltrace2 2.1: booleans are words, names are whole, several
    /// labels of a value are in braces.
    Babeltrace2,
    /// Like the kernel's `trace` file: `comm-tid [cpu] level secs.usecs: provider:name: a=1 b=2`.
    Ftrace,
    /// For people: time, level, CPU, thread, name, and the message of a marker or the fields.
    Fields,
    /// For debuggers: ticks, place, ids, and the bytes in hexadecimal.
    Raw,
}

/// Writes the selected events of `sources`, merged by time, to `out`.
///
/// # Errors
/// `out` cannot be written.
pub fn write(
    sources: &[&dyn Source],
    style: Style,
    selection: &Selection,
    zone: &Zone,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome> {
    match style {
        Style::Babeltrace | Style::Babeltrace2 => {
            let version = if style == Style::Babeltrace { Version::V1_8 } else { Version::V2 };
            let mut line = babeltrace::Lines::new(sources, version, zone);
            run(sources, selection, Rounding::Double, &mut line, out, progress)
        }
        Style::Ftrace | Style::Fields => {
            let mut line = columns::Lines::new(sources, style == Style::Ftrace, zone);
            run(sources, selection, Rounding::Floor, &mut line, out, progress)
        }
        Style::Raw => run(sources, selection, Rounding::Floor, &mut raw::Lines::new(sources), out, progress),
    }
}
