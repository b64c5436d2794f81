//! Channels that are created while a session records, by this process and by others.
#![allow(missing_docs, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common;
use crate::common::{
    StopAtEnd, areas, child_dir, details, every, fork, kill_self, plain, spawn, start, started,
    wait, wait_for, wait_for_session, with_main,
};
use lastwords::rules::RuleSpec;
use lastwords::snapshot::Rings;
use lastwords::{Error, Memory, Reservation, Scope, Session, event};
use lastwords_control::Handle;
use lastwords_testkit::naive;
use lastwords_testkit::random::{Random, seed};

const RESERVATIONS: [Reservation; 3] =
    [Reservation::Rseq, Reservation::Lockless, Reservation::Locked];
const NAMES: [&str; 3] = ["a", "b", "c"];

pub(crate) fn emit(name: usize, number: u64) {
    match name {
        0 => event!(made, "a", number = number),
        1 => event!(made, "b", number = number),
        _ => event!(made, "c", number = number),
    }
}

/// Returns how often each channel has each number, as a reader finds them that shares no code with
/// the recorder.
pub(crate) fn found(folder: &Path) -> BTreeMap<(u64, u32), u64> {
    let mut found = BTreeMap::new();
    count(&mut found, &common::read(folder), naive::Session::events);
    found
}

/// Adds the numbers of a session's events, by their channels.
fn count(
    seen: &mut BTreeMap<(u64, u32), u64>,
    session: &naive::Session,
    events: fn(&naive::Session) -> Vec<(u32, lastwords_testkit::ring::Event)>,
) {
    let channel: BTreeMap<u32, u32> =
        session.streams.iter().map(|stream| (stream.index, stream.channel)).collect();
    for (stream, event) in events(session) {
        let number = u64::from_ne_bytes(*event.body.first_chunk().expect("a number"));
        *seen.entry((number, channel[&stream])).or_insert(0) += 1;
    }
}

/// Returns the number of channels that have the event, each once.
pub(crate) fn channels_of(found: &BTreeMap<(u64, u32), u64>, number: u64) -> Vec<u32> {
    let of: Vec<_> = found.range((number, 0)..=(number, u32::MAX)).collect();
    assert!(of.iter().all(|(_, count)| **count == 1), "number {number}: {of:?}");
    of.iter().map(|((_, channel), _)| *channel).collect()
}

/// Offset of an entry of the table of channels (docs/ABI.md, section 3).
fn entry_at(folder: &Path, channel: u32) -> u64 {
    areas(folder).get::<4>(128 + 64) + 128 * u64::from(channel)
}

/// Returns the events that processes lost because they had not mapped the channel.
fn unattached(folder: &Path, channel: u32) -> u64 {
    areas(folder).get::<8>(entry_at(folder, channel) + 48)
}

/// Sends the events of a name to a channel, in place of all others or besides them.
pub(crate) fn send(name: usize, to: u32, others: &[u32], is_alone: bool, rule: impl Fn(&RuleSpec)) {
    let pattern = format!("made:{}", NAMES[name]);
    rule(&RuleSpec::enable(&pattern).in_channel(to));
    for other in others.iter().filter(|other| is_alone && **other != to) {
        rule(&RuleSpec::disable(&pattern).in_channel(*other));
    }
}

/// Checks that an event is in the channels of its name in the phases in which it was recorded:
/// `(number, name, phase before, phase after)`.
fn check_channels(
    found: &BTreeMap<(u64, u32), u64>,
    expected: &[[Vec<u32>; 3]],
    &(number, name, before, after): &(u64, usize, u64, u64),
    what: &str,
) {
    let channels = channels_of(found, number);
    let fits =
        (before / 2..=after.div_ceil(2)).any(|phase| channels == expected[phase as usize][name]);
    // In the midst of a change, an event may be in the new channel and in those that are
    // about to lose it.
    let is_between = !fits && before != after || before % 2 == 1;
    let some = |phase: u64| {
        expected[phase as usize][name].iter().any(|channel| channels.contains(channel))
    };
    assert!(
        fits || (is_between && (some(before / 2) || some(after.div_ceil(2)))),
        "{what}: {number} {before} {after} {channels:?}"
    );
}

