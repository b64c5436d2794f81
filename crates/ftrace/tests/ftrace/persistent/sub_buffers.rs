//! Damaged sub-buffers cost their own events, and no others.

use super::made::{Event, Random, events, has, in_order, make, read, regions, set, sub_buffer};
use lastwords_ftrace::Ring;
use lastwords_testkit::form::Form;
use lastwords_testkit::persistent::{SIZE, put};
use lastwords_trace::evidence::Verdict;
use std::collections::BTreeSet;

/// Whatever bytes of a sub-buffer are damaged: all events of the others come back. Of its own
/// events those come back that its bytes still have, and a loss is told unless its bytes are a
/// sub-buffer as good as any.
#[test]
fn damage_costs_its_own_sub_buffer() {
    for seed in 0..400 {
        let form = if seed % 2 == 0 { Form::PerCpu } else { Form::Common };
        let made = make(form, seed);
        let mut random = Random(seed ^ 0x1234_5678);
        let cpu = random.below(made.places.len() as u64) as usize;
        let number = random.below(made.count as u64) as usize;
        let begin = made.place(cpu, number);
        let mut bytes = made.bytes.clone();
        // The header, or anything; a byte, or a line of the cache.
        let at = begin
            + if random.below(2) == 0 { random.below(16) } else { random.below(SIZE as u64 / 2) }
                as usize;
        let end = if random.below(3) == 0 { at / 64 * 64 + 64 } else { at + 1 };
        for byte in &mut bytes[at..end] {
            *byte = random.below(256) as u8;
        }
        let Ok(region) = read(&bytes) else { panic!("{form:?} {seed}: the metadata are whole") };
        let found = set(&region);
        let own = made.pages.get(&(cpu, number)).cloned().unwrap_or_default();
        let others: BTreeSet<Event> = made.events.difference(&own).cloned().collect();
        let lost = others.difference(&found).count();
        assert_eq!(lost, 0, "{form:?} {seed}: damage at {at:#x} costs events of others");
        let (readable, is_whole) = naive(&bytes[begin..begin + SIZE], cpu);
        let is_told = region.evidence().has_losses();
        // Where it is told that the times are damaged, others may stand in their place.
        let has = |event: &Event| {
            readable.contains(event) || is_told && readable.iter().any(|own| own.2 == event.2)
        };
        let invented: Vec<&Event> =
            found.iter().filter(|event| !others.contains(event) && !has(event)).collect();
        assert!(invented.is_empty(), "{form:?} {seed}: no bytes have the events {invented:?}");
        let is_chained = made.order[cpu].contains(&number);
        assert!(
            is_told || is_whole || !is_chained,
            "{form:?} {seed}: a sub-buffer is damaged, and nothing is told"
        );
        let is_kept = readable.iter().all(|event| found.contains(event));
        assert!(
            is_told || is_kept || !is_chained,
            "{form:?} {seed}: events are missing, and nothing is told"
        );
    }
}

/// The events of a sub-buffer as its bytes have them, decoded by this test alone, and whether they
/// end where the header says.
fn naive(page: &[u8], cpu: usize) -> (BTreeSet<Event>, bool) {
    let word = |at: usize| {
        page.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
    };
    let (mut time, commit) = (u64::from(word(0)) | u64::from(word(4)) << 32, word(8) & 0x3fff_ffff);
    let mut events = BTreeSet::new();
    if u64::from(word(12)) << 32 != 0 && word(12) != u32::MAX || commit as usize > SIZE - 16 {
        return (events, false);
    }
    let end = 16 + commit as usize;
    let mut at = 16;
    while at < end {
        let (kind, delta) = (word(at) & 31, u64::from(word(at) >> 5));
        let before = time;
        let len = match kind {
            0 => word(at + 4) as usize + 4,
            29 if delta == 0 => return (events, true),
            29 => word(at + 4) as usize + 4,
            30 | 31 => 8,
            words => words as usize * 4 + 4,
        };
        match kind {
            30 => time = time.wrapping_add(delta | u64::from(word(at + 4)) << 27),
            31 => time = time >> 59 << 59 | delta | u64::from(word(at + 4)) << 27,
            29 => {}
            _ => time = time.wrapping_add(delta),
        }
        if len < 8 || at + len > end || time < before {
            return (events, false);
        }
        if kind < 29 {
            let begin = if kind == 0 { at + 8 } else { at + 4 };
            // An id is neither 0 nor the highest number, and a process ID is at most 4 Mi.
            if begin + 8 > at + len
                || [0, 0xffff].contains(&(word(begin) & 0xffff))
                || word(begin + 4) > 1 << 22
            {
                return (events, false);
            }
            events.insert((cpu, time, page[begin..at + len].to_vec()));
        }
        at += len.next_multiple_of(4);
    }
    (events, true)
}

/// The committed size of a sub-buffer is damaged that is full and has newer ones behind it: all its
/// events come back, and a loss is told. If its events do not end at its end, none of them is
/// taken.
#[test]
fn a_full_sub_buffer_needs_no_committed_size() {
    let mut several = 0;
    for (seed, form, mut made) in regions(60) {
        let [.., number, _] = made.ring()[..] else { continue };
        let is_full = seed % 4 > 0;
        if is_full {
            made.fill(0, number);
        }
        let commit = made.place(0, number) + 8;
        put(&mut made.bytes, commit, if seed % 2 == 0 { 0x7777_7777 } else { 0 }, 8);
        let region = read(&made.bytes).unwrap();
        let expected = if is_full { made.events.clone() } else { made.without(0, number) };
        has(&region, &expected, format_args!("{form:?} {seed}"));
        assert!(region.evidence().has_losses(), "{form:?} {seed}");
        several += usize::from(is_full);
    }
    assert!(several > 40, "{several}");
}

