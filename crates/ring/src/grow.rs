//! Gives a ring its memory when it is first used.
//!
//! The data of a new ring is a hole in its file. Before a recorder begins a sub-buffer that has no memory yet, it writes to
//! each of its pages, without a change (`Stream::grow`). The kernel then allocates the pages. This needs no system
//! call, which a sandbox of the application may forbid, and no descriptor, which the application may have closed.
//!
//! If the file system is full, the kernel answers the write with SIGBUS. The handler of that signal asks [`resume_at`]
//! where the thread continues: behind the writes, which then report the failure. Nothing has changed in the ring. Events
//! for which no sub-buffer can be begun are recorded in the channel's ring for threads of any CPU, which has some memory from
//! the start, or else counted as lost.
//!
//! Processes limit how much memory their rings take in all ([`allow`]), because an allocation at the limit of a control group
//! does not fail: the kernel kills a process.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use lastwords_abi::sync::Ordering::{AcqRel, Acquire, Release};

use crate::memory::PAGE;
use crate::stream::Stream;

/// Bytes that the rings of this process may still take; `u64::MAX` if there is no limit. Each access is complete in itself: the
/// word orders no other memory.
static ALLOWED: AtomicU64 = AtomicU64::new(u64::MAX);

/// Attempts to get memory that fail at once, because one has failed before: each would be a signal. Relaxed: it orders no other
/// memory, and a lost update only changes how many attempts are left out.
static PAUSE: AtomicU32 = AtomicU32::new(0);
/// Attempts that are left out after one that failed.
const LEFT_OUT: u32 = 1024;

/// Limits the memory that the rings of this process take from now on, in bytes. `u64::MAX` is no limit.
pub fn allow(bytes: u64) {
    ALLOWED.store(bytes, Relaxed);
}

/// Takes bytes of what is allowed. Returns false if so many are not allowed. Async-signal-safe.
fn take(bytes: u64) -> bool {
    let rest = |allowed: u64| if allowed == u64::MAX { Some(allowed) } else { allowed.checked_sub(bytes) };
    ALLOWED.fetch_update(Relaxed, Relaxed, rest).is_ok()
}

/// Takes bytes of what is allowed, and writes to their pages, so that they have memory. Returns false if they get none; then some
/// attempts fail at once. Async-signal-safe.
///
/// # Safety
/// The conditions of [`touch`] apply.
unsafe fn back(start: *mut u8, len: u64) -> bool {
    let pause = PAUSE.load(Relaxed);
    if pause > 0 {
        PAUSE.store(pause - 1, Relaxed);
        return false;
    }
    // SAFETY: the caller guarantees the conditions.
    let done = take(len) && unsafe { touch(start, len) };
    if !done {
        PAUSE.store(LEFT_OUT, Relaxed);
    }
    done
}

/// Returns true if rings can get their memory when they are first used, on this architecture.
#[must_use]
pub const fn is_possible() -> bool {
    cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))
}

/// Returns where a thread continues that got SIGBUS at `instruction`: at another instruction if it was about to give a ring
/// memory, else none. Async-signal-safe.
#[must_use]
pub fn resume_at(instruction: usize) -> Option<usize> {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
    {
        let (first, failed) = (
            writes::lastwords_ring_touch as *const () as usize,
            writes::lastwords_ring_touch_failed as *const () as usize,
        );
        (first..failed).contains(&instruction).then_some(failed)
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri)))))]
    {
        let _ = instruction;
        None
    }
}

/// Writes to each page of `len` bytes at `start`, without a change. Returns false if the kernel has no memory for one.
/// Async-signal-safe.
///
/// # Safety
/// The bytes are mapped writable. A process that calls this has a handler of SIGBUS that asks [`resume_at`].
pub unsafe fn touch(start: *mut u8, len: u64) -> bool {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
    // SAFETY: the function adds 0 to a word of each page, in one atomic step, so that it changes nothing that others write.
    // The caller guarantees that the pages are mapped.
    return len == 0 || unsafe { writes::lastwords_ring_touch(start, start.wrapping_add(len as usize)) != 0 };
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri)))))]
    {
        let _ = (start, len);
        true
    }
}

