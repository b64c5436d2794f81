//! Memory that is never freed, not from the heap: a callsite may be reached first in a signal handler that interrupted
//! `malloc`. Where the system gives none, callers count the event as lost.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use lastwords_ring::os;

/// Bytes asked of the system at a time.
const CHUNK: usize = 64 << 10;

/// The newest chunk: how much of it is taken, then its bytes.
static CHUNK_NOW: AtomicPtr<AtomicUsize> = AtomicPtr::new(std::ptr::null_mut());

/// Keeps the value for ever; `None` where there is no memory. Async-signal-safe.
pub fn keep<T>(value: T) -> Option<&'static T> {
    keep_all([Some(value)])?.first()
}

/// Keeps the values for ever, one behind the other; `None` where there is no memory, or where a value is none. What was kept before
/// that one is not given back. Async-signal-safe.
pub fn keep_all<T>(values: impl IntoIterator<Item = Option<T>, IntoIter: ExactSizeIterator>) -> Option<&'static [T]> {
    const { assert!(align_of::<T>() <= 16) };
    let values = values.into_iter();
    let count = values.len();
    let place = take(size_of::<T>().checked_mul(count)?.checked_next_multiple_of(16)?)?.cast::<T>();
    let mut kept = 0;
    // SAFETY: as many bytes as `count` values have, ours alone, aligned to 16, never given back; as many values are there as
    // were written.
    unsafe {
        for value in values.take(count) {
            place.add(kept).write(value?);
            kept += 1;
        }
        Some(std::slice::from_raw_parts(place.as_ptr(), kept))
    }
}

/// `len` bytes, a multiple of 16: of a chunk, or, where they are many (a long table of labels), of the system.
fn take(len: usize) -> Option<NonNull<u8>> {
    if len > CHUNK / 2 {
        return os::private_memory(len);
    }
    loop {
        let chunk = CHUNK_NOW.load(Acquire);
        if !chunk.is_null() {
            // SAFETY: a chunk lives for ever and begins with the number of its bytes that are taken.
            let at = unsafe { &*chunk }.fetch_add(len, AcqRel);
            if at + len <= CHUNK {
                return NonNull::new(chunk.cast::<u8>().wrapping_add(at));
            }
        }
        let fresh = os::private_memory(CHUNK)?.cast::<AtomicUsize>().as_ptr();
        // SAFETY: new memory of our own, page-aligned.
        unsafe { fresh.write(AtomicUsize::new(16)) };
        if CHUNK_NOW.compare_exchange(chunk, fresh, AcqRel, Acquire).is_err() {
            // SAFETY: nobody else has seen this chunk.
            unsafe { libc::munmap(fresh.cast(), CHUNK) };
        }
    }
}
