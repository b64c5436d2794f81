//! The slices of the timeline: what began, ended, and was nested.

use crate::collected::Inside;
use crate::names::NONE;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// A row of slices that do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Track {
    pub(crate) of: Of,
    /// Number of the CPU or thread; the thread of a span is one of its process.
    pub(crate) owner: u32,
    /// Nesting, from 0.
    pub(crate) depth: u32,
}

/// The kind of a track's slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Of {
    /// The threads that run on a CPU.
    Running,
    /// The interrupts on a CPU.
    Interrupts,
    /// The system calls and spans that a thread is in.
    Thread,
    /// The spans of a process, from their opening to their end.
    Spans,
}

/// The beginning is not recorded.
pub(crate) const NO_BEGIN: u8 = 1;
/// The end is not recorded: it was open when recording ended.
pub(crate) const NO_END: u8 = 2;

/// Events are missing around its begin and its end, so that the end may be that of another.
pub(crate) const UNSURE: u8 = 4;

/// A slice. Times are nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) track: u32,
    pub(crate) begin: i64,
    pub(crate) end: i64,
    /// Number of its text.
    pub(crate) label: u32,
    /// Number of the thread that ran or was in it.
    pub(crate) thread: u32,
    /// Number of the event that began it, among all that were read; `u64::MAX` if there is none.
    pub(crate) event: u64,
    /// [`NO_BEGIN`], [`NO_END`], [`UNSURE`].
    pub(crate) flags: u8,
    /// Position of the trace.
    pub(crate) trace: u32,
    /// Number of the event that opened its span; `u64::MAX` if there is none.
    pub(crate) opening: u64,
    /// Number of the span of which this is all, and of its parent; [`NONE`] if it is not known.
    pub(crate) span: u32,
    pub(crate) parent: u32,
    /// Position in [`Slices::open`]; [`NONE`] if the slice has ended, or may have.
    pub(crate) open: u32,
}

/// The span that a slice is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanOf {
    pub(crate) id: u64,
    pub(crate) parent: u64,
    /// Numbers of the span and of its parent among the spans that are drawn; [`NONE`] for none.
    pub(crate) numbers: (u32, u32),
    /// Number of the event that opened it; `u64::MAX` if there is none.
    pub(crate) opening: u64,
    /// Its state at the end, if the account has it.
    pub(crate) end: Option<SpanEnd>,
}

/// The state of a span at the end, as the account has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanEnd {
    /// Number of the text of its fields.
    pub(crate) fields: u32,
    pub(crate) inside: Option<Inside>,
}

/// A slice that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    /// Position of the trace. What is open at its end ends there.
    pub(crate) trace: usize,
    /// Number of its stream in the trace.
    pub(crate) stream: u64,
    pub(crate) begin: i64,
    pub(crate) label: u32,
    pub(crate) thread: u32,
    pub(crate) event: u64,
    pub(crate) flags: u8,
    pub(crate) span: Option<SpanOf>,
}

/// All slices.
#[derive(Default)]
pub(crate) struct Slices {
    pub(crate) all: Vec<Slice>,
    pub(crate) tracks: Vec<Track>,
    /// The spans of the slices that were open when recording ended; none for slices of no span.
    pub(crate) open: Vec<Option<SpanOf>>,
    by_track: HashMap<Track, u32>,
}

impl Slices {
    /// Ends a slice at a time. A slice does not end before it begins.
    pub(crate) fn add(&mut self, track: Track, begun: Begun, end: i64, flags: u8) {
        let next = u32::try_from(self.tracks.len()).unwrap_or(u32::MAX);
        let at = *self.by_track.entry(track).or_insert(next);
        if at == next {
            self.tracks.push(track);
        }
        let Begun { begin, label, thread, event, flags: own, trace, span, .. } = begun;
        let (flags, trace) = (own | flags, u32::try_from(trace).unwrap_or(u32::MAX));
        let numbers = span.filter(|_| track.of == Of::Spans).map(|span| span.numbers);
        let (number, parent) = numbers.unwrap_or((NONE, NONE));
        self.all.push(Slice {
            track: at,
            begin,
            end: end.max(begin),
            label,
            thread,
            event,
            flags,
            trace,
            opening: span.map_or(u64::MAX, |span| span.opening),
            span: number,
            parent,
            open: NONE,
        });
    }

