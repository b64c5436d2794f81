//! Counters and histograms: the static data of each, and the path from there to its entry in the
//! session.
//!
//! While exactly one session has the tables, a metric has the address of its entry there, and an
//! increment is one load, one branch and one atomic addition. When sessions start or end, all
//! metrics forget their addresses ([`forget`]), and each finds its entry again at its next use.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

use lastwords_abi::counters::{
    Entry, Histogram as Buckets, KIND_COUNTER, KIND_HISTOGRAM, TEXT_LEN,
};
use lastwords_abi::session::PERSIST_EVENT;
use lastwords_ring::errno::ErrnoKept;

use crate::record::callsite::Guard;
use crate::session::metrics::{
    Head, MetricsTable, Place, bucket_of, is_same, is_text, text_len, write_back,
};
use crate::session::shared::{self, SessionShared};

/// Labels: keys and values.
type Labels = &'static [(&'static str, &'static str)];

/// In [`Metric::place`]: the entry was not looked for since the sessions changed.
const UNKNOWN: usize = 1;
/// In [`Metric::place`]: the entry is looked for at each use, because several sessions have the
/// tables, or the one that has them writes each event back, or has no room.
const EACH_TIME: usize = 2;
/// The bits of an address in which these are. Entries are aligned to 64.
const MARKS: usize = UNKNOWN | EACH_TIME;

/// The metrics that have an address, newest first. Written under the callsites' lock.
static LIST: AtomicPtr<Metric> = AtomicPtr::new(std::ptr::null_mut());

/// The static data of a counter or histogram.
#[derive(Debug)]
struct Metric {
    kind: u32,
    name: &'static str,
    labels: Labels,
    /// The entry, null if no session has the tables, or one of the marks. Written under the
    /// callsites' lock (Release: the entry is complete).
    place: AtomicPtr<Entry>,
    /// The metric is on the list. Written under the lock.
    is_listed: AtomicBool,
    next: AtomicPtr<Metric>,
}

/// A number that only grows: requests, bytes, errors. It is in the memory of the session, so it is
/// read after the process was killed, from a core, or from persistent memory.
///
/// [`counter!`](crate::counter!) declares one where it is used. A static can be used at several
/// places:
///
/// ```
/// use lastwords::Counter;
///
/// static REQUESTS: Counter = Counter::new("requests");
/// static ERRORS: Counter = Counter::with_labels("requests", &[("result", "error")]);
///
/// REQUESTS.increment();
/// ERRORS.add(2);
/// ```
///
/// An increment takes no lock, allocates nothing and makes no system call, except for the first one
/// after a session has started or ended. All threads and processes of a session add to the same
/// number, forked children included (not in a [heap](crate::Memory::Heap) session, whose memory a
/// child has a copy of). Stopping the session, rules and filters do not stop its counters.
///
/// [`Builder::counters`](crate::Builder::counters) says how many counters a session has room for.
/// Increments of others are counted as lost.
#[derive(Debug)]
pub struct Counter(Metric);

/// How often values of which size occurred: latencies, sizes. Like a [`Counter`], it is in the
/// memory of the session.
///
/// [`histogram!`](crate::histogram!) declares one where it is used.
///
/// ```
/// use lastwords::Histogram;
///
/// static LATENCY: Histogram = Histogram::new("latency_ns");
///
/// LATENCY.record(1_250_000);
/// ```
///
/// It has 496 buckets: one for each value below 8, and eight for each power of two above, so that a
/// bucket is at most an eighth wider than its least value. It also has the sum of all values, modulo
/// 2^64. [`Builder::histograms`](crate::Builder::histograms) says how many a session has room for.
#[derive(Debug)]
pub struct Histogram(Metric);

