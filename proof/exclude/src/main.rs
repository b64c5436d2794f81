//! Takes pages out of dumps of kernels, and judges what is read of the rest by what is read of the
//! whole dump. Each line must be there as it was, or with parts that are shown as unknown or raw;
//! under its array's name, or under one that says that the array is not known; each fact right or
//! unknown; and all that is missing in the account.
//!
//! ```text
//! cargo run --release -p lastwords-proof-exclude -- DUMP... [--images 200] [--seed N] [--image N] [--each] [--part perf]
//! ```
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum as _};
use lastwords_bytes::Budget;
use lastwords_image::unwatched;
use lastwords_image::vmcore::{self, Physical};
use lastwords_testkit::random::Random;

mod image;
mod judge;
mod read;

use image::{Loss, Noting, Without};
use judge::Verdict;
use read::{Part, Parts};

/// Take pages out of dumps, and judge what is read of the rest
#[derive(Parser)]
#[command(bin_name = "cargo xtask exclude")]
struct Args {
    /// Dumps of kernels
    #[arg(required_unless_present = "quick")]
    dumps: Vec<PathBuf>,
    /// Images that are made of each dump (200); with `--quick` of all dumps together (80)
    #[arg(long)]
    images: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// This image alone
    #[arg(long)]
    image: Option<u64>,
    /// Each page, left out and as zeros, in place of random sets; the costliest are printed
    #[arg(long)]
    each: bool,
    /// A part of the kernel, and the pages that no other part needs (may be given several times)
    #[arg(long)]
    part: Vec<Part>,
    /// The part of CI: images of the dumps that are kept beside the repository
    #[arg(long, conflicts_with_all = ["dumps", "image"])]
    quick: bool,
}

/// Images whose costs are printed.
const COSTS: usize = 20;

/// The dumps of `--quick`, and the tenths of its images that are made of each: page tables of five
/// levels, an aarch64's, one that is compressed, a new kernel's instances whose owners are not in
/// the dump.
const QUICK: &[(&str, u64)] = &[
    ("ftrace-6.12-basic/memory.elf.zst", 4),
    ("ftrace-6.12-arm64/memory.elf.zst", 2),
    ("ftrace-6.12-live-crash/makedumpfile-1.7.2-d31.kdump", 2),
    ("ftrace-7.3-instances-d31/makedumpfile-1.7.2-d31.kdump", 2),
];

/// A dump, and what is read of it.
struct Whole {
    physical: Physical,
    /// Bytes of the dump.
    size: u64,
    parts: Parts,
    /// The pages that were read.
    pages: Vec<u64>,
}

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let images = args.images.unwrap_or(if args.quick { 80 } else { 200 });
    let mut dumps: Vec<(PathBuf, u64)> =
        args.dumps.iter().map(|dump| (dump.clone(), images)).collect();
    if args.quick {
        let cases = rig::beside().join("cases");
        if !cases.is_dir() {
            println!("no crash cases beside the repository: nothing is taken out");
            return Ok(());
        }
        let part = |tenths: u64| (images * tenths).div_ceil(10);
        dumps.extend(QUICK.iter().map(|(dump, tenths)| (cases.join(dump), part(*tenths))));
    }
    let right = dumps
        .iter()
        .map(|(dump, images)| all(args, dump, *images))
        .collect::<Result<Vec<bool>>>()?;
    ensure!(right.iter().all(|right| *right), "what is left of a dump was not read as it must be");
    Ok(())
}

/// Makes the images of a dump. Returns true if all were read as they must be.
fn all(args: &Args, dump: &std::path::Path, images: u64) -> Result<bool> {
    let begun = Instant::now();
    let whole = whole(args, dump).with_context(|| dump.display().to_string())?;
    let images = if args.each { 2 * whole.pages.len() as u64 } else { images };
    let range = args.image.map_or(0..images, |image| image..image + 1);
    let count = range.end - range.start;
    let sum = Mutex::new((Verdict::default(), BTreeMap::<String, u64>::new(), Vec::new()));
    let work = |number| {
        let (what, verdict) = one(args, &whole, number);
        let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
        for wrong in &verdict.wrong {
            if rig::workers::times(&mut sum.1, wrong) <= 6 || args.image.is_some() {
                println!("  image {number} ({what}): {wrong}");
            }
        }
        sum.2.push((verdict.missing, format!("image {number} ({what})")));
        sum.0.add(verdict);
        Ok(())
    };
    rig::workers::each(rig::workers::cpus(), range, work)?;
    let (sum, kinds, mut costs) = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    if args.each {
        costs.sort_unstable();
        costs
            .iter()
            .rev()
            .take(COSTS)
            .for_each(|(lines, what)| println!("  {lines} lines cost {what}"));
    }
    println!(
        "  {count} images, {} lines: {} with unknown parts, {} under unknown arrays, {} missing and told; {} facts unknown; {} refused; {} wrong {kinds:?}; {:.0} s",
        sum.lines,
        sum.partly,
        sum.unattributed,
        sum.missing,
        sum.unknown,
        sum.refused,
        sum.wrong.len(),
        begun.elapsed().as_secs_f64()
    );
    Ok(sum.wrong.is_empty())
}

