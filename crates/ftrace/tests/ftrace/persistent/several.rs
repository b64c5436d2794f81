//! Two words of a region are damaged at once: one of the metadata, and one of a sub-buffer or of
//! another CPU. A fixture here is named after the defect that mutants of real regions showed.

use super::made::{Event, events, has, in_order, read, regions};
use lastwords_ftrace::Ring;
use lastwords_testkit::form::Form;
use lastwords_testkit::persistent::{SIZE, put};
use std::collections::BTreeSet;

/// The sizes of all CPUs are damaged, and that of CPU 0 such that its sub-buffers reach up to the
/// end of the region: CPU 0 must not take the sub-buffers of the others for its own (mutant 2645 of
/// 6.12, 6.18 and 7.2).
#[test]
fn sub_buffers_of_others_are_not_taken_by_a_damaged_size() {
    let mut several = 0;
    for (seed, form, made) in regions(150).filter(|(_, _, made)| made.places.len() > 1) {
        let mut bytes = made.bytes.clone();
        for (cpu, (meta, _)) in made.places.iter().enumerate() {
            let size =
                if cpu == 0 { SIZE * made.places.len().next_power_of_two() } else { 0x27_a000 };
            put(&mut bytes, meta + form.addresses() + 24, size as u64, 4);
        }
        let region = read(&bytes).unwrap();
        assert_eq!(events(&region).len(), made.events.len(), "{form:?} {seed}");
        has(&region, &made.events, format_args!("{form:?} {seed}"));
        assert!(!region.evidence().notes.is_empty(), "{form:?} {seed}");
        several += 1;
    }
    assert!(several > 100, "{several}");
}

/// The first event of a sub-buffer whose committed size became zero is a long one at the
/// sub-buffer's own time, so that its first word is zero: the sub-buffer is not taken for one that
/// was never written (mutants 4498 of 6.18, 5833 and 19453 of 6.12).
#[test]
fn a_first_event_whose_first_word_is_zero_is_an_event() {
    let mut several = 0;
    for (seed, form, mut made) in regions(60) {
        let [.., number, _] = made.ring()[..] else { continue };
        // An event with its length in a word of its own takes the place of all events.
        let begin = made.place(0, number);
        let time = u64::from_le_bytes(made.bytes[begin..begin + 8].try_into().unwrap());
        made.bytes[begin + 16..begin + SIZE].fill(0x5a);
        put(&mut made.bytes, begin + 16, 0, 4);
        put(&mut made.bytes, begin + 20, (SIZE - 20) as u64, 4);
        put(&mut made.bytes, begin + 28, 0, 4);
        let own = BTreeSet::from([(0, time, made.bytes[begin + 24..begin + SIZE].to_vec())]);
        let all: BTreeSet<Event> = &made.without(0, number) | &own;
        for committed in [SIZE - 16, 0] {
            put(&mut made.bytes, begin + 8, committed as u64, 8);
            let region = read(&made.bytes).unwrap();
            has(&region, &all, format_args!("{form:?} {seed} {committed}"));
            assert_eq!(
                region.evidence().has_losses(),
                committed == 0,
                "{form:?} {seed} {committed}"
            );
        }
        several += 1;
    }
    assert!(several > 40, "{several}");
}

/// The head is one of the newest sub-buffers, so that the older ones seem to have been read, and
/// the header of one of these is damaged: the older ones come back, and the damage is told (mutant
/// 13725 of 6.12 and 7.2).
#[test]
fn a_damaged_sub_buffer_before_a_damaged_head_hides_no_older_ones() {
    let mut several = 0;
    for (seed, form, made) in regions(100) {
        let ring = made.ring();
        let [_, .., head, _] = ring[..] else { continue };
        let mut moved = made.clone();
        let base = u64::from_le_bytes(
            made.bytes[made.places[0].0 + form.addresses()..][..8].try_into().unwrap(),
        );
        put(
            &mut moved.bytes,
            made.places[0].0 + form.addresses() + 8,
            base + (head * SIZE) as u64,
            8,
        );
        // The reader's sub-buffer is empty, as in a ring that nobody has read.
        let reader = made.order[0][0];
        moved.clear(0, reader);
        let others = made.without(0, reader);
        for number in ring.iter().take_while(|number| **number != head) {
            for committed in [0xffff_fff0, 0] {
                let mut damaged = moved.clone();
                damaged.fill(0, *number);
                put(&mut damaged.bytes, made.place(0, *number) + 8, committed, 4);
                // The first of all is not told from one that a reader emptied.
                if committed == 0 && *number == ring[0] {
                    continue;
                }
                let region = read(&damaged.bytes).unwrap();
                let context = format!(
                    "{form:?} {seed}: sub-buffer {number} of {ring:?}, size {committed:#x}"
                );
                in_order(&events(&region), &context);
                has(&region, &others, &context);
                assert!(region.evidence().has_losses(), "{context}: nothing is told");
                several += 1;
            }
        }
    }
    assert!(several > 100, "{several}");
}

