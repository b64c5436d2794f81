//! `cargo xtask shapes`: programs in Rust, C and C++ with random fields record in sessions of
//! random shapes, are killed, and every value that is recovered is compared with what the event's
//! number says it must be.
//!
//! A shape is a session's configuration and some events. [`shape`] makes shapes of a seed, [`rust`]
//! and [`c`] write programs that record them, [`build`] builds the programs, [`mod@run`] starts and
//! kills them and recovers. [`json`], [`lines`], [`perfetto`] and [`pages`] read what was
//! recovered, without code of the library, and [`judge`] compares.
#![forbid(unsafe_code)]

mod build;
mod c;
mod form;
mod found;
mod json;
mod judge;
mod lines;
mod pages;
mod perfetto;
mod run;
mod rust;
mod shape;
mod value;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;

use build::Programs;
use judge::Sum;
use rig::scratch::{self, Scratch};
use shape::Shape;

/// Shapes of CI.
const QUICK: u64 = 200;
/// Shapes whose programs are built together.
const BATCH: u64 = 200;

#[derive(Debug, Parser)]
#[command(
    bin_name = "cargo xtask shapes",
    about = "Record events of random fields in sessions of random shapes, kill, recover, and compare every value"
)]
struct Args {
    /// Shapes in all
    #[arg(long, default_value_t = QUICK)]
    count: u64,
    /// Begin from this seed; by default the clock's
    #[arg(long)]
    seed: Option<u64>,
    /// This shape of the seed alone
    #[arg(long, value_name = "NUMBER")]
    shape: Option<u64>,
    /// Go on after a shape that fails
    #[arg(long)]
    keep_going: bool,
    /// Build the programs and the library for speed
    #[arg(long)]
    release: bool,
}

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

/// Runs shapes; an error if an event was lost, invented, or has a value that was not recorded.
fn run(args: &Args) -> Result<()> {
    let seed = args.seed.unwrap_or_else(rig::clock_seed);
    println!("seed {seed}");
    let begun = Instant::now();
    let scratch = Scratch::in_memory("lastwords-shapes")?;
    let mut total = Total::default();
    let indices = match args.shape {
        Some(index) => index..index + 1,
        None => 0..args.count,
    };
    let mut from = indices.start;
    while from < indices.end {
        let to = (from + BATCH).min(indices.end);
        let shapes: Vec<Shape> = (from..to).map(|index| Shape::random(seed, index)).collect();
        let programs = Programs::build(&rig::root().join("target/shapes"), &shapes, args.release)?;
        let built = begun.elapsed();
        run_all(args, seed, &programs, &shapes, scratch.path(), &mut total)?;
        println!(
            "{to} shapes, {:.0} s (programs of the last ones after {:.0} s)",
            begun.elapsed().as_secs_f64(),
            built.as_secs_f64()
        );
        from = to;
    }
    println!("{total}");
    ensure!(
        total.failed.is_empty(),
        "{} shapes failed: {:?}, seed {seed}",
        total.failed.len(),
        total.failed
    );
    println!(
        "{} shapes in {:.0} s, seed {seed}: every value is right, none lost, none invented",
        indices.end - indices.start,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs shapes, one on each CPU.
fn run_all(
    args: &Args,
    seed: u64,
    programs: &Programs,
    shapes: &[Shape],
    folder: &Path,
    total: &mut Total,
) -> Result<()> {
    let cpus: Vec<u32> = rig::workers::allowed_cpus()?.into_iter().map(|cpu| cpu as u32).collect();
    let total = Mutex::new(total);
    let work = |number: u64| {
        let shape = &shapes[number as usize];
        let place = folder.join(format!("shape-{}", shape.index));
        let judged = run::run(programs, shape, &place, &cpus);
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        let is_right = judged.is_ok();
        match judged {
            Ok(sum) => total.add(shape, &sum),
            Err(error) => {
                total.failed.push(shape.index);
                println!("{:#}\n", describe(error, seed, shape, &place));
            }
        }
        drop(total);
        let _ = std::fs::remove_dir_all(&place);
        ensure!(is_right || args.keep_going, "shape {} failed, seed {seed}", shape.index);
        Ok(())
    };
    let threads = rig::workers::cpus().min(8);
    rig::workers::each(threads, 0..shapes.len() as u64, work).map(drop)
}

/// Adds to an error what a person needs to look into the failure. The folder stays.
fn describe(error: anyhow::Error, seed: u64, shape: &Shape, place: &Path) -> anyhow::Error {
    let kept = scratch::keep(place, &format!("lastwords-shape-{seed}-{}", shape.index));
    let kept = kept.unwrap_or_else(|| "nowhere".into());
    let mut classes = String::new();
    for (number, class) in shape.classes.iter().enumerate() {
        let fields: Vec<String> =
            class.fields.iter().map(|field| format!("{}: {:?}", field.name, field.form)).collect();
        classes +=
            &format!("\n    class {number}, {}: {}", shape.name_of(number), fields.join(", "));
    }
    error.context(format!(
        "shape {} FAILED; again: cargo xtask shapes --seed {seed} --shape {}; kept in {}\n    {}{classes}\n",
        shape.index,
        shape.index,
        kept.display(),
        shape.shown()
    ))
}

/// Figures of all shapes.
#[derive(Default)]
struct Total {
    sum: Sum,
    met: BTreeMap<String, u64>,
    failed: Vec<u64>,
}

impl Total {
    fn add(&mut self, shape: &Shape, sum: &Sum) {
        self.sum.events += sum.events;
        self.sum.values += sum.values;
        self.sum.refused += sum.refused;
        let mut names = vec![
            format!("{:?}", shape.language),
            format!("{:?}", shape.memory),
            shape.reservation.to_owned(),
            (if shape.discard { "discard" } else { "overwrite" }).to_owned(),
        ];
        names.extend(shape.formats.iter().map(|format| format!("to {}", format.name())));
        let flags = [
            (shape.every > 0, "signal handlers"),
            (shape.fill, "0xAA"),
            (!shape.pinned, "migrating"),
        ];
        names
            .extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_owned()));
        names.into_iter().for_each(|name| *self.met.entry(name).or_default() += 1);
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let met: Vec<String> =
            self.met.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(f, "{}", met.join(", "))?;
        write!(
            f,
            "{} events, {} values, {} events refused",
            self.sum.events, self.sum.values, self.sum.refused
        )
    }
}
