//! Prints the report of `inspect` on folders of CTF for people.

use crate::account::LIMIT;
use crate::table::plain;
use lastwords_open::inspect::ctf::Report;
use std::io::{self, Write};

/// Writes the report for people.
pub(super) fn write(trace: &Report<'_>, text: &mut dyn Write) -> io::Result<()> {
    writeln!(text, "{}: CTF {}", plain(&trace.path.display().to_string()), trace.version)?;
    for (key, value) in &trace.env {
        writeln!(text, "  {}: {}", plain(key), plain(&serde_json::to_string(value)?))?;
    }
    for clock in &trace.clocks {
        writeln!(text, "  clock {}", plain(clock))?;
    }
    for stream in &trace.streams {
        let file = stream.files.first().and_then(|file| file.file_name()).unwrap_or_default();
        write!(
            text,
            "  {}: class {}, {} packets, {} events",
            plain(&file.to_string_lossy()),
            stream.class,
            stream.packets,
            stream.events
        )?;
        if stream.discarded_events > 0 || stream.discarded_packets > 0 {
            write!(text, ", discarded {} events, {} packets", stream.discarded_events, stream.discarded_packets)?;
        }
        if let (Some(begin), Some(end)) = (stream.begin, stream.end) {
            let second = |ns: i64| format!("{}.{:09}", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
            write!(text, ", {} to {}", second(begin), second(end))?;
        }
        writeln!(text)?;
        for fault in &stream.faults {
            writeln!(text, "    fault: {}", plain(fault))?;
        }
    }
    trace.evidence.write(LIMIT, text)
}
