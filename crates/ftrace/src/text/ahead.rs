//! Reads the sub-buffers of a ring on a thread of its own while their events are printed.
//! Uncompressing and checking a trace.dat takes a third of the time of its text.
//!
//! For each lane, the reader keeps one batch of sub-buffers ready. A lane whose events are needed
//! takes the whole batch, and the reader begins the next one. A lane has one batch ready, one in
//! use, and the buffers of a used one; so the memory is bounded whatever the size of the trace. One
//! mutex guards the batches. The reader waits while all lanes have a batch, and a lane waits while
//! it has none. Each side wakes the other after it has changed the batches.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::{Ring, SubBufferInfo};

/// Bytes of a batch, unless a single sub-buffer is larger.
const BATCH: usize = 256 << 10;
/// Most bytes of the batches of all lanes. Rings of more or larger sub-buffers are read without a
/// thread.
const MOST: usize = 8 << 20;
/// Fewest sub-buffers that are worth a thread.
const LEAST: usize = 256;

/// A sub-buffer that was read.
pub(crate) type Ready = (SubBufferInfo, Vec<u8>);

/// The sub-buffers of a ring's lanes that were read before they are needed.
pub(crate) struct Ahead<'a> {
    ring: &'a dyn Ring,
    /// The sub-buffers of a batch.
    size: usize,
    lanes: Mutex<Lanes>,
    /// A batch was taken, or the end has come.
    taken: Condvar,
    /// A batch is ready, or the end has come.
    ready: Condvar,
}

struct Lanes {
    all: Vec<Lane>,
    /// No lane takes a batch any more, or the reader has stopped.
    is_over: bool,
}

struct Lane {
    /// Its position in [`Ring::cpus`], the number of its sub-buffers, and the next one to read.
    index: usize,
    count: usize,
    next: usize,
    batch: VecDeque<Ready>,
    /// Buffers that were used, for the sub-buffers of the next batches.
    spare: Vec<Vec<u8>>,
}

