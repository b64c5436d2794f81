//! `cargo xtask hostile DUMP`: sets words of a kernel crash dump that are read on the way to its
//! trace to other values.
//!
//! The rig finds these words by observing the walks: page tables, lists, counters, structures,
//! formats of events. For each mutant the program runs as a user would run it. It may report
//! anything about such a dump. It may not panic, hang, or ask for more than 256 MiB of memory,
//! whatever a header field or a pointer of the kernel's structures says.
#![forbid(unsafe_code)]

mod witness;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

use lastwords_testkit::random::Random;
use rig::elf;
use rig::ended::{End, end};
use rig::scratch::{self, Scratch};

/// Most bytes that the program may ask for, beside mappings of files (RLIMIT_DATA).
const MEMORY: u64 = 256 << 20;
/// A program that panicked ends with this.
const PANIC: i32 = 101;
/// Kinds of values.
const EDGES: u64 = 14;

/// Set words of a kernel crash dump that are read on the way to its trace to other values
#[derive(Parser)]
#[command(bin_name = "cargo xtask hostile")]
struct Args {
    /// An ELF vmcore
    dump: PathBuf,
    /// Mutants, spread over all words that are read
    #[arg(long, value_name = "N", default_value_t = 2000)]
    mutants: usize,
    /// Which words and values are taken
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Recover everything, LTTng's sessions too, in place of printing ftrace's text
    #[arg(long)]
    recover: bool,
    /// The program, in place of the one that is built here
    #[arg(long, value_name = "FILE")]
    lastwords: Option<PathBuf>,
    /// Where two copies of the dump are put: memory rather than a disk [default: /dev/shm, else
    /// the temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A word of the file and what it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mutant {
    /// Offset in the file.
    at: u64,
    was: u64,
    is: u64,
}

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let lastwords = args.lastwords.clone().map_or_else(rig::programs::lastwords, Ok)?;
    let mutants = mutants(args)?;
    let parent = args.dir.clone().unwrap_or_else(scratch::memory);
    let scratch = Scratch::create(&parent, "lastwords-hostile")?;
    let (next, ends, deaths) =
        (AtomicUsize::new(0), Mutex::new(BTreeMap::new()), Mutex::new(Vec::new()));
    let work = |worker: usize| -> Result<()> {
        let folder = scratch.path().join(worker.to_string());
        std::fs::create_dir(&folder)?;
        let copy = Copy::new(&args.dump, &folder)?;
        while let Some(mutant) = mutants.get(next.fetch_add(1, Relaxed)) {
            let ended = copy.with(mutant, || {
                run_once(&lastwords, &copy.path, args.recover.then_some(&folder))
            })?;
            *ends.lock().expect("no panic").entry(ended).or_insert(0u32) += 1;
            if matches!(ended, End::Died | End::Hung | End::Exit(PANIC)) {
                let Mutant { at, was, is } = mutant;
                println!("{ended:?}: offset {at:#x}: {was:#x} becomes {is:#x}");
                deaths.lock().expect("no panic").push(*mutant);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers = [0, 1].map(|worker| scope.spawn(move || work(worker)));
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let (ends, deaths) = (ends.into_inner()?, deaths.into_inner()?);
    println!(
        "{} mutants: {}",
        mutants.len(),
        ends.iter().map(|(end, n)| format!("{n} {end:?}")).collect::<Vec<_>>().join(", ")
    );
    ensure!(deaths.is_empty(), "{} of {} mutants killed it", deaths.len(), mutants.len());
    Ok(())
}

/// Runs the program once.
fn run_once(lastwords: &Path, dump: &Path, out: Option<&PathBuf>) -> Result<End> {
    let mut command = Command::new("prlimit");
    command.arg(format!("--data={MEMORY}")).arg("--core=0").arg(lastwords);
    match out {
        None => command.arg("report").arg(dump),
        Some(folder) => {
            let out = folder.join("out");
            if out.exists() {
                std::fs::remove_dir_all(&out).with_context(|| out.display().to_string())?;
            }
            command.arg("recover").arg(dump).arg("-o").arg(out)
        }
    };
    end(command)
}

/// A copy of the dump.
struct Copy {
    path: PathBuf,
    file: File,
}

impl Copy {
    fn new(dump: &Path, folder: &Path) -> Result<Self> {
        let path = folder.join("dump");
        std::fs::copy(dump, &path).with_context(|| path.display().to_string())?;
        let file = File::options().write(true).open(&path)?;
        Ok(Self { path, file })
    }

    /// Does something while the word has its other value.
    fn with<T>(&self, mutant: &Mutant, done: impl FnOnce() -> Result<T>) -> Result<T> {
        self.file.write_all_at(&mutant.is.to_le_bytes(), mutant.at)?;
        let done = done();
        self.file.write_all_at(&mutant.was.to_le_bytes(), mutant.at)?;
        done
    }
}

/// Mutants of words that are read, of all parts of the memory alike.
fn mutants(args: &Args) -> Result<Vec<Mutant>> {
    let words = witness::words(&args.dump)?;
    let file = File::open(&args.dump)?;
    let table = elf::Table::read(&file).with_context(|| args.dump.display().to_string())?;
    let size = file.metadata()?.len();
    let offsets: Vec<u64> = words
        .iter()
        .filter_map(|word| table.offset_of(*word))
        .filter(|at| at + 8 <= size)
        .collect();
    if offsets.is_empty() {
        bail!("{}: nothing is read on the way to a trace", args.dump.display());
    }
    println!("{} words are read", offsets.len());
    let mut rng = Random(args.seed);
    let value = |at: u64| -> Result<u64> {
        let mut raw = [0; 8];
        file.read_exact_at(&mut raw, at)?;
        Ok(u64::from_le_bytes(raw))
    };
    (0..args.mutants)
        .map(|n| {
            // One of each of as many parts of equal size.
            let part = |n: usize| n * offsets.len() / args.mutants.max(1);
            let (from, to) = (part(n), part(n + 1).max(part(n) + 1));
            let at =
                offsets[(from + rng.below((to - from) as u64) as usize).min(offsets.len() - 1)];
            let was = value(at)?;
            let other = value(offsets[rng.below(offsets.len() as u64) as usize])?;
            Ok(Mutant { at, was, is: edge(rng.below(EDGES), was, size, other, 1 << rng.below(64)) })
        })
        .collect()
}

/// The `n`th value in place of one; `other` is a word that stands elsewhere, so that lists lead to
/// other lists.
fn edge(n: u64, now: u64, size: u64, other: u64, bit: u64) -> u64 {
    match n {
        0 => 0,
        1 => 1,
        2 => now.wrapping_sub(1),
        3 => now.wrapping_add(1),
        4 => now.wrapping_mul(2),
        5 => now.wrapping_add(8),
        6 => u64::MAX,
        7 => u64::MAX - 7,
        8 => u64::MAX / 2,
        9 => 1 << 63,
        10 => u64::from(u32::MAX) << 32 | now & 0xffff_ffff,
        11 => size,
        12 => now ^ bit,
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_taken_back() {
        let folder =
            std::env::temp_dir().join(format!("lastwords-hostile-test.{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let dump = folder.join("from");
        std::fs::write(&dump, [7; 32]).unwrap();
        let copy = Copy::new(&dump, &folder).unwrap();
        let mutant = Mutant { at: 8, was: u64::from_le_bytes([7; 8]), is: u64::MAX };
        let seen = copy.with(&mutant, || Ok(std::fs::read(&copy.path)?)).unwrap();
        assert_eq!(
            (&seen[..8], &seen[8..16], &seen[16..]),
            (&[7; 8][..], &[255; 8][..], &[7; 16][..])
        );
        assert_eq!(std::fs::read(&copy.path).unwrap(), [7; 32]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn edges_are_other_values() {
        let edges: std::collections::BTreeSet<u64> =
            (0..EDGES).map(|n| edge(n, 0x1000, 99, 0x5000, 1 << 40)).collect();
        assert_eq!(edges.len() as u64, EDGES);
        assert!(!edges.contains(&0x1000));
    }
}
