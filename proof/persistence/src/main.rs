//! `cargo xtask persistence`: what a loss of power may leave of a session in persistent memory, at
//! every flush and fence.
//!
//! The recorder runs in this process on a file that stands for persistent memory. It reports each
//! flush and fence here ([`lastwords_ring::flush::watch`]). At each of them, memories are made that
//! a loss of power may leave there ([`memory`]); each is recovered by the product's reader and
//! judged ([`judge`]): every event that the policy has persisted is there with its values, and none
//! is invented; the same of what was added to counters ([`numbers`]). Mistakes that must be found
//! are seeded ([`fault`]).
#![deny(unsafe_code)]

mod fault;
mod judge;
#[allow(unsafe_code)]
mod mapped;
mod memory;
mod numbers;

use std::process::{Command, ExitCode};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use lastwords::{ChannelConfig, Context, Memory as Backend, Persist, Reservation, Session, event};
use lastwords_ring::flush::{self, Op};

use fault::{Fault, Faulty};
use judge::{Geometry, Truth, check, filler};
use lastwords_testkit::random::{Random, mix};
use memory::Memory;
use numbers::Addition;
use rig::scratch::Scratch;

#[derive(Debug, Clone, Parser)]
#[command(
    bin_name = "cargo xtask persistence",
    about = "Make what a loss of power may leave in persistent memory, at every flush and fence of the recorder, and recover it"
)]
struct Args {
    /// Memories in all
    #[arg(long, default_value_t = 1_000_000)]
    images: u64,
    /// Begin from this seed; by default the clock's
    #[arg(long)]
    seed: Option<u64>,
    /// Run this scenario alone, by its number
    #[arg(long)]
    scenario: Option<usize>,
    /// Seed a mistake, which must be found: then the command fails
    #[arg(long, value_enum, default_value = "none")]
    fault: Fault,
    /// Only seed the mistakes, each in its turn; the command fails if one is not found
    #[arg(long)]
    faults: bool,
    /// The part that CI runs: some memories, and every mistake
    #[arg(long, conflicts_with_all = ["images", "scenario", "fault", "faults"])]
    quick: bool,
}

/// A way to record.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    persist: Persist,
    reservation: Reservation,
    geometry: Geometry,
    /// One in so many flushes and fences is interrupted by another event, as by a signal; 0 for
    /// none.
    nested: u64,
}

const fn row(persist: Persist, reservation: Reservation, nested: u64) -> Scenario {
    Scenario { persist, reservation, geometry: (4, 1024), nested }
}

const SCENARIOS: &[Scenario] = &[
    row(Persist::Event, Reservation::Locked, 0),
    row(Persist::Event, Reservation::Lockless, 0),
    row(Persist::Event, Reservation::Lockless, 6),
    row(Persist::SubBuffer, Reservation::Locked, 0),
    row(Persist::SubBuffer, Reservation::Lockless, 0),
    row(Persist::SubBuffer, Reservation::Rseq, 0),
];
/// Memories of one flush or fence, and of one where few are asked for.
const EACH: (usize, usize) = (96, 12);
/// A line is printed for each so many memories.
const PROGRESS: u64 = 100_000;
/// Up to so many memories are few.
const FEW: u64 = 100_000;
/// Events of one session.
const EVENTS: u64 = 120;
/// Memories of CI, and with a mistake until it must be found.
const QUICK: u64 = 24_000;
const FAULTY: u64 = 60_000;

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

/// Runs the scenarios in turn; an error if an event was lost, torn or invented.
fn run(args: &Args) -> Result<()> {
    if args.faults {
        return find_all();
    }
    if args.quick {
        record_and_judge(&Args { images: QUICK, ..args.clone() })?;
        return find_all();
    }
    record_and_judge(args)
}

/// Runs the scenarios in turn until there are as many memories as are asked for.
fn record_and_judge(args: &Args) -> Result<()> {
    let seed = args.seed.unwrap_or_else(rig::clock_seed);
    let begun = Instant::now();
    let mut all = Counts::default();
    let each = if args.images <= FEW { EACH.1 } else { EACH.0 };
    let chosen: Vec<usize> =
        args.scenario.map_or_else(|| (0..SCENARIOS.len()).collect(), |one| vec![one]);
    for round in 0.. {
        for at in &chosen {
            let scenario = SCENARIOS
                .get(*at)
                .with_context(|| format!("scenarios are 0 to {}", SCENARIOS.len() - 1))?;
            if all.images >= args.images {
                println!(
                    "{} memories at {} flushes and fences of {} events: none lost, none torn, none invented; {:.0} s; seed {seed}",
                    all.images,
                    all.ops,
                    all.events,
                    begun.elapsed().as_secs_f64()
                );
                return Ok(());
            }
            let round_seed = mix(seed ^ mix(round));
            let most = (args.images - all.images).min(args.images.div_ceil(chosen.len() as u64));
            let done = session(scenario, args.fault, round_seed, (each, most));
            let before = all.images;
            all.add(done.with_context(|| format!("scenario {at}: {scenario:?}, --seed {seed}"))?);
            if before / PROGRESS != all.images / PROGRESS {
                println!("{} memories, {:.0} s", all.images, begun.elapsed().as_secs_f64());
            }
        }
    }
    Ok(())
}

