//! The account of what was found and lost, on stderr: one form for all traces. What a session's recorder said of its end stands with it.

use crate::input::{Array, Lttng, Session, Traces};
use crate::table::plain;
use crate::verbs::list::ending_line;
use crate::{crash, say};
use lastwords_ctf::read;
use lastwords_formats::Totals;
use lastwords_formats::events::Note;
use lastwords_formats::evidence::{Account, SpanReport, StreamName};
use lastwords_trace::evidence::{Cause, Evidence, Gap, SubBuffer, Verdict};
use lastwords_trace::ftrace::Ring;
use lastwords_walk::lttng;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Lines of each kind that a person is shown; `inspect --json` has all.
pub(crate) const LIMIT: usize = 20;

/// Prints an account on stderr; whether it has losses.
pub(crate) fn print(account: &Account<'_>) -> bool {
    show(|text| account.write(LIMIT, text));
    account.has_losses()
}

/// Prints the account of a session on stderr, and how it ended; whether it has losses.
pub(crate) fn print_session(session: &Session) -> bool {
    show(|text| {
        if let Some(ended) = &session.found.ended {
            writeln!(text, "{}: {}", plain(&session.session().info().name), ending_line(ended))?;
        }
        write_session(session, LIMIT, text)
    });
    Account::of(session.source()).has_losses()
}

/// Prints the accounts of all traces that have one before they are read, or with `quiet` only what cannot be read; whether they have losses.
pub(crate) fn print_all(traces: &Traces, quiet: bool) -> bool {
    if !quiet {
        traces.sessions.iter().for_each(|session| _ = print_session(session));
        traces.lttng.iter().for_each(|lttng| _ = print(&of_lttng(lttng.session())));
        arrays(traces).for_each(|account| _ = print(&account));
    }
    traces.lttng.iter().for_each(|lttng| _ = tell_unreadable(lttng));
    has_losses(traces)
}

/// Something is lost by the account of a trace, as far as it was read, or cannot be read.
pub(crate) fn has_losses(traces: &Traces) -> bool {
    evidence(traces).any(Evidence::has_losses)
        || traces.has_unreadable()
        || arrays(traces).any(|account| account.has_losses())
}

/// How many events are known to be lost, by the accounts of traces that have one before they are read.
pub(crate) fn lost_events(traces: &Traces) -> u64 {
    let of_arrays = arrays(traces).map(|account| account.evidence.lost_events());
    evidence(traces).map(Evidence::lost_events).chain(of_arrays).fold(0, u64::saturating_add)
}

/// The evidence of sessions, LTTng's too.
fn evidence(traces: &Traces) -> impl Iterator<Item = &Evidence> {
    let sessions = traces.sessions.iter().map(|session| session.source().evidence());
    sessions.chain(traces.lttng.iter().map(|lttng| &lttng.session().evidence))
}

/// The accounts of trace arrays; what concerns a machine is in that of its first.
fn arrays(traces: &Traces) -> impl Iterator<Item = Account<'static>> {
    traces.arrays.iter().enumerate().filter_map(|(index, array)| {
        let is_of_other = |other: &Array| !std::sync::Arc::ptr_eq(&other.origin, &array.origin);
        of_array(array, traces.snapshot, traces.arrays.iter().take(index).all(is_of_other))
    })
}

fn show(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) {
    let mut text = Vec::new();
    match write(&mut text) {
        Ok(()) => say::remark(text),
        Err(error) => say::error(error),
    }
}

/// Writes the account of a session for people, at most `limit` lines of each kind.
pub(crate) fn write_session(session: &Session, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let account = Account::of(session.source());
    account.write(limit, out)?;
    spans(&account.spans, limit, out)?;
    crash::write(&crash::causes(session.session()), out)
}

/// The account of a trace array as far as its sub-buffers were read; with `is_first` what concerns the machine too.
pub(crate) fn of_array(array: &Array, snapshot: bool, is_first: bool) -> Option<Account<'static>> {
    let (machine, rings) = array.get()?;
    let ring = rings.shown(snapshot)?;
    let mut evidence = ring.evidence();
    if is_first {
        evidence.notes.splice(0..0, machine.notes.iter().cloned());
        evidence.append(machine.tracing.evidence.clone());
    }
    Some(of_ring(&array.name, &**ring, evidence))
}

