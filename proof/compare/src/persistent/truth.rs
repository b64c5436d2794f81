//! The truth: the events that the kernel prints of an undamaged region, each with its place in the
//! region's bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result, ensure};

use super::judge::{self, split};
use super::region::{self, Placed};
use lastwords_proof_lab::texts::Events;

/// The truth of a region.
pub(super) struct Truth {
    pub(super) events: Events,
    /// By event: the places of those that are equal.
    places: BTreeMap<String, Vec<Range<usize>>>,
}

/// How many events of the truth are missing, and how many of these are in no range that is reported
/// as lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) all: usize,
    pub(super) untold: usize,
    pub(super) example: Option<String>,
}

impl Truth {
    /// Finds the place of each event that the kernel printed: the events of a CPU have the same
    /// order in both.
    pub(super) fn new(text: &str, region: &[u8]) -> Result<Self> {
        let mut placed: Vec<Vec<Placed>> = Vec::new();
        for event in region::events(region)? {
            placed.resize_with(placed.len().max(event.cpu + 1), Vec::new);
            placed[event.cpu].push(event);
        }
        let mut left: Vec<_> = placed.iter().map(|events| events.iter()).collect();
        let mut places: BTreeMap<String, Vec<Range<usize>>> = BTreeMap::new();
        for event in split(text) {
            let (cpu, time) =
                cpu_and_time(&event).with_context(|| format!("CPU and time of {event}"))?;
            let found = left.get_mut(cpu).and_then(Iterator::next);
            let found = found.with_context(|| format!("the region has no event for {event}"))?;
            // The kernel rounds to microseconds.
            let is_same = (found.time + 500) / 1000 == time;
            ensure!(is_same, "the kernel printed {event} for an event of {} ns", found.time);
            places.entry(event).or_default().push(found.place.clone());
        }
        let unprinted = left.iter().map(|events| events.len()).sum::<usize>();
        ensure!(
            unprinted == 0,
            "the kernel did not print {unprinted} events of the undamaged region"
        );
        Ok(Self { events: judge::events(text), places })
    }

    /// Compares the events that were recovered, and the ranges of the region that are reported as
    /// lost, with the truth.
    pub(super) fn missing(&self, ours: &Events, lost: &[Range<usize>]) -> Missing {
        let mut missing = Missing::default();
        for (event, places) in &self.places {
            let count = places.len().saturating_sub(ours.count(event));
            let is_told = |place: &&Range<usize>| {
                lost.iter().any(|lost| lost.start <= place.start && place.end <= lost.end)
            };
            let untold = count.saturating_sub(places.iter().filter(is_told).count());
            missing.all += count;
            missing.untold += untold;
            if untold > 0 {
                missing.example.get_or_insert_with(|| format!("{event} at {places:x?}"));
            }
        }
        missing
    }
}

/// The number of the CPU and the microseconds of an event: `PID [000] FLAGS SECONDS.MICROSECONDS:
/// …`.
fn cpu_and_time(event: &str) -> Option<(usize, u64)> {
    let mut words = event.split_whitespace().skip(1);
    let cpu = words.next()?.trim_matches(['[', ']']).parse().ok()?;
    let (seconds, rest) = words.nth(1)?.trim_end_matches(':').split_once('.')?;
    let micros = if rest.len() == 6 { rest.parse::<u64>().ok()? } else { return None };
    Some((cpu, seconds.parse::<u64>().ok()? * 1_000_000 + micros))
}

/// The ranges of a region that our program reports as lost: `CPU 0, sub-buffer 7 in memory, offsets
/// 0x23c8 to 0x3000 of the region: …`.
pub(super) fn reported(said: &str) -> Vec<Range<usize>> {
    let number = |text: &str| usize::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let range = |line: &str| {
        let (begin, rest) = line.split_once("offsets ")?.1.split_once(" to ")?;
        Some(number(begin)?..number(rest.split_once(" of the region")?.0)?)
    };
    said.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A region of 6.12's form with two CPUs, each with one sub-buffer that has some events of 8
    /// bytes and 1 ms.
    fn region(events: usize) -> Vec<u8> {
        let (count, size) = (3, 4096);
        let mut region = vec![0; 2 * (1 + count) * size];
        let mut put = |at: usize, value: u64, len: usize| {
            region[at..at + len].copy_from_slice(&value.to_le_bytes()[..len])
        };
        for meta in [0, (1 + count) * size] {
            let data = meta + size;
            let address = 0x1000_0000 + data as u64;
            put(meta, 0x38_0bad_feed, 8);
            [0, size, size]
                .iter()
                .enumerate()
                .for_each(|(n, far)| put(meta + 24 + 8 * n, address + *far as u64, 8));
            put(meta + 48, (size | count << 32) as u64, 8);
            (0..count).for_each(|n| put(meta + 56 + 4 * n, n as u64, 4));
            put(data + size, 1_000_000, 8);
            put(data + size + 8, 8 * events as u64, 8);
            (0..events).for_each(|n| put(data + size + 16 + 8 * n, 1 | 1_000_000 << 5, 8));
        }
        region
    }

    fn text(cpus: &[usize], events: usize) -> String {
        let line = |cpu: &usize, n: usize| {
            format!("    x-7       [00{cpu}] d.h1.     0.00{}000: a: n=1\n", n + 2)
        };
        (0..events).flat_map(|n| cpus.iter().map(move |cpu| line(cpu, n))).collect()
    }

    #[test]
    fn what_is_missing_must_lie_in_a_range_that_is_reported() {
        let truth = Truth::new(&text(&[0, 1], 3), &region(3)).unwrap();
        let newest = 4096 + 4096 + 16 + 2 * 8;
        let ours = judge::events(&text(&[0, 1], 3).replacen(
            "[000] d.h1.     0.004000",
            "[000] d.h1.     9.004000",
            1,
        ));
        for (begin, end, untold) in [(0, 8, 0), (1, 8, 1), (0, 7, 1), (0, 4096, 0)] {
            let said = format!(
                "  CPU 0, sub-buffer 1 in memory, offsets {:#x} to {:#x} of the region: why\n",
                newest + begin,
                newest + end
            );
            let missing = truth.missing(&ours, &reported(&said));
            assert_eq!((missing.all, missing.untold), (1, untold), "{said}");
        }
        // A loss of the other CPU tells nothing of this one.
        let other = newest + 4 * 4096;
        assert_eq!(
            truth
                .missing(
                    &ours,
                    &reported(&format!("offsets {other:#x} to {:#x} of the region", other + 8))
                )
                .untold,
            1
        );
        assert_eq!(truth.missing(&ours, &[]).untold, 1);
        assert_eq!(truth.missing(&truth.events, &[]), Missing::default());
    }

    #[test]
    fn a_text_of_other_events_is_no_truth() {
        let error = |cpus: &[usize], events: usize| {
            Truth::new(&text(cpus, events), &region(3)).err().unwrap().to_string()
        };
        assert!(error(&[0], 3).contains("did not print 3 events"));
        assert!(error(&[0, 1], 4).contains("has no event for"));
        let text = text(&[0, 1], 3).replace("0.003000", "0.003001");
        assert!(Truth::new(&text, &region(3)).err().unwrap().to_string().contains("of 3000000 ns"));
    }
}
