//! Panics and signals that a session's hooks and handlers recorded, printed for people.

use crate::table::plain;
use lastwords_open::Crash;
use std::io::{self, Write};

/// Frames of a backtrace that a person is shown.
const FRAMES: usize = 20;

/// Prints panics and signals for people: a line for each that the process survived; backtraces of the others, and what was the
/// cause of death last.
pub(crate) fn write(causes: &[Crash], out: &mut dyn Write) -> io::Result<()> {
    let (fatal, survived): (Vec<&Crash>, Vec<&Crash>) = causes.iter().partition(|cause| cause.is_cause_of_death);
    for cause in survived {
        let how = match cause.later_events {
            0 => "the session was ended in good order afterwards".to_owned(),
            1 => "the process went on for 1 event".to_owned(),
            events => format!("the process went on for {events} events"),
        };
        writeln!(out, "  {}; {how}", headline(cause))?;
    }
    for cause in &fatal {
        if !cause.backtrace.is_empty() {
            writeln!(out, "  backtrace of {}, innermost first:", cause.event)?;
        }
        for frame in cause.backtrace.iter().take(FRAMES) {
            match (&frame.module, &frame.offset) {
                (Some(module), Some(offset)) => writeln!(out, "    {} {}+{offset}", frame.address, plain(module))?,
                _ => writeln!(out, "    {}", frame.address)?,
            }
        }
        if let Some(more) = cause.backtrace.len().checked_sub(FRAMES).filter(|more| *more > 0) {
            writeln!(out, "    ... and {more} more; `inspect --json` lists all")?;
        }
    }
    fatal.iter().try_for_each(|cause| writeln!(out, "  cause of death: {}", headline(cause)))
}

fn headline(cause: &Crash) -> String {
    let fields: Vec<String> = cause.fields.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
    format!("{} {}", cause.event, fields.join(" "))
}
