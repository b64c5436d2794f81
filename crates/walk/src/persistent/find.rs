//! Finds persistent ring buffers in memory by their magic word, with no address given.

use super::layout::{self, Extent, Source};
use super::words;
use lastwords_bytes::{Budget, Error};
use lastwords_image::{Image, Progress, Watch};
use std::ops::Range;

/// Bytes of a page: a reserved range begins on a page boundary.
const PAGE: u64 = 4096;
/// Bytes between two messages about progress.
const STEP: u64 = 64 << 20;
/// Most regions that are taken: a kernel has one for each persistent instance.
const MOST: usize = 64;

/// Addresses of the regions in an image of memory, by rising address. A region is found by one of its first two words. Where each CPU has
/// its own metadata, it is also found by those of a later CPU.
///
/// # Errors
/// The budget is spent.
pub fn find(image: &dyn Image, budget: &Budget, watch: Watch<'_>) -> Result<Vec<Range<u64>>, Error> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let ranges = || image.ranges().iter().filter(|range| range.hole.is_none());
    let total = ranges().map(|range| range.len).fold(0, u64::saturating_add);
    let (mut done, mut told) = (0u64, 0u64);
    for range in ranges() {
        let mut at = range.address.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        while at < range.end() && found.len() < MOST {
            let data = image.next_data(at, range.end());
            at = data.checked_div(PAGE).unwrap_or(0).saturating_mul(PAGE).max(at);
            let seen = done.saturating_add(at.saturating_sub(range.address));
            if seen.saturating_sub(told) > STEP {
                told = seen;
                watch(Progress { what: "searching persistent ring buffers", done: seen, total: Some(total) });
            }
            let mut head = [0; 8];
            budget.bytes(image.name(), head.len() as u64)?;
            let part = match image.read(at, &mut head) {
                Ok(()) if words::may_begin(&head) => extent(image, at..range.end(), budget)?,
                _ => None,
            };
            let mut behind = at.saturating_add(PAGE);
            if let Some(part) = part {
                let floor = found.last().map_or(0, |last| last.end).max(range.address);
                let region = whole(image, at, part, floor..range.end(), budget)?;
                behind = region.end.max(behind);
                found.push(region);
            }
            at = behind.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        }
        done = done.saturating_add(range.len);
    }
    Ok(found)
}

/// The whole region of which `extent` was found at `at`, between `limits`: CPUs before and behind it may have damaged metadata.
fn whole(image: &dyn Image, at: u64, extent: Extent, limits: Range<u64>, budget: &Budget) -> Result<Range<u64>, Error> {
    let (mut begin, mut end) = (at, at.saturating_add(extent.len));
    let Some(per_cpu) = extent.per_cpu else { return Ok(begin..end) };
    let fill = |from: u64| move |at: u64, bytes: &mut [u8]| super::fill(image, from, at, bytes);
    let found = fill(at);
    let found = Source { name: image.name(), len: extent.len, read: &found, budget };
    let may_be_cpu = |from: u64| {
        let own = fill(from);
        match layout::may_be_cpu(&Source { name: image.name(), len: per_cpu, read: &own, budget }, &found) {
            Err(error) if budget.bytes(image.name(), 0).is_err() => Err(error),
            other => Ok(other.unwrap_or(false)),
        }
    };
    while let Some(before) = begin.checked_sub(per_cpu).filter(|before| *before >= limits.start) {
        if !may_be_cpu(before)? {
            break;
        }
        begin = before;
    }
    while limits.end.saturating_sub(end) >= per_cpu {
        // Metadata that are not damaged are those of another region.
        if self::extent(image, end..limits.end, budget)?.is_some() || !may_be_cpu(end)? {
            break;
        }
        end = end.saturating_add(per_cpu);
        let more = self::extent(image, end..limits.end, budget)?.filter(|more| more.per_cpu == Some(per_cpu));
        end = end.saturating_add(more.map_or(0, |more| more.len));
    }
    Ok(begin..end)
}

/// The region at the beginning of `place`, if there is one.
fn extent(image: &dyn Image, place: Range<u64>, budget: &Budget) -> Result<Option<Extent>, Error> {
    let fill = |at: u64, bytes: &mut [u8]| super::fill(image, place.start, at, bytes);
    let len = place.end.saturating_sub(place.start);
    let source = Source { name: image.name(), len, read: &fill, budget };
    // A hole in the metadata is no error of the search: there is no region that could be read.
    match layout::extent(&source) {
        Err(_) if budget.bytes(image.name(), 0).is_ok() => Ok(None),
        extent => extent,
    }
}
