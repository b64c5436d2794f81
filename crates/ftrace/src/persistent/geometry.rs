//! The size and the number of a CPU's sub-buffers, by all evidence that a region has.
//!
//! Two words of a CPU's metadata say both, and either can be damaged. Other evidence: the metadata
//! of the next CPU, or the end of the region, are where the sub-buffers end; the table counts the
//! sub-buffers; all CPUs have the same geometry; the head and the commit are addresses of
//! sub-buffers; sub-buffers that were written begin with a header, and their other pages do not.
//! The geometry for which most of this speaks is taken.

use super::layout::Layout;
use super::members::{Members, PAGE};
use super::source::{Geometry, Place, Source, places};
use super::words::{Fixed, most, permuted};
use crate::page;
use lastwords_bytes::Error;
use lastwords_image::process_pages::PAGE_LEN;

/// Bytes of a page on the machines that have such a ring; a sub-buffer is a page.
const PAGES: [u32; 3] = [PAGE, 16 << 10, 64 << 10];
/// Most pages of a CPU whose beginning is looked at.
const MOST_PAGES: usize = 4096;
/// Bytes at the beginning of a sub-buffer that are looked at: its time and its committed size.
const HEADER: usize = 16;
/// The longest between two sub-buffers of a ring, more than an hour in nanoseconds. A page with a
/// time that is farther away is no evidence.
const LONGEST: u64 = 1 << 42;

impl Layout {
    /// Offset of the first sub-buffer of a CPU whose metadata is at `at`.
    pub(super) fn data(&self, at: u64, (size, count): Geometry) -> u64 {
        let Members { cpu, .. } = &self.members;
        let table = u64::from(count).saturating_mul(cpu.table.size.into());
        let behind = at.saturating_add(cpu.len.into()).saturating_add(table);
        behind.checked_next_multiple_of(u64::from(size)).unwrap_or(u64::MAX)
    }

    /// Offset of the end of its sub-buffers.
    pub(super) fn end(&self, at: u64, geometry: Geometry) -> u64 {
        let (size, count) = geometry;
        self.data(at, geometry).saturating_add(u64::from(size).saturating_mul(u64::from(count)))
    }

    /// As few bytes as a kernel leaves unused at the end of a region, because each CPU has the same
    /// number of sub-buffers.
    pub(super) fn is_slack(&self, bytes: u64, size: u32) -> bool {
        let cpus = (self.cpus.len() as u64).saturating_add(1);
        bytes <= u64::from(size).saturating_mul(2).saturating_mul(cpus)
    }

    /// The first metadata of a CPU whose sub-buffers end where the next metadata begin, or where
    /// the region ends: its size and its count are right, although its table may be damaged. The
    /// beginnings of pages must not contradict them.
    pub(super) fn first_followed(&self, source: &Source<'_>, first: u64) -> Result<Place, Error> {
        let mut found: Vec<(u64, Geometry)> = Vec::new();
        for at in places(source, first) {
            found.extend(self.words(source, at, true)?.map(|geometry| (at, geometry)));
        }
        let slack = u64::from(PAGE)
            .saturating_mul(2)
            .saturating_mul((found.len() as u64).saturating_add(1));
        for (index, (at, geometry)) in found.iter().enumerate() {
            let end = self.end(*at, *geometry);
            let next = found.get(index.saturating_add(1));
            let is_followed =
                next.map_or(source.len.saturating_sub(end) <= slack, |(next, _)| *next == end);
            if is_followed && self.has_pages(source, *at, *geometry)? {
                return Ok(Some((*at, *geometry)));
            }
        }
        Ok(None)
    }

