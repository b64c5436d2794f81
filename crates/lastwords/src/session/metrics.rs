//! The counters and histograms of a session, in memory that its processes share.
//! [`lastwords_abi::counters`] describes the protocol.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use lastwords_abi::counters::{
    CONTROL_OFF, COVERED, CountersControl, CountersInfo, Entry, Histogram, KIND_COUNTER,
    KIND_HISTOGRAM, SEPARATOR, SUB_BITS, TEXT_LEN,
};
use lastwords_abi::region::{KIND_COUNTERS, checksum};
use lastwords_ring::backend::Mapping;
use lastwords_ring::flush;
use lastwords_ring::init::read_region;

/// Returns the bytes of the text of a metric with this name and these labels.
pub(crate) const fn text_len(name: &str, labels: &[(&str, &str)]) -> usize {
    let (mut len, mut at) = (name.len(), 0);
    while at < labels.len() {
        len += 2 + labels[at].0.len() + labels[at].1.len();
        at += 1;
    }
    len
}

/// The bytes that name a metric, as an entry has them.
#[derive(Debug)]
pub(crate) struct Head {
    kind: u32,
    text_len: u32,
    text: [u8; TEXT_LEN],
    check: u64,
}

impl Head {
    /// Makes the head of a counter or a histogram (`kind`). Returns none if the text has no room.
    pub(crate) fn new(kind: u32, name: &str, labels: &[(&str, &str)]) -> Option<Self> {
        let len = text_len(name, labels);
        let mut text = [0; TEXT_LEN];
        let mut rest = text.get_mut(..len)?;
        let parts = labels.iter().flat_map(|(key, value)| ["\u{1f}", key, "\u{1f}", value]);
        for part in [name].into_iter().chain(parts) {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part.as_bytes());
            rest = behind;
        }
        let mut covered = [0; COVERED.end - COVERED.start];
        covered[..4].copy_from_slice(&kind.to_ne_bytes());
        covered[4..8].copy_from_slice(&(len as u32).to_ne_bytes());
        covered[8..].copy_from_slice(&text);
        Some(Self { kind, text_len: len as u32, text, check: checksum(&covered).max(1) })
    }

    /// Returns the words of the text.
    fn words(&self) -> impl Iterator<Item = u64> {
        self.text.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word))
    }

    /// Returns true if the entry has this head. The checksum alone could be that of another text.
    fn is_of(&self, entry: &Entry) -> bool {
        // Acquire: the rest of the head was stored before.
        entry.check.load(Acquire) == self.check
            && entry.kind.load(Relaxed) == self.kind
            && entry.text_len.load(Relaxed) == self.text_len
            && entry.text.iter().map(|word| word.load(Relaxed)).eq(self.words())
    }

    /// Writes the head into an entry that the caller has claimed. If it is written back (`persists`),
    /// no loss of power leaves a checksum without the text, or numbers without the head.
    fn write(&self, entry: &Entry, persists: bool) {
        entry.kind.store(self.kind, Relaxed);
        entry.text_len.store(self.text_len, Relaxed);
        for (place, word) in entry.text.iter().zip(self.words()) {
            place.store(word, Relaxed);
        }
        if persists {
            write_back(entry);
        }
        // Release: a process that finds the checksum finds the rest.
        entry.check.store(self.check, Release);
        if persists {
            write_back(entry);
        }
    }
}

/// The entry of a metric in a session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Counter(&'static Entry),
    Histogram(&'static Histogram),
}

/// The tables of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricsTable {
    control: &'static CountersControl,
    counters: &'static [Entry],
    histograms: &'static [Histogram],
}