/// The account of a ring of ftrace: its evidence, and what its counters say.
pub(crate) fn of_ring(name: &str, ring: &dyn Ring, mut evidence: Evidence) -> Account<'static> {
    let stream = |cpu: u32| StreamName { cpu: Some(cpu), ..StreamName::default() };
    for (index, cpu) in ring.cpus().iter().enumerate() {
        let stats = cpu.stats;
        let counts = [
            (stats.overrun, Cause::Overwritten),
            (stats.commit_overrun, Cause::Refused),
            (stats.dropped, Cause::Discarded),
        ];
        for (events, cause) in counts.into_iter().filter(|(events, _)| *events > 0) {
            let place = "by the ring's counters".to_owned();
            evidence.gaps.push(Gap { stream: Some(index), place, cause, events: Some(events), bytes: None });
        }
    }
    Account {
        name: name.to_owned(),
        uuid: [0; 16],
        streams: ring.cpus().iter().map(|cpu| stream(cpu.cpu)).collect(),
        evidence: Cow::Owned(evidence),
        spans: Vec::new(),
        faults: 0,
    }
}

/// The account of a session of LTTng.
pub(crate) fn of_lttng(session: &lttng::Session) -> Account<'_> {
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

/// The account of traces in folders of CTF; `totals`: what their packets say is missing.
pub(crate) fn of_ctf(traces: &[read::Trace], totals: &Totals, faults: u64) -> Account<'static> {
    let mut evidence = Evidence::default();
    let mut streams = Vec::new();
    for (trace, stream) in traces.iter().flat_map(|trace| trace.streams.iter().map(move |stream| (trace, stream))) {
        let class = trace.class().streams.get(stream.class).map_or(0, |class| class.id);
        let index = streams.len();
        let (channel, cpu) = (class.to_string(), read::cpu(trace, stream));
        streams.push(StreamName { channel, instance: stream.id.unwrap_or(index as u64), cpu });
        let row = |(sequence, (_, entry)): (usize, &(u32, read::Entry))| SubBuffer {
            stream: index,
            sequence: sequence as u64,
            verdict: Verdict::Committed,
            content: entry.size,
            why: String::new(),
        };
        evidence.sub_buffers.extend(stream.packets.iter().enumerate().map(row));
    }
    let gap = |cause, events, place: String| Gap { stream: None, place, cause, events, bytes: None };
    if totals.lost_events > 0 {
        evidence.gaps.push(gap(Cause::Discarded, Some(totals.lost_events), "by the counts of the packets".to_owned()));
    }
    if totals.lost_packets > 0 {
        evidence.gaps.push(gap(Cause::Missing, None, format!("{} packets between others", totals.lost_packets)));
    }
    let name = match traces {
        [trace] => trace.path.display().to_string(),
        traces => format!("{} traces of CTF", traces.len()),
    };
    Account { name, uuid: [0; 16], streams, evidence: Cow::Owned(evidence), spans: Vec::new(), faults }
}

/// Says that nothing describes the events of a session's packets, or that there are none; whether the former is the case.
pub(crate) fn tell_unreadable(lttng: &Lttng) -> bool {
    let (name, packets) = (plain(&lttng.session().name), lttng.found.packets());
    if packets == 0 && lttng.session().metadata.text.is_empty() {
        say::note(format_args!("session {name}: nothing was ever recorded"));
    }
    let is_unreadable = lttng.found.is_unreadable();
    if is_unreadable {
        say::error(format_args!(
            "session {name}: {packets} packets that nothing can read: the description of their events is missing"
        ));
    }
    is_unreadable
}

/// What reading events found besides them.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Parts of files that cannot be read, which was said.
    pub(crate) unreadable: u64,
    /// Sub-buffers in memory that could not be decoded to their end.
    undecoded: Vec<String>,
    more: u64,
}