fn whole(args: &Args, dump: &std::path::Path) -> Result<Whole> {
    let physical = vmcore::open_physical(dump, &Budget::default(), &unwatched)?
        .context("no dump of a kernel")?;
    let size = std::fs::metadata(dump)?.len();
    let read = |parts: &[Part]| -> Result<_> {
        let noting = Arc::new(Noting::new(Arc::clone(&physical.image)));
        let read = read::parts(&physical, size, Arc::<Noting>::clone(&noting), parts)?;
        Ok((read, noting.pages()))
    };
    let is_chosen = |part: &Part| args.part.is_empty() || args.part.contains(part);
    let (chosen, others): (Vec<Part>, Vec<Part>) =
        Part::value_variants().iter().partition(|part| is_chosen(part));
    let ((machine, mut parts), mut pages) = read(&chosen)?;
    if !others.is_empty() {
        let others = read(&others)?.1;
        pages.retain(|page| !others.contains(page));
    }
    parts.retain(|_, arrays| arrays.iter().any(|array| !array.lines.is_empty()));
    println!("{}: {machine}, {} pages are read", dump.display(), pages.len());
    ensure!(!parts.is_empty(), "nothing to take out");
    for (part, arrays) in &parts {
        let lines: usize = arrays.iter().map(|array| array.lines.len()).sum();
        println!("  {part:?}: {} arrays, {lines} lines", arrays.len());
    }
    Ok(Whole { parts, pages: pages.into_iter().collect(), physical, size })
}

/// Makes one image and judges it.
fn one(args: &Args, whole: &Whole, number: u64) -> (String, Verdict) {
    let mut random = Random(
        args.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd134_2543_de82_ef95),
    );
    let (pages, loss) = match args.each {
        true => (
            BTreeSet::from([whole.pages[(number / 2) as usize]]),
            [Loss::Excluded, Loss::Zero][(number % 2) as usize],
        ),
        false => choose(whole, &mut random),
    };
    let what = format!(
        "{} pages from {:#x} {loss:?}",
        pages.len(),
        pages.first().copied().unwrap_or(0) * image::PAGE
    );
    let image = Arc::new(Without::new(Arc::clone(&whole.physical.image), pages, loss));
    let parts: Vec<Part> = whole.parts.keys().copied().collect();
    let mut verdict = Verdict::default();
    match read::parts(&whole.physical, whole.size, image, &parts) {
        Ok((_, found)) => {
            whole
                .parts
                .iter()
                .for_each(|(part, arrays)| verdict.add(judge::judge(arrays, &found[part])));
        }
        Err(error) => {
            let error = format!("{error:#}");
            match TABLES.iter().any(|table| error.contains(table)) {
                true => verdict.refused = 1,
                false => verdict.wrong.push(format!("ERROR: {error}")),
            }
        }
    }
    (what, verdict)
}

/// Chooses the pages that are taken out: one, some, many, or the end of the memory.
fn choose(whole: &Whole, random: &mut Random) -> (BTreeSet<u64>, Loss) {
    let any = |random: &mut Random| whole.pages[random.below(whole.pages.len() as u64) as usize];
    let loss = if random.below(5) == 0 { Loss::Zero } else { Loss::Excluded };
    match random.below(10) {
        0..=4 => (BTreeSet::from([any(random)]), loss),
        5..=7 => ((0..2 + random.below(30)).map(|_| any(random)).collect(), loss),
        8 => {
            let share = 1 + random.below(99);
            (whole.pages.iter().copied().filter(|_| random.below(100) < share).collect(), loss)
        }
        _ => (BTreeSet::from([any(random)]), Loss::Truncated),
    }
}

/// Words of errors about tables without which no event of a kernel can be read, and about the top
/// level where no instance is there either. All are in the kernel's image, which dumps have.
const TABLES: &[&str] =
    &["BTF", "kallsyms", "VMCOREINFO", "has no symbol", "of struct trace_array"];