/// The table of the order is damaged, and the oldest sub-buffer has a committed size of zero: the
/// head shows that no reader emptied it.
#[test]
fn an_empty_header_at_the_head_is_damage_without_a_table_too() {
    let mut several = 0;
    for (seed, form, mut made) in regions(60) {
        let ring = made.ring();
        let [head, _, ..] = ring[..] else { continue };
        made.fill(0, head);
        let reader = made.order[0][0];
        made.clear(0, reader);
        let others = made.without(0, reader);
        let begin = made.place(0, head);
        put(&mut made.bytes, begin + 8, 0, 8);
        put(&mut made.bytes, made.places[0].0 + form.fixed() + 4, 0x1234, 4);
        let region = read(&made.bytes).unwrap();
        has(&region, &others, format_args!("{form:?} {seed}"));
        assert!(region.evidence().has_losses(), "{form:?} {seed}");
        several += 1;
    }
    assert!(several > 40, "{several}");
}

/// A word of the metadata is damaged so that the times alone give the order, and the committed size
/// of the newest or of the oldest sub-buffer became zero: its loss is reported (mutants 1045130,
/// 1053229, 1105131 and 1118985 of 6.12).
#[test]
fn an_empty_header_at_either_end_is_reported_without_metadata() {
    let mut several = 0;
    for (seed, form, mut made) in regions(60) {
        let ring = made.ring();
        let [oldest, .., newest] = ring[..] else { continue };
        let reader = made.order[0][0];
        made.clear(0, reader);
        let words = made.places[0].0 + form.addresses();
        let table = made.places[0].0 + form.fixed() + 4;
        // The first sub-buffer's address, the head, the commit; a number in the table, without
        // which nothing shows the oldest.
        let damages = [
            (words, oldest),
            (words + 8, oldest),
            (words + 16, newest),
            (table, newest),
            (words, newest),
        ];
        for (word, number) in damages {
            let mut bytes = made.bytes.clone();
            put(&mut bytes, word, 0x1234_5677, 4);
            put(&mut bytes, made.place(0, number) + 8, 0, 8);
            let region = read(&bytes).unwrap();
            let context =
                format!("{form:?} {seed}: word {word:#x}, sub-buffer {number} of {ring:?}");
            has(&region, &(&made.without(0, reader) - &made.pages[&(0, number)]), &context);
            assert!(region.evidence().has_losses(), "{context}: nothing is reported");
            several += 1;
        }
    }
    assert!(several > 200, "{several}");
}

/// Two neighbours of the table are exchanged, each by another number: they are read in the order of
/// their times, and the contradiction is reported (mutant 2037827 of 6.12).
#[test]
fn exchanged_neighbours_of_the_table_come_in_the_order_of_their_times() {
    let mut several = 0;
    for (seed, form, made) in regions(60) {
        let words: Vec<i32> = {
            let table = made.places[0].0 + form.fixed();
            let words = made.bytes[table..table + 4 * made.count].chunks(4);
            words.map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect()
        };
        for (index, pair) in made.order[0].windows(2).enumerate() {
            // One on each side must show the order.
            if index < 1 || index + 3 > made.order[0].len() {
                continue;
            }
            let mut bytes = made.bytes.clone();
            for (from, to) in [(pair[0], pair[1]), (pair[1], pair[0])] {
                let at = words.iter().position(|word| *word == from as i32).unwrap();
                put(&mut bytes, made.places[0].0 + form.fixed() + 4 * at, to as u64, 4);
            }
            let region = read(&bytes).unwrap();
            let context = format!("{form:?} {seed} {index}: {:?}", made.order[0]);
            in_order(&events(&region), &context);
            has(&region, &made.events, &context);
            // Where the head is one of the two, the times alone give the order, which a note says.
            let evidence = region.evidence();
            assert!(
                evidence.has_losses() || !evidence.notes.is_empty(),
                "{context}: nothing is reported"
            );
            several += 1;
        }
    }
    assert!(several > 60, "{several}");
}

/// The offset of the metadata of CPU 0 is damaged, and a word of these metadata: no other CPU is
/// taken for CPU 0 (mutants 2021072, 2023230 and 2035121 of 6.18 and 7.2).
#[test]
fn damaged_metadata_are_found_where_kernels_place_them() {
    for (seed, form, made) in regions(60).filter(|(_, form, _)| *form == Form::Common) {
        let meta = made.places[0].0;
        // The first sub-buffer's address, the size of sub-buffers, a number in the table.
        for (word, value) in [(0, u64::MAX), (24, 0x44_8bd3), (form.fixed() + 4, 0x10e)] {
            let mut bytes = made.bytes.clone();
            put(&mut bytes, meta + word, value, if word == 0 { 8 } else { 4 });
            put(&mut bytes, 0x10, meta as u64 + 0x3000, 8);
            let region = read(&bytes).unwrap();
            has(&region, &made.events, format_args!("{seed} {word}"));
            assert!(!region.evidence().notes.is_empty(), "{seed} {word}");
        }
    }
}
