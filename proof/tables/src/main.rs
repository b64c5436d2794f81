//! Judges data sets of crashes by programs that share nothing with lastwords: DuckDB, PyArrow and
//! Polars read the tables, and recompute them from `convert --to json`; trace-cmd and babeltrace2
//! print the events that awk counts.
//!
//! - *values*: stored cases and made traces are ingested, and each table is compared.
//! - *kills*: a run that is killed at a random time leaves nothing half, and the next one ends with
//!   the same data set as one that was not killed. Ingested again, each crash is there once.
//! - *damage*: inputs with flipped bytes and missing ends make no run panic, and no part unreadable.
//! - *fleet*: a thousand crashes of made hosts, programs, builds and times, some of them damaged, are
//!   ingested, and DuckDB's answers are what was made.
//! - *count*: a count of events by name and field by `report --filter`, by DuckDB on what is written,
//!   and by babeltrace2 and awk: equal counts, and the time that each takes.
//! - *figures*: rows a second into Arrow and Parquet, and bytes an event, beside CTF with zstd.
//!
//! ```text
//! cargo xtask tables [PART]... [--kills 40] [--mutants 60] [--events 2000000] [--seed N]
//! cargo xtask tables count --count 20000000 --program target/release/lastwords
//! ```
#![forbid(unsafe_code)]

mod child;
mod count;
mod damage;
mod fleet;
mod inputs;
mod kills;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use rig::scratch::Scratch;
use rig::wheel;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::rc::Rc;

/// The judge: a program in Python.
const JUDGE: &str = include_str!("judge.py");

/// Judge data sets of crashes by DuckDB, PyArrow, Polars, trace-cmd and babeltrace2
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask tables")]
struct Args {
    /// The parts to run; all by default
    parts: Vec<Part>,
    /// The program `lastwords`; by default the one that the tests have built, and to measure one that
    /// is built for release
    #[arg(long)]
    program: Option<PathBuf>,
    /// Runs that are killed
    #[arg(long, default_value_t = 40)]
    kills: u64,
    /// Damaged inputs
    #[arg(long, default_value_t = 60)]
    mutants: u64,
    /// Crashes of the fleet
    #[arg(long, default_value_t = 1000)]
    fleet: u64,
    /// Events of the traces that are measured
    #[arg(long, default_value_t = 2_000_000)]
    events: u64,
    /// Events of the trace in which events are counted
    #[arg(long, default_value_t = 600_000)]
    count: u64,
    /// A Python that has the wheel of lastwords and DuckDB: it counts, too
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Begin from this seed; by default the clock's
    #[arg(long)]
    seed: Option<u64>,
    /// The part that CI runs: less of all, and no figures
    #[arg(long)]
    quick: bool,
    /// Leave inputs and data sets in this folder, which must not exist
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Make the crashes of the fleet in this folder, which must not exist, and end
    #[arg(long, hide = true)]
    make_fleet: Option<PathBuf>,
    /// Record this many events into a session in this folder, and die
    #[arg(long, hide = true, num_args = 2)]
    record: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Compare each table with its recomputation
    Values,
    /// Kill runs at random times
    Kills,
    /// Ingest damaged inputs
    Damage,
    /// Ingest many crashes of a made fleet, and ask questions
    Fleet,
    /// Count events by name and field, by each program
    Count,
    /// Measure
    Figures,
}

/// What all parts use.
#[derive(Clone)]
struct Lab {
    program: PathBuf,
    room: Rc<Scratch>,
    judge: PathBuf,
    seed: u64,
}

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    if let Some([folder, events]) = args.record.as_deref() {
        return child::record(Path::new(folder), events.parse()?);
    }
    let seed = args.seed.unwrap_or_else(rig::clock_seed);
    println!("seed {seed}");
    let lab = Lab::new(args.program.clone(), seed)?;
    if let Some(folder) = &args.make_fleet {
        std::fs::create_dir(folder)?;
        return fleet::make(&lab, args.fleet, &folder.join("inputs"), &folder.join("truth.csv"));
    }
    let done = run_parts(args, &lab);
    match &args.keep {
        Some(folder) => std::fs::rename(lab.room.path(), folder).map_err(Into::into).and(done),
        None => done,
    }
}

/// Runs the parts that are wanted.
fn run_parts(args: &Args, lab: &Lab) -> Result<()> {
    let all = [Part::Values, Part::Kills, Part::Damage, Part::Fleet, Part::Count, Part::Figures];
    let is_wanted = |part: &Part| match args.parts.is_empty() {
        true => !args.quick || *part != Part::Figures,
        false => args.parts.contains(part),
    };
    let (kills, mutants, fleet, count) = match args.quick {
        true => (8, 20, 60, 60_000),
        false => (args.kills, args.mutants, args.fleet, args.count),
    };
    for part in all.iter().filter(|part| is_wanted(part)) {
        match part {
            Part::Values => values(lab)?,
            Part::Kills => kills::run(lab, kills)?,
            Part::Damage => damage::run(lab, mutants)?,
            Part::Fleet => fleet::run(lab, fleet)?,
            Part::Count => count::run(lab, count, args.python.as_deref())?,
            Part::Figures => figures(args, lab)?,
        }
    }
    Ok(())
}

impl Lab {
    fn new(program: Option<PathBuf>, seed: u64) -> Result<Self> {
        let target = rig::programs::target()?;
        let program = program.map_or_else(rig::programs::tested, Ok)?;
        for package in wheel::TABLES {
            package.install()?;
        }
        let room = Rc::new(Scratch::create(&target, "proof-tables")?);
        let judge = room.path().join("judge.py");
        std::fs::write(&judge, JUDGE)?;
        Ok(Self { program, room, judge, seed })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    fn lastwords(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("LASTWORDS_DIR", self.at("no-sessions"));
        command
    }

    /// Ingests inputs, and returns what the program wrote.
    fn ingest(&self, inputs: &[&Path], set: &Path, more: &[&str]) -> Result<Output> {
        let mut command = self.lastwords();
        command.arg("ingest").args(inputs).arg("--into").arg(set).args(more);
        Ok(command.output()?)
    }

    /// Runs a part of the judge, and prints what it says.
    fn judge(&self, part: &str, words: &[&Path]) -> Result<()> {
        let mut command = Command::new("python3");
        command.arg(&self.judge).arg(part).args(words);
        command.env("PYTHONPATH", wheel::python_path(&wheel::TABLES));
        command.env("LASTWORDS", &self.program);
        let status = command.status()?;
        ensure!(status.success(), "{}: {status}", rig::shown(&command));
        Ok(())
    }
}

/// Compares each table of each input.
fn values(lab: &Lab) -> Result<()> {
    let (folder, set) = (lab.at("inputs"), lab.at("set"));
    let inputs = inputs::make(lab, &folder)?;
    let paths: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    let ran = lab.ingest(&paths, &set, &[])?;
    let said = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), "ingest: {}\n{said}", ran.status);
    let words: Vec<&Path> = std::iter::once(set.as_path()).chain(paths).collect();
    lab.judge("values", &words)
}

/// Measures a release build, unless a program was named.
fn figures(args: &Args, lab: &Lab) -> Result<()> {
    let program = args.program.clone().map_or_else(rig::programs::lastwords, Ok)?;
    let lab = &Lab { program, ..lab.clone() };
    let folder = lab.at("figures");
    let inputs = inputs::large(lab, &folder, args.events)?;
    let words: Vec<&Path> =
        std::iter::once(folder.as_path()).chain(inputs.iter().map(PathBuf::as_path)).collect();
    lab.judge("figures", &words)
}
