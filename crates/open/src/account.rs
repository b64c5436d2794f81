//! Makes the account of a trace: what was found and recovered, and every loss with its place, size
//! and cause.

use crate::{Ftrace, RecoveredSession, Trace};
use lastwords_ctf::{Totals, read};
use lastwords_ftrace::{Ring, counters};
use lastwords_lttng as lttng;
use lastwords_render::evidence::{Account, StreamName};
use lastwords_trace::evidence::{Cause, Evidence, Gap, SubBuffer, Verdict};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Trace {
    /// Returns the account of the trace as far as it is known before all events are read. For a
    /// trace array it includes the remarks and losses of the machine.
    #[must_use]
    pub fn account(&self) -> Account<'_> {
        self.account_of(true)
    }

    fn account_of(&self, with_machine: bool) -> Account<'_> {
        if let Some(RecoveredSession { session, cut, .. }) = self.session() {
            let mut account = Account::new(&**session);
            let missing = cut.as_ref().map(|why| {
                let counted = match session.info().metrics.as_of {
                    Some(_) => "; what was counted after the last copy of the counters is unknown",
                    None => "",
                };
                let path = self.origin.path.display();
                let place = format!("{path}: the stream ended early: {why}{counted}");
                Gap::new(None, Cause::Missing, place)
            });
            if let Some(missing) = missing {
                // It is the cause of others, and they may be many.
                account.evidence.to_mut().gaps.insert(0, missing);
            }
            return account;
        }
        if let Some(lttng) = self.lttng() {
            return of_lttng(&lttng.session);
        }
        if let Some(trace) = self.ctf() {
            return of_ctf(trace);
        }
        let ftrace = self.ftrace();
        let Some((ring, Ftrace { machine, .. })) =
            ftrace.and_then(|ftrace| Some((ftrace.ring?, ftrace)))
        else {
            return named(&self.name, Evidence::default());
        };
        let mut evidence = ring.evidence();
        if with_machine {
            evidence.notes.splice(0..0, machine.notes.iter().cloned());
            evidence.append(machine.tracing.evidence.clone());
        }
        of_ring(&self.name, &**ring, evidence)
    }
}

/// Returns the accounts of several traces. Remarks and losses of a machine are in the account of
/// its first array. If there are several machines, the names of arrays include the path of their
/// machine.
#[must_use]
pub fn accounts<'t>(traces: &'t [Trace]) -> Vec<Account<'t>> {
    let machine = |trace: &Trace| trace.ftrace().map(|_| Arc::as_ptr(&trace.origin));
    let machines: BTreeSet<_> = traces.iter().filter_map(machine).collect();
    let account = |(index, trace): (usize, &'t Trace)| {
        let before = traces.iter().take(index).any(|other| machine(other) == machine(trace));
        let mut account = trace.account_of(!before);
        if machines.len() > 1 && trace.ftrace().is_some() {
            account.name = format!("{}: {}", trace.origin.path.display(), account.name);
        }
        account
    };
    traces.iter().enumerate().map(account).collect()
}

/// Returns the accounts of several traces after they were read together. `totals` has the losses of
/// all of them that reading found. `each` has those of single traces, by position, as far as they
/// are known.
#[must_use]
pub fn accounts_after_reading<'t>(
    traces: &'t [Trace],
    totals: &Totals,
    each: &[(usize, Totals)],
) -> Vec<Account<'t>> {
    let mut accounts = accounts(traces);
    let mut known = Totals::default();
    for (position, reading) in each {
        if let Some(account) = accounts.get_mut(*position) {
            account.add_reading(reading);
            known.add(reading);
        }
    }
    // The remaining losses belong to the only trace, or to sub-buffers of ftrace.
    let rest = Totals {
        faults: totals.faults.saturating_sub(known.faults),
        lost_events: totals.lost_events.saturating_sub(known.lost_events),
        lost_packets: totals.lost_packets.saturating_sub(known.lost_packets),
        unread: totals.unread.saturating_sub(known.unread),
        ..Totals::default()
    };
    let at = traces.iter().position(|trace| trace.ftrace().is_some()).unwrap_or(0);
    if let Some(account) = accounts.get_mut(at) {
        account.add_reading(&rest);
    }
    accounts
}

