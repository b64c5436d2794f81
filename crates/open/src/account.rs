//! The account of a trace: what was found in it and recovered, and every loss with its place, size and cause.

use crate::{Ftrace, RecoveredSession, Trace, inspect};
use lastwords_ctf::{Totals, Version, read};
use lastwords_formats::evidence::{Account, StreamName};
use lastwords_trace::evidence::{Evidence, SubBuffer, Verdict};
use lastwords_trace::ftrace::{Ring, counters};
use lastwords_walk::lttng;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Trace {
    /// The account of the trace, as far as it is known before all events are read. What concerns the machine of a trace array is part
    /// of it.
    #[must_use]
    pub fn account(&self) -> Account<'_> {
        self.account_of(true)
    }

    fn account_of(&self, with_machine: bool) -> Account<'_> {
        if let Some(RecoveredSession { session, .. }) = self.session() {
            return Account::of(&**session);
        }
        if let Some(lttng) = self.lttng() {
            return of_lttng(&lttng.session);
        }
        if let Some(trace) = self.ctf() {
            return of_ctf(trace);
        }
        let ftrace = self.ftrace();
        let Some((ring, Ftrace { machine, .. })) = ftrace.and_then(|ftrace| Some((ftrace.ring?, ftrace))) else {
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

/// The accounts of several traces; what concerns a machine is part of the account of its first array. Of several machines the names of
/// arrays say which one they are of.
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

/// The accounts of several traces after they were read together. `totals` is what reading told of all of them; `cpus`: the CPUs whose
/// streams were read, all where it is empty.
#[must_use]
pub fn accounts_after_reading<'t>(traces: &'t [Trace], totals: &Totals, cpus: &[u32]) -> Vec<Account<'t>> {
    let mut accounts = accounts(traces);
    if totals.faults == 0 && !totals.has_losses() {
        return accounts;
    }
    if let [account] = accounts.as_mut_slice() {
        account.add_reading(totals);
        return accounts;
    }
    // Which of them it is shows when each is read by itself.
    let wants_cpu = |cpu: Option<u32>| cpus.is_empty() || cpu.is_some_and(|cpu| cpus.contains(&cpu));
    let mut known = 0u64;
    for (trace, account) in traces.iter().zip(&mut accounts) {
        let Some(Ok(packets)) = trace.packets(Version::V2) else { continue };
        let reading = inspect::ctf::reading(&packets, &wants_cpu);
        known = known.saturating_add(reading.faults);
        account.add_reading(&reading);
    }
    // The others are sub-buffers of ftrace.
    let ftrace = traces.iter().position(|trace| trace.ftrace().is_some());
    if let Some(account) = ftrace.and_then(|at| accounts.get_mut(at)) {
        account.add_reading(&Totals { faults: totals.faults.saturating_sub(known), ..Totals::default() });
    }
    accounts
}

fn named(name: &str, evidence: Evidence) -> Account<'static> {
    let (name, evidence) = (name.to_owned(), Cow::Owned(evidence));
    Account { name, uuid: [0; 16], streams: Vec::new(), evidence, spans: Vec::new(), faults: 0 }
}

/// The account of a ring of ftrace: its evidence, and what its counters say.
pub(crate) fn of_ring(name: &str, ring: &dyn Ring, mut evidence: Evidence) -> Account<'static> {
    evidence.gaps.extend(counters(ring));
    let stream = |cpu: u32| StreamName { cpu: Some(cpu), ..StreamName::default() };
    Account { streams: ring.cpus().iter().map(|cpu| stream(cpu.cpu)).collect(), ..named(name, evidence) }
}

fn of_lttng(session: &lttng::Session) -> Account<'_> {
    let channel = |stream: &lttng::Stream| match stream.channel_name.as_str() {
        "" => stream.channel.to_string(),
        name => name.to_owned(),
    };
    let name = |(index, stream)| StreamName { channel: channel(stream), instance: index as u64, cpu: stream.cpu };
    Account {
        name: session.name.clone(),
        uuid: session.uuid,
        streams: session.streams.iter().enumerate().map(name).collect(),
        evidence: Cow::Borrowed(&session.evidence),
        spans: Vec::new(),
        faults: 0,
    }
}

/// The packets of a trace in a folder of CTF. What these say is lost, and what of them cannot be read, shows when they are read:
/// [`Account::add_reading`].
fn of_ctf(trace: &read::Trace) -> Account<'static> {
    let mut account = named(&trace.path.display().to_string(), Evidence::default());
    let mut rows = Vec::new();
    for (index, stream) in trace.streams.iter().enumerate() {
        let class = trace.class().streams.get(stream.class).map_or(0, |class| class.id);
        let (channel, cpu) = (class.to_string(), read::cpu(trace, stream));
        account.streams.push(StreamName { channel, instance: stream.id.unwrap_or(index as u64), cpu });
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
