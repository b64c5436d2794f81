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

const fn row(test: &'static str, top: Verdict, instance: Verdict, why: &'static str) -> Row {
    Row { test, top, instance, slow: false, why }
}

const fn passes(test: &'static str, instance: Verdict) -> Row {
    row(test, Pass, instance, "")
}

const fn slow(of: Row) -> Row {
    Row { slow: true, ..of }
}

const fn not_run(test: &'static str, why: &'static str) -> Row {
    row(test, NotRun, NotRun, why)
}

use Verdict::{Fail, NotRun, Pass, Unsupported};

const EVENT_FORK: &str = "the parts about the lists pass; then `options/event-fork` is set, but no recorder knows which thread has \
                          started another. A new instance has no events";

const LONG_MARK: &str = "6.12: a write of up to 16 KiB is one event and one line; the test expects that it is broken at the size of a sub-buffer";

const HISTOGRAMS: &str = "there are no histograms";

const NO_APPLICATION: &str =
    "an instance that `mkdir` makes has no application that records such events";

/// All tests of 6.1 and 6.12, those of a folder in one row where none of them applies. A source has
/// the tests of its release.
pub(super) const TABLE: &[Row] = &[
    passes("00basic/basic1.tc", NotRun),
    passes("00basic/basic2.tc", Pass),
    passes("00basic/basic3.tc", Pass),
    passes("00basic/basic4.tc", NotRun),
    row("00basic/mount_options.tc", Unsupported, NotRun, "6.12: the mount has no options"),
    row(
        "00basic/ringbuffer_size.tc",
        Fail,
        Fail,
        "the program that started the session chose the size; in an instance, the size of all CPUs changes, but not that of one",
    ),
    row("00basic/ringbuffer_subbuf_size.tc", Fail, Fail, LONG_MARK),
    passes("00basic/snapshot.tc", Pass),
    passes("00basic/snapshot1.tc", Pass),
    row("00basic/test_ownership.tc", Unsupported, NotRun, "6.12: the mount has no options"),
    row("00basic/trace_marker.tc", Fail, Fail, LONG_MARK),
    passes("00basic/trace_pipe.tc", Pass),
    row("event/event-enable.tc", Pass, Unsupported, NO_APPLICATION),
    row("event/event-no-pid.tc", Fail, Unsupported, EVENT_FORK),
    row("event/event-pid.tc", Fail, Unsupported, EVENT_FORK),
    row("event/subsystem-enable.tc", Pass, Unsupported, NO_APPLICATION),
    passes("event/toplevel-enable.tc", NotRun),
    row("filter/event-filter-incomplete.tc", Pass, Unsupported, "a new instance has no events"),
    row(
        "filter/event-filter-function.tc",
        Unsupported,
        Unsupported,
        "6.12: there are no functions of the kernel",
    ),
    passes("ftrace/tracing-error-log.tc", NotRun),
    slow(passes("instances/instance-event.tc", NotRun)),
    slow(passes("instances/instance.tc", NotRun)),
    row("trigger/trigger-eventonoff.tc", Pass, Unsupported, "a new instance has no events"),
    row(
        "trigger/trigger-filter.tc",
        Fail,
        Unsupported,
        "the test expects that two fields cannot be compared; here they can",
    ),
    row("trigger/trigger-hist-mod.tc", Unsupported, Unsupported, HISTOGRAMS),
    row("trigger/trigger-hist-syntax-errors.tc", Unsupported, NotRun, HISTOGRAMS),
    row("trigger/trigger-hist.tc", Unsupported, Unsupported, HISTOGRAMS),
    row("trigger/trigger-multihist.tc", Unsupported, Unsupported, HISTOGRAMS),
    passes("trigger/trigger-snapshot.tc", NotRun),
    row("trigger/trigger-stacktrace.tc", Fail, NotRun, "there are no triggers that record a stack"),
    row("trigger/trigger-trace-marker-hist.tc", Unsupported, Unsupported, HISTOGRAMS),
    slow(passes("trigger/trigger-trace-marker-snapshot.tc", Pass)),
    passes("trigger/trigger-traceonoff.tc", NotRun),
    not_run("direct", "not run: kprobes and direct calls of kernel functions"),
    not_run("dynevent", "not run: kprobes, event probes and synthetic events"),
    not_run("ftrace", "not run: function tracers (all but the test above)"),
    not_run("kprobe", "not run: kprobes and uprobes"),
    not_run("preemptirq", "not run: tracers of latencies"),
    not_run("tracer", "not run: tracers of wake-ups"),
    not_run("trigger/inter-event", "not run: histograms and synthetic events"),
    not_run("event/trace_printk.tc", "not run: a kernel module"),
    not_run("trigger/trigger-trace-marker-synthetic*", "not run: synthetic events"),
    not_run("selftest", "not run: the scripts themselves"),
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
