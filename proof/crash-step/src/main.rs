//! `cargo xtask crash-step`: a kill at every instruction of the recorder.
//!
//! A child records into shared memory and is stepped by ptrace, one instruction at a time. At each
//! stop the memory is what a kill at that instruction leaves. A plain reader recovers it, and an
//! oracle that knows what the child records and which calls have returned judges it: every
//! committed event is recovered exactly, none is invented, and each nesting level loses at most the
//! event in flight. The same is judged of counters and histograms.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod arena;
#[allow(unsafe_code)]
mod child;
mod counting;
#[allow(unsafe_code)]
mod drive;
#[allow(unsafe_code)]
mod fault;
mod lockless;
#[allow(unsafe_code)]
mod machine;
mod naive;
mod oracle;
mod read;
mod scenario;
mod sections;
#[allow(unsafe_code)]
mod tracee;
mod walker;
#[allow(unsafe_code)]
mod watch;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};

use drive::Run;
use fault::Fault;
use oracle::Tally;
use scenario::{Form, Plot, SCENARIOS, Scenario};

/// Kill the recorder at every instruction and recover what it leaves
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask crash-step", args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// Kill points in all
    #[arg(long, default_value_t = 3_000_000)]
    points: u64,
    /// Run this scenario alone (may be given several times)
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// Begin from this seed; by default the clock's
    #[arg(long)]
    seed: Option<u64>,
    /// The part that CI runs
    #[arg(long)]
    quick: bool,
    /// Seed a fault, which must be found: then the command fails
    #[arg(long, default_value = "none")]
    fault: Fault,
    /// Step this very build; without it, all but `--quick` steps a release build
    #[arg(long)]
    this_build: bool,
    /// Write the address (in the program's file) of every stop to this file
    #[arg(long, value_name = "FILE")]
    trace: Option<std::path::PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Part {
    /// The process that is stepped
    #[command(hide = true)]
    Child(child::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    rig::exit(match &args.part {
        Some(Part::Child(args)) => child::run(args),
        None => run(&args),
    })
}

/// From so many points on, what a scenario is for must have happened in it.
const PROVES: u64 = 12_000;
/// How many times as long a scenario goes on where what it is for did not happen.
const LONGER: u64 = 10;
/// Kill points of `--quick`.
const QUICK: u64 = 520_000;

/// Runs the scenarios; an error if an event was lost, torn or invented.
fn run(args: &Args) -> Result<()> {
    if args.quick || args.this_build { run_here(args) } else { run_release() }
}

/// The name of this program and of its package.
const PROGRAM: &str = "lastwords-proof-crash-step";

/// Builds for release and runs the same command there: what is stepped then is the code that ships.
fn run_release() -> Result<()> {
    let program = rig::programs::build(PROGRAM)?.join(PROGRAM);
    let status = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .arg("--this-build")
        .status()
        .with_context(|| program.display().to_string())?;
    if !status.success() {
        bail!("crash-step: {status}");
    }
    Ok(())
}

fn run_here(args: &Args) -> Result<()> {
    let chosen: Vec<&'static Scenario> = if args.scenario.is_empty() {
        SCENARIOS.iter().collect()
    } else {
        let find = |n: &String| {
            scenario::find(n).with_context(|| format!("no scenario `{n}`: {}", names()))
        };
        args.scenario.iter().map(find).collect::<Result<_>>()?
    };
    let seed = args.seed.unwrap_or_else(rig::clock_seed);
    let cpu = rig::workers::pin()? as u32;
    watch::begin();
    let points = if args.quick { args.points.min(QUICK) } else { args.points };
    let each = points.div_ceil(chosen.len() as u64);
    println!(
        "{:<22} {:>9} {:>9} {:>8} {:>8} {:>7} {:>9} {:>9} {:>7}",
        "scenario",
        "points",
        "recovered",
        "events",
        "refused",
        "rounds",
        "in-flight",
        "sections",
        "s"
    );
    let mut all = Total::default();
    for scenario in chosen {
        let mut run = Run::new(scenario, cpu, args.fault);
        run.trace = args
            .trace
            .as_ref()
            .map(std::fs::File::create)
            .transpose()?
            .map(std::io::BufWriter::new);
        let each = each.max(if each >= PROVES { scenario.least() } else { 0 });
        let proves = each >= PROVES && args.fault == Fault::None;
        let done = run_scenario(run, seed, each, proves);
        let (run, tally, rounds, took) =
            done.with_context(|| format!("scenario {}: --seed {seed}", scenario.name))?;
        print_row(&run, &tally, rounds, took);
        if proves {
            happened(&run, &tally)?;
        }
        all.add(&run, &tally);
    }
    println!(
        "{} kill points ({} stops), {} committed events: none lost, none torn, none invented; at most {} in flight lost",
        all.points, all.stops, all.events, all.in_flight
    );
    println!(
        "{} snapshots, {} holes of the dead reclaimed, {} sub-buffers passed over, {} events by threads whose sections failed",
        all.sum.swaps, all.sum.reclaimed, all.sum.passed, all.sum.unbound
    );
    println!("seed {seed}");
    if all.points < points {
        bail!("{} kill points, {points} were asked for", all.points);
    }
    Ok(())
}

