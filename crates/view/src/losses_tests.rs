//! Slices of made traces are compared with what ran. The traces have several streams of each CPU,
//! packets in which events are missing, missing packets, streams whose first packets are missing,
//! and exits that are missing.

use crate::collect::collect;
use crate::collected::{Collected, Options};
use crate::slices::{NO_BEGIN, NO_END, Of, UNSURE};
use lastwords_ctf::read::Trace;
use lastwords_render::select::Selection;
use lastwords_testkit::ctf::{PACKET_CONTEXT, Stream, TYPES};
use lastwords_testkit::put::{Order, Packed};
use lastwords_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const HEAD: &str = r#"
env { hostname = "made"; domain = "DOMAIN"; };
clock { name = monotonic; freq = 1000000000; };
stream { id = 0;
"#;
const EVENTS: &str = r#"
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
const THREADS: u64 = 6;

/// The kind of a slice: `running CPU TID`, `irq CPU`, `TID read`; and its begin.
pub(crate) type Key = (String, u64);

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
pub(crate) type Ranges = Vec<(u64, u64)>;

/// Writes a trace. Returns what lasted, with its end, and the times in which events of CPUs'
/// scheduling and of the trace are missing.
pub(crate) fn write(
    folder: &Path,
    random: &mut Random,
    is_lossy: bool,
) -> (BTreeMap<Key, u64>, [Ranges; 3]) {
    let metadata = [TYPES, &HEAD.replace("DOMAIN", "kernel"), PACKET_CONTEXT, EVENTS].concat();
    std::fs::write(folder.join("metadata"), metadata).unwrap();
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

pub(crate) fn collected(folders: &[&Path]) -> Collected {
    let open = |folder: &&Path| lastwords_ctf::read::open(folder, &Arc::default()).unwrap().traces;
    collected_of(&folders.iter().flat_map(open).collect::<Vec<_>>())
}

pub(crate) fn collected_of(traces: &[Trace]) -> Collected {
    let options = Options {
        limit: 1 << 20,
        open_spans: Vec::new(),
        inside: std::collections::HashMap::new(),
        tasks: Vec::new(),
    };
    collect(traces, &Selection::default(), &options, &|_| {}, &mut |_| {}).unwrap().0
}

/// The name, begin, end and flags of a slice.
pub(crate) type Row = (String, u64, u64, u8);

/// Returns all slices. No two slices of a track overlap.
pub(crate) fn slices(collected: &Collected) -> Vec<Row> {
    let names = &collected.names;
    let tid = |thread: u32| names.threads[thread as usize].tid.unwrap();
    let one = |slice: &crate::slices::Slice| {
        let track = collected.slices.tracks[slice.track as usize];
        let label = &names.labels[slice.label as usize];
        let name = match track.of {
            Of::Running => {
                format!("running {} {}", names.cpus[track.owner as usize].cpu, tid(slice.thread))
            }
            Of::Interrupts => format!("irq {}", names.cpus[track.owner as usize].cpu),
            Of::Thread | Of::Spans => format!("{} {label}", tid(track.owner)),
        };
        (name, slice.begin as u64, slice.end as u64, slice.flags)
    };
    let mut rows: Vec<_> =
        collected.slices.all.iter().map(|slice| (slice.track, slice.begin, slice.end)).collect();
    rows.sort_unstable();
    assert!(
        rows.windows(2).all(|two| two[0].0 != two[1].0 || two[0].2 <= two[1].1),
        "slices overlap: {rows:?}"
    );
    collected.slices.all.iter().map(one).collect()
}

/// The slice says nothing that is wrong.
pub(crate) fn assert_true(lasted: &BTreeMap<Key, u64>, (name, begin, end, flags): &Row, seed: u64) {
    let what = format!("seed {seed}: {name} [{begin}, {end}] {flags}");
    let key = (name.clone(), *begin);
    let around = lasted.range(..=key.clone()).next_back().filter(|(own, _)| own.0 == *name);
    match *flags {
        0 => assert_eq!(lasted.get(&key), Some(end), "{what}"),
        NO_END => assert!(lasted.get(&key).is_some_and(|until| end <= until), "{what}"),
        NO_BEGIN => {
            assert!(begin == end || around.is_some_and(|(_, until)| end == until), "{what}")
        }
        flags => {
            assert!(flags & UNSURE != 0 || around.is_some_and(|(_, until)| end <= until), "{what}")
        }
    }
}

#[test]
fn what_ran_is_drawn_and_what_is_not_known_says_so() {
    let (mut flags_seen, mut certain, mut expected) = (BTreeSet::new(), 0, 0);
    for seed in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let (lasted, missing) = write(folder.path(), &mut Random(seed), !seed.is_multiple_of(3));
        let slices = slices(&collected(&[folder.path()]));
        flags_seen.extend(slices.iter().map(|slice| slice.3));
        slices.iter().for_each(|slice| assert_true(&lasted, slice, seed));
        let shown: BTreeSet<_> =
            slices.iter().filter(|slice| slice.3 == 0).map(|slice| (&slice.0, slice.1)).collect();
        for ((name, begin), end) in lasted.iter().filter(|(_, end)| **end != u64::MAX) {
            let of = match name.as_str() {
                cpu if cpu.starts_with("running 0") || cpu == "irq 0" => 0,
                cpu if cpu.starts_with("running 1") || cpu == "irq 1" => 1,
                _ => 2,
            };
            let is_whole =
                *begin > 0 && missing[of].iter().all(|(from, until)| until < begin || end < from);
            certain += usize::from(is_whole);
            expected += 1;
            assert!(
                !is_whole || shown.contains(&(name, *begin)),
                "seed {seed}: {name} [{begin}, {end}] is not shown"
            );
        }
    }
    assert!(
        flags_seen.len() >= 5 && certain > expected / 2,
        "{flags_seen:?}; {certain} of {expected}"
    );
}

/// Applications may name their events as they like.
#[test]
fn events_of_applications_are_no_scheduling() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &mut Random(0), false);
    let metadata = [TYPES, &HEAD.replace("DOMAIN", "ust"), PACKET_CONTEXT, EVENTS].concat();
    std::fs::write(folder.path().join("metadata"), metadata).unwrap();
    assert!(slices(&collected(&[folder.path()])).is_empty());
}

