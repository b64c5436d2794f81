//! The regions of a session, mapped: as their creator made them, or as another process finds them in the session's
//! folder.

use std::sync::atomic::Ordering::Acquire;

use lastwords_abi::region::{KIND_REGISTRY, KIND_SPANS};
use lastwords_abi::session::{BACKEND_DAX, BACKEND_PHYSICAL, ClockArea};
use lastwords_ring::Stream;
use lastwords_ring::backend::{Mapping, Place, fill_pages, free_pages, open_region};

use super::error::Error;
use super::layout::{REGISTRY, SESSION, SPANS, stream_name};
use super::session_region::{SessionRegion, check_header, path_of};
use super::streams::{self, Streams};
use crate::process::clock;
use crate::session::dirs::{Folder, unique_of};
use crate::session::registry::Registry;

/// A stream and its memory.
#[derive(Debug)]
pub(crate) struct StreamRegion {
    pub(crate) mapping: Mapping,
    pub(crate) stream: Stream,
}

impl Drop for StreamRegion {
    fn drop(&mut self) {
        for half in [0, 1] {
            // SAFETY: nobody records in a region that is dropped. `give` filled the tables; they are empty except on
            // the heap.
            unsafe { free_pages(self.stream.page_table(half)) }
        }
    }
}

/// All regions of a session, mapped in this process. A session in which this process records is kept for ever. Others
/// are dropped, and so are sessions that could not start.
#[derive(Debug)]
pub struct Regions {
    pub(crate) view: SessionRegion,
    pub(crate) registry: Registry,
    pub(crate) spans: Option<Mapping>,
    pub(crate) streams: Streams,
}

/// Maps the region of this name, if it exists: a file in a session's folder, or an entry of `places`.
fn find(folder: &Folder, places: Option<&[Place]>, name: &str) -> Result<Option<Mapping>, Error> {
    if let Some(places) = places {
        return Ok(places.iter().find(|place| place.name == name).map(Place::map).transpose()?);
    }
    match open_region(folder.for_ring()?, name) {
        Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

fn must_find(folder: &Folder, places: Option<&[Place]>, name: &str) -> Result<Mapping, Error> {
    let missing = || Error::region(folder.path.join(name).to_string_lossy(), 0, "the region is missing");
    find(folder, places, name)?.ok_or_else(missing)
}

/// Maps the session region alone, and passes it to `look`.
pub(crate) fn look<T>(folder: &Folder, look: impl FnOnce(&SessionRegion) -> T) -> Result<T, Error> {
    // Callers copy the values that they read.
    open_view(folder, folder.places()?.as_deref()).map(|view| look(&view))
}

fn open_view(folder: &Folder, places: Option<&[Place]>) -> Result<SessionRegion, Error> {
    let view = SessionRegion::of(must_find(folder, places, SESSION)?)?;
    let shown = folder.path.to_string_lossy();
    if !shown.ends_with(&unique_of(&view.uuid)) {
        // A memfd's path contains a process id, which another process may have by now.
        return Err(Error::region(shown, 40, "the session there is another than the folder's"));
    }
    Ok(view)
}

impl Regions {
    /// Maps all regions of the session in a folder.
    pub(crate) fn open(folder: &Folder) -> Result<Self, Error> {
        let places = folder.places()?;
        let places = places.as_deref();
        let view = open_view(folder, places)?;
        let registry = must_find(folder, places, REGISTRY)?;
        check_header(&registry, KIND_REGISTRY)?;
        let spans = find(folder, places, SPANS)?;
        spans.iter().try_for_each(|spans| check_header(spans, KIND_SPANS))?;
        let mut streams = Vec::new();
        for index in 0..streams::count(&view) {
            let mapping = must_find(folder, places, &stream_name(index))?;
            streams.push(StreamRegion::of(mapping, &view.uuid)?);
        }
        view.tell_namespace();
        let streams = Streams::new(streams);
        Ok(Self { registry: Registry::of(registry, &view), view, spans, streams })
    }

    /// Iterates over all mappings.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        [&self.view.mapping, &self.registry.mapping]
            .into_iter()
            .chain(&self.spans)
            .chain(self.streams.iter().map(|stream| &stream.mapping))
    }
}

impl StreamRegion {
    /// Attaches to the stream in a mapping, which must belong to the session.
    pub(crate) fn of(mapping: Mapping, session: &[u8; 16]) -> Result<Self, Error> {
        // SAFETY: mappings stay until the process ends (a detached one reads as zeroes and its handles are given up
        // before). If nobody records in them, they stay until their `Regions` are dropped, which own the streams. The
        // pages in a table belong to this process, because files with tables are refused below.
        let attached = unsafe { Stream::attach(mapping.as_ptr(), mapping.len()) };
        let stream = attached.map_err(|error| Error::region(path_of(&mapping), error.offset as u64, error.what))?;
        let wrong = |offset, what: &str| Err(Error::region(path_of(&mapping), offset, what));
        if stream.spec().session != *session {
            return wrong(40, "it belongs to another session");
        }
        if stream.spec().page_size != 0 && mapping.place().is_some() {
            return wrong(156, "its pages are in its process's memory, not in this file");
        }
        Ok(Self { mapping, stream })
    }

    /// Allocates the memory of a half.
    pub(crate) fn give(&self, half: usize) -> Result<(), Error> {
        Ok(match self.stream.page_table(half) {
            [] => self.mapping.populate(self.stream.spec().data_range(half)),
            table => fill_pages(table),
        }?)
    }

    /// Empties a half and frees its memory.
    ///
    /// # Safety
    /// No recorder is in that half, and nobody reads it.
    pub(crate) unsafe fn free(&self, half: usize) {
        // SAFETY: the caller guarantees that nobody is in the half; `give` filled the table.
        unsafe {
            self.stream.reset_half(half);
            match self.stream.page_table(half) {
                [] => self.mapping.release(self.stream.spec().data_range(half)),
                table => free_pages(table),
            }
        }
    }

    /// Returns the half that recorders do not use now.
    pub(crate) fn spare(&self, view: &SessionRegion) -> usize {
        let flips = view.control().flip.load(Acquire) ^ self.stream.control().flip.load(Acquire);
        ((flips & 1) ^ 1) as usize
    }
}

/// Returns the function that takes a new sample of the clock in memory of this back-end.
pub(crate) fn clock_refresh(backend: u32) -> fn(&ClockArea) {
    if is_persistent(backend) { clock::refresh_persistent } else { clock::refresh }
}

/// Returns true if a back-end's memory needs flushes to be kept.
pub(crate) fn is_persistent(backend: u32) -> bool {
    matches!(backend, BACKEND_DAX | BACKEND_PHYSICAL)
}
