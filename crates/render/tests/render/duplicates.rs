//! Tests that an event in several channels is shown once, and that an event without a copy is never
//! omitted.
#![allow(missing_docs, reason = "a test")]

use crate::support::{HEADER, Memory, channel, class, committed, read, signed, text_of};
use lastwords_ctf::Version;
use lastwords_render::select::Selection;
use lastwords_render::text::Style;
use lastwords_trace::schema::Field;

const MAIN: usize = 0;
const ERRORS: usize = 1;
const MORE: usize = 2;
/// An event that the channels share, and one that only `main` has.
const FAILED: u16 = 0;
const OTHER: u16 = 1;

/// Makes three channels, each with streams of two CPUs. The number of a stream is `2 * channel +
/// cpu`.
fn memory(contexts: &[Field]) -> Memory {
    let one = |id: u16, name: &str| class(id.into(), name, vec![signed("n", 4)]);
    let own = |id: usize, name: &str| {
        let mut events = vec![one(FAILED, "app:failed")];
        events.extend((id == MAIN).then(|| one(OTHER, "app:other")));
        channel(id as u32, name, contexts.to_vec(), events)
    };
    let channels = vec![own(MAIN, "main"), own(ERRORS, "errors"), own(MORE, "more")];
    Memory::new(0, channels, &[(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)])
}

/// Events in the order of recording: channel, CPU, event, thread, number.
type Recorded = (usize, usize, u16, i32, i32);

/// Returns the events that are shown: the number of the line, and the number in the line.
fn shown(contexts: &[Field], recorded: &[Recorded], channels: &[&str]) -> Vec<(usize, i32)> {
    let mut memory = memory(contexts);
    for (at, stream) in memory.packets.iter_mut().enumerate() {
        let mut bytes = vec![0; HEADER];
        let own = recorded.iter().enumerate().filter(|(_, event)| 2 * event.0 + event.1 == at);
        for (clock, (_, _, id, thread, number)) in own {
            bytes.extend(((clock as u32) << 5 | u32::from(*id)).to_le_bytes());
            if !contexts.is_empty() {
                bytes.extend(thread.to_le_bytes());
            }
            bytes.extend(number.to_le_bytes());
        }
        let end = recorded.len() as u64;
        stream.push((committed(0, 0, end, bytes.len()), bytes));
    }
    let channels = channels.iter().map(|name| (*name).to_owned()).collect();
    let selection = Selection { deduplicate: true, channels, ..Selection::default() };
    let text = text_of(&read(&memory, Version::V2), Style::Ftrace, &selection);
    let line = |line: &str| {
        let (before, number) = line.split_once("n=").expect("a number");
        assert!(before.contains("app:"), "{line}");
        number.trim().parse().expect("a number")
    };
    text.lines().map(line).enumerate().collect()
}

fn numbers(recorded: &[Recorded]) -> Vec<i32> {
    shown(&[signed("vtid", 4)], recorded, &[]).into_iter().map(|(_, number)| number).collect()
}

#[test]
fn a_copy_is_omitted() {
    let both =
        |thread, number| [(MAIN, 0, FAILED, thread, number), (ERRORS, 0, FAILED, thread, number)];
    assert_eq!(numbers(&[both(7, 1), both(7, 2)].concat()), [1, 2]);
    assert_eq!(
        numbers(&[both(7, 1), both(7, 1), both(7, 1)].concat()),
        [1, 1, 1],
        "the same, word for word"
    );
    // The copy is in a third channel, on another CPU, or next to an event of another thread.
    assert_eq!(numbers(&[&both(7, 1)[..], &[(MORE, 1, FAILED, 7, 1)]].concat()), [1]);
    let beside = [
        (MAIN, 0, FAILED, 7, 1),
        (MAIN, 1, FAILED, 8, 1),
        (ERRORS, 1, FAILED, 8, 1),
        (ERRORS, 1, FAILED, 7, 1),
    ];
    assert_eq!(numbers(&beside), [1, 1]);
}

#[test]
fn an_event_that_is_not_quite_a_copy_is_shown() {
    let (main, errors) = ((MAIN, 0, FAILED, 7, 1), (ERRORS, 0, FAILED, 7, 1));
    assert_eq!(numbers(&[main, errors, main]), [1, 1], "killed between the two");
    assert_eq!(numbers(&[errors, errors, main, errors]), [1, 1, 1], "evicted from main");
    assert_eq!(numbers(&[errors, main]), [1, 1], "evicted from main, then killed between the two");
    assert_eq!(numbers(&[main, main, errors]), [1, 1], "a copy that was lost");
    assert_eq!(
        numbers(&[main, (MAIN, 0, OTHER, 7, 3), errors]),
        [1, 3, 1],
        "the thread recorded something else"
    );
    assert_eq!(numbers(&[main, (ERRORS, 0, FAILED, 8, 1)]), [1, 1], "another thread");
    assert_eq!(numbers(&[main, (ERRORS, 0, FAILED, 7, 2)]), [1, 2], "another payload");
    assert_eq!(shown(&[], &[main, errors], &[]).len(), 2, "nobody knows whose they are");
}

#[test]
fn a_single_channel_shows_its_own_events() {
    let recorded = [(MAIN, 0, FAILED, 7, 1), (ERRORS, 0, FAILED, 7, 1)];
    for channel in ["main", "errors"] {
        assert_eq!(shown(&[signed("vtid", 4)], &recorded, &[channel]), [(0, 1)], "{channel}");
    }
}

#[test]
fn threads_without_copies_do_not_affect_others() {
    let mut recorded: Vec<Recorded> =
        (0..1000).map(|thread| (MAIN, 0, FAILED, thread, 5)).collect();
    recorded.push((ERRORS, 0, FAILED, 999, 5));
    recorded.push((ERRORS, 0, FAILED, 0, 5));
    // The copy of the last event is recognized. The first of a thousand events is no longer
    // remembered.
    assert_eq!(numbers(&recorded).len(), 1001);
}
