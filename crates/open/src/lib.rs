//! Opens whatever a path names, and finds every trace in it.
//!
//! [`open()`] takes paths. It looks at each input once: a compressed core is decompressed once,
//! and all walkers share its image. The library does not print: remarks and failures are data
//! ([`Opened::notes`], [`Opened::failures`]), and a callback receives the progress of long work
//! ([`Options::watch`]).
//!
//! A tool that prints the last 100 events of any input:
//!
//! ```no_run
//! use lastwords_open::{Options, Order, Selection, open};
//!
//! let input = std::env::args().nth(1).expect("a file or folder");
//! let opened = open(&[input], &Options::default())?;
//! let last = Selection { last: Some(100), ..Selection::default() };
//! for event in opened.select(last)?.events(Order::Time) {
//!     println!("{}", event?);
//! }
//! opened.failures.iter().for_each(|failure| eprintln!("{}", failure.why));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod account;
mod backtrace;
mod bundle;
mod candidate;
mod container;
mod counts;
mod crash;
mod describe;
pub mod diff;
mod dumped_kernel;
mod duplicates;
mod ended;
mod escape;
mod events;
mod file_names;
mod fired;
mod holds;
mod inputs;
mod inside_root;
pub mod inspect;
mod locate;
mod lttng;
mod lttng_folder;
mod lttng_session;
mod machine;
mod machine_traces;
mod memory;
mod meter;
mod nothing;
mod package;
mod placement;
mod places;
mod pstore;
mod reason;
mod reboot;
mod relocated;
mod reserved;
mod running;
mod session;
mod shortage;
mod source;
mod symbols;
mod trace;
pub mod why;

pub use account::{accounts, accounts_after_reading};
pub use backtrace::write_verdict;
pub use bundle::{Bundle, BundleError, folder as bundle_folder, tracefs_folder};
pub use container::ends_with_container;
pub use counts::{Count, StreamCounts, counts};
pub use crash::{Crash, Frame, Function};
pub use dumped_kernel::DumpedKernel;
pub use ended::EndedReport;
pub use escape::escape;
pub use events::Selected;
pub use file_names::FileNames;
pub use fired::{Fired, SNAPSHOT_FILE, SNAPSHOT_TRACE};
pub use holds::{Holds, Observed, duration};
pub use inputs::Inputs;
pub use lastwords_folders::ENDED_EARLY;
pub use lastwords_kernel::pstore::{Kind as PstoreKind, Zone as PstoreZone};
pub use lastwords_render::evidence::{Account, Amount, Losses};
pub use lastwords_render::filter::nearest_names;
pub use lastwords_render::iter::{Event, EventKind, EventRef, Events, Field, Ids, Order, Value};
pub use lastwords_render::redact::Redaction;
pub use lastwords_render::select::Selection;
pub use lttng_folder::LttngFolder;
pub use lttng_session::Lttng;
pub use machine::Machine;
pub use memory::{Memory, RawRun};
pub use meter::{Meter, Shown};
pub use nothing::what_has_no_trace;
pub use pstore::Pstore;
pub use reason::Reason;
pub use reboot::{PersistentInstance, free_range, instance_arguments};
pub use running::{instance_name, options_on, tracer_now, tracer_real_time};
pub use session::{FolderState, RecoveredSession};
pub use shortage::Shortage;
pub use source::{SourceKind, is_ctf_stream, is_instance, kinds_of_inputs};
pub use symbols::{DebugFile, Fetch, Symbolizer, check_build_id};
pub use trace::{Body, Ftrace, Trace, UnrelatedClock, unrelated_clocks};

use crate::reason::NothingToRecover;
use lastwords_image::core::CoreInfo;
use lastwords_image::{Watch, unwatched};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the state of the session in a folder, if it is known.
pub type StateOf<'a> = &'a (dyn Fn(&Path) -> Option<FolderState> + Sync);

/// Options for opening inputs.
#[derive(Clone)]
pub struct Options<'a> {
    /// Read snapshots instead of live rings.
    pub snapshot: bool,
    /// Read all of the saved snapshot of a trigger, not only the window of the trigger.
    pub whole: bool,
    /// Globs for the names of the wanted sessions and instances (`top` is a kernel's top level).
    /// If it is empty, all are wanted.
    pub names: Vec<String>,
    /// A process whose sessions are read besides the inputs: those in memfds, or else those on its
    /// heap.
    pub pid: Option<u32>,
    /// Options for reading a kernel's memory.
    pub memory: Memory,
    /// The description of the events of LTTng's user-space streams: a metadata file, or a core of
    /// a daemon of LTTng.
    pub metadata: Option<PathBuf>,
    /// Descriptions of the events of a persistent ring buffer of ftrace: bundles, crash dumps,
    /// kernel images or packages of the kernel that wrote it. The path `running` stands for the
    /// running kernel. If there are several, those that contradict the ring buffer are left out,
    /// and the first of the others is used.
    pub bundle: Vec<PathBuf>,
    /// A factor for the work that an input may cost relative to its size. It is 1, unless an input
    /// was refused for its budget.
    pub budget: u64,
    /// Search all memory for sub-buffers and packets instead of following structures.
    pub carve: bool,
    /// Compare the checksums of sub-buffers of sessions when their events are read, not before.
    /// Reading is faster, and accounts are complete in any case
    /// ([`lastwords_session::Options::late`]). It has no effect with [`Self::carve`].
    pub late: bool,
    /// The fields whose values are hidden in everything that is read from the traces.
    pub redaction: Arc<Redaction>,
    /// Tells what is known of a session that is in its folder: whether processes still record in
    /// it. Without it, nothing is.
    pub state: StateOf<'a>,
    /// A callback for the progress of long work.
    pub watch: Watch<'a>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        let memory = Memory::default();
        let (names, watch) = (Vec::new(), &unwatched);
        Self {
            snapshot: false,
            whole: false,
            names,
            pid: None,
            memory,
            metadata: None,
            bundle: Vec::new(),
            budget: 1,
            carve: false,
            late: false,
            redaction: Arc::default(),
            state: &|_| None,
            watch,
        }
    }
}

