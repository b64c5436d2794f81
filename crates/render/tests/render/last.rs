//! Compares the last events with the end of all events, over random traces with damage.
#![allow(missing_docs, reason = "a test")]

use crate::support::{HEADER, Memory, channel, class, committed, field, full_header, unsigned};
use lastwords_ctf::Version;
use lastwords_ctf::read::{Trace, open, unwatched};
use lastwords_ctf::write as ctf;
use lastwords_filter::Filter;
use lastwords_render::events::Note;
use lastwords_render::json;
use lastwords_render::select::Selection;
use lastwords_render::text::chosen::{self, Columns};
use lastwords_render::text::{self, Style, Zone};
use lastwords_render::{Result, Totals};
use lastwords_testkit::random::Random;
use lastwords_trace::evidence::Evidence;
use lastwords_trace::schema::{FieldClass, Schema};
use lastwords_trace::source::{Foretold, PacketInfo, PacketReader, Source, Stream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A trace in memory that counts the packets that are read.
struct Tape {
    memory: Memory,
    read: AtomicUsize,
    foretells: bool,
}

impl Source for Tape {
    fn schema(&self) -> &Schema {
        &self.memory.schema
    }
    fn streams(&self) -> &[Stream] {
        &self.memory.streams
    }
    fn packets(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        Box::new(Reading(self.memory.packets(stream), self))
    }
    fn evidence(&self) -> &Evidence {
        &self.memory.evidence
    }
}

struct Reading<'a>(Box<dyn PacketReader + 'a>, &'a Tape);

impl PacketReader for Reading<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let info = self.0.next_packet(bytes)?;
        self.1.read.fetch_add(1, Relaxed);
        Some(info)
    }
    fn foretell(&self) -> Option<Vec<Foretold>> {
        self.0.foretell().filter(|_| self.1.foretells)
    }
    fn pass_over(&mut self, packets: usize) {
        self.0.pass_over(packets);
    }
}

/// Irregularities of a generated trace.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Nothing: the times of packets hold.
    Sound,
    /// Clocks that run backwards, and ends of packets that come before their events.
    Lying,
    /// Damage, and also all of that.
    Damaged,
}

/// Returns two channels that share an event class, with streams of some CPUs. The number of an
/// event is its place among those that were made.
fn memory(r: &mut Random, kind: Kind, uuid: u8) -> Memory {
    let number = || unsigned("n", 4);
    let shared = || class(0, "app:shared", vec![number()]);
    let text = class(1, "app:text", vec![number(), field("s", FieldClass::String)]);
    let bytes = class(2, "app:bytes", vec![field("b", FieldClass::Bytes)]);
    let own = |id, name: &str, events| channel(id, name, vec![unsigned("vtid", 4)], events);
    let channels =
        vec![own(0, "main", vec![shared(), text, bytes]), own(1, "errors", vec![shared()])];
    let frequency = *r.pick(&[1_000_000_000, 1_000_000_000, 1_000_000, 2_400_000_000]);
    let cpus = 1 + r.below(3) as u32;
    let streams: Vec<_> = (0..cpus).flat_map(|cpu| [(0, cpu), (1, cpu)]).collect();
    let mut memory = Memory::new(100, channels, &streams);
    memory.schema.clock.frequency = frequency;
    memory.schema.uuid = [uuid; 16];
    memory.packets = packets(r, kind, cpus as usize);
    memory
}

type Packets = Vec<(PacketInfo, Vec<u8>)>;

