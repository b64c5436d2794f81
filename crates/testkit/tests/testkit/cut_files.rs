//! An image cut at every length (or at 4,096 of them): the recovered count is monotone in the
//! length, and what is missing is said.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use crate::common;
use crate::common::{Bytes, Found, Watchdog, late_differs, walk};
use lastwords_testkit::layout::session as se;
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_trace::evidence::Verdict;

/// In one of so many cases, the checksums are compared when packets are delivered, too.
const LATE: u64 = 11;

/// Cuts `bytes` at each of `lengths` and checks that events only ever come with more bytes.
fn cut(name: &'static str, bytes: &[u8], lengths: &[usize]) {
    let shared: Arc<[u8]> = bytes.into();
    let watchdog = Watchdog::new(name, Duration::from_secs(20));
    let whole = walk(Bytes::new(shared.clone(), bytes.len(), None), false).expect("a whole image");
    let found: Vec<(u64, (usize, bool))> = common::parallel(lengths.len() as u64, |case| {
        watchdog.case(case);
        let len = lengths[case as usize];
        let found = walk(Bytes::new(shared.clone(), len, None), false).expect("a cut is no error");
        if case % LATE == 0 {
            assert_eq!(
                late_differs(Bytes::new(shared.clone(), len, None)),
                None,
                "{name}: {len} bytes, compared late"
            );
        }
        (found.events(), says_so(&whole, &found))
    });
    let mut most = 0;
    for (case, (events, said)) in found {
        let len = lengths[case as usize];
        assert!(events >= most, "{name}: {events} events of {len} bytes, {most} of fewer");
        assert!(
            events == whole.events() || said || events == 0,
            "{name}: {len} bytes lack events, nothing says so"
        );
        most = events;
    }
    assert!(whole.events() > 100, "the image holds events");
    assert!(lengths.last() != Some(&bytes.len()) || most == whole.events());
}

/// Something is reported that is not there.
fn says_so(whole: &Found, found: &Found) -> bool {
    let missing = |(key, sub): (&common::Key, &common::Sub)| {
        sub.verdict == Verdict::Missing
            || whole.subs.get(key).is_some_and(|w| w.verdict != sub.verdict)
    };
    found.subs.iter().any(missing)
        || found.evidence.iter().any(|e| e.starts_with("note") || e.starts_with("gap"))
}

#[test]
fn every_length_of_a_small_image() {
    let bytes = samples::small(Order::Little).image().arena();
    cut("small", &bytes, &(0..=bytes.len()).collect::<Vec<_>>());
}

#[test]
fn four_thousand_cuts_of_a_large_image() {
    let mut session = samples::one_stream(se::RSEQ, 16_384, 16, 14);
    let channel = 0;
    session.stream(channel, 1, se::RSEQ);
    session.stream(channel, 2, se::LOCKLESS);
    samples::record(&mut session.rings[1], 0, 9000, &[]);
    samples::record(&mut session.rings[2], 0, 9000, &[]);
    let bytes = session.image().arena();
    assert!(bytes.len() > 1 << 20);
    let step = bytes.len() as f64 / 4096.0;
    cut("large", &bytes, &(0..=4096).map(|n| (f64::from(n) * step) as usize).collect::<Vec<_>>());
}
