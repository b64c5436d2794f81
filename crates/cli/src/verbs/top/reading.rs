//! One reading of a session: counts, rings, losses and open spans, as data that is shown and
//! printed.

use lastwords_control::rings::Ring;
use lastwords_open::{Count, EndedReport};
use lastwords_render::evidence::SpanReport;
use lastwords_trace::metrics::Metrics;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Name of the format of [`Reading`].
pub(super) const SCHEMA: &str = "lastwords.top.v1";

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// A process records in it, or may.
    Live,
    /// No process records in it any more.
    Ended,
    /// It was removed while it was read.
    Destroyed,
}

/// One reading.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Reading {
    pub(super) schema: &'static str,
    pub(super) session: String,
    pub(super) folder: String,
    pub(super) state: State,
    /// How and when the session ended.
    pub(super) ended: Option<EndedReport>,
    /// Why it is not known whether or how the session ended.
    pub(super) unknown_end: Option<String>,
    /// Recording is switched on.
    pub(super) recording: bool,
    /// The moment of the reading, or of the newest event of an ended session, in nanoseconds since
    /// the epoch.
    #[serde(serialize_with = "as_text")]
    pub(super) at_ns: i64,
    /// The length of the newest interval, whose events are counted in `interval`.
    #[serde(serialize_with = "duration_ns", rename = "interval_ns")]
    pub(super) interval: Duration,
    /// Every event of the interval was counted.
    pub(super) exact: bool,
    /// Every event of the total was counted.
    pub(super) exact_total: bool,
    /// Bytes that were overwritten, cleared or consumed before their events were counted, since
    /// the first reading.
    pub(super) uncounted_bytes: u64,
    pub(super) events: Vec<EventRow>,
    pub(super) rings: Vec<RingRow>,
    pub(super) losses: Vec<LossRow>,
    /// None if it is not known which spans are open.
    pub(super) open_spans: Option<Vec<SpanReport>>,
    pub(super) metrics: Metrics,
}

/// The events of one name in one channel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct EventRow {
    pub(super) channel: String,
    pub(super) event: String,
    /// In the newest interval.
    pub(super) interval: Count,
    /// The events that the rings held at the first reading, and all that were recorded since.
    pub(super) total: Count,
    pub(super) events_per_second: f64,
    pub(super) bytes_per_second: f64,
}

/// One ring: of one channel on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RingRow {
    pub(super) channel: String,
    pub(super) cpu: Option<u32>,
    /// `overwrite` or `discard`.
    pub(super) mode: &'static str,
    /// Bytes of the ring.
    pub(super) size: u64,
    /// Bytes that it holds.
    pub(super) held: u64,
    /// Bytes that it has overwritten since it was begun, cleared or consumed.
    pub(super) overwritten: u64,
    /// Bytes that were written in the newest interval, with headers of sub-buffers; none in a
    /// first reading.
    pub(super) written: Option<u64>,
    pub(super) bytes_per_second: Option<f64>,
    /// Seconds from its oldest event until now, or to the session's newest event if the session
    /// has ended.
    pub(super) oldest_seconds: Option<f64>,
    /// Seconds for which the whole ring holds events at the rate of the newest interval; in a
    /// first reading, at the rate that it shows.
    pub(super) holds_seconds: Option<f64>,
}

/// A cause of losses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LossRow {
    /// The channel; none if the loss concerns the whole session.
    pub(super) channel: Option<String>,
    pub(super) cause: &'static str,
    /// The unit: `events`, `descriptions of events`, `spans` or `parts of rings`.
    pub(super) what: &'static str,
    /// How many, since the session began.
    pub(super) count: u64,
    /// Those of the newest interval.
    pub(super) interval: u64,
}

fn as_text<S: serde::Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

