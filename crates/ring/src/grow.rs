//! Gives a ring its memory when it is first used.
//!
//! The data of a new ring is a hole in its file. Before a recorder begins a sub-buffer that has no
//! memory yet, it makes the kernel allocate the pages (`Stream::grow`), in one of two ways.
//!
//! **Writes.** The thread writes to each page, without a change. This needs no system call, which a
//! sandbox of the application may forbid, and no descriptor, which the application may have closed.
//! If the file system is full, the kernel answers the write with SIGBUS. The handler of that signal
//! asks [`resume_at`] where the thread continues: behind the writes, which then report the failure.
//!
//! **Futexes.** A thread that blocks SIGBUS would not survive that, and no thread would in a
//! process that has replaced the handler. Such a thread makes the kernel write: the operation
//! `FUTEX_WAKE_OP` adds 0 to a word of each page, and returns an error where a write of the thread
//! would get a signal. `MADV_POPULATE_WRITE` would take fewer calls, but kernels before 5.14 do not
//! have it, and sandboxes that allow futexes, which all programs with threads need, more often
//! forbid `madvise`.
//!
//! A thread chooses its way before it grows a ring, because asking for its signals is a system call
//! too (`Signal`). A thread asks for its blocked signals and for the handler when it finds its
//! first lane, or claims an entry for reservations; a registration of a callsite shows the blocked
//! signals again. If the file system has little room when a session starts ([`watch_room`]), all
//! threads of the process use futexes, whatever they said before. So one case is left to the
//! handler of SIGBUS: a thread that changes its signals, or the handler, after its first event, and
//! grows a ring in a file system that has become full since the start.
//!
//! In both ways a failure changes nothing in the ring. Events for which no sub-buffer can be begun
//! are recorded in the channel's ring for threads of any CPU, which has some memory from the start,
//! or else counted as lost.
//!
//! Processes limit how much memory their rings take in all ([`allow`]), because an allocation at
//! the limit of a control group does not fail: the kernel kills a process. What the limit leaves
//! changes while a process records, so a thread that records no events reads it again and again,
//! and says how much of it the rings may take until its next look ([`leave`]).

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::OnceLock;

use lastwords_abi::sync::Ordering::{AcqRel, Acquire, Release};

use crate::errno::ErrnoKept;
use crate::memory::PAGE;
use crate::stream::Stream;
use crate::thread_cells::thread_cells;

/// Bytes that the rings of this process may still take; `u64::MAX` if there is no limit. Each
/// access is complete in itself: the word orders no other memory.
static ALLOWED: AtomicU64 = AtomicU64::new(u64::MAX);

/// Bytes that the rings of this process may take until the memory limit is read again; `u64::MAX` if
/// nobody reads it. Relaxed, as for [`ALLOWED`].
static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Attempts to get memory that fail at once, because one has failed before: each would be a signal.
/// Relaxed: it orders no other memory, and a lost update only changes how many attempts are left
/// out.
static PAUSE: AtomicU32 = AtomicU32::new(0);
/// Attempts that are left out after one that failed.
const LEFT_OUT: u32 = 1024;

/// Limits the memory that the rings of this process take from now on, in bytes. `u64::MAX` is no
/// limit.
pub fn allow(bytes: u64) {
    ALLOWED.store(bytes, Relaxed);
    LEFT.store(u64::MAX, Relaxed);
}

/// Returns the bytes that the rings of this process may still take; `u64::MAX` if there is no limit.
#[must_use]
pub fn allowed() -> u64 {
    ALLOWED.load(Relaxed)
}

/// Limits the memory that the rings of this process take until the next call, in bytes, besides
/// what they are allowed in all.
pub fn leave(bytes: u64) {
    LEFT.store(bytes, Relaxed);
}

/// Takes bytes of what is allowed. Returns false if so many are not allowed. Async-signal-safe.
fn take(bytes: u64) -> bool {
    let rest = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(bytes) };
    // If only the second refuses, the first is too small until the limit is read again.
    [&LEFT, &ALLOWED].iter().all(|left| left.fetch_update(Relaxed, Relaxed, rest).is_ok())
}

/// Below so many free bytes of the file system at the start of a session, no thread of the process
/// relies on the handler of SIGBUS.
const LITTLE_ROOM: u64 = 128 << 20;

