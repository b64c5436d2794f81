//! Memory that is never freed, not from the heap: a callsite may be reached first in a signal handler that interrupted
//! `malloc`.

use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use lastwords_ring::os;

/// Bytes asked of the system at a time.
const CHUNK: usize = 64 << 10;

/// The newest chunk: how much of it is taken, then its bytes.
static CHUNK_NOW: AtomicPtr<AtomicUsize> = AtomicPtr::new(std::ptr::null_mut());

/// Keeps the value for ever. Async-signal-safe.
pub fn keep<T>(value: T) -> &'static T {
    &keep_all([value])[0]
}

/// Keeps the values for ever, one behind the other. Async-signal-safe.
pub fn keep_all<T>(values: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>) -> &'static [T] {
    const { assert!(align_of::<T>() <= 16) };
    let values = values.into_iter();
    let count = values.len();
    let place = take((size_of::<T>() * count).next_multiple_of(16)).cast::<T>();
    let mut kept = 0;
    // SAFETY: as many bytes as `count` values have, ours alone, aligned to 16, never given back; as many values are there as
    // were written.
    unsafe {
        for value in values.take(count) {
            place.add(kept).write(value);
            kept += 1;
        }
        std::slice::from_raw_parts(place, kept)
    }
}

/// `len` bytes, a multiple of 16: of a chunk, or, where they are many (a long table of labels), of the system.
fn take(len: usize) -> *mut u8 {
    if len > CHUNK / 2 {
        return os::private_memory(len).expect("memory for a callsite").as_ptr();
    }
    loop {
        let chunk = CHUNK_NOW.load(Acquire);
        if !chunk.is_null() {
            // SAFETY: a chunk lives for ever and begins with the number of its bytes that are taken.
            let at = unsafe { &*chunk }.fetch_add(len, AcqRel);
            if at + len <= CHUNK {
                return chunk.cast::<u8>().wrapping_add(at);
            }
        }
        let fresh = new_chunk();
        if CHUNK_NOW.compare_exchange(chunk, fresh, AcqRel, Acquire).is_err() {
            // SAFETY: nobody else has seen this chunk.
            unsafe { libc::munmap(fresh.cast(), CHUNK) };
        }
    }
}

fn new_chunk() -> *mut AtomicUsize {
    let fresh = os::private_memory(CHUNK).expect("memory for a callsite").cast::<AtomicUsize>();
    // SAFETY: new memory of our own, page-aligned.
    unsafe { fresh.write(AtomicUsize::new(16)) };
    fresh.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_apart() {
        let kept: Vec<&[u64; 100]> = (0..1000).map(|n| keep([n; 100])).collect();
        assert!((0..).zip(kept).all(|(n, words)| *words == [n; 100]));
        assert_eq!(keep_all(0..1000u16), (0..1000).collect::<Vec<u16>>());
        assert_eq!(keep_all([0u8; 0]), []);
        assert_eq!(keep_all(0..100_000u32), (0..100_000).collect::<Vec<u32>>(), "more than a chunk has");
    }
}