impl MetricsTable {
    /// Finds the tables in their region, which stays mapped as long as the session is listed.
    /// Returns none if the region is damaged, or has other buckets than this version.
    pub(crate) fn from_region(region: &Mapping) -> Option<Self> {
        let len = region.len();
        // SAFETY: mappings are page-aligned, and readable for their length.
        let read = unsafe { read_region::<CountersInfo>(region.as_ptr(), len, KIND_COUNTERS) };
        let (_, info) = read.ok().filter(|(_, info)| info.sub_bits == SUB_BITS)?;
        let fits = |offset: u32, count: u32, size: usize| {
            offset.is_multiple_of(64)
                && offset as usize >= CONTROL_OFF + size_of::<CountersControl>()
                && u64::from(offset) + u64::from(count) * size as u64 <= len
        };
        let fit = fits(info.counters_off, info.counters, size_of::<Entry>())
            && fits(info.histograms_off, info.histograms, size_of::<Histogram>());
        // SAFETY: control and tables are inside the region and aligned, as was checked. All fields
        // are atomics. The region is mapped read-write until nobody uses the session any more.
        fit.then(|| unsafe {
            let at = |offset: u32| region.as_ptr().add(offset as usize);
            Self {
                control: &*region.as_ptr().add(CONTROL_OFF).cast(),
                counters: std::slice::from_raw_parts(
                    at(info.counters_off).cast(),
                    info.counters as usize,
                ),
                histograms: std::slice::from_raw_parts(
                    at(info.histograms_off).cast(),
                    info.histograms as usize,
                ),
            }
        })
    }

    /// Copies the tables of a region while processes add to them: the begin of the region, the
    /// counters and the histograms that were claimed, each with its offset in the region. All else
    /// in the region is 0. Returns none if the region has no tables that this version reads.
    ///
    /// Recorders add to the bucket of a histogram, then to its sum, then to its count. The copy
    /// loads them in the opposite order, so that its buckets have each value that its count has.
    pub(super) fn copy(region: &Mapping) -> Option<[(u64, Vec<u8>); 3]> {
        let Self { control, counters, histograms } = Self::from_region(region)?;
        // SAFETY: `from_region` has checked header and geometry, which are in the mapping and never
        // change.
        let begin = unsafe { std::slice::from_raw_parts(region.as_ptr(), CONTROL_OFF) };
        let mut begin = begin.to_vec();
        // Entries that are claimed after these loads are in the next copy.
        let used = [&control.used_counters, &control.used_histograms];
        let used = used.map(|used| used.load(Acquire));
        begin.extend(used.iter().flat_map(|used| used.to_ne_bytes()));
        let lost = [&control.lost_additions, &control.lost_values];
        begin.extend(lost.iter().flat_map(|lost| lost.load(Relaxed).to_ne_bytes()));
        begin.resize(CONTROL_OFF + size_of::<CountersControl>(), 0);
        let (mut entries, mut tables) = (Vec::new(), Vec::new());
        for entry in counters.iter().take(used[0] as usize) {
            copy_entry(entry, &mut entries);
        }
        for histogram in histograms.iter().take(used[1] as usize) {
            let end = tables.len() + size_of::<Histogram>();
            if copy_entry(&histogram.entry, &mut tables) {
                let buckets = histogram.buckets.iter().map(|bucket| bucket.load(Relaxed));
                tables.extend(buckets.flat_map(u64::to_ne_bytes));
            }
            tables.resize(end, 0);
        }
        let offset = |table: *const u8| (table.addr() - region.as_ptr().addr()) as u64;
        let at = [offset(counters.as_ptr().cast()), offset(histograms.as_ptr().cast())];
        Some([(0, begin), (at[0], entries), (at[1], tables)])
    }

    /// Returns the entry of the metric, and claims one if it has none. Counts an addition to a
    /// metric for which there is no entry, and returns none. Writes what it changes back from the
    /// caches if that is wanted (`persists`). Async-signal-safe.
    pub(crate) fn place(&self, head: &Head, persists: bool) -> Option<Place> {
        let Self { control, counters, histograms } = *self;
        let (place, lost) = match head.kind {
            KIND_COUNTER => {
                let used = &control.used_counters;
                let entry = find_or_claim(counters, used, |entry| entry, (head, persists));
                (entry.map(Place::Counter), &control.lost_additions)
            }
            KIND_HISTOGRAM => {
                let used = &control.used_histograms;
                let entry = find_or_claim(histograms, used, |one| &one.entry, (head, persists));
                (entry.map(Place::Histogram), &control.lost_values)
            }
            _ => return None,
        };
        if place.is_none() {
            // Relaxed: only the number counts.
            lost.fetch_add(1, Relaxed);
            if persists {
                write_back(lost);
            }
        }
        place
    }
}