/// Threads record numbered events while channels are created and events are sent there. In each
/// phase between two changes it is known which channels an event goes to; events that were recorded
/// during a change go where the rules before or after it say.
#[test]
fn events_go_where_the_rules_said() {
    alone!();
    let seed = seed();
    for (round, reservation) in RESERVATIONS.into_iter().enumerate() {
        let mut random = Random(seed.wrapping_add(round as u64));
        let dir = tempfile::tempdir().expect("a folder");
        let main = plain("main").sub_buffers(8, 256 << 10);
        let (session, path) = start(
            Session::builder("made")
                .dir(dir.path())
                .channel(main)
                .reservation(reservation)
                .snapshot(random.below(2) == 1),
        );
        let (phase, next, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        // The channels of each name in each phase; phases of odd numbers are changes.
        let mut expected: Vec<[Vec<u32>; 3]> = vec![[vec![0], vec![0], vec![0]]];
        let mut recorded = Vec::new();
        std::thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            let record = || {
                let mut own = Vec::new();
                while !stop.load(Ordering::Relaxed) && own.len() < 6000 {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let name = (number % 3) as usize;
                    let before = phase.load(Ordering::SeqCst);
                    emit(name, number);
                    own.push((number, name, before, phase.load(Ordering::SeqCst)));
                    if number.is_multiple_of(16) {
                        std::thread::yield_now();
                    }
                }
                own
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(record)).collect();
            let mut ids = vec![0];
            for channel in 0..4 {
                let until = next.load(Ordering::Relaxed) + random.below(800);
                while next.load(Ordering::Relaxed) < until
                    && !threads.iter().all(|thread| thread.is_finished())
                {
                    std::thread::yield_now();
                }
                let mut now = expected[channel].clone();
                phase.fetch_add(1, Ordering::SeqCst);
                let id =
                    session.create_channel(&plain(&format!("k{channel}")), None).expect("created");
                let (name, is_alone) = (random.below(3) as usize, random.below(2) == 1);
                send(name, id, &ids, is_alone, |rule| session.rule(rule).expect("a rule"));
                if is_alone {
                    now[name].clear();
                }
                now[name].push(id);
                phase.fetch_add(1, Ordering::SeqCst);
                ids.push(id);
                expected.push(now);
            }
            recorded =
                threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect();
        });
        let found = found(&path);
        let what = format!("seed {seed}, {reservation:?}");
        assert!(
            (1..=4).all(|channel| unattached(&path, channel) == 0),
            "{what}: nothing was sent to an unmapped channel"
        );
        for event in &recorded {
            check_channels(&found, &expected, event, &what);
        }
        assert_eq!(
            found.keys().map(|key| key.0).max(),
            recorded.iter().map(|event| event.0).max(),
            "{what}"
        );
        session.remove();
    }
}

fn start_users(dir: &Path) -> Session {
    Session::builder("users")
        .dir(dir)
        .channel(plain("main").sub_buffers(8, 256 << 10))
        .scope(Scope::User)
        .start()
        .expect("it starts")
}

