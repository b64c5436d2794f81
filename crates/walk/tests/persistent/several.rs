//! Two words of a region are damaged at once: one of the metadata, and one of a sub-buffer or of another CPU. A fixture here is named after the
//! defect that mutants of real regions showed.

use crate::made::{Event, Made, events, make, read};
use lastwords_testkit::persistent::{Form, SIZE, put};
use lastwords_trace::ftrace::Ring;
use std::collections::BTreeSet;

fn regions(count: u64) -> impl Iterator<Item = (u64, Form, Made)> {
    (0..count).flat_map(|seed| [Form::PerCpu, Form::Common].map(|form| (seed, form, make(form, seed))))
}

/// Offset of a sub-buffer of CPU 0.
fn place(made: &Made, number: usize) -> usize {
    made.places[0].1 + number * SIZE
}

/// The first event of a sub-buffer whose committed size became zero is a long one at the sub-buffer's own time, so that its first word is zero:
/// the sub-buffer is not taken for one that was never written (mutants 4498 of 6.18, 5833 and 19453 of 6.12).
#[test]
fn a_first_event_whose_first_word_is_zero_is_an_event() {
    let mut several = 0;
    for (seed, form, mut made) in regions(60) {
        let Some(number) = made.order[0].get(1..).filter(|ring| ring.len() > 1).map(|ring| ring[ring.len() - 2]) else {
            continue;
        };
        // An event with its length in a word of its own takes the place of all events.
        let begin = place(&made, number);
        let time = u64::from_le_bytes(made.bytes[begin..begin + 8].try_into().unwrap());
        made.bytes[begin + 16..begin + SIZE].fill(0x5a);
        put(&mut made.bytes, begin + 16, 0, 4);
        put(&mut made.bytes, begin + 20, (SIZE - 20) as u64, 4);
        let own = BTreeSet::from([(0, time, vec![0x5a; SIZE - 24])]);
        let all: BTreeSet<Event> = &(&made.events - &made.pages[&(0, number)]) | &own;
        for committed in [SIZE - 16, 0] {
            put(&mut made.bytes, begin + 8, committed as u64, 8);
            let region = read(&made.bytes).unwrap();
            assert!(events(&region).into_iter().collect::<BTreeSet<_>>() == all, "{form:?} {seed} {committed}");
            assert_eq!(region.evidence().has_losses(), committed == 0, "{form:?} {seed} {committed}");
        }
        several += 1;
    }
    assert!(several > 40, "{several}");
}
