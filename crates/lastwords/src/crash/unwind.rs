//! Backtraces for signal handlers. This code does not allocate and takes no lock of this library,
//! and the kernel checks every doubtful read.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::MAX_FRAMES;
use crate::record::encode::{Hex, hex};

/// The addresses found so far. A nested handler reads them if the unwinder itself has crashed.
pub(super) struct Frames {
    pc: [AtomicU64; MAX_FRAMES],
    len: AtomicUsize,
}

impl Frames {
    pub(super) const fn new() -> Self {
        Self { pc: [const { AtomicU64::new(0) }; MAX_FRAMES], len: AtomicUsize::new(0) }
    }

    fn len(&self) -> usize {
        self.len.load(Relaxed).min(MAX_FRAMES)
    }

    /// Appends an address. Returns false if the list is full.
    fn push(&self, pc: u64) -> bool {
        let len = self.len();
        let Some(place) = self.pc.get(len) else { return false };
        place.store(pc, Relaxed);
        self.len.store(len + 1, Relaxed);
        true
    }

    /// Copies the addresses to `room` and returns the copies.
    pub(super) fn copy<'a>(&self, room: &'a mut [Hex<u64>; MAX_FRAMES]) -> &'a [Hex<u64>] {
        let len = self.len();
        for (to, from) in room.iter_mut().zip(&self.pc[..len]) {
            *to = hex(from.load(Relaxed));
        }
        &room[..len]
    }
}

// This is the unwinder that every Rust program links (libgcc_s or libunwind), Itanium C++ ABI
// "Exception Handling", level I.
unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(context: *mut c_void, argument: *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// `_URC_NO_REASON`: the unwinder continues.
const GO_ON: c_int = 0;
/// `_URC_END_OF_STACK`: the unwinder stops.
const END: c_int = 5;

struct Walk<'a> {
    frames: &'a Frames,
    /// Frames before this address are the handler's own; 0 = keep all.
    from: u64,
    /// Number of frames seen, including the handler's own.
    seen: usize,
}

extern "C" fn each_frame(context: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the `Walk` that `unwind` passes. It is alive and nobody else uses it
    // during the call. `context` is the unwinder's own.
    let (walk, pc) = unsafe { (&mut *argument.cast::<Walk<'_>>(), _Unwind_GetIP(context) as u64) };
    walk.seen += 1;
    if pc == walk.from {
        walk.from = 0;
    }
    if walk.from == 0 && (pc == 0 || !walk.frames.push(pc)) {
        return END;
    }
    if walk.seen > 4 * MAX_FRAMES { END } else { GO_ON }
}

/// Adds the return addresses of this thread's stack, starting at the frame at `from` (0: at this
/// one). With glibc 2.35 or newer, the unwinder finds the tables without a lock
/// (`_dl_find_object`). It may crash on a destroyed stack; the caller must handle that.
pub(super) fn unwind(frames: &Frames, from: u64) {
    let mut walk = Walk { frames, from, seen: 0 };
    // SAFETY: `each_frame` takes what it is given here and does not unwind.
    unsafe {
        _Unwind_Backtrace(each_frame, (&raw mut walk).cast());
    }
}

/// Reads a word of this process through the kernel. Returns none if the address is not mapped.
fn read_word(address: u64) -> Option<u64> {
    let mut word = 0u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: 8 };
    // SAFETY: the local vector is `word`; a bad remote address is an error, not a fault.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    (read == 8).then_some(word)
}

/// Largest distance between two frame pointers, in bytes.
const FRAME_LIMIT: u64 = 1 << 20;

/// Adds the return addresses along the chain of frame pointers, as long as the chain is plausible.
pub(super) fn follow_frame_pointers(frames: &Frames, mut frame: u64) {
    while frame != 0 && frame.is_multiple_of(8) {
        let (Some(next), Some(pc)) = (read_word(frame), read_word(frame.wrapping_add(8))) else {
            return;
        };
        if pc < 4096 || !frames.push(pc) || next <= frame || next - frame > FRAME_LIMIT {
            return;
        }
        frame = next;
    }
}

/// Registers of the interrupted code that show where it was.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Registers {
    pub(super) pc: u64,
    pub(super) stack: u64,
    pub(super) frame: u64,
}

impl Registers {
    /// Reads the registers from the context of a signal handler.
    ///
    /// # Safety
    /// `context` is a handler's third argument, or null.
    pub(super) unsafe fn from_context(context: *const libc::ucontext_t) -> Self {
        if context.is_null() {
            return Self::default();
        }
        // SAFETY: the caller guarantees the context.
        let machine = unsafe { &(*context).uc_mcontext };
        #[cfg(target_arch = "x86_64")]
        return Self {
            pc: machine.gregs[libc::REG_RIP as usize] as u64,
            stack: machine.gregs[libc::REG_RSP as usize] as u64,
            frame: machine.gregs[libc::REG_RBP as usize] as u64,
        };
        #[cfg(target_arch = "aarch64")]
        return Self { pc: machine.pc, stack: machine.sp, frame: machine.regs[29] };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            let _ = machine;
            Self::default()
        }
    }
}

/// Makes the backtrace of interrupted code: its pc first, then the frames of the unwind tables. If
/// the tables do not cover the code (a call to an invalid address, code without tables), the word
/// on top of the stack and the frame pointers are used.
pub(super) fn interrupted(frames: &Frames, at: Registers) {
    frames.len.store(0, Relaxed);
    // If the address is not mapped, unwinding is impossible: the unwinder would look for code
    // there, and fault.
    if read_word(at.pc).is_some() {
        unwind(frames, at.pc);
    }
    if frames.len() == 0 {
        // The walk never reached the interrupted code.
        frames.push(at.pc);
    }
    if frames.len() >= 3 {
        return;
    }
    if frames.len() <= 1 && cfg!(target_arch = "x86_64") {
        // A call through a bad pointer has pushed its return address.
        if let Some(caller) = read_word(at.stack).filter(|pc| *pc > 4096) {
            frames.push(caller);
        }
    }
    follow_frame_pointers(frames, at.frame);
}
