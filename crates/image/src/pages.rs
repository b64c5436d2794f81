//! A bounded cache of file pages, for small reads of a dump.
//!
//! Structures in memory are read in parts of a few bytes, again and again: without a cache each
//! part is a system call. The cache is split into sets, each behind its own lock. The number of a
//! page chooses its set, and a set evicts the page that was used longest ago. Only whole pages are
//! cached. An incomplete or unreadable page is read from the file each time, so that the reader
//! gets the same bytes and the same error as without a cache.

use crate::got::Got;
use std::sync::{Mutex, PoisonError};

/// Size of a page, bytes.
pub(crate) const PAGE: usize = 4096;
/// The same number as a length of a file.
const PAGE_LEN: u64 = 4096;
/// Number of sets; a power of two.
const SETS: usize = 16;
/// Most pages of a set. The whole cache is at most 256 KiB.
const WAYS: usize = 4;

/// Cached pages of a file that does not change.
#[derive(Debug)]
pub(crate) struct Pages([Mutex<Set>; SETS]);

/// The pages of a set; the page that was used last is first.
type Set = [Page; WAYS];

#[derive(Debug)]
struct Page {
    /// Offset in the file, divided by the size of a page. [`NONE`] if the page has no valid bytes.
    number: u64,
    bytes: Box<[u8; PAGE]>,
}

/// A number that no page has.
const NONE: u64 = u64::MAX;

impl Pages {
    /// Creates an empty cache. All its memory is allocated here, before the heap is filled with
    /// anything else.
    pub(crate) fn new() -> Self {
        let page = |_| Page { number: NONE, bytes: Box::new([0; PAGE]) };
        Self(std::array::from_fn(|_| Mutex::new(std::array::from_fn(page))))
    }

    /// Fills `buf` from `offset` on. `direct` reads from the file.
    pub(crate) fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        direct: impl Fn(u64, &mut [u8]) -> Got,
    ) -> Got {
        let mut done = 0usize;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let within = usize::try_from(at % PAGE_LEN).unwrap_or(0);
            let len = PAGE.saturating_sub(within).min(buf.len().saturating_sub(done));
            let Some(part) = buf.get_mut(done..done.saturating_add(len)) else { break };
            if self.copy(at / PAGE_LEN, within, part, &direct).is_none() {
                match direct(at, part) {
                    Got::All => {}
                    Got::Ended(got) => return Got::Ended(done.saturating_add(got)),
                    Got::Failed(got) => return Got::Failed(done.saturating_add(got)),
                }
            }
            done = done.saturating_add(len);
        }
        Got::All
    }

    /// Fills `part` from the offset `within` of a page, which is read if it is not cached. Returns
    /// none if the page cannot be read whole; `part` is unchanged then.
    fn copy(
        &self,
        number: u64,
        within: usize,
        part: &mut [u8],
        direct: &impl Fn(u64, &mut [u8]) -> Got,
    ) -> Option<()> {
        let mut set = self.0.get(place(number))?.lock().unwrap_or_else(PoisonError::into_inner);
        match set.iter().position(|page| page.number == number) {
            Some(0) => {}
            Some(at) => set.get_mut(..=at)?.rotate_right(1),
            None => {
                let last = set.last_mut()?;
                last.number = NONE;
                if !matches!(direct(number.saturating_mul(PAGE_LEN), &mut *last.bytes), Got::All) {
                    return None;
                }
                last.number = number;
                set.rotate_right(1);
            }
        }
        let bytes = &set.first()?.bytes;
        part.copy_from_slice(bytes.get(within..within.saturating_add(part.len()))?);
        Some(())
    }
}

