//! A writer of made traces of a kernel's scheduler, with what ran as the truth. The traces have
//! several streams of each CPU, packets in which events are missing, missing packets, streams whose
//! first packets are missing, and exits that are missing.

use crate::ctf::{PACKET_CONTEXT, Stream, TYPES};
use crate::put::{Order, Packed};
use crate::random::Random;
use std::collections::BTreeMap;
use std::path::Path;

const HEAD: &str = r#"
env { hostname = "made"; domain = "DOMAIN"; };
clock { name = monotonic; freq = 1000000000; };
stream { id = 0;
"#;
/// The events: those of the scheduler, interrupts and system calls.
pub const EVENTS: &str = r#"
    event.header := struct { u16 id; stamp timestamp; };
    event.context := struct { i32 tid; };
};
event { name = "sched_switch"; id = 0; stream_id = 0; fields := struct { i32 prev_tid; i32 next_tid; }; };
event { name = "irq_handler_entry"; id = 1; stream_id = 0; fields := struct { i32 irq; }; };
event { name = "irq_handler_exit"; id = 2; stream_id = 0; fields := struct { i32 irq; }; };
event { name = "syscall_entry_read"; id = 3; stream_id = 0; fields := struct { u32 fd; }; };
event { name = "syscall_exit_read"; id = 4; stream_id = 0; fields := struct { u32 ret; }; };
event { name = "syscall_entry_write"; id = 5; stream_id = 0; fields := struct { u32 fd; }; };
event { name = "syscall_exit_write"; id = 6; stream_id = 0; fields := struct { u32 ret; }; };
"#;
/// The events of spans that a program opens and closes.
pub const SPANS: &str = r#"
    event.header := struct { u16 id; stamp timestamp; };
    event.context := struct { i32 vpid; i32 vtid; };
};
event { name = "span:new svc::work"; id = 0; stream_id = 0; fields := struct { u64 span_id; u64 parent_id; }; };
event { name = "span:close svc::work"; id = 1; stream_id = 0; fields := struct { u64 span_id; u64 parent_id; }; };
"#;
const THREADS: u64 = 6;

/// The kind of a slice: `running CPU TID`, `irq CPU`, `TID read`; and its begin.
pub type Key = (String, u64);

/// Returns the metadata of a trace of a domain with these events.
#[must_use]
pub fn metadata(domain: &str, events: &str) -> String {
    [TYPES, &HEAD.replace("DOMAIN", domain), PACKET_CONTEXT, events].concat()
}

/// Returns an event of [`SPANS`] in the main thread of a process.
#[must_use]
pub fn span_event(id: u16, time: u64, pid: u32, span: u64) -> Vec<u8> {
    Packed::new(Order::Little).u16(id).u64(time).u32(pid).u32(pid).u64(span).u64(0).done()
}

/// Returns what has ended, with its begin and its end, and whether no event around it is missing.
pub fn ended<'l>(
    lasted: &'l BTreeMap<Key, u64>,
    missing: &'l [Ranges; 3],
) -> impl Iterator<Item = (&'l Key, u64, bool)> {
    let ended = lasted.iter().filter(|(_, end)| **end != u64::MAX);
    ended.map(|(key, end)| {
        let of = match key.0.as_str() {
            cpu if cpu.starts_with("running 0") || cpu == "irq 0" => 0,
            cpu if cpu.starts_with("running 1") || cpu == "irq 1" => 1,
            _ => 2,
        };
        let is_apart = |(from, until): &(u64, u64)| *until < key.1 || *end < *from;
        (key, *end, key.1 > 0 && missing[of].iter().all(is_apart))
    })
}

#[derive(Default)]
struct Made {
    stream: Stream,
    is_lossy: bool,
}

impl Made {
    fn put(&mut self, random: &mut Random, time: u64, event: Packed) {
        if self.is_lossy && random.one_in(3) {
            self.stream.discard(time);
        } else {
            self.stream.put(time, &event.done());
        }
    }
}

/// A CPU: its thread, and when it began to run; the begin of its interrupt; the streams of
/// scheduling and of system calls.
#[derive(Default)]
struct Cpu {
    thread: u64,
    switched: Option<u64>,
    interrupt: Option<u64>,
    streams: [Made; 2],
}

/// Times, each with its begin and its end.
pub type Ranges = Vec<(u64, u64)>;