    /// Ends a slice at the end of its trace. It was open then, unless its end cannot be known.
    pub(crate) fn add_open(&mut self, track: Track, begun: Begun, end: Option<i64>) {
        self.add(track, begun, end.unwrap_or(begun.begin), NO_END);
        let next = u32::try_from(self.open.len()).unwrap_or(NONE);
        if let Some(slice) = self.all.last_mut().filter(|_| end.is_some()) {
            slice.open = next;
            self.open.push(begun.span);
        }
    }

    /// Drops what one trace says of a CPU where an earlier one has its own slices of the same kind.
    /// Returns the number of these slices.
    pub(crate) fn drop_repeated(&mut self) -> u64 {
        let mut ranges: HashMap<(Of, u32), BTreeMap<u32, (i64, i64)>> = HashMap::new();
        let of = |slice: &Slice| {
            let track = self.tracks.get(slice.track as usize).copied()?;
            matches!(track.of, Of::Running | Of::Interrupts).then_some((track.of, track.owner))
        };
        for slice in &self.all {
            let Some(key) = of(slice) else { continue };
            let range = ranges
                .entry(key)
                .or_default()
                .entry(slice.trace)
                .or_insert((slice.begin, slice.end));
            *range = (range.0.min(slice.begin), range.1.max(slice.end));
        }
        let is_repeated = |slice: &Slice| {
            let Some(ranges) =
                of(slice).and_then(|key| ranges.get(&key)).filter(|ranges| ranges.len() > 1)
            else {
                return false;
            };
            let Some(own) = ranges.get(&slice.trace) else { return false };
            let is_before =
                |trace: u32, range: &(i64, i64)| (range.0, trace) < (own.0, slice.trace);
            let mut before = ranges.iter().filter(|(trace, range)| is_before(**trace, range));
            before.any(|(_, range)| {
                slice.begin < range.1 && range.0 < slice.end.max(slice.begin.saturating_add(1))
            })
        };
        let kept: Vec<Slice> =
            self.all.iter().filter(|slice| !is_repeated(slice)).copied().collect();
        let dropped = self.all.len().saturating_sub(kept.len());
        self.all = kept;
        dropped as u64
    }

