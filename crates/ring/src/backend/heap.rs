//! Pages on the heap: no large contiguous mapping, nothing outside the process; for recovery from a core.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use super::{Allocated, BackendError, Mapping, PAGE, Plan};

/// Regions as blocks of the heap; the data of streams is pages that [`fill_pages`] allocates.
pub(super) fn allocate(plans: &[Plan]) -> Allocated {
    let block = |plan: &Plan| {
        let layout = layout(plan.len);
        let layout =
            layout.ok_or_else(|| BackendError::invalid("the heap", 0, plan.len, "no such length can be allocated"))?;
        // SAFETY: the layout's size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| no_memory(layout))?;
        Ok(Mapping { name: plan.name.clone(), start, len: plan.len, backing: None })
    };
    let note = "pages of 4096 bytes on the heap; other processes cannot see them, a core has them";
    Ok((plans.iter().map(block).collect::<Result<_, BackendError>>()?, note.to_owned()))
}

/// How a block of a length lies; `None` where there can be no such block.
fn layout(len: u64) -> Option<Layout> {
    let len = usize::try_from(len).ok().filter(|len| *len > 0)?;
    Layout::from_size_align(len, PAGE as usize).ok()
}

/// Frees a block.
///
/// # Safety
/// [`allocate`] made it with this length, and nobody uses it, now or later.
pub(super) unsafe fn free(start: NonNull<u8>, len: u64) {
    if let Some(layout) = layout(len) {
        // SAFETY: the block was made with this layout, as the caller vouches.
        unsafe { dealloc(start.as_ptr(), layout) };
    }
}

fn no_memory(layout: Layout) -> BackendError {
    BackendError::new("allocate", "the heap", 0, layout.size() as u64, Errno::NOMEM)
}

/// Enters fresh zeroed pages in a page table, where it has none. Pages are taken from the heap in runs of 16.
///
/// # Errors
/// The heap has no memory; pages that were entered stay.
pub fn fill_pages(table: &[AtomicU64]) -> Result<(), BackendError> {
    for run in table.chunks(RUN) {
        if run[0].load(Ordering::Relaxed) != 0 {
            continue;
        }
        let layout = run_layout(run.len());
        // SAFETY: the layout has a size that is not 0.
        let first = unsafe { alloc_zeroed(layout) } as u64;
        if first == 0 {
            return Err(no_memory(layout));
        }
        // The first entry is written last: it says that the run is there.
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
        let first = run[0].swap(0, Ordering::AcqRel) as *mut u8;
        run.iter().for_each(|entry| entry.store(0, Ordering::Release));
        if !first.is_null() {
            // SAFETY: `fill_pages` made the run with this layout, and the swap gave it to us alone; nobody uses it, as the
            // caller vouches.
            unsafe { dealloc(first, run_layout(run.len())) };
        }
    }
}

/// Gives the memory of a page table's pages back to the system but leaves them mapped: late recorders may write.
///
/// # Safety
/// [`fill_pages`] filled the table.
pub unsafe fn discard_pages(table: &[AtomicU64]) {
    for entry in table {
        let page = entry.load(Ordering::Relaxed) as *mut core::ffi::c_void;
        if !page.is_null() {
            // SAFETY: a page that `fill_pages` made, aligned to its size, private and anonymous: it reads as zeroes after.
            let _ = unsafe { madvise(page, PAGE as usize, Advice::LinuxDontNeed) };
        }
    }
}

/// Pages that are allocated at a time: `malloc` puts a header before each block, which would cost a page for every page.
const RUN: usize = 16;

fn run_layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * PAGE as usize, PAGE as usize).expect("a page's size is a power of two")
}