/// A bit of the time at the beginning of a sub-buffer between others is flipped: where only this
/// flip explains the damage, all events come back with their own times. Else none comes back with
/// another time than its own.
#[test]
fn a_flipped_bit_of_a_time_is_flipped_back() {
    let (mut mended, mut all) = (0, 0);
    for seed in 0..200 {
        let mut made = make(Form::PerCpu, seed);
        let mut random = Random(seed ^ 0x42);
        let order = &made.order[0];
        if order.len() < 5 {
            continue;
        }
        let number = order[2 + random.below(order.len() as u64 - 4) as usize];
        let begin = made.place(0, number);
        let bit = 20 + random.below(40) as usize;
        made.bytes[begin + bit / 8] ^= 1 << (bit % 8);
        let region = read(&made.bytes).unwrap();
        let found = events(&region);
        in_order(&found, format_args!("{seed}"));
        let found: BTreeSet<Event> = found.into_iter().collect();
        assert!(found.is_subset(&made.events), "{seed}: an event has a time that it did not have");
        assert!(region.evidence().has_losses(), "{seed}: a damaged time is told");
        all += 1;
        mended += u32::from(found == made.events);
    }
    assert!(all > 50 && mended * 10 >= all * 9, "{mended} of {all}");
}

/// The last sub-buffer that was written, with what its memory had a lap before: its times are older
/// than all others.
#[test]
fn an_older_lap_at_the_end_is_stale() {
    let (mut stale, mut kept) = (0, 0);
    for (seed, form, mut made) in regions(60) {
        let mut random = Random(seed ^ 0x77);
        let cpu = random.below(made.places.len() as u64) as usize;
        let number = *made.order[cpu].last().unwrap();
        let begin = made.place(cpu, number);
        let mut older = BTreeSet::new();
        let page = sub_buffer(&mut random, cpu, &mut 1000, &mut older);
        made.bytes[begin..begin + SIZE].copy_from_slice(&page);
        let own = made.pages.remove(&(cpu, number)).unwrap();
        let others: BTreeSet<Event> = made.events.difference(&own).cloned().collect();
        let region = read(&made.bytes).unwrap();
        let found = set(&region);
        let evidence = region.evidence();
        let verdicts =
            |verdict| evidence.sub_buffers.iter().filter(|sub| sub.verdict == verdict).count();
        assert!(evidence.has_losses(), "{form:?} {seed}");
        if made.order[cpu].len() > 2 {
            assert!(found == others, "{form:?} {seed}");
            assert_eq!(verdicts(Verdict::Stale), 1, "{form:?} {seed}: {evidence:?}");
            stale += 1;
        } else {
            // Either of two can be the one that is wrong.
            assert!(found == others.union(&older).cloned().collect(), "{form:?} {seed}");
            assert_eq!(verdicts(Verdict::Invalid), 2, "{form:?} {seed}: {evidence:?}");
            kept += 1;
        }
    }
    assert!(stale > 20 && kept > 5, "{stale} and {kept}");
}

/// The last cache lines of the sub-buffer that was being written did not reach memory: no event
/// that reaches into them is delivered.
#[test]
fn lost_cache_lines_cost_what_reaches_into_them() {
    for seed in 0..100 {
        let mut made = make(Form::PerCpu, seed);
        let number = *made.order[0].last().unwrap();
        let begin = made.place(0, number);
        let lines = made.end(0, number).div_ceil(64);
        let first = 1 + Random(seed).below(lines as u64) as usize;
        made.bytes[begin + first * 64..begin + (lines * 64).max(first * 64)].fill(0);
        let (readable, is_whole) = naive(&made.bytes[begin..begin + SIZE], 0);
        let region = read(&made.bytes).unwrap();
        let found = set(&region);
        if is_whole && readable == made.pages[&(0, number)] {
            assert!(found == made.events && !region.evidence().has_losses(), "{seed}");
        } else if !is_whole {
            assert!(
                found.is_subset(&made.events),
                "{seed}: an event has bytes of a line that was lost"
            );
            assert!(region.evidence().has_losses(), "{seed}");
        }
    }
}

/// The newest cache lines have what another sub-buffer has there: older events can be read in them
/// as if they were new. None of them is delivered where the damage is seen. A sub-buffer whose
/// first cache line is gone has no events, and the loss is told.
#[test]
fn older_cache_lines_are_not_taken_for_new() {
    let mut seen = 0;
    for seed in 0..300 {
        let mut made = make(Form::Common, seed);
        let (newest, older) = (*made.order[0].last().unwrap(), made.order[0][0]);
        let begin = made.place(0, newest);
        let end = made.end(0, newest).next_multiple_of(64);
        if seed % 4 == 0 {
            made.bytes[begin..begin + 64].fill(0);
        } else {
            let first = end.saturating_sub(256).max(64).min(end);
            let from = made.place(0, older);
            made.bytes.copy_within(from + first..from + end, begin + first);
            made.bytes[begin + end..begin + SIZE].fill(0xa5);
        }
        let region = read(&made.bytes).unwrap();
        let (found, is_told) = (set(&region), region.evidence().has_losses());
        assert!(found.is_subset(&made.events) || !is_told, "{seed}: an event is invented");
        assert!(is_told || seed % 4 > 0, "{seed}: a header is lost, and nothing is told");
        seen += usize::from(is_told);
    }
    assert!(seen > 292, "{seen}");
}