impl Counter {
    /// Declares a counter.
    ///
    /// # Panics
    /// As [`Counter::with_labels`]; in a static, the compiler reports it.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self::with_labels(name, &[])
    }

    /// Declares a counter with labels, keys and values.
    ///
    /// # Panics
    /// The name is empty, a label is there twice, a part has the byte 0x1f, or name and labels take
    /// more than 176 bytes, with two for each label. In a static, the compiler reports it.
    #[must_use]
    pub const fn with_labels(name: &'static str, labels: Labels) -> Self {
        Self(Metric::new(KIND_COUNTER, name, labels))
    }

    /// Adds 1.
    #[inline]
    pub fn increment(&'static self) {
        self.add(1);
    }

    /// Adds a number. The counter's value is modulo 2^64.
    #[inline]
    pub fn add(&'static self, amount: u64) {
        let place = self.0.place.load(Acquire);
        if place.is_null() {
            return;
        }
        if place.addr() & MARKS != 0 {
            return self.0.each_place(amount);
        }
        // SAFETY: an address without marks is that of an entry. The memory stays mapped while a
        // thread may have its address, as that of the rings does.
        add_to(unsafe { &*place }, amount);
    }
}

impl Histogram {
    /// Declares a histogram.
    ///
    /// # Panics
    /// As [`Counter::with_labels`]; in a static, the compiler reports it.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self::with_labels(name, &[])
    }

    /// Declares a histogram with labels, keys and values.
    ///
    /// # Panics
    /// As [`Counter::with_labels`]; in a static, the compiler reports it.
    #[must_use]
    pub const fn with_labels(name: &'static str, labels: Labels) -> Self {
        Self(Metric::new(KIND_HISTOGRAM, name, labels))
    }

    /// Records a value.
    #[inline]
    pub fn record(&'static self, value: u64) {
        let place = self.0.place.load(Acquire);
        if place.is_null() {
            return;
        }
        if place.addr() & MARKS != 0 {
            return self.0.each_place(value);
        }
        // SAFETY: as in `Counter::add`. The metric's kind says that the entry is the beginning of a
        // histogram, and the address was made from one.
        record_in(unsafe { &*place.cast::<Buckets>() }, value);
    }
}

#[inline]
fn add_to(entry: &Entry, amount: u64) {
    // Relaxed: the number orders nothing.
    entry.value.fetch_add(amount, Relaxed);
}

/// The order of the three is part of the format: readers tell from it which values were in flight.
#[inline]
fn record_in(histogram: &Buckets, value: u64) {
    histogram.buckets[bucket_of(value)].fetch_add(1, Relaxed);
    count_in(histogram, value);
}

/// Adds a value that is in its bucket to the sum and the count.
#[inline]
fn count_in(histogram: &Buckets, value: u64) {
    // Release: who reads the later number has the earlier additions.
    histogram.entry.value.fetch_add(value, Release);
    histogram.entry.count.fetch_add(1, Release);
}

impl Metric {
    const fn new(kind: u32, name: &'static str, labels: Labels) -> Self {
        assert!(!name.is_empty() && is_text(name), "a name is empty or has the byte 0x1f");
        let mut at = 0;
        while at < labels.len() {
            let (key, value) = labels[at];
            assert!(
                !key.is_empty() && is_text(key) && is_text(value),
                "a label is empty or has the byte 0x1f"
            );
            let mut before = 0;
            while before < at {
                assert!(!is_same(labels[before].0, key), "a label is there twice");
                before += 1;
            }
            at += 1;
        }
        assert!(text_len(name, labels) <= TEXT_LEN, "name and labels take more than 176 bytes");
        let (unknown, null) = (std::ptr::without_provenance_mut(UNKNOWN), std::ptr::null_mut());
        Self {
            kind,
            name,
            labels,
            place: AtomicPtr::new(unknown),
            is_listed: AtomicBool::new(false),
            next: AtomicPtr::new(null),
        }
    }

