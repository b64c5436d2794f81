//! Judges the sub-buffers of one CPU by their bytes, and puts them in the order of their events.
//!
//! The order is that of the metadata. If the metadata contradict themselves or the sub-buffers, the
//! time stamps decide. Sub-buffers of an older lap at the end are stale, because a reset loses
//! cache lines. If two sub-buffers contradict each other, both are delivered, with a verdict. A
//! wrong time is corrected if a single flipped bit explains it; otherwise the sub-buffer's events
//! are left out and the loss is reported. A damaged committed size costs nothing if the events end
//! where the sub-buffer ends.

use super::layout::CpuMeta;
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
        let mut end = begin;
        for event in events.by_ref() {
            match event {
                Ok(event) if event.time < judged.last || event.time > not_after => {
                    let limit = if event.time < judged.last { judged.last } else { not_after };
                    let why = format!(
                        "offset {end}: an event of time {}, which contradicts {limit}",
                        event.time
                    );
                    judged.refuse(why);
                    judged.broken = Some(end);
                    break;
                }
                Ok(event) if event.time.saturating_sub(judged.last) > LONGEST_PAUSE => {
                    judged.refuse(format!(
                        "offset {end}: an event of time {}, long after {}",
                        event.time, judged.last
                    ));
                    judged.broken = Some(end);
                    break;
                }
                Ok(event)
                    if !has_entry(bytes.get(event.payload.clone()).unwrap_or_default(), order) =>
                {
                    judged.refuse(format!(
                        "offset {end}: an event with an id or a process ID that cannot be"
                    ));
                    judged.broken = Some(end);
                    break;
                }
                Ok(event) => {
                    judged.last = event.time;
                    judged.events = judged.events.saturating_add(1);
                    end = event.payload.end.checked_next_multiple_of(4).unwrap_or(end);
                }
                Err(misfit) => {
                    judged.refuse(misfit.to_string());
                    judged.broken = Some(misfit.offset);
                    break;
                }
            }
        }
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

/// The numbers of a CPU's sub-buffers in the order of their events.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// Numbers of sub-buffers, the oldest first.
    pub(super) numbers: Vec<u32>,
    /// How many of them, from the first on, a reader of the boot that is gone had consumed.
    pub(super) consumed: usize,
    /// Position of the first that is neither consumed nor the reader's.
    pub(super) ring: usize,
    /// The last is the one that was being written.
    pub(super) has_open: bool,
    /// Why the order is that of the time stamps and not that of the metadata.
    pub(super) by_time: Option<String>,
}

/// Puts the sub-buffers of a CPU in order. `all`: every sub-buffer, by number.
pub(super) fn chain(meta: &CpuMeta, all: &[SubBuffer]) -> Chain {
    match by_metadata(meta, all).and_then(|chain| has_newest(chain, all)) {
        Ok(chain) => chain,
        Err(why) => by_time(why, meta, all),
    }
}

/// Exchanges two neighbours of a chain whose times fit only the other way round, between those of
/// the sub-buffers on both sides: the table has them in the wrong order. Returns the pairs, each in
/// the order of their times.
pub(super) fn exchange(chain: &mut [u32], all: &[SubBuffer]) -> Vec<(u32, u32)> {
    let times = |number: u32| {
        let sub = all
            .get(number as usize)
            .filter(|sub| sub.committed > 0 && sub.verdict == Verdict::Committed);
        sub.map(|sub| (sub.first, sub.last))
    };
    let mut exchanged = Vec::new();
    for at in 0..chain.len() {
        let Some([before, left, right, behind]) =
            chain.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>())
        else {
            break;
        };
        let around = [*before, *right, *left, *behind].map(times);
        let is_rising = around
            .windows(2)
            .all(|pair| matches!(pair, [Some(one), Some(next)] if one.1 <= next.0));
        if is_rising
            && times(*left).zip(times(*right)).is_some_and(|(left, right)| left.1 > right.0)
        {
            std::mem::swap(left, right);
            exchanged.push((*left, *right));
        }
    }
    exchanged
}

