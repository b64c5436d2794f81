//! Decides why a session's processes, or a kernel, ended, and with which evidence.
//!
//! A cause is named only if something proves it: the exit record in the session, a crash that
//! nothing shows to be survived, the signal in a process core, or a line of the kernel's log that
//! names the same process at the time of its end. All else is a hint. A verdict that is wrong is
//! worse than one that is unknown.

mod control_group;
mod kernel;
mod kernel_log;
mod outside;
mod session;
mod signature;

pub use kernel::kernel;
pub use kernel_log::KernelLine;
pub use outside::{OomKills, Outside, PstoreRecord};
pub use session::session;
pub use signature::{KernelFrames, kernel_frames, kernel_signature, session_signature};

use crate::{Crash, SourceKind};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

/// What ended a session's processes or a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Nothing: it lives.
    Alive,
    /// It ended as its program wanted: the session was closed, or the exit status was 0.
    GoodOrder,
    /// It exited with this status, which is not 0.
    Exit(u8),
    /// The program reported an error as its end.
    Error,
    /// A panic.
    Panic,
    /// A signal; its number is none if it is not known.
    Signal(Option<u8>),
    /// The kernel killed it because memory ran out.
    OutOfMemory,
    /// The kernel panicked.
    KernelPanic,
    /// The kernel ended by an oops, without a panic.
    KernelOops,
    /// The kernel's watchdog found a CPU, a task or its user that was stuck.
    Lockup,
    /// A user restarted, halted or switched off the machine.
    Reboot,
    /// Nothing proves what it was.
    Unknown,
}

impl Cause {
    /// Returns the cause in one word, as in `--json`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::GoodOrder => "good-order",
            Self::Exit(_) => "exit",
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Signal(_) => "signal",
            Self::OutOfMemory => "out-of-memory",
            Self::KernelPanic => "kernel-panic",
            Self::KernelOops => "kernel-oops",
            Self::Lockup => "lockup",
            Self::Reboot => "reboot",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the number of the signal, or the exit status.
    #[must_use]
    pub fn number(self) -> Option<u8> {
        match self {
            Self::Exit(number) => Some(number),
            Self::Signal(number) => number,
            _ => None,
        }
    }
}

/// Where evidence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Witness {
    /// The table of the session's processes, and what marks those that died.
    Processes,
    /// The exit record in the session.
    ExitRecord,
    /// An event of the panic hook or of a signal handler.
    CrashEvent,
    /// A process core.
    Core,
    /// The log of a kernel.
    KernelLog,
    /// What the kernel kept in the firmware's memory for the next boot.
    Pstore,
    /// The id of the machine's boot.
    Boot,
    /// What the kind of the input is.
    Input,
}

impl Witness {
    /// Returns the words for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::ExitRecord => "exit record",
            Self::CrashEvent => "crash event",
            Self::Core => "core",
            Self::KernelLog => "kernel's log",
            Self::Pstore => "pstore",
            Self::Boot => "boot",
            Self::Input => "input",
        }
    }
}

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Where it comes from.
    pub from: Witness,
    /// What it shows.
    pub text: String,
}

/// The cause of an end, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The cause.
    pub cause: Cause,
    /// The cause in one sentence, without a full stop.
    pub sentence: String,
    /// The time of the end in nanoseconds since the epoch; none if it is not known.
    pub at: Option<u64>,
    /// The time is the last sign of life: the end came later, or then.
    pub is_last_seen: bool,
    /// What proves the cause, and what was looked at.
    pub evidence: Vec<Evidence>,
    /// What may have to do with the end, but proves nothing.
    pub hints: Vec<String>,
    /// The crash that was recorded, if it is the cause.
    pub crash: Option<Crash>,
    /// The other crashes that were recorded, in order of time.
    pub others: Vec<OtherCrash>,
}

/// A crash that was recorded and is not the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherCrash {
    /// The crash.
    pub crash: Crash,
    /// What followed it, in words.
    pub fate: String,
    /// The process went on, or ended in good order.
    pub is_survived: bool,
}

