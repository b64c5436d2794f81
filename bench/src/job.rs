//! The job of a contender, and the measurement of its time. `bench/c/child.h` is the same for
//! contenders in C: change both together, or they no longer measure the same thing.

use std::fmt;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::Result;
use crate::machine::opaque;

/// The bytes of ring buffer that every contender has for each CPU, where it can be told: four
/// sub-buffers of 64 KiB.
pub(crate) const RING_BYTES: usize = 4 * 64 * 1024;

/// The strings of payload B, 16 bytes each, so that none is a constant at the place that records
/// it.
const STRINGS: [&str; 4] =
    ["request-accepted", "request-rejected", "response-delayed", "session-detached"];

/// The fields of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// `u32` and `u64`.
    A,
    /// `u32`, `u64` and a string of 16 bytes.
    B,
}

/// One run of one contender: a thread for each CPU, each recording `events` events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    payload: Payload,
    events: u64,
    cpus: Vec<usize>,
}

impl Job {
    /// From the arguments `PAYLOAD EVENTS CPU[,CPU...]`.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let [payload, events, cpus] = arguments else {
            return Err("expected PAYLOAD EVENTS CPU[,CPU...]".into());
        };
        let payload = match payload.as_str() {
            "a" => Payload::A,
            "b" => Payload::B,
            other => return Err(format!("payload `{other}`: expected `a` or `b`").into()),
        };
        let cpus =
            cpus.split(',').map(str::parse).collect::<std::result::Result<Vec<usize>, _>>()?;
        match events.parse()? {
            0 => Err("0 events: expected 1 at least".into()),
            events => Ok(Self { payload, events, cpus }),
        }
    }

    /// Runs the loop of the job's payload in pinned threads and takes the time of it. A loop
    /// records as many events as it is told; each thread calls it once to warm up and then once on
    /// the clock.
    pub(crate) fn run(&self, a: impl Fn(u64) + Sync, b: impl Fn(u64) + Sync) -> Result<Sample> {
        match self.payload {
            Payload::A => self.time(a),
            Payload::B => self.time(b),
        }
    }

    fn time(&self, record: impl Fn(u64) + Sync) -> Result<Sample> {
        let (start, record) = (&Barrier::new(self.cpus.len()), &record);
        let threads = std::thread::scope(|scope| {
            let started: Vec<_> = self
                .cpus
                .iter()
                .map(|&cpu| scope.spawn(move || time_thread(cpu, self.events, start, record)))
                .collect();
            started
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a thread panicked"))
                .collect::<Vec<_>>()
        });
        let mut sample =
            Sample { threads: self.cpus.len(), events: self.events, ..Sample::default() };
        for thread in threads {
            let thread = thread??;
            sample.wall += thread.wall;
            sample.cpu += thread.cpu;
            sample.preempted += thread.preempted;
        }
        Ok(sample)
    }
}

struct Thread {
    wall: Duration,
    cpu: Duration,
    preempted: i64,
}

fn time_thread(
    cpu: usize,
    events: u64,
    start: &Barrier,
    record: &impl Fn(u64),
) -> std::result::Result<Thread, nix::Error> {
    let pinned = pin(cpu);
    if pinned.is_ok() {
        record((events / 10).max(10_000));
    }
    // Also where pinning failed: the others wait here.
    start.wait();
    pinned?;
    let preempted = preemptions()?;
    let cpu_before = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    let wall = Instant::now();
    record(events);
    let wall = wall.elapsed();
    let cpu = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)? - cpu_before;
    Ok(Thread { wall, cpu: Duration::from(cpu), preempted: preemptions()? - preempted })
}

/// Keeps the calling thread, and what it starts, on one CPU.
pub(crate) fn pin(cpu: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// The CPUs that the calling thread may run on.
pub(crate) fn cpus() -> nix::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}

fn preemptions() -> nix::Result<i64> {
    Ok(getrusage(UsageWho::RUSAGE_THREAD)?.involuntary_context_switches())
}

/// The time of a run, all threads together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    threads: usize,
    events: u64,
    wall: Duration,
    cpu: Duration,
    preempted: i64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.events * self.threads as u64;
        let each = |time: &Duration| time.as_nanos() as f64 / events as f64;
        write!(
            f,
            r#"{{"ns_per_event": {:.4}, "cpu_ns_per_event": {:.4}, "events": {events}, "threads": {}, "preempted": {}}}"#,
            each(&self.wall),
            each(&self.cpu),
            self.threads,
            self.preempted,
        )
    }
}

/// Calls `record` with the fields of payload A, `events` times.
#[inline(always)]
pub(crate) fn each_a(events: u64, mut record: impl FnMut(u32, u64)) {
    for i in 0..events {
        let number = opaque(i);
        record(number as u32, number ^ 0x5555_5555_5555_5555);
    }
}

/// Calls `record` with the fields of payload B, `events` times.
#[inline(always)]
pub(crate) fn each_b(events: u64, mut record: impl FnMut(u32, u64, &'static str)) {
    let strings: &'static [&'static str; 4] = black_box(&STRINGS);
    for i in 0..events {
        let number = opaque(i);
        record(number as u32, number ^ 0x5555_5555_5555_5555, strings[(number % 4) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Job> {
        Job::parse(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        let job = parse(&["b", "12", "0,3"]).unwrap();
        assert_eq!(job, Job { payload: Payload::B, events: 12, cpus: vec![0, 3] });
        for wrong in [&["c", "12", "0"][..], &["a", "0", "0"], &["a", "12", ""], &["a", "12"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn payloads_are_what_they_are_called() {
        let mut seen = Vec::new();
        each_a(2, |number, value| seen.push((number, value)));
        assert_eq!(seen, [(0, 0x5555_5555_5555_5555), (1, 0x5555_5555_5555_5554)]);
        each_b(8, |_, _, text| assert_eq!(text.len(), 16));
    }

    #[test]
    fn the_line_is_json_with_means_over_threads() {
        let wall = Duration::from_nanos(80);
        let sample = Sample { threads: 2, events: 4, wall, cpu: wall / 2, preempted: 1 };
        let expected = r#"{"ns_per_event": 10.0000, "cpu_ns_per_event": 5.0000, "events": 8, "threads": 2, "preempted": 1}"#;
        assert_eq!(sample.to_string(), expected);
    }
}