/// Seeds each mistake in a process of its own, because the first error ends a session at any place.
fn find_all() -> Result<()> {
    for fault in fault::ALL {
        let name = clap::ValueEnum::to_possible_value(&fault).context("its name")?;
        let mut command = Command::new(rig::own_program());
        command.args(["--seed", "1", "--images", &FAULTY.to_string(), "--fault", name.get_name()]);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let found = !output.status.success()
            && ["LOST", "TORN", "INVENTED"].iter().any(|word| said.contains(word));
        ensure!(
            found,
            "the mistake {} was not found in {FAULTY} memories:\n{said}",
            name.get_name()
        );
        let line = said.lines().last().unwrap_or_default();
        println!("{:<14} found: {line}", name.get_name());
    }
    Ok(())
}

/// Figures.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    images: u64,
    ops: u64,
    events: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.images += other.images;
        self.ops += other.ops;
        self.events += other.events;
    }
}

/// The state of the session that records.
struct State {
    scenario: Scenario,
    fault: Fault,
    rng: Random,
    /// Memories of one flush or fence.
    each: usize,
    /// Address of the memory, once its back-end has cleared it.
    base: usize,
    memory: Option<Memory>,
    faulty: Option<Faulty>,
    /// Events are recorded: losses of power are tried.
    records: bool,
    truth: Truth,
    counts: Counts,
    /// Events that interrupt others at the moment.
    depth: u32,
    error: Option<anyhow::Error>,
}

/// The session that records: one at a time, by one thread.
static STATE: Mutex<Option<State>> = Mutex::new(None);

fn state() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records in one session and tries losses of power.
fn session(
    scenario: &Scenario,
    fault: Fault,
    seed: u64,
    (each, most): (usize, u64),
) -> Result<Counts> {
    // All events are in the ring of one CPU.
    rig::workers::pin()?;
    flush::watch(watched);
    let dir = Scratch::create(&std::env::temp_dir(), "lastwords-persistence")?;
    *state() = Some(State {
        scenario: *scenario,
        fault,
        rng: Random(seed),
        each,
        base: 0,
        memory: None,
        faulty: None,
        records: false,
        truth: Truth::default(),
        counts: Counts::default(),
        depth: 0,
        error: None,
    });
    let channel = ChannelConfig::new("main").sub_buffers(scenario.geometry.0, scenario.geometry.1);
    let builder = Session::builder("persistence")
        .dir(dir.path())
        .channel(channel.contexts(Context::NONE))
        .listen(false);
    let memory = Backend::Dax { path: dir.path().join("pmem"), reuse: false };
    let builder =
        builder.backend(memory).spans(0).registry_size(4096).reservation(scenario.reservation);
    let [counters, histograms] = numbers::room(scenario.nested);
    let builder = builder.counters(counters).histograms(histograms);
    let session = builder.persist(scenario.persist).start()?;
    with(|state| {
        let len = state.memory.as_ref().map_or(0, Memory::len);
        state.faulty = Some(Faulty::new(state.fault, &state.now(len)));
        state.records = true;
    });
    for _ in 0..EVENTS {
        record();
        if state().as_ref().is_none_or(|state| state.error.is_some() || state.counts.images >= most)
        {
            break;
        }
    }
    with(|state| state.records = false);
    session.remove();
    let State { counts, error, .. } = state().take().context("the state")?;
    match error {
        Some(error) => Err(error),
        None => Ok(counts),
    }
}

fn with(change: impl FnOnce(&mut State)) {
    if let Some(state) = state().as_mut() {
        change(state);
    }
}