/// Calls `run` with a reader of these lanes, which runs until `run` returns. Calls it with `None`
/// if a reader would be of no use: the process has only one CPU, or the ring has few sub-buffers.
pub(crate) fn with<R>(
    ring: &dyn Ring,
    lanes: &[usize],
    run: impl FnOnce(Option<&Ahead<'_>>) -> R,
) -> R {
    let has_other_cpu =
        || std::thread::available_parallelism().is_ok_and(|count| count > NonZero::<usize>::MIN);
    match Ahead::new(ring, lanes, LEAST, BATCH).filter(|_| has_other_cpu()) {
        Some(ahead) => ahead.with_reader(run),
        None => run(None),
    }
}

impl<'a> Ahead<'a> {
    /// Returns a reader of batches of at most `batch` bytes, or `None` if the ring has fewer
    /// sub-buffers than `least` or if the batches would be too large.
    fn new(ring: &'a dyn Ring, lanes: &[usize], least: usize, batch: usize) -> Option<Self> {
        let cpus = || lanes.iter().filter_map(|at| Some((*at, ring.cpus().get(*at)?)));
        let largest = cpus().map(|(_, cpu)| cpu.sub_buffer_size as usize).max()?;
        let all = cpus().map(|(_, cpu)| cpu.sub_buffers).fold(0, usize::saturating_add);
        let room = MOST.checked_div(lanes.len().saturating_mul(3))?.min(batch);
        let size = room.checked_div(largest)?;
        if size == 0 || all < least {
            return None;
        }
        let lane = |(index, cpu): (usize, &crate::CpuRing)| Lane {
            index,
            count: cpu.sub_buffers,
            next: 0,
            batch: VecDeque::new(),
            spare: Vec::new(),
        };
        let lanes = Mutex::new(Lanes { all: cpus().map(lane).collect(), is_over: false });
        Some(Self { ring, size, lanes, taken: Condvar::new(), ready: Condvar::new() })
    }

    /// Calls `run` while a thread reads. If the thread cannot be started, the lanes read for
    /// themselves.
    fn with_reader<R>(&self, run: impl FnOnce(Option<&Ahead<'_>>) -> R) -> R {
        std::thread::scope(|scope| {
            let _end = End(self);
            let reader = std::thread::Builder::new().name("read-ahead".into());
            let started = reader.spawn_scoped(scope, || self.read());
            run(started.is_ok().then_some(self))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces `batch`, which is empty, by the next sub-buffers of the lane at `at`; they follow
    /// each other without a gap from the first on. Leaves it empty if there is none, or if the
    /// reader has stopped. `used` are buffers that are no longer needed.
    pub(crate) fn take(&self, at: usize, batch: &mut VecDeque<Ready>, used: &mut Vec<Vec<u8>>) {
        let mut lanes = self.lock();
        loop {
            let Lanes { all, is_over } = &mut *lanes;
            let Some(lane) = all.get_mut(at) else { return };
            if !lane.batch.is_empty() {
                std::mem::swap(&mut lane.batch, batch);
                lane.spare.append(used);
                self.taken.notify_one();
                return;
            }
            if *is_over || lane.next >= lane.count {
                return;
            }
            lanes = self.ready.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads batches until all sub-buffers are read or the end has come.
    fn read(&self) {
        // A lane must not wait for a reader that has panicked.
        let _end = End(self);
        let mut batch = VecDeque::new();
        let mut last = 0usize;
        let mut lanes = self.lock();
        loop {
            let Lanes { all, is_over } = &mut *lanes;
            if *is_over || all.iter().all(|lane| lane.next >= lane.count) {
                return;
            }
            // The lanes have turns.
            let turns = (last.saturating_add(1)..all.len()).chain(0..=last);
            let is_due = |at: &usize| {
                all.get(*at).is_some_and(|lane| lane.batch.is_empty() && lane.next < lane.count)
            };
            let Some((at, lane)) =
                turns.into_iter().find(is_due).and_then(|at| Some((at, all.get_mut(at)?)))
            else {
                lanes = self.taken.wait(lanes).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            last = at;
            let (index, from, mut spare) = (lane.index, lane.next, std::mem::take(&mut lane.spare));
            let end = from.saturating_add(self.size).min(lane.count);
            drop(lanes);
            for number in from..end {
                let mut bytes = spare.pop().unwrap_or_default();
                let info = self.ring.sub_buffer(index, number, &mut bytes);
                batch.push_back((info, bytes));
            }
            lanes = self.lock();
            if let Some(lane) = lanes.all.get_mut(at) {
                lane.next = end;
                std::mem::swap(&mut lane.batch, &mut batch);
            }
            self.ready.notify_one();
        }
    }
}

/// Ends the reading when it is dropped.
struct End<'e, 'a>(&'e Ahead<'a>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.taken.notify_all();
        self.0.ready.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuRing;
    use lastwords_trace::evidence::{Evidence, Verdict};
    use proptest::prelude::*;

    /// A ring whose sub-buffers contain their place.
    struct Numbered {
        cpus: Vec<CpuRing>,
        /// The sub-buffer whose reading panics.
        bad: Option<(usize, usize)>,
    }

    impl Numbered {
        fn new(counts: &[usize], bad: Option<(usize, usize)>) -> Self {
            let cpu = |count: &usize| CpuRing {
                sub_buffers: *count,
                sub_buffer_size: 16,
                ..CpuRing::default()
            };
            Self { cpus: counts.iter().map(cpu).collect(), bad }
        }
    }

    impl Ring for Numbered {
        fn cpus(&self) -> &[CpuRing] {
            &self.cpus
        }

        fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
            assert_ne!(self.bad, Some((cpu, index)), "this sub-buffer cannot be read");
            *bytes = [cpu as u64, index as u64].map(u64::to_le_bytes).concat();
            SubBufferInfo {
                committed: index,
                consumed: cpu,
                missed: None,
                verdict: Verdict::Committed,
            }
        }

        fn evidence(&self) -> Evidence {
            Evidence::default()
        }
    }

    /// Takes batches of the lanes in this order; returns the sub-buffers of each lane.
    fn take(
        ahead: Option<&Ahead<'_>>,
        lanes: usize,
        order: impl IntoIterator<Item = usize>,
    ) -> Vec<Vec<Ready>> {
        let ahead = ahead.expect("a thread");
        let mut taken = vec![Vec::new(); lanes];
        for at in order {
            let (mut batch, mut used) = (VecDeque::new(), vec![vec![0xff; 40]]);
            ahead.take(at, &mut batch, &mut used);
            assert!(batch.len() <= ahead.size);
            taken[at].extend(batch);
        }
        taken
    }

    proptest! {
        #[test]
        fn each_lane_gets_its_sub_buffers_in_order(
            counts in proptest::collection::vec(0usize..40, 1..5),
            order in proptest::collection::vec(0usize..4, 0..60),
            batch in 16usize..200,
        ) {
            let ring = Numbered::new(&counts, None);
            // A selection of CPUs: all but the first, if there are others.
            let lanes: Vec<usize> = (usize::from(counts.len() > 1)..counts.len()).collect();
            let ahead = Ahead::new(&ring, &lanes, 0, batch).unwrap();
            let order = order.iter().map(|at| at % lanes.len());
            // At last, every lane is taken to its end.
            let all = order.chain((0..lanes.len()).flat_map(|at| [at; 41]));
            let taken = ahead.with_reader(|ahead| take(ahead, lanes.len(), all));
            for (cpu, taken) in lanes.iter().zip(taken) {
                let mut bytes = Vec::new();
                let all: Vec<Ready> = (0..counts[*cpu]).map(|at| (ring.sub_buffer(*cpu, at, &mut bytes), bytes.clone())).collect();
                prop_assert_eq!(taken, all);
            }
        }
    }

    #[test]
    fn the_reader_ends_when_nothing_is_taken_any_more() {
        let ring = Numbered::new(&[1000, 1000], None);
        let ahead = Ahead::new(&ring, &[0, 1], LEAST, 64).unwrap();
        assert_eq!(ahead.with_reader(|ahead| take(ahead, 2, [1]))[1].len(), 4);
        let lanes = ahead.lock();
        assert!(lanes.all.iter().all(|lane| lane.next <= 12 && lane.batch.len() <= 4));
    }

    #[test]
    fn a_reader_that_panics_leaves_no_lane_waiting() {
        let ring = Numbered::new(&[1000, 1000], Some((0, 6)));
        let ahead = Ahead::new(&ring, &[0, 1], LEAST, 64).unwrap();
        let mut taken = Vec::new();
        let run = || ahead.with_reader(|ahead| taken = take(ahead, 2, [0; 5]));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        assert_eq!(taken[0].len(), 4);
    }

    #[test]
    fn few_or_large_sub_buffers_are_not_read_ahead() {
        let ring = Numbered::new(&[LEAST - 1, LEAST], None);
        assert!(Ahead::new(&ring, &[0], LEAST, BATCH).is_none());
        assert!(Ahead::new(&ring, &[], LEAST, BATCH).is_none());
        assert!(Ahead::new(&ring, &[1], LEAST, 15).is_none());
        assert!(Ahead::new(&ring, &[1], LEAST, 16).is_some());
        let mut ring = Numbered::new(&[LEAST; 30], None);
        ring.cpus[0].sub_buffer_size = 1 << 20;
        assert!(Ahead::new(&ring, &(0..30).collect::<Vec<_>>(), LEAST, usize::MAX).is_none());
    }
}
