//! The expected result of each of the kernel's tests.

use std::fmt::Write as _;

/// How a test ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Fail,
    /// The test itself found that it does not apply.
    Unsupported,
    /// The test is not for instances.
    NotRun,
}

impl Verdict {
    pub(super) fn parse(word: &str) -> Option<Self> {
        match word {
            "PASS" => Some(Self::Pass),
            "FAIL" => Some(Self::Fail),
            "UNSUPPORTED" => Some(Self::Unsupported),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unsupported => "does not apply",
            Self::NotRun => "",
        }
    }
}

/// A test, or a folder of tests that is not run.
pub(super) struct Row {
    /// The file below `test.d`, or the folder.
    pub(super) test: &'static str,
    /// At the top level.
    pub(super) top: Verdict,
    /// In an instance that the test makes.
    pub(super) instance: Verdict,
    /// The test takes more than a second.
    pub(super) slow: bool,
    /// The reason, where it does not pass.
    pub(super) why: &'static str,
}

impl Row {
    /// Returns true for a test that is run, and false for others and for folders.
    pub(super) fn is_run(&self) -> bool {
        self.test.ends_with(".tc") && self.top != NotRun
    }
}

const fn row(
    test: &'static str,
    top: Verdict,
    instance: Verdict,
    slow: bool,
    why: &'static str,
) -> Row {
    Row { test, top, instance, slow, why }
}

use Verdict::{Fail, NotRun, Pass, Unsupported};

const EVENT_FORK: &str = "the parts about the lists pass; then `options/event-fork` is set, but no recorder knows which thread has \
                          started another. A new instance has no events";

const LONG_MARK: &str = "6.12: a write of up to 16 KiB is one event and one line; the test expects that it is broken at the size of a sub-buffer";

/// All tests of 6.1 and 6.12, those of a folder in one row where none of them applies. A source has
/// the tests of its release.
pub(super) const TABLE: &[Row] = &[
    row("00basic/basic1.tc", Pass, NotRun, false, ""),
    row("00basic/basic2.tc", Pass, Pass, false, ""),
    row("00basic/basic3.tc", Pass, Pass, false, ""),
    row("00basic/basic4.tc", Pass, NotRun, false, ""),
    row("00basic/mount_options.tc", Unsupported, NotRun, false, "6.12: the mount has no options"),
    row(
        "00basic/ringbuffer_size.tc",
        Fail,
        Fail,
        false,
        "the program that started the session chose the size; in an instance, the size of all CPUs changes, but not that of one",
    ),
    row("00basic/ringbuffer_subbuf_size.tc", Fail, Fail, false, LONG_MARK),
    row("00basic/snapshot.tc", Pass, Pass, false, ""),
    row("00basic/snapshot1.tc", Pass, Pass, false, ""),
    row("00basic/test_ownership.tc", Unsupported, NotRun, false, "6.12: the mount has no options"),
    row("00basic/trace_marker.tc", Fail, Fail, false, LONG_MARK),
    row("00basic/trace_pipe.tc", Pass, Pass, false, ""),
    row(
        "event/event-enable.tc",
        Pass,
        Unsupported,
        false,
        "an instance that `mkdir` makes has no application that records such events",
    ),
    row("event/event-no-pid.tc", Fail, Unsupported, false, EVENT_FORK),
    row("event/event-pid.tc", Fail, Unsupported, false, EVENT_FORK),
    row(
        "event/subsystem-enable.tc",
        Pass,
        Unsupported,
        false,
        "an instance that `mkdir` makes has no application that records such events",
    ),
    row("event/toplevel-enable.tc", Pass, NotRun, false, ""),
    row(
        "filter/event-filter-incomplete.tc",
        Pass,
        Unsupported,
        false,
        "a new instance has no events",
    ),
    row(
        "filter/event-filter-function.tc",
        Unsupported,
        Unsupported,
        false,
        "6.12: there are no functions of the kernel",
    ),
    row("ftrace/tracing-error-log.tc", Pass, NotRun, false, ""),
    row("instances/instance-event.tc", Pass, NotRun, true, ""),
    row("instances/instance.tc", Pass, NotRun, true, ""),
    row("trigger/trigger-eventonoff.tc", Pass, Unsupported, false, "a new instance has no events"),
    row(
        "trigger/trigger-filter.tc",
        Fail,
        Unsupported,
        false,
        "the test expects that two fields cannot be compared; here they can",
    ),
    row("trigger/trigger-hist-mod.tc", Unsupported, Unsupported, false, "there are no histograms"),
    row(
        "trigger/trigger-hist-syntax-errors.tc",
        Unsupported,
        NotRun,
        false,
        "there are no histograms",
    ),
    row("trigger/trigger-hist.tc", Unsupported, Unsupported, false, "there are no histograms"),
    row("trigger/trigger-multihist.tc", Unsupported, Unsupported, false, "there are no histograms"),
    row("trigger/trigger-snapshot.tc", Pass, NotRun, false, ""),
    row(
        "trigger/trigger-stacktrace.tc",
        Fail,
        NotRun,
        false,
        "there are no triggers that record a stack",
    ),
    row(
        "trigger/trigger-trace-marker-hist.tc",
        Unsupported,
        Unsupported,
        false,
        "there are no histograms",
    ),
    row("trigger/trigger-trace-marker-snapshot.tc", Pass, Pass, true, ""),
    row("trigger/trigger-traceonoff.tc", Pass, NotRun, false, ""),
    row("direct", NotRun, NotRun, false, "not run: kprobes and direct calls of kernel functions"),
    row("dynevent", NotRun, NotRun, false, "not run: kprobes, event probes and synthetic events"),
    row("ftrace", NotRun, NotRun, false, "not run: function tracers (all but the test above)"),
    row("kprobe", NotRun, NotRun, false, "not run: kprobes and uprobes"),
    row("preemptirq", NotRun, NotRun, false, "not run: tracers of latencies"),
    row("tracer", NotRun, NotRun, false, "not run: tracers of wake-ups"),
    row("trigger/inter-event", NotRun, NotRun, false, "not run: histograms and synthetic events"),
    row("event/trace_printk.tc", NotRun, NotRun, false, "not run: a kernel module"),
    row(
        "trigger/trigger-trace-marker-synthetic*",
        NotRun,
        NotRun,
        false,
        "not run: synthetic events",
    ),
    row("selftest", NotRun, NotRun, false, "not run: the scripts themselves"),
];

/// Returns the table of docs/MOUNT.md.
pub(super) fn markdown() -> String {
    let mut text =
        String::from("| test | top level | instance | why |\n| --- | --- | --- | --- |\n");
    for row in TABLE {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            row.test,
            row.top.word(),
            row.instance.word(),
            row.why
        );
    }
    text
}
