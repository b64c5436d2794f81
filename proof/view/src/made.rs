//! Writes a trace of CTF 1.8 with as many events as are wanted: a kernel's scheduling, interrupts
//! and system calls, and events of applications with hostile texts. It is made by the
//! specification, and knows how many events it has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use lastwords_testkit::ctf::{PACKET_CONTEXT, Stream, TYPES};
use lastwords_testkit::random::Random;

use super::filters::Words;

/// Number of CPUs.
pub(super) const CPUS: usize = 4;
/// Events that are lost on CPU 1, in the middle.
pub(super) const LOST: u64 = 321;
/// A text that must stay a text: it would end the element that the page keeps its data in.
pub(super) const HOSTILE: &str =
    "</script><img src=x onerror=\"window.hacked=1\"><!-- \u{2028} \\u003c & 'quoted'";
/// The beginning of the trace: seconds since the epoch.
pub(super) const BEGIN: u64 = 1_795_505_501;

/// The context of events.
const CONTEXT: &str = "i32 tid; i32 pid; string procname;";
/// The events.
const EVENTS: &str = r#"
event { name = "sched_switch"; id = 0; stream_id = 0; fields := struct {
    string prev_comm; i32 prev_tid; u32 prev_state; string next_comm; i32 next_tid; }; };
event { name = "irq_handler_entry"; id = 1; stream_id = 0; fields := struct { i32 irq; string name; }; };
event { name = "irq_handler_exit"; id = 2; stream_id = 0; fields := struct { i32 irq; i32 ret; }; };
event { name = "syscall_entry_read"; id = 3; stream_id = 0; fields := struct { u32 fd; u64 count; }; };
event { name = "syscall_exit_read"; id = 4; stream_id = 0; fields := struct { u64 ret; }; };
event { name = "app:request"; id = 5; stream_id = 0; loglevel = 6; fields := struct { string path; u64 bytes; }; };
event { name = "app:failure"; id = 6; stream_id = 0; loglevel = 3; fields := struct { string text; u64 number; }; };
"#;

const NAMES: [&str; 7] = [
    "sched_switch",
    "irq_handler_entry",
    "irq_handler_exit",
    "syscall_entry_read",
    "syscall_exit_read",
    "app:request",
    "app:failure",
];

/// The names and values of the trace, of which filters are made.
pub(super) const WORDS: Words = Words {
    names: "prev_tid next_tid next_comm fd count ret path bytes irq name number tid pid procname comm cpu CPU COMM level event channel $ctx.tid common_pid text",
    texts: &[
        r#""server""#,
        r#""worker-1""#,
        r#""virtio0-input""#,
        r#""sched_switch""#,
        r#""error""#,
        r#""info""#,
    ],
    globs: &[
        r#""*""#,
        r#""work*""#,
        r#""/orders/?[0-4]*""#,
        r#""app:*""#,
        r#""*_[re]*""#,
        r#""</script>*""#,
    ],
    numbers: "0 1 2 3 6 30 100 101 200 2048 500000 9223372036854775808 1.5",
};

/// Something that lasted: a thread in a call (`thread TID`), on a CPU (`running CPU TID`), or an
/// interrupt (`interrupts CPU`).
pub(super) type Lasted = (String, u64, u64);

/// The known facts of a trace that was made.
pub(super) struct Made {
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Time of the last event, nanoseconds from the beginning.
    pub(super) end: u64,
    /// All that lasted, with the times of its begin and end, whether or not the events of these
    /// were lost.
    pub(super) lasted: BTreeSet<Lasted>,
}

#[derive(Default)]
struct Cpu {
    stream: Stream,
    thread: usize,
    interrupt: bool,
    /// Events of the packet that is being filled are lost, here and there.
    is_lossy: bool,
    /// When the running thread and the interrupt began.
    switched: Option<u64>,
    interrupted: u64,
}

const THREADS: [(i32, i32, &str); 9] = [
    (0, 0, "swapper"),
    (100, 100, "server"),
    (101, 100, "worker-1"),
    (102, 100, "worker-2"),
    (200, 200, "database"),
    (201, 200, "writer"),
    (300, 300, "logger"),
    (11, 11, "kworker/0:1"),
    (12, 12, "ksoftirqd/0"),
];

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes());
    out.push(0);
}

impl Cpu {
    fn put(&mut self, kind: u16, time: u64, fields: &[u8]) {
        let (tid, pid, name) = THREADS[self.thread];
        let mut event = Vec::new();
        event.extend(kind.to_le_bytes());
        event.extend(time.to_le_bytes());
        event.extend(tid.to_le_bytes());
        event.extend(pid.to_le_bytes());
        text(&mut event, name);
        event.extend(fields);
        self.stream.put(time, &event);
    }

    fn close(&mut self, cpu: usize) {
        self.is_lossy = false;
        self.stream.close(cpu as u32);
    }
}