/// The effect of SIGBUS on a thread, as far as the thread has asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    /// The thread has not asked.
    Unknown,
    /// When the thread asked, the signal was not blocked, and the handler was that of the recorder.
    Handled,
    /// The signal would end the process, or call a function of the application.
    Fatal,
}

thread_cells! {
    SIGNAL: Cell<Signal> = Cell::new(Signal::Unknown);
}

/// Returns true for the address of a function that handles SIGBUS by [`resume_at`]. Set once,
/// before the first session.
static IS_OURS: OnceLock<fn(usize) -> bool> = OnceLock::new();

/// No thread of this process relies on the handler. Set by a thread that finds another handler, or
/// little room, and never unset. Relaxed: the word orders no other memory.
static NOBODY_RELIES: AtomicBool = AtomicBool::new(false);

/// Sets the function that knows the handlers of SIGBUS that ask [`resume_at`]. The first one stays.
pub fn watch(is_ours: fn(usize) -> bool) {
    let _ = IS_OURS.set(is_ours);
}

/// Notes at the start of a session how many bytes its file system has left.
pub fn watch_room(free: u64) {
    if free < LITTLE_ROOM {
        NOBODY_RELIES.store(true, Relaxed);
    }
}

/// Asks for the handler of SIGBUS now: the application may have replaced it. Async-signal-safe.
pub fn look_at_handler() {
    if cfg!(any(loom, miri)) {
        return;
    }
    let _errno = ErrnoKept::now();
    // SAFETY: an all-zero action is valid, and the call fills this local variable.
    let function = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let failed = libc::sigaction(libc::SIGBUS, core::ptr::null(), &raw mut action) != 0;
        if failed { libc::SIG_DFL } else { action.sa_sigaction }
    };
    if !IS_OURS.get().is_some_and(|is_ours| is_ours(function)) {
        NOBODY_RELIES.store(true, Relaxed);
    }
}

/// Notes the signals that this thread blocked when the recorder blocked all others but SIGBUS. The
/// first time, it also asks for the handler.
pub(crate) fn look_again(blocked: &libc::sigset_t) {
    if SIGNAL.with(Cell::get) == Signal::Unknown {
        look_at_handler();
    }
    // SAFETY: the set is initialised.
    let is = |signal| unsafe { libc::sigismember(blocked, signal) == 1 };
    // The recorder has blocked the signals already, and noted what the thread blocks then.
    let is_nested = is(libc::SIGSEGV) && is(libc::SIGILL) && is(libc::SIGTRAP) && !is(libc::SIGBUS);
    if !is_nested || SIGNAL.with(Cell::get) == Signal::Unknown {
        note(blocked);
    }
}

fn note(blocked: &libc::sigset_t) {
    // SAFETY: the set is initialised.
    let is_blocked = unsafe { libc::sigismember(blocked, libc::SIGBUS) != 0 };
    SIGNAL.with(|signal| signal.set(if is_blocked { Signal::Fatal } else { Signal::Handled }));
}

/// Asks for the signals that this thread blocks, and for the handler, if the thread has not asked
/// yet. Async-signal-safe.
#[inline]
pub fn look() {
    if SIGNAL.with(Cell::get) == Signal::Unknown {
        look_now();
    }
}

#[cold]
fn look_now() {
    if cfg!(any(loom, miri)) {
        return;
    }
    // SAFETY: an all-zero set is valid, and the call fills this local variable. Without a new set,
    // it changes nothing.
    unsafe {
        let mut mask: libc::sigset_t = core::mem::zeroed();
        if libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &raw mut mask) != 0 {
            // A filter refuses the call.
            libc::sigaddset(&raw mut mask, libc::SIGBUS);
        }
        note(&mask);
    }
    look_at_handler();
}

/// Gives memory to the pages of `len` bytes at `start`. Returns false if the kernel has none for
/// one of them. Async-signal-safe.
///
/// # Safety
/// The bytes are mapped writable. The process has called [`watch`], and its handler of SIGBUS was
/// installed then.
pub unsafe fn give_memory(start: *mut u8, len: u64) -> bool {
    look();
    let is_handled = SIGNAL.with(Cell::get) == Signal::Handled && !NOBODY_RELIES.load(Relaxed);
    // SAFETY: the caller guarantees the pages. The thread gets SIGBUS only where it is handled.
    unsafe { if is_handled { touch(start, len) } else { touch_by_futex(start, len) } }
}

