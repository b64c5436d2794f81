//! The sources: what is in each of them is known.

use super::event::{Event, Value, named};
use super::kernel::Kernel;
use super::made;
use crate::lttng;
use crate::support::Place;
use lastwords_testkit::form::Form;
use lastwords_testkit::layout::{session as se, stream as st};
use lastwords_testkit::put::{Order, Packed};
use lastwords_testkit::samples;
use lastwords_testkit::schema::{Record, Type};
use lastwords_testkit::session::{ChannelSpec, Session};
use std::path::PathBuf;

/// Bytes of a page of the trace.dat file, which begin at multiples of it.
const PAGE: usize = 4096;
/// The bits of a page's header that report lost events.
const MISSED: u64 = 0b11 << 30;

/// A source.
pub(super) struct Source {
    /// Its row in the table.
    pub(super) name: &'static str,
    /// Inputs on the command line.
    pub(super) inputs: Vec<String>,
    /// Events that are known to be lost.
    pub(super) lost: u64,
    /// Its contents.
    pub(super) truth: Truth,
}

/// The contents of a source.
pub(super) enum Truth {
    /// Traces of sessions, LTTng or CTF.
    Packets(Vec<Part>),
    /// A kernel's trace.
    Kernel(Kernel),
    /// A session and a kernel's trace, whose clock's relation to real time is not known.
    Both(Part, Kernel),
}

/// A trace.
pub(super) struct Part {
    /// Its name in the output of `recover`.
    pub(super) name: &'static str,
    pub(super) events: Vec<Event>,
    pub(super) style: Style,
}

/// How `report` shows events unless it is told otherwise.
#[derive(Debug, Clone)]
pub(super) enum Style {
    /// Its own style.
    Fields,
    /// The text of Babeltrace for this folder of CTF; without a folder, for the recovered trace.
    Babeltrace(Option<PathBuf>),
}

/// All sources, made in a place; `is_lossy`: events of each were lost.
pub(super) fn sources(place: &Place, is_lossy: bool) -> Vec<Source> {
    let session = session(is_lossy);
    session.image().write_folder(&place.at("session")).unwrap();
    let mut core = samples::paged();
    if is_lossy {
        core.rings[1].lost[st::LOST_FULL] = 4;
    }
    std::fs::write(place.at("core"), core.image().core()).unwrap();
    let lost = if is_lossy { 5 } else { 0 };
    let [ctf, ctf2] = [("ctf", 1), ("ctf2", 2)]
        .map(|(folder, version)| made::write(&place.at(folder), version, lost));
    let (steps, steps_lost) = lttng::timed_shm(&place.at("shm"), is_lossy);
    trace_dat(place, is_lossy);
    persistent(place, is_lossy);
    let [session_lost, core_lost, kernel_lost] =
        [7, 4, 10].map(|lost| if is_lossy { lost } else { 0 });
    let source = |name, inputs: &[&str], lost, truth| {
        let inputs = inputs.iter().map(|input| (*input).to_owned()).collect();
        Source { name, inputs, lost, truth }
    };
    let kernel = |file, is_top_alone| kernel(place.at(file), is_top_alone);
    let part = |name, events: &[Event], style| Part { name, events: events.to_vec(), style };
    let packets = |name, events: &[Event], style| Truth::Packets(vec![part(name, events, style)]);
    let babeltrace = |folder: &str| Style::Babeltrace(Some(place.at(folder)));
    let (session, core) = (of_session(&session), of_session(&core));
    let steps: Vec<Event> = steps.into_iter().map(step).collect();
    let both = vec![part("some", &session, Style::Fields), part("ctf", &ctf, babeltrace("ctf"))];
    vec![
        source(
            "a session's folder",
            &["./session"],
            session_lost,
            packets("some", &session, Style::Fields),
        ),
        source(
            "a process core with a session",
            &["core"],
            core_lost,
            packets("paged", &core, Style::Fields),
        ),
        source(
            "LTTng's shared memory",
            &["shm"],
            steps_lost,
            packets("shm", &steps, Style::Babeltrace(None)),
        ),
        source("a folder of CTF 1.8", &["ctf"], 2 * lost, packets("ctf", &ctf, babeltrace("ctf"))),
        source(
            "a folder of CTF 2",
            &["ctf2"],
            2 * lost,
            packets("ctf2", &ctf2, babeltrace("ctf2")),
        ),
        source(
            "a trace.dat file",
            &["kernel.dat"],
            kernel_lost,
            Truth::Kernel(kernel("kernel.dat", false)),
        ),
        source(
            "a persistent ring buffer",
            &["region", "--bundle", "bundle"],
            kernel_lost,
            Truth::Kernel(kernel("region.dat", true)),
        ),
        source(
            "a session and a folder of CTF",
            &["./session", "ctf"],
            session_lost + 2 * lost,
            Truth::Packets(both),
        ),
        source(
            "a session and a trace.dat file",
            &["./session", "kernel.dat"],
            session_lost + kernel_lost,
            Truth::Both(part("some", &session, Style::Fields), kernel("kernel.dat", false)),
        ),
    ]
}

/// What is known of the kernel whose trace a file has.
fn kernel(file: PathBuf, is_top_alone: bool) -> Kernel {
    Kernel {
        file,
        is_top_alone,
        symbols: vec![(0xffff_ffff_8100_0000, "do_work".into())],
        texts: Vec::new(),
        trace_processor: None,
    }
}