/// Two traces of one kernel are drawn once, and the page says so.
#[test]
fn traces_with_the_same_events_are_drawn_once() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for folder in &folders {
        write(folder.path(), &mut Random(3), false);
    }
    let alone = collected(&[folders[0].path()]);
    let both = collected(&[folders[0].path(), folders[1].path()]);
    let sorted = |collected: &Collected| {
        let mut slices = slices(collected);
        slices.retain(|slice| slice.3 == 0);
        slices.sort();
        slices
    };
    assert_eq!((sorted(&both), alone.remarks()), (sorted(&alone), Vec::new()));
    assert!(both.remarks()[0].contains("another trace has the same CPU"), "{:?}", both.remarks());
}

/// Gaps that are too many are merged: all lost events are in one of them.
#[test]
fn gaps_that_are_too_many_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &mut Random(0), false);
    let mut stream = Stream::default();
    for time in 0..40_000 {
        stream
            .put(time * 10, &Packed::new(Order::Little).u16(3).u64(time * 10).u32(1).u32(0).done());
        stream.discard(time * 10);
        stream.close(3);
    }
    std::fs::write(folder.path().join("s3"), &stream.file).unwrap();
    let collected = collected(&[folder.path()]);
    let gaps = &collected.gaps;
    let sum = |of: fn(&crate::gaps::Gap) -> u64| gaps.iter().map(of).sum::<u64>();
    assert_eq!((sum(|gap| gap.events), sum(|gap| gap.number)), (40_000, 40_000));
    assert!(
        gaps.len() <= 1 << 14 && gaps.iter().map(|gap| gap.end).max() == Some(Some(399_990)),
        "{}",
        gaps.len()
    );
    assert!(
        collected.remarks()[0].starts_with("40000 gaps drawn as "),
        "{:?}",
        collected.remarks()
    );
}

/// The thread of an event that names none is the one that a switch told, unless events are missing
/// since.
#[test]
fn an_event_behind_a_loss_has_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    let events = EVENTS.replace("event.context := struct { i32 tid; };", "");
    let metadata = [TYPES, &HEAD.replace("DOMAIN", "kernel"), PACKET_CONTEXT, &events].concat();
    std::fs::write(folder.path().join("metadata"), metadata).unwrap();
    let mut stream = Stream::default();
    let event = |id: u16, time: u64| Packed::new(Order::Little).u16(id).u64(time);
    let switch = |stream: &mut Stream, time: u64, next: u32| {
        stream.put(time, &event(0, time).u32(1).u32(next).done())
    };
    let call = |stream: &mut Stream, time: u64| stream.put(time, &event(3, time).u32(0).done());
    switch(&mut stream, 10, 11);
    call(&mut stream, 20);
    stream.close(0);
    stream.lose();
    call(&mut stream, 30);
    switch(&mut stream, 40, 12);
    call(&mut stream, 50);
    stream.close(0);
    switch(&mut stream, 60, 13);
    stream.discard(65);
    call(&mut stream, 70);
    stream.close(0);
    call(&mut stream, 80);
    stream.close(0);
    std::fs::write(folder.path().join("s0"), &stream.file).unwrap();
    let collected = collected(&[folder.path()]);
    let tid = |thread: &u32| collected.names.threads[*thread as usize].tid;
    let calls = collected
        .columns
        .times
        .iter()
        .zip(&collected.columns.threads)
        .filter(|(time, _)| [20, 30, 50, 70, 80].contains(*time));
    assert_eq!(
        calls.map(|(_, thread)| tid(thread)).collect::<Vec<_>>(),
        [Some(11), None, Some(12), None, None]
    );
}