    /// Drops the slices that end before a time.
    pub(crate) fn drop_before(&mut self, time: i64) {
        self.all.retain(|slice| slice.end >= time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::{CallId, Scheduling};
    use crate::span_lanes::SpanLanes;

    fn begun(begin: i64) -> Begun {
        Begun { trace: 0, stream: 0, begin, label: 0, thread: 1, event: 0, flags: 0, span: None }
    }

    /// Track, begin, end and flags of each slice.
    fn all(slices: &Slices) -> Vec<(Of, u32, i64, i64, u8)> {
        let one = |slice: &Slice| {
            let track = slices.tracks[slice.track as usize];
            (track.of, track.depth, slice.begin, slice.end, slice.flags)
        };
        let mut all: Vec<_> = slices.all.iter().map(one).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn interrupts_nest_and_one_without_an_end_ends_with_the_outer_one() {
        let (mut slices, mut scheduling) = (Slices::default(), Scheduling::default());
        scheduling.interrupt(&mut slices, 0, 7, begun(10));
        scheduling.interrupt(&mut slices, 0, 8, begun(12));
        scheduling.interrupt_end(&mut slices, (0, 0), 8, 15);
        scheduling.interrupt(&mut slices, 0, 9, begun(16));
        scheduling.interrupt_end(&mut slices, (0, 0), 5, 18);
        scheduling.interrupt_end(&mut slices, (0, 0), 7, 20);
        let expected = [(0, 10, 20, 0), (1, 12, 15, 0), (1, 16, 20, NO_END)];
        assert_eq!(
            all(&slices),
            expected.map(|(depth, begin, end, flags)| (Of::Interrupts, depth, begin, end, flags))
        );
    }

    #[test]
    fn a_gap_ends_what_ran_before_it() {
        let (mut slices, mut scheduling) = (Slices::default(), Scheduling::default());
        let before = Begun { flags: NO_BEGIN, ..begun(1) };
        scheduling.switch(&mut slices, 0, Some(before), begun(10));
        scheduling.lost(&mut slices, (0, 1), 12);
        assert_eq!(scheduling.thread_on(0, 0), Some(1));
        scheduling.lost(&mut slices, (0, 0), 15);
        assert_eq!(scheduling.thread_on(0, 0), None);
        scheduling.switch(&mut slices, 0, Some(Begun { flags: NO_BEGIN, ..begun(30) }), begun(40));
        scheduling.finish(&mut slices, |_| 50, |_| true);
        let expected = [(1, 10, NO_BEGIN), (10, 15, NO_END), (30, 40, NO_BEGIN), (40, 50, NO_END)];
        assert_eq!(
            all(&slices),
            expected.map(|(begin, end, flags)| (Of::Running, 0, begin, end, flags))
        );
    }

    #[test]
    fn nobody_knows_how_long_a_system_call_without_an_exit_took() {
        let (mut slices, mut scheduling) = (Slices::default(), Scheduling::default());
        scheduling.enter(1, 3, begun(1));
        scheduling.call(&mut slices, 1, CallId::Number(0), begun(2));
        scheduling.call(&mut slices, 1, CallId::Number(0), begun(5));
        scheduling.call_end(&mut slices, (0, 1), CallId::Number(0), 6);
        scheduling.call_end(&mut slices, (0, 1), CallId::Number(0), 7);
        scheduling.thread_end(&mut slices, 1, 9);
        let expected = [(0, 1, 9, 0), (1, 2, 2, NO_END), (1, 5, 6, 0)];
        assert_eq!(
            all(&slices),
            expected.map(|(depth, begin, end, flags)| (Of::Thread, depth, begin, end, flags))
        );
    }

    #[test]
    fn the_exit_of_another_call_ends_none() {
        for (entry, exit, is_own) in [
            (CallId::Number(7), CallId::Number(7), true),
            (CallId::Number(7), CallId::Number(8), false),
            (CallId::Number(15), CallId::Number(u64::MAX), true),
            (CallId::Name(1), CallId::Name(1), true),
            (CallId::Name(1), CallId::Name(2), false),
            (CallId::Name(1), CallId::Number(0), true),
        ] {
            let (mut slices, mut scheduling) = (Slices::default(), Scheduling::default());
            scheduling.call(&mut slices, 1, entry, begun(2));
            scheduling.call_end(&mut slices, (1, 1), entry, 4);
            scheduling.call_end(&mut slices, (0, 1), exit, 6);
            let expected = if is_own { (2, 6, 0) } else { (2, 2, NO_END) };
            assert_eq!(
                all(&slices),
                [(Of::Thread, 0, expected.0, expected.1, expected.2)],
                "{entry:?}, {exit:?}"
            );
        }
    }

    /// Two traces of one kernel have the same events, a little later in one. Where the first one
    /// ends, the other one is drawn.
    #[test]
    fn traces_of_one_cpu_are_drawn_once() {
        let (mut slices, mut scheduling) = (Slices::default(), Scheduling::default());
        let of = |trace: usize, begin: i64| Begun { trace, ..begun(begin) };
        for (trace, shift, times) in
            [(0, 0, [10, 20, 30]), (1, 1, [10, 20, 30]), (1, 1, [40, 50, 60])]
        {
            for time in times.map(|time| time + shift) {
                scheduling.switch(&mut slices, 0, None, of(trace, time));
            }
            scheduling.interrupt(&mut slices, 0, 7, of(trace, times[0] + 2 + shift));
            scheduling.interrupt_end(&mut slices, (trace, 0), 7, times[0] + 4 + shift);
        }
        scheduling.call(&mut slices, 1, CallId::Number(0), of(0, 12));
        scheduling.call(&mut slices, 1, CallId::Number(0), of(1, 13));
        scheduling.call_end(&mut slices, (0, 1), CallId::Number(0), 15);
        scheduling.call_end(&mut slices, (1, 1), CallId::Number(0), 16);
        assert_eq!((scheduling.repeated, slices.drop_repeated()), (1, 3));
        let running = [(10, 20), (20, 30), (31, 41), (41, 51), (51, 61)]
            .map(|(b, e)| (Of::Running, 0, b, e, 0));
        let rest = [
            (Of::Interrupts, 0, 12, 14, 0),
            (Of::Interrupts, 0, 43, 45, 0),
            (Of::Thread, 0, 12, 15, 0),
        ];
        assert_eq!(all(&slices), [&running[..], &rest].concat());
    }

    /// Guards of spans may be dropped in any order.
    #[test]
    fn spans_that_cross_end_at_their_own_exits() {
        let (mut slices, mut scheduling) = (Slices::default(), Scheduling::default());
        scheduling.enter(1, 3, begun(1));
        scheduling.enter(1, 4, begun(2));
        scheduling.exit(&mut slices, 1, 3, 5, 0);
        scheduling.enter(1, 5, begun(6));
        scheduling.exit(&mut slices, 1, 4, 8, 0);
        scheduling.exit(&mut slices, 1, 5, 9, 0);
        scheduling.enter(1, 6, begun(10));
        scheduling.exit(&mut slices, 1, 6, 11, 0);
        let expected = [(0, 1, 5), (0, 10, 11), (1, 2, 8), (2, 6, 9)];
        assert_eq!(
            all(&slices),
            expected.map(|(depth, begin, end)| (Of::Thread, depth, begin, end, 0))
        );
    }

    #[test]
    fn what_is_nested_too_deep_is_counted() {
        let (mut slices, mut scheduling) = (Slices::default(), Scheduling::default());
        (0..70).for_each(|id| scheduling.enter(1, id, begun(0)));
        (0..70).for_each(|id| scheduling.interrupt(&mut slices, 0, id, begun(0)));
        assert_eq!(scheduling.not_drawn, 12);
    }

    /// A filter may leave some switches only, or begins without ends.
    #[test]
    fn what_is_not_known_has_no_length() {
        let (mut slices, mut scheduling) = (Slices::default(), Scheduling::default());
        let thread = |thread: u32, begin: i64| Begun { thread, ..begun(begin) };
        scheduling.switch(&mut slices, 0, Some(thread(1, 0)), thread(2, 10));
        scheduling.switch(&mut slices, 0, Some(thread(2, 0)), thread(3, 20));
        scheduling.switch(&mut slices, 0, Some(thread(9, 0)), thread(4, 30));
        scheduling.interrupt(&mut slices, 0, 7, begun(31));
        scheduling.interrupt(&mut slices, 0, 7, begun(33));
        scheduling.call(&mut slices, 5, CallId::Number(0), begun(34));
        scheduling.enter(6, 3, begun(35));
        scheduling.finish(&mut slices, |_| 50, |_| false);
        let running = [(0, 10, 0), (10, 20, 0), (20, 20, NO_END), (30, 30, 0), (30, 50, NO_END)];
        let mut expected: Vec<_> =
            running.map(|(begin, end, flags)| (Of::Running, 0, begin, end, flags)).into();
        expected.extend([31, 33].map(|time| (Of::Interrupts, 0, time, time, NO_END)));
        expected.extend([34, 35].map(|time| (Of::Thread, 0, time, time, NO_END)));
        assert_eq!(all(&slices), expected);
    }

    #[test]
    fn spans_take_the_first_free_lane_below_their_parent() {
        let (mut slices, mut lanes) = (Slices::default(), SpanLanes::default());
        lanes.open((0, None, 1), 0, 5, begun(1));
        lanes.open((0, None, 2), 1, 5, begun(2));
        lanes.open((0, None, 3), 0, 5, begun(3));
        lanes.close(&mut slices, (0, None, 2), 4);
        lanes.open((0, None, 4), 1, 5, begun(5));
        lanes.close(&mut slices, (0, None, 9), 6);
        lanes.finish(&mut slices, |_| Some(10));
        let expected = [(0, 1, 10, NO_END), (1, 2, 4, 0), (1, 5, 10, NO_END), (2, 3, 10, NO_END)];
        assert_eq!(
            all(&slices),
            expected.map(|(depth, begin, end, flags)| (Of::Spans, depth, begin, end, flags))
        );
    }
}