/// Makes the packets of the streams of some CPUs, of the first channel and of the second in turn.
fn packets(r: &mut Random, kind: Kind, cpus: usize) -> Vec<Packets> {
    let mut streams: Vec<Packets> = vec![Packets::new(); 2 * cpus];
    let mut open: Vec<(u64, u64, Vec<u8>)> = vec![(1000, 1000, vec![0; HEADER]); 2 * cpus];
    let mut now = 1000;
    for number in 0..r.below(400) as u32 {
        now += *r.pick(&[0, 0, 1, 3, 1000, 1 << 20]);
        let cpu = r.below(cpus as u64) as usize;
        let thread = r.below(4) as u32;
        let (id, copies) = *r.pick(&[(0, 2), (0, 1), (1, 1), (1, 1), (2, 1)]);
        for copy in 0..copies {
            now += r.below(2);
            let time = if kind != Kind::Sound && r.one_in(40) {
                now.saturating_sub(r.below(5000))
            } else {
                now
            };
            event(&mut open[2 * cpu + copy], id, time, thread, number);
        }
        // A stream closes a packet now and then, also one without events.
        let at = r.below(2 * cpus as u64) as usize;
        if r.one_in(4) {
            close(r, kind, &mut streams[at], &mut open[at], now);
        }
    }
    for at in 0..2 * cpus {
        if !r.one_in(5) {
            close(r, kind, &mut streams[at], &mut open[at], now);
        }
    }
    streams
}

