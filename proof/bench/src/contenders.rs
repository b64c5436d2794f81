//! The contenders of `bench record`, a row each. Their code is in `bench/`, the package
//! `lastwords-bench`.

use std::fmt;

/// The fields of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    A,
    B,
}

impl Payload {
    pub(super) const ALL: [Self; 2] = [Self::A, Self::B];

    /// As a contender's command line and `--json` have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "u32 + u64",
            Self::B => "u32 + u64 + 16-byte string",
        })
    }
}

/// Where a contender's program comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Built into `lastwords-bench`; a slot still empty if `lastwords-bench list` does not print
    /// its name.
    Rust,
    /// The same, of a counter or a histogram: the number alone.
    Number,
    /// `bench/c/floor.c`.
    Floor,
    /// `bench/c/model.c`.
    Model,
    /// `bench/c/lttng.c`, run beside a session daemon of its own.
    Lttng,
    /// `bench/c/lastwords.c`, linked with our library for C.
    OurC,
}

/// A recorder that is measured.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) source: Source,
    /// The share of `--events` that it records, as multiplier and divisor: the slow ones record
    /// fewer, the disabled ones more, so that each takes some tens or hundreds of milliseconds.
    share: (u64, u64),
}

impl Contender {
    /// How many events it records in a run with `--events` so many.
    pub(super) fn events(&self, events: u64) -> u64 {
        let (times, divided_by) = self.share;
        (events.saturating_mul(times) / divided_by).max(1)
    }

    /// Whether it is measured with this payload. The floor stores 32 bytes whatever the payload.
    pub(super) fn takes(&self, payload: Payload) -> bool {
        !matches!(self.source, Source::Floor | Source::Number) || payload == Payload::A
    }
}

type Share = (u64, u64);

const fn row(name: &'static str, source: Source, share: Share, what: &'static str) -> Contender {
    Contender { name, what, source, share }
}

const fn rust(name: &'static str, share: Share, what: &'static str) -> Contender {
    row(name, Source::Rust, share, what)
}

use Source::{Floor, Lttng, Model, Number, OurC};

/// All of them, in the order in which they are printed.
pub(super) const ALL: &[Contender] = &[
    row("floor", Floor, (1, 1), "F: a time stamp and a store of 32 bytes, hand-written C"),
    row(
        "model",
        Model,
        (1, 1),
        "the least of this design: no CPUs, sections, rules; hand-written C",
    ),
    rust("lastwords-rseq", (1, 1), "event!, reservation by restartable sequence"),
    rust("lastwords-lockless", (1, 1), "event!, reservation by compare-and-swap"),
    rust("lastwords-locked", (1, 4), "event!, reservation under a lock"),
    row("lastwords-c", OurC, (1, 1), "the same from C, the default reservation"),
    rust("lastwords-tracing", (1, 2), "through the layer for tracing"),
    rust("lastwords-span", (1, 2), "a span entered and left, through the layer for tracing"),
    rust("lastwords-tracing-event", (1, 2), "an event through our subscriber for tracing"),
    rust("lastwords-tracing-scoped", (1, 2), "the same under with_default"),
    rust(
        "lastwords-tracing-span",
        (1, 4),
        "a span with an event, from new to close: our subscriber",
    ),
    rust("lastwords-tracing-span-layer", (1, 4), "the same: our layer on a registry"),
    rust("lastwords-tracing-optional", (1, 4), "12 optional fields in an event, our subscriber"),
    rust(
        "tracing-registry-scoped",
        (1, 2),
        "an event, tracing's registry alone, under with_default",
    ),
    rust("tracing-registry-span", (1, 4), "a span as above, tracing's registry alone"),
    rust(
        "tracing-registry-closing",
        (1, 4),
        "the same under a layer that does nothing: spans are freed",
    ),
    rust("tracing-reads", (1, 2), "an event, a subscriber that only reads its values"),
    rust("tracing-reads-optional", (1, 4), "12 optional fields in an event, the same subscriber"),
    rust("lastwords-off", (8, 1), "event! that is not enabled"),
    row("lttng", Lttng, (1, 2), "LTTng-UST, snapshot session, overwrite, buffers per user"),
    row("lttng-off", Lttng, (8, 1), "LTTng-UST, not enabled"),
    rust("backbeat", (1, 1), "crate backbeat"),
    rust("backbeat-tsc", (1, 1), "crate backbeat with the time stamp counter as its clock"),
    rust("backbeat-off", (8, 1), "crate backbeat, not enabled"),
    rust("tracing-flight-recorder", (1, 8), "crate tracing-flight-recorder"),
    rust("tracing-none", (8, 1), "tracing without a subscriber"),
    row("lastwords-counter", Number, (4, 1), "counter!, in memory that outlives the process"),
    row("prometheus-counter", Number, (4, 1), "crate prometheus, a counter in the process"),
    row("lastwords-histogram", Number, (2, 1), "histogram!, 496 buckets"),
    row("prometheus-histogram", Number, (2, 1), "crate prometheus, a histogram with 11 buckets"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (i, contender) in ALL.iter().enumerate() {
            assert!(
                ALL[..i].iter().all(|other| other.name != contender.name),
                "{}",
                contender.name
            );
        }
    }

    #[test]
    fn shares() {
        let events = |name: &str| ALL.iter().find(|c| c.name == name).map(|c| c.events(4));
        assert_eq!(events("floor"), Some(4));
        assert_eq!(events("lttng"), Some(2));
        assert_eq!(events("tracing-flight-recorder"), Some(1));
    }
}
