//! Prints the report of `inspect` on sessions of LTTng for people.

use super::activity::{self, ROWS, write_more};
use super::losses;
use crate::progress::human_bytes;
use crate::table::{Table, plain};
use lastwords_open::inspect::lttng::Report;
use std::io::{self, Write};

/// Writes the report for people.
pub(super) fn write(report: &Report<'_>, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let state = report.active.map_or("", |active| if active { ", recording" } else { ", stopped" });
    let created = if report.created.is_empty() {
        String::new()
    } else {
        format!(", made {}", plain(&report.created))
    };
    let Report { domain, metadata_bytes, ctf, uuid, .. } = report;
    writeln!(out, "\n  LTTng session {} ({domain}){state}{created}", plain(&report.name))?;
    if verbose {
        writeln!(
            out,
            "    trace {uuid}, metadata of CTF {ctf}: {}",
            human_bytes(*metadata_bytes as u64)
        )?;
    }
    activity::write_head(report.activity.as_ref(), "    ", out)?;
    losses::write(&report.evidence, None, verbose, "    ", out)?;
    if let Some(activity) = &report.activity {
        activity::write_events(activity, verbose, 4, out)?;
    }
    let columns = ["STREAM", "MODE", "RING", "WRITTEN", "PACKETS", "LOST"];
    let mut table = match verbose {
        false => Table::new(columns),
        true => Table::new([
            "STREAM", "MODE", "RING", "WRITTEN", "PACKETS", "LOST", "READ", "FIRST", "LAST",
        ]),
    }
    .indent(4);
    let shown = if verbose { report.streams.len() } else { ROWS };
    for stream in report.streams.iter().take(shown) {
        let lost =
            stream.lost_full.saturating_add(stream.lost_wrap).saturating_add(stream.lost_big);
        let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let cells = [
            plain(&stream.name),
            stream.mode.to_owned(),
            format!("{} x {}", stream.sub_buffers, human_bytes(stream.sub_buffer_size)),
            human_bytes(stream.produced),
            stream.packets.to_string(),
            lost.to_string(),
        ];
        let ends = stream.sequences;
        let more =
            [human_bytes(stream.consumed), number(ends.map(|s| s.0)), number(ends.map(|s| s.1))];
        table.row(cells.into_iter().chain(more.into_iter().filter(|_| verbose)));
    }
    write!(out, "{}", table.render())?;
    write_more(report.streams.len(), shown, "stream", "    ", out)?;
    losses::write_faults(&report.faults.iter().collect::<Vec<_>>(), verbose, "    ", out)
}
