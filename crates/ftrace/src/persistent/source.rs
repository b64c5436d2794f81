//! A region in memory that is read at offsets.

use super::members::{Members, PAGE};
use lastwords_bytes::{Budget, Error};
use lastwords_image::process_pages::PAGE_LEN;

/// Reads metadata at offsets of a region, by one of these layouts.
pub(super) struct Source<'a> {
    pub(super) name: &'a str,
    pub(super) len: u64,
    pub(super) read: Fill<'a>,
    pub(super) layouts: &'a [Members],
    pub(super) budget: &'a Budget,
}

impl Source<'_> {
    pub(super) fn bytes(&self, at: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.budget.bytes(self.name, len as u64)?;
        let mut bytes = vec![0; len];
        (self.read)(at, &mut bytes)?;
        Ok(bytes)
    }
}

/// Size and number of a CPU's sub-buffers.
pub(super) type Geometry = (u32, u32);

/// Fills a buffer from an offset of the region.
pub(super) type Fill<'a> = &'a dyn Fn(u64, &mut [u8]) -> Result<(), Error>;

/// The place and geometry of metadata.
pub(super) type Place = Option<(u64, Geometry)>;

/// Where metadata of a CPU may stand: at `first`, or on a page boundary behind.
pub(super) fn places(source: &Source<'_>, first: u64) -> impl Iterator<Item = u64> {
    let begin =
        first.saturating_add(1).checked_next_multiple_of(u64::from(PAGE)).unwrap_or(u64::MAX);
    std::iter::once(first).chain((begin..source.len).step_by(PAGE_LEN))
}
