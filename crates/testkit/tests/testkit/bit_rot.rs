//! Each bit of a 72 KiB image is flipped. Undamaged sub-buffers are identical; nothing wrong is
//! accepted unflagged.
//!
//! The test compares the clocks and bytes of events. It does not compare wall time, because the
//! relation of the clock to wall time has no checksum and no second witness.
//!
//! By default, one bit in 29 is flipped. With the variable `LASTWORDS_ALL_BITS` set, every bit is.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::common;
use crate::common::{Bytes, Found, Key, Truth, Watchdog, late_differs, walk};
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_trace::evidence::Verdict;

/// Bits of the image.
const BITS: u64 = 589_824;
/// One in so many bits is flipped by default. It is prime to 8, so that bits of every place in a
/// byte are.
const SAMPLED: u64 = 29;

/// In one of so many cases, the checksums are compared when packets are delivered, too.
const LATE: u64 = 11;

/// Where the sub-buffers of the live halves lie.
fn live_spots(session: &lastwords_testkit::session::Session) -> Vec<(Range<usize>, Key)> {
    let image = session.image();
    let live =
        |s: &&lastwords_testkit::image::Spot| s.half == session.rings[s.stream as usize].live;
    let place = |s: &lastwords_testkit::image::Spot| {
        let at = image.spot_in_arena(s);
        (at..at + s.len, (u64::from(s.stream), s.number))
    };
    image.spots.iter().filter(live).map(place).collect()
}

/// Returns an error if a flipped bit, inside a sub-buffer or elsewhere, led to a wrong result.
/// `all` has the true contents of both halves: a flipped bit of the control page may lead to the
/// other half.
fn judge(right: &Found, all: &Truth, found: &Found, inside: Option<Key>) -> Result<(), String> {
    let flagged = found.evidence != right.evidence;
    for (key, sub) in &found.subs {
        let same = all.get(key).is_some_and(|(_, events)| *events == sub.events && !sub.broken);
        if sub.verdict == Verdict::Committed && !same {
            return Err(format!("{key:?} is committed, with other events than before"));
        }
    }
    for (key, before) in &right.subs {
        match found.subs.get(key) {
            Some(sub) if sub.events == before.events && sub.verdict == before.verdict => {}
            _ if inside.is_some() && inside != Some(*key) => {
                return Err(format!("{key:?} changed, the bit is in {inside:?}"));
            }
            Some(sub) if sub.verdict != Verdict::Committed || flagged => {}
            None if flagged => {}
            other => return Err(format!("{key:?} is {other:?} and nothing says so")),
        }
    }
    Ok(())
}

fn rot(order: Order, step: u64) {
    let session = samples::small(order);
    let bytes: Arc<[u8]> = session.image().arena().into();
    let len = bytes.len();
    assert_eq!(len as u64 * 8, BITS);
    let spots = live_spots(&session);
    let right = walk(Bytes::new(bytes.clone(), len, None), false).expect("a whole image");
    let truth = common::truth(&session, |ring| ring.live);
    let mut all = common::truth(&session, |ring| ring.live ^ 1);
    all.extend(truth.clone());
    for (key, (verdict, events)) in &truth {
        let sub = &right.subs[key];
        assert_eq!((sub.verdict, &sub.events), (*verdict, events), "{key:?}");
    }
    let watchdog = Watchdog::new("bits of an image", Duration::from_secs(20));
    let wrong = common::parallel(BITS / step, |case| {
        let bit = (case * step) as usize;
        watchdog.case(case);
        let at = bit / 8;
        let flipped = bytes[at] ^ (1 << (bit % 8));
        let found = match walk(Bytes::new(bytes.clone(), len, Some((at, flipped))), false) {
            Ok(found) => found,
            Err(error) => return Some(format!("byte {at:#x} bit {}: {error}", bit % 8)),
        };
        if case % LATE == 0
            && let Some(why) = late_differs(Bytes::new(bytes.clone(), len, Some((at, flipped))))
        {
            return Some(format!("byte {at:#x} bit {}, compared late: {why}", bit % 8));
        }
        let inside = spots.iter().find(|(range, _)| range.contains(&at)).map(|(_, key)| *key);
        judge(&right, &all, &found, inside)
            .err()
            .map(|why| format!("byte {at:#x} bit {}: {why}", bit % 8))
    });
    let wrong: Vec<String> = wrong.into_iter().filter_map(|(_, why)| why).collect();
    assert!(
        wrong.is_empty(),
        "{} of {} flips:\n{}",
        wrong.len(),
        BITS / step,
        wrong[..wrong.len().min(4000)].join("\n")
    );
}

#[test]
fn bits_of_an_image() {
    let all = std::env::var_os("LASTWORDS_ALL_BITS").is_some();
    rot(Order::Little, if all { 1 } else { SAMPLED });
}

#[test]
fn some_bits_of_an_image_of_the_other_byte_order() {
    rot(Order::Big, 61);
}
