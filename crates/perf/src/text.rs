//! Writes buffers and the numbers of their records as text.

use crate::{BufferReport, Event, Perf};
use std::fmt;
use std::io::{self, Write};

/// Words for the fields of samples, in the order of their bits (`enum perf_event_sample_format`).
const FIELDS: [&str; 25] = [
    "ip",
    "tid",
    "time",
    "addr",
    "read",
    "callchain",
    "id",
    "cpu",
    "period",
    "stream-id",
    "raw",
    "branch-stack",
    "regs-user",
    "stack-user",
    "weight",
    "data-src",
    "identifier",
    "transaction",
    "regs-intr",
    "phys-addr",
    "aux",
    "cgroup",
    "data-page-size",
    "code-page-size",
    "weight-struct",
];

impl Perf {
    /// Writes all buffers as text. `plain` escapes names, which are of others.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write(&mut self, plain: &dyn Fn(&str) -> String, out: &mut dyn Write) -> io::Result<()> {
        for buffer in self.report().buffers {
            writeln!(out, "{}", plain(&buffer.to_string()))?;
            for event in &buffer.buffer.events {
                writeln!(out, "  {}", plain(&event.to_string()))?;
            }
            let words: Vec<String> =
                buffer.records.iter().map(|(word, count)| format!("{count} {word}")).collect();
            let words = if words.is_empty() { "none".to_owned() } else { words.join(", ") };
            writeln!(out, "  records: {words}")?;
        }
        Ok(())
    }
}

/// One line. The names in it are those of others, and are not escaped.
impl fmt::Display for BufferReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { buffer, unread, .. } = self;
        let mode = match (buffer.is_overwritten, buffer.is_backward) {
            (true, true) => "overwrite mode, written backward",
            (true, false) => "overwrite mode",
            (false, _) => "discard mode",
        };
        let left = if buffer.is_overwritten { "bytes in it" } else { "bytes unread" };
        write!(f, "{}: {} bytes, {mode}, {unread} {left}", buffer.words(), buffer.size)?;
        if buffer.is_paused {
            write!(f, ", paused")?;
        }
        if buffer.lost > 0 {
            write!(f, ", {} lost", buffer.lost)?;
        }
        Ok(())
    }
}

/// One line. The names in it are those of others, and are not escaped.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, kind, config, sample_type, .. } = self;
        write!(f, "event {id}: {name}, type {kind}, config {config:#x}")?;
        let is_set =
            |bit: usize| u32::try_from(bit).is_ok_and(|bit| sample_type.wrapping_shr(bit) & 1 != 0);
        let fields = FIELDS.iter().enumerate().filter(|(bit, _)| is_set(*bit));
        let fields: Vec<&str> = fields.map(|(_, word)| *word).collect();
        if !fields.is_empty() {
            write!(f, ", samples of {}", fields.join(" "))?;
        }
        match (self.period, self.is_frequency) {
            (0, _) => {}
            (period, true) => write!(f, ", {period} a second")?,
            (period, false) => write!(f, ", one in {period}")?,
        }
        match self.lost_samples {
            None | Some(0) => Ok(()),
            Some(lost) => write!(f, ", {lost} samples lost"),
        }
    }
}
