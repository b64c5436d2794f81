//! Counters and histograms of sessions that are sent: the numbers at the receiver are those that
//! were counted, whoever dies, and a copy that is none replaces nothing. The naive reader of the
//! testkit reads the regions.

use crate::recorded::{Place, alone};
use crate::support::{LIMITS, Running, copy_of, counters, described, files, frame, part, put};
use lastwords::{Builder, Histogram, Session, counter, event, histogram};
use lastwords_stream::{Limits, Told};
use lastwords_testkit::checksum::checksum;
use lastwords_testkit::counters::{Numbers, read};
use lastwords_testkit::layout::counters as l;
use lastwords_testkit::put::Order;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

/// Each value of the histogram.
const VALUE: u64 = 700;

fn builder(place: &Place) -> Builder {
    Session::builder("counts").dir(&place.sessions).counters(8).histograms(2)
}

/// The numbers in a counters region, and when the copy was made.
fn numbers(file: &Path) -> (Numbers, u64) {
    let bytes = fs::read(file).expect("the region");
    let copied = Order::Little.at64(&bytes, l::CONTROL_AT + l::COPIED_AT).unwrap();
    (read(&bytes, Order::Little).expect("sound tables"), copied)
}

/// Waits for the file with the newest copy of a stream that is under way.
fn copy_under_way(place: &Place) -> PathBuf {
    loop {
        let spools = files(&place.received);
        let rings = spools.iter().find(|name| name.ends_with(".rings"));
        let copy = rings.map(|name| place.received.join(name).join("counters"));
        if let Some(copy) = copy.filter(|copy| copy.exists()) {
            return copy;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn saved(told: Told) -> lastwords_stream::Session {
    match told {
        Told::SavedSession(saved) => saved,
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_at_the_receiver_are_those_that_were_counted() {
    let _alone = alone();
    let place = Place::new();
    let session = builder(&place).start().unwrap();
    let (sending, _end) = place.send(&session, true);
    let (is_over, copy) = (AtomicBool::new(false), copy_under_way(&place));
    let counted: u64 = thread::scope(|scope| {
        let count = || {
            let mut counted = 0;
            while !is_over.load(Relaxed) {
                counter!("requests", code = "200");
                histogram!("latency", VALUE);
                counted += 1;
            }
            counted
        };
        let threads = [scope.spawn(count), scope.spawn(count)];
        // The copies of the time when it counts.
        let mut last = (0, 0);
        for _ in 0..5 {
            let (found, requests, copied) = loop {
                let (found, copied) = numbers(&copy);
                let requests = found.counters.get("requests|code|200").copied().unwrap_or(0);
                if requests > last.0 && copied > last.1 && !found.histograms.is_empty() {
                    break (found, requests, copied);
                }
                thread::sleep(Duration::from_millis(1));
            };
            last = (requests, copied);
            let (buckets, sum, whole) = &found.histograms["latency"];
            let begun: u64 = buckets.iter().map(|(_, count)| count).sum();
            assert!(whole * VALUE <= *sum && *sum <= begun * VALUE, "{found:?}");
        }
        is_over.store(true, Relaxed);
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    session.close();
    assert!(!sending.join().unwrap().unwrap().has_unsent_counters);
    let saved = saved(place.running.over());
    assert_eq!(saved.ended_early, None);
    let (found, copied) = numbers(&saved.path.join("counters"));
    assert_eq!(found.counters["requests|code|200"], counted);
    assert_eq!(found.histograms["latency"], (vec![(640, counted)], counted * VALUE, counted));
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    assert!(copied <= now && now - copied < 3_600_000_000_000, "{copied} at {now}");
}

#[test]
fn a_stream_that_ends_early_leaves_the_newest_copy() {
    let _alone = alone();
    let place = Place::new();
    let session = builder(&place).start().unwrap();
    let (sending, _end) = place.send(&session, true);
    (0..5).for_each(|n| counter!("bytes", n));
    let copy = copy_under_way(&place);
    while numbers(&copy).0.counters.get("bytes") != Some(&10) {
        thread::sleep(Duration::from_millis(1));
    }
    let told = place.running.stop();
    counter!("bytes", 90);
    let saved = told.iter().find_map(|told| match told {
        Told::SavedSession(saved) => Some(saved),
        _ => None,
    });
    let saved = saved.expect("the session is saved");
    assert!(saved.ended_early.is_some());
    assert_eq!(numbers(&saved.path.join("counters")).0.counters["bytes"], 10);
    assert!(sending.join().unwrap().is_err(), "the receiver has gone");
    session.remove();
}

#[test]
fn a_session_without_counters_has_none_at_the_receiver() {
    let _alone = alone();
    for has_counters in [false, true] {
        let place = Place::new();
        let builder = Session::builder("counts").dir(&place.sessions);
        let builder = if has_counters { builder.counters(1) } else { builder };
        let session = builder.start().unwrap();
        let (sending, _end) = place.send(&session, true);
        counter!("requests");
        if !has_counters {
            event!(test, "only");
        }
        session.close();
        sending.join().unwrap().unwrap();
        let saved = saved(place.running.over());
        assert_eq!(saved.path.join("counters").exists(), has_counters);
        if has_counters {
            assert_eq!(numbers(&saved.path.join("counters")).0.counters["requests"], 1);
        }
    }
}

/// More than a frame has room for: the receiver has none, and not those of before.
#[test]
fn counters_without_room_in_a_frame_are_not_sent() {
    let _alone = alone();
    let place = Place::new();
    let session = builder(&place).histograms(4200).start().unwrap();
    let (sending, _end) = place.send(&session, true);
    copy_under_way(&place);
    for number in 0..4200u32 {
        let name: &'static str = format!("latency{number}").leak();
        let histogram: &'static Histogram = Box::leak(Box::new(Histogram::new(name)));
        // A value in each line of the table.
        (0..64u32).for_each(|bit| histogram.record(1 << bit));
    }
    session.close();
    assert!(sending.join().unwrap().unwrap().has_unsent_counters);
    let saved = saved(place.running.over());
    assert!(saved.ended_early.is_none() && !saved.path.join("counters").exists());
}

/// A region with a right checksum that the test has changed.
fn changed(region: &[u8], at: usize, value: &[u8]) -> Vec<u8> {
    let mut region = region.to_vec();
    put(&mut region, at, value);
    let sum = checksum(&[&region[..112], &region[128..192]].concat());
    put(&mut region, 112, &sum.to_le_bytes());
    region
}

#[test]
fn a_copy_that_is_none_ends_the_stream_and_replaces_nothing() {
    let (_folder, _, running) = Running::in_new_folder(LIMITS);
    let good = counters(1 << 40);
    let copy = |region: &[u8]| frame(13, 0, &copy_of(region));
    let and = |more: Vec<u8>| frame(13, 0, &[copy_of(&good), more].concat());
    let mut flipped = good.clone();
    flipped[128] ^= 1;
    let long = [&13u32.to_le_bytes()[..], &[0; 4], &(16u64 << 20 | 1).to_le_bytes()].concat();
    let other = |at: usize, value: &[u8]| copy(&changed(&good, at, value));
    for (bytes, why) in [
        (long, "is the most"),
        (frame(13, 1, &copy_of(&good)), "of CPU 1"),
        (copy(&flipped), "with the checksum"),
        (other(20, &3u32.to_le_bytes()), "of kind 3"),
        (other(24, &[9; 4]), "byte order"),
        (other(40, &[0xee; 16]), "counters of the session eeee"),
        (other(32, &(4096u64 + 64).to_le_bytes()), "a counters region of 4160 bytes"),
        (other(32, &(2u64 << 30).to_le_bytes()), "is the most"),
        (other(32, &4096u64.to_le_bytes()), "of a counters region of 4096"),
        (frame(13, 0, &[0; 15]), "0 bytes at 0"),
        (frame(13, 0, &part(0, &good[..192])), "not the begin"),
        (frame(13, 0, &part(64, &good[64..512])), "not the begin"),
        (and(part(64, &[1; 64])), "64 bytes at 64"),
        (and(part(1 << 20, &[1; 65])), "65 bytes at"),
        (and(part((1 << 20) + 1, &[1; 64])), "64 bytes at"),
        (and(part(1 << 29, &[1; 64])), "of a counters region of"),
        (and(part(usize::MAX - 63, &[1; 64])), "of a counters region of"),
        (and([1u64 << 20, 1 << 40].map(u64::to_le_bytes).concat()), "1099511627776 bytes at"),
    ] {
        let said = running.send(&[described().concat(), copy(&good), bytes].concat());
        let saved = saved(running.over());
        let told = saved.ended_early.expect(why);
        assert!(told.contains(why), "{why}: {told}");
        assert!(String::from_utf8_lossy(&said).contains(&told), "the sender is told: {told}");
        assert!(fs::read(saved.path.join("counters")).unwrap() == good, "{why}");
    }
}

#[test]
fn only_a_session_with_counters_has_a_copy() {
    let (_folder, target, running) = Running::in_new_folder(LIMITS);
    let parts = described();
    let copy = frame(13, 0, &copy_of(&counters(5)));
    let mut without = parts[2].clone();
    // The frame's header, the offset, and the place of the words in the region.
    put(&mut without, 16 + 8 + 1024 + 112, &[0; 8]);
    for (bytes, why) in [
        ([&parts[..1].concat()[..], &copy].concat(), "before Session"),
        ([&parts[..2].concat()[..], &copy].concat(), "that has no counters"),
        ([&parts[..2].concat()[..], &without, &parts[3], &copy].concat(), "that has no counters"),
    ] {
        running.send(&bytes);
        let told = match running.over() {
            Told::Refused { why, .. } | Told::Empty { why, .. } => why,
            other => saved(other).ended_early.expect(why),
        };
        assert!(told.contains(why), "{why}: {told}");
    }
    drop(running.stop());
    for folder in files(&target) {
        assert!(!files(&target.join(&folder)).contains(&"counters".to_owned()), "{folder}");
    }
}

/// A copy takes the room of the one before, and the peer's bytes are counted all the same.
#[test]
fn copies_take_the_room_of_one() {
    let end = frame(6, 0, br#"{"cpus":[],"bytes":0}"#);
    let copies: Vec<u8> = (0..1000).flat_map(|n| frame(13, 0, &copy_of(&counters(n)))).collect();
    let stream = [described().concat(), copies, end].concat();
    assert!(stream.len() > 500_000);
    let (_folder, _, running) = Running::in_new_folder(Limits { size: 20_000, ..LIMITS });
    running.send(&stream);
    let saved_all = saved(running.over());
    assert_eq!(saved_all.ended_early, None);
    assert!(fs::read(saved_all.path.join("counters")).unwrap() == counters(999));
    for (limits, why) in [
        (Limits { peer_bytes: 100_000, ..LIMITS }, "--max-peer-bytes"),
        (Limits { size: 9_000, ..LIMITS }, "--max-size"),
        (Limits { peer_files: 1, ..LIMITS }, "--max-peer-files"),
    ] {
        let (_folder, _, running) = Running::in_new_folder(limits);
        running.send(&stream);
        let told = saved(running.over()).ended_early.expect(why);
        assert!(told.contains(why), "{why}: {told}");
    }
}