impl Options<'_> {
    /// Returns true if a session or instance with this name is wanted.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|glob| lastwords_glob::matches(glob, name))
    }
}

/// The result of opening inputs.
#[derive(Default)]
pub struct Opened {
    /// All inputs that hold something, in the order of the inputs. An input is listed even if none
    /// of its traces is wanted.
    pub origins: Vec<Arc<Origin>>,
    /// The traces that are wanted, in the order of the inputs.
    pub traces: Vec<Trace>,
    /// Names of traces that [`Options::names`] leaves out.
    pub unwanted: Vec<String>,
    /// Remarks.
    pub notes: Vec<String>,
    /// Inputs and parts of them that could not be opened, in the order of the inputs.
    pub failures: Vec<Failure>,
    /// In a step that follows one session: the session's clock, in ticks, up to which its events
    /// were read. Later events come in the next step.
    pub read_until: Option<u64>,
    /// Errors of the location that is being opened.
    errors: Vec<anyhow::Error>,
}

/// An input.
pub struct Origin {
    /// The path that was named, or the file or folder that was found there.
    pub path: PathBuf,
    /// The kind of the input.
    pub kind: SourceKind,
    /// The facts about its process that a process core has.
    pub core: Option<CoreInfo>,
    /// The kernel's tracer, if the input is a dump of its memory or a trace.dat file.
    pub machine: Option<Machine>,
}

impl Origin {
    pub(crate) fn new(path: &Path, kind: SourceKind) -> Self {
        Self { path: path.to_owned(), kind, core: None, machine: None }
    }
}

/// The severity of a failure, the least severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The input has nothing to recover and was not named.
    Note,
    /// The input was found in a named folder and should hold something: a loss.
    Loss,
    /// The input was named.
    Error,
}

/// An input, or a part of one, that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Failure {
    /// The file or folder, if there is a single one.
    pub path: Option<PathBuf>,
    /// The severity.
    pub severity: Severity,
    /// The reason, for programs.
    pub reason: Reason,
    /// The path and the reason, one sentence.
    pub why: String,
}

impl Failure {
    /// Makes the failure of an input. `is_named` says that it was not found in a folder.
    fn new(path: Option<PathBuf>, is_named: bool, error: &anyhow::Error) -> Self {
        let is_note = error.downcast_ref::<NothingToRecover>().is_some_and(|own| !own.is_loss);
        let severity = match is_named {
            true => Severity::Error,
            false if is_note => Severity::Note,
            false => Severity::Loss,
        };
        Self { path, severity, reason: Reason::from_error(error), why: chain(error) }
    }
}

/// The reason why inputs cannot be opened with the given options. An input that cannot be read is
/// none: it is a [`Failure`] of what is opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process of [`Options::pid`] cannot be read.
    #[error("{why}")]
    Process {
        /// Its number.
        pid: u32,
        /// The reason, one sentence.
        why: String,
    },
    /// The file of [`Options::metadata`] cannot be read, or is no metadata.
    #[error("{why}")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The path and the reason, one sentence.
        why: String,
    },
}

/// The result of opening.
pub type Result<T> = std::result::Result<T, Error>;

impl Opened {
    /// Returns the worst severity of the failures, or none if everything was opened.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.failures.iter().map(|failure| failure.severity).max()
    }

    /// Adds an input and its traces, each with its name.
    fn add(&mut self, options: &Options<'_>, origin: Origin, bodies: Vec<(String, Body)>) {
        let origin = Arc::new(origin);
        self.origins.push(Arc::clone(&origin));
        for (name, body) in bodies {
            if options.wants(&name) {
                let redaction = Arc::clone(&options.redaction);
                let newest = Arc::default();
                self.traces.push(Trace {
                    name,
                    origin: Arc::clone(&origin),
                    body,
                    redaction,
                    newest,
                });
            } else {
                // The name of a session can be lost; then its path names it.
                self.unwanted.push(if name.is_empty() {
                    origin.path.display().to_string()
                } else {
                    name
                });
            }
        }
    }
}

/// Opens the files and folders of all paths. An unreadable or empty input is not an error but an
/// entry in [`Opened::failures`].
///
/// # Errors
/// The process of [`Options::pid`] cannot be read; a file in [`Options`] does not exist.
pub fn open<P: AsRef<Path>>(paths: &[P], options: &Options<'_>) -> Result<Opened> {
    Inputs::find(paths, options)?.open(options, &|_| None)
}

/// Formats an error and its causes without repetitions. A message that its cause contains is left
/// out, and so is a cause that an earlier message contains.
#[must_use]
pub fn chain(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        match parts.last_mut() {
            Some(before) if before.contains(&cause) => {}
            Some(before) if cause.starts_with(&format!("{before}: ")) => *before = cause,
            _ => parts.push(cause),
        }
    }
    parts.join(": ")
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
