//! Prints the account of each trace on stderr: what was found and what was lost. The form is the
//! same for all kinds of traces. For a session, the recorded end is printed too.

use crate::metrics;
use crate::table::{plain, quoted};
use crate::traces::Traces;
use crate::{ended, say};
use anyhow::bail;
use lastwords_ctf::{Totals, read};
use lastwords_open::why::Verdict;
use lastwords_open::{Account, Losses, Lttng, Trace, write_verdict};
use lastwords_render::events::Note;
use lastwords_trace::metrics::Metrics;
use std::io::{self, Write};

/// The number of lines of each kind that is printed for people. `inspect --json` has all of them.
pub(crate) const LIMIT: usize = 20;

/// Prints the accounts of traces on stderr, and returns their losses. With `quiet`, it prints only
/// what cannot be read.
pub(crate) fn print(traces: &Traces, accounts: &[Account<'_>], quiet: bool) -> Losses {
    for (trace, account) in traces.all.iter().zip(accounts) {
        if !quiet {
            let mut text = Vec::new();
            match write_with_end(traces, trace, account, &mut text) {
                Ok(()) => say::remark(text),
                Err(error) => say::error(error),
            }
        }
        let (name, packets) = (plain(&account.name), trace.lttng().map_or(0, Lttng::packets));
        if account.is_undescribed() {
            let path = plain(&trace.origin.path.to_string_lossy());
            say::error(format_args!(
                "{path}: session {name}: {packets} packets that nothing can read: the description of their events is missing"
            ));
        } else if packets == 0
            && trace.lttng().is_some_and(|lttng| lttng.session.metadata.text.is_empty())
        {
            say::note(format_args!("session {name}: nothing was ever recorded"));
        }
    }
    Losses::from_accounts(accounts)
}

/// Returns the account of a part of a kernel's memory that is no trace.
pub(crate) fn of_memory(
    dump: &lastwords_open::DumpedKernel,
    part: &str,
    evidence: lastwords_trace::evidence::Evidence,
) -> Account<'static> {
    Account {
        name: format!("{}: {part}", dump.path.display()),
        evidence: std::borrow::Cow::Owned(evidence),
        ..Account::default()
    }
}

/// Checks that at least one trace can be read.
///
/// # Errors
/// All traces are sessions of LTTng without a description of their events. Each of them is reported
/// on stderr.
pub(crate) fn check_readable(traces: &Traces) -> anyhow::Result<()> {
    let is_unreadable = |trace: &Trace| trace.lttng().is_some_and(Lttng::is_unreadable);
    // Without traces there is nothing to describe; why there are none was said already.
    if traces.all.is_empty() || !traces.all.iter().all(is_unreadable) {
        return Ok(());
    }
    print(traces, &traces.accounts(), true);
    let paths: Vec<_> =
        traces.origins.iter().map(|origin| plain(&origin.path.to_string_lossy())).collect();
    bail!(
        "{}: no session can be read: a description of its events is missing; --metadata gives it",
        paths.join(", ")
    );
}

/// Writes the account of a trace, how a session ended, and what it counted.
pub(crate) fn write_with_end(
    traces: &Traces,
    trace: &Trace,
    account: &Account<'_>,
    text: &mut Vec<u8>,
) -> io::Result<()> {
    let Some(found) = trace.session() else { return account.write(LIMIT, text) };
    if let Some(ended) = trace.ended() {
        writeln!(text, "{}: {}", plain(&account.name), ended::line(&ended))?;
    }
    if let Some(why) = &found.unknown_end {
        writeln!(text, "{}: end unknown: {}", plain(&account.name), plain(why))?;
    }
    account.write(LIMIT, text)?;
    let path = trace.origin.path.display().to_string();
    write_counted(&account.name, &path, &found.session.info().metrics, text)?;
    let Some(verdict) = traces.named_verdict(trace) else { return Ok(()) };
    write_dated_verdict(&verdict, trace.unrelated_clock().is_none(), text)
}

