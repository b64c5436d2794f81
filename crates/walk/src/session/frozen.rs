//! Copies of halves whose writers are at work. A half is copied as fast as it can be read, before anything in it is judged, so
//! that writers overwrite as little as possible meanwhile; planning and delivery then read the copy.

use super::data::{Loaded, Stream};
use super::layout::{Announced, Control, SlotState, ThreadTable, announced, slots};
use super::packet::Header;
use super::region::Region;
use lastwords_abi::packet::HEADER_LEN;
use lastwords_bytes::{Budget, Error};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A copy of one or both halves of a stream, with the words that describe them.
#[derive(Debug)]
pub(crate) struct Frozen {
    /// The control words before anything was copied.
    pub(crate) control: Control,
    /// The control words after everything was copied.
    pub(crate) after: Control,
    /// Announced reservations, read after `control`; an error in words where the table cannot be read.
    pub(crate) announced: Result<Vec<Announced>, Error>,
    halves: [Half; 2],
    /// Unlinked; each sub-buffer lies at its place in it, the second half behind the first.
    file: Arc<File>,
}

#[derive(Debug, Default)]
struct Half {
    /// Slots of a lockless half, before and after the copy; empty where they cannot be read.
    slots: [Vec<SlotState>; 2],
    /// Places; none where it is not wanted.
    places: Vec<Option<CopiedSubBuffer>>,
}

/// The copy of a sub-buffer's place.
#[derive(Debug, Clone)]
struct CopiedSubBuffer {
    number: u64,
    loaded: Loaded,
    /// Writers came round to it before it was copied, or meanwhile: only a checksum can vouch for it.
    is_overtaken: bool,
}

/// What is copied of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) halves: &'a [usize],
    /// Sub-buffers that were consumed or cleared are not copied.
    pub(crate) new_only: bool,
    /// The session region and its thread table.
    pub(crate) threads: Option<(&'a Region, ThreadTable)>,
}

impl Frozen {
    /// A file for a copy.
    ///
    /// # Errors
    /// There is no temporary file to be had.
    pub(crate) fn file() -> Result<Arc<File>, Error> {
        tempfile::tempfile().map(Arc::new).map_err(|error| failed(&error))
    }

    /// Copies the halves of a stream into an empty file.
    ///
    /// # Errors
    /// The file has no room; the control words cannot be read; the budget is spent.
    pub(crate) fn of(stream: &Stream, file: &Arc<File>, wanted: &Wanted<'_>, budget: &Budget) -> Result<Self, Error> {
        let file = Arc::clone(file);
        let control = stream.control(budget)?;
        let mut frozen = Self { control, after: control, announced: Ok(Vec::new()), halves: Default::default(), file };
        let is_lockless = stream.geometry.is_lockless();
        let slots = |half: usize| match is_lockless {
            true => slots(&*stream.image, &stream.region, &stream.geometry, half, budget).unwrap_or_default(),
            false => Vec::new(),
        };
        let before: Vec<_> = wanted.halves.iter().map(|half| slots(*half)).collect();
        if let Some((region, table)) = wanted.threads.filter(|_| is_lockless) {
            frozen.announced = announced(&*stream.image, region, table, budget);
        }
        for (half, before) in wanted.halves.iter().zip(before) {
            let places = frozen.copy(stream, *half, wanted.new_only, budget).map_err(|error| failed(&error))?;
            if let Some(of) = frozen.halves.get_mut(*half) {
                *of = Half { slots: [before, slots(*half)], places };
            }
        }
        frozen.after = stream.control(budget)?;
        Ok(frozen)
    }

