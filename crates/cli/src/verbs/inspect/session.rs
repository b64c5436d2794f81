//! Prints the report of `inspect` on sessions of lastwords for people.

use super::{activity, losses};
use crate::account::write_dated_verdict;
use crate::ended;
use crate::metrics;
use crate::paint::bold;
use crate::progress::human_bytes;
use crate::table::{Table, plain};
use lastwords_folders::SnapshotState;
use lastwords_open::Holds;
use lastwords_open::inspect::session::{Lost, Report};
use std::io::{self, Write};

/// Writes one session.
pub(super) fn write(report: &Report<'_>, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    head(report, verbose, out)?;
    activity::write_head(report.activity.as_ref(), "  ", out)?;
    losses::write(&report.evidence, None, verbose, "  ", out)?;
    let is_dated = report.activity.as_ref().is_none_or(|activity| activity.since_epoch);
    write_dated_verdict(&report.verdict, is_dated, out)?;
    losses::write_faults(&report.faults.iter().collect::<Vec<_>>(), verbose, "  ", out)?;
    if let Some(activity) = report.activity.as_ref().filter(|activity| !activity.events.is_empty())
    {
        writeln!(out, "{}", bold("events"))?;
        activity::write_events(activity, verbose, 2, out)?;
    }
    if !report.metrics.is_empty() {
        writeln!(out, "{}", bold("counters"))?;
        out.write_all(metrics::text(report.metrics, 2).as_bytes())?;
    }
    channels(report, out)?;
    if verbose { streams(report, out) } else { Ok(()) }
}

fn head(data: &Report<'_>, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let state = match (&data.ended, &data.unknown_end, data.finished, data.recording) {
        (Some(ended), ..) => ended::line(&ended.0),
        (None, Some(why), ..) => format!("end unknown: {}", plain(why)),
        (None, None, true, _) => "ended in good order".to_owned(),
        (None, None, false, true) => "recording when it was last seen".to_owned(),
        (None, None, false, false) => "stopped".to_owned(),
    };
    writeln!(out, "{} {} ({})", bold("session"), bold(plain(&data.name)), state)?;
    writeln!(out, "  from       {} ({})", plain(&data.from.to_string_lossy()), data.kind)?;
    writeln!(
        out,
        "  program    {}, process {} of user {} on {}",
        plain(&data.program),
        data.creator,
        data.uid,
        plain(&data.hostname)
    )?;
    if verbose {
        internals(data, out)?;
    } else if let Some(note) = data.back_end_note.as_ref().filter(|_| data.back_end != "shm") {
        writeln!(out, "  memory     {}", plain(note))?;
    }
    if verbose || data.snapshot != SnapshotState::Off {
        writeln!(out, "  snapshot   {}, {} taken", data.snapshot.word(), data.snapshots_taken)?;
    }
    let pids: Vec<String> = data.processes.iter().map(|p| p.pid.to_string()).collect();
    writeln!(
        out,
        "  processes  {}",
        if pids.is_empty() { "none that did not leave".to_owned() } else { pids.join(", ") }
    )?;
    if let Some(core) = &data.process_core {
        let number = |n: Option<i32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let address =
            core.address.as_deref().map_or_else(String::new, |a| format!(", address {a}"));
        writeln!(
            out,
            "  core       of {} (process {}), {} threads, signal {}{address}",
            plain(&core.command),
            number(core.pid),
            core.threads.len(),
            number(core.signal)
        )?;
    }
    Ok(())
}

/// Writes how the session records.
fn internals(data: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "  recorded   {} reservation, {} back-end, buffers of one {}",
        data.reservation, data.back_end, data.scope
    )?;
    if let Some(note) = &data.back_end_note {
        writeln!(out, "  memory     {}", plain(note))?;
    }
    writeln!(
        out,
        "  clock      {}, {} Hz, known to {} ns over {:.3} s",
        data.clock.word(),
        data.clock.frequency,
        data.clock.width,
        data.clock.span as f64 / 1e9
    )
}

fn channels(data: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(["CHANNEL", "MODE", "RING", "CONTEXTS", "EVENTS"]).indent(2);
    for c in &data.channels {
        let contexts = if c.contexts.is_empty() { "-".to_owned() } else { c.contexts.join(",") };
        table.row([
            c.name.clone(),
            c.mode.into(),
            format!("{} x {}", c.sub_buffers, human_bytes(c.sub_buffer_size)),
            contexts,
            c.events.values().sum::<u64>().to_string(),
        ]);
    }
    writeln!(out, "{}", bold("channels"))?;
    out.write_all(table.render().as_bytes())?;
    for c in &data.channels {
        if let (Some(seconds), Some(events_per_second)) = (c.holds_seconds, c.events_per_second) {
            writeln!(out, "  {} {}", plain(&c.name), Holds { seconds, events_per_second })?;
        }
    }
    Ok(())
}

fn streams(data: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut table =
        Table::new(["STREAM", "CHANNEL", "CPU", "RESERVATION", "EVENTS", "PRODUCED", "LOST"])
            .indent(2);
    let name = |id| {
        data.channels
            .iter()
            .find(|c| c.id == id)
            .map_or_else(|| format!("#{id}"), |c| c.name.clone())
    };
    for s in data.streams.iter().filter(|s| s.produced > 0 || s.events > 0 || total(&s.lost) > 0) {
        table.row([
            s.index.to_string(),
            name(s.channel),
            s.cpu.map_or_else(|| "any".to_owned(), |c| c.to_string()),
            s.reservation.into(),
            s.events.to_string(),
            human_bytes(s.produced),
            total(&s.lost).to_string(),
        ]);
    }
    writeln!(out, "{}", bold("streams"))?;
    if table.is_empty() {
        return writeln!(out, "  nothing was recorded in any");
    }
    out.write_all(table.render().as_bytes())
}

fn total(lost: &Lost) -> u64 {
    [lost.full, lost.too_big, lost.no_entry, lost.busy, lost.lock]
        .iter()
        .fold(0, |sum, n| sum.saturating_add(*n))
}
