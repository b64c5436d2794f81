//! Mutants of a real region: indices, addresses and sizes in its metadata are set to other values.
//! All events of the truth come back, or a loss is reported; none is invented, none comes twice,
//! and nothing panics.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lastwords_bytes::Budget;
use lastwords_ftrace::Ring;
use lastwords_ftrace::page::Events;
use lastwords_ftrace::persistent;

use super::region::{self, Cpu};
use lastwords_testkit::random::Random;

/// Longest that a mutant may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Bytes of the header that all CPUs have in common, and of the list of modules, that are mutated.
const COMMON: usize = 512;

/// The result of reading a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// All events came back.
    Complete,
    /// Some did not, and a loss is reported.
    Told,
    /// The region is refused.
    Refused,
    /// Some events are missing, and no loss is reported.
    Untold,
    /// Events that were never recorded, or one that comes twice.
    Invented,
    Panicked,
    Slow,
}

/// The events of each CPU in their order: time and payload.
type Truth<'a> = Vec<Vec<(u64, &'a [u8])>>;

/// Reads mutants of a region; the number of those that fell short.
pub(super) fn run(release: &str, region: &[u8], seed: u64, count: u64) -> Result<usize> {
    let begun = Instant::now();
    let cpus = region::cpus(region)?;
    let mut truth: Truth<'_> = vec![Vec::new(); cpus.len()];
    for event in region::events(region)? {
        truth[event.cpu].push((event.time, &region[event.payload]));
    }
    let next = Mutex::new(seed..seed + count);
    let ends: Mutex<BTreeMap<End, usize>> = Mutex::default();
    let work = || -> Result<()> {
        loop {
            let Some(seed) = next.lock().expect("no panic").next() else { return Ok(()) };
            let mut bytes = region.to_vec();
            let what = mutate(&cpus, &mut bytes, &mut Random(seed))?;
            let end = end(&bytes, &truth);
            if end > End::Refused {
                println!("      mutant --seed {seed}: {end:?}: {what}");
            }
            *ends.lock().expect("no panic").entry(end).or_default() += 1;
        }
    };
    std::thread::scope(|scope| {
        let workers = [0, 1].map(|_| scope.spawn(work));
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let ends = ends.into_inner()?;
    let short = ends.iter().filter(|(end, _)| **end > End::Refused).map(|(_, count)| count).sum();
    let words: Vec<String> =
        ends.iter().map(|(end, count)| format!("{count} {end:?}").to_lowercase()).collect();
    let mark = if short == 0 { "ok   " } else { "SHORT" };
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{mark} {release}: {count} mutants of the metadata from seed {seed} on: {} ({took:.0} s)",
        words.join(", ")
    );
    Ok(short)
}

/// Sets a word of the metadata, or two, to other values; says which.
fn mutate(cpus: &[Cpu], bytes: &mut [u8], rng: &mut Random) -> Result<String> {
    let mut said = Vec::new();
    for _ in 0..1 + u64::from(rng.one_in(4)) {
        let cpu = &cpus[rng.below(cpus.len() as u64) as usize];
        let number = |rng: &mut Random| rng.below(cpu.count as u64) as usize;
        let (what, at, len) = match rng.below(8) {
            0 => ("the header", rng.below(COMMON as u64 / 4) as usize * 4, 4),
            1 | 2 => ("an address", cpu.words + 8 * rng.below(3) as usize, 8),
            3 => ("a size or a count", cpu.words + 24 + 4 * rng.below(2) as usize, 4),
            4 => ("a committed size", cpu.at(number(rng)) + 8, 4),
            _ => ("the table", cpu.table + 4 * number(rng), 4),
        };
        let old = bytes.get(at..at + len).context("a word of the metadata")?;
        let mut word = [0; 8];
        word[..len].copy_from_slice(old);
        let old = u64::from_le_bytes(word);
        let new = match rng.below(9) {
            0 => 0,
            1 => u64::MAX,
            2 => old ^ 1 << rng.below(8 * len as u64),
            3 => old.wrapping_add(1),
            4 => old.wrapping_sub(1),
            5 => old.wrapping_add(4096).wrapping_sub(8192 * rng.below(2)),
            6 => old.wrapping_add(4096 * rng.below(2 * cpu.count as u64)),
            7 => number(rng) as u64,
            _ => rng.bits(),
        };
        bytes[at..at + len].copy_from_slice(&new.to_le_bytes()[..len]);
        said.push(format!("{what} at {at:#x}: {new:#x} in place of {old:#x}"));
    }
    Ok(said.join("; "))
}

/// Reads a mutant and compares it with the truth.
fn end(bytes: &[u8], truth: &[Vec<(u64, &[u8])>]) -> End {
    let begun = Instant::now();
    let end = catch_unwind(AssertUnwindSafe(|| compare(bytes, truth))).unwrap_or(End::Panicked);
    if begun.elapsed() > LIMIT { End::Slow } else { end }
}

fn compare(bytes: &[u8], truth: &[Vec<(u64, &[u8])>]) -> End {
    let len = bytes.len() as u64;
    let image = lastwords_proof_persistence::image(bytes.to_vec());
    let Ok(region) = persistent::read(&image, 0, len, &[], &Budget::default()) else {
        return End::Refused;
    };
    let mut count = 0;
    let mut page = Vec::new();
    for (cpu, ring) in region.cpus().iter().enumerate() {
        let mut left = truth.get(cpu).into_iter().flatten();
        for number in 0..ring.sub_buffers {
            let info = region.sub_buffer(cpu, number, &mut page);
            for event in
                Events::new(&page, region.header_page(), region.layout.byte_order, info.committed)
            {
                let Ok(event) = event else { return End::Invented };
                if !left.any(|(time, payload)| {
                    *time == event.time && *payload == &page[event.payload.clone()]
                }) {
                    return End::Invented;
                }
                count += 1;
            }
        }
    }
    match truth.iter().map(Vec::len).sum::<usize>() == count {
        true => End::Complete,
        false if region.evidence().has_losses() => End::Told,
        false => End::Untold,
    }
}