    /// Copies from the oldest sub-buffer on. Once writers were faster than that, from the newest back: these they reach last.
    fn copy(
        &self,
        stream: &Stream,
        half: usize,
        new_only: bool,
        budget: &Budget,
    ) -> std::io::Result<Vec<Option<CopiedSubBuffer>>> {
        let g = stream.geometry;
        let words = self.control.half.get(half).copied().unwrap_or_default();
        let position = words.position(&g);
        if words.reserve == 0 && words.attempt == 0 {
            // It was never begun.
            return Ok(Vec::new());
        }
        let mut places = vec![None; usize::try_from(stream.places_held(half)).unwrap_or(0)];
        // A sub-buffer that was not begun has not overwritten the one in its place.
        let newest = g.number(position).saturating_sub(u64::from(g.within(position) == 0));
        let mut oldest = newest.saturating_add(1).saturating_sub(g.count);
        if new_only {
            oldest = oldest.max(g.number(words.first));
        }
        // Of a ring that has not come round, what lies behind the current sub-buffer is looked at too: damage shows there.
        let newest = if new_only { newest } else { oldest.saturating_add(g.count).saturating_sub(1) };
        let mut left = oldest..=newest;
        let mut is_behind = false;
        let mut buf = Vec::new();
        while let Some(number) = if is_behind { left.next_back() } else { left.next() } {
            let at = g.place(number);
            let Some(place) = usize::try_from(at).ok().and_then(|at| places.get_mut(at)) else { continue };
            let loaded = stream.load(half, number, usize::try_from(g.size).unwrap_or(0), &mut buf);
            // Whatever it was: a writer may be about to begin it anew.
            let is_overtaken = stream.is_overtaken(half, number, u64::MAX, budget);
            is_behind |= is_overtaken;
            // A hole in the file reads as zeros, too.
            if buf.iter().any(|byte| *byte != 0) {
                self.file.write_all_at(&buf, offset(stream, half, at))?;
            }
            *place = Some(CopiedSubBuffer { number, loaded, is_overtaken });
        }
        self.file.set_len(g.half_size().saturating_mul(2))?;
        Ok(places)
    }

    fn place(&self, stream: &Stream, half: usize, number: u64) -> Option<&CopiedSubBuffer> {
        let at = usize::try_from(stream.geometry.place(number)).ok()?;
        self.halves.get(half)?.places.get(at)?.as_ref()
    }

    /// [`Stream::load`], of the copy.
    pub(crate) fn load(&self, stream: &Stream, half: usize, number: u64, len: usize, buf: &mut Vec<u8>) -> Loaded {
        buf.clear();
        let Some(CopiedSubBuffer { loaded: kept, .. }) = self.place(stream, half, number) else {
            return Loaded { got: 0, missing: Some("it was not copied".into()) };
        };
        let got = len.min(kept.got);
        buf.resize(got, 0);
        match self.file.read_exact_at(buf, offset(stream, half, stream.geometry.place(number))) {
            Ok(()) => Loaded { got, missing: kept.missing.clone().filter(|_| got < len) },
            Err(error) => Loaded { got: 0, missing: Some(format!("its copy cannot be read: {error}")) },
        }
    }

    /// Writers came round to the place of this sub-buffer before it was copied, or meanwhile.
    pub(crate) fn is_overtaken(&self, stream: &Stream, half: usize, number: u64) -> bool {
        self.place(stream, half, number).is_some_and(|place| place.is_overtaken || place.number > number)
    }

    /// Slots of a half: as they were before the copy, or after it.
    pub(crate) fn slots(&self, half: usize, after: bool) -> Vec<SlotState> {
        let slots = self.halves.get(half).and_then(|half| half.slots.get(usize::from(after)));
        slots.cloned().unwrap_or_default()
    }

    /// Writers were so fast that no event of the half up to `clock` is in the copy, though they recorded since `first`.
    pub(crate) fn is_hollow(&self, stream: &Stream, half: usize, clock: u64) -> bool {
        let g = stream.geometry;
        let words = self.control.half.get(half).copied().unwrap_or_default();
        let current = g.number(words.position(&g));
        let oldest = current.saturating_add(1).saturating_sub(g.count);
        let has_come_round = g.number(words.first) < oldest;
        let mut head = Vec::new();
        let is_early = |number: u64, head: &mut Vec<u8>| {
            self.load(stream, half, number, HEADER_LEN, head);
            let header = Header::parse(head, stream.identity.order);
            header.is_ok_and(|header| header.begin <= clock) && !self.is_overtaken(stream, half, number)
        };
        has_come_round && !(oldest..=current).any(|number| is_early(number, &mut head))
    }
}

fn failed(error: &std::io::Error) -> Error {
    Error::io("a temporary file", 0, error)
}

/// Where a place of a half lies in the file.
fn offset(stream: &Stream, half: usize, place: u64) -> u64 {
    let g = stream.geometry;
    let half = if half == 0 { 0 } else { g.half_size() };
    half.saturating_add(place.saturating_mul(g.size))
}
