//! Work that threads do beside each other.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::thread::{CpuSet, sched_setaffinity};

/// How many CPUs there are to work on.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// The CPUs that we may run on, from `/proc/self/status`.
///
/// # Errors
/// The file cannot be read, or has no list.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    parse_cpus(list.unwrap_or_default().trim())
}

/// Binds this thread, and what it starts, to the first CPU that it may use. Returns its number.
///
/// # Errors
/// The CPUs are not known, or it cannot be bound.
pub fn pin() -> Result<usize> {
    let cpu = allowed_cpus()?[0];
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).with_context(|| format!("sched_setaffinity to CPU {cpu}"))?;
    Ok(cpu)
}

/// A list such as `0-2,5`.
///
/// # Errors
/// The list is empty, or not of that form.
pub fn parse_cpus(list: &str) -> Result<Vec<usize>> {
    let mut cpus = Vec::new();
    for item in list.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let number = |text: &str| {
            text.parse::<usize>().with_context(|| format!("CPU list `{list}`: `{text}`"))
        };
        cpus.extend(number(first)?..=number(last)?);
    }
    if cpus.is_empty() {
        bail!("CPU list `{list}` is empty");
    }
    Ok(cpus)
}

/// Calls `work` with each number of the range on so many threads, and returns the results in the
/// order of the numbers. After an error no further number is begun.
///
/// # Errors
/// An error of `work`, or one of its threads panicked.
pub fn each<T: Send>(
    threads: usize,
    range: Range<u64>,
    work: impl Fn(u64) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    // Each thread takes the next number. Relaxed: the number is all that the threads share through
    // it.
    let next = AtomicU64::new(range.start);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= range.end {
                return Ok(done);
            }
            let result = work(number).inspect_err(|_| next.store(range.end, Ordering::Relaxed));
            done.push((number, result?));
        }
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut all: Vec<(u64, T)> = Vec::new();
    for done in ended {
        let done: Result<Vec<(u64, T)>> = done.map_err(|_| anyhow!("a worker panicked"))?;
        all.extend(done?);
    }
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

/// Counts something that is wrong by its kind, the words before its first colon. Returns how many of
/// the kind there are now.
pub fn times(kinds: &mut BTreeMap<String, u64>, wrong: &str) -> u64 {
    let kind = wrong.split(':').next().unwrap_or_default();
    let times = kinds.entry(kind.to_owned()).or_default();
    *times += 1;
    *times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_an_error_ends_the_work() {
        let squares = each(3, 5..100, |number| Ok(number * number)).expect("no error");
        assert_eq!(squares, (5..100).map(|number| number * number).collect::<Vec<_>>());
        let begun = AtomicU64::new(0);
        let work = |number| {
            begun.fetch_add(1, Ordering::Relaxed);
            if number == 3 { Err(anyhow!("the third")) } else { Ok(()) }
        };
        let error = each(1, 0..100, work).expect_err("one fails");
        assert_eq!((error.to_string(), begun.into_inner()), ("the third".to_owned(), 4));
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpus("0-2,5").unwrap(), [0, 1, 2, 5]);
        assert_eq!(parse_cpus("3").unwrap(), [3]);
        for wrong in ["", "a", "2-1", "1,"] {
            assert!(parse_cpus(wrong).is_err(), "{wrong}");
        }
    }
}