/// A trace.dat file.
fn trace_dat(place: &Place, is_lossy: bool) {
    let mut kernel = std::fs::read(crate::support::trace_dat("whole-7")).unwrap();
    if !is_lossy {
        kernel.chunks_mut(PAGE).for_each(without_missed);
    }
    std::fs::write(place.at("kernel.dat"), kernel).unwrap();
}

/// A persistent ring buffer with the pages of a trace.dat file, of either form, and the bundle that
/// describes it.
fn persistent(place: &Place, is_lossy: bool) {
    let mut file = crate::persistent::file();
    if !is_lossy {
        file.chunks_mut(PAGE).for_each(without_missed);
    }
    std::fs::write(place.at("region.dat"), &file).unwrap();
    let form = if is_lossy { Form::PerCpu } else { Form::Common };
    let made = crate::persistent::Made::new(&file, form, 0);
    std::fs::write(place.at("region"), &made.region.bytes).unwrap();
    made.pack(place, "bundle");
}

/// Takes from a page's header that events were lost before it: `RB_MISSED_EVENTS` and
/// `RB_MISSED_STORED` of `ring_buffer.c`.
fn without_missed(page: &mut [u8]) {
    let commit = page.get(8..16).map(|commit| u64::from_le_bytes(commit.try_into().unwrap()));
    if let Some(commit) =
        commit.filter(|commit| commit & MISSED != 0 && (commit & !MISSED) < PAGE as u64)
    {
        page[8..16].copy_from_slice(&(commit & !MISSED).to_le_bytes());
    }
}

/// A stream that overwrites and one with contexts, in which a dead recorder left a hole.
fn session(is_lossy: bool) -> Session {
    let mut session = Session::new("some", se::LOCKLESS);
    let main = session.channel(ChannelSpec::new("main", 2048, 4));
    samples::describe(&mut session, main);
    let mut with_contexts = ChannelSpec::new("errors", 2048, 4);
    with_contexts.contexts = se::CONTEXT_PID | se::CONTEXT_USER;
    let errors = session.channel(with_contexts);
    samples::describe(&mut session, errors);
    session.records.push(Record::Context {
        channel: 1,
        index: 0,
        name: "shard".into(),
        ty: Type::U32,
    });
    session.stream(main, 0, se::LOCKLESS);
    session.stream(errors, st::ANY_CPU, se::LOCKLESS);
    samples::record(&mut session.rings[0], 0, 600, &[]);
    let contexts = Packed::new(Order::Little).u32(4242).u32(7).done();
    let ring = &mut session.rings[1];
    samples::record(ring, 1000, 60, &contexts);
    let clock = ring.halves[0].last_clock + 10;
    ring.die_with_hole(6, clock, 70);
    samples::record(ring, 1060, 20, &contexts);
    if is_lossy {
        ring.lost[st::LOST_FULL] = 7;
    }
    session
}

/// An event of LTTng's shared memory: clock, CPU, number.
fn step((clock, cpu, number): (u64, u32, u64)) -> Event {
    Event {
        ns: made::ORIGIN * 1_000_000_000 + i128::from(clock),
        cpu: Some(cpu),
        name: "steps:step".into(),
        contexts: Vec::new(),
        fields: vec![named("n", Value::Number(number.into()))],
    }
}

/// The events of a session of testkit's samples.
fn of_session(session: &Session) -> Vec<Event> {
    let event = |(stream, event): (u32, lastwords_testkit::ring::Event)| {
        let spec = &session.rings[stream as usize].spec;
        let (contexts, body) = if session.channels[spec.channel as usize].contexts == 0 {
            (Vec::new(), &event.body[..])
        } else {
            // A process id and a context of its user.
            let word = |at: usize| {
                Value::Number(u32::from_le_bytes(event.body[at..at + 4].try_into().unwrap()).into())
            };
            (vec![named("vpid", word(0)), named("shard", word(4))], &event.body[8..])
        };
        let (name, fields) = fields(event.id, body);
        Event {
            ns: made::ORIGIN * 1_000_000_000 + i128::from(event.clock),
            cpu: Some(spec.cpu).filter(|cpu| *cpu != st::ANY_CPU),
            name: format!("testkit:{name}"),
            contexts,
            fields,
        }
    };
    session.live_events().into_iter().map(event).collect()
}

/// Returns the fields that `samples::event` writes into an event. The event begins with its number.
fn fields(id: u16, body: &[u8]) -> (&'static str, Vec<(String, Value)>) {
    let number = u32::from_le_bytes(body[..4].try_into().unwrap());
    let n = named("n", Value::Number(number.into()));
    match id {
        samples::NUMBERED => (
            "numbered",
            vec![n, named("text", Value::Text("x".repeat((number * 7 % 40) as usize)))],
        ),
        samples::WIDE => ("wide", vec![n]),
        _ => {
            let (label, kind) = if number.is_multiple_of(2) { ("seven", 7) } else { ("below", -1) };
            let list =
                |numbers: &[i128]| Value::List(numbers.iter().map(|n| Value::Number(*n)).collect());
            let fields = vec![
                n,
                named("kind", Value::Label(Some(label.into()), kind)),
                named("ratio", Value::Real(number.into())),
                named("yes", Value::Bool(true)),
                named("three", list(&[1, -1, 3])),
                named("list", list(&[number.into(), (!number).into()])),
                named("raw", Value::Bytes(vec![1, 2, 3])),
                named("fixed", Value::Text("fix".into())),
            ];
            ("varied", fields)
        }
    }
}
