//! Reads the sub-buffers of a stream.

use super::frozen::Frozen;
use super::layout::{Control, Geometry, SlotState, Slots, slot, slots};
use super::loaded::Loaded;
use super::packet::Identity;
use super::region::Region;
use super::sparse::{self, Stop};
use lastwords_abi::packet::HEADER_LEN;
use lastwords_bytes::{Budget, Error, Reader};
use lastwords_image::{Hole, HoleCause, Image};
use std::sync::Arc;

/// Bytes of pages of a process that are read at a time.
const STEP: usize = 1 << 20;

/// A stream region with its parsed geometry.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) image: Arc<dyn Image>,
    pub(crate) region: Region,
    pub(crate) geometry: Geometry,
    pub(crate) identity: Identity,
    /// Copy of the stream, if it was being written; then all reads use the copy.
    pub(crate) frozen: Option<Arc<Frozen>>,
}

impl Stream {
    pub(crate) fn new(image: &Arc<dyn Image>, region: &Region) -> Result<Self, Error> {
        let geometry = Geometry::parse(region)?;
        let identity = Identity {
            uuid: region.session,
            channel: geometry.channel,
            stream: region.index,
            cpu: geometry.cpu,
            size: geometry.size,
            order: region.order,
        };
        Ok(Self { image: image.clone(), region: region.clone(), geometry, identity, frozen: None })
    }

    /// The stream's control words: read now, or as they were before the copy was made.
    pub(crate) fn control(&self, budget: &Budget) -> Result<Control, Error> {
        match &self.frozen {
            Some(frozen) => Ok(frozen.control),
            None => Control::read(&*self.image, &self.region, budget),
        }
    }

    /// The control words, read again: now, or as they were after the copy was made. A difference
    /// shows that writers are active.
    pub(crate) fn control_again(&self, budget: &Budget) -> Result<Control, Error> {
        self.frozen.as_ref().map_or_else(|| self.control(budget), |frozen| Ok(frozen.after))
    }

    /// The slots of a half of a lockless stream.
    pub(crate) fn slots(&self, half: usize, budget: &Budget) -> Result<Slots, Error> {
        match &self.frozen {
            Some(frozen) => Ok(frozen.slots(half, false).cloned().unwrap_or_default()),
            None => slots(&*self.image, &self.region, &self.geometry, half, budget),
        }
    }

    /// The slot of a place, read again: now, or as it was after the copy was made. None if it
    /// cannot be read.
    pub(crate) fn slot_again(&self, half: usize, place: u64, budget: &Budget) -> Option<SlotState> {
        match &self.frozen {
            Some(frozen) => frozen.slots(half, true)?.state(place),
            None => slot(&*self.image, &self.region, &self.geometry, (half, place), budget).ok(),
        }
    }

    /// True if writers have reused the place of this sub-buffer since the half's reserve word was
    /// `reserve`.
    pub(crate) fn is_overtaken(
        &self,
        half: usize,
        number: u64,
        reserve: u64,
        budget: &Budget,
    ) -> bool {
        if let Some(frozen) = &self.frozen {
            return frozen.is_overtaken(&self.geometry, half, number);
        }
        let Ok(control) = self.control(budget) else { return false };
        let words = control.half.get(half).copied().unwrap_or_default();
        let g = &self.geometry;
        let position = words.position(g);
        let (behind, current) = (number.saturating_add(g.count), g.number(position));
        // At the start of the next place, a writer announces its attempt before it writes any bytes
        // there.
        let untouched = g.within(position) == 0 && words.attempt == words.reserve;
        words.reserve != reserve && (behind < current || (behind == current && !untouched))
    }

    /// Number of sub-buffer places of a half of which the image may have bytes; later places are
    /// certainly missing.
    pub(crate) fn places_held(&self, half: usize) -> u64 {
        let data = self.geometry.data_off.get(half).copied().unwrap_or(0);
        let held = self.region.held.saturating_sub(data);
        let bytes = match self.geometry.page_size {
            0 => held,
            page => (held / 8).saturating_mul(page),
        };
        bytes.div_ceil(self.geometry.size.max(1)).min(self.geometry.count)
    }

