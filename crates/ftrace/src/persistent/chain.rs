//! Puts the sub-buffers of one CPU in the order of their events.
//!
//! The order is that of the metadata. If the metadata contradict themselves or the sub-buffers, the
//! time stamps decide. Sub-buffers of an older lap at the end are stale, because a reset loses
//! cache lines. If two sub-buffers contradict each other, both are delivered, with a verdict. A
//! wrong time is corrected if a single flipped bit explains it; otherwise the sub-buffer's events
//! are left out and the loss is reported.

use super::layout::CpuMeta;
use super::sub_buffer::SubBuffer;
use lastwords_trace::evidence::Verdict;

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
