//! Computes how long a ring holds events, at the rate that was observed in it.

use lastwords_session::info::{Info, StreamInfo};
use std::fmt;

/// The facts about one ring from which its rate follows. Clocks are in ticks, sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ring {
    /// The bytes from the oldest event to the newest.
    bytes: u64,
    /// The capacity of the ring in bytes.
    capacity: u64,
    /// The events in it.
    observed: Observed,
}

/// The events that were counted in a ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    /// Their number.
    pub events: u64,
    /// Nanoseconds of the first and of the last one.
    pub span: Option<(i64, i64)>,
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
    /// Computes the time for a channel of a session. `observed` has the events of each stream.
    pub fn of_channel(info: &Info, channel: u32, observed: &[Observed]) -> Option<Self> {
        let streams =
            info.streams.iter().enumerate().filter(|(_, stream)| stream.channel == channel);
        let ring = |(index, stream): (usize, &StreamInfo)| {
            let capacity = stream.sub_buffer_size.saturating_mul(u64::from(stream.sub_buffers));
            Ring {
                bytes: stream.held,
                capacity,
                observed: observed.get(index).copied().unwrap_or_default(),
            }
        };
        Self::from_rings(&streams.map(ring).collect::<Vec<_>>())
    }

    /// Computes the time for the rings of a channel. A ring is observed from its first event to the
    /// last one of the channel: two events in quick succession on an idle CPU are no rate. Returns
    /// none if no ring has two events.
    fn from_rings(rings: &[Ring]) -> Option<Self> {
        let mut holds: Option<Self> = None;
        let last =
            rings.iter().filter_map(|ring| ring.observed.span).map(|(_, last)| last).max()?;
        for Ring { bytes, capacity, observed } in rings {
            let seconds = observed.span.map_or(0, |(first, _)| last.abs_diff(first)) as f64 / 1e9;
            if *bytes == 0 || observed.events < 2 || seconds <= 0.0 {
                continue;
            }
            let of = Self {
                seconds: *capacity as f64 * seconds / *bytes as f64,
                events_per_second: observed.events as f64 / seconds,
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
        let (capacity, span) = (6000, Some((0, 4_000_000_000)));
        let slow = Ring { bytes: 1000, capacity, observed: Observed { events: 100, span } };
        let fast = Ring { bytes: 2000, observed: Observed { events: 4_800_000, span }, ..slow };
        let idle = Ring { capacity, ..Ring::default() };
        let holds = |seconds, events_per_second| Some(Holds { seconds, events_per_second });
        assert_eq!(Holds::from_rings(&[slow, fast, idle]), holds(12.0, 1_200_025.0));
        assert_eq!(Holds::from_rings(&[slow]), holds(24.0, 25.0));
        assert_eq!(Holds::from_rings(&[idle]), None);
    }

    #[test]
    fn one_event_shows_no_rate_and_two_in_quick_succession_do_not_decide() {
        let ring = |events, span| Ring {
            bytes: 100,
            capacity: 1000,
            observed: Observed { events, span: Some(span) },
        };
        assert_eq!(Holds::from_rings(&[ring(1, (5, 5))]), None);
        let (pair, busy) = (ring(2, (0, 1000)), ring(50, (0, 2_000_000_000)));
        assert_eq!(
            Holds::from_rings(&[pair, busy]),
            Some(Holds { seconds: 20.0, events_per_second: 26.0 })
        );
        assert_eq!(Holds::from_rings(&[ring(1, (0, 0)), busy]), Holds::from_rings(&[busy]));
    }

    #[test]
    fn in_words() {
        let of = |seconds, events_per_second| Holds { seconds, events_per_second }.to_string();
        assert_eq!(
            of(12.0, 1_200_025.0),
            "holds about 12 s at the observed rate of 1.2 M events/s"
        );
        assert_eq!(of(24.0, 25.0), "holds about 24 s at the observed rate of 25 events/s");
    }
}