/// Index of the set of a page. Pages at a power of two from each other are spread over the sets,
/// too.
fn place(number: u64) -> usize {
    // Fibonacci hashing: the upper half of the product depends on all bits of the number.
    usize::try_from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap_or(0) % SETS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Number of pages of the tests' file, more than the cache holds, and the bytes of its last
    /// page.
    const COUNT: usize = 100;
    const TAIL: usize = 1000;

    fn content() -> Vec<u8> {
        (0..COUNT * PAGE + TAIL).map(|i| (i / PAGE * 7 + i % 251) as u8).collect()
    }

    /// Reads from a file whose byte at offset `bad` cannot be read.
    fn read(file: &[u8], bad: Option<usize>, offset: u64, buf: &mut [u8]) -> Got {
        let at = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
        let end = at.saturating_add(buf.len()).min(file.len());
        let failed = bad.filter(|bad| (at..end).contains(bad));
        let got = failed.unwrap_or(end) - at;
        buf[..got].copy_from_slice(&file[at..at + got]);
        match failed {
            Some(_) => Got::Failed(got),
            None if got < buf.len() => Got::Ended(got),
            None => Got::All,
        }
    }

    /// The result of a read, and the bytes it filled.
    fn outcome(got: Got, buf: &[u8]) -> (&'static str, &[u8]) {
        match got {
            Got::All => ("all", buf),
            Got::Ended(n) => ("ended", &buf[..n]),
            Got::Failed(n) => ("failed", &buf[..n]),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_an_uncached_reader(
            reads in proptest::collection::vec((0..COUNT * PAGE + 2 * TAIL, 0usize..9000, any::<bool>()), 1..200),
            bad in proptest::option::of(0..COUNT * PAGE),
            len in 0..=COUNT * PAGE + TAIL,
        ) {
            let (file, pages) = (content(), Pages::new());
            let file = &file[..len];
            for (at, size, is_last) in reads {
                let at = if is_last { len.saturating_sub(at % 5000) } else { at } as u64;
                let (mut cached, mut uncached) = (vec![0xaa; size], vec![0xaa; size]);
                let got = pages.read(at, &mut cached, |at, buf| read(file, bad, at, buf));
                let want = read(file, bad, at, &mut uncached);
                prop_assert_eq!(outcome(got, &cached), outcome(want, &uncached));
            }
            for (at, set) in pages.0.iter().enumerate() {
                let numbers: Vec<u64> = set.lock().unwrap().iter().map(|page| page.number).filter(|n| *n != NONE).collect();
                prop_assert!(numbers.iter().all(|n| place(*n) == at && (*n as usize) < len / PAGE));
                prop_assert!((1..numbers.len()).all(|i| !numbers[i..].contains(&numbers[i - 1])));
            }
        }
    }

    #[test]
    fn a_page_is_read_once_while_it_is_used() {
        let (file, pages, reads) = (content(), Pages::new(), Cell::new(0));
        let direct = |at: u64, buf: &mut [u8]| {
            reads.set(reads.get() + 1);
            read(&file, None, at, buf)
        };
        let mut buf = [0; 8];
        for other in 1..COUNT {
            for at in [40, PAGE * other] {
                assert!(matches!(pages.read(at as u64, &mut buf, direct), Got::All));
                assert_eq!(buf, file[at..at + 8]);
            }
        }
        assert_eq!(reads.get(), COUNT);
    }

    #[test]
    fn errors_are_not_cached() {
        let (file, pages) = (content(), Pages::new());
        let mut buf = [0; 100];
        let at = PAGE as u64 - 50;
        assert!(matches!(
            pages.read(at, &mut buf, |at, buf| read(&file, Some(PAGE + 20), at, buf)),
            Got::Failed(70)
        ));
        assert!(matches!(
            pages.read(at, &mut buf, |at, buf| read(&file[..PAGE + 10], None, at, buf)),
            Got::Ended(60)
        ));
        assert!(matches!(pages.read(at, &mut buf, |at, buf| read(&file, None, at, buf)), Got::All));
        assert_eq!(buf, file[PAGE - 50..PAGE + 50]);
        assert!(matches!(
            pages.read(u64::MAX - 9, &mut buf, |at, buf| read(&file, None, at, buf)),
            Got::Ended(0)
        ));
    }

    #[test]
    fn threads_share_the_cache() {
        let (file, pages, reads) = (content(), Pages::new(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (file, pages, reads) = (&file, &pages, &reads);
                scope.spawn(move || {
                    for i in 0..2000 {
                        let at = (i * 7919 + thread * 104_729) % (COUNT * PAGE - 64);
                        let mut buf = [0; 64];
                        let got = pages.read(at as u64, &mut buf, |at, buf| {
                            reads.fetch_add(1, Ordering::Relaxed);
                            read(file, None, at, buf)
                        });
                        assert!(matches!(got, Got::All) && buf == file[at..at + 64]);
                    }
                });
            }
        });
        assert!(reads.into_inner() >= COUNT);
    }
}