/// Makes a folder with the metadata of a kernel's trace: its name, more types, the context of events,
/// and the events.
pub(super) fn describe(folder: &Path, [name, types, context, events]: [&str; 4]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let metadata = format!(
        r#"{TYPES}{types}
env {{ hostname = "{name}"; domain = "kernel"; tracer_name = "lttng-modules"; trace_name = "{name}"; }};
clock {{ name = monotonic; freq = 1000000000; offset_s = {BEGIN}; }};
stream {{
    id = 0;
    {PACKET_CONTEXT}
    event.header := struct {{ u16 id; stamp timestamp; }};
    event.context := struct {{ {context} }};
}};
{events}"#
    );
    Ok(std::fs::write(folder.join("metadata"), metadata)?)
}

/// Writes a trace of `events` events into a new folder.
pub(super) fn write(folder: &Path, events: u64, seed: u64) -> Result<Made> {
    describe(folder, ["made", "", CONTEXT, EVENTS])?;
    let mut rng = Random(seed);
    let mut cpus: Vec<Cpu> = (0..CPUS).map(|_| Cpu::default()).collect();
    let mut calls = [None; THREADS.len()];
    let (mut counts, mut lasted) = (BTreeMap::new(), BTreeSet::new());
    let (mut time, mut written, mut is_cut) = (0, 0, false);
    while written < events {
        time += 100 + rng.below(1400);
        let at = rng.below(CPUS as u64) as usize;
        if written == events / 2 && !std::mem::replace(&mut is_cut, true) {
            // Events are missing: the packet before ends, the next one begins later, and events are
            // missing in it too.
            cpus[1].close(1);
            time += 40_000 + time / 10;
            (cpus[1].stream.discarded, cpus[1].is_lossy) = (LOST, true);
        }
        let in_call = calls.map(|begin| begin.is_some());
        let Step { kind, fields, next } = step(&mut rng, &cpus, at, &in_call);
        let cpu = &mut cpus[at];
        if !cpu.is_lossy || rng.below(2) == 0 {
            // A switch is recorded by the thread that stops.
            cpu.put(kind, time, &fields);
            *counts.entry(NAMES[usize::from(kind)]).or_insert(0) += 1;
            written += 1;
        }
        let (tid, ..) = THREADS[cpu.thread];
        lasted.extend(match kind {
            0 => {
                cpu.switched.replace(time).map(|begin| (format!("running {at} {tid}"), begin, time))
            }
            2 => Some((format!("interrupts {at}"), cpu.interrupted, time)),
            4 => calls[cpu.thread].take().map(|begin| (format!("thread {tid}"), begin, time)),
            _ => None,
        });
        match kind {
            1 => cpu.interrupted = time,
            3 => calls[cpu.thread] = Some(time),
            _ => {}
        }
        cpu.interrupt = kind == 1;
        cpu.thread = next.unwrap_or(cpu.thread);
        if cpu.stream.events.len() > 60_000 {
            cpu.close(at);
        }
    }
    for (at, cpu) in cpus.iter_mut().enumerate() {
        cpu.close(at);
        std::fs::write(folder.join(format!("stream_{at}")), &cpu.stream.file)?;
    }
    Ok(Made { counts, end: time, lasted })
}

/// The next event of a CPU.
struct Step {
    kind: u16,
    fields: Vec<u8>,
    /// The thread with which the CPU goes on.
    next: Option<usize>,
}

/// Chooses the next event of a CPU.
fn step(rng: &mut Random, cpus: &[Cpu], at: usize, in_call: &[bool]) -> Step {
    let mut fields = Vec::new();
    let thread = cpus[at].thread;
    let choice = if cpus[at].interrupt { 1000 } else { rng.below(100) };
    let (kind, next) = match choice {
        1000 => {
            fields.extend(30i32.to_le_bytes());
            fields.extend(1i32.to_le_bytes());
            (2, None)
        }
        30..45 if thread != 0 => {
            fields.extend(30i32.to_le_bytes());
            text(&mut fields, "virtio0-input");
            (1, None)
        }
        45..65 if thread != 0 => {
            let is_entry = !in_call[thread];
            if is_entry {
                fields.extend(3u32.to_le_bytes());
            }
            fields.extend(rng.below(4096).to_le_bytes());
            (if is_entry { 3 } else { 4 }, None)
        }
        99 if thread != 0 => {
            text(&mut fields, HOSTILE);
            fields.extend(rng.bits().to_le_bytes());
            (6, None)
        }
        65.. if thread != 0 => {
            text(&mut fields, &format!("/orders/{}", rng.below(100_000)));
            fields.extend(rng.below(1 << 20).to_le_bytes());
            (5, None)
        }
        _ => {
            let next = rng.below(THREADS.len() as u64) as usize;
            let is_free = next == 0 || cpus.iter().all(|cpu| cpu.thread != next);
            let next = if is_free { next } else { 0 };
            let (before, after) = (THREADS[thread], THREADS[next]);
            text(&mut fields, before.2);
            fields.extend(before.0.to_le_bytes());
            fields.extend(1u32.to_le_bytes());
            text(&mut fields, after.2);
            fields.extend(after.0.to_le_bytes());
            (0, Some(next))
        }
    };
    Step { kind, fields, next }
}
