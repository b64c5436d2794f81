//! `cargo xtask kills`: kills processes with SIGKILL at random times, recovers their sessions, and
//! compares these with the events that the processes reported. Threads migrate between CPUs, and
//! nested signal handlers record. `cargo xtask wedge`: kills writers of a session that a user's
//! processes share, while the others go on. `cargo xtask hotplug`: kills processes while CPUs of a
//! guest are taken offline and brought online.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod child;
mod hotplug;
mod judge;
mod wedge;

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use child::{Page, THREADS};
use lastwords_testkit::random::{Random, mix};
use rig::process::{Killed, wait_until};
use rig::scratch::{self, Scratch};

/// Each reservation, in the order in which they take turns.
const RESERVATIONS: [&str; 3] = ["rseq", "lockless", "locked"];
/// Kills of `--quick`.
const QUICK: u64 = 300;
/// A child is asked again after this time whether it is ready.
const PAUSE: Duration = Duration::from_micros(50);

/// Kill processes that record, at random times, and recover what they leave
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask kills", args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// Kills in all; 20,000 take some five minutes
    #[arg(long, default_value_t = 20_000)]
    count: u64,
    /// Begin from this seed; by default the clock's
    #[arg(long)]
    seed: Option<u64>,
    /// This reservation alone
    #[arg(long, value_name = "NAME")]
    reservation: Option<String>,
    /// The part that CI runs
    #[arg(long)]
    quick: bool,
}

#[derive(Subcommand, Debug)]
enum Part {
    /// Kill writers of a shared session; what others record behind each kill must be there
    Wedge(wedge::Args),
    /// The part of `cargo xtask hotplug` that runs in the guest
    #[command(hide = true)]
    HotplugHere(hotplug::Args),
    /// A process that records and is killed
    #[command(hide = true)]
    Child(child::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    rig::exit(match &args.part {
        Some(Part::Wedge(args)) => wedge::run(args),
        Some(Part::HotplugHere(args)) => hotplug::run(args),
        Some(Part::Child(args)) => child::run(args),
        None => run(&args),
    })
}

/// Kills and recovers; an error if an event was lost, torn or invented.
fn run(args: &Args) -> Result<()> {
    let count = if args.quick { args.count.min(QUICK) } else { args.count };
    let seed = args.seed.unwrap_or_else(rig::clock_seed);
    let begun = Instant::now();
    let place = Scratch::in_memory("lastwords-kills")?;
    let mut sums = RESERVATIONS.map(|_| judge::Sum::default());
    let only = args.reservation.as_ref().map(|wanted| {
        let which = RESERVATIONS.iter().position(|name| name == wanted);
        which.with_context(|| format!("no reservation `{wanted}`: {}", RESERVATIONS.join(", ")))
    });
    let only = only.transpose()?;
    for number in 0..count {
        let which = only.unwrap_or((number % RESERVATIONS.len() as u64) as usize);
        let round = kill_one(place.path(), RESERVATIONS[which], mix(seed ^ mix(number)));
        let round = round
            .with_context(|| format!("kill {number}, {}: --seed {seed}", RESERVATIONS[which]))?;
        sums[which].add(&round);
        if number % 1000 == 999 {
            println!("{} kills, {:.0} s", number + 1, begun.elapsed().as_secs_f64());
        }
    }
    println!(
        "{:<10} {:>7} {:>12} {:>12} {:>10} {:>9} {:>8}",
        "", "kills", "committed", "recovered", "in-flight", "nested", "refused"
    );
    for (name, sum) in RESERVATIONS.iter().zip(&sums) {
        println!(
            "{name:<10} {:>7} {:>12} {:>12} {:>10} {:>9} {:>8}",
            sum.rounds, sum.committed, sum.recovered, sum.in_flight, sum.nested, sum.refused
        );
    }
    println!(
        "{count} kills in {:.0} s, seed {seed}: none lost, none torn, none invented",
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// One child, one kill, one recovery.
fn kill_one(place: &Path, reservation: &str, seed: u64) -> Result<judge::Sum> {
    let mut rng = Random(seed);
    let dir = Scratch::create(place, "storm")?;
    let page = Page::create()?;
    let mut child = start("storm", dir.path(), reservation, &page, seed, 0)?;
    let wanted = if rng.one_in(10) { 1 } else { THREADS as u32 };
    wait_until(&mut child.0, PAUSE, || Ok(page.reports().ready.load(Acquire) >= wanted))?;
    std::thread::sleep(Duration::from_micros(rng.below(4000)));
    child.kill()?;
    let judged = judge::recover(&scratch::only_folder(dir.path())?)
        .and_then(|recovered| judge::judge(&recovered, page.reports(), &HashSet::new()));
    judged.map_err(|error| keep(&dir, error))
}

/// Starts a child with a job.
fn start(
    job: &str,
    dir: &Path,
    reservation: &str,
    page: &Page,
    seed: u64,
    cpu: u32,
) -> Result<Killed> {
    let child = command(job, dir, reservation, page, seed, cpu).spawn();
    child.map(Killed).context("cannot start a child")
}

/// A child with a job, to which more can be said.
fn command(job: &str, dir: &Path, reservation: &str, page: &Page, seed: u64, cpu: u32) -> Command {
    let mut command = Command::new(rig::own_program());
    command.args(["child", "--job", job, "--reservation", reservation]).arg("--dir").arg(dir);
    command.args([
        "--fd",
        &page.fd().to_string(),
        "--seed",
        &seed.to_string(),
        "--cpu",
        &cpu.to_string(),
    ]);
    command.stdin(Stdio::null());
    command
}

/// Moves the folder that an error is about to where it stays.
fn keep(dir: &Scratch, error: anyhow::Error) -> anyhow::Error {
    match scratch::keep(dir.path(), &format!("lastwords-failed.{}", std::process::id())) {
        Some(kept) => error.context(format!("kept in {}", kept.display())),
        None => error,
    }
}
