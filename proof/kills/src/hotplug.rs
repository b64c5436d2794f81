//! Processes that record are killed while CPUs are taken offline and brought online; run in a guest
//! by `cargo xtask hotplug`.
//!
//! Rings are large enough for all that a child records, so that every event that was reported must
//! be recovered.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::child::{Page, Reports, THREADS};
use super::{PAUSE, RESERVATIONS, judge, keep};
use lastwords_testkit::random::{Random, mix};
use rig::process::{Killed, wait_until};
use rig::scratch::{self, Scratch};

/// Bytes of a sub-buffer: eight of them take more than [`MOST`] events of some 70 bytes.
const SUB_BUFFER: u64 = 4 << 20;
/// A child that has recorded as many events is killed, however often CPUs came and went.
const MOST: u64 = 300_000;
/// Rest of a thread between bursts, microseconds.
const REST: u64 = 300;
/// Most changes before a child is killed.
const CHANGES: u64 = 6;

/// Most kills, as a multiple of those that were asked for.
const MORE: u64 = 4;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Kills in all
    #[arg(long, default_value_t = 90)]
    count: u64,
    /// Begin from this seed; by default the clock's
    #[arg(long)]
    seed: Option<u64>,
}

/// Figures of a reservation.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    judged: judge::Sum,
    /// Times that a CPU was taken offline or brought online while a child recorded.
    changes: u64,
    /// Events in rings of CPUs that were offline when their session began.
    late: u64,
    /// Children that were killed while some CPU was offline.
    short: u64,
}

impl Sum {
    /// Returns true if CPUs came and went while children recorded, and events are in rings of those
    /// that came late; or if there was no child.
    fn shows(&self) -> bool {
        self.judged.rounds == 0 || (self.changes > self.judged.rounds && self.late > 0)
    }
}

/// Kills and recovers, on the machine that runs this; an error if an event was lost, torn, invented
/// or out of its order.
pub(crate) fn run(args: &Args) -> Result<()> {
    let seed = args.seed.unwrap_or_else(rig::clock_seed);
    let begun = Instant::now();
    let machine = Machine::of_this()?;
    let place = Scratch::in_memory("lastwords-hotplug")?;
    println!(
        "CPUs that can be taken offline: {:?}, offline now: {:?}",
        machine.cpus,
        names(machine.offline()?)
    );
    let mut sums = RESERVATIONS.map(|_| Sum::default());
    let mut kills = 0;
    // A machine that is busy may run no thread on a CPU that came late: then there are more kills,
    // until one does.
    for number in 0..args.count.saturating_mul(MORE) {
        let which = (number % RESERVATIONS.len() as u64) as usize;
        if number >= args.count && sums[which].shows() {
            continue;
        }
        kills += 1;
        let round = kill_one(
            &machine,
            place.path(),
            RESERVATIONS[which],
            mix(seed ^ mix(number)),
            number == 0,
        );
        let round = round
            .with_context(|| format!("kill {number}, {}: --seed {seed}", RESERVATIONS[which]))?;
        let sum = &mut sums[which];
        sum.judged.add(&round.judged);
        sum.changes += round.changes;
        sum.late += round.late;
        sum.short += round.short;
    }
    machine.restore()?;
    println!(
        "{:<10} {:>6} {:>8} {:>14} {:>10} {:>10} {:>12} {:>10} {:>8}",
        "",
        "kills",
        "changes",
        "while offline",
        "committed",
        "recovered",
        "on late CPUs",
        "in-flight",
        "refused"
    );
    for (name, sum) in RESERVATIONS.iter().zip(&sums) {
        let Sum { judged, changes, late, short } = sum;
        println!(
            "{name:<10} {:>6} {changes:>8} {short:>14} {:>10} {:>10} {late:>12} {:>10} {:>8}",
            judged.rounds, judged.committed, judged.recovered, judged.in_flight, judged.refused
        );
        ensure!(
            sum.shows(),
            "{name}: {changes} changes of CPUs, {late} events on CPUs that came late: nothing is shown"
        );
    }
    println!(
        "{} kills in {:.0} s, seed {seed}: none lost, none torn, none invented, each thread's order kept",
        kills,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// One child: it begins while CPUs are offline, others go while it records, it is killed, recovered
/// and judged. `as_it_is`: it begins with the CPUs that the machine has online now.
fn kill_one(
    machine: &Machine,
    place: &Path,
    reservation: &str,
    seed: u64,
    as_it_is: bool,
) -> Result<Sum> {
    let mut rng = Random(seed);
    if !as_it_is {
        let away = rng.below(machine.cpus.len() as u64) as usize;
        for (index, &cpu) in machine.cpus.iter().enumerate() {
            machine.set(cpu, index != away)?;
        }
    }
    let absent = machine.offline()?;
    let dir = Scratch::create(place, "storm")?;
    let page = Page::create()?;
    let mut command = super::command("storm", dir.path(), reservation, &page, seed, 0);
    command.args(["--sub-buffer", &SUB_BUFFER.to_string(), "--rest", &REST.to_string()]);
    let mut child = Killed(command.spawn().context("cannot start a child")?);
    wait_until(&mut child.0, PAUSE, || Ok(page.reports().ready.load(Acquire) >= THREADS as u32))?;
    let changes = while_cpus_change(machine, absent, rng.bits(), |changes| {
        let wanted = 1 + rng.below(CHANGES);
        wait_until(&mut child.0, PAUSE, || {
            Ok(changes() >= wanted || recorded(page.reports()) > MOST)
        })?;
        // The next change has begun: the kill may come in the midst of it.
        std::thread::sleep(Duration::from_micros(rng.below(20_000)));
        child.kill()
    })?;
    let short = u64::from(machine.offline()? != 0);
    let judged = scratch::only_folder(dir.path())
        .and_then(|folder| judge::recover(&folder))
        .and_then(|recovered| {
            ensure!(
                recovered.has_all(),
                "the rings came round: {} events are too many",
                recorded(page.reports())
            );
            let judged = judge::judge(&recovered, page.reports(), &HashSet::new())?;
            Ok(Sum { judged, changes, late: recovered.on(absent), short })
        });
    judged.map_err(|error| keep(&dir, error))
}

/// Takes CPUs offline and brings them online, those of `first` before all others, until `work` is
/// done; how often. `work` can ask how often so far.
fn while_cpus_change(
    machine: &Machine,
    first: u64,
    seed: u64,
    work: impl FnOnce(&dyn Fn() -> u64) -> Result<()>,
) -> Result<u64> {
    let (stop, changes) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| -> Result<()> {
            let (mut rng, mut first) =
                (Random(seed), machine.cpus.iter().filter(|&&cpu| first >> cpu & 1 == 1));
            while !stop.load(Relaxed) {
                let any = machine.cpus[rng.below(machine.cpus.len() as u64) as usize];
                let cpu = first.next().copied().unwrap_or(any);
                machine.set(cpu, machine.offline()? >> cpu & 1 == 1)?;
                changes.fetch_add(1, Relaxed);
                std::thread::sleep(Duration::from_micros(rng.below(20_000)));
            }
            Ok(())
        });
        let done = work(&|| changes.load(Relaxed));
        stop.store(true, Relaxed);
        changer.join().map_err(|_| anyhow::anyhow!("who changes CPUs panicked"))??;
        done.map(|()| changes.load(Relaxed))
    })
}