fn event(
    (begin, end, bytes): &mut (u64, u64, Vec<u8>),
    id: u32,
    time: u64,
    thread: u32,
    number: u32,
) {
    let step = time.wrapping_sub(*end);
    if time < *end || step >= 1 << 27 || number.is_multiple_of(7) {
        full_header(bytes, id as u16, time);
    } else {
        bytes.extend(((time as u32) << 5 | id).to_le_bytes());
    }
    (*begin, *end) = (*begin, time);
    bytes.extend(thread.to_le_bytes());
    match id {
        0 => bytes.extend(number.to_le_bytes()),
        1 => {
            bytes.extend(number.to_le_bytes());
            bytes.extend(b"text\0");
        }
        _ => {
            bytes.extend(4u32.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
    }
}

/// Closes a packet, and begins another one at its end.
fn close(
    r: &mut Random,
    kind: Kind,
    stream: &mut Packets,
    open: &mut (u64, u64, Vec<u8>),
    now: u64,
) {
    let (begin, _, mut bytes) = std::mem::replace(open, (now, now, vec![0; HEADER]));
    let sequence = stream.len() as u64;
    if kind == Kind::Damaged && r.one_in(8) {
        match r.below(3) {
            0 => bytes.truncate(HEADER + bytes.len().saturating_sub(HEADER) / 2),
            1 => bytes.extend([0xff; 7]),
            _ => {
                let at = HEADER + r.below((bytes.len() - HEADER) as u64) as usize;
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << r.below(8));
            }
        }
    }
    let lies = kind != Kind::Sound && r.one_in(6);
    let end = if lies { begin + now.saturating_sub(begin) / 2 } else { now };
    let mut info = committed(sequence, begin, end, bytes.len());
    info.discarded = stream.last().map_or(0, |(info, _)| info.discarded);
    if kind == Kind::Damaged && r.one_in(12) {
        info.discarded += r.below(9);
    }
    stream.push((info, bytes));
}

/// The output of a writer, and its notes.
#[derive(Debug, Default, PartialEq)]
struct Written {
    lines: Vec<String>,
    notes: Vec<String>,
    totals: Totals,
}

#[derive(Debug, Clone, Copy)]
enum To {
    Style(Style),
    Json,
    Columns,
}

const ALL: [To; 6] = [
    To::Style(Style::Fields),
    To::Style(Style::Babeltrace),
    To::Style(Style::Ftrace),
    To::Style(Style::Raw),
    To::Json,
    To::Columns,
];

fn written(traces: &[Trace], to: To, selection: &Selection) -> Written {
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let mut note = |note: Note| notes.push(format!("{note:?}"));
    let zone = Zone::utc();
    let totals: Result<Totals> = match to {
        To::Style(style) => {
            text::write(traces, style, selection, &zone, &mut out, &unwatched, &mut note)
        }
        To::Json => json::write(traces, selection, &mut out, &unwatched, &mut note),
        To::Columns => {
            let columns = Columns::parse(&["time", "vtid", "n"], " ").expect("columns");
            let written =
                chosen::write(traces, &columns, selection, &zone, &mut out, &unwatched, &mut note);
            written.map(|written| written.totals)
        }
    };
    let text = String::from_utf8(out).expect("UTF-8");
    Written {
        lines: text.lines().map(str::to_owned).collect(),
        notes,
        totals: totals.expect("a writer of memory"),
    }
}

/// Keeps the last events of all.
fn keep(all: Written, to: To, last: usize) -> Written {
    let head = usize::from(matches!(to, To::Json));
    let skipped = (all.lines.len() - head).saturating_sub(last);
    let (first, events) = all.lines.split_at(head);
    let mut lines: Vec<String> = first.iter().chain(&events[skipped..]).cloned().collect();
    // The first line has no line before it.
    if let (To::Style(Style::Babeltrace), Some(line)) = (to, lines.first_mut())
        && let Some((time, (_, rest))) =
            line.split_once("(+").and_then(|(time, rest)| Some((time, rest.split_once(')')?)))
    {
        *line = format!("{time}(+?.?????????){rest}");
    }
    let bytes = lines.iter().map(|line| line.len() as u64 + 1).sum();
    let totals = Totals { events: (lines.len() - head) as u64, bytes, ..all.totals };
    Written { lines, totals, ..all }
}

fn trace(memory: Memory, foretells: bool) -> (Arc<Tape>, Trace) {
    let tape = Arc::new(Tape { memory, read: AtomicUsize::new(0), foretells });
    let trace =
        lastwords_ctf::session::trace(&tape, Path::new("memory"), Version::V2).expect("a trace");
    (tape, trace)
}

/// A selection at random. All of its lines are events.
fn selection(r: &mut Random, frequency: u64) -> Selection {
    let time = |ticks: u64| {
        100_000_000_000 + (u128::from(ticks) * 1_000_000_000 / u128::from(frequency)) as i64
    };
    let mut selection = Selection { deduplicate: r.one_in(2), ..Selection::default() };
    match r.below(7) {
        0 => selection.events = vec!["app:shared".to_owned()],
        1 => selection.cpus = vec![r.below(3) as u32],
        2 => {
            selection.filter = Some(Arc::new(
                Filter::parse("n % 5 == 0").or(Filter::parse("n < 60")).expect("it parses"),
            ))
        }
        3 => selection.channels = vec!["errors".to_owned()],
        4 => selection.since = Some(time(r.below(1 << 26))),
        5 => selection.until = Some(time(r.below(1 << 26))),
        _ => {}
    }
    selection
}

const COUNTS: [u64; 8] = [0, 1, 2, 5, 17, 100, 399, 100_000];

#[test]
fn the_last_events_are_the_end_of_all_events() {
    let mut passed = 0;
    for seed in 0..600 {
        let mut r = Random(seed);
        let kind = *r.pick(&[Kind::Sound, Kind::Lying, Kind::Damaged]);
        let memories: Vec<Memory> =
            (0..1 + r.below(2)).map(|uuid| memory(&mut r, kind, uuid as u8)).collect();
        let foretells = !r.one_in(10);
        let selection = selection(&mut r, memories[0].schema.clock.frequency);
        let (tapes, traces): (Vec<_>, Vec<_>) =
            memories.into_iter().map(|memory| trace(memory, foretells)).unzip();
        let to = *r.pick(&ALL);
        let last = *r.pick(&COUNTS);
        let expected = keep(written(&traces, to, &selection), to, last as usize);
        let got = written(&traces, to, &Selection { last: Some(last), ..selection.clone() });
        assert_eq!(got, expected, "seed {seed}: {to:?}, the last {last} of {selection:?}");
        if kind != Kind::Sound {
            continue;
        }
        // Without damage, nothing of that is lost if the packets before the last events are not
        // read.
        tapes.iter().for_each(|tape| tape.read.store(0, Relaxed));
        let got = written(
            &traces,
            to,
            &Selection { last: Some(last), unread_before: true, ..selection.clone() },
        );
        assert_eq!(
            got.lines, expected.lines,
            "seed {seed}: {to:?}, the last {last} of {selection:?}, no more read"
        );
        assert_eq!(got.totals.packets + got.totals.unread, expected.totals.packets, "seed {seed}");
        passed += u64::from(got.totals.unread > 0);
    }
    assert!(passed > 40, "packets were passed over in {passed} traces only");
}

#[test]
fn folders_too() {
    let mut losses = 0;
    for seed in 0..60 {
        let mut r = Random(seed);
        let kind = *r.pick(&[Kind::Sound, Kind::Lying, Kind::Damaged]);
        let (memory, folder) = (memory(&mut r, kind, 1), tempfile::tempdir().expect("a folder"));
        ctf::write(&memory, &folder.path().join("t"), Version::V1_8, &unwatched).expect("CTF");
        let Ok(found) = open(folder.path(), &Arc::default()) else { continue };
        let selection = selection(&mut r, memory.schema.clock.frequency);
        for to in [To::Style(Style::Babeltrace), To::Style(Style::Fields)] {
            let last = *r.pick(&COUNTS);
            let expected = keep(written(&found.traces, to, &selection), to, last as usize);
            losses += expected.totals.lost_events;
            let got =
                written(&found.traces, to, &Selection { last: Some(last), ..selection.clone() });
            assert_eq!(got, expected, "seed {seed}: {to:?}, the last {last} of {selection:?}");
        }
    }
    assert!(losses > 0, "no trace has a loss");
}

/// Returns a stream of packets with ten events each.
fn long(packets: u64) -> Memory {
    let mut r = Random(0);
    let mut made = memory(&mut r, Kind::Sound, 1);
    made.packets.iter_mut().for_each(Vec::clear);
    for sequence in 0..packets {
        let mut open = (sequence * 100, sequence * 100, vec![0; HEADER]);
        (0..10)
            .for_each(|n| event(&mut open, 0, sequence * 100 + n, 1, (sequence * 10 + n) as u32));
        made.packets[0].push((committed(sequence, open.0, open.1, open.2.len()), open.2));
    }
    made
}

#[test]
fn no_more_packets_are_read_than_the_last_events_need() {
    let (tape, trace) = trace(long(10_000), true);
    let last = Selection { last: Some(100), unread_before: true, ..Selection::default() };
    let got = written(&[trace], To::Style(Style::Fields), &last);
    assert_eq!((got.lines.len(), got.totals.unread + got.totals.packets), (100, 10_000));
    let read = tape.read.load(Relaxed);
    assert!(read < 100, "{read} of 10,000 packets were read");
}

/// A caller that takes lines may stop.
#[test]
fn no_more_packets_are_read_than_are_taken() {
    let (tape, trace) = trace(long(10_000), true);
    let mut left = 100;
    let mut put = |_: i64, _: &[u8]| {
        left -= 1;
        left > 0
    };
    let all = Selection::default();
    let stopped = text::each(&[trace], Style::Fields, &all, &Zone::utc(), &mut put, &mut |_| {});
    assert!(stopped.is_err_and(|error| error.is_closed_pipe()) && left == 0);
    let read = tape.read.load(Relaxed);
    assert!(read < 20, "{read} of 10,000 packets were read");
}

/// A packet whose events go on after its end is seen if it is read, and then everything is read.
#[test]
fn an_end_that_does_not_hold_is_noticed() {
    let mut memory = long(100);
    let newest = memory.packets[0].last_mut().expect("a packet");
    newest.0.end = newest.0.begin + 1;
    let (_, trace) = trace(memory, true);
    let last = Selection { last: Some(3), unread_before: true, ..Selection::default() };
    let got = written(&[trace], To::Style(Style::Fields), &last);
    assert_eq!((got.lines.len(), got.totals.unread, got.totals.packets), (3, 0, 100));
}
