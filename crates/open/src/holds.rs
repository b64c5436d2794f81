//! Computes how long a ring holds events, at the rate that was observed in it.

use lastwords_walk::session::info::{Info, StreamInfo};
use std::fmt;

/// The facts about one ring from which its rate follows. Clocks are in ticks, sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ring {
    /// The clock of the oldest event in it.
    oldest: u64,
    /// The clock of the newest event in it.
    newest: u64,
    /// The bytes from the oldest event to the newest.
    bytes: u64,
    /// The capacity of the ring in bytes.
    capacity: u64,
    /// The number of events in it, or 0 if they were not counted.
    events: u64,
}

/// The time for which the rings of a channel hold events.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Holds {
    /// The seconds until the ring that fills fastest overwrites its oldest event.
    pub seconds: f64,
    /// The events per second, in all rings together.
    pub events_per_second: f64,
}

impl Holds {
    /// Computes the time for a channel of a session, from the bounds of its rings. `events` has the number of events of
    /// each stream, if known.
    pub fn of_channel(info: &Info, channel: u32, events: &[u64]) -> Option<Self> {
        let streams = info.streams.iter().enumerate().filter(|(_, stream)| stream.channel == channel);
        let ring = |(index, stream): (usize, &StreamInfo)| {
            let (oldest, newest) = stream.clocks.unwrap_or_default();
            let capacity = stream.sub_buffer_size.saturating_mul(u64::from(stream.sub_buffers));
            Ring { oldest, newest, bytes: stream.held, capacity, events: events.get(index).copied().unwrap_or(0) }
        };
        Self::of(&streams.map(ring).collect::<Vec<_>>(), info.clock.frequency)
    }

    /// Computes the time for rings whose clock has `frequency` ticks per second. Returns none if no ring shows a rate.
    fn of(rings: &[Ring], frequency: u64) -> Option<Self> {
        let mut holds: Option<Self> = None;
        for ring in rings {
            let seconds = ring.newest.saturating_sub(ring.oldest) as f64 / frequency as f64;
            if ring.bytes == 0 || frequency == 0 || seconds <= 0.0 {
                continue;
            }
            let of = Self {
                seconds: ring.capacity as f64 * seconds / ring.bytes as f64,
                events_per_second: ring.events as f64 / seconds,
            };
            holds = Some(holds.map_or(of, |all| Self {
                seconds: all.seconds.min(of.seconds),
                events_per_second: all.events_per_second + of.events_per_second,
            }));
        }
        holds
    }
}

/// Prints `holds about 12 s at the observed rate of 1.2 M events/s`.
impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "holds about {} at the observed rate", duration(self.seconds))?;
        match self.events_per_second {
            0.0 => Ok(()),
            rate => write!(f, " of {}events/s", scaled(rate, &["", "k ", "M ", "G "], 1000.0)),
        }
    }
}

/// Formats a time with its unit: `12 s`, `3.4 min`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} us", digits(s * 1e6)),
        s if s < 1.0 => format!("{} ms", digits(s * 1e3)),
        s if s < 120.0 => format!("{} s", digits(s)),
        s if s < 7200.0 => format!("{} min", digits(s / 60.0)),
        s if s < 172_800.0 => format!("{} h", digits(s / 3600.0)),
        s => format!("{} days", digits(s / 86_400.0)),
    }
}

fn scaled(value: f64, units: &[&str], step: f64) -> String {
    let mut value = value;
    let mut units = units.iter().copied();
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if value < step {
            break;
        }
        value /= step;
        unit = next;
    }
    format!("{} {unit}", digits(value))
}

/// Formats a value with two significant digits.
fn digits(value: f64) -> String {
    match value {
        v if v < 0.01 => "less than 0.01".to_owned(),
        v if v < 1.0 => format!("{v:.2}"),
        v if v < 10.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_that_fills_soonest_decides() {
        let slow = Ring { oldest: 0, newest: 4_000_000, bytes: 1000, capacity: 6000, events: 100 };
        let fast = Ring { bytes: 2000, events: 4_800_000, ..slow };
        let idle = Ring { capacity: 6000, ..Ring::default() };
        let holds = |seconds, events_per_second| Some(Holds { seconds, events_per_second });
        assert_eq!(Holds::of(&[slow, fast, idle], 1_000_000), holds(12.0, 1_200_025.0));
        assert_eq!(Holds::of(&[slow], 1_000_000), holds(24.0, 25.0));
        assert_eq!(Holds::of(&[idle], 1_000_000), None);
        assert_eq!(Holds::of(&[slow], 0), None);
    }

    #[test]
    fn in_words() {
        let of = |seconds, events_per_second| Holds { seconds, events_per_second }.to_string();
        assert_eq!(of(12.0, 1_200_025.0), "holds about 12 s at the observed rate of 1.2 M events/s");
        assert_eq!(of(24.0, 25.0), "holds about 24 s at the observed rate of 25 events/s");
    }
}
