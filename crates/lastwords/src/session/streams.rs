//! The streams of a session that this process has mapped: those that the session had when it was
//! mapped, and those of channels that were created later (`create_channel.rs`).
//!
//! The list only grows, and a stream stays where it is: signal handlers and recording threads read
//! the list without a lock. A later channel adds all its streams in one step, so that nobody sees a
//! part of a channel.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

use lastwords_abi::region::KIND_STREAM;
use lastwords_abi::session::{Channel, MAX_CHANNELS};
use lastwords_abi::stream::ANY_CPU;
use lastwords_ring::backend::{Mapping, fill_pages, free_pages, open_region};
use lastwords_ring::init::check_header;
use lastwords_ring::{Stream, StreamSpec, os};

use super::Error;
use super::dirs::Folder;
use super::region_names::stream_name;
use super::session_region::{SessionRegion, path_of};
use crate::process::identity::identity;

/// Value of [`Streams::lock`]: no stream is added any more.
const SEALED: u64 = u64::MAX;
/// The first minor version whose rings may have holes in their live halves.
const FIRST_MINOR_THAT_GROWS: u16 = 3;
/// How often a thread looks whether another one has added its streams.
const LOCK_ROUNDS: u32 = 4096;

/// A stream and its memory.
#[derive(Debug)]
pub struct StreamRegion {
    /// Its memory.
    pub mapping: Mapping,
    /// The ring in it.
    pub stream: Stream,
}

impl Drop for StreamRegion {
    fn drop(&mut self) {
        for half in [0, 1] {
            // SAFETY: nobody records in a region that is dropped. `give` filled the tables; they
            // are empty except on the heap.
            unsafe { free_pages(self.stream.page_table(half)) }
        }
    }
}

impl StreamRegion {
    /// Attaches to the stream in a mapping, which must belong to the session.
    pub(crate) fn new(mapping: Mapping, session: &[u8; 16]) -> Result<Self, Error> {
        // SAFETY: mappings stay until the process ends (a detached one reads as zeroes and its
        // handles are given up before). If nobody records in them, they stay until their `Regions`
        // are dropped, which own the streams. The pages in a table belong to this process, because
        // files with tables are refused below.
        let attached = unsafe { Stream::attach(mapping.as_ptr(), mapping.len()) };
        let stream = attached
            .map_err(|error| Error::region(path_of(&mapping), error.offset as u64, error.what))?;
        let wrong = |offset, what: &str| Err(Error::region(path_of(&mapping), offset, what));
        if stream.spec().session != *session {
            return wrong(40, "it belongs to another session");
        }
        if stream.spec().page_size != 0 && mapping.place().is_some() {
            return wrong(156, "its pages are in its process's memory, not in this file");
        }
        Ok(Self { mapping, stream })
    }

    /// Notes in a new ring which part of its data has memory: the first part of the first half if
    /// the ring `grows`, else all.
    pub(crate) fn begin(&self, grows: bool) {
        let spec = self.stream.spec();
        let backed = if grows { [first_backed(spec), 0] } else { [u64::MAX; 2] };
        backed
            .into_iter()
            .enumerate()
            .for_each(|(half, bytes)| self.stream.set_backed(half, bytes));
    }

    /// Returns true if the ring gets its memory when it is first used. Rings of a version before
    /// 1.3 do not.
    pub(crate) fn grows(&self) -> bool {
        // SAFETY: mappings are page-aligned, and readable for their length.
        let header =
            unsafe { check_header(self.mapping.as_ptr(), self.mapping.len(), KIND_STREAM) };
        let is_new = header.is_ok_and(|header| header.minor >= FIRST_MINOR_THAT_GROWS);
        is_new
            && self.stream.control().half.iter().any(|half| half.backed.load(Acquire) != u64::MAX)
    }

    /// Allocates the memory of a half, or the part of it that a growing ring has from the start.
    pub(crate) fn give(&self, half: usize) -> Result<(), Error> {
        let (spec, data) = (self.stream.spec(), self.stream.spec().data_range(half));
        match self.stream.page_table(half) {
            [] if self.grows() => {
                let first = first_backed(spec);
                self.mapping.populate(data.start..data.start + first)?;
                self.stream.set_backed(half, first);
            }
            [] => self.mapping.populate(data)?,
            table => fill_pages(table)?,
        }
        Ok(())
    }

    /// Empties a half and frees its memory.
    ///
    /// # Safety
    /// No recorder is in that half, and nobody reads it.
    pub(crate) unsafe fn free(&self, half: usize) {
        let grows = self.grows();
        // SAFETY: the caller guarantees that nobody is in the half; `give` filled the table.
        unsafe {
            self.stream.reset_half(half);
            if grows {
                self.stream.set_backed(half, 0);
            }
            match self.stream.page_table(half) {
                [] => self.mapping.release(self.stream.spec().data_range(half)),
                table => free_pages(table),
            }
        }
    }

    /// Returns the half that recorders do not use now.
    pub fn spare(&self, view: &SessionRegion) -> usize {
        let flips = view.control().flip.load(Acquire) ^ self.stream.control().flip.load(Acquire);
        ((flips & 1) ^ 1) as usize
    }
}

/// Streams in the order of their index.
#[derive(Debug)]
pub struct Streams {
    /// The streams of the channels that the session had when it was mapped.
    first: Vec<StreamRegion>,
    /// The streams of each later channel. An entry below `later` points to a value that lives as
    /// long as the list. Written by the holder of `lock`, before `later`.
    more: [AtomicPtr<Vec<StreamRegion>>; MAX_CHANNELS],
    /// Number of later channels. Written by the holder of `lock` (Release): who loads it with
    /// Acquire finds the entries.
    later: AtomicUsize,
    /// The thread that adds streams, as `pid << 32 | tid`; 0 = nobody. A forked child takes the
    /// lock of a thread that exists only in its parent.
    lock: AtomicU64,
}