    /// Replaces `buf` with the first `len` bytes of sub-buffer `number`, or fewer if the image
    /// lacks them.
    pub(crate) fn load(&self, half: usize, number: u64, len: usize, buf: &mut Vec<u8>) -> Loaded {
        if let Some(frozen) = &self.frozen {
            return frozen.load(&self.geometry, half, number, len, buf);
        }
        let place = self.geometry.place(number);
        if place >= self.places_held(half) {
            buf.clear();
            return Loaded { got: 0, missing: Some("the image ends before it".into()) };
        }
        let offset = place.saturating_mul(self.geometry.size);
        if self.geometry.page_size == 0 {
            let stopped =
                sparse::read(&*self.image, self.data(half).saturating_add(offset), len, buf).err();
            let missing = stopped.map(|stop| match stop {
                Stop::Missing(hole) => why(&hole),
                Stop::Holes => "the file has a hole in it that is larger than the data".into(),
            });
            return Loaded { got: buf.len(), missing };
        }
        let mut got = 0usize;
        let mut missing = None;
        while got < len && missing.is_none() {
            let step = STEP.min(len.saturating_sub(got));
            let end = got.saturating_add(step);
            if buf.len() < end {
                buf.resize(end, 0);
            }
            let Some(part) = buf.get_mut(got..end) else { break };
            let outcome = self.read(half, offset.saturating_add(got as u64), part);
            match outcome {
                Ok(()) => got = end,
                Err((done, why)) => {
                    got = got.saturating_add(done);
                    missing = Some(why);
                }
            }
        }
        buf.truncate(got);
        Loaded { got, missing }
    }

    /// Address of a half's data.
    fn data(&self, half: usize) -> u64 {
        self.region.address.saturating_add(self.geometry.data_off.get(half).copied().unwrap_or(0))
    }

    /// Returns the first place from `place` on whose header may be there, or `end`. Places in a
    /// hole of a sparse file are skipped.
    pub(crate) fn next_place(&self, half: usize, place: u64, end: u64) -> u64 {
        let size = self.geometry.size;
        if let Some(frozen) = &self.frozen {
            return frozen.next_place(half, place, end);
        }
        if self.geometry.page_size != 0 {
            return place;
        }
        let address = |place: u64| self.data(half).saturating_add(place.saturating_mul(size));
        let skipped =
            self.image.next_data(address(place), address(end)).saturating_sub(address(place));
        let within = skipped & size.wrapping_sub(1);
        // Data behind a header in a hole belong to a place without a header.
        let after = u64::from(within >= HEADER_LEN as u64);
        place.saturating_add(skipped.checked_div(size).unwrap_or(0)).saturating_add(after).min(end)
    }

    /// Fills `buf` from `offset` in a half's data, which is in pages; an error has the number of
    /// bytes read and the reason.
    fn read(&self, half: usize, offset: u64, buf: &mut [u8]) -> Result<(), (usize, String)> {
        let data = self.geometry.data_off.get(half).copied().unwrap_or(0);
        let mut done = 0usize;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let page = at.checked_div(self.geometry.page_size).unwrap_or(0);
            let within = at & self.geometry.page_size.wrapping_sub(1);
            let run = self.geometry.page_size.saturating_sub(within);
            let end =
                done.saturating_add(usize::try_from(run).unwrap_or(usize::MAX)).min(buf.len());
            let address = self.page(data, page).map_err(|why| (done, why))?;
            let Some(part) = buf.get_mut(done..end) else { break };
            let outcome = self.read_at(address.saturating_add(within), part);
            outcome.map_err(|(more, why)| (done.saturating_add(more), why))?;
            done = end;
        }
        Ok(())
    }

    /// Looks up the address of a page in the page table.
    fn page(&self, table: u64, page: u64) -> Result<u64, String> {
        if !self.image.is_virtual() {
            return Err(
                "its pages are in the memory of the process, which this image does not have".into(),
            );
        }
        let mut entry = [0u8; 8];
        let at = self.region.address.saturating_add(table).saturating_add(page.saturating_mul(8));
        self.read_at(at, &mut entry).map_err(|(_, why)| format!("page table: {why}"))?;
        match Reader::new("page table", &entry, self.region.order).u64_at(0) {
            Ok(0) | Err(_) => Err(format!("page {page} was never allocated")),
            Ok(address) => Ok(address),
        }
    }

    fn read_at(&self, address: u64, buf: &mut [u8]) -> Result<(), (usize, String)> {
        self.image.read(address, buf).map_err(|hole| {
            (usize::try_from(hole.address.saturating_sub(address)).unwrap_or(0), why(&hole))
        })
    }
}

/// Returns why the image does not have a byte.
fn why(hole: &Hole) -> String {
    match hole.cause {
        HoleCause::Excluded => format!("address {:#x} was left out of the image", hole.address),
        HoleCause::Truncated => "the file ends before it".into(),
        HoleCause::Bad => format!("address {:#x} cannot be read", hole.address),
        HoleCause::Unmapped => format!("address {:#x} is not in the image", hole.address),
    }
}
