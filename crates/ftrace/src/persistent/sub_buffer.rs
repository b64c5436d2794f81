//! Judges a sub-buffer by its bytes.
//!
//! A damaged committed size costs nothing if the events end where the sub-buffer ends.

use crate::HeaderPage;
use crate::page::{self, Events};
use lastwords_bytes::ByteOrder;
use lastwords_trace::evidence::Verdict;

/// Bytes that reach memory together: the cache line of x86-64 and most arm64 machines.
const CACHE_LINE: usize = 64;

/// Cache lines that a reset is taken to lose at most, where older events are in their place.
const LOST_LINES: usize = 8;

/// The longest that nothing is recorded between two events of a sub-buffer, more than a year in
/// nanoseconds. Bytes of other events that are read as a distance in time give most often more.
const LONGEST_PAUSE: u64 = 1 << 55;

/// Bytes of `struct trace_entry`, and the highest process ID (`PID_MAX_LIMIT` in
/// `include/linux/threads.h`).
const ENTRY: usize = 8;

const MOST_PIDS: u32 = 4 << 20;

/// Bytes of the smallest event: less room at the end of a sub-buffer stays unused
/// (`RB_EVNT_MIN_SIZE`).
const SMALLEST_EVENT: usize = 8;

/// One sub-buffer, as its own bytes show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SubBuffer {
    /// Number among the CPU's sub-buffers in memory.
    pub(super) number: u32,
    /// Clock values at its beginning and of its last event.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Bytes of whole events.
    pub(super) committed: usize,
    /// Bytes that its header says are committed, where that can be.
    pub(super) claimed: usize,
    pub(super) events: u64,
    pub(super) missed: Option<Option<u64>>,
    pub(super) verdict: Verdict,
    /// Why the verdict is not committed or open.
    pub(super) why: String,
    /// Offset of the first bytes that are no event.
    pub(super) broken: Option<usize>,
    /// The time to be put in the place of that at its beginning, which is damaged.
    pub(super) mended: Option<u64>,
    /// Nothing is committed by its header, but it has a time and a first event: Linux 6.12 empties
    /// the header of a sub-buffer that was read, and of all sub-buffers when it discards them.
    pub(super) has_remains: bool,
    /// The committed size cannot be, unless the sub-buffer is being written: it does not fit, or
    /// more bytes of events follow.
    pub(super) has_bad_size: bool,
    /// Time and committed size are zero, although it has other bytes: a writer sets the time
    /// before all else.
    pub(super) has_lost_header: bool,
}

impl SubBuffer {
    /// Judges the bytes of a sub-buffer, header first, as the kernel does when it boots
    /// (`rb_validate_buffer`). Events up to the first that cannot be are kept. `not_after`: no
    /// event can be later.
    pub(super) fn judge(
        number: u32,
        bytes: &[u8],
        layout: HeaderPage,
        order: ByteOrder,
        not_after: u64,
    ) -> Self {
        let begin = layout.data_offset as usize;
        let mut judged = Self {
            number,
            first: page::long(bytes, 0, order),
            last: 0,
            committed: 0,
            claimed: 0,
            events: 0,
            missed: None,
            verdict: Verdict::Committed,
            why: String::new(),
            broken: None,
            mended: None,
            has_remains: false,
            has_bad_size: false,
            has_lost_header: false,
        };
        let header = match page::header(bytes, layout, order) {
            Ok(header) => header,
            Err(misfit) => {
                judged.claimed = bytes.len().saturating_sub(begin);
                judged.has_bad_size = true;
                judged.refuse(misfit.to_string());
                return judged;
            }
        };
        judged.last = header.time;
        (judged.claimed, judged.missed) = (header.committed, header.missed);
        judged.has_remains = header.committed == 0
            && judged.first != 0
            && may_be_event(bytes.get(begin..).unwrap_or_default());
        let is_blank = || bytes.iter().skip(begin).all(|byte| *byte == 0);
        judged.has_lost_header = header.committed == 0 && judged.first == 0 && !is_blank();
        let rest = bytes.get(begin.saturating_add(header.committed)..).unwrap_or_default();
        // Where a reader had it, a number of lost events may stand behind what is committed.
        judged.has_bad_size = header.committed > 0 && header.missed.is_none() && may_be_event(rest);
        let mut events = Events::new(bytes, layout, order, header.committed);
        let end = judged.take_events(&mut events, begin, (bytes, order), not_after);
        if let Some(at) = events.irregular().filter(|_| judged.verdict == Verdict::Committed) {
            judged.refuse(format!(
                "offset {at}: padding or a rest of bytes, expected an event that ends within what is committed"
            ));
            judged.broken = Some(at);
        }
        let whole = judged.verdict == Verdict::Committed;
        judged.committed = if whole { header.committed } else { end.saturating_sub(begin) };
        judged.without_lines(0, bytes, layout, order)
    }

