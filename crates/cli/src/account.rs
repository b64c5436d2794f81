//! The account of what was found and lost, on stderr: one form for all traces. What a session's recorder said of its end stands with it.

use crate::input::Traces;
use crate::table::plain;
use crate::{ended, say};
use anyhow::bail;
use lastwords_ctf::{Totals, read};
use lastwords_formats::events::Note;
use lastwords_open::{Account, Crash, EndedReport, Losses, Lttng, Trace, write_crashes};
use std::io::{self, Write};

/// Lines of each kind that a person is shown; `inspect --json` has all.
pub(crate) const LIMIT: usize = 20;

/// Prints the accounts of traces on stderr, or with `quiet` only what cannot be read; what is lost by them.
pub(crate) fn print(traces: &Traces, accounts: &[Account<'_>], quiet: bool) -> Losses {
    for (trace, account) in traces.all.iter().zip(accounts) {
        if !quiet {
            let mut text = Vec::new();
            match told(trace, account, &mut text) {
                Ok(()) => say::remark(text),
                Err(error) => say::error(error),
            }
        }
        let (name, packets) = (plain(&account.name), trace.lttng().map_or(0, Lttng::packets));
        if account.is_undescribed() {
            say::error(format_args!(
                "session {name}: {packets} packets that nothing can read: the description of their events is missing"
            ));
        } else if packets == 0 && trace.lttng().is_some_and(|lttng| lttng.session.metadata.text.is_empty()) {
            say::note(format_args!("session {name}: nothing was ever recorded"));
        }
    }
    Losses::of(accounts)
}

/// Checks that at least one trace can be read.
///
/// # Errors
/// All traces are sessions of LTTng without a description of their events. Each of them is reported on stderr.
pub(crate) fn check_readable(traces: &Traces) -> anyhow::Result<()> {
    let is_unreadable = |trace: &Trace| trace.lttng().is_some_and(Lttng::is_unreadable);
    if !traces.all.iter().all(is_unreadable) {
        return Ok(());
    }
    print(traces, &traces.accounts(), true);
    bail!("no session can be read: a description of its events is missing; --metadata gives it");
}

/// Writes the account of a trace, and how a session ended.
fn told(trace: &Trace, account: &Account<'_>, text: &mut Vec<u8>) -> io::Result<()> {
    let Some(found) = trace.session() else { return account.write(LIMIT, text) };
    if let Some(ended) = &found.ended {
        writeln!(text, "{}: {}", plain(&account.name), ended::line(&EndedReport::from(*ended)))?;
    }
    write_session(account, &found.crashes(), LIMIT, text)
}

/// Writes the account of a session for people, at most `limit` lines of each kind.
pub(crate) fn write_session(
    account: &Account<'_>,
    crashes: &[Crash],
    limit: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    account.write(limit, out)?;
    write_crashes(crashes, out)
}

/// What reading events found besides them.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Parts of files that cannot be read, which was said.
    pub(crate) unreadable: u64,
    /// Sub-buffers in memory that could not be decoded to their end.
    undecoded: Vec<String>,
    more: u64,
    /// Losses and faults of the traces at these positions among those that were read.
    pub(crate) of_traces: Vec<(usize, Totals)>,
}

impl Notes {
    /// Takes a note. A loss that the packets of a file tell of is said at once, as what cannot be read of it.
    pub(crate) fn take(&mut self, note: Note) {
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

    /// Makes the positions in [`Notes::of_traces`] those among all traces: `read` has these of the traces that were read.
    pub(crate) fn place(&mut self, read: &[Option<usize>]) {
        let position = |trace: usize| read.get(trace).copied().flatten();
        let placed = self.of_traces.drain(..).filter_map(|(trace, totals)| Some((position(trace)?, totals)));
        self.of_traces = placed.collect();
    }

    /// Says which sub-buffers could not be decoded to their end.
    pub(crate) fn tell(&self) {
        self.undecoded.iter().for_each(|fault| say::note(format_args!("not decoded: {}", plain(fault))));
        if self.more > 0 {
            say::note(format_args!("{} more packets are not decoded to their end", self.more));
        }
    }
}