/// Refuses a chain where a sub-buffer outside it has newer events than the chain's beginning.
/// Outside are only sub-buffers that a reader consumed before the reader's own, so the head or the
/// commit is wrong, as when its cache line did not reach memory.
fn has_newest(chain: Chain, all: &[SubBuffer]) -> Result<Chain, String> {
    let mut is_chained = vec![false; all.len()];
    for number in &chain.numbers {
        is_chained.get_mut(*number as usize).into_iter().for_each(|chained| *chained = true);
    }
    let read = |number: &u32| all.get(*number as usize).filter(|sub| sub.committed > 0);
    let Some(begin) = chain.numbers.iter().skip(chain.consumed).find_map(read) else {
        let first = all.iter().find(|sub| sub.committed > 0);
        return first.map_or(Ok(chain), |sub| {
            Err(format!("it says that there are no events, and sub-buffer {} has some", sub.number))
        });
    };
    let newer = all.iter().zip(is_chained).find(|(sub, is_chained)| {
        !is_chained
            && sub.committed > 0
            && sub.verdict == Verdict::Committed
            && sub.first >= begin.first
    });
    match newer {
        Some((sub, _)) => Err(format!(
            "sub-buffer {}, which has no events by its head and commit, has newer ones than the oldest",
            sub.number
        )),
        None => Ok(chain),
    }
}

/// Returns the first number of the table of the order that is there twice, or that no sub-buffer
/// has.
fn repeated(meta: &CpuMeta, count: usize) -> Option<i32> {
    let mut seen = vec![false; count];
    meta.order.iter().copied().find(|number| {
        let place = usize::try_from(*number).ok().and_then(|n| seen.get_mut(n));
        place.is_none_or(|seen| std::mem::replace(seen, true))
    })
}

/// Follows the metadata as the kernel does (`rb_meta_validate_events`): the reader's sub-buffer,
/// then from the head to the commit. What stands before the head was read in the boot that is gone;
/// it counts as long as the times go back from sub-buffer to sub-buffer. A damaged sub-buffer does
/// not end this where older ones follow: the head may be damaged as well.
fn by_metadata(meta: &CpuMeta, all: &[SubBuffer]) -> Result<Chain, String> {
    if let Some(number) = repeated(meta, all.len()) {
        return Err(format!(
            "sub-buffer {number} is twice in the table of the order, or its number is impossible"
        ));
    }
    let order: Vec<u32> = meta.order.iter().map(|n| n.cast_unsigned()).collect();
    let (Some(head), Some(commit)) = (meta.head, meta.commit) else {
        return Err("its head or its commit is none of its sub-buffers".into());
    };
    let Some((reader, ring)) = order.split_first() else {
        return Err("it has no sub-buffers".into());
    };
    if commit == *reader {
        return Ok(Chain {
            numbers: vec![*reader],
            consumed: 0,
            ring: 1,
            has_open: true,
            by_time: None,
        });
    }
    let Some(begin) = ring.iter().position(|n| *n == head) else {
        return Err("its head is the sub-buffer of the reader, and its commit is not".into());
    };
    let from_head = || ring.iter().cycle().skip(begin).take(ring.len()).copied();
    let forward: Vec<u32> = from_head().take_while(|n| *n != commit).chain([commit]).collect();
    let mut is_ahead = vec![false; all.len()];
    for number in &forward {
        is_ahead.get_mut(*number as usize).into_iter().for_each(|ahead| *ahead = true);
    }
    let mut time = all.get(*reader as usize).filter(|sub| !sub.is_empty()).map(|sub| sub.first);
    time = time.or_else(|| all.get(head as usize).map(|sub| sub.first));
    let (mut before, mut doubtful) = (Vec::new(), Vec::new());
    for number in ring.iter().rev().cycle().skip(ring.len().saturating_sub(begin)).take(ring.len())
    {
        let Some(sub) = all.get(*number as usize) else { break };
        if is_ahead.get(*number as usize) == Some(&true) || sub.is_empty() && !sub.has_remains {
            break;
        }
        let is_older =
            sub.first != 0 && time.is_some_and(|time| sub.first <= time && sub.last <= time);
        if is_older && sub.verdict == Verdict::Committed && sub.committed > 0 {
            time = Some(sub.first);
            before.append(&mut doubtful);
            before.push(*number);
        } else {
            doubtful.push(*number);
        }
    }
    // The oldest can be damaged too. Only a writer commits something, so its events were recorded,
    // and their loss is told.
    let is_damaged = |number: &u32| {
        let sub = all
            .get(*number as usize)
            .filter(|sub| sub.verdict == Verdict::Invalid && sub.first != 0);
        sub.is_some_and(|sub| time.is_some_and(|time| sub.first <= time))
    };
    before.extend(doubtful.into_iter().take_while(is_damaged));
    before.reverse();
    let consumed = before.len();
    let numbers = before.into_iter().chain([*reader]).chain(forward).collect();
    Ok(Chain { numbers, consumed, ring: consumed.saturating_add(1), has_open: true, by_time: None })
}