fn duration_ns<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns how many there are in a second.
pub(super) fn rate(count: u64, interval: Duration) -> f64 {
    let seconds = interval.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// The name of an event: of its channel, and its own.
pub(super) type Key = (String, String);

/// Returns the rows of events, those with the most events in the interval first.
pub(super) fn event_rows(totals: &BTreeMap<Key, [Count; 2]>, interval: Duration) -> Vec<EventRow> {
    let row = |((channel, event), [new, total]): (&Key, &[Count; 2])| EventRow {
        channel: channel.clone(),
        event: event.clone(),
        interval: *new,
        total: *total,
        events_per_second: rate(new.events, interval),
        bytes_per_second: rate(new.bytes, interval),
    };
    let mut rows: Vec<EventRow> = totals.iter().map(row).collect();
    Sort::Rate.sort(&mut rows);
    rows
}

/// Returns the row of a ring. `before` is the ring at the last reading, `now` the session's clock,
/// `frequency` its ticks per second.
pub(super) fn ring_row(
    channel: String,
    ring: &Ring,
    before: Option<&Ring>,
    interval: Duration,
    now: Option<u64>,
    frequency: u64,
) -> RingRow {
    let written = before.map(|before| ring.written_since(before));
    let bytes_per_second = written.map(|written| rate(written, interval));
    let seconds = |ticks: u64| (frequency > 0).then(|| ticks as f64 / frequency as f64);
    let oldest_seconds =
        now.zip(ring.oldest).and_then(|(now, oldest)| seconds(now.saturating_sub(oldest)));
    let shown = || oldest_seconds.map(|seconds| ring.held() as f64 / seconds);
    RingRow {
        channel,
        cpu: ring.cpu,
        mode: if ring.overwrites { "overwrite" } else { "discard" },
        size: ring.size,
        held: ring.held(),
        overwritten: ring
            .begin
            .saturating_sub(ring.halves.get(ring.live).map_or(0, |half| half.first)),
        written,
        bytes_per_second,
        oldest_seconds,
        holds_seconds: bytes_per_second
            .or_else(shown)
            .filter(|rate| *rate > 0.0)
            .map(|rate| ring.size as f64 / rate),
    }
}

/// The names of the causes that a ring counts, in the order of [`Ring::lost`]. The last two are no
/// lost events.
const CAUSES: [&str; 5] = [
    "discarded: the ring was full",
    "larger than a sub-buffer",
    "no entry for the thread or the event",
    "the ring was busy",
    "the lock was held",
];

/// Returns the causes that have counted anything. `rings` has each ring with its channel and its
/// state at the last reading.
pub(super) fn loss_rows(rings: &[(String, &Ring, Option<&Ring>)]) -> Vec<LossRow> {
    let mut rows: Vec<LossRow> = Vec::new();
    for (channel, ring, before) in rings {
        let counters = |ring: &Ring| {
            ring.lost
                .iter()
                .take(CAUSES.len())
                .copied()
                .chain([ring.unattached])
                .collect::<Vec<u64>>()
        };
        let (now, before) = (counters(ring), before.map(counters).unwrap_or_default());
        let causes = CAUSES.into_iter().chain(["the process had not mapped the channel"]);
        for (at, (cause, count)) in causes.zip(now).enumerate().filter(|(_, (_, count))| *count > 0)
        {
            let interval = before.get(at).map_or(0, |before| count.saturating_sub(*before));
            match rows
                .iter_mut()
                .find(|row| row.cause == cause && row.channel.as_ref() == Some(channel))
            {
                Some(row) => {
                    (row.count, row.interval) = (row.count + count, row.interval + interval)
                }
                None => {
                    let (channel, what) = (Some(channel.clone()), "events");
                    rows.push(LossRow { channel, cause, what, count, interval });
                }
            }
        }
    }
    rows
}

/// The orders of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    /// Events per second
    #[default]
    Rate,
    /// Bytes per second
    Bytes,
    /// All events that were counted
    Total,
    /// The names of event and channel
    Name,
}

impl Sort {
    /// Sorts rows. Rows that are equal in the order are sorted by total, then by name.
    pub(super) fn sort(self, rows: &mut [EventRow]) {
        rows.sort_by(|a, b| {
            let by = match self {
                Self::Rate => b.interval.events.cmp(&a.interval.events),
                Self::Bytes => b.interval.bytes.cmp(&a.interval.bytes),
                Self::Total => b.total.events.cmp(&a.total.events),
                Self::Name => std::cmp::Ordering::Equal,
            };
            let by_total = || match self {
                Self::Name => std::cmp::Ordering::Equal,
                _ => b.total.events.cmp(&a.total.events),
            };
            by.then_with(by_total).then_with(|| (&a.event, &a.channel).cmp(&(&b.event, &b.channel)))
        });
    }