/// Records the next event, and makes the addition that goes with it.
fn record() {
    let (mut number, mut nested) = (0, 0);
    with(|state| {
        nested = state.scenario.nested;
        number = state.truth.returned.len() as u64;
        state.truth.returned.push(false);
        state.counts.events += 1;
    });
    event!(
        persistence,
        "step",
        number = number,
        check = check(number),
        filler = filler(number).as_slice()
    );
    with(|state| {
        state.truth.returned[number as usize] = true;
        state.look();
        state.lose_power();
    });
    let addition = Addition::new(number, nested);
    let mut at = 0;
    with(|state| {
        at = state.truth.numbers.all.len();
        state.truth.numbers.all.push((addition, false));
    });
    addition.make();
    with(|state| {
        state.truth.numbers.all[at].1 = true;
        state.look();
        state.lose_power();
    });
}

/// Called by the recorder before each flush and fence.
fn watched(op: Op) {
    let mut interrupts = false;
    with(|state| {
        state.step(op);
        let (nested, depth) = (state.scenario.nested, state.depth);
        interrupts = state.records
            && nested > 0
            && depth < 2
            && state.error.is_none()
            && state.rng.one_in(nested);
        state.depth += u32::from(interrupts);
    });
    if interrupts {
        record();
        with(|state| state.depth -= 1);
    }
}

impl State {
    /// The memory as the processor sees it.
    fn now(&self, len: usize) -> Vec<u8> {
        mapped::copy(self.base, len)
    }

    /// Takes note of what was stored.
    fn look(&mut self) {
        let len = self.memory.as_ref().map_or(0, Memory::len);
        let now = self.now(len);
        if let Some(memory) = &mut self.memory {
            memory.observe(&now);
        }
    }

    fn step(&mut self, op: Op) {
        if self.memory.is_none() {
            // The first flush is that of the whole memory, when it is cleared.
            if let Op::Flush { start, len } = op {
                self.base = start;
                self.memory = Some(Memory::new(&self.now(len)));
            }
            return;
        }
        self.look();
        if self.records {
            self.counts.ops += 1;
            self.lose_power();
        }
        let (Some(memory), faulty) = (&mut self.memory, &mut self.faulty) else { return };
        match op {
            Op::Flush { start, len } => {
                let at = start.wrapping_sub(self.base);
                let range = at..at.wrapping_add(len);
                let range =
                    faulty.as_mut().map_or(Some(range.clone()), |faulty| faulty.flush(range));
                range.into_iter().for_each(|range| memory.flush(range));
            }
            Op::Fence => {
                let (is_one, late) = faulty.as_mut().map_or((true, Vec::new()), Faulty::fence);
                if is_one {
                    memory.fence();
                }
                late.into_iter().for_each(|range| memory.flush(range));
            }
        }
    }

    /// Makes memories that a loss of power may leave now, and judges them.
    fn lose_power(&mut self) {
        let Self {
            scenario,
            fault,
            rng,
            each,
            memory: Some(memory),
            faulty: Some(faulty),
            truth,
            counts,
            error,
            ..
        } = self
        else {
            return;
        };
        if error.is_some() {
            return;
        }
        let promised = truth.promised(scenario.persist, scenario.geometry);
        memory.images(
            *each,
            rng,
            |at| faulty.is_copied(at),
            |image| {
                if error.is_none() {
                    counts.images += 1;
                    let judged = truth.judge(&image, scenario.persist, &promised);
                    let place = format!("event {}, memory {}", truth.returned.len(), counts.images);
                    // A seeded mistake needs no look at what it left.
                    let place = || {
                        if *fault == Fault::None {
                            format!("{place}, kept in {}", kept(&image))
                        } else {
                            place.clone()
                        }
                    };
                    *error = judged.err().map(|error| error.context(place()));
                }
            },
        );
    }
}

/// Keeps a memory for people to look at; returns where.
fn kept(image: &[u8]) -> String {
    let path =
        std::env::temp_dir().join(format!("lastwords-persistence.{}.image", std::process::id()));
    match std::fs::write(&path, image) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("no file ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_kept_whatever_reaches_memory_and_a_mistake_is_found() {
        let mut counts = Counts::default();
        for scenario in SCENARIOS {
            counts.add(session(scenario, Fault::None, 1, (12, 400)).unwrap());
        }
        assert!(counts.images > 1000);
        for fault in [Fault::Data, Fault::Mark, Fault::Fence, Fault::MarkFirst] {
            let error = session(&SCENARIOS[0], fault, 1, (12, 4000)).unwrap_err();
            let said = format!("{error:#}");
            assert!(
                ["LOST", "TORN", "INVENTED"].iter().any(|word| said.contains(word)),
                "{fault:?}: {said}"
            );
        }
    }
}
