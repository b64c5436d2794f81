//! How many sections are aborted, and what an event costs, when threads that record are preempted,
//! interrupted by signals, and moved; with the C library's area for restartable sequences and with
//! our own. Each row of the table is a process.

use std::fmt;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use lastwords::Reservation;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, gettid};

use crate::Result;
use crate::contenders::lastwords::session;
use crate::job::{cpus, each_a, pin};
use crate::sections::{
    SIGNALS, count_aborts, hide_known, interrupt_each, known_by_kernel, take_signals,
};

/// The registrar of a thread's area, and the area's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Area {
    /// The C library registers it, if it is glibc 2.35 or newer.
    Libc,
    /// The recorder registers 32 bytes.
    OwnFirst,
    /// The recorder registers as much as the kernel knows.
    Own,
}

impl Area {
    const ALL: [(&'static str, Self); 3] =
        [("libc", Self::Libc), ("own-32", Self::OwnFirst), ("own", Self::Own)];

    fn shown(self) -> String {
        match self {
            Self::Libc => "the C library's".into(),
            Self::OwnFirst => "own, 32 bytes".into(),
            Self::Own => format!("own, {} bytes", known_by_kernel()),
        }
    }

    /// Returns false if the recorder would register the 32 bytes that another row has.
    fn is_its_own(self) -> bool {
        self != Self::Own || known_by_kernel() > 32
    }
}

/// A disturbance of the threads that record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// One thread on one CPU, alone.
    None,
    /// Four threads for each CPU, on all CPUs.
    Preempted,
    /// A timer's signal each 100 microseconds.
    Signals,
    /// Another thread moves the one that records to the next CPU, each 200 microseconds.
    Moved,
    /// Two threads on one CPU, which give it up after each event.
    Yields,
}

impl Trouble {
    const ALL: [(&'static str, Self); 5] = [
        ("none", Self::None),
        ("preempted", Self::Preempted),
        ("signals", Self::Signals),
        ("moved", Self::Moved),
        ("yields", Self::Yields),
    ];

    fn threads(self, cpus: usize) -> usize {
        match self {
            Self::Preempted => 4 * cpus,
            Self::Yields => 2,
            _ => 1,
        }
    }

    /// Events of the whole row. A thread that gives up the CPU takes long.
    fn events(self, events: u64) -> u64 {
        if self == Self::Yields { events.div_ceil(100) } else { events }
    }
}

/// The row of a process.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    events: u64,
    aborted: u64,
    /// Switches to another thread, and signals.
    interruptions: u64,
    cpu: Duration,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_a_million = |count: u64| count as f64 * 1e6 / self.events as f64;
        write!(
            f,
            "{:.2} | {:.2} | {:.2}",
            of_a_million(self.interruptions),
            of_a_million(self.aborted),
            self.cpu.as_nanos() as f64 / self.events as f64
        )
    }
}

/// Prints the table. Each row records `events` events in all.
pub(crate) fn run(events: &str) -> Result<()> {
    let cpus = cpus()?.len();
    println!(
        "| threads are | area | interruptions in a million events | aborted sections in a million events | ns of CPU time an event |\n| --- | --- | --- | --- | --- |"
    );
    for (trouble, kind) in Trouble::ALL.iter().filter(|(_, t)| *t != Trouble::Moved || cpus > 1) {
        for (area, who) in Area::ALL.iter().filter(|(_, area)| area.is_its_own()) {
            let mut child = Command::new(std::env::current_exe()?);
            child.args(["aborts-here", trouble, area, events]);
            if *who != Area::Libc {
                child.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
            }
            let done = child.output()?;
            if !done.status.success() {
                return Err(String::from_utf8_lossy(&done.stderr).into());
            }
            let counted = String::from_utf8(done.stdout)?;
            println!("| {} | {} | {} |", shown(*kind), who.shown(), counted.trim_end());
        }
    }
    Ok(())
}

fn shown(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::None => "alone",
        Trouble::Preempted => "four for each CPU",
        Trouble::Signals => "interrupted by a signal each 100 µs",
        Trouble::Moved => "moved to another CPU each 200 µs",
        Trouble::Yields => "two on a CPU, which yield after each event",
    }
}