    /// Size and number of a CPU's sub-buffers. None where nothing can be.
    pub(super) fn geometry(
        &self,
        source: &Source<'_>,
        at: u64,
        fixed: &Fixed,
    ) -> Result<Option<Geometry>, Error> {
        let room = source.len.saturating_sub(at);
        let table = self.table(source, at, most(room))?;
        let counted = permuted(&table);
        let mut candidates = vec![(fixed.size, fixed.count)];
        candidates.extend(self.hint);
        candidates.push((PAGE, counted));
        candidates.push((fixed.size, counted));
        candidates.extend(self.hint.map(|(size, _)| (size, counted)));
        candidates.extend(PAGES.iter().flat_map(|size| [(*size, counted), (*size, fixed.count)]));
        let mut tried: Vec<Geometry> = Vec::new();
        let mut best = None;
        for geometry in candidates {
            let (size, count) = geometry;
            let end = self.end(at, geometry);
            let can_be = Fixed { size, count, ..*fixed }.has_geometry(room) && end <= source.len;
            if !can_be || tried.contains(&geometry) {
                continue;
            }
            tried.push(geometry);
            // The next metadata may be damaged as well.
            let is_next =
                self.whole(source, end)? == Some(geometry) || self.is_likely(source, end)?;
            let ends = is_next || self.is_slack(source.len.saturating_sub(end), size);
            let is_counted = permuted(table.get(..count as usize).unwrap_or_default()) == count;
            let is_hinted = self.hint == Some(geometry);
            let has_pages = self.has_pages(source, at, geometry)?;
            let has_addresses = Fixed { size, count, ..*fixed }.has_sub_buffers();
            let score = [ends, is_next, is_counted, is_hinted, has_pages, has_addresses]
                .map(u8::from)
                .iter()
                .sum::<u8>();
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, geometry));
            }
        }
        Ok(best.map(|(_, geometry)| geometry))
    }

    /// The beginnings of pages do not contradict a geometry: of the sub-buffers that were written,
    /// most begin with a header, and few of their other pages do.
    fn has_pages(&self, source: &Source<'_>, at: u64, geometry: Geometry) -> Result<bool, Error> {
        let (size, _) = geometry;
        let (begin, end) = (self.data(at, geometry), self.end(at, geometry).min(source.len));
        let (mut begins, mut inner, mut wrong) = (Vec::new(), Vec::new(), 0usize);
        let mut bytes = [0; HEADER];
        for place in (begin..end).step_by(PAGE_LEN).take(MOST_PAGES) {
            source.budget.bytes(source.name, HEADER as u64)?;
            // A page that the image does not have is no evidence.
            if (source.read)(place, &mut bytes).is_err() {
                continue;
            }
            let is_begin = place.saturating_sub(begin).checked_rem(size.into()) == Some(0);
            match self.beginning(&bytes, if is_begin { size } else { PAGE }) {
                Beginning::Header { time } if is_begin => begins.push(time),
                Beginning::Header { time } => inner.push(time),
                Beginning::Other => wrong = wrong.saturating_add(is_begin.into()),
                Beginning::Unwritten => {}
            }
        }
        let first = begins.iter().min().map_or(u64::MAX, |first| first.saturating_sub(LONGEST));
        let end = begins.iter().max().map_or(0, |last| last.saturating_add(LONGEST));
        let inner = inner.into_iter().filter(|time| (first..=end).contains(time)).count();
        let is_inside = inner.saturating_mul(3) > begins.len();
        let is_wrong = wrong.saturating_mul(2) > begins.len().saturating_add(1);
        Ok(!is_inside && !is_wrong)
    }

    /// Classifies the first bytes of a page as the beginning of a sub-buffer of `size` bytes.
    fn beginning(&self, bytes: &[u8], size: u32) -> Beginning {
        let Members { byte_order, header_page: layout, .. } = self.members;
        let (time, commit) = (
            page::long(bytes, 0, byte_order),
            page::native(bytes, 8, layout.commit_size, byte_order),
        );
        let (committed, top) = (commit & 0x3fff_ffff, commit >> 32);
        let room = u64::from(size.saturating_sub(layout.data_offset));
        let is_size = committed <= room && (top == 0 || top == u64::from(u32::MAX));
        match (time, committed) {
            (_, 0) if is_size => Beginning::Unwritten,
            (1.., _) if is_size => Beginning::Header { time },
            _ => Beginning::Other,
        }
    }
}

/// The first bytes of a page.
enum Beginning {
    /// A header of a sub-buffer with events.
    Header { time: u64 },
    /// A header of a sub-buffer without events.
    Unwritten,
    /// No header.
    Other,
}
