//! Prints the report of `inspect` on sessions of LTTng for people.

use super::indented;
use crate::table::{Table, plain};
use lastwords_open::inspect::lttng::Report;
use std::io::{self, Write};

/// Writes the report for people.
pub(super) fn write(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let state = report.active.map_or("", |active| if active { ", recording" } else { ", stopped" });
    let created = if report.created.is_empty() { String::new() } else { format!(", made {}", plain(&report.created)) };
    let Report { domain, metadata_bytes, ctf, uuid, .. } = report;
    writeln!(out, "\n  LTTng session {} ({domain}){state}{created}", plain(&report.name))?;
    writeln!(out, "    trace {uuid}, metadata of CTF {ctf}: {metadata_bytes} bytes")?;
    let columns = ["stream", "mode", "sub-buffers", "size", "written", "read", "packets", "lost", "first", "last"];
    let mut table = Table::new(columns).indent(4);
    for stream in &report.streams {
        let lost = stream.lost_full.saturating_add(stream.lost_wrap).saturating_add(stream.lost_big);
        let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let numbers = [stream.sub_buffers, stream.sub_buffer_size, stream.produced, stream.consumed];
        let begin = [plain(&stream.name), stream.mode.to_owned()].into_iter();
        let counts = numbers.into_iter().chain([stream.packets as u64, lost]).map(|n| n.to_string());
        let ends = [number(stream.sequences.map(|s| s.0)), number(stream.sequences.map(|s| s.1))];
        table.row(begin.chain(counts).chain(ends));
    }
    write!(out, "{}", table.render())?;
    indented(&report.evidence, out)
}
