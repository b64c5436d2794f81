//! Merges the events of a ring's CPUs in order of time. Of events with equal times the one of the
//! lower CPU is first, as in the kernel.

use std::collections::VecDeque;

use crate::{HeaderPage, Ring, SubBufferInfo, Tracing};
use lastwords_bytes::ByteOrder;

use super::ahead::{Ahead, Ready};
use crate::page::{Cursor, Event, Misfit};

/// Most notes on faults that are kept.
const MOST: usize = 100;

/// The state of one CPU.
struct Lane<'a> {
    ring: &'a dyn Ring,
    /// Its position in [`Ring::cpus`].
    index: usize,
    cpu: u32,
    /// Number of sub-buffers, and the next one to read.
    count: usize,
    next: usize,
    /// Sub-buffers that were read ahead, and buffers that are no longer needed.
    batch: VecDeque<Ready>,
    used: Vec<Vec<u8>>,
    bytes: Vec<u8>,
    cursor: Option<Cursor>,
    /// Offset of the first event that no consumer has read.
    from: usize,
    head: Option<Event>,
    /// Set if events are missing before the head: their number, if it is known.
    lost: Option<Option<u64>>,
    /// Number of events from before the ring was reset.
    skipped: u64,
    /// True if an event of the CPU was printed, or if its beginning needs no mark.
    started: bool,
}

/// The events of some CPUs of a ring, in order of time.
pub(crate) struct Merge<'a> {
    lanes: Vec<Lane<'a>>,
    ahead: Option<&'a Ahead<'a>>,
    layout: HeaderPage,
    order: ByteOrder,
    /// Clock value at the last reset of the ring. Older events are not shown.
    start: u64,
    /// The lane of the next event.
    current: Option<usize>,
    /// The time and lane of the earliest head among the other lanes.
    runner_up: (u64, usize),
    pub(crate) faults: u64,
    pub(crate) notes: Vec<String>,
}

/// The next event.
pub(crate) struct NextEvent<'m> {
    pub(crate) time: u64,
    pub(crate) lane: usize,
    pub(crate) payload: &'m [u8],
    /// True if events are missing before it.
    pub(crate) follows_loss: bool,
    /// True if [`Merge::take_start`] was called for its CPU already, or if its CPU needs no mark.
    pub(crate) is_started: bool,
}

impl<'a> Merge<'a> {
    pub(crate) fn new(tracing: &Tracing, ring: &'a dyn Ring, lanes: &[usize]) -> Self {
        Self::begin(tracing, ring, lanes, None)
    }

    /// Merges the same events; `ahead` reads their sub-buffers.
    pub(crate) fn begin(
        tracing: &Tracing,
        ring: &'a dyn Ring,
        lanes: &[usize],
        ahead: Option<&'a Ahead<'a>>,
    ) -> Self {
        let cpus = ring.cpus();
        let lane = |index: &usize| {
            let cpu = cpus.get(*index)?;
            Some(Lane {
                ring,
                index: *index,
                cpu: cpu.cpu,
                count: cpu.sub_buffers,
                next: 0,
                batch: VecDeque::new(),
                used: Vec::new(),
                bytes: Vec::new(),
                cursor: None,
                from: 0,
                head: None,
                lost: None,
                skipped: 0,
                started: false,
            })
        };
        let lanes: Vec<Lane<'a>> = lanes.iter().filter_map(lane).collect();
        let (layout, order) = (tracing.header_page, tracing.byte_order);
        let start = ring.time_start();
        let mut merge = Self {
            lanes,
            ahead,
            layout,
            order,
            start,
            current: None,
            runner_up: (0, 0),
            faults: 0,
            notes: Vec::new(),
        };
        (0..merge.lanes.len()).for_each(|at| merge.fill(at));
        // `test_cpu_buff_start` does not mark a CPU whose first events are hidden.
        merge.lanes.iter_mut().for_each(|lane| lane.started = lane.skipped > 0);
        merge.settle();
        merge
    }