    /// Returns the next order.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Rate => Self::Bytes,
            Self::Bytes => Self::Total,
            Self::Total => Self::Name,
            Self::Name => Self::Rate,
        }
    }

    /// Returns the word for the order.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Total => "total",
            Self::Name => "name",
        }
    }
}

impl Reading {
    /// Returns the spans that are known to be open.
    pub(super) fn spans(&self) -> &[SpanReport] {
        self.open_spans.as_deref().unwrap_or_default()
    }

    /// Returns the sum of all events: of the interval, and in total.
    pub(super) fn sum(&self) -> [Count; 2] {
        let mut sum = [Count::default(); 2];
        for row in &self.events {
            sum[0].add(row.interval);
            sum[1].add(row.total);
        }
        sum
    }

    /// Returns the age of an open span in seconds.
    pub(super) fn age(&self, span: &SpanReport) -> f64 {
        let of_trace = span.age_ns.parse().unwrap_or(0i64);
        let age = match (self.state, span.opened_ns.parse::<i64>()) {
            (State::Live, Ok(opened)) => self.at_ns.saturating_sub(opened),
            _ => of_trace,
        };
        age.max(0) as f64 / 1e9
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A reading of an interval of two seconds.
    pub(crate) fn reading() -> Reading {
        let interval = Duration::from_secs(2);
        let count = |events, size| Count { events, bytes: events * size };
        let totals = BTreeMap::from([
            (("main".to_owned(), "shop:order".to_owned()), [count(100, 32), count(1000, 32)]),
            (("main".to_owned(), "shop:end".to_owned()), [count(1, 24), count(1, 24)]),
        ]);
        let ring = RingRow {
            channel: "main".to_owned(),
            cpu: Some(0),
            mode: "overwrite",
            size: 1 << 20,
            held: 1_000_000,
            overwritten: 5,
            written: Some(1600),
            bytes_per_second: Some(800.0),
            oldest_seconds: Some(4.0),
            holds_seconds: Some(1310.7),
        };
        let full = "discarded: the ring was full";
        let lost = LossRow {
            channel: Some("main".to_owned()),
            cause: full,
            what: "events",
            count: 3,
            interval: 1,
        };
        let span = SpanReport {
            id: 9,
            parent: 0,
            opened_ns: "1000000000".to_owned(),
            age_ns: "0".to_owned(),
            pid: 1,
            tid: 2,
            entered_tid: None,
            threads: 0,
            level: 3,
            target: "shop".to_owned(),
            name: "payment".to_owned(),
            fields: "id=7".to_owned(),
        };
        Reading {
            schema: SCHEMA,
            session: "svc".to_owned(),
            folder: "/dev/shm/svc".to_owned(),
            state: State::Live,
            ended: None,
            unknown_end: None,
            recording: true,
            at_ns: 3_500_000_000,
            interval,
            exact: true,
            exact_total: true,
            uncounted_bytes: 0,
            events: event_rows(&totals, interval),
            rings: vec![ring],
            losses: vec![lost],
            open_spans: Some(vec![span]),
            metrics: Metrics::default(),
        }
    }

    #[test]
    fn rates_are_counts_by_seconds() {
        let reading = reading();
        let rates: Vec<(f64, f64)> = reading
            .events
            .iter()
            .map(|row| (row.events_per_second, row.bytes_per_second))
            .collect();
        assert_eq!(rates, [(50.0, 1600.0), (0.5, 12.0)]);
        assert_eq!(
            reading.sum(),
            [Count { events: 101, bytes: 3224 }, Count { events: 1001, bytes: 32024 }]
        );
        assert_eq!(rate(7, Duration::ZERO), 0.0);
        assert_eq!(reading.age(&reading.spans()[0]), 2.5);
        let ended = Reading { state: State::Ended, ..reading };
        assert_eq!(ended.age(&ended.spans()[0]), 0.0, "the age at the end");
    }
}