/// Writes a trace. Returns what lasted, with its end, and the times in which events of CPUs'
/// scheduling and of the trace are missing.
pub fn write(
    folder: &Path,
    random: &mut Random,
    is_lossy: bool,
) -> (BTreeMap<Key, u64>, [Ranges; 3]) {
    std::fs::write(folder.join("metadata"), metadata("kernel", EVENTS)).unwrap();
    let mut cpus = [Cpu::default(), Cpu { thread: 1, ..Cpu::default() }];
    let (mut lasted, mut calls, mut time) =
        (BTreeMap::new(), BTreeMap::<u64, (u64, u64)>::new(), 0);
    for step in 0..1500 {
        time += 1 + random.below(50);
        let at = random.below(2) as usize;
        let idle = (0..THREADS)
            .filter(|thread| cpus.iter().all(|cpu| cpu.thread != *thread))
            .collect::<Vec<_>>();
        let cpu = &mut cpus[at];
        let thread = cpu.thread;
        let event = |id: u16| Packed::new(Order::Little).u16(id).u64(time).u32(10 + thread as u32);
        let choice = if cpu.interrupt.is_some() { 3 } else { random.below(8) };
        let stream = &mut cpu.streams[usize::from(choice > 3)];
        match choice {
            0..=2 => {
                let next = idle[random.below(idle.len() as u64) as usize];
                stream.put(random, time, event(0).u32(10 + thread as u32).u32(10 + next as u32));
                let begin = cpu.switched.replace(time).unwrap_or(0);
                lasted.insert((format!("running {at} {}", 10 + thread), begin), time);
                cpu.thread = next;
            }
            3 => match cpu.interrupt.take() {
                Some(begin) => {
                    stream.put(random, time, event(2).u32(4));
                    lasted.insert((format!("irq {at}"), begin), time);
                }
                None => {
                    stream.put(random, time, event(1).u32(4));
                    cpu.interrupt = Some(time);
                }
            },
            _ => match calls.remove(&thread) {
                Some((call, begin)) => {
                    stream.put(random, time, event(4 + 2 * call as u16).u32(0));
                    lasted.insert(
                        (format!("{} {}", 10 + thread, ["read", "write"][call as usize]), begin),
                        time,
                    );
                }
                None => {
                    let call = random.below(2);
                    stream.put(random, time, event(3 + 2 * call as u16).u32(0));
                    calls.insert(thread, (call, time));
                }
            },
        }
        if random.one_in(12) {
            let made = &mut cpu.streams[random.below(2) as usize];
            if is_lossy && random.one_in(30) {
                made.stream.lose();
            } else {
                made.stream.close(at as u32);
            }
            made.is_lossy = is_lossy && random.one_in(12);
        }
        if is_lossy && step == 150 {
            cpus[1].streams.iter_mut().for_each(|made| made.stream.overwrite());
        }
    }
    end(folder, &mut cpus, calls, &mut lasted);
    let all = cpus
        .iter()
        .flat_map(|cpu| &cpu.streams)
        .flat_map(|made| made.stream.missing.clone())
        .collect();
    let [first, second] = cpus.map(|cpu| cpu.streams[0].stream.missing.clone());
    (lasted, [first, second, all])
}

/// Writes the files of the CPUs, and adds what still lasts: it has no end.
fn end(
    folder: &Path,
    cpus: &mut [Cpu],
    calls: BTreeMap<u64, (u64, u64)>,
    lasted: &mut BTreeMap<Key, u64>,
) {
    for (at, cpu) in cpus.iter_mut().enumerate() {
        let open = cpu.switched.map(|begin| (format!("running {at} {}", 10 + cpu.thread), begin));
        lasted.extend(open.map(|key| (key, u64::MAX)));
        lasted.extend(cpu.interrupt.map(|begin| ((format!("irq {at}"), begin), u64::MAX)));
        for (number, made) in cpu.streams.iter_mut().enumerate() {
            made.stream.close(at as u32);
            std::fs::write(folder.join(format!("s{at}{number}")), &made.stream.file).unwrap();
        }
    }
    for (thread, (call, begin)) in calls {
        lasted.insert(
            (format!("{} {}", 10 + thread, ["read", "write"][call as usize]), begin),
            u64::MAX,
        );
    }
}
