//! The regions of a session, mapped: as their creator made them, or as another process finds them
//! in the session's folder.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;

use lastwords_abi::region::{KIND_COUNTERS, KIND_REGISTRY, KIND_SPANS};
use lastwords_folders::{Place, unique_of};
use lastwords_ring::backend::{
    self, BackendError, Mapping, map_place, open_region, open_region_to_read,
};

use super::error::Error;
use super::metrics::MetricsTable;
use super::region_names::{COUNTERS, REGISTRY, SESSION, SPANS, stream_name};
use super::session_region::{SessionRegion, check_header};
pub use super::streams::StreamRegion;
use super::streams::{self, Streams};
use crate::session::dirs::Folder;
use crate::session::registry::Registry;

/// All regions of a session, mapped in this process. A session in which this process records is
/// kept for ever. Others are dropped, and so are sessions that could not start.
#[derive(Debug)]
pub struct Regions {
    /// The session region.
    pub view: SessionRegion,
    /// The registry of events.
    pub registry: Registry,
    pub(crate) spans: Option<Mapping>,
    /// The region of counters and histograms, if the session has one.
    pub(crate) counters: Option<Mapping>,
    /// The rings of all channels.
    pub streams: Streams,
}

/// Maps the region of this name, if it exists: a file in a session's folder, or an entry of
/// `places`. `open` opens the file.
fn find(
    folder: &Folder,
    places: Option<&[Place]>,
    name: &str,
    open: Open,
) -> Result<Option<Mapping>, Error> {
    if let Some(places) = places {
        return Ok(places.iter().find(|place| place.name == name).map(map_place).transpose()?);
    }
    match open(folder.for_ring()?, name) {
        Err(error) if error.source.kind() == ErrorKind::NotFound => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

fn must_find(
    folder: &Folder,
    places: Option<&[Place]>,
    name: &str,
    open: Open,
) -> Result<Mapping, Error> {
    let missing =
        || Error::region(folder.path.join(name).to_string_lossy(), 0, "the region is missing");
    find(folder, places, name, open)?.ok_or_else(missing)
}

/// Opens the file of a region: [`open_region`] or [`open_to_look`].
type Open = fn(backend::Folder<'_>, &str) -> Result<Mapping, BackendError>;

/// Opens a region for a caller that may only look at it, also where this process may not write.
fn open_to_look(folder: backend::Folder<'_>, name: &str) -> Result<Mapping, BackendError> {
    let opened = open_region(folder, name);
    let is_refused =
        |kind| matches!(kind, ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied);
    if opened.as_ref().is_err_and(|error| is_refused(error.source.kind())) {
        return open_region_to_read(folder, name);
    }
    opened
}

/// Maps the session region alone, and passes it to `look`.
pub fn look<T>(folder: &Folder, look: impl FnOnce(&SessionRegion) -> T) -> Result<T, Error> {
    // Callers copy the values that they read.
    open_view(folder, folder.places()?.as_deref(), open_to_look).map(|view| look(&view))
}

/// Copies the session region in a file, and passes the copy to `look`: for files of users that this
/// process does not trust.
pub fn look_at_copy<T>(
    file: OwnedFd,
    path: &str,
    look: impl FnOnce(&SessionRegion) -> T,
) -> Result<T, Error> {
    Ok(look(&SessionRegion::new(backend::copy_region(file, path, SESSION)?)?))
}

/// Maps the session region and the registry, and passes them to `look`.
pub(crate) fn look_with_registry<T>(
    folder: &Folder,
    look: impl FnOnce(&SessionRegion, &Registry) -> T,
) -> Result<T, Error> {
    let places = folder.places()?;
    let view = open_view(folder, places.as_deref(), open_to_look)?;
    let mapping = must_find(folder, places.as_deref(), REGISTRY, open_to_look)?;
    check_header(&mapping, KIND_REGISTRY)?;
    // Callers copy the values that they read.
    let registry = Registry::new(mapping, &view);
    Ok(look(&view, &registry))
}

fn open_view(
    folder: &Folder,
    places: Option<&[Place]>,
    open: Open,
) -> Result<SessionRegion, Error> {
    let view = SessionRegion::new(must_find(folder, places, SESSION, open)?)?;
    let shown = folder.path.to_string_lossy();
    // A folder of files may have been renamed, or be a copy. A session of an older version does not
    // know its file.
    let may_be_renamed = places.is_none() && view.guards().is_some();
    if !may_be_renamed && !shown.ends_with(&unique_of(&view.uuid)) {
        // A memfd's path contains a process id, which another process may have by now.
        return Err(Error::region(shown, 40, "the session there is another than the folder's"));
    }
    Ok(view)
}

impl Regions {
    /// Maps all regions of the session in a folder.
    pub fn open(folder: &Folder) -> Result<Self, Error> {
        let places = folder.places()?;
        let places = places.as_deref();
        let view = open_view(folder, places, open_region)?;
        let registry = must_find(folder, places, REGISTRY, open_region)?;
        check_header(&registry, KIND_REGISTRY)?;
        let spans = find(folder, places, SPANS, open_region)?;
        spans.iter().try_for_each(|spans| check_header(spans, KIND_SPANS))?;
        let counters = find(folder, places, COUNTERS, open_region)?;
        counters.iter().try_for_each(|counters| check_header(counters, KIND_COUNTERS))?;
        let mut streams = Vec::new();
        for index in 0..streams::count(&view) {
            let mapping = must_find(folder, places, &stream_name(index), open_region)?;
            streams.push(StreamRegion::new(mapping, &view.uuid)?);
        }
        view.tell_namespace();
        let streams = Streams::new(streams);
        Ok(Self { registry: Registry::new(registry, &view), view, spans, counters, streams })
    }

    /// Copies the counters and histograms as they are now: parts of their region, each with its
    /// offset, outside of which the region is 0. Returns none if the session has none.
    #[must_use]
    pub fn copy_counters(&self) -> Option<[(u64, Vec<u8>); 3]> {
        MetricsTable::copy(self.counters.as_ref()?)
    }

    /// Iterates over all mappings.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        [&self.view.mapping, &self.registry.mapping]
            .into_iter()
            .chain(&self.spans)
            .chain(&self.counters)
            .chain(self.streams.iter().map(|stream| &stream.mapping))
    }
}

impl Regions {
    /// Maps the streams of channels that other processes, or this one, created since the session
    /// was mapped. `folder` is the session's folder, if the caller has it open.
    ///
    /// # Errors
    /// A file cannot be mapped. Then the channels before it are mapped, and a later call tries
    /// again.
    pub fn attach(&self, folder: Option<&Folder>) -> Result<(), Error> {
        if self.streams.len() >= streams::count(&self.view) as usize {
            return Ok(());
        }
        let opened;
        let folder = match folder {
            Some(folder) => folder,
            None => {
                let path = self
                    .view
                    .mapping
                    .place()
                    .and_then(|(path, _)| std::path::Path::new(path).parent());
                let missing = || Error::region(self.view.name(), 0, "the session is in no folder");
                opened = Folder::open(path.ok_or_else(missing)?)?;
                &opened
            }
        };
        self.streams.locked(|| {
            let mut later: Vec<_> = self.view.channels().collect();
            later.sort_by_key(|(_, channel)| channel.first_stream);
            for (id, channel) in later {
                match (channel.first_stream as usize).cmp(&self.streams.len()) {
                    std::cmp::Ordering::Less => (),
                    std::cmp::Ordering::Equal => {
                        self.streams.add(streams::map(folder, &self.view, id, channel)?)?
                    }
                    std::cmp::Ordering::Greater => {
                        let what =
                            format!("channel {id} begins with stream {}", channel.first_stream);
                        return Err(Error::region(self.view.name(), 24, what));
                    }
                }
            }
            Ok(())
        })
    }
}