#[derive(Default)]
struct Total {
    points: u64,
    stops: u64,
    events: u64,
    in_flight: usize,
    sum: Tally,
}

impl Total {
    fn add(&mut self, run: &Run, tally: &Tally) {
        self.points += run.points;
        self.stops += run.stops;
        self.events += tally.committed;
        self.in_flight = self.in_flight.max(tally.lost_in_flight);
        self.sum.add(tally);
    }
}

/// Rounds of a scenario until it has so many kill points; where what it is for did not happen by
/// then, for [`LONGER`] times as many.
fn run_scenario(
    mut run: Run,
    seed: u64,
    points: u64,
    proves: bool,
) -> Result<(Run, Tally, u32, Duration)> {
    let start = Instant::now();
    let window = (points / 4).clamp(1500, 8000) * run.scenario.patience();
    let mut sum = Tally::default();
    let mut rounds = 0;
    let lacks = |run: &Run, sum: &Tally| {
        proves && run.points < points * LONGER && happened(run, sum).is_err()
    };
    while run.points < points || lacks(&run, &sum) {
        let before = run.points;
        let round_seed =
            lastwords_testkit::random::mix(seed ^ lastwords_testkit::random::mix(rounds.into()));
        let tally = drive::round(&mut run, round_seed, window)
            .with_context(|| format!("round {rounds}"))?;
        sum.add(&tally);
        rounds += 1;
        if run.points == before {
            bail!("a round had no kill point");
        }
    }
    Ok((run, sum, rounds, start.elapsed()))
}

/// A scenario in which what it is for did not happen proves nothing.
fn happened(run: &Run, tally: &Tally) -> Result<()> {
    let scenario = run.scenario;
    let lockless = scenario.reservation == lastwords_abi::session::RESERVATION_LOCKLESS;
    let (what, count) = match scenario.plot {
        Plot::Swaps => ("snapshot", tally.swaps),
        Plot::Stalled => ("sub-buffer passed over", tally.passed),
        Plot::Dead if lockless && scenario.form != Form::Counters => {
            ("hole of the dead reclaimed", tally.reclaimed)
        }
        _ if !scenario.planned => ("event of a thread whose sections failed", tally.unbound),
        _ if scenario.mode == lastwords_abi::session::MODE_DISCARD => {
            ("event refused", tally.refused)
        }
        _ => ("event", tally.committed),
    };
    if count == 0 {
        bail!(
            "{}: no {what} in {} kill points: the scenario proves nothing",
            scenario.name,
            run.points
        );
    }
    Ok(())
}

fn print_row(run: &Run, tally: &Tally, rounds: u32, took: Duration) {
    let sections = match run.covered() {
        (0, 0) => "-".to_string(),
        (met, all) => format!("{met}/{all}"),
    };
    println!(
        "{:<22} {:>9} {:>9} {:>8} {:>8} {:>7} {:>9} {:>9} {:>7.1}",
        run.scenario.name,
        run.points,
        run.walks,
        tally.committed,
        tally.refused,
        rounds,
        tally.lost_in_flight,
        sections,
        took.as_secs_f64()
    );
}

fn names() -> String {
    SCENARIOS.iter().map(|s| s.name).collect::<Vec<_>>().join(", ")
}
