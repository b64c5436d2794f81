//! Opens whatever a path names, and finds every trace in it.
//!
//! [`open()`] takes paths and names of sessions. It looks at each input once: a compressed core is decompressed once, and all walkers
//! share its image. It knows nothing of terminals: what it has to say is data ([`Opened::notes`], [`Opened::lacking`]), and long work is
//! told to a callback ([`Options::watch`]).
//!
//! A tool that prints the last 100 events of each trace in any dump:
//!
//! ```no_run
//! use lastwords_formats::select::Selection;
//! use lastwords_open::{Options, open};
//!
//! let dump = std::env::args().nth(1).expect("a file or folder");
//! let opened = open(&[dump], &Options::default()).expect("options that hold");
//! let last = Selection { last: Some(100), ..Selection::default() };
//! for trace in &opened.traces {
//!     println!("{} of {} ({})", trace.name, trace.origin.path.display(), trace.origin.kind);
//!     trace.write_text(&last, &mut std::io::stdout()).expect("stdout");
//! }
//! opened.lacking.iter().for_each(|lack| eprintln!("{}", lack.why));
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

mod carve;
mod consume;
mod file;
mod live;
mod lttng;
mod machine;
mod memory;
mod meter;
mod places;
mod session;
mod sniff;
mod twice;

pub use consume::{Consumed, consume};
pub use live::{is_live, is_live_summary};
pub use lttng::Lttng;
pub use machine::Machine;
pub use memory::Memory;
pub use meter::{Meter, Shown};
pub use places::{folders_of, sessions_dir};
pub use session::{Found, read};

use lastwords_ctf::{Version, read};
use lastwords_formats::ftrace::text as ftrace;
use lastwords_formats::select::Selection;
use lastwords_formats::{Totals, text};
use lastwords_image::core::CoreInfo;
use lastwords_image::{Watch, unwatched};
use lastwords_walk::session::Upto;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use places::{Candidate, Nothing, Place};

/// Kinds of inputs, in words for messages.
pub const KINDS: &str = "a session (its name or folder), a process core, a kernel crash dump, raw memory (--raw), a trace.dat file, a folder \
                         of CTF, LTTng's shared memory, or a folder with any of these";

/// How inputs are opened.
#[derive(Clone)]
pub struct Options<'a> {
    /// Snapshots in place of live rings.
    pub snapshot: bool,
    /// Globs of the names of sessions and instances that are wanted (`top`: a kernel's top level); empty = all.
    pub names: Vec<String>,
    /// A process whose buffers are wanted beside the inputs: its sessions in memfds, or else on its heap.
    pub pid: Option<u32>,
    /// How a kernel's memory is to be read.
    pub memory: Memory,
    /// The description of the events of LTTng's user-space streams: a metadata file, or a core of a daemon of LTTng.
    pub metadata: Option<PathBuf>,
    /// How often the size of an input counts for what work on it may cost: 1, unless an input is refused for its Budget.
    pub budget: u64,
    /// Searches all memory for what no structure leads to, in place of following structures.
    pub carve: bool,
    /// Told how far long work is.
    pub watch: Watch<'a>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        let memory = Memory::default();
        let (names, watch) = (Vec::new(), &unwatched);
        Self { snapshot: false, names, pid: None, memory, metadata: None, budget: 1, carve: false, watch }
    }
}

impl Options<'_> {
    /// A session or instance of this name is wanted.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|glob| lastwords_glob::matches(glob, name))
    }
}

/// What was found.
#[derive(Default)]
pub struct Opened {
    /// Every input that holds something, in the order of the inputs, also where none of its traces is wanted.
    pub origins: Vec<Arc<Origin>>,
    /// The traces that are wanted, in the order of the inputs.
    pub traces: Vec<Trace>,
    /// Names of traces that [`Options::names`] leaves out.
    pub unwanted: Vec<String>,
    /// Remarks.
    pub notes: Vec<String>,
    /// What could not be had, in the order of the inputs.
    pub lacking: Vec<Lack>,
    /// Errors of the place that is being opened.
    errors: Vec<anyhow::Error>,
}

/// An input.
pub struct Origin {
    /// What was named, or the file or folder that was found there.
    pub path: PathBuf,
    /// What that is, in a few words.
    pub kind: &'static str,
    /// What a process core says of its process.
    pub core: Option<CoreInfo>,
    /// The kernel, where the input is of one: a dump of its memory, or a trace.dat file.
    pub machine: Option<Machine>,
}

/// A trace.
pub struct Trace {
    /// Name of the session or the instance (`top`: a kernel's top level).
    pub name: String,
    /// Where it was found.
    pub origin: Arc<Origin>,
    /// Its events.
    pub body: Body,
}

/// The events of a trace.
pub enum Body {
    /// A session of ours.
    Session(Box<Found>),
    /// A session of LTTng in memory.
    Lttng(Box<Lttng>),
    /// A folder of CTF.
    Ctf(Box<lastwords_ctf::read::Trace>),
    /// A trace array of a kernel's ftrace: its position in the arrays of the machine of [`Trace::origin`].
    Ftrace(usize),
}

