//! The copy of halves that were being written. Planning and delivery read it in place of the image.

use super::layout::{Announced, Control, Geometry, Slots};
use super::loaded::Loaded;
use lastwords_bytes::Error;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A copy of one or both halves of a stream, with their control words.
#[derive(Debug)]
pub(crate) struct Frozen {
    /// The control words, read before the copy.
    pub(crate) control: Control,
    /// The control words, read after the copy.
    pub(crate) after: Control,
    /// Announced reservations, read after `control`; an error if the table cannot be read.
    pub(crate) announced: Result<Vec<Announced>, Error>,
    pub(super) halves: [Half; 2],
    /// Unlinked temporary file. Each sub-buffer is at the offset of its place; the second half
    /// follows the first.
    pub(super) file: Arc<File>,
}

#[derive(Debug, Default)]
pub(super) struct Half {
    /// Slots of a lockless half, read before and after the copy; empty if they cannot be read.
    pub(super) slots: [Slots; 2],
    /// Copied places of the half.
    pub(super) places: BTreeMap<u64, CopiedSubBuffer>,
}

/// The copy of a sub-buffer's place.
#[derive(Debug, Clone)]
pub(super) struct CopiedSubBuffer {
    pub(super) number: u64,
    pub(super) loaded: Loaded,
    /// Writers reused the place before or during the copy: only a checksum can prove the bytes.
    pub(super) is_overtaken: bool,
}

impl Frozen {
    pub(super) fn place(&self, g: &Geometry, half: usize, number: u64) -> Option<&CopiedSubBuffer> {
        self.halves.get(half)?.places.get(&g.place(number))
    }

    /// Same as [`super::data::Stream::load`], but from the copy.
    pub(crate) fn load(
        &self,
        g: &Geometry,
        half: usize,
        number: u64,
        len: usize,
        buf: &mut Vec<u8>,
    ) -> Loaded {
        buf.clear();
        let Some(CopiedSubBuffer { loaded: kept, .. }) = self.place(g, half, number) else {
            return Loaded { got: 0, missing: Some("it was not copied".into()) };
        };
        let got = len.min(kept.got);
        buf.resize(got, 0);
        match self.file.read_exact_at(buf, offset(g, half, g.place(number))) {
            Ok(()) => Loaded { got, missing: kept.missing.clone().filter(|_| got < len) },
            Err(error) => {
                Loaded { got: 0, missing: Some(format!("its copy cannot be read: {error}")) }
            }
        }
    }

    /// True if writers reused the place of this sub-buffer before or during the copy.
    pub(crate) fn is_overtaken(&self, g: &Geometry, half: usize, number: u64) -> bool {
        self.place(g, half, number).is_some_and(|place| place.is_overtaken || place.number > number)
    }

    /// Slots of a half, read before or after the copy.
    pub(crate) fn slots(&self, half: usize, after: bool) -> Option<&Slots> {
        self.halves.get(half)?.slots.get(usize::from(after))
    }

    /// Returns the first place from `place` on that was copied, or `end`.
    pub(crate) fn next_place(&self, half: usize, place: u64, end: u64) -> u64 {
        let copied = self.halves.get(half).and_then(|half| half.places.range(place..).next());
        copied.map_or(end, |(place, _)| *place).min(end)
    }
}

/// Offset in the file of a place of a half.
pub(super) fn offset(g: &Geometry, half: usize, place: u64) -> u64 {
    let half = if half == 0 { 0 } else { g.half_size() };
    half.saturating_add(place.saturating_mul(g.size))
}
