//! Slices of made traces ([`lastwords_testkit::scheduling`]) are compared with what ran.

use crate::collect::collect;
use crate::collected::{Collected, Options};
use crate::slices::{NO_BEGIN, NO_END, Of, UNSURE};
use lastwords_ctf::read::Trace;
use lastwords_render::select::Selection;
use lastwords_testkit::ctf::{Stream, write_folder};
use lastwords_testkit::put::{Order, Packed};
use lastwords_testkit::random::Random;
use lastwords_testkit::scheduling::{EVENTS, Key, ended, metadata, write};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

pub(crate) fn collected(folders: &[&Path]) -> Collected {
    let open = |folder: &&Path| lastwords_ctf::read::open(folder, &Arc::default()).unwrap().traces;
    collected_of(&folders.iter().flat_map(open).collect::<Vec<_>>())
}

pub(crate) fn collected_of(traces: &[Trace]) -> Collected {
    let options = Options {
        limit: 1 << 20,
        open_spans: Vec::new(),
        inside: std::collections::HashMap::new(),
        tasks: Vec::new(),
    };
    collect(traces, &Selection::default(), &options, &|_| {}, &mut |_| {}).unwrap().0
}

/// The name, begin, end and flags of a slice.
pub(crate) type Row = (String, u64, u64, u8);

/// Returns all slices. No two slices of a track overlap.
pub(crate) fn slices(collected: &Collected) -> Vec<Row> {
    let names = &collected.names;
    let tid = |thread: u32| names.threads[thread as usize].tid.unwrap();
    let one = |slice: &crate::slices::Slice| {
        let track = collected.slices.tracks[slice.track as usize];
        let label = &names.labels[slice.label as usize];
        let name = match track.of {
            Of::Running => {
                format!("running {} {}", names.cpus[track.owner as usize].cpu, tid(slice.thread))
            }
            Of::Interrupts => format!("irq {}", names.cpus[track.owner as usize].cpu),
            Of::Thread | Of::Spans => format!("{} {label}", tid(track.owner)),
        };
        (name, slice.begin as u64, slice.end as u64, slice.flags)
    };
    let mut rows: Vec<_> =
        collected.slices.all.iter().map(|slice| (slice.track, slice.begin, slice.end)).collect();
    rows.sort_unstable();
    assert!(
        rows.windows(2).all(|two| two[0].0 != two[1].0 || two[0].2 <= two[1].1),
        "slices overlap: {rows:?}"
    );
    collected.slices.all.iter().map(one).collect()
}

/// Fails if a slice says what is wrong. Returns how many slices have a begin and an end.
pub(crate) fn count_true(collected: &Collected, lasted: &BTreeMap<Key, u64>, seed: u64) -> usize {
    let slices = slices(collected);
    slices.iter().for_each(|slice| assert_true(lasted, slice, seed));
    slices.iter().filter(|slice| slice.3 == 0).count()
}

/// The slice says nothing that is wrong.
fn assert_true(lasted: &BTreeMap<Key, u64>, (name, begin, end, flags): &Row, seed: u64) {
    let what = format!("seed {seed}: {name} [{begin}, {end}] {flags}");
    let key = (name.clone(), *begin);
    let around = lasted.range(..=key.clone()).next_back().filter(|(own, _)| own.0 == *name);
    match *flags {
        0 => assert_eq!(lasted.get(&key), Some(end), "{what}"),
        NO_END => assert!(lasted.get(&key).is_some_and(|until| end <= until), "{what}"),
        NO_BEGIN => {
            assert!(begin == end || around.is_some_and(|(_, until)| end == until), "{what}")
        }
        flags => {
            assert!(flags & UNSURE != 0 || around.is_some_and(|(_, until)| end <= until), "{what}")
        }
    }
}