impl Trace {
    /// The trace as packets, whose names are those that metadata of a version have; none of a kernel's ftrace.
    ///
    /// # Errors
    /// Its events cannot be decoded by what describes them.
    pub fn packets(&self, version: Version) -> Option<std::result::Result<read::Trace, lastwords_ctf::Error>> {
        let path = &self.origin.path;
        match &self.body {
            Body::Session(found) => Some(lastwords_ctf::session::trace(&found.session, path, version)),
            Body::Lttng(lttng) => Some(lttng.session.trace(path)),
            Body::Ctf(trace) => Some(Ok((**trace).clone())),
            Body::Ftrace(_) => None,
        }
    }

    /// Writes the selected events as text: each kind of trace in the form that people read it in.
    ///
    /// # Errors
    /// The events cannot be decoded; `out` cannot be written.
    pub fn write_text(
        &self,
        selection: &Selection,
        out: &mut dyn Write,
    ) -> std::result::Result<Totals, lastwords_ctf::Error> {
        let (zone, style) = (text::Zone::utc(), text::Style::Fields);
        if let Some(trace) = self.packets(Version::V2) {
            return text::write(&[trace?], style, selection, &zone, out, &read::unwatched, &mut |_| {});
        }
        let (Some(machine), Body::Ftrace(array)) = (&self.origin.machine, &self.body) else {
            return Ok(Totals::default());
        };
        let options =
            ftrace::Options { events: selection.events.clone(), last: selection.last, ..ftrace::Options::default() };
        let summary = ftrace::write_trace(out, &machine.tracing, *array, &options)?;
        Ok(Totals { events: summary.events, bytes: summary.bytes, faults: summary.faults, ..Totals::default() })
    }
}

/// How bad it is that something could not be had; the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It has nothing to recover, and was not named.
    Note,
    /// It lay in a folder that was named, and should hold something: a loss.
    Loss,
    /// It was named.
    Error,
}

/// Something that could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// How bad that is.
    pub severity: Severity,
    /// The path and the reason, one sentence.
    pub why: String,
}

/// Why inputs cannot be opened as the options say.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self(chain(&error))
    }
}

/// The result of opening.
pub type Result<T> = std::result::Result<T, Error>;

impl Opened {
    /// How bad it is what could not be had; none where all is there.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.lacking.iter().map(|lack| lack.severity).max()
    }

    /// Adds an input and its traces, each with its name.
    fn add(&mut self, options: &Options<'_>, origin: Origin, bodies: Vec<(String, Body)>) {
        let origin = Arc::new(origin);
        self.origins.push(Arc::clone(&origin));
        for (name, body) in bodies {
            if options.wants(&name) {
                self.traces.push(Trace { name, origin: Arc::clone(&origin), body });
            } else {
                self.unwanted.push(name);
            }
        }
    }
}

/// Opens the files and folders of all paths, and the sessions of all names. That an input cannot be read or holds nothing is no error:
/// [`Opened::lacking`] says so.
///
/// # Errors
/// The process of [`Options::pid`] cannot be read; a file that [`Options`] name is not there.
pub fn open<W: AsRef<str>>(inputs: &[W], options: &Options<'_>) -> Result<Opened> {
    let mut opened = Opened::default();
    let candidates = resolve(inputs, options, &mut opened)?;
    open_all(candidates, options, &mut opened, &|_| None)?;
    Ok(opened)
}

/// The places of all words, each once.
fn resolve<W: AsRef<str>>(words: &[W], options: &Options<'_>, opened: &mut Opened) -> Result<Vec<Candidate>> {
    allow_many_files();
    let mut all = Vec::new();
    if options.memory.split {
        all.push(Candidate::split(words.iter().map(|word| PathBuf::from(word.as_ref())).collect()));
    } else {
        words.iter().for_each(|word| all.extend(places::of_word(word.as_ref(), &mut opened.notes)));
    }
    if let Some(pid) = options.pid {
        all.extend(places::of_process(pid)?);
    }
    Ok(places::each_once(all))
}

/// Raises the number of files that this process may open to what the system allows: a folder of sessions has thousands of streams.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it is refused, the files beyond the limit are reported as missing.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Opens all places; `upto` says how far a place is to be read, where that is not all.
fn open_all<'u>(
    candidates: Vec<Candidate>,
    options: &Options<'_>,
    opened: &mut Opened,
    upto: &dyn Fn(&Place) -> Option<Upto<'u>>,
) -> Result<()> {
    let metadata = lttng::Given::read(options)?;
    for Candidate { place, is_named } in candidates {
        let done = place.and_then(|place| file::open(&place, options, &metadata, upto(&place), opened));
        for error in opened.errors.split_off(0).into_iter().chain(done.err()) {
            let severity = match is_named {
                true => Severity::Error,
                false if error.is::<Nothing>() => Severity::Note,
                false => Severity::Loss,
            };
            opened.lacking.push(Lack { severity, why: chain(&error) });
        }
    }
    twice::settle(opened);
    Ok(())
}

/// An error and its causes, each thing once: what a cause says itself is left out before it, what was said is left out behind.
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