impl Streams {
    /// Makes the list of these streams.
    pub(crate) fn new(first: Vec<StreamRegion>) -> Self {
        let more = [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CHANNELS];
        Self { first, more, later: AtomicUsize::new(0), lock: AtomicU64::new(0) }
    }

    /// Iterates over the streams in the order of their index. Async-signal-safe.
    pub fn iter(&self) -> impl Iterator<Item = &StreamRegion> {
        self.first.iter().chain(self.groups().flatten())
    }

    /// Iterates over the groups of streams of later channels.
    fn groups(&self) -> impl Iterator<Item = &Vec<StreamRegion>> {
        // SAFETY: entries below `later` point to leaked boxes, which are freed when the list is
        // dropped.
        self.more[..self.later.load(Acquire)]
            .iter()
            .filter_map(|group| unsafe { group.load(Acquire).as_ref() })
    }

    /// Returns the number of streams.
    #[expect(clippy::len_without_is_empty, reason = "a session has rings")]
    pub fn len(&self) -> usize {
        self.groups().map(Vec::len).fold(self.first.len(), usize::saturating_add)
    }

    /// Returns the streams of a channel; none if they are not mapped.
    pub(crate) fn of_channel(&self, channel: &Channel) -> Option<&[StreamRegion]> {
        let (first, count) = (channel.first_stream as usize, channel.streams as usize);
        let mut begin = 0;
        for group in std::iter::once(&self.first).chain(self.groups()) {
            if let Some(at) = first.checked_sub(begin)
                && let Some(streams) = group.get(at..at.saturating_add(count))
            {
                return Some(streams).filter(|streams| !streams.is_empty());
            }
            begin += group.len();
        }
        None
    }

    /// Adds the streams of a channel. The caller holds the lock.
    pub(crate) fn add(&self, streams: Vec<StreamRegion>) -> Result<(), Error> {
        let later = self.later.load(Relaxed);
        let full =
            || Error::Full { what: "channel", limit: MAX_CHANNELS, remedy: "start a session anew" };
        let entry = self.more.get(later).ok_or_else(full)?;
        // A forked child may find an entry here that a thread of its parent had not published. It
        // is not used, and kept.
        entry.store(Box::into_raw(Box::new(streams)), Release);
        self.later.store(later + 1, Release);
        Ok(())
    }

    /// Runs `add` while no other thread of this process adds streams.
    pub(crate) fn locked<T>(&self, add: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let busy =
            || Error::Busy { what: "the list of the session's rings", owner: std::process::id() };
        let me = self.take(identity().word()).ok_or_else(busy)?;
        let done = add();
        let _ = self.lock.compare_exchange(me, 0, Release, Relaxed);
        done
    }

    /// Takes the lock in bounded time, by storing `word`, which it returns.
    fn take(&self, word: u64) -> Option<u64> {
        let pid = u64::from(std::process::id());
        for round in 0..LOCK_ROUNDS {
            let owner = self.lock.load(Relaxed);
            let is_free = owner == 0 || (owner != SEALED && owner >> 32 != pid);
            if is_free && self.lock.compare_exchange(owner, word, AcqRel, Relaxed).is_ok() {
                return Some(word);
            }
            if owner == SEALED {
                return None;
            }
            os::pause(round);
        }
        None
    }

    /// Prevents that streams are added from now on. Returns false if another thread is still adding
    /// some.
    pub(crate) fn seal(&self) -> bool {
        self.lock.load(Relaxed) == SEALED || self.take(SEALED).is_some()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for group in &mut self.more[..*self.later.get_mut()] {
            // SAFETY: the entries below `later` came from boxes, and nobody else has the list any
            // more.
            drop(unsafe { Box::from_raw(*group.get_mut()) });
        }
    }
}

/// Returns the number of streams that the channels of a session have.
pub(crate) fn count(view: &SessionRegion) -> u32 {
    view.channels()
        .map(|(_, channel)| channel.first_stream.saturating_add(channel.streams))
        .max()
        .unwrap_or(0)
}

/// Maps the streams of a channel.
pub(crate) fn map(
    folder: &Folder,
    view: &SessionRegion,
    id: u32,
    channel: &Channel,
) -> Result<Vec<StreamRegion>, Error> {
    let mut streams = Vec::new();
    for index in channel.first_stream..channel.first_stream.saturating_add(channel.streams) {
        let mapping = open_region(folder.for_ring()?, &stream_name(index))?;
        let region = StreamRegion::new(mapping, &view.uuid)?;
        let spec = region.stream.spec();
        let is_its = (spec.index, spec.channel, spec.sub_buffer_size, spec.sub_buffers)
            == (index, id, channel.sub_buffer_size, channel.sub_buffers);
        if !is_its {
            let what = "it is another stream than that of its channel";
            return Err(Error::region(
                folder.path.join(stream_name(index)).to_string_lossy(),
                128,
                what,
            ));
        }
        streams.push(region);
    }
    Ok(streams)
}

/// Returns the bytes of a growing ring's first half that have memory from the start: two
/// sub-buffers of the ring that is bound to no CPU, which also takes the events of CPUs whose ring
/// gets no memory; nothing of other rings.
pub(crate) fn first_backed(spec: &StreamSpec) -> u64 {
    if spec.cpu == ANY_CPU { spec.half_size().min(2 * spec.sub_buffer_size) } else { 0 }
}