fn named(name: &str, evidence: Evidence) -> Account<'static> {
    let (name, evidence) = (name.to_owned(), Cow::Owned(evidence));
    Account {
        name,
        uuid: [0; 16],
        streams: Vec::new(),
        evidence,
        spans: Some(Vec::new()),
        faults: 0,
    }
}

/// Returns the account of a ring of ftrace: its evidence, and the losses that its counters report.
pub(crate) fn of_ring(name: &str, ring: &dyn Ring, mut evidence: Evidence) -> Account<'static> {
    evidence.gaps.extend(counters(ring));
    let stream = |cpu: u32| StreamName { cpu: Some(cpu), ..StreamName::default() };
    Account {
        streams: ring.cpus().iter().map(|cpu| stream(cpu.cpu)).collect(),
        ..named(name, evidence)
    }
}

fn of_lttng(session: &lttng::Session) -> Account<'_> {
    let channel = |stream: &lttng::Stream| match stream.channel_name.as_str() {
        "" => stream.channel.to_string(),
        name => name.to_owned(),
    };
    let name = |(index, stream)| StreamName {
        channel: channel(stream),
        instance: index as u64,
        cpu: stream.cpu,
    };
    Account {
        name: session.name.clone(),
        uuid: session.uuid,
        streams: session.streams.iter().enumerate().map(name).collect(),
        evidence: Cow::Borrowed(&session.evidence),
        spans: Some(Vec::new()),
        faults: 0,
    }
}

/// Returns the account of a trace in a folder of CTF. Losses that its packets report, and packets
/// that cannot be read, are only known after reading: [`Account::add_reading`].
fn of_ctf(trace: &read::Trace) -> Account<'static> {
    let mut account = named(&trace.path.display().to_string(), Evidence::default());
    let mut rows = Vec::new();
    for (index, stream) in trace.streams.iter().enumerate() {
        let class = trace.class().streams.get(stream.class).map_or(0, |class| class.id);
        let (channel, cpu) = (class.to_string(), read::cpu(trace, stream));
        account.streams.push(StreamName {
            channel,
            instance: stream.id.unwrap_or(index as u64),
            cpu,
        });
        let row = |(sequence, (_, entry)): (usize, &(u32, read::Entry))| SubBuffer {
            stream: index,
            sequence: sequence as u64,
            verdict: Verdict::Committed,
            content: entry.size,
            why: String::new(),
        };
        rows.extend(stream.packets.iter().enumerate().map(row));
    }
    account.evidence.to_mut().sub_buffers = rows;
    account.faults = trace.unread;
    account
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, open};

    /// Losses that reading has found are not read again: the files no longer exist then.
    #[test]
    fn a_loss_is_told_in_the_account_of_its_trace() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
                event { name = e; fields := struct { integer { size = 8; } x; }; };";
            std::fs::write(folder.path().join(name).join("metadata"), metadata).unwrap();
            std::fs::write(folder.path().join(name).join("stream"), [1, 2, 3]).unwrap();
        }
        let opened = open(&[folder.path().to_str().unwrap()], &Options::default()).unwrap();
        drop(folder);
        let lost = Totals { lost_events: 7, faults: 1, ..Totals::default() };
        let accounts = accounts_after_reading(&opened.traces, &lost, &[(1, lost)]);
        let losses: Vec<_> = accounts
            .iter()
            .map(|account| (account.faults, account.evidence.lost_events()))
            .collect();
        assert_eq!(losses, [(0, 0), (1, 7)]);
        // It is not known which trace has lost events, but the loss is reported.
        let accounts = accounts_after_reading(&opened.traces, &lost, &[]);
        assert!(accounts.iter().any(|account| account.evidence.lost_events() == 7));
    }
}