/// Appends the bytes of an entry. An entry whose checksum is not written yet is copied as zeroes;
/// returns false then.
fn copy_entry(entry: &Entry, to: &mut Vec<u8>) -> bool {
    let end = to.len() + size_of::<Entry>();
    // Acquire: with the checksum, kind and text are written.
    let check = entry.check.load(Acquire);
    if check != 0 {
        to.extend(check.to_ne_bytes());
        to.extend(
            [&entry.kind, &entry.text_len].map(|half| half.load(Relaxed).to_ne_bytes()).concat(),
        );
        to.extend(entry.text.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()));
        // Acquire: the sum has the values that the count has, and the buckets those of the sum.
        to.extend(
            [&entry.count, &entry.value].map(|word| word.load(Acquire).to_ne_bytes()).concat(),
        );
    }
    to.resize(end, 0);
    check != 0
}

/// Returns the entry that has the head, and claims one if there is none. Entries are claimed in
/// order, and stay. A thread of another process that claims at the same time may write a second
/// entry of the same head: readers add them up.
fn find_or_claim<T>(
    entries: &'static [T],
    used: &AtomicU32,
    entry_of: fn(&T) -> &Entry,
    (head, persists): (&Head, bool),
) -> Option<&'static T> {
    let claimed = (used.load(Acquire) as usize).min(entries.len());
    let found = entries[..claimed].iter().find(|one| head.is_of(entry_of(one)));
    found.or_else(|| {
        let next = |used: u32| ((used as usize) < entries.len()).then(|| used + 1);
        let at = used.fetch_update(AcqRel, Acquire, next).ok()?;
        let entry = &entries[at as usize];
        head.write(entry_of(entry), persists);
        Some(entry)
    })
}

/// Writes a value of the tables back from the caches.
pub(crate) fn write_back<T>(value: &T) {
    // SAFETY: the bytes are those of a reference.
    unsafe { flush::flush(std::ptr::from_ref(value).cast(), size_of::<T>()) };
    flush::fence();
}

/// Returns the index of a value's bucket.
#[inline]
pub(crate) fn bucket_of(value: u64) -> usize {
    // Values below the first power of two that has all sub-buckets have one bucket each.
    let shift = (u64::BITS - SUB_BITS - 1).saturating_sub((value | 1).leading_zeros());
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

/// Returns true if names and labels can be told apart in the text: none is empty, and none has a
/// [`SEPARATOR`].
pub(crate) const fn is_text(part: &str) -> bool {
    let (bytes, mut at) = (part.as_bytes(), 0);
    while at < bytes.len() {
        if bytes[at] == SEPARATOR {
            return false;
        }
        at += 1;
    }
    true
}

/// Returns true if two keys are the same.
pub(crate) const fn is_same(one: &str, other: &str) -> bool {
    let (one, other, mut at) = (one.as_bytes(), other.as_bytes(), 0);
    if one.len() != other.len() {
        return false;
    }
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_abi::counters::BUCKETS;

    #[test]
    fn buckets_are_those_of_the_specification() {
        let said = |value: u64| match value {
            0..8 => value as usize,
            _ => {
                let e = 63 - value.leading_zeros();
                (e as usize - 2) * 8 + (value >> (e - 3)) as usize % 8
            }
        };
        let edges = (0..64).flat_map(|bit| {
            let at = 1u64 << bit;
            [at - 1, at, at + 1, at + at / 2, at + at / 8, (at + at / 8).wrapping_sub(1)]
        });
        for value in (0..5000).chain(edges).chain([u64::MAX]) {
            assert_eq!(bucket_of(value), said(value), "{value}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_text_has_all_parts_or_is_refused() {
        let head = Head::new(KIND_COUNTER, "a", &[("k", "v"), ("x", "")]).expect("it fits");
        assert_eq!(&head.text[..head.text_len as usize], b"a\x1fk\x1fv\x1fx\x1f");
        assert!(Head::new(KIND_COUNTER, &"n".repeat(TEXT_LEN), &[]).is_some());
        assert!(Head::new(KIND_COUNTER, &"n".repeat(TEXT_LEN + 1), &[]).is_none());
    }
}
