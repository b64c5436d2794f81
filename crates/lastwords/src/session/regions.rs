//! The regions of a session, mapped: as its maker made them, or as another process finds them in its folder.

use std::sync::atomic::Ordering::Acquire;

use lastwords_abi::region::{KIND_REGISTRY, KIND_SPANS};
use lastwords_abi::session::{BACKEND_DAX, BACKEND_PHYSICAL};
use lastwords_ring::Stream;
use lastwords_ring::backend::{Mapping, Place, open_places, open_region};

use super::error::Error;
use super::layout::{REGISTRY, SESSION, SPANS, stream_name};
use super::session_region::{SessionRegion, check_header, uuid_of};
use crate::session::dirs::{Folder, unique_of};
use crate::session::registry::Registry;

/// A stream and its memory.
#[derive(Debug)]
pub(crate) struct StreamRegion {
    pub(crate) mapping: Mapping,
    pub(crate) stream: Stream,
}

/// All regions of a session.
#[derive(Debug)]
pub(crate) struct Regions {
    pub(crate) session: Mapping,
    pub(crate) view: SessionRegion,
    pub(crate) registry_mapping: Mapping,
    pub(crate) registry: Registry,
    pub(crate) spans: Option<Mapping>,
    pub(crate) streams: Vec<StreamRegion>,
}

/// How a region of a name is found.
enum Finder<'a> {
    Files(&'a Folder, String),
    Places(Vec<Place>),
}

impl Finder<'_> {
    fn open(&self, name: &str) -> Result<Option<Mapping>, Error> {
        match self {
            Self::Files(folder, shown) => match open_region(folder.fd()?, shown, name) {
                Ok(mapping) => Ok(Some(mapping)),
                Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            },
            Self::Places(places) => {
                let place = places.iter().find(|place| place.name == name);
                Ok(place.map(Place::map).transpose()?)
            }
        }
    }

    fn must(&self, name: &str, shown: &str) -> Result<Mapping, Error> {
        self.open(name)?.ok_or_else(|| Error::region(format!("{shown}/{name}"), 0, "the region is missing"))
    }
}

fn finder(folder: &Folder) -> Result<Finder<'_>, Error> {
    let shown = folder.path.display().to_string();
    Ok(match open_places(folder.fd()?, &shown)? {
        Some(places) => Finder::Places(places),
        None => Finder::Files(folder, shown),
    })
}

/// Looks into the session region alone, which is mapped meanwhile.
pub(crate) fn look<T>(folder: &Folder, look: impl FnOnce(&SessionRegion) -> T) -> Result<T, Error> {
    let (session, view) = open_view(folder)?;
    let seen = look(&view);
    // SAFETY: callers take copies of what they see.
    unsafe { session.unmap() };
    Ok(seen)
}

fn open_view(folder: &Folder) -> Result<(Mapping, SessionRegion), Error> {
    let shown = folder.path.display().to_string();
    let session = finder(folder)?.must(SESSION, &shown)?;
    let is_of_folder = |view: SessionRegion| {
        if shown.ends_with(&unique_of(&view.uuid)) {
            return Ok(view);
        }
        // A memfd's path names a process id, which another process may have by now.
        Err(Error::region(&shown, 40, "the session there is another than the folder's"))
    };
    match SessionRegion::of(&session).and_then(is_of_folder) {
        Ok(view) => Ok((session, view)),
        Err(error) => {
            // SAFETY: nobody else has seen it.
            unsafe { session.unmap() };
            Err(error)
        }
    }
}

/// The regions of a session in which this process does not record. Unmapped when dropped, unlike those where it does.
#[derive(Debug)]
pub(crate) struct Visited(Regions);

impl Visited {
    /// Maps all regions of the session in a folder.
    pub(crate) fn open(folder: &Folder) -> Result<Self, Error> {
        Regions::open(folder).map(Self)
    }
}

impl core::ops::Deref for Visited {
    type Target = Regions;

    fn deref(&self) -> &Regions {
        &self.0
    }
}

impl Drop for Visited {
    fn drop(&mut self) {
        // SAFETY: there are no targets in these regions, and who looks into them borrows this.
        self.0.mappings().for_each(|mapping| unsafe { mapping.unmap() });
    }
}

impl Regions {
    /// Maps all regions of the session in a folder.
    pub(crate) fn open(folder: &Folder) -> Result<Self, Error> {
        let shown = folder.path.display().to_string();
        let finder = finder(folder)?;
        let (session, view) = open_view(folder)?;
        let registry_mapping = finder.must(REGISTRY, &shown)?;
        check_header(&registry_mapping, KIND_REGISTRY, &format!("{shown}/{REGISTRY}"))?;
        let spans = finder.open(SPANS)?;
        if let Some(spans) = &spans {
            check_header(spans, KIND_SPANS, &format!("{shown}/{SPANS}"))?;
        }
        let count = view.channels().map(|(_, channel)| channel.first_stream.saturating_add(channel.streams)).max();
        let mut streams = Vec::new();
        for index in 0..count.unwrap_or(0) {
            let mapping = finder.must(&stream_name(index), &shown)?;
            streams.push(StreamRegion::of(mapping, &view.uuid)?);
        }
        Ok(Self::new(session, view, registry_mapping, spans, streams))
    }

    pub(crate) fn new(
        session: Mapping,
        view: SessionRegion,
        registry_mapping: Mapping,
        spans: Option<Mapping>,
        streams: Vec<StreamRegion>,
    ) -> Self {
        view.tell_namespace();
        let registry = Registry::of(&registry_mapping, view.namespaces(), is_persistent(view.info.backend));
        Self { session, view, registry_mapping, registry, spans, streams }
    }

    /// All mappings.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        [&self.session, &self.registry_mapping]
            .into_iter()
            .chain(&self.spans)
            .chain(self.streams.iter().map(|stream| &stream.mapping))
    }
}

impl StreamRegion {
    /// The stream in a mapping, which must be of the session.
    pub(crate) fn of(mapping: Mapping, session: &[u8; 16]) -> Result<Self, Error> {
        let stream = attach(&mapping)?;
        let path = || mapping.place().map_or(mapping.name(), |(path, _)| path).to_owned();
        if uuid_of(&mapping) != *session {
            return Err(Error::region(path(), 40, "it belongs to another session"));
        }
        if stream.info().page_size != 0 && mapping.place().is_some() {
            return Err(Error::region(path(), 156, "its pages are in its process's memory, not in this file"));
        }
        Ok(Self { mapping, stream })
    }

    /// Which half recorders do not use now.
    pub(crate) fn spare(&self, view: &SessionRegion) -> usize {
        let flips = view.control().flip.load(Acquire) ^ self.stream.control().flip.load(Acquire);
        ((flips & 1) ^ 1) as usize
    }
}

/// A handle on the stream of a mapping.
pub(crate) fn attach(mapping: &Mapping) -> Result<Stream, Error> {
    // SAFETY: mappings stay until the process ends (a detached one reads as zeroes and its handles are given up before);
    // pages that a table names are those of this process, as files with tables are refused above.
    unsafe { Stream::attach(mapping.as_ptr(), mapping.len()) }.map_err(|error| {
        let path = mapping.place().map_or(mapping.name(), |(path, _)| path);
        Error::region(path, 0, error.to_string())
    })
}

/// Whether a back-end's memory needs flushes to be kept.
pub(crate) fn is_persistent(backend: u32) -> bool {
    matches!(backend, BACKEND_DAX | BACKEND_PHYSICAL)
}
