//! Finds persistent ring buffers in memory by their magic word, with no address given.

use super::layout::{self, Source};
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

/// Addresses of the regions in an image of memory, by rising address. A region whose first metadata is damaged is not found.
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
            let len = match image.read(at, &mut head) {
                Ok(()) if words::is_marked(&head) => extent(image, at..range.end(), budget)?,
                _ => None,
            };
            if let Some(len) = len {
                found.push(at..at.saturating_add(len));
            }
            let behind = at.saturating_add(len.unwrap_or(PAGE).max(PAGE));
            at = behind.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        }
        done = done.saturating_add(range.len);
    }
    Ok(found)
}

/// Bytes of the region at the beginning of `place`, if there is one.
fn extent(image: &dyn Image, place: Range<u64>, budget: &Budget) -> Result<Option<u64>, Error> {
    let fill = |at: u64, bytes: &mut [u8]| super::fill(image, place.start, at, bytes);
    let len = place.end.saturating_sub(place.start);
    let source = Source { name: image.name(), len, read: &fill, budget };
    // A hole in the metadata is no error of the search: there is no region that could be read.
    match layout::extent(&source) {
        Err(_) if budget.bytes(image.name(), 0).is_ok() => Ok(None),
        extent => extent,
    }
}