fn by_time(why: String, meta: &CpuMeta, all: &[SubBuffer]) -> Chain {
    // An emptied sub-buffer is older than all others, unless its header is damaged.
    let oldest = all.iter().filter(|sub| sub.committed > 0).map(|sub| sub.first).min();
    // The head was not read, so it was not emptied. It was written if the writer is behind it, and
    // not yet at the reader's sub-buffer.
    let reader = meta.order.first().map(|number| number.cast_unsigned());
    let is_written =
        meta.commit.is_some_and(|commit| Some(commit) != reader && Some(commit) != meta.head);
    let head = meta.head.filter(|_| is_written);
    let is_late = |sub: &SubBuffer| {
        oldest.is_some_and(|oldest| sub.first > oldest || head == Some(sub.number))
    };
    let is_cut = |sub: &SubBuffer| sub.has_remains && is_late(sub);
    let mut used: Vec<&SubBuffer> =
        all.iter().filter(|sub| !sub.is_empty() || is_cut(sub)).collect();
    used.sort_by_key(|sub| (sub.first, sub.number));
    let numbers = used.iter().map(|sub| sub.number).collect();
    Chain { numbers, consumed: 0, ring: 0, has_open: false, by_time: Some(why) }
}

/// The newest emptied sub-buffer before all others, where the metadata do not say whether it is of
/// the ring. None where a reader can have emptied it: a reader exchanges its own sub-buffer, which
/// is blank at first, for one that was written.
pub(super) fn oldest_in_doubt<'a>(
    meta: &CpuMeta,
    chain: &Chain,
    all: &'a [SubBuffer],
) -> Option<&'a SubBuffer> {
    chain.by_time.as_ref()?;
    let reader = meta.order.first().and_then(|number| all.get(usize::try_from(*number).ok()?))?;
    let first = chain.numbers.first().and_then(|number| all.get(*number as usize))?.first;
    let before =
        all.iter().filter(|sub| sub.has_remains && sub.committed == 0 && sub.first <= first);
    let before = before.filter(|sub| {
        reader.first == 0 && reader.is_empty() && !chain.numbers.contains(&sub.number)
    });
    before.max_by_key(|sub| sub.first)
}

/// How many sub-buffers have nothing at all, where the metadata do not say whether they were
/// written. The reader's is blank until something is read, so it does not count where the table of
/// the order is whole.
pub(super) fn blank_in_doubt(meta: &CpuMeta, chain: &Chain, all: &[SubBuffer]) -> usize {
    if chain.by_time.is_none() {
        return 0;
    }
    let reader = repeated(meta, all.len())
        .is_none()
        .then(|| meta.order.first().map(|number| number.cast_unsigned()));
    // A chain by time has no sub-buffer that is blank.
    let blank = all.iter().filter(|sub| sub.is_empty() && !sub.has_remains);
    blank.filter(|sub| reader.flatten() != Some(sub.number)).count()
}