#[test]
fn what_ran_is_drawn_and_what_is_not_known_says_so() {
    let (mut flags_seen, mut certain, mut expected) = (BTreeSet::new(), 0, 0);
    for seed in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let (lasted, missing) = write(folder.path(), &mut Random(seed), !seed.is_multiple_of(3));
        let slices = slices(&collected(&[folder.path()]));
        flags_seen.extend(slices.iter().map(|slice| slice.3));
        slices.iter().for_each(|slice| assert_true(&lasted, slice, seed));
        let shown: BTreeSet<_> =
            slices.iter().filter(|slice| slice.3 == 0).map(|slice| (&slice.0, slice.1)).collect();
        for ((name, begin), end, is_whole) in ended(&lasted, &missing) {
            certain += usize::from(is_whole);
            expected += 1;
            assert!(
                !is_whole || shown.contains(&(name, *begin)),
                "seed {seed}: {name} [{begin}, {end}] is not shown"
            );
        }
    }
    assert!(
        flags_seen.len() >= 5 && certain > expected / 2,
        "{flags_seen:?}; {certain} of {expected}"
    );
}

/// Applications may name their events as they like.
#[test]
fn events_of_applications_are_no_scheduling() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &mut Random(0), false);
    let metadata = metadata("ust", EVENTS);
    std::fs::write(folder.path().join("metadata"), metadata).unwrap();
    assert!(slices(&collected(&[folder.path()])).is_empty());
}

/// Two traces of one kernel are drawn once, and the page says so.
#[test]
fn traces_with_the_same_events_are_drawn_once() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for folder in &folders {
        write(folder.path(), &mut Random(3), false);
    }
    let alone = collected(&[folders[0].path()]);
    let both = collected(&[folders[0].path(), folders[1].path()]);
    let sorted = |collected: &Collected| {
        let mut slices = slices(collected);
        slices.retain(|slice| slice.3 == 0);
        slices.sort();
        slices
    };
    assert_eq!((sorted(&both), alone.remarks()), (sorted(&alone), Vec::new()));
    assert!(both.remarks()[0].contains("another trace has the same CPU"), "{:?}", both.remarks());
}

/// Gaps that are too many are merged: all lost events are in one of them.
#[test]
fn gaps_that_are_too_many_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &mut Random(0), false);
    let mut stream = Stream::default();
    for time in 0..40_000 {
        stream
            .put(time * 10, &Packed::new(Order::Little).u16(3).u64(time * 10).u32(1).u32(0).done());
        stream.discard(time * 10);
        stream.close(3);
    }
    std::fs::write(folder.path().join("s3"), &stream.file).unwrap();
    let collected = collected(&[folder.path()]);
    let gaps = &collected.gaps;
    let sum = |of: fn(&crate::gaps::Gap) -> u64| gaps.iter().map(of).sum::<u64>();
    assert_eq!((sum(|gap| gap.events), sum(|gap| gap.number)), (40_000, 40_000));
    assert!(
        gaps.len() <= 1 << 14 && gaps.iter().map(|gap| gap.end).max() == Some(Some(399_990)),
        "{}",
        gaps.len()
    );
    assert!(
        collected.remarks()[0].starts_with("40000 gaps drawn as "),
        "{:?}",
        collected.remarks()
    );
}

/// The thread of an event that names none is the one that a switch told, unless events are missing
/// since.
#[test]
fn an_event_behind_a_loss_has_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    let events = EVENTS.replace("event.context := struct { i32 tid; };", "");
    let mut stream = Stream::default();
    let event = |id: u16, time: u64| Packed::new(Order::Little).u16(id).u64(time);
    let switch = |stream: &mut Stream, time: u64, next: u32| {
        stream.put(time, &event(0, time).u32(1).u32(next).done())
    };
    let call = |stream: &mut Stream, time: u64| stream.put(time, &event(3, time).u32(0).done());
    switch(&mut stream, 10, 11);
    call(&mut stream, 20);
    stream.close(0);
    stream.lose();
    call(&mut stream, 30);
    switch(&mut stream, 40, 12);
    call(&mut stream, 50);
    stream.close(0);
    switch(&mut stream, 60, 13);
    stream.discard(65);
    call(&mut stream, 70);
    stream.close(0);
    call(&mut stream, 80);
    write_folder(folder.path(), &metadata("kernel", &events), &mut [stream]);
    let collected = collected(&[folder.path()]);
    let tid = |thread: &u32| collected.names.threads[*thread as usize].tid;
    let calls = collected
        .columns
        .times
        .iter()
        .zip(&collected.columns.threads)
        .filter(|(time, _)| [20, 30, 50, 70, 80].contains(*time));
    assert_eq!(
        calls.map(|(_, thread)| tid(thread)).collect::<Vec<_>>(),
        [Some(11), None, Some(12), None, None]
    );
}
