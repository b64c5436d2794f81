//! Allocates pages of private memory, for recovery from a core. There is no large contiguous
//! mapping, and nothing is outside the process.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, madvise, munmap};

use super::{Allocated, BackendError, Mapping, PAGE, Plan};
use crate::os::private_memory;

/// Allocates regions as private mappings. The data of streams is in pages that [`fill_pages`] maps.
pub(super) fn allocate(plans: &[Plan]) -> Allocated {
    let block = |plan: &Plan| {
        let start = memory(plan.len as usize)?;
        Ok(Mapping { name: plan.name.clone(), start, len: plan.len, backing: None })
    };
    let note = "pages of 4096 bytes on the heap; other processes cannot see them, a core has them";
    Ok((plans.iter().map(block).collect::<Result<_, BackendError>>()?, note.to_owned()))
}

fn memory(len: usize) -> Result<NonNull<u8>, BackendError> {
    private_memory(len)
        .ok_or_else(|| BackendError::new("allocate", "the heap", 0, len as u64, Errno::NOMEM))
}

/// Enters fresh zeroed pages in a page table where it has none. Pages are mapped in runs of 16.
///
/// # Errors
/// The system has no memory. Pages that were already entered stay.
pub fn fill_pages(table: &[AtomicU64]) -> Result<(), BackendError> {
    for run in table.chunks(RUN).filter(|run| run[0].load(Ordering::Relaxed) == 0) {
        let first = memory(len_of(run))?.as_ptr() as u64;
        // The first entry is written last: it means that the run is complete.
        for (index, entry) in run.iter().enumerate().rev() {
            entry.store(first + index as u64 * PAGE, Ordering::Release);
        }
    }
    Ok(())
}

/// Frees the pages of a page table.
///
/// # Safety
/// [`fill_pages`] filled the table, and nobody reads or writes its pages, now or later.
pub unsafe fn free_pages(table: &[AtomicU64]) {
    for run in table.chunks(RUN) {
        let first = run[0].swap(0, Ordering::AcqRel) as *mut c_void;
        run.iter().for_each(|entry| entry.store(0, Ordering::Release));
        if !first.is_null() {
            // SAFETY: `fill_pages` mapped the run, and the swap gave its entry to this call only.
            // The caller guarantees that nobody uses the run.
            let _ = unsafe { munmap(first, len_of(run)) };
        }
    }
}

/// Gives the memory of a page table's pages back to the system but leaves them mapped, because late
/// recorders may still write.
///
/// # Safety
/// [`fill_pages`] filled the table.
pub unsafe fn discard_pages(table: &[AtomicU64]) {
    for run in table.chunks(RUN) {
        let first = run[0].load(Ordering::Relaxed) as *mut c_void;
        if !first.is_null() {
            // SAFETY: `fill_pages` mapped these pages, private and anonymous: they read as zeroes
            // afterwards.
            let _ = unsafe { madvise(first, len_of(run), Advice::LinuxDontNeed) };
        }
    }
}

/// Number of pages that are mapped at a time, to save system calls.
const RUN: usize = 16;

fn len_of(run: &[AtomicU64]) -> usize {
    run.len() * PAGE as usize
}
