//! Takes parts out of traces: sections and descriptions of trace.dat files, members of folders,
//! declarations and packets of CTF's metadata, packets of its streams, streams whose index stays,
//! pages of sessions, of LTTng's memory and of persistent rings, files of a kernel's description (a
//! folder with the files `region` and `kernel/`), files of a bundle (`region` and `bundle`, the
//! archive as it is or without its compression), the end of a file. What `lastwords` reads of the
//! rest is judged by what it reads of the whole. Each event must be there as it was, or with parts
//! that are unknown; and what is missing or unknown must be told by status 3 with `--strict`.
//!
//! ```text
//! cargo run --release -p lastwords-proof-remove -- TRACE... [--program PATH] [--images 200] [--seed N] [--image N]
//! ```
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use lastwords_testkit::random::Random;

mod judge;
mod parts;
mod quick;
mod read;

use judge::Verdict;
use parts::{Loss, Part};
use read::{Outcome, Whole};

/// Take parts out of traces, and judge what is read of the rest
#[derive(Clone, Parser)]
#[command(bin_name = "cargo xtask remove")]
struct Args {
    /// Files and folders that `lastwords` reads
    #[arg(required_unless_present = "quick")]
    traces: Vec<PathBuf>,
    /// The program `lastwords`
    #[arg(long, default_value = "target/debug/lastwords")]
    program: PathBuf,
    /// Images that are made of each trace
    #[arg(long, default_value_t = 200)]
    images: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// This image alone, which stays where it is printed
    #[arg(long)]
    image: Option<u64>,
    /// The part of CI: fewer images, of traces that are made here
    #[arg(long, conflicts_with_all = ["traces", "program", "images", "image"])]
    quick: bool,
}

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    if args.quick {
        return quick::run(args);
    }
    let right = args.traces.iter().map(|trace| all(args, trace)).collect::<Result<Vec<bool>>>()?;
    ensure!(right.iter().all(|right| *right), "what is left of a trace was not read as it must be");
    Ok(())
}

/// Makes the images of a trace. Returns true if all were read as they must be.
fn all(args: &Args, trace: &Path) -> Result<bool> {
    let begun = Instant::now();
    let whole = match read::read(&args.program, trace)? {
        Outcome::Read(whole) if !whole.is_lost && !whole.events.is_empty() => whole,
        Outcome::Read(whole) => {
            bail!("{}: {} events, and losses", trace.display(), whole.events.len())
        }
        Outcome::Refused(why) => bail!("{}: {why}", trace.display()),
    };
    let parts = parts::find(trace)?;
    println!("{}: {} events, {} parts", trace.display(), whole.events.len(), parts.len());
    let range = args.image.map_or(0..args.images, |image| image..image + 1);
    let count = range.end - range.start;
    let sum = Mutex::new((Verdict::default(), BTreeMap::<String, u64>::new()));
    let work = |number| {
        let (what, verdict) = one(args, trace, &whole, &parts, number)?;
        let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
        for wrong in verdict.wrong.iter().take(3).chain(&verdict.refused) {
            if rig::workers::times(&mut sum.1, wrong) <= 9 || args.image.is_some() {
                println!("  image {number} ({what}): {wrong}");
            }
        }
        sum.0.add(verdict);
        Ok(())
    };
    rig::workers::each(rig::workers::cpus(), range, work)?;
    let (sum, kinds) = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "  {count} images, {} events: {} with unknown parts, {} under unknown traces, {} missing and told; {} refused; {} wrong {kinds:?}; {:.0} s",
        sum.events,
        sum.partly,
        sum.unattributed,
        sum.missing,
        sum.refused.len(),
        sum.wrong.len(),
        begun.elapsed().as_secs_f64()
    );
    Ok(sum.wrong.is_empty())
}

/// Makes one image and judges it.
fn one(
    args: &Args,
    trace: &Path,
    whole: &Whole,
    parts: &[Part],
    number: u64,
) -> Result<(String, Verdict)> {
    let mut random = Random(
        args.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd134_2543_de82_ef95),
    );
    let (mut chosen, loss) = choose(parts, &mut random);
    parts::keep_indexes(&mut chosen);
    let names: Vec<&str> = chosen.iter().take(4).map(|part| part.name.as_str()).collect();
    let what = format!("{} parts, {loss:?}: {}", chosen.len(), names.join(", "));
    let room = tempfile::tempdir()?;
    let name = trace.file_name().context("a trace has a name")?;
    let copy = room.path().join(name);
    parts::copy_without(trace, &copy, &chosen, loss, &mut |end| random.below(end))?;
    let verdict = match read::read(&args.program, &copy)? {
        Outcome::Read(found) => judge::judge(whole, &found),
        Outcome::Refused(why) => judge::refused(&why, name),
    };
    if args.image.is_some() {
        println!("  {} stays", room.keep().display());
    }
    Ok((what, verdict))
}

/// Chooses the parts that are taken out: one, some, many; or the end of a file.
fn choose<'a>(parts: &'a [Part], random: &mut Random) -> (Vec<&'a Part>, Loss) {
    // A kernel's description has many more parts than the ring that it describes.
    let of_ring: Vec<&Part> = parts.iter().filter(|part| !part.is_of_description()).collect();
    let is_ring_alone = !of_ring.is_empty() && of_ring.len() < parts.len() && random.below(2) == 0;
    let parts: Vec<&Part> = if is_ring_alone { of_ring } else { parts.iter().collect() };
    let any = |random: &mut Random| parts[random.below(parts.len() as u64) as usize];
    let loss = if random.below(2) == 0 { Loss::Zero } else { Loss::Removed };
    match random.below(10) {
        0..=4 => (vec![any(random)], loss),
        5..=7 => ((0..2 + random.below(6)).map(|_| any(random)).collect(), loss),
        8 => {
            let share = 1 + random.below(60);
            (parts.iter().copied().filter(|_| random.below(100) < share).collect(), loss)
        }
        _ => (vec![any(random)], Loss::Cut),
    }
}