impl Verdict {
    fn new(cause: Cause, sentence: impl Into<String>) -> Self {
        Self {
            cause,
            sentence: sentence.into(),
            at: None,
            is_last_seen: false,
            evidence: Vec::new(),
            hints: Vec::new(),
            crash: None,
            others: Vec::new(),
        }
    }

    /// Returns true if something died: it neither lives nor ended as it wanted, and if the cause is
    /// unknown, it is known that the process is gone.
    #[must_use]
    pub fn is_death(&self) -> bool {
        match self.cause {
            Cause::Alive | Cause::GoodOrder => false,
            Cause::Unknown => self.is_last_seen,
            _ => true,
        }
    }

    /// Returns true if a crash is evidence for the cause.
    #[must_use]
    pub fn has_evidence(&self, crash: &Crash) -> bool {
        let summary = crash.summary();
        crash.later_events == 0 && self.evidence.iter().any(|own| own.text == summary)
    }

    /// Returns all crashes that were recorded, in order of time.
    #[must_use]
    pub fn crashes(&self) -> Vec<Crash> {
        let others = self.others.iter().map(|other| &other.crash);
        let mut all: Vec<Crash> = others.chain(&self.crash).cloned().collect();
        all.sort_by_key(Crash::nanoseconds);
        all
    }

    /// Returns all crashes that were recorded, to name the frames of their backtraces.
    pub fn crashes_mut(&mut self) -> impl Iterator<Item = &mut Crash> {
        self.others.iter_mut().map(|other| &mut other.crash).chain(&mut self.crash)
    }

    fn with(mut self, from: Witness, text: impl Into<String>) -> Self {
        self.evidence.push(Evidence { from, text: text.into() });
        self
    }
}

/// `cause` is one word, `number` the signal or the exit status, and `at_ns` text, because JSON
/// readers lose digits of large numbers.
impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut verdict = serializer.serialize_struct("Verdict", 8)?;
        verdict.serialize_field("cause", self.cause.word())?;
        verdict.serialize_field("number", &self.cause.number())?;
        verdict.serialize_field("sentence", &self.sentence)?;
        verdict.serialize_field("at_ns", &self.at.map(|at| at.to_string()))?;
        verdict.serialize_field("last_seen", &self.is_last_seen)?;
        verdict.serialize_field("evidence", &self.evidence)?;
        verdict.serialize_field("hints", &self.hints)?;
        verdict.serialize_field("crash", &self.crash)?;
        verdict.end()
    }
}

/// Returns the verdict on an input that does not show how what it is of has ended.
#[must_use]
pub fn of_trace_alone(kind: SourceKind, outside: &Outside) -> Verdict {
    let (sentence, text) = match kind {
        SourceKind::Instance => {
            let verdict = Verdict::new(Cause::Alive, "the kernel runs");
            return verdict.with(Witness::Input, "it is an instance of the running kernel");
        }
        SourceKind::Persistent => (
            "the kernel that recorded ended by a panic, a reset, a reboot or loss of power: unknown which",
            "a ring that outlives a reboot does not show how its kernel ended",
        ),
        _ => (
            "unknown: the input has events, but does not show how what recorded them ended",
            "files of a tracer do not show how a program or a kernel ended",
        ),
    };
    let mut verdict = Verdict::new(Cause::Unknown, sentence).with(Witness::Input, text);
    if kind == SourceKind::Persistent {
        // The boot that wrote a ring is not known, so that none of these is proof.
        let hint = |record: &PstoreRecord| {
            let what = record.reason().unwrap_or("an entry");
            format!("pstore has {}: {what}; nothing shows that it is of the same boot", record.name)
        };
        verdict.hints.extend(outside.pstore.iter().map(hint));
    }
    verdict
}

/// Returns the name of a signal, or its number if the number differs between architectures.
#[must_use]
pub fn signal_name(number: u8) -> String {
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
        (31, "SIGSYS"),
    ];
    let known = names.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}
