//! The conversion of ticks against exact division.
#![allow(missing_docs, reason = "a test")]

use lastwords_testkit::random::Random;
use lastwords_trace::clock::{Clock, Converter, Rounding};

#[test]
fn ticks_convert_exactly() {
    let frequencies = [
        1,
        3,
        1000,
        24_000_000,
        999_999_999,
        1_000_000_000,
        2_394_374_123,
        5_000_000_001,
        1 << 61,
        u64::MAX,
    ];
    for frequency in frequencies {
        for (offset_seconds, offset_ticks) in
            [(0, 0), (1_795_000_000, frequency / 3), (-5, frequency - 1)]
        {
            let clock = Clock {
                frequency,
                offset_seconds,
                offset_ticks,
                absolute: true,
                ..Clock::default()
            };
            let mut converter = Converter::new(&clock, Rounding::Floor);
            let mut r = Random(frequency);
            let mut ticks = 0u64;
            for round in 0..20_000u32 {
                let exact = clock.nanoseconds(ticks);
                let limited = exact.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
                assert_eq!(
                    i128::from(converter.nanoseconds(ticks)),
                    limited,
                    "{ticks} of {clock:?}"
                );
                let step = *r.pick(&[1, 7, 1 << 20, (1 << 33) - 1, 1 << 33, 1 << 45]);
                ticks = if round % 100 == 99 { r.below(1 << 44) } else { ticks.wrapping_add(step) };
            }
        }
    }
}
