//! What was consumed and waits for a reader of `trace_pipe`, `trace_pipe_raw` or `snapshot_pipe`.
//!
//! What a reader does not take at once stays here for the next one, as a line and as a record of
//! ftrace, whether it reads the session's `trace_pipe` or a file of a CPU.

use std::collections::{BTreeMap, VecDeque};

use crate::raw::{self, Missed, Page, Record};

/// Bytes of lines and records that wait for a reader. What comes above that is dropped, the oldest
/// first, and counted: a reader of one CPU's file leaves the events of the others here.
pub(crate) const MOST: usize = 64 << 20;

/// Events that were consumed and that no reader has had.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// The events are those of the snapshot. Else they are those of the live rings.
    pub(crate) of_snapshot: bool,
    /// The items of each CPU.
    pub(crate) queues: BTreeMap<Option<u32>, Queue>,
    /// Number of items that came.
    count: u64,
    /// Bytes of the items that wait.
    bytes: usize,
    /// The bytes that the rings had produced at the last consuming read.
    pub(crate) produced: Option<u64>,
    /// Looks since the last change.
    pub(crate) quiet: u32,
}

/// The items of a CPU, each with its number among all items.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) items: VecDeque<(u64, Item)>,
    /// Items that were dropped since the last reader.
    dropped: u64,
}

/// An event, or a loss.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) cpu: Option<u32>,
    /// The line in `trace_pipe`.
    pub(crate) line: Vec<u8>,
    /// The event in `trace_pipe_raw`: a record, or missing events.
    pub(crate) raw: Result<Record, Missed>,
}

impl Item {
    fn len(&self) -> usize {
        self.line.len() + self.raw.as_ref().map_or(0, |record| record.bytes.len())
    }
}

impl Queue {
    /// Makes a page of the next events, and returns it with the number of items that it has.
    /// Returns none if no event is there that a page can hold; with `at_end`, an empty page then
    /// tells of missing events.
    fn page(&self, size: usize, at_end: bool) -> Option<(Vec<u8>, usize)> {
        let mut missed: Option<Missed> = (self.dropped > 0).then_some(Some(self.dropped));
        let (mut page, mut taken, mut is_told) = (Page::new(size), 0, at_end);
        for (_, item) in &self.items {
            match &item.raw {
                Ok(record) if page.put(record, missed.is_some()) => {}
                // The events after it are on the next page.
                _ if !page.is_empty() => break,
                // With the number of missing events, there is too little room: that number has a
                // page of its own.
                Ok(record) if missed.is_some() && Page::new(size).put(record, false) => {
                    is_told = true;
                    break;
                }
                // An empty page cannot hold it.
                Ok(_) => missed = raw::added(missed, Some(1)),
                Err(lost) => missed = raw::added(missed, *lost),
            }
            taken += 1;
        }
        let is_made = !page.is_empty() || is_told && missed.is_some();
        is_made.then(|| (page.finish(missed), taken))
    }
}

impl Pipe {
    pub(crate) fn of_snapshot() -> Self {
        Self { of_snapshot: true, ..Self::default() }
    }

    /// Returns the CPU of the oldest item of a CPU, or of all.
    pub(crate) fn next(&self, cpu: Option<u32>) -> Option<Option<u32>> {
        let wanted = self.queues.iter().filter(|(of, _)| cpu.is_none() || **of == cpu);
        let fronts = wanted.filter_map(|(of, queue)| Some((queue.items.front()?.0, *of)));
        fronts.min().map(|(_, of)| of)
    }

    pub(crate) fn push(&mut self, item: Item) {
        self.bytes += item.len();
        self.queues.entry(item.cpu).or_default().items.push_back((self.count, item));
        self.count += 1;
    }

    /// Adds items, and drops the oldest above [`MOST`].
    pub(crate) fn add(&mut self, items: Vec<Item>) {
        items.into_iter().for_each(|item| self.push(item));
        while self.bytes > MOST
            && let Some(queue) = self.next(None).and_then(|cpu| self.queues.get_mut(&cpu))
            && let Some((_, item)) = queue.items.pop_front()
        {
            self.bytes -= item.len();
            queue.dropped += 1;
        }
    }

