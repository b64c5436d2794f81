//! Regions one after another in one file, device or memfd.

use core::ptr::NonNull;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use lastwords_abi::region::{MAGIC, REGION_ALIGN};

use super::mapping::Backing;
use super::{BackendError, Mapping, Plan, file, round_up};

/// The step of regions where nothing asks for more.
pub(super) const PAGE: u64 = REGION_ALIGN;

/// One file that takes all regions, in one mapping.
pub(super) struct Arena {
    pub(super) fd: OwnedFd,
    pub(super) path: String,
    /// Offset in the file of the first region.
    pub(super) base: u64,
    /// Whether blocks come and go by fallocate.
    pub(super) blocks: bool,
    /// The whole mapping's length is a multiple of this.
    pub(super) step: u64,
    /// Flags of the mapping.
    pub(super) flags: i32,
}

/// Bytes of an arena for `plans`.
pub(super) fn length(plans: &[Plan], step: u64) -> u64 {
    round_up(plans.iter().map(|plan| round_up(plan.len, PAGE)).sum(), step)
}

impl Arena {
    /// Gives blocks to what is needed, maps all at once and cuts the mapping into regions.
    pub(super) fn allocate(self, plans: &[Plan]) -> Result<Vec<Mapping>, BackendError> {
        self.back(plans)?;
        let len = length(plans, self.step);
        let start = file::map(&self.fd, &self.path, self.base, len, self.flags)?;
        self.cut(start, plans)
    }

    /// Gives blocks to what the plans need.
    pub(super) fn back(&self, plans: &[Plan]) -> Result<(), BackendError> {
        if !self.blocks {
            return Ok(());
        }
        let mut at = self.base;
        for plan in plans {
            for range in plan.needed() {
                file::fallocate(&self.fd, &self.path, at + range.start, range.end - range.start)?;
            }
            at += round_up(plan.len, PAGE);
        }
        Ok(())
    }

    /// Names each plan's part of a mapping that begins at `start`.
    pub(super) fn cut(self, start: NonNull<u8>, plans: &[Plan]) -> Result<Vec<Mapping>, BackendError> {
        let held = file::hold(self.fd, &self.path)?;
        let mut at = 0u64;
        let mut mappings = Vec::with_capacity(plans.len());
        for plan in plans {
            // SAFETY: `at` stays inside the mapping, whose length is the sum of the plans' lengths or more.
            let start = unsafe { start.add(at as usize) };
            let (fd, path) = (Arc::clone(&held), self.path.clone());
            let backing = Backing::File { fd, path, offset: self.base + at, blocks: self.blocks };
            mappings.push(Mapping { name: plan.name.clone(), start, len: plan.len, backing });
            at += round_up(plan.len, PAGE);
        }
        Ok(mappings)
    }
}

/// Whether memory at `start` begins with a region of ours: last words that should be recovered before the place is used
/// anew.
///
/// # Safety
/// At least 16 bytes are readable at `start`.
#[must_use]
pub unsafe fn holds_session(start: *const u8) -> bool {
    let mut magic = [0u8; MAGIC.len()];
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(start, magic.as_mut_ptr(), magic.len()) };
    magic == MAGIC
}

/// Refuses, and unmaps, a place that holds a session unless `reuse`, then zeroes it and pushes the zeroes out of the caches.
///
/// # Safety
/// `len` bytes at `start` are a mapping of ours that nobody else uses.
pub(super) unsafe fn make_clean(
    start: NonNull<u8>,
    path: &str,
    offset: u64,
    len: u64,
    reuse: bool,
) -> Result<(), BackendError> {
    // SAFETY: a mapping has at least 4096 bytes.
    if !reuse && unsafe { holds_session(start.as_ptr()) } {
        let what =
            "a session is recorded here; recover it (`lastwords recover`), then allow its place to be used again";
        return Err(BackendError::invalid(path, offset, len, what));
    }
    // SAFETY: the caller's promise.
    unsafe { start.as_ptr().write_bytes(0, len as usize) };
    // SAFETY: the same range.
    unsafe { super::flush::flush(start.as_ptr(), len as usize) };
    super::flush::fence();
    Ok(())
}