#[test]
fn child_records_until_it_is_killed() {
    let Some(dir) = child_dir() else { return };
    let _session = start_users(&dir);
    for number in 0..40_000 {
        emit(0, number);
        if number % 64 == 0 {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
    kill_self();
}

/// Another process creates channels and sends events there; the recorder is killed at a random
/// moment.
#[test]
fn a_killed_recorder_leaves_each_event_in_a_channel() {
    alone!();
    let mut random = Random(seed());
    for _ in 0..4 {
        let dir = tempfile::tempdir().expect("a folder");
        let mut child = spawn("child_records_until_it_is_killed", dir.path(), &[]);
        let path = wait_for_session(dir.path());
        let session = Handle::open(&path).expect("opened");
        wait_for("an event", || session.produced() > 0);
        let id = session.create_channel(&plain("late"), None).expect("created");
        std::thread::sleep(std::time::Duration::from_micros(random.below(3000)));
        send(0, id, &[0], true, |rule| session.rule(rule).expect("a rule"));
        std::thread::sleep(std::time::Duration::from_micros(random.below(30_000)));
        child.kill().expect("killed");
        child.wait().expect("it ends");
        let found = found(&path);
        let last = found.keys().map(|key| key.0).max().expect("events");
        let missing =
            (0..=last).filter(|number| channels_of(&found, *number).is_empty()).count() as u64;
        assert!(
            missing <= unattached(&path, id),
            "{missing} of {last} are missing, {} are told",
            unattached(&path, id)
        );
        drop(session);
        lastwords_control::destroy(&path).expect("removed");
    }
}

/// A child that was forked before has no thread: it counts the events of the channel, until its own
/// thread has mapped it.
#[test]
fn forked_children_record_in_the_channel_or_count() {
    alone!(in dir);
    let (session, path) = start(with_main("forked", dir.path()));
    emit(0, 0);
    let (mut go, mut tell) = std::io::pipe().expect("a pipe");
    let fork = |numbers: std::ops::Range<u64>, wait: Option<&mut std::io::PipeReader>| {
        fork(|| {
            // SAFETY: the call involves no memory. It ends the child if its parent fails.
            unsafe { libc::alarm(20) };
            let mut byte = [0];
            wait.into_iter().for_each(|go| std::io::Read::read_exact(go, &mut byte).expect("told"));
            numbers.for_each(|number| emit(0, number));
            kill_self()
        })
    };
    let early = fork(1000..3000, Some(&mut go));
    let id = session.create_channel(&plain("late"), None).expect("created");
    send(0, id, &[0], true, |rule| session.rule(rule).expect("a rule"));
    std::io::Write::write_all(&mut tell, &[1]).expect("told");
    let late = fork(100..200, None);
    [early, late].into_iter().for_each(|pid| _ = wait(pid));
    let found = found(&path);
    assert!(
        (100..200).all(|number| channels_of(&found, number) == [id]),
        "the child has its parent's channel"
    );
    let of_early: Vec<_> = (1000..3000).map(|number| channels_of(&found, number)).collect();
    assert!(
        of_early.iter().all(|channels| channels.is_empty() || *channels == [id]),
        "the child follows the rules at once"
    );
    let missing = of_early.iter().filter(|channels| channels.is_empty()).count() as u64;
    assert_eq!(missing, unattached(&path, id), "each event is there or told");
    session.remove();
}

#[test]
fn what_cannot_be_done_is_refused() {
    alone!(in dir);
    for memory in [Memory::Heap, Memory::Memfd] {
        let session = started(Session::builder("other").dir(dir.path()).backend(memory));
        let error = session.create_channel(&plain("k"), None).expect_err("its memory cannot grow");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        session.remove();
    }
    let (session, path) = start(with_main("refusals", dir.path()));
    let files = || std::fs::read_dir(&path).expect("listed").count();
    let (before, rules) = (files(), details(&path).rules);
    assert!(matches!(session.create_channel(&plain("main"), None), Err(Error::Exists { .. })));
    assert!(matches!(
        session.create_channel(&plain("k").sub_buffers(3, 4096), None),
        Err(Error::Geometry { .. })
    ));
    assert!(matches!(
        session.create_channel(&plain("k"), Some("a == ")),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(session.create_channel(&plain("/k"), None), Err(Error::Name { .. })));
    // A process of an older version does not write this word (docs/ABI.md, section 3).
    let features = areas(&path).get::<4>(128 + 68) + 24;
    let word = areas(&path).get::<8>(features);
    areas(&path).put::<8>(features, 0);
    let error = session.create_channel(&plain("k"), None).expect_err("an older process");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    areas(&path).put::<8>(features, word);
    assert_eq!(files(), before, "nothing was written");
    assert_eq!(details(&path).rules, rules);
    for channel in 1..32 {
        let made =
            session.create_channel(&plain(&format!("k{channel}")).sub_buffers(2, 4096), None);
        assert_eq!(made.expect("created"), channel);
    }
    assert!(matches!(session.create_channel(&plain("k32"), None), Err(Error::Full { .. })));
    let other = Handle::open(&path).expect("opened");
    assert!(matches!(other.create_channel(&plain("k32"), None), Err(Error::Full { .. })));
    drop(other);
    session.close();
    let ended = Handle::open(&path).expect("opened");
    assert!(matches!(ended.create_channel(&plain("k"), None), Err(Error::Unsupported { .. })));
}

#[test]
fn one_of_several_creators_of_a_name_wins() {
    alone!(in dir);
    let (session, path) = start(with_main("race", dir.path()));
    let create = || {
        let handle = Handle::open(&path).expect("opened");
        match handle.create_channel(&plain("same").sub_buffers(2, 4096), None) {
            Ok(_) => true,
            Err(Error::Exists { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    };
    let won = std::thread::scope(|scope| {
        let creators: Vec<_> = (0..4).map(|_| scope.spawn(create)).collect();
        creators
            .into_iter()
            .filter(|_| true)
            .map(|creator| creator.join().expect("it ends"))
            .filter(|won| *won)
            .count()
    });
    assert_eq!(won, 1);
    assert_eq!(details(&path).channels.len(), 2);
    session.remove();
}

#[test]
fn snapshots_have_a_channel_that_was_created_before() {
    alone!();
    for reservation in RESERVATIONS {
        let dir = tempfile::tempdir().expect("a folder");
        let (session, path) =
            start(with_main("shot", dir.path()).snapshot(true).reservation(reservation));
        (0..10).for_each(|number| emit(0, number));
        session.snapshot(Rings::All).expect("taken");
        let id = session.create_channel(&plain("late"), None).expect("created");
        send(0, id, &[0], true, |rule| session.rule(rule).expect("a rule"));
        (10..30).for_each(|number| emit(0, number));
        assert_eq!(common::snapshot_numbers(&path), every(0..10), "{reservation:?}");
        assert_eq!(common::numbers(&path), every(10..30), "{reservation:?}");
        session.snapshot(Rings::All).expect("taken");
        (30..40).for_each(|number| emit(0, number));
        assert_eq!(common::snapshot_numbers(&path), every(10..30), "{reservation:?}");
        assert_eq!(common::numbers(&path), every(30..40), "{reservation:?}");
        session.remove();
    }
}

/// Threads record while one process takes snapshots and another thread creates channels and sends
/// events there, besides the first channel. Rings are large enough for everything, so that each
/// number is in one snapshot or in the live rings, once in each channel that it went to.
#[test]
fn snapshots_that_race_with_channels_lose_nothing() {
    alone!();
    let seed = seed();
    for (round, reservation) in RESERVATIONS.into_iter().enumerate() {
        let what = format!("seed {seed}, {reservation:?}");
        let mut random = Random(seed.wrapping_add(round as u64));
        let dir = tempfile::tempdir().expect("a folder");
        let main = plain("main").sub_buffers(4, 256 << 10);
        let (session, path) = start(
            Session::builder("race")
                .dir(dir.path())
                .channel(main)
                .reservation(reservation)
                .snapshot(true),
        );
        let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        // How often each number is in a channel, over all snapshots and the live rings.
        let mut seen: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        // The number from which on the events of a name go to a channel, too.
        let mut sent_from: Vec<(u32, usize, u64)> = Vec::new();
        std::thread::scope(|scope| {
            let _stop = StopAtEnd(&stop);
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        emit((number % 3) as usize, number);
                        if number.is_multiple_of(8) {
                            std::thread::sleep(std::time::Duration::from_micros(100));
                        }
                    }
                });
            }
            for channel in 0..6 {
                let (name, pause) = (random.below(3) as usize, random.below(400));
                let (session, next) = (&session, &next);
                let made = scope.spawn(move || {
                    std::thread::sleep(std::time::Duration::from_micros(pause));
                    let config = plain(&format!("k{channel}")).sub_buffers(4, 64 << 10);
                    let id = session.create_channel(&config, None).expect("created");
                    send(name, id, &[], false, |rule| session.rule(rule).expect("a rule"));
                    // Threads that took a number before this may have judged their events before
                    // the rule.
                    (id, name, next.load(Ordering::SeqCst))
                });
                std::thread::sleep(std::time::Duration::from_micros(random.below(400)));
                session.snapshot(Rings::All).expect("taken");
                // Only the next call of this loop fills these rings again.
                add(&mut seen, &path, naive::Session::snapshot_events);
                sent_from.push(made.join().expect("it ends"));
            }
        });
        add(&mut seen, &path, naive::Session::events);
        let all = next.into_inner();
        assert!(
            all > 0 && seen.values().all(|count| *count == 1),
            "{what}: a number is twice in a channel"
        );
        for number in 0..all {
            assert!(
                seen.contains_key(&(number, 0)),
                "{what}: {number} of {all} is not in the first channel"
            );
            for &(id, name, from) in &sent_from {
                let is_there = seen.contains_key(&(number, id));
                let is_of_name = number % 3 == name as u64;
                assert!(is_of_name || !is_there, "{what}: {number} is in channel {id}");
                assert!(
                    !is_of_name || is_there || number <= from,
                    "{what}: {number} of {from}.. is not in {id}"
                );
            }
        }
        assert!((1..=6).all(|channel| unattached(&path, channel) == 0), "{what}");
        session.remove();
    }
}

/// Adds the numbers that the session in a folder has now, by their channels. A file may get its
/// name while the folder is read.
fn add(
    seen: &mut BTreeMap<(u64, u32), u64>,
    folder: &Path,
    events: fn(&naive::Session) -> Vec<(u32, lastwords_testkit::ring::Event)>,
) {
    let sessions = std::iter::repeat_with(|| naive::read(folder))
        .take(100)
        .find_map(Result::ok)
        .expect("it is readable");
    count(seen, &sessions[0], events);
}