    /// Removes whole lines of a CPU, or of all, up to `size` bytes. A line that is longer is split.
    pub(crate) fn take(&mut self, cpu: Option<u32>, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(queue) = self.next(cpu).and_then(|cpu| self.queues.get_mut(&cpu))
            && let Some((_, item)) = queue.items.front_mut()
        {
            self.bytes -= item.len();
            if queue.dropped > 0 {
                let loss = format!(
                    "CPU:? [LOST {} EVENTS] nobody read them from the mount\n",
                    queue.dropped
                );
                item.line = [loss.as_bytes(), &item.line].concat();
                queue.dropped = 0;
            }
            if bytes.len() + item.line.len() <= size {
                bytes.append(&mut item.line);
                queue.items.pop_front();
                continue;
            }
            if bytes.is_empty() {
                bytes.extend(item.line.drain(..size.min(item.line.len())));
                // A page does not have the event again: it says that one is missing.
                item.raw = Err(Some(1));
            }
            self.bytes += item.len();
            break;
        }
        bytes
    }

    /// Removes the events of a page of a CPU; none if there are none, or if none fits a page. With
    /// `at_end`, an empty page tells of events that are missing at the end.
    pub(crate) fn take_page(
        &mut self,
        cpu: Option<u32>,
        size: usize,
        at_end: bool,
    ) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(&cpu)?;
        let (page, taken) = queue.page(size, at_end)?;
        self.bytes -= queue.items.drain(..taken).map(|(_, item)| item.len()).sum::<usize>();
        queue.dropped = 0;
        Some(page)
    }

    /// Forgets the items of a CPU, or all.
    pub(crate) fn clear(&mut self, cpu: Option<u32>) {
        self.queues.retain(|of, _| cpu.is_some() && *of != cpu);
        self.bytes =
            self.queues.values().flat_map(|queue| &queue.items).map(|(_, item)| item.len()).sum();
    }

    /// Returns the number of events that wait or were dropped.
    pub(crate) fn waiting(&self) -> usize {
        self.queues
            .values()
            .map(|queue| queue.items.len() + usize::try_from(queue.dropped).unwrap_or(usize::MAX))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_bytes::ByteOrder;
    use proptest::prelude::*;

    fn pipe() -> Pipe {
        let mut pipe = Pipe::default();
        pipe.add(vec![event(0, "aa\n"), event(1, "bbbb\n"), event(0, "c\n")]);
        pipe
    }

    /// An event whose record has a byte for each of its line.
    fn event(cpu: u32, line: &str) -> Item {
        let line = line.as_bytes().to_vec();
        Item { cpu: Some(cpu), raw: Ok(Record { time: 7, bytes: line.clone() }), line }
    }

    #[test]
    fn whole_lines_are_taken_in_order() {
        let mut pipe = pipe();
        assert_eq!(pipe.take(None, 8), b"aa\nbbbb\n");
        assert_eq!(pipe.take(None, 8), b"c\n");
        assert_eq!(pipe.take(None, 8), b"");
    }

    #[test]
    fn a_cpu_takes_its_own_lines_alone() {
        let mut pipe = pipe();
        assert_eq!(pipe.take(Some(0), 100), b"aa\nc\n");
        assert_eq!(pipe.take(None, 2), b"bb");
        assert_eq!(pipe.take(None, 100), b"bb\n");
    }

    #[test]
    fn what_nobody_reads_is_dropped_and_told() {
        let mut pipe = pipe();
        pipe.add(vec![Item { cpu: Some(1), line: vec![b'x'; MOST - 10], raw: Err(None) }]);
        assert!(pipe.bytes <= MOST && pipe.waiting() == 4, "{}", pipe.waiting());
        assert_eq!(
            pipe.take(Some(0), 100),
            b"CPU:? [LOST 1 EVENTS] nobody read them from the mount\nc\n"
        );
        assert!(
            pipe.take(None, 54).ends_with(b"[LOST 1 EVENTS] nobody read them from the mount\n")
        );
        pipe.clear(None);
        assert_eq!((pipe.bytes, pipe.waiting(), pipe.take(None, 9)), (0, 0, vec![]));
    }

    /// The events of pages as the decoder of the recovering half reads them, and the sum of the
    /// missing ones: none if a number is not known.
    fn decoded(pages: &[Vec<u8>]) -> (Vec<(u64, Vec<u8>)>, Option<u64>) {
        use lastwords_ftrace::page::{Events, header};
        let order = ByteOrder::NATIVE;
        let (mut events, mut missed) = (Vec::new(), Some(0));
        for page in pages {
            let header = header(page, raw::HEADER, order).unwrap();
            if let Some(count) = header.missed {
                missed = missed.zip(count).map(|(sum, count)| sum + count);
            }
            for event in Events::new(page, raw::HEADER, order, header.committed) {
                let event = event.unwrap();
                events.push((event.time, page[event.payload].to_vec()));
            }
        }
        (events, missed)
    }

    proptest! {
        /// Every event has its time and its bytes, whatever the times and sizes are, and every missing event is counted.
        #[test]
        fn pages_have_all_events(
            items in proptest::collection::vec(
                (0u64..60, any::<bool>(), prop_oneof![8usize..200, 8usize..9000], 0u8..12, any::<u64>()), 0..60
            ),
            dropped in prop_oneof![Just(0u64), 1u64..9],
            size in prop_oneof![Just(4096usize), Just(8192)],
        ) {
            let mut pipe = Pipe::default();
            let (mut time, mut expected, mut missing) = (1u64 << 62, Vec::new(), Some(0));
            for (bits, is_back, length, kind, word) in items {
                let step = word & ((1 << bits) - 1);
                time = if is_back && kind < 2 { time.saturating_sub(step) } else { time.wrapping_add(step) };
                let bytes: Vec<u8> = (0..length).map(|at| (word >> (at % 8 * 8)) as u8).collect();
                let raw = match kind {
                    10 => Err(None),
                    11 => Err(Some(word >> 40)),
                    _ => Ok(Record { time, bytes: bytes.clone() }),
                };
                match &raw {
                    Ok(_) if length.next_multiple_of(4) + 8 + 16 <= size => expected.push((time, bytes)),
                    Ok(_) => missing = missing.map(|sum| sum + 1),
                    Err(lost) => missing = missing.zip(*lost).map(|(sum, lost)| sum + lost),
                }
                pipe.add(vec![Item { cpu: Some(3), line: vec![b'l'; 5], raw }]);
            }
            if let Some(queue) = pipe.queues.get_mut(&Some(3)) {
                queue.dropped = dropped;
                missing = missing.map(|sum| sum + dropped);
            }
            let mut pages: Vec<Vec<u8>> = std::iter::from_fn(|| pipe.take_page(Some(3), size, false)).collect();
            pages.extend(pipe.take_page(Some(3), size, true));
            prop_assert_eq!((pipe.bytes, pipe.waiting()), (0, 0));
            prop_assert!(pages.iter().all(|page| page.len() == size));
            let (events, missed) = decoded(&pages);
            prop_assert_eq!(missed, missing);
            prop_assert_eq!(events.len(), expected.len());
            for ((time, bytes), (wanted_time, wanted)) in events.iter().zip(&expected) {
                prop_assert_eq!(time, wanted_time);
                prop_assert_eq!(&bytes[..wanted.len()], &wanted[..]);
                prop_assert!(bytes.len() == wanted.len().next_multiple_of(4));
            }
        }
    }

    #[test]
    fn an_event_that_was_read_in_part_is_missing_from_the_pages() {
        let mut pipe = pipe();
        assert_eq!(pipe.take(Some(0), 1), b"a");
        let page = pipe.take_page(Some(0), 4096, false).unwrap();
        assert_eq!(decoded(&[page]), (vec![(7, b"c\n\0\0".to_vec())], Some(1)));
        assert_eq!((pipe.take(None, 100), pipe.bytes), (b"bbbb\n".to_vec(), 0));
    }
}