/// How the times of a sub-buffer stand to those of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fit {
    /// They follow those of the sub-buffer before it.
    InOrder,
    /// All of them are older than the ring: the memory has an older lap, because newer cache lines
    /// were not written back.
    OlderLap,
    /// They contradict those of its neighbours, which agree with each other: its events must lie
    /// `between` these two times. With `is_first` its first event does, and only later ones do not.
    Wrong { is_first: bool, between: (u64, u64) },
    /// They and those of this sub-buffer contradict each other, and nothing shows which of the two
    /// is wrong.
    Ambiguous(u32),
}

/// Compares the times of all sub-buffers of a chain; `ring`: the position of the first that is not
/// the reader's and was not consumed. Sub-buffers without events that can be read are passed over.
pub(super) fn fits(chain: &[&SubBuffer], ring: usize) -> Vec<Fit> {
    let counted: Vec<(usize, &SubBuffer)> = chain
        .iter()
        .enumerate()
        .filter(|(_, sub)| sub.committed > 0)
        .map(|(at, sub)| (at, *sub))
        .collect();
    let ring = counted.partition_point(|(at, _)| *at < ring);
    let fresh =
        [0, ring].into_iter().map(|from| older_lap(&counted, from)).min().unwrap_or(counted.len());
    let mut fits = vec![Fit::InOrder; chain.len()];
    let mut put =
        |at: usize, fit: Fit| fits.get_mut(at).into_iter().for_each(|place| *place = fit.clone());
    let (current, older) = counted.split_at_checked(fresh).unwrap_or((&counted, &[]));
    older.iter().for_each(|(at, _)| put(*at, Fit::OlderLap));
    for (index, pair) in current.windows(2).enumerate() {
        let [(left_at, left), (right_at, right)] = pair else { continue };
        if left.last <= right.first {
            continue;
        }
        let before = index.checked_sub(1).and_then(|index| current.get(index));
        let behind = current.get(index.saturating_add(2));
        let without_left = before.is_none_or(|(_, before)| before.last <= right.first);
        let without_right = behind.is_none_or(|(_, behind)| left.last <= behind.first);
        match (without_left, without_right) {
            (true, false) => {
                let begin = before.map_or(0, |(_, before)| before.last);
                let is_first = (begin..=right.first).contains(&left.first);
                put(*left_at, Fit::Wrong { is_first, between: (begin, right.first) });
            }
            (false, true) => {
                let end = behind.map_or(u64::MAX, |(_, behind)| behind.first);
                put(*right_at, Fit::Wrong { is_first: false, between: (left.last, end) });
            }
            _ => {
                put(*left_at, Fit::Ambiguous(right.number));
                put(*right_at, Fit::Ambiguous(left.number));
            }
        }
    }
    fits
}

/// The index from which on all sub-buffers are of an older lap, as judged by those from `from` on;
/// the end if there are none. The newest sub-buffers are the ones whose cache lines a reset can
/// lose, so only the end of a chain is looked at. Two sub-buffers that agree with each other must
/// be newer: one alone could itself have a damaged time.
fn older_lap(counted: &[(usize, &SubBuffer)], from: usize) -> usize {
    let is_rising = |subs: &[(usize, &SubBuffer)]| {
        subs.windows(2)
            .all(|pair| matches!(pair, [(_, left), (_, right)] if left.last <= right.first))
    };
    let is_older = |fresh: usize| {
        let witnesses = counted.get(from..fresh).unwrap_or_default();
        let rest = counted.get(fresh..).unwrap_or_default();
        let oldest = witnesses.iter().map(|(_, sub)| sub.first).min();
        let before = |sub: &SubBuffer| oldest.is_some_and(|oldest| sub.last < oldest);
        is_rising(witnesses) && is_rising(rest) && rest.iter().all(|(_, sub)| before(sub))
    };
    let range = from.saturating_add(2)..counted.len();
    // A chain has thousands of sub-buffers: only where the times go back can an older lap begin,
    // and only once.
    let goes_back = |at: &usize| {
        let pair = counted.get(at.saturating_sub(1)..=*at);
        matches!(pair, Some([(_, left), (_, right)]) if left.first > right.last)
    };
    range.rev().find(goes_back).filter(|fresh| is_older(*fresh)).unwrap_or(counted.len())
}