/// The writes, with known addresses. The functions have no frame and save no registers, so that a handler can move a thread
/// from one to the other.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
mod writes {
    use core::arch::global_asm;

    #[cfg(target_arch = "x86_64")]
    global_asm!(
        ".pushsection .text.lastwords_ring_touch, \"ax\", @progbits",
        ".weak lastwords_ring_touch",
        ".hidden lastwords_ring_touch",
        ".type lastwords_ring_touch, @function",
        ".weak lastwords_ring_touch_failed",
        ".hidden lastwords_ring_touch_failed",
        ".type lastwords_ring_touch_failed, @function",
        "lastwords_ring_touch:",
        "2: lock add dword ptr [rdi], 0",
        "add rdi, {page}",
        "cmp rdi, rsi",
        "jb 2b",
        "mov eax, 1",
        "ret",
        "lastwords_ring_touch_failed:",
        "xor eax, eax",
        "ret",
        ".popsection",
        page = const super::PAGE,
    );

    #[cfg(target_arch = "aarch64")]
    global_asm!(
        ".pushsection .text.lastwords_ring_touch, \"ax\", @progbits",
        ".weak lastwords_ring_touch",
        ".hidden lastwords_ring_touch",
        ".type lastwords_ring_touch, @function",
        ".weak lastwords_ring_touch_failed",
        ".hidden lastwords_ring_touch_failed",
        ".type lastwords_ring_touch_failed, @function",
        "lastwords_ring_touch:",
        "2: ldxr w2, [x0]",
        "stxr w3, w2, [x0]",
        "cbnz w3, 2b",
        "add x0, x0, #{page}",
        "cmp x0, x1",
        "b.lo 2b",
        "mov w0, #1",
        "ret",
        "lastwords_ring_touch_failed:",
        "mov w0, #0",
        "ret",
        ".popsection",
        page = const super::PAGE,
    );

    unsafe extern "C" {
        /// Writes to each page from `from` to `end`; there is at least one. Returns 1.
        pub(super) fn lastwords_ring_touch(from: *mut u8, end: *mut u8) -> u32;
        /// The place where a thread continues that could not write. Returns 0.
        pub(super) fn lastwords_ring_touch_failed() -> u32;
    }
}

impl Stream {
    /// Makes sure that a half has memory from its begin to offset `end`. Returns false if it gets none; then nothing has
    /// changed. Async-signal-safe.
    #[cold]
    pub(crate) fn grow(&self, half: usize, end: u64) -> bool {
        if cfg!(loom) {
            // The memory of a model is not a mapping.
            return true;
        }
        let word = &self.half(half).backed;
        // Acquire: pairs with the store of `set_backed`, which a recorder in a half that was emptied meanwhile must see.
        let backed = word.load(Acquire);
        if backed >= end || self.spec.page_size != 0 {
            return true;
        }
        // The pages of both ends are complete: the data begins on a page, and the next sub-buffer's bytes may have memory early.
        let from = backed & !(PAGE as u64 - 1);
        let end = end.next_multiple_of(PAGE as u64);
        // SAFETY: `attach` checked that the half's data, whose length is a multiple of the page, is in the region.
        if !unsafe { back(self.data(half).wrapping_add(from as usize), end - from) } {
            return false;
        }
        // If the half was emptied and its memory freed meanwhile, the word is another, and the next recorder begins anew.
        let _ = word.compare_exchange(backed, end, AcqRel, Acquire);
        true
    }

    /// Sets how many bytes of a half have memory, from its begin.
    ///
    /// The memory is allocated before the call, or freed after it.
    pub fn set_backed(&self, half: usize, bytes: u64) {
        self.half(half).backed.store(bytes, Release);
    }

    /// Counts an event that was lost because the ring got no memory. The caller also counts it as busy.
    #[cold]
    pub(crate) fn count_refused(&self) {
        // Relaxed: the count orders no other memory.
        let add = |count: u32| count.checked_add(1);
        let _ = self.control.refused.fetch_update(Relaxed, Relaxed, add);
    }
}