    /// Returns for each lane the number of events that are hidden because they are from before the
    /// ring was reset.
    pub(crate) fn skipped(&self) -> impl Iterator<Item = u64> {
        self.lanes.iter().map(|lane| lane.skipped)
    }

    /// Returns the time of the next event, or `None` at the end.
    #[inline]
    pub(crate) fn head(&self) -> Option<u64> {
        let lane = self.lanes.get(self.current?)?;
        lane.head.as_ref().map(|event| event.time)
    }

    /// Returns the payload of the next event.
    #[inline]
    pub(crate) fn payload(&self) -> &[u8] {
        self.current.and_then(|at| self.lanes.get(at)?.payload()).unwrap_or_default()
    }

    /// Returns the CPU of each lane.
    pub(crate) fn cpus(&self) -> Vec<u32> {
        self.lanes.iter().map(|lane| lane.cpu).collect()
    }

    /// Returns the CPU of the next event.
    pub(crate) fn cpu(&self) -> u32 {
        self.current.and_then(|at| self.lanes.get(at)).map_or(0, |lane| lane.cpu)
    }

    /// Returns the position of the CPU among the merged ones.
    pub(crate) fn lane(&self) -> usize {
        self.current.unwrap_or(0)
    }

    /// Returns `Some` if events are missing before the next one. A second call returns `None`.
    #[inline]
    pub(crate) fn take_lost(&mut self) -> Option<Option<u64>> {
        let at = self.current?;
        self.lanes.get_mut(at)?.lost.take()
    }

    /// Returns true if the next event is the first one of its CPU. A second call returns false.
    #[inline]
    pub(crate) fn take_start(&mut self) -> bool {
        let lane = self.current.and_then(|at| self.lanes.get_mut(at));
        lane.is_some_and(|lane| !std::mem::replace(&mut lane.started, true))
    }

    /// Skips the next event.
    #[inline]
    pub(crate) fn advance(&mut self) {
        let Some(at) = self.current else { return };
        self.fill(at);
        let head = self.lanes.get(at).and_then(|lane| lane.head.as_ref());
        let place = head.map(|event| (event.time, at));
        if place.is_none_or(|place| place > self.runner_up) {
            self.settle();
        }
    }