impl Notes {
    /// Takes a note. A loss that the packets of a file tell of is said at once, as what cannot be read of it.
    pub(crate) fn take(&mut self, note: Note) {
        match note {
            Note::Loss(_, text) => say::warning(plain(&text)),
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

    /// Says which sub-buffers could not be decoded to their end.
    pub(crate) fn tell(&self) {
        self.undecoded.iter().for_each(|fault| say::note(format_args!("not decoded: {}", plain(fault))));
        if self.more > 0 {
            say::note(format_args!("{} more packets are not decoded to their end", self.more));
        }
    }
}

/// A line for each span that was open: first those that a thread was in, then the newest. Equal ones share a line.
fn spans(spans: &[SpanReport], limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let entered = spans.iter().filter(|span| span.threads > 0).count();
    match spans.len() {
        0 => return Ok(()),
        1 => writeln!(out, "  1 span was open:")?,
        open if entered == 0 => writeln!(out, "  {open} spans were open:")?,
        open => writeln!(out, "  {open} spans were open, the {entered} that were entered first:")?,
    }
    let mut groups: Vec<Vec<&SpanReport>> = Vec::new();
    let mut known = BTreeMap::new();
    for span in spans {
        // A span that a thread was in is equal to no other.
        let own = (span.threads > 0).then_some(groups.len());
        let texts = [&span.target, &span.name, &span.fields];
        let at = *known.entry((own, texts, span.parent, span.pid, span.tid, span.level)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(span),
            None => groups.push(vec![span]),
        }
    }
    for group in groups.iter().take(limit) {
        writeln!(out, "    {}", group_line(group, spans))?;
    }
    let more: usize = groups.iter().skip(limit).map(Vec::len).sum();
    if more > 0 {
        writeln!(out, "    ... and {more} more; `inspect --json` lists all")?;
    }
    Ok(())
}

/// `target::name{fields} (id 7, in 3 target::name), open for 1.5 s, thread 13 is in it; opened by thread 12 of process 10`
fn group_line(group: &[&SpanReport], all: &[SpanReport]) -> String {
    let [newest, .., oldest] = group else {
        return group.first().map_or_else(String::new, |span| {
            let inside = match (span.threads, span.entered_tid) {
                (0, _) => String::new(),
                (1, Some(tid)) => format!(", thread {tid} is in it"),
                (1, None) => ", a thread is in it".into(),
                (threads, Some(tid)) => format!(", {threads} threads are in it, {tid} entered last"),
                (threads, None) => format!(", {threads} threads are in it"),
            };
            line(span, "", &format!("id {}", span.id), &seconds(&span.age_ns), &inside, all)
        });
    };
    let many = format!("{} times ", group.len());
    let ids = format!("ids {} to {}", oldest.id.min(newest.id), newest.id.max(oldest.id));
    let ages = format!("{} to {}", seconds(&newest.age_ns), seconds(&oldest.age_ns));
    line(newest, &many, &ids, &ages, "", all)
}

fn line(span: &SpanReport, many: &str, ids: &str, age: &str, inside: &str, all: &[SpanReport]) -> String {
    let (pid, tid) = (span.pid, span.tid);
    let fields = if span.fields.is_empty() { String::new() } else { format!("{{{}}}", plain(&span.fields)) };
    let parent = match all.iter().find(|other| other.id == span.parent && other.pid == pid) {
        _ if span.parent == 0 => String::new(),
        Some(parent) => format!(", in {} {}", span.parent, name(parent)),
        None => format!(", in {}", span.parent),
    };
    format!(
        "{many}{}{fields} ({ids}{parent}), open for {age}{inside}; opened by thread {tid} of process {pid}",
        name(span)
    )
}

fn name(span: &SpanReport) -> String {
    format!("{}::{}", plain(&span.target), plain(&span.name))
}

/// Nanoseconds as seconds, to the millisecond; what is shorter than 10 ms, to the microsecond.
fn seconds(nanoseconds: &str) -> String {
    let nanoseconds: u64 = nanoseconds.parse().unwrap_or(0);
    if nanoseconds < 10_000_000 {
        format!("{}.{:03} ms", nanoseconds / 1_000_000, nanoseconds / 1000 % 1000)
    } else {
        format!("{}.{:03} s", nanoseconds / 1_000_000_000, nanoseconds / 1_000_000 % 1000)
    }
}
