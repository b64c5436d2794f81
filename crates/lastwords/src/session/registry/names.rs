//! Names of threads in the registry. They may take half of it. Then the name of a thread that has
//! ended is replaced by the new one, in place: the newest threads matter most, and those that live
//! keep their names.
//!
//! A record is replaced under the registry's lock. Its flags say [`abi::REPLACED`] meanwhile, so
//! that a reader, or one after the death of the writer, does not take the record for damaged.

use std::sync::atomic::AtomicU64 as Word;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;

use lastwords_abi::region;
use lastwords_abi::registry as abi;
use lastwords_abi::registry::{RECORD_HEADER_LEN, RECORDS_OFF, RecordHeader};
use lastwords_ring::os;

use super::{Registry, behind, env_body};

/// The sizes of names' records are multiples of this many bytes, so that most have one size.
const UNIT: usize = 64;
/// Number of records that are examined for one name.
const MOST_LOOKS: usize = 512;

const _: () = assert!(
    std::mem::offset_of!(RecordHeader, len) == 0 && std::mem::offset_of!(RecordHeader, check) == 8
);

impl Registry {
    /// Writes a thread's name. The name is left out, and counted, if it would leave less than half
    /// of the registry to events and no thread of the registry is known to have ended.
    pub(crate) fn append_thread_name(&self, tid: u32, name: &str) {
        let write = || {
            // An earlier thread may have had the id, whose name is gone.
            let is_unsure = u64::from(tid) <= self.control().names_replaced.load(Relaxed);
            let body = if is_unsure {
                name_body(tid, &format!("{name}|..."))
            } else {
                name_body(tid, name)
            };
            let whole = (RECORD_HEADER_LEN + body.len()).next_multiple_of(8) as u64;
            let fits = self.control().end.load(Relaxed) + whole <= self.mapping.len() / 2;
            if fits {
                self.append_locked(abi::KIND_ENV, body.len(), self.mapping.len(), |put| put(&body))
            } else {
                self.replace_name(&body)
            }
        };
        if !self.locked(write).unwrap_or(false) {
            // Relaxed: the count orders no other memory.
            self.control().names_dropped.fetch_add(1, Relaxed);
        }
    }

    /// Writes the body into the record of a thread that has ended. The caller holds the lock.
    fn replace_name(&self, body: &[u8]) -> bool {
        // This process cannot tell which threads of other namespaces have ended.
        if self.namespaces.load(Relaxed) > 1 {
            return false;
        }
        let cursor = &self.control().names_at;
        let mut at = cursor.load(Relaxed).max(RECORDS_OFF as u64);
        for _ in 0..MOST_LOOKS {
            let Some((kind, old)) = self.record(at) else {
                at = RECORDS_OFF as u64;
                continue;
            };
            let here = at;
            at = behind(here, old);
            if kind == abi::KIND_ENV
                && old.len() == body.len()
                && let Some(tid) = tid_of(old).filter(|tid| !os::is_alive(*tid, 0))
            {
                self.control().names_replaced.fetch_max(tid.into(), Relaxed);
                self.overwrite(here, body);
                cursor.store(at, Relaxed);
                return true;
            }
        }
        cursor.store(at, Relaxed);
        false
    }

    /// Replaces the body of the record at an offset by one of equal length. The caller holds the
    /// lock.
    fn overwrite(&self, at: u64, body: &[u8]) {
        let header = RecordHeader {
            len: (RECORD_HEADER_LEN + body.len()) as u32,
            kind: abi::KIND_ENV,
            flags: 0,
            check: 0,
        };
        let first = |flags: u16| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&header.len.to_ne_bytes());
            bytes[4..6].copy_from_slice(&header.kind.to_ne_bytes());
            bytes[6..].copy_from_slice(&flags.to_ne_bytes());
            u64::from_ne_bytes(bytes)
        };
        // SAFETY: `record` has found a record with a body of this length at this offset, a multiple
        // of 8, and the lock excludes other writers. Readers of this process read the body under
        // the lock; other readers copy the region.
        unsafe {
            let record = self.mapping.as_ptr().add(at as usize);
            let words = std::slice::from_raw_parts(record.cast::<Word>(), 2);
            words[0].store(first(abi::REPLACED), Relaxed);
            // Who sees a part of the new body also sees that the record is being replaced.
            fence(Release);
            std::ptr::copy_nonoverlapping(body.as_ptr(), record.add(RECORD_HEADER_LEN), body.len());
            words[1].store(region::checksum(body), Relaxed);
            words[0].store(first(0), Release);
        }
        self.persist(at, (RECORD_HEADER_LEN + body.len()) as u64);
    }
}

/// Returns the body of the record of a thread's name. Zeros in front of the id make the size of the
/// record a multiple of [`UNIT`].
fn name_body(tid: u32, name: &str) -> Vec<u8> {
    let least = RECORD_HEADER_LEN + env_body(&format!("{}{tid}", abi::ENV_THREAD), name).len();
    let zeros = "0".repeat(least.next_multiple_of(UNIT) - least);
    env_body(&format!("{}{zeros}{tid}", abi::ENV_THREAD), name)
}

/// Returns the id of the thread whose name the body has.
fn tid_of(body: &[u8]) -> Option<u32> {
    let (len, rest) = body.split_first_chunk()?;
    let key = std::str::from_utf8(rest.get(..usize::from(u16::from_ne_bytes(*len)))?).ok()?;
    key.strip_prefix(abi::ENV_THREAD)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_few_sizes() {
        for tid in [1, 4_194_303] {
            for name in ["", "a", "worker-1", "a thread whose name is long", &"x".repeat(200)] {
                let body = name_body(tid, name);
                assert_eq!((RECORD_HEADER_LEN + body.len()) % UNIT, 0);
                assert_eq!(tid_of(&body), Some(tid));
                assert!(body.ends_with(name.as_bytes()));
            }
        }
    }
}
