//! The kinds of inputs: how each is recognised, and how it is opened.
//!
//! A new one is a file beside this one, a kind, and a row of [`SOURCES`].

mod carve;
mod ctf;
mod instance;
mod kernel;
mod location;
mod lttng;
mod memory;
mod persistent;
mod sessions;
mod trace_dat;

pub(crate) use ctf::name_of;
pub(crate) use kernel::alone;
pub(crate) use location::{Key, Location};

use crate::folder::{Folder, is_instance};
use crate::lttng::GivenMetadata;
use crate::sniff::{self, Beginning};
use crate::{Opened, Options};
use lastwords_bytes::Budget;
use lastwords_session::ReadLimit;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A place before it is opened.
pub(crate) enum Look<'l> {
    /// A file, by its first bytes.
    File(&'l Path, Option<Beginning>),
    /// A folder, by its entries.
    Folder(&'l Folder),
}

impl Look<'_> {
    fn begins(&self, as_one: Beginning) -> bool {
        matches!(self, Self::File(_, Some(beginning)) if *beginning == as_one)
    }
}

/// A kind of place in which traces are.
pub(crate) struct PlaceKind {
    /// Returns true if a place is of this kind.
    recognise: fn(&Look<'_>) -> bool,
    /// Opens a location, and adds its traces. An error says that it cannot be read, or that nothing
    /// is in it.
    open: fn(&mut Opening<'_, '_>) -> anyhow::Result<()>,
}

/// All kinds of places. A place is of the first kind that recognises it; a file that none
/// recognises is looked into as memory.
static SOURCES: [&PlaceKind; 6] = [&INSTANCE, &SESSION, &LTTNG, &CTF, &TRACE_DAT, &PERSISTENT];

/// A trace instance of the running kernel.
pub(crate) static INSTANCE: PlaceKind = PlaceKind {
    recognise: |look| matches!(look, Look::Folder(folder) if is_instance(&folder.path)),
    open: instance::open,
};

/// A session's folder, or its memory elsewhere.
pub(crate) static SESSION: PlaceKind = PlaceKind {
    recognise: |look| matches!(look, Look::Folder(folder) if folder.has_regions()),
    open: sessions::open,
};

/// Shared memory of LTTng's user-space tracer.
pub(crate) static LTTNG: PlaceKind = PlaceKind {
    recognise: |look| matches!(look, Look::Folder(folder) if folder.has(Beginning::Lttng)),
    open: lttng::open,
};

/// Traces of CTF.
pub(crate) static CTF: PlaceKind = PlaceKind {
    recognise: |look| matches!(look, Look::Folder(folder) if folder.is_ctf),
    open: ctf::open,
};

static TRACE_DAT: PlaceKind =
    PlaceKind { recognise: |look| look.begins(Beginning::TraceDat), open: trace_dat::open };

static PERSISTENT: PlaceKind =
    PlaceKind { recognise: |look| look.begins(Beginning::Persistent), open: persistent::open };

/// Memory of a machine or of a process, whatever contains it: what every other file is taken for.
pub(crate) static MEMORY: PlaceKind = PlaceKind { recognise: |_| false, open: memory::open };

/// Finds sub-buffers and packets in all memory, whatever leads to them.
static CARVED: PlaceKind = PlaceKind { recognise: |_| false, open: carve::open };

impl PlaceKind {
    /// Returns the kind of a folder, if it is opened as a whole.
    pub(crate) fn of_folder(folder: &Folder) -> Option<&'static Self> {
        SOURCES.into_iter().find(|source| (source.recognise)(&Look::Folder(folder)))
    }

    /// Returns the kind of a file.
    fn of_file(path: &Path, options: &Options<'_>) -> &'static Self {
        let look = Look::File(path, sniff::of_file(path));
        let found = SOURCES.into_iter().find(|source| (source.recognise)(&look));
        // The beginning of a region may be damaged, where a bundle says that it is one.
        let is_region = !options.bundle.is_empty() && options.memory.raw.is_none();
        match (found, look) {
            (None, Look::File(path, None)) if is_region && path.is_file() => &PERSISTENT,
            (found, _) => found.unwrap_or(&MEMORY),
        }
    }
}

impl PartialEq for PlaceKind {
    /// Two kinds are equal if they are one row.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for PlaceKind {}

impl fmt::Debug for PlaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaceKind")
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
            None => PlaceKind::of_file(self.location.path(), self.options),
        };
        (source.open)(self)
    }
}
