//! Finds persistent ring buffers in memory by their magic word, with no address given.

use super::layout::{self, Extent};
use super::members::Members;
use super::source::{self, Source};
use super::words;
use lastwords_bytes::{Budget, Error};
use lastwords_image::process_pages::{PAGE, PAGE_LEN};
use lastwords_image::{Image, Progress, Watch};
use std::ops::Range;

/// Bytes between two messages about progress.
const STEP: u64 = 64 << 20;
/// Most regions that are taken: a kernel has one for each persistent instance.
const MOST: usize = 64;

/// Addresses of the regions in an image of memory, by rising address: of the layouts that kernels'
/// types gave, and of those that are known. A region is found by one of its first two words. Where
/// each CPU has its own metadata, it is also found by those of a later CPU.
///
/// # Errors
/// The budget is spent.
pub fn find(
    image: &dyn Image,
    layouts: &[Members],
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<Range<u64>>, Error> {
    let layouts = layout::with_known(layouts);
    // The bytes that have the two words.
    let reach =
        layouts.iter().map(|layout| layout.magic.end().max(layout.sizes.end())).max().unwrap_or(0);
    let search = Search { image, layouts: &layouts, reach: reach as usize, budget };
    let (mut found, mut head): (Vec<Range<u64>>, _) = (Vec::new(), Vec::new());
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
                watch(Progress {
                    what: "searching persistent ring buffers",
                    done: seen,
                    total: Some(total),
                });
            }
            let part = search.begin(at..range.end(), &mut head)?;
            let mut behind = at.saturating_add(PAGE);
            if let Some(part) = part {
                let floor = found.last().map_or(0, |last| last.end).max(range.address);
                let region = search.whole(at, part, floor..range.end())?;
                behind = region.end.max(behind);
                found.push(region);
            }
            at = behind.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        }
        done = done.saturating_add(range.len);
    }
    Ok(found)
}

/// The memory that is searched, and the layouts.
struct Search<'a> {
    image: &'a dyn Image,
    layouts: &'a [Members],
    /// Bytes by which a layout is told.
    reach: usize,
    budget: &'a Budget,
}

impl Search<'_> {
    fn source<'b>(&'b self, len: u64, read: source::Fill<'b>) -> Source<'b> {
        Source { name: self.image.name(), len, read, layouts: self.layouts, budget: self.budget }
    }

    fn fill(&self, from: u64) -> impl Fn(u64, &mut [u8]) -> Result<(), Error> {
        move |at: u64, bytes: &mut [u8]| super::fill(self.image, from, at, bytes)
    }

    fn is_spent(&self) -> bool {
        self.budget.bytes(self.image.name(), 0).is_err()
    }

    /// The whole region of which `extent` was found at `at`, between `limits`: CPUs before and
    /// behind it may have damaged metadata.
    fn whole(&self, at: u64, extent: Extent, limits: Range<u64>) -> Result<Range<u64>, Error> {
        let (mut begin, mut end) = (at, at.saturating_add(extent.len));
        let Some(per_cpu) = extent.per_cpu else { return Ok(begin..end) };
        let found = self.fill(at);
        let found = self.source(extent.len, &found);
        let may_be_cpu = |from: u64| {
            let own = self.fill(from);
            match layout::may_be_cpu(&self.source(per_cpu, &own), &found) {
                Err(error) if self.is_spent() => Err(error),
                Ok(true) => self.has_none_within(from..from.saturating_add(per_cpu), limits.end),
                _ => Ok(false),
            }
        };
        while let Some(before) = begin.checked_sub(per_cpu).filter(|before| *before >= limits.start)
        {
            if !may_be_cpu(before)? {
                break;
            }
            begin = before;
        }
        while limits.end.saturating_sub(end) >= per_cpu {
            // Metadata that are not damaged are those of another region.
            if self.extent(end..limits.end)?.is_some() || !may_be_cpu(end)? {
                break;
            }
            end = end.saturating_add(per_cpu);
            let more = self.extent(end..limits.end)?.filter(|more| more.per_cpu == Some(per_cpu));
            end = end.saturating_add(more.map_or(0, |more| more.len));
        }
        Ok(begin..end)
    }

    /// No other region begins behind the first page of a CPU. `end`: the end of the memory.
    fn has_none_within(&self, cpu: Range<u64>, end: u64) -> Result<bool, Error> {
        let mut head = Vec::new();
        for at in (cpu.start..cpu.end).step_by(PAGE_LEN).skip(1) {
            if self.begin(at..end, &mut head)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The region at the beginning of `place`, if one of its two words says that there may be one.
    /// `head` is scratch memory.
    fn begin(&self, place: Range<u64>, head: &mut Vec<u8>) -> Result<Option<Extent>, Error> {
        head.resize(self.reach, 0);
        self.budget.bytes(self.image.name(), head.len() as u64)?;
        match self.image.read(place.start, head) {
            Ok(()) if words::may_begin(head, self.layouts) => self.extent(place),
            _ => Ok(None),
        }
    }

    /// The region at the beginning of `place`, if there is one.
    fn extent(&self, place: Range<u64>) -> Result<Option<Extent>, Error> {
        let fill = self.fill(place.start);
        // A hole in the metadata is no error of the search: there is no region that could be read.
        match layout::extent(&self.source(place.end.saturating_sub(place.start), &fill)) {
            Err(_) if !self.is_spent() => Ok(None),
            extent => extent,
        }
    }
}