/// Records and prints the last columns of a row.
pub(crate) fn here(trouble: &str, area: &str, events: &str) -> Result<()> {
    let trouble = named(&Trouble::ALL, trouble)?;
    if named(&Area::ALL, area)? == Area::OwnFirst {
        hide_known()?;
    }
    let aborts = count_aborts()?;
    let _session = session(Reservation::Rseq)?.start()?;
    // The first events of a process take memory for the ring.
    record(10_000);
    let before = aborts.load(Ordering::Relaxed);
    let mut counted = disturbed(trouble, trouble.events(events.parse()?))?;
    counted.aborted = aborts.load(Ordering::Relaxed) - before;
    println!("{counted}");
    Ok(())
}

fn named<T: Copy>(all: &[(&str, T)], name: &str) -> Result<T> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, it)| *it).ok_or_else(|| format!("no row `{name}`").into())
}

/// The result of a thread that recorded.
type Thread = std::result::Result<Counted, Box<dyn std::error::Error + Send + Sync>>;

/// Records so many events in all, in threads that are disturbed.
fn disturbed(trouble: Trouble, events: u64) -> Result<Counted> {
    let cpus = cpus()?;
    let threads = trouble.threads(cpus.len());
    let each = (events / threads as u64).max(1);
    let start = Barrier::new(threads);
    let (mover, is_done) = (AtomicI32::new(0), AtomicBool::new(false));
    let one = || -> Thread {
        let is_pinned = matches!(trouble, Trouble::None | Trouble::Yields);
        let pinned = if is_pinned { pin(cpus[0]) } else { Ok(()) };
        // Also if pinning failed: the others wait here.
        start.wait();
        pinned?;
        take_signals(true)?;
        mover.store(gettid().as_raw(), Ordering::Release);
        let (switches, cpu) = (switches()?, clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?);
        if trouble == Trouble::Yields {
            (0..each).for_each(|_| {
                record(1);
                std::thread::yield_now();
            });
        } else {
            record(each);
        }
        let cpu = Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)? - cpu);
        let interruptions = self::switches()? - switches;
        Ok(Counted { events: each, interruptions, cpu, aborted: 0 })
    };
    if trouble == Trouble::Signals {
        // The kernel prefers the first thread, which only waits.
        take_signals(false)?;
        interrupt_each(100)?;
    }
    let rows = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let moving = (trouble == Trouble::Moved)
            .then(|| scope.spawn(|| keep_moving(&mover, &cpus, &is_done)));
        let rows: Vec<_> = started.into_iter().map(|thread| thread.join()).collect();
        is_done.store(true, Ordering::Release);
        moving.map_or(Ok(Ok(())), |thread| thread.join()).map(|moved| (rows, moved))
    });
    interrupt_each(0)?;
    let (rows, moved) = rows.map_err(|_| "the moving thread panicked")?;
    moved?;
    let mut sum = Counted::default();
    for row in rows {
        let row = row.map_err(|_| "a thread panicked")?.map_err(|error| error.to_string())?;
        sum.events += row.events;
        sum.interruptions += row.interruptions;
        sum.cpu += row.cpu;
    }
    sum.interruptions += SIGNALS.load(Ordering::Relaxed);
    Ok(sum)
}

/// Moves the thread to one CPU after the other until it is done.
fn keep_moving(thread: &AtomicI32, cpus: &[usize], is_done: &AtomicBool) -> nix::Result<()> {
    for cpu in cpus.iter().cycle() {
        if is_done.load(Ordering::Acquire) {
            break;
        }
        let (mut set, id) = (CpuSet::new(), thread.load(Ordering::Acquire));
        set.set(*cpu)?;
        // Before the thread has begun it has no id, and 0 is the caller's.
        if id != 0 {
            match sched_setaffinity(Pid::from_raw(id), &set) {
                // The thread has ended.
                Err(nix::Error::ESRCH) => break,
                moved => moved?,
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn record(events: u64) {
    each_a(events, |number, value| lastwords::event!(bench, "aborts", number, value));
}

fn switches() -> nix::Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let both = usage.involuntary_context_switches() + usage.voluntary_context_switches();
    Ok(both.unsigned_abs())
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn aborted_sections_are_counted() {
        if !lastwords::rseq_available() {
            return;
        }
        let aborts = count_aborts().unwrap();
        let _session = session(Reservation::Rseq).unwrap().start().unwrap();
        while aborts.load(Ordering::Relaxed) == 0 {
            disturbed(Trouble::Signals, 100_000).unwrap();
        }
        assert!(SIGNALS.load(Ordering::Relaxed) > 0);
    }
}