    /// Takes the events up to the first that cannot be. Returns the offset of their end.
    fn take_events(
        &mut self,
        events: &mut Events<'_>,
        begin: usize,
        (bytes, order): (&[u8], ByteOrder),
        not_after: u64,
    ) -> usize {
        let mut end = begin;
        for event in events {
            let (why, at) = match event {
                Ok(event) if event.time < self.last || event.time > not_after => {
                    let limit = if event.time < self.last { self.last } else { not_after };
                    let time = event.time;
                    let why =
                        format!("offset {end}: an event of time {time}, which contradicts {limit}");
                    (why, end)
                }
                Ok(event) if event.time.saturating_sub(self.last) > LONGEST_PAUSE => {
                    let (time, last) = (event.time, self.last);
                    (format!("offset {end}: an event of time {time}, long after {last}"), end)
                }
                Ok(event)
                    if !has_entry(bytes.get(event.payload.clone()).unwrap_or_default(), order) =>
                {
                    let what = "an event with an id or a process ID that cannot be";
                    (format!("offset {end}: {what}"), end)
                }
                Ok(event) => {
                    self.last = event.time;
                    self.events = self.events.saturating_add(1);
                    end = event.payload.end.checked_next_multiple_of(4).unwrap_or(end);
                    continue;
                }
                Err(misfit) => (misfit.to_string(), misfit.offset),
            };
            self.refuse(why);
            self.broken = Some(at);
            break;
        }
        end
    }

    /// Takes the events of a sub-buffer whose committed size is damaged. A writer goes on with the
    /// next sub-buffer only when the next event has no room: then the events end at the end of the
    /// sub-buffer, or the rest is one padding. Nothing is taken if they end elsewhere.
    pub(super) fn mend_size(&mut self, bytes: &[u8], layout: HeaderPage, order: ByteOrder) {
        let begin = layout.data_offset as usize;
        let whole = self.whole(bytes, layout, order);
        if self.verdict == Verdict::Committed {
            let claimed = self.claimed;
            // Bytes behind the committed ones prove nothing unless they are events up to the end.
            if claimed > 0 && whole.is_none() {
                return;
            }
            self.refuse(format!(
                "its header says that {claimed} bytes are committed, and newer sub-buffers follow"
            ));
            self.claimed = bytes.len().saturating_sub(begin);
        }
        let Some((last, count, end)) = whole else { return };
        self.why.push_str("; its events are whole up to its end");
        (self.last, self.events, self.claimed) = (last, count, end.saturating_sub(begin));
        self.committed = self.claimed;
    }

    /// The time of the last event, the number of events and their end, if the events of all bytes
    /// end where the sub-buffer does.
    fn whole(
        &self,
        bytes: &[u8],
        layout: HeaderPage,
        order: ByteOrder,
    ) -> Option<(u64, u64, usize)> {
        let room = bytes.len().saturating_sub(layout.data_offset as usize);
        let mut events = Events::new(bytes, layout, order, room);
        let (mut last, mut count) = (self.first, 0u64);
        for event in events.by_ref() {
            match event {
                Ok(event)
                    if event.time >= last
                        && has_entry(
                            bytes.get(event.payload.clone()).unwrap_or_default(),
                            order,
                        ) =>
                {
                    last = event.time;
                }
                _ => return None,
            }
            count = count.saturating_add(1);
        }
        let end = events.irregular().unwrap_or(bytes.len());
        let is_whole =
            count > 0 && self.first != 0 && bytes.len().saturating_sub(end) < SMALLEST_EVENT;
        is_whole.then_some((last, count, end))
    }

    /// Gives a sub-buffer, whose events have whole distances from each other, back its time, which
    /// must lie between two times: if one flipped bit explains the damage, and only one. Else its
    /// time is not known, and its events are left out: any time for them would be invented.
    pub(super) fn mend(&mut self, (begin, end): (u64, u64)) {
        let span = self.last.saturating_sub(self.first);
        let fits = |first: &u64| {
            *first >= begin && first.checked_add(span).is_some_and(|last| last <= end)
        };
        let mut flipped = (0..u64::BITS).map(|bit| self.first ^ 1u64 << bit).filter(fits);
        let (one, other) = (flipped.next(), flipped.next());
        let Some(first) = one.filter(|_| other.is_none()) else {
            self.why.push_str("; the times of its events are not known, and they are left out");
            (self.committed, self.events) = (0, 0);
            return;
        };
        self.why.push_str(&format!(
            "; a single flipped bit explains the damage, it was corrected: it begins at {first}"
        ));
        (self.first, self.last, self.mended) = (first, first.saturating_add(span), Some(first));
    }