/// Events that a child has begun to record.
fn recorded(reports: &Reports) -> u64 {
    reports.writers.iter().map(|writer| writer.begun()).sum()
}

/// The CPUs of this machine that can be taken offline.
#[derive(Debug)]
struct Machine {
    cpus: Vec<u32>,
    /// Those that were offline before, a bit for each.
    before: u64,
}

impl Machine {
    fn of_this() -> Result<Self> {
        let cpus: Vec<u32> = (1..64).filter(|&cpu| switch(cpu).exists()).collect();
        ensure!(
            !cpus.is_empty(),
            "no CPU of this machine can be taken offline: there is no {}",
            switch(1).display()
        );
        let mut machine = Self { cpus, before: 0 };
        machine.before = machine.offline()?;
        Ok(machine)
    }

    /// Those that are offline now, a bit for each.
    fn offline(&self) -> Result<u64> {
        let mut offline = 0;
        for &cpu in &self.cpus {
            let path = switch(cpu);
            let state =
                std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            offline |= u64::from(state.trim() == "0") << cpu;
        }
        Ok(offline)
    }

    fn set(&self, cpu: u32, online: bool) -> Result<()> {
        if (self.offline()? >> cpu & 1 == 0) == online {
            return Ok(());
        }
        let path = switch(cpu);
        let word = if online { "1" } else { "0" };
        std::fs::write(&path, word).with_context(|| format!("{}: {word}", path.display()))
    }

    fn restore(&self) -> Result<()> {
        self.cpus.iter().try_for_each(|&cpu| self.set(cpu, self.before >> cpu & 1 == 0))
    }
}

/// Whose file takes a CPU offline and brings it online (Documentation/core-api/cpu_hotplug.rst).
fn switch(cpu: u32) -> PathBuf {
    format!("/sys/devices/system/cpu/cpu{cpu}/online").into()
}

/// The CPUs of a set.
fn names(set: u64) -> Vec<u32> {
    (0..64).filter(|cpu| set >> cpu & 1 == 1).collect()
}
