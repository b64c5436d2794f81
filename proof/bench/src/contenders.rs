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
    /// `bench/c/floor.c`.
    Floor,
    /// `bench/c/model.c`.
    Model,
    /// `bench/c/lttng.c`, run beside a session daemon of its own.
    Lttng,
    /// `bench/c/lastwords.c`, linked with our library for C; a slot still empty while there is no
    /// such file.
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
        self.source != Source::Floor || payload == Payload::A
    }
}

const fn row(
    name: &'static str,
    source: Source,
    share: (u64, u64),
    what: &'static str,
) -> Contender {
    Contender { name, what, source, share }
}

use Source::{Floor, Lttng, Model, OurC, Rust};

/// All of them, in the order in which they are printed.
pub(super) const ALL: &[Contender] = &[
    row("floor", Floor, (1, 1), "F: a time stamp and a store of 32 bytes, hand-written C"),
    row(
        "model",
        Model,
        (1, 1),
        "the least that this design asks: no CPUs, no sections, no rules, hand-written C",
    ),
    row("lastwords-rseq", Rust, (1, 1), "event!, reservation by restartable sequence"),
    row("lastwords-lockless", Rust, (1, 1), "event!, reservation by compare-and-swap"),
    row("lastwords-locked", Rust, (1, 4), "event!, reservation under a lock"),
    row("lastwords-c", OurC, (1, 1), "the same from C, the default reservation"),
    row("lastwords-tracing", Rust, (1, 2), "through the layer for tracing"),
    row("lastwords-span", Rust, (1, 2), "a span entered and left, through the layer for tracing"),
    row("lastwords-tracing-event", Rust, (1, 2), "an event through our subscriber for tracing"),
    row("lastwords-tracing-scoped", Rust, (1, 2), "the same under with_default"),
    row(
        "lastwords-tracing-span",
        Rust,
        (1, 4),
        "a span made, entered, with an event, and closed: our subscriber",
    ),
    row("lastwords-tracing-span-layer", Rust, (1, 4), "the same: our layer on a registry"),
    row(
        "lastwords-tracing-optional",
        Rust,
        (1, 4),
        "an event with 12 optional fields, our subscriber",
    ),
    row(
        "tracing-registry-scoped",
        Rust,
        (1, 2),
        "an event, the registry of tracing-subscriber alone, under with_default",
    ),
    row(
        "tracing-registry-span",
        Rust,
        (1, 4),
        "a span as above, the registry of tracing-subscriber alone",
    ),
    row(
        "tracing-registry-closing",
        Rust,
        (1, 4),
        "the same under a layer that does nothing: spans are freed",
    ),
    row("tracing-reads", Rust, (1, 2), "an event, a subscriber that only reads its values"),
    row(
        "tracing-reads-optional",
        Rust,
        (1, 4),
        "an event with 12 optional fields, the same subscriber",
    ),
    row("lastwords-off", Rust, (8, 1), "event! that is not enabled"),
    row("lttng", Lttng, (1, 2), "LTTng-UST, snapshot session, overwrite, buffers per user"),
    row("lttng-off", Lttng, (8, 1), "LTTng-UST, not enabled"),
    row("backbeat", Rust, (1, 1), "crate backbeat"),
    row("backbeat-tsc", Rust, (1, 1), "crate backbeat with the time stamp counter as its clock"),
    row("backbeat-off", Rust, (8, 1), "crate backbeat, not enabled"),
    row("tracing-flight-recorder", Rust, (1, 8), "crate tracing-flight-recorder"),
    row("tracing-none", Rust, (8, 1), "tracing without a subscriber"),
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
