//! The conversion of ticks against exact division.
#![allow(missing_docs, reason = "a test")]

use lastwords_trace::clock::{Clock, Converter, Rounding};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % n
    }
}

fn clock(frequency: u64, offset_seconds: i64, offset_ticks: u64) -> Clock {
    Clock {
        name: "test".to_owned(),
        description: String::new(),
        frequency,
        offset_seconds,
        offset_ticks,
        absolute: true,
    }
}

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
            let clock = clock(frequency, offset_seconds, offset_ticks);
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
                let step = [1, 7, 1 << 20, (1 << 33) - 1, 1 << 33, 1 << 45][r.below(6) as usize];
                ticks = if round % 100 == 99 { r.below(1 << 44) } else { ticks.wrapping_add(step) };
            }
        }
    }
}
