//! Memory that is never freed and does not come from the heap. A callsite may be reached first in a
//! signal handler that interrupted `malloc`. If the system gives no memory, callers count the event
//! as lost.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use lastwords_ring::os;

/// Bytes to request from the system at a time.
const CHUNK: usize = 64 << 10;

/// The newest chunk. It begins with the number of its used bytes.
static CHUNK_NOW: AtomicPtr<AtomicUsize> = AtomicPtr::new(std::ptr::null_mut());

/// Keeps the value for ever; returns `None` if there is no memory. Async-signal-safe.
pub fn keep<T>(value: T) -> Option<&'static T> {
    keep_all([Some(value)])?.first()
}

/// Keeps the values for ever, one after the other. Returns `None` if there is no memory, or if a
/// value is none. Values that were kept before that one are not freed. Async-signal-safe.
pub fn keep_all<T>(
    values: impl IntoIterator<Item = Option<T>, IntoIter: ExactSizeIterator>,
) -> Option<&'static [T]> {
    const { assert!(align_of::<T>() <= 16) };
    let values = values.into_iter();
    let count = values.len();
    let place = take(size_of::<T>().checked_mul(count)?.checked_next_multiple_of(16)?)?.cast::<T>();
    let mut kept = 0;
    // SAFETY: the memory has the bytes of `count` values, belongs to this call, is aligned to 16,
    // and is never freed. The slice has as many values as were written.
    unsafe {
        for value in values.take(count) {
            place.add(kept).write(value?);
            kept += 1;
        }
        Some(std::slice::from_raw_parts(place.as_ptr(), kept))
    }
}

/// Returns `len` bytes, a multiple of 16, from a chunk. Large requests (a long table of labels) go
/// to the system.
fn take(len: usize) -> Option<NonNull<u8>> {
    if len > CHUNK / 2 {
        return os::private_memory(len);
    }
    loop {
        let chunk = CHUNK_NOW.load(Acquire);
        if !chunk.is_null() {
            // SAFETY: a chunk lives for ever and begins with the number of its used bytes.
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
