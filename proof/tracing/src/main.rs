//! Programs of random shape record by `tracing` and the `log` crate, and are killed; every value,
//! name and span that is recovered is compared with what the seed says it must be.
//!
//! A shape is some dispatchers, some callsites and a script for each thread ([`shape`]). [`record`]
//! is the program: it makes the callsites, as the macros of `tracing` do ([`site`]), follows the
//! scripts and kills itself. [`model`] follows the same scripts and says what must be found, by the
//! rules of `tracing` alone. [`run`] starts the program and recovers, [`found`] reads what was
//! recovered, without code of the library, and [`judge`] compares.
//!
//! ```text
//! cargo run -p lastwords-proof-tracing -- --lastwords target/debug/lastwords --shapes 10000 --seed 1
//! ```
#![forbid(unsafe_code)]

mod found;
mod judge;
mod lines;
mod message;
mod model;
mod other;
mod perfetto;
mod record;
mod run;
mod shape;
mod site;
mod value;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use clap::{Parser, Subcommand};

use judge::Sum;
use rig::scratch::Scratch;
use shape::Shape;

/// Record random events of `tracing`, kill, recover, and compare every value
#[derive(Parser)]
#[command(bin_name = "cargo xtask tracing")]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// The program `lastwords`; by default the one beside this program
    #[arg(long)]
    lastwords: Option<PathBuf>,
    /// The program `babeltrace2`, version 2.1 or newer, which reads CTF; none is taken from PATH
    #[arg(long)]
    babeltrace: Option<PathBuf>,
    /// Shapes in all
    #[arg(long, default_value_t = 60)]
    shapes: u64,
    /// Begin from this seed; by default the clock's
    #[arg(long)]
    seed: Option<u64>,
    /// This shape of the seed alone
    #[arg(long, value_name = "NUMBER")]
    shape: Option<u64>,
    /// Go on after a shape that fails
    #[arg(long)]
    keep_going: bool,
    /// The part of CI: always the same 60 shapes, so that a change is judged by what it changes,
    /// and Babeltrace as `cargo xtask setup` has laid it out
    #[arg(long, conflicts_with_all = ["shapes", "seed", "shape", "babeltrace"])]
    quick: bool,
}

#[derive(Subcommand)]
enum Part {
    /// The program of one shape
    #[command(hide = true)]
    Record {
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        shape: u64,
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let mut args = Args::parse();
    if args.quick {
        (args.shapes, args.seed, args.babeltrace) =
            (60, Some(1), Some(rig::bin().join("babeltrace2.1")));
    }
    let done = match &args.part {
        Some(Part::Record { seed, shape, folder }) => {
            record::run(Shape::random(*seed, *shape), folder)
        }
        None => all(&args),
    };
    rig::exit(done)
}

/// Runs all shapes, one for each CPU at a time.
fn all(args: &Args) -> Result<()> {
    let seed = args.seed.unwrap_or_else(|| rig::clock_seed() % 1_000_000_007);
    println!("seed {seed}");
    let lastwords = match &args.lastwords {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("lastwords"),
    };
    ensure!(
        lastwords.is_file(),
        "no program {}: build it, or name it by --lastwords",
        lastwords.display()
    );
    let scratch = Scratch::in_memory("lastwords-proof-tracing")?;
    let begun = Instant::now();
    let range = args.shape.map_or(0..args.shapes, |shape| shape..shape + 1);
    let total = Mutex::new((Sum::default(), BTreeMap::<String, Vec<u64>>::new()));
    let work = |index| {
        let done = one(args, &lastwords, seed, index, scratch.path(), &total);
        if args.keep_going { Ok(()) } else { done }
    };
    let done = rig::workers::each(rig::workers::cpus(), range, work);
    drop(scratch);
    let (sum, failed) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    println!(
        "{} events, {} values, {} texts cut and marked; {:.0} s",
        sum.events,
        sum.values,
        sum.cut,
        begun.elapsed().as_secs_f64()
    );
    if failed.is_empty() {
        done?;
        println!("all shapes are right, seed {seed}");
        return Ok(());
    }
    for (what, shapes) in &failed {
        println!("{what}: {} shapes, such as {:?}", shapes.len(), &shapes[..shapes.len().min(8)]);
    }
    bail!("{} shapes failed, seed {seed}", failed.values().map(Vec::len).sum::<usize>())
}

/// Runs one shape; says what is wrong.
fn one(
    args: &Args,
    lastwords: &Path,
    seed: u64,
    index: u64,
    folder: &Path,
    total: &Mutex<(Sum, BTreeMap<String, Vec<u64>>)>,
) -> Result<()> {
    let shape = Shape::random(seed, index);
    let place = folder.join(format!("shape-{index}"));
    let done = run::run(lastwords, args.babeltrace.as_deref(), seed, &shape, &place);
    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match &done {
        Ok(sum) => {
            total.0.add(sum);
        }
        Err(error) => {
            let text: String = format!("{error:#}").chars().take(3000).collect();
            println!("shape {index} of seed {seed} FAILED: {text}\n    {}\n", shape.shown());
            // Failures of one kind begin with the same words.
            let kind = error.root_cause().to_string();
            let kind = kind.split([':', ',']).next().unwrap_or_default().to_owned();
            total.1.entry(kind).or_default().push(index);
        }
    }
    let _ = std::fs::remove_dir_all(&place);
    done.map(drop)
}