    /// Passes the next event and those after it to `put`, in order, and skips each event for which
    /// `put` returns true. Stops at the first event for which it returns false, or earlier, when
    /// the lane or the sub-buffer changes.
    #[inline(always)]
    pub(crate) fn skip_while(&mut self, mut put: impl FnMut(&NextEvent<'_>) -> bool) {
        let Some((at, lane)) = self.current.and_then(|at| Some((at, self.lanes.get_mut(at)?)))
        else {
            return;
        };
        let (Some(head), Some(place)) = (lane.head.as_mut(), lane.cursor.as_mut()) else { return };
        // The compiler keeps the copy of the cursor in registers.
        let (mut cursor, mut event) = (place.clone(), head.clone());
        let last = self.runner_up;
        let is_next = loop {
            let front = NextEvent {
                time: event.time,
                lane: at,
                payload: lane.bytes.get(event.payload.clone()).unwrap_or_default(),
                follows_loss: lane.lost.is_some(),
                is_started: lane.started,
            };
            if !put(&front) {
                break true;
            }
            let before = cursor.clone();
            match cursor.next(&lane.bytes) {
                Some(Ok(next)) if next.payload.start >= lane.from && next.time >= self.start => {
                    event = next
                }
                _ => {
                    // The end of the sub-buffer, or an event that is not shown: the lane is filled
                    // from before it.
                    cursor = before;
                    break false;
                }
            }
            if (event.time, at) > last {
                break true;
            }
        };
        (*place, *head) = (cursor, event);
        if !is_next {
            self.advance();
        } else if self.head().is_some_and(|time| (time, at) > last) {
            self.settle();
        }
    }

    /// Skips the next event and passes the following event of the same CPU to `decides`. If that
    /// returns `Some`, that event is skipped, too. The caller must have copied the next event
    /// before, and must call [`Merge::settle`] afterwards to restore the order.
    pub(crate) fn peek_same_cpu<R>(
        &mut self,
        decides: impl FnOnce(&[u8], u64) -> Option<R>,
    ) -> Option<R> {
        let at = self.current?;
        self.fill(at);
        let lane = self.lanes.get(at)?;
        let time = lane.head.as_ref()?.time;
        let outcome = decides(lane.payload()?, time);
        if outcome.is_some() {
            self.fill(at);
        }
        outcome
    }

    /// Finds the lane of the next event, and the earliest head among the other lanes. This restores
    /// the order after [`Merge::peek_same_cpu`].
    pub(crate) fn settle(&mut self) {
        let mut best: Option<(u64, usize)> = None;
        let mut runner_up = (u64::MAX, usize::MAX);
        for (at, lane) in self.lanes.iter().enumerate() {
            let Some(event) = &lane.head else { continue };
            let place = (event.time, at);
            match best {
                Some(first) if first <= place => runner_up = runner_up.min(place),
                first => {
                    runner_up = first.unwrap_or(runner_up);
                    best = Some(place);
                }
            }
        }
        self.current = best.map(|(_, at)| at);
        self.runner_up = runner_up;
    }

    /// Reads the next event of a lane into its head.
    #[inline]
    fn fill(&mut self, at: usize) {
        if !self.fill_from_page(at) {
            self.refill(at);
        }
    }

    #[cold]
    fn note(&mut self, at: usize, error: &Misfit) {
        self.faults = self.faults.wrapping_add(1);
        if let Some(lane) = self.lanes.get(at).filter(|_| self.notes.len() < MOST) {
            self.notes.push(format!(
                "CPU {}: sub-buffer {}: {error}",
                lane.cpu,
                lane.next.saturating_sub(1)
            ));
        }
    }

    /// Reads the next sub-buffers of a lane until one has an event to show, because the current one
    /// ended or is broken.
    #[cold]
    fn refill(&mut self, at: usize) {
        loop {
            let Some(lane) = self.lanes.get_mut(at) else { return };
            if lane.next >= lane.count {
                lane.head = None;
                lane.cursor = None;
                return;
            }
            let info = lane.read(at, self.ahead);
            // Events that were overwritten before the first sub-buffer are not a gap in the text.
            if lane.next > 0 && info.missed.is_some() {
                lane.lost = info.missed;
            }
            lane.next = lane.next.wrapping_add(1);
            lane.cursor = Some(Cursor::in_sub_buffer(&lane.bytes, self.layout, self.order, &info));
            lane.from = (self.layout.data_offset as usize).saturating_add(info.consumed);
            if self.fill_from_page(at) {
                return;
            }
        }
    }

    /// Reads the next event to show of a lane's sub-buffer into its head. Returns false if there is
    /// none.
    #[inline]
    fn fill_from_page(&mut self, at: usize) -> bool {
        let Some(lane) = self.lanes.get_mut(at) else { return true };
        while let Some(next) = lane.cursor.as_mut().and_then(|cursor| cursor.next(&lane.bytes)) {
            match next {
                Ok(event) if event.payload.start < lane.from => {}
                Ok(event) if event.time < self.start => lane.skipped = lane.skipped.wrapping_add(1),
                Ok(event) => {
                    lane.head = Some(event);
                    return true;
                }
                Err(error) => {
                    self.note(at, &error);
                    return false;
                }
            }
        }
        false
    }
}

impl Lane<'_> {
    /// Reads the next sub-buffer of the lane at `at`.
    fn read(&mut self, at: usize, ahead: Option<&Ahead<'_>>) -> SubBufferInfo {
        if let Some(ahead) = ahead.filter(|_| self.batch.is_empty()) {
            ahead.take(at, &mut self.batch, &mut self.used);
        }
        match self.batch.pop_front() {
            Some((info, bytes)) => {
                self.used.push(std::mem::replace(&mut self.bytes, bytes));
                info
            }
            None => self.ring.sub_buffer(self.index, self.next, &mut self.bytes),
        }
    }

    fn payload(&self) -> Option<&[u8]> {
        self.bytes.get(self.head.as_ref()?.payload.clone())
    }
}
