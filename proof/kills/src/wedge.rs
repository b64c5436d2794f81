//! Writers of a shared session are killed in a tight loop; after each kill another process records
//! on the same CPU.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::child::{NUMBERED, Page, SURVIVOR};
use super::{PAUSE, RESERVATIONS, judge, start};
use lastwords_testkit::random::{Random, mix};
use rig::process::{Killed, wait_until};
use rig::scratch::{self, Scratch};

/// Kills of the part that CI runs, for each reservation.
const QUICK: u64 = 40;
/// The survivor's rounds before the first kill, for comparison.
const CALM: usize = 50;
/// A round of the survivor may take this much longer than in calm, at the median.
const SLOWER: f64 = 3.0;
/// No round may take longer: its loop would be blocked, not preempted.
const LONGEST: Duration = Duration::from_millis(500);

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Kills for each reservation
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// Do the same to LTTng-UST, whose daemon is started and stopped for that
    #[arg(long)]
    lttng: bool,
    /// Begin from this seed; by default the clock's
    #[arg(long)]
    seed: Option<u64>,
    /// The part that CI runs
    #[arg(long)]
    quick: bool,
}

/// Kills writers; an error if what another process records behind a kill is not all recovered, or
/// takes too long.
pub(crate) fn run(args: &Args) -> Result<()> {
    let seed = args.seed.unwrap_or_else(rig::clock_seed);
    let count = if args.quick { args.count.min(QUICK) } else { args.count };
    let place = Scratch::in_memory("lastwords-wedge")?;
    println!(
        "{:<10} {:>6} {:>12} {:>12} {:>10} {:>10} {:>10} {:>7}",
        "", "kills", "killed wrote", "recovered", "calm ns", "median ns", "worst us", "s"
    );
    for reservation in RESERVATIONS {
        wedge_one(place.path(), reservation, count, seed)
            .with_context(|| format!("{reservation}: --seed {seed}"))?;
    }
    println!(
        "seed {seed}: behind every kill, all events of another process on that CPU were recovered"
    );
    if args.lttng { wedge_lttng(count) } else { Ok(()) }
}

/// Does the same to LTTng-UST, by the rig that has the peers.
fn wedge_lttng(count: u64) -> Result<()> {
    let program = rig::programs::rig("bench")?;
    let status = Command::new(&program).args(["wedge", "--count", &count.to_string()]).status();
    let status = status.with_context(|| program.display().to_string())?;
    ensure!(status.success(), "LTTng-UST: {status}");
    Ok(())
}

fn wedge_one(place: &Path, reservation: &str, count: u64, seed: u64) -> Result<()> {
    let begun = Instant::now();
    let mut rng = Random(seed);
    let dir = Scratch::create(place, reservation)?;
    let page = Page::create()?;
    let reports = page.reports();
    let mut survivor = start("survivor", dir.path(), reservation, &page, seed, 0)?;
    wait_until(&mut survivor.0, PAUSE, || Ok(reports.ready.load(Acquire) == 1))?;
    let mut calm = Vec::new();
    for round in 0..CALM {
        calm.push(record(&mut survivor, &page, round as u32 % cpus())?);
    }
    let mut took = Vec::new();
    let mut recovered = 0;
    let mut in_flight = HashSet::new();
    for number in 0..count {
        let cpu = (number % u64::from(cpus())) as u32;
        kill_writer(dir.path(), reservation, &page, mix(seed ^ number), cpu, &mut rng)?;
        in_flight.extend(reports.writers[0].returned()..reports.writers[0].begun());
        took.push(record(&mut survivor, &page, cpu)?);
        let end = reports.writers[SURVIVOR].returned();
        let found = judge::recover(&scratch::only_folder(dir.path())?)
            .with_context(|| format!("kill {number}"))?;
        judge::has_newest(&found, SURVIVOR, end, NUMBERED)
            .with_context(|| format!("kill {number}, CPU {cpu}"))?;
        judge::judge(&found, reports, &in_flight).with_context(|| format!("kill {number}"))?;
        recovered += NUMBERED;
    }
    let each = |times: &[Duration]| median(times).as_nanos() as f64 / NUMBERED as f64;
    let worst = took.iter().max().copied().unwrap_or_default();
    println!(
        "{reservation:<10} {count:>6} {:>12} {recovered:>12} {:>10.0} {:>10.0} {:>10} {:>7.1}",
        reports.writers[0].returned(),
        each(&calm),
        each(&took),
        worst.as_micros(),
        begun.elapsed().as_secs_f64()
    );
    ensure!(worst < LONGEST, "a round of {NUMBERED} events took {} ms", worst.as_millis());
    let slower = each(&took) / each(&calm).max(1.0);
    // Behind a kill the session's memory is cold: short rounds vary, a blocked recorder takes a
    // thousand times longer.
    ensure!(
        slower < SLOWER || each(&took) < 2000.0,
        "behind the kills recording is {slower:.1} times slower"
    );
    Ok(())
}

/// Lets a writer run for a moment on `cpu` and kills it.
fn kill_writer(
    dir: &Path,
    reservation: &str,
    page: &Page,
    seed: u64,
    cpu: u32,
    rng: &mut Random,
) -> Result<()> {
    let ready = page.reports().ready.load(Acquire);
    let mut writer = start("tight", dir, reservation, page, seed, cpu)?;
    wait_until(&mut writer.0, PAUSE, || Ok(page.reports().ready.load(Acquire) > ready))?;
    std::thread::sleep(Duration::from_micros(rng.below(1500)));
    writer.kill()
}

/// Has the survivor record a round on `cpu`; returns how long it took.
fn record(survivor: &mut Killed, page: &Page, cpu: u32) -> Result<Duration> {
    let reports = page.reports();
    reports.cpu.store(cpu, Relaxed);
    let asked = reports.asked.fetch_add(1, Release) + 1;
    wait_until(&mut survivor.0, PAUSE, || Ok(reports.done.load(Acquire) == asked))?;
    Ok(Duration::from_nanos(reports.took.load(Acquire)))
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}
