//! k damaged sub-buffers cost exactly those k, and are reported. All 2^n patterns of n sub-buffers,
//! n from 1 to 12.
#![forbid(unsafe_code)]

use crate::common;
use crate::common::{Bytes, truth, walk};
use lastwords_testkit::layout::{packet as pk, session as se};
use lastwords_testkit::samples;
use lastwords_trace::evidence::Verdict;

/// Bytes of a sub-buffer.
const SIZE: u64 = 512;
/// Most sub-buffers damaged in one image.
const MOST: u32 = 12;

/// Damages a closed sub-buffer in one of seven ways.
fn damage(bytes: &mut [u8], kind: u64) {
    let len = bytes.len();
    match kind % 7 {
        0 => bytes[pk::HEADER_LEN + 40] ^= 0x10,
        1 => bytes[pk::SEQ_NUM_AT + 3] ^= 1,
        2 => bytes[pk::CONTENT_SIZE_AT + 1] ^= 0x80,
        3 => bytes[len - 1] ^= 0xff,
        4 => bytes.fill(0),
        5 => bytes[pk::BEGIN_AT + 2] ^= 4,
        _ => bytes[len / 2..].fill(0xff),
    }
}

/// Runs all patterns of `n` of a stream's closed sub-buffers; how many there were.
fn patterns_of(reservation: u32, n: u32) -> u64 {
    let session = samples::one_stream(reservation, SIZE, 16, u64::from(n));
    let image = session.image();
    let arena = image.arena();
    let right = truth(&session, |ring| ring.live);
    assert_eq!(right.len(), n as usize + 1, "n closed sub-buffers and an open one");
    let cases = 1u64 << n;
    common::parallel(cases, |pattern| {
        let mut bytes = arena.clone();
        for spot in image.spots.iter().filter(|s| s.half == 0 && pattern >> s.number & 1 == 1) {
            let at = image.spot_in_arena(spot);
            damage(&mut bytes[at..at + spot.len], pattern / 3 + spot.number);
        }
        let len = bytes.len();
        let found = walk(Bytes::new(bytes.into(), len, None), false).expect("damage is no error");
        for (key, (verdict, events)) in &right {
            let sub = found
                .subs
                .get(key)
                .unwrap_or_else(|| panic!("{pattern:b}: {key:?} is not reported"));
            if pattern >> key.1 & 1 == 1 {
                let said =
                    matches!(sub.verdict, Verdict::Invalid | Verdict::Stale | Verdict::Missing);
                assert!(said, "{pattern:b}: {key:?} is {}", sub.verdict.word());
            } else {
                assert_eq!(sub.verdict, *verdict, "{pattern:b}: {key:?}");
                assert_eq!(&sub.events, events, "{pattern:b}: {key:?}");
            }
        }
        assert_eq!(
            found.subs.len(),
            right.len(),
            "{pattern:b}: no more sub-buffers than there are"
        );
    });
    cases
}

#[test]
fn damaged_sub_buffers_cost_themselves() {
    let mut cases = 0;
    for reservation in [se::RSEQ, se::LOCKLESS, se::LOCKED] {
        cases += (1..=MOST).map(|n| patterns_of(reservation, n)).sum::<u64>();
    }
    assert!(cases >= 20_480, "{cases} cases");
}

#[test]
fn holes_of_dead_recorders_cost_nothing_that_was_committed() {
    let cases: Vec<(u64, u32)> = (1..=MOST)
        .flat_map(|n| (0..1u32 << n).map(move |pattern| (u64::from(n), pattern)))
        .collect();
    common::parallel(cases.len() as u64, |case| {
        let (n, pattern) = cases[case as usize];
        let session = samples::with_holes(SIZE, 16, n, pattern);
        let arena = session.image().arena();
        let len = arena.len();
        let found = walk(Bytes::new(arena.into(), len, None), false).expect("a hole is no error");
        for (key, (verdict, events)) in truth(&session, |ring| ring.live) {
            let sub = found
                .subs
                .get(&key)
                .unwrap_or_else(|| panic!("{n} {pattern:b}: {key:?} is not reported"));
            assert_eq!((sub.verdict, &sub.events), (verdict, &events), "{n} {pattern:b}: {key:?}");
            assert_eq!(
                sub.verdict == Verdict::Torn,
                pattern >> key.1 & 1 == 1,
                "{n} {pattern:b}: {key:?}"
            );
        }
    });
    assert!(cases.len() >= 8190);
}