    pub(super) fn refuse(&mut self, why: String) {
        self.verdict = Verdict::Invalid;
        self.why = why;
    }

    /// Leaves out the events that reach into the cache line in which the first bytes are that are
    /// no event, or into so many lines before it: damage of memory, and a reset that loses the
    /// newest cache lines, begins with a whole line.
    fn without_lines(
        self,
        before: usize,
        bytes: &[u8],
        layout: HeaderPage,
        order: ByteOrder,
    ) -> Self {
        let Some(broken) = self.broken else { return self };
        let line = broken
            .checked_div(CACHE_LINE)
            .unwrap_or(0)
            .saturating_sub(before)
            .saturating_mul(CACHE_LINE);
        let begin = layout.data_offset as usize;
        let mut kept = Self { committed: 0, events: 0, last: self.first, ..self };
        let events =
            Events::new(bytes, layout, order, line.saturating_sub(begin)).map_while(Result::ok);
        for event in events.take_while(|event| event.payload.end <= line) {
            kept.committed = event.payload.end.saturating_sub(begin);
            kept.events = kept.events.saturating_add(1);
            kept.last = event.time;
        }
        if before == 0 {
            kept.why = format!(
                "{} (events from the cache line at offset {line} on are left out)",
                kept.why
            );
        } else {
            kept.why = format!("{}, and {before} lines before it, which may be older", kept.why);
        }
        kept
    }

    /// Leaves out more of the sub-buffer that was being written, where it is damaged. The newest
    /// cache lines did not reach memory before the reset, and in their place are those of an older
    /// lap, in which older events can be read as if they were new. Zeroes up to the end show
    /// that there was no older lap.
    pub(super) fn without_older_lap(
        self,
        bytes: &[u8],
        layout: HeaderPage,
        order: ByteOrder,
    ) -> Self {
        let rest = self.broken.and_then(|broken| bytes.get(broken..)).unwrap_or_default();
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if !is_zero(rest) {
            return self.without_lines(LOST_LINES, bytes, layout, order);
        }
        // Lines before that are zero were not written back either. Events in them can be read, with
        // zeroes in the place of what they had.
        let line = self.broken.and_then(|broken| broken.checked_div(CACHE_LINE)).unwrap_or(0);
        let before =
            bytes.chunks(CACHE_LINE).take(line).rev().take_while(|line| is_zero(line)).count();
        if before == 0 { self } else { self.without_lines(before, bytes, layout, order) }
    }

    /// Refuses a sub-buffer whose header is lost.
    pub(super) fn refuse_lost_header(&mut self, bytes: &[u8], layout: HeaderPage) {
        self.refuse("its header is zero, although it was written".into());
        self.claimed = bytes.len().saturating_sub(layout.data_offset as usize);
    }

    /// Refuses the newest sub-buffer where its header says that nothing is committed, and where it
    /// was begun last: how far events were committed is not known.
    pub(super) fn refuse_lost_size(&mut self, bytes: &[u8], layout: HeaderPage) {
        self.refuse("its header says that nothing is committed, and its time is the newest".into());
        self.claimed = bytes.len().saturating_sub(layout.data_offset as usize);
    }

    /// Nothing was ever recorded in it since its memory was cleared.
    pub(super) fn is_empty(&self) -> bool {
        self.claimed == 0 && self.verdict == Verdict::Committed
    }
}

/// Returns true if the payload of an event begins as those of the tracer do (`struct trace_entry`):
/// an id of 2 bytes, which is not 0 and never reaches the highest number; flags; at offset 4 the
/// process ID of 4 bytes, of a 64-bit kernel at most `PID_MAX_LIMIT`. Stale bytes in the place of
/// an event have often other numbers there.
fn has_entry(payload: &[u8], order: ByteOrder) -> bool {
    let is_id = (1..u16::MAX).contains(&page::short(payload, 0, order));
    is_id && payload.len() >= ENTRY && page::word(payload, 4, order) <= MOST_PIDS
}

/// Returns true if an event can begin here. Its first word alone may be zero: a long event at the
/// time of the event before it has its length in the second word.
fn may_be_event(bytes: &[u8]) -> bool {
    bytes.first_chunk::<SMALLEST_EVENT>().is_some_and(|words| *words != [0; SMALLEST_EVENT])
}