    /// Adds to the metric in each session that has the tables. Async-signal-safe.
    #[cold]
    #[inline(never)]
    fn each_place(&'static self, number: u64) {
        let _errno = ErrnoKept::now();
        let Some(head) = Head::new(self.kind, self.name, self.labels) else { return };
        // Without the lock the place stays unknown, and the next use tries again.
        let is_unknown = self.place.load(Acquire).addr() & UNKNOWN != 0;
        let guard = is_unknown.then(Guard::take).flatten();
        let found = add_everywhere(&head, number);
        if guard.is_some() {
            self.list();
            self.place.store(found, Release);
        }
    }

    /// Puts the metric on the list, if it is not on it. The caller holds the callsites' lock.
    fn list(&'static self) {
        if !self.is_listed.load(Relaxed) {
            self.next.store(LIST.load(Relaxed), Relaxed);
            LIST.store(std::ptr::from_ref(self).cast_mut(), Release);
            self.is_listed.store(true, Relaxed);
        }
    }
}

/// Adds to the metric in each session that has the tables. Returns what [`Metric::place`] is from
/// now on.
fn add_everywhere(head: &Head, number: u64) -> *mut Entry {
    let mut found: *mut Entry = std::ptr::null_mut();
    for (session, table) in tables() {
        let persists = session.view().control().persist.load(Relaxed) == PERSIST_EVENT;
        let place = table.place(head, persists);
        found = match place.filter(|_| !persists && found.is_null()) {
            Some(Place::Counter(entry)) => std::ptr::from_ref(entry).cast_mut(),
            Some(Place::Histogram(one)) => std::ptr::from_ref(one).cast_mut().cast(),
            None => std::ptr::without_provenance_mut(EACH_TIME),
        };
        place.into_iter().for_each(|place| add(place, number, persists));
    }
    found
}

/// Adds to the counter of a name that is not static, and finds its entry each time. Returns false if
/// there can be no such name. Async-signal-safe.
pub fn add_named(name: &str, amount: u64) -> bool {
    everywhere(KIND_COUNTER, name, amount)
}

/// Records a value in the histogram of a name that is not static, like [`add_named`].
pub fn record_named(name: &str, value: u64) -> bool {
    everywhere(KIND_HISTOGRAM, name, value)
}

fn everywhere(kind: u32, name: &str, number: u64) -> bool {
    let is_name = !name.is_empty() && is_text(name);
    let head = is_name.then(|| Head::new(kind, name, &[])).flatten();
    head.inspect(|head| _ = add_everywhere(head, number)).is_some()
}

/// Adds to one entry, and writes it back into persistent memory if the session wants that.
fn add(place: Place, number: u64, persists: bool) {
    match place {
        Place::Counter(entry) => {
            add_to(entry, number);
            if persists {
                write_back(entry);
            }
        }
        Place::Histogram(histogram) if persists => {
            // Nothing may reach the memory before the bucket has.
            let bucket = &histogram.buckets[bucket_of(number)];
            bucket.fetch_add(1, Relaxed);
            write_back(bucket);
            count_in(histogram, number);
            write_back(&histogram.entry);
        }
        Place::Histogram(histogram) => record_in(histogram, number),
    }
}

/// Iterates over the sessions in which callsites record and that have the tables.
fn tables() -> impl Iterator<Item = (&'static SessionShared, MetricsTable)> {
    shared::all()
        .filter(|session| session.records.load(Acquire))
        .filter_map(|session| Some((session, session.metrics?)))
}

/// Makes all metrics look for their entries again. The caller holds the callsites' lock, and has
/// changed which sessions record.
pub(crate) fn forget() {
    let unknown = std::ptr::without_provenance_mut(UNKNOWN);
    // SAFETY: only `&'static Metric`s are put on the list.
    let at = |metric: *mut Metric| unsafe { metric.as_ref::<'static>() };
    let listed = std::iter::successors(at(LIST.load(Acquire)), |one| at(one.next.load(Relaxed)));
    listed.for_each(|metric| metric.place.store(unknown, Release));
}
