//! Copies halves that are being written. A half is copied as fast as possible before anything in it
//! is analyzed, so that writers overwrite as little as possible meanwhile. Planning and delivery
//! then read the copy.

use super::data::Stream;
use super::frozen::{CopiedSubBuffer, Frozen, Half, offset};
use super::layout::{Slots, ThreadTable, announced, slots};
use super::outcome::LISTED;
use super::packet::Header;
use super::region::Region;
use lastwords_abi::packet::HEADER_LEN;
use lastwords_bytes::{Budget, Error};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The parts of a stream to copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) halves: &'a [usize],
    /// Skip sub-buffers that were consumed or cleared, and those before this position; none to
    /// copy all.
    pub(crate) new_from: Option<u64>,
    /// The session region and its thread table.
    pub(crate) threads: Option<(&'a Region, ThreadTable)>,
}

impl Frozen {
    /// Creates the file for a copy.
    ///
    /// # Errors
    /// No temporary file can be created.
    pub(crate) fn file() -> Result<Arc<File>, Error> {
        tempfile::tempfile().map(Arc::new).map_err(|error| failed(&error))
    }

    /// Copies the halves of a stream into an empty file.
    ///
    /// # Errors
    /// The file system has no room, the control words cannot be read, or the budget is spent.
    pub(crate) fn take(
        stream: &Stream,
        file: &Arc<File>,
        wanted: &Wanted<'_>,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let file = Arc::clone(file);
        let control = stream.control(budget)?;
        let mut frozen = Self {
            control,
            after: control,
            announced: Ok(Vec::new()),
            halves: Default::default(),
            file,
        };
        let is_lockless = stream.geometry.is_lockless();
        let slots = |half: usize| match is_lockless {
            true => slots(&*stream.image, &stream.region, &stream.geometry, half, budget)
                .unwrap_or_default(),
            false => Slots::default(),
        };
        let before: Vec<_> = wanted.halves.iter().map(|half| slots(*half)).collect();
        if let Some((region, table)) = wanted.threads.filter(|_| is_lockless) {
            frozen.announced = announced(&*stream.image, region, table, budget);
        }
        for (half, before) in wanted.halves.iter().zip(before) {
            let places = frozen
                .copy(stream, *half, wanted.new_from, budget)
                .map_err(|error| failed(&error))?;
            if let Some(of) = frozen.halves.get_mut(*half) {
                *of = Half { slots: [before, slots(*half)], places };
            }
        }
        frozen.after = stream.control(budget)?;
        Ok(frozen)
    }

    /// Copies from the oldest sub-buffer on. After the first sub-buffer that writers have
    /// overtaken, copies from the newest backwards: writers reach those last.
    fn copy(
        &self,
        stream: &Stream,
        half: usize,
        new_from: Option<u64>,
        budget: &Budget,
    ) -> std::io::Result<BTreeMap<u64, CopiedSubBuffer>> {
        let g = stream.geometry;
        let words = self.control.half.get(half).copied().unwrap_or_default();
        let position = words.position(&g);
        if words.reserve == 0 && words.attempt == 0 {
            // The half was never begun.
            return Ok(BTreeMap::new());
        }
        let (mut places, held) = (BTreeMap::new(), stream.places_held(half));
        // A sub-buffer whose header is not written has not yet overwritten the older one in its
        // place.
        let newest = g.number(position).saturating_sub(u64::from(g.within(position) == 0));
        let mut oldest = newest.saturating_add(1).saturating_sub(g.count);
        if let Some(from) = new_from {
            oldest = oldest.max(g.number(words.first.max(from)));
        }
        // In a ring that has not wrapped, the places after the current sub-buffer are copied too:
        // damage shows there.
        let newest = if new_from.is_some() {
            newest
        } else {
            oldest.saturating_add(g.count).saturating_sub(1)
        };
        let mut left = oldest..=newest;
        let mut is_behind = false;
        let mut buf = Vec::new();
        while let Some(number) = if is_behind { left.next_back() } else { left.next() } {
            let at = g.place(number);
            // A place in a long hole of the file has nothing to copy.
            let hole = stream.next_place(half, at, held).saturating_sub(at);
            if at >= held || hole >= LISTED {
                if !is_behind {
                    left = number.saturating_add(hole.max(1))..=*left.end();
                }
                continue;
            }
            let loaded = stream.load(half, number, usize::try_from(g.size).unwrap_or(0), &mut buf);
            // `u64::MAX` matches no reserve word: even if the word has not changed, a writer may be
            // about to reuse the place.
            let is_overtaken = stream.is_overtaken(half, number, u64::MAX, budget);
            is_behind |= is_overtaken;
            // A hole in the file also reads as zeros.
            if buf.iter().any(|byte| *byte != 0) {
                self.file.write_all_at(&buf, offset(&g, half, at))?;
            }
            places.insert(at, CopiedSubBuffer { number, loaded, is_overtaken });
        }
        self.file.set_len(g.half_size().saturating_mul(2))?;
        Ok(places)
    }

    /// True if writers were so fast that the copy has no event of the half up to `clock`, although
    /// events were recorded since the half's first position and since `from`.
    pub(crate) fn is_hollow(&self, stream: &Stream, half: usize, from: u64, clock: u64) -> bool {
        let g = stream.geometry;
        let words = self.control.half.get(half).copied().unwrap_or_default();
        let current = g.number(words.position(&g));
        let oldest = current.saturating_add(1).saturating_sub(g.count);
        let has_come_round = g.number(words.first.max(from)) < oldest;
        let mut head = Vec::new();
        let is_early = |number: u64, head: &mut Vec<u8>| {
            self.load(&g, half, number, HEADER_LEN, head);
            let header = Header::parse(head, stream.identity.order);
            header.is_ok_and(|header| header.begin <= clock) && !self.is_overtaken(&g, half, number)
        };
        has_come_round && !(oldest..=current).any(|number| is_early(number, &mut head))
    }
}

fn failed(error: &std::io::Error) -> Error {
    Error::io("a temporary file", 0, error)
}
