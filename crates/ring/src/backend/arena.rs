//! Places regions one after another in one file, device or memfd.

use core::ptr::NonNull;
use std::sync::Arc;

use lastwords_abi::region::{MAGIC, RegionHeader};
use rustix::mm::{MapFlags, munmap};

use super::file::NamedFile;
use super::mapping::Backing;
use super::{Allocated, BackendError, Mapping, PAGE, Plan};
use crate::flush;

/// One file that contains all regions, in one mapping.
pub(super) struct Arena<'a> {
    pub(super) plans: &'a [Plan],
    pub(super) file: NamedFile,
    /// Offset in the file of the first region.
    pub(super) base: u64,
    /// The file's blocks can be allocated and freed by fallocate.
    pub(super) blocks: bool,
}

/// Returns the bytes of an arena for `plans`, a multiple of `step`.
pub(super) fn length(plans: &[Plan], step: u64) -> u64 {
    plans.iter().map(|plan| plan.len).sum::<u64>().next_multiple_of(step)
}

impl Arena<'_> {
    /// Allocates blocks for the parts that need memory, maps `len` bytes and divides the mapping
    /// into regions.
    pub(super) fn allocate(self, len: u64) -> Result<Vec<Mapping>, BackendError> {
        self.back()?;
        let start = self.file.map(self.base, len, MapFlags::SHARED)?;
        Ok(self.cut(start))
    }

    /// Allocates blocks for the parts of the plans that need memory.
    pub(super) fn back(&self) -> Result<(), BackendError> {
        let mut at = self.base;
        for plan in self.plans.iter().filter(|_| self.blocks) {
            for range in
                [0..plan.sparse.start.min(plan.len), plan.sparse.end.min(plan.len)..plan.len]
            {
                self.file.fallocate(at + range.start, range.end - range.start)?;
            }
            at += plan.len;
        }
        Ok(())
    }

    /// Divides a mapping that begins at `start` into the plans' regions.
    pub(super) fn cut(self, start: NonNull<u8>) -> Vec<Mapping> {
        let (file, blocks) = (Arc::new(self.file), self.blocks);
        let mut at = 0u64;
        let cut = |plan: &Plan| {
            let backing = Some(Backing { file: Arc::clone(&file), offset: self.base + at, blocks });
            // SAFETY: `at` stays inside the mapping, whose length is at least the sum of the plans'
            // lengths.
            let start = unsafe { start.add(at as usize) };
            at += plan.len;
            Mapping { name: plan.name.clone(), start, len: plan.len, backing }
        };
        self.plans.iter().map(cut).collect()
    }

    /// Zeroes a mapping, flushes the zeroes out of the caches and divides the mapping into regions.
    /// If the memory contains a session, it should be recovered first: without `reuse`, such memory
    /// is refused and unmapped. `what` describes the chosen memory for people.
    ///
    /// # Safety
    /// `len` bytes at `start`, at least 4096, are a mapping of the arena's file that nobody else
    /// uses.
    pub(super) unsafe fn overwrite(
        self,
        start: NonNull<u8>,
        len: u64,
        reuse: bool,
        what: &str,
    ) -> Allocated {
        // SAFETY: the mapping is longer than a magic, and the caller guarantees that nobody else
        // uses it.
        unsafe {
            if !reuse && start.cast::<[u8; MAGIC.len()]>().read() == MAGIC {
                let _ = munmap(start.as_ptr().cast(), len as usize);
                let what = "a session is recorded here; recover it (`lastwords recover`), then allow its place to be used again";
                return Err(BackendError::invalid(&self.file.path, self.base, len, what));
            }
            self.forget_regions_behind(start, len);
            start.as_ptr().write_bytes(0, len as usize);
            flush::flush(start.as_ptr(), len as usize);
        }
        flush::fence();
        Ok((self.cut(start), format!("{what}; {}", flush::way())))
    }

    /// Removes the magic of the regions that an older, longer session has behind the mapping.
    /// Otherwise a reader would find them as the rest of a damaged session. Regions of a session
    /// follow one another, and each header has its region's length.
    ///
    /// # Safety
    /// The conditions of [`Arena::overwrite`] apply.
    unsafe fn forget_regions_behind(&self, start: NonNull<u8>, len: u64) {
        // SAFETY: the caller guarantees the mapping, which has at least 4096 bytes.
        let Some(first) = (unsafe { region_at(start) }) else { return };
        let is_of_it = |region: &RegionHeader| region.session == first.session;
        let mut at = first.size;
        while at < len {
            // SAFETY: the caller guarantees the mapping; `at` and `len` are multiples of 4096.
            let region = unsafe { region_at(start.add(at as usize)) }.filter(is_of_it);
            let Some(region) = region else { return };
            at = at.saturating_add(region.size);
        }
        while let Ok(page) = self.file.map_page_inside(self.base.saturating_add(at)) {
            // SAFETY: the page was just mapped, and nobody else uses it. It is unmapped after its
            // last use.
            let region = unsafe {
                let region = region_at(page).filter(is_of_it);
                if region.is_some() {
                    page.cast::<[u8; MAGIC.len()]>().write([0; MAGIC.len()]);
                    flush::flush(page.as_ptr(), MAGIC.len());
                    flush::fence();
                }
                let _ = munmap(page.as_ptr().cast(), PAGE as usize);
                region
            };
            let Some(region) = region else { return };
            at = at.saturating_add(region.size);
        }
    }
}

/// Returns the header of the region that begins at `page`, if one does.
///
/// # Safety
/// The 4096 bytes at `page`, which is aligned to them, are readable.
unsafe fn region_at(page: NonNull<u8>) -> Option<RegionHeader> {
    // SAFETY: the caller guarantees the bytes; the header is integers, which may have any value.
    let header = unsafe { page.cast::<RegionHeader>().read() };
    let is_region = header.magic == MAGIC && header.size > 0 && header.size.is_multiple_of(PAGE);
    is_region.then_some(header)
}