/// Writes what counts of the session at `path` there are, and the first of each kind.
fn write_counted(name: &str, path: &str, metrics: &Metrics, text: &mut Vec<u8>) -> io::Result<()> {
    let Some(what) = metrics::words(metrics) else { return Ok(()) };
    writeln!(text, "{}: {what}: lastwords counters {}", plain(name), quoted(path))?;
    let first = Metrics {
        counters: metrics.counters.iter().take(LIMIT).cloned().collect(),
        histograms: metrics.histograms.iter().take(LIMIT).cloned().collect(),
        as_of: metrics.as_of,
        ..Metrics::default()
    };
    text.extend(metrics::text(&first, 2).bytes());
    let of = |metrics: &Metrics| metrics.counters.len().saturating_add(metrics.histograms.len());
    match of(metrics).saturating_sub(of(&first)) {
        0 => Ok(()),
        more => writeln!(text, "  and {more} more"),
    }
}

/// Writes a verdict for people. Crashes have a time of day if times are related to real time
/// (`is_dated`).
pub(crate) fn write_dated_verdict(
    verdict: &Verdict,
    is_dated: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let of_clock = |time: i64| format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
    let time: &dyn Fn(i64) -> String = if is_dated { &ended::precise_time } else { &of_clock };
    write_verdict(verdict, time, out)
}

/// Remarks, losses and faults that reading has reported besides events.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The number of parts of files that cannot be read. Each of them was reported on stderr.
    pub(crate) unreadable: u64,
    /// Sub-buffers in memory that could not be decoded to their end, as messages.
    undecoded: Vec<String>,
    more: u64,
    /// Losses and faults of single traces. The number is the position of the trace among those
    /// that were read.
    pub(crate) of_traces: Vec<(usize, Totals)>,
}

impl Notes {
    /// Adds a note. A loss that the packets of a file report, and a part of a file that cannot be
    /// read, is printed at once.
    pub(crate) fn add(&mut self, note: Note) {
        match note {
            Note::Loss(_, text) => say::warning(plain(&text)),
            Note::Remark(text) => say::note(plain(&text)),
            Note::Read(trace, totals) => self.of_traces.push((trace, totals)),
            Note::Fault(fault @ read::Error::SubBuffer { .. }) if self.undecoded.len() < LIMIT => {
                self.undecoded.push(fault.to_string());
            }
            Note::Fault(read::Error::SubBuffer { .. }) => self.more += 1,
            Note::Fault(fault) => {
                self.unreadable += 1;
                say::error(plain(&fault.to_string()));
            }
        }
    }

    /// Replaces the positions in [`Notes::of_traces`] by positions among all traces. `read` has the
    /// latter for each trace that was read.
    pub(crate) fn renumber(&mut self, read: &[Option<usize>]) {
        let position = |trace: usize| read.get(trace).copied().flatten();
        let placed =
            self.of_traces.drain(..).filter_map(|(trace, totals)| Some((position(trace)?, totals)));
        self.of_traces = placed.collect();
    }

    /// Prints which sub-buffers could not be decoded to their end.
    pub(crate) fn print_undecoded(&self) {
        self.undecoded
            .iter()
            .for_each(|fault| say::note(format_args!("not decoded: {}", plain(fault))));
        if self.more > 0 {
            say::note(format_args!("{} more packets are not decoded to their end", self.more));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, write_counted};
    use lastwords_trace::metrics::{Counter, Metrics};

    #[test]
    fn the_first_counters_are_written_and_the_rest_is_counted() {
        let named = |number: usize| Counter {
            name: format!("c{number:02}"),
            labels: Vec::new(),
            value: 7000 + number as u64,
        };
        let text = |counters: usize| {
            let counters = (0..counters).map(named).collect();
            let mut text = Vec::new();
            write_counted("app", "/a b", &Metrics { counters, ..Metrics::default() }, &mut text)
                .unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(text(0), "");
        let all = text(LIMIT);
        assert!(all.starts_with("app: 20 counters: lastwords counters '/a b'\n"), "{all}");
        assert!(all.contains("c19") && all.contains(" 7019\n") && !all.contains("more"), "{all}");
        let first = text(LIMIT + 3);
        assert!(first.ends_with("  and 3 more\n"), "{first}");
        assert!(!first.contains("c20"), "{first}");
    }
}
