//! The kinds of inputs: how each is recognised, what it is called, and how it is opened.
//!
//! A new one is a file beside this one with a [`Place`], and here a row of [`SOURCES`] and a
//! [`SourceKind`].

mod carve;
mod ctf;
mod folder;
mod given_metadata;
mod instance;
mod kernel;
mod location;
mod lttng;
mod memory;
mod persistent;
mod sessions;
mod sniff;
mod trace_dat;

pub use folder::is_instance;
pub use sniff::is_ctf_stream;

pub(crate) use ctf::{CTF, name_of};
pub(crate) use folder::{Folder, is_region};
pub(crate) use given_metadata::GivenMetadata;
pub(crate) use instance::INSTANCE;
pub(crate) use kernel::alone;
pub(crate) use location::{Key, Location};
pub(crate) use lttng::LTTNG;
pub(crate) use memory::MEMORY;
pub(crate) use sessions::SESSION;
pub(crate) use sniff::{Beginning, of_file, sentence};

use crate::{Opened, Options};
use carve::CARVED;
use lastwords_bytes::Budget;
use lastwords_image::{ImageKind, vmcore};
use lastwords_session::ReadLimit;
use persistent::PERSISTENT;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use trace_dat::TRACE_DAT;

/// All kinds of places, in the order in which messages and `--help` list them. A folder is of the
/// first kind that recognises it, and a file of the first kind whose beginning it has. A file that
/// none recognises is looked into as memory. LTTng's memory may have a file of metadata, as a folder
/// of CTF has.
static SOURCES: [&Place; 7] = [&SESSION, &MEMORY, &INSTANCE, &PERSISTENT, &TRACE_DAT, &LTTNG, &CTF];

/// A kind of place in which traces are.
pub(crate) struct Place {
    /// The names of its inputs where messages and `--help` list all of them, each with an article.
    inputs: &'static [&'static str],
    /// The files of this kind that their first bytes tell.
    files: &'static [FileKind],
    /// Returns true if a folder is of this kind, and is opened as a whole.
    is_folder: fn(&Folder) -> bool,
    /// Opens a location, and adds its traces. An error says that it cannot be read, or that nothing
    /// is in it.
    open: fn(&mut Opening<'_, '_>) -> anyhow::Result<()>,
}

/// A kind of files that their first bytes tell.
pub(crate) struct FileKind {
    /// The name of such a file, with an article.
    words: &'static str,
    /// Returns true for the first bytes of such a file, of which there are up to 512, and its
    /// length.
    begins: fn(&[u8], u64) -> bool,
    /// The way in which it is opened.
    opens: Opens,
}

/// The way in which a file is opened that its first bytes tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    /// The place whose file it is.
    Place,
    /// Memory, in which its streams are searched for.
    Memory,
    /// Its folder alone.
    Folder,
}

/// The kind of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// Sessions of lastwords, and streams of LTTng, in a container of a process's memory.
    Sessions(ImageKind),
    /// The memory of a machine.
    Machine(vmcore::Format),
    /// A trace.dat file.
    TraceDat,
    /// A persistent ring buffer of ftrace.
    Persistent,
    /// A trace instance of the running kernel, whose events are read from its files.
    Instance,
    /// Memory of LTTng's user-space tracer.
    Lttng,
    /// A folder of CTF.
    Ctf,
}

impl SourceKind {
    /// Returns the kind in a few words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Sessions(kind) => kind.words(),
            Self::Machine(format) => format.words(),
            Self::TraceDat => "trace.dat",
            Self::Persistent => "persistent ring buffer",
            Self::Instance => "an instance of the running kernel",
            Self::Lttng => "memory of LTTng's user-space tracer",
            Self::Ctf => "folder of CTF",
        }
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// Lists the kinds of inputs, for messages: `a session (its name or folder), a process core, ... or
/// a folder with any of these`.
#[must_use]
pub fn kinds_of_inputs() -> String {
    let inputs: Vec<&str> = SOURCES.iter().flat_map(|place| place.inputs).copied().collect();
    format!("{}, or a folder with any of these", inputs.join(", "))
}

impl Place {
    /// Returns the kind of a folder, if it is opened as a whole.
    pub(crate) fn of_folder(folder: &Folder) -> Option<&'static Self> {
        SOURCES.into_iter().find(|place| (place.is_folder)(folder))
    }

    /// Returns the kind of a file.
    fn of_file(path: &Path, options: &Options<'_>) -> &'static Self {
        // The beginning of a region may be damaged, where a bundle says that it is one.
        let is_region = !options.bundle.is_empty() && options.memory.raw.is_none();
        match of_file(path) {
            Some(Beginning::Of(place, file)) if file.opens == Opens::Place => place,
            None if is_region && path.is_file() => &PERSISTENT,
            _ => &MEMORY,
        }
    }
}

impl PartialEq for Place {
    /// Two kinds are equal if they are one row.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Place {}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({:?})", self.inputs)
    }
}

/// A location that is being opened.
pub(crate) struct Opening<'o, 'a> {
    /// The location.
    pub(crate) location: &'o Location,
    /// The options.
    pub(crate) options: &'o Options<'a>,
    /// The metadata that were given for LTTng's streams.
    pub(crate) given: &'o GivenMetadata,
    /// Pays for all work on the location. Each file that is opened adds to it by its size.
    pub(crate) budget: Arc<Budget>,
    /// How far the session is read; none if it is read completely.
    pub(crate) limit: Option<ReadLimit<'o>>,
    /// Takes what is found.
    pub(crate) opened: &'o mut Opened,
}

impl Opening<'_, '_> {
    /// Opens the location, and adds its traces.
    ///
    /// # Errors
    /// The location cannot be read, or nothing is in it.
    pub(crate) fn open(&mut self) -> anyhow::Result<()> {
        let source = match self.location.source {
            _ if self.options.carve => &CARVED,
            Some(source) => source,
            None => Place::of_file(self.location.path(), self.options),
        };
        (source.open)(self)
    }
}