/// Makes the kernel write to each page of `len` bytes at `start`, without a change. Returns false
/// if it has no memory for one, or if it refuses the call. Async-signal-safe.
///
/// # Safety
/// The bytes are mapped writable.
unsafe fn touch_by_futex(start: *mut u8, len: u64) -> bool {
    /// `FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)` of linux/futex.h.
    const ADD_NOTHING: u32 = 1 << 28;
    if cfg!(any(loom, miri)) {
        return true;
    }
    let _errno = ErrnoKept::now();
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    // Nobody waits on this word, nor on the word of a page.
    let nobody = AtomicU32::new(0);
    (0..len).step_by(PAGE).all(|at| {
        let word = start.wrapping_add(at as usize);
        // SAFETY: the kernel adds 0 in one atomic step, so that it changes nothing that others
        // write. The caller guarantees the page.
        let woken = unsafe {
            libc::syscall(libc::SYS_futex, nobody.as_ptr(), operation, 0, 0usize, word, ADD_NOTHING)
        };
        woken >= 0
    })
}

/// Takes bytes of what is allowed, and gives memory to their pages. Returns false if they get none;
/// then some attempts fail at once. Async-signal-safe.
///
/// # Safety
/// The conditions of [`give_memory`] apply.
unsafe fn back(start: *mut u8, len: u64) -> bool {
    let pause = PAUSE.load(Relaxed);
    if pause > 0 {
        PAUSE.store(pause - 1, Relaxed);
        return false;
    }
    // SAFETY: the caller guarantees the conditions.
    let done = take(len) && unsafe { give_memory(start, len) };
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

/// Returns where a thread continues that got SIGBUS at `instruction`: at another instruction if it
/// was about to give a ring memory, else none. Async-signal-safe.
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

/// Writes to each page of `len` bytes at `start`, without a change. Returns false if the kernel has
/// no memory for one. Async-signal-safe.
///
/// # Safety
/// The bytes are mapped writable. The thread does not block SIGBUS, and its handler asks
/// [`resume_at`].
unsafe fn touch(start: *mut u8, len: u64) -> bool {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
    // SAFETY: the function adds 0 to a word of each page, in one atomic step, so that it changes
    // nothing that others write. The caller guarantees that the pages are mapped.
    return len == 0
        || unsafe { writes::lastwords_ring_touch(start, start.wrapping_add(len as usize)) != 0 };
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri)))))]
    {
        let _ = (start, len);
        true
    }
}

/// The writes, with known addresses. The functions have no frame and save no registers, so that a
/// handler can move a thread from one to the other.
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
    /// Makes sure that a half has memory from its begin to offset `end`. Returns false if it gets
    /// none; then nothing has changed. Async-signal-safe.
    #[cold]
    pub(crate) fn grow(&self, half: usize, end: u64) -> bool {
        if cfg!(loom) {
            // The memory of a model is not a mapping.
            return true;
        }
        let word = &self.half(half).backed;
        // Acquire: pairs with the store of `set_backed`, which a recorder in a half that was
        // emptied meanwhile must see.
        let backed = word.load(Acquire);
        if backed >= end || self.spec.page_size != 0 {
            return true;
        }
        // The pages of both ends are complete: the data begins on a page, and the next sub-buffer's
        // bytes may have memory early.
        let from = backed & !(PAGE as u64 - 1);
        let end = end.next_multiple_of(PAGE as u64);
        // SAFETY: `attach` checked that the half's data, whose length is a multiple of the page, is
        // in the region.
        if !unsafe { back(self.data(half).wrapping_add(from as usize), end - from) } {
            return false;
        }
        // If the half was emptied and its memory freed meanwhile, the word is another, and the next
        // recorder begins anew.
        let _ = word.compare_exchange(backed, end, AcqRel, Acquire);
        true
    }

    /// Sets how many bytes of a half have memory, from its begin.
    ///
    /// The memory is allocated before the call, or freed after it.
    pub fn set_backed(&self, half: usize, bytes: u64) {
        self.half(half).backed.store(bytes, Release);
    }

    /// Counts an event that was lost because the ring got no memory. The caller also counts it as
    /// busy.
    #[cold]
    pub(crate) fn count_refused(&self) {
        // Relaxed: the count orders no other memory.
        let add = |count: u32| count.checked_add(1);
        let _ = self.control.refused.fetch_update(Relaxed, Relaxed, add);
    }
}
