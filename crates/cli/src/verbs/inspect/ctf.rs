//! Prints the report of `inspect` on folders of CTF for people.

use super::activity::{self, ROWS, write_more};
use super::losses;
use crate::paint::bold;
use crate::progress::human_bytes;
use crate::table::{Table, plain};
use lastwords_open::inspect::ctf::Report;
use std::io::{self, Write};

/// Writes the report for people.
pub(super) fn write(trace: &Report<'_>, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}: CTF {}", bold(plain(&trace.path.display().to_string())), trace.version)?;
    for (key, word) in [
        ("hostname", "host"),
        ("domain", "domain"),
        ("tracer_name", "tracer"),
        ("procname", "process"),
    ] {
        if let Some(value) = trace.env.get(key).filter(|_| !verbose) {
            writeln!(
                out,
                "  {word:<10} {}",
                plain(serde_json::to_string(value)?.trim_matches('"'))
            )?;
        }
    }
    for (key, value) in trace.env.iter().filter(|_| verbose) {
        writeln!(out, "  {}: {}", plain(key), plain(&serde_json::to_string(value)?))?;
    }
    for clock in trace.clocks.iter().filter(|_| verbose) {
        writeln!(out, "  clock {}", plain(clock))?;
    }
    activity::write_head(trace.activity.as_ref(), "  ", out)?;
    losses::write(&trace.evidence, None, verbose, "  ", out)?;
    if let Some(activity) = &trace.activity {
        activity::write_events(activity, verbose, 2, out)?;
    }
    let columns = ["STREAM", "CPU", "PACKETS", "SIZE", "EVENTS", "DISCARDED"];
    let mut table = Table::new(columns).indent(2);
    let shown = if verbose { trace.streams.len() } else { ROWS };
    for stream in trace.streams.iter().take(shown) {
        let file = stream.files.first().and_then(|file| file.file_name()).unwrap_or_default();
        table.row([
            file.to_string_lossy().into_owned(),
            stream.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
            stream.packets.to_string(),
            human_bytes(stream.bytes),
            stream.events.to_string(),
            stream.discarded_events.to_string(),
        ]);
    }
    write!(out, "{}", table.render())?;
    write_more(trace.streams.len(), shown, "stream", "  ", out)?;
    let faults: Vec<&String> = trace.streams.iter().flat_map(|stream| &stream.faults).collect();
    losses::write_faults(&faults, verbose, "  ", out)
}
