//! The registry of a session: the descriptions of its events, as they are written.

mod body;
pub(crate) mod fnv;
mod index;
#[cfg(feature = "tracing")]
mod names;

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::region::{self, REGION_ALIGN};
use lastwords_abi::registry as abi;
use lastwords_abi::registry::{
    RECORD_HEADER_LEN, RECORDS_OFF, RecordHeader, RegistryControl, level,
};
use lastwords_abi::session::Channel;
use lastwords_abi::sync::AtomicU32;
use lastwords_ring::backend::Mapping;
use lastwords_ring::{flush, grow};

use self::body::{ID_AT, env_of, event_body, event_kind};
pub(crate) use self::body::{body_of, context_bodies, env_body};
use self::index::Index;
use crate::session::backends::is_persistent;
use crate::session::desc::EventDesc;
use crate::session::session_region::{SessionRegion, locked};

/// The registry region of a session. It is accessed through atomics, and the holder of its lock
/// writes its records.
#[derive(Debug)]
pub struct Registry {
    /// Its memory.
    pub mapping: Mapping,
    namespaces: &'static AtomicU32,
    persistent: bool,
    index: Mutex<Index>,
}

/// The registry's lock could not be taken in bounded time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy;

/// Largest number of ids of a channel. The two largest numbers are not ids: callsites use them for
/// events that have none.
pub(crate) const MOST_IDS: u32 = 65_534;

impl Registry {
    /// Gives access to the registry of a session in a mapped region. The header was checked or will
    /// still be written.
    pub(crate) fn new(mapping: Mapping, view: &SessionRegion) -> Self {
        let (namespaces, persistent) =
            (&view.control().namespaces, is_persistent(view.info.backend));
        Self { mapping, namespaces, persistent, index: Mutex::new(Index::default()) }
    }

    fn control(&self) -> &'static RegistryControl {
        // SAFETY: a region has at least 4096 bytes and stays mapped for the life of the process.
        unsafe { &*self.mapping.as_ptr().add(abi::CONTROL_OFF).cast() }
    }

    /// Returns the offset behind the last record. Who appends a record stores it last, so that the
    /// records before it are whole.
    pub fn end(&self) -> u64 {
        self.control().end.load(Acquire)
    }

    /// Initialises the region as an empty registry.
    pub(crate) fn init(&self) {
        self.control().end.store(RECORDS_OFF as u64, Release);
    }

    /// Appends a record. Returns false if there is no room, or the lock cannot be taken. Allocates
    /// nothing.
    pub(crate) fn append(&self, kind: u16, body: &[u8]) -> bool {
        self.locked(|| self.append_locked(kind, body.len(), self.mapping.len(), |put| put(body)))
            .unwrap_or(false)
    }

    /// Counts values that were cut or left out.
    #[cold]
    pub(crate) fn count_cut(&self, values: u32) {
        // Relaxed: the count orders no other memory.
        self.control().values_cut.fetch_add(values.into(), Relaxed);
    }

    /// Counts texts in which NULs were replaced.
    #[cold]
    pub(crate) fn count_changed(&self, values: u32) {
        // Relaxed: the count orders no other memory.
        self.control().values_changed.fetch_add(values.into(), Relaxed);
    }

    pub(super) fn locked<T>(&self, run: impl FnOnce() -> T) -> Result<T, Busy> {
        locked(&self.control().lock, self.namespaces, run).map_err(|_| Busy)
    }

    /// Appends a record that ends at the offset `most` at the latest. `fill` writes its body of
    /// `len` bytes. The caller holds the lock.
    fn append_locked(
        &self,
        kind: u16,
        len: usize,
        most: u64,
        fill: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) -> bool {
        let control = self.control();
        let at = control.end.load(Acquire).max(RECORDS_OFF as u64);
        let whole = RECORD_HEADER_LEN + len;
        let end = at + (whole as u64).next_multiple_of(8);
        if end > most {
            control.dropped.fetch_add(1, Relaxed);
            return false;
        }
        if !self.gets_memory(at, end) {
            control.dropped.fetch_add(1, Relaxed);
            return false;
        }
        // SAFETY: `at..end` is inside the region, after all records, and the lock excludes other
        // writers; `at` is a multiple of 8.
        unsafe {
            let record = self.mapping.as_ptr().add(at as usize);
            let body = core::slice::from_raw_parts_mut(record.add(RECORD_HEADER_LEN), len);
            let mut room = &mut *body;
            // `write` stops at the end of the room.
            fill(&mut |bytes| {
                let _ = room.write(bytes);
            });
            let check = region::checksum(body);
            record.cast::<RecordHeader>().write(RecordHeader {
                len: whole as u32,
                kind,
                flags: 0,
                check,
            });
        }
        self.persist(at, end - at);
        control.end.store(end, Release);
        self.persist(abi::CONTROL_OFF as u64, 64);
        true
    }

    /// Makes sure that the pages of these bytes have memory, which may be holes in the region's
    /// file. Pages before them have some.
    fn gets_memory(&self, at: u64, end: u64) -> bool {
        let (from, end) = (at.next_multiple_of(REGION_ALIGN), end.next_multiple_of(REGION_ALIGN));
        // SAFETY: the bytes are inside the region, whose length is a multiple of a page. Processes
        // that have a session handle SIGBUS.
        self.persistent
            || from >= end
            || unsafe { grow::give_memory(self.mapping.as_ptr().add(from as usize), end - from) }
    }

    fn persist(&self, at: u64, len: u64) {
        if self.persistent {
            // SAFETY: callers pass bytes of the region.
            unsafe { flush::flush(self.mapping.as_ptr().add(at as usize), len as usize) };
            flush::fence();
        }
    }

    /// Returns the id of the event in the channel: that of an equal description, or a new one.
    /// Returns `None` if the registry or the channel's ids are full. Allocates nothing, because a
    /// signal handler may have interrupted `malloc`.
    pub(crate) fn register(
        &self,
        channel: u16,
        ids: &Channel,
        desc: &EventDesc,
    ) -> Result<Option<u16>, Busy> {
        // If another thread held the mutex at a fork, the child can never take it. Then all records
        // are examined.
        let mut index = self.index.try_lock().ok();
        let (mut len, mut hash) = (0, fnv::BASIS);
        let mut measure = |bytes: &[u8]| {
            len += bytes.len();
            hash = fnv::with_bytes(hash, bytes);
        };
        event_body(&mut measure, channel, 0, desc);
        let register = || {
            if let Some(id) = self.id_of(index.as_deref_mut(), hash, channel, desc) {
                return Some(id);
            }
            let id = ids.next_id.load(Acquire);
            if u64::from(id) >= room_for(desc.level, MOST_IDS.into()) {
                return None;
            }
            ids.next_id.store(id + 1, Release);
            let id = id as u16;
            let most = room_for(desc.level, self.mapping.len());
            if !self.append_locked(event_kind(desc), len, most, |put| {
                event_body(put, channel, id, desc)
            }) {
                ids.next_id.store(u32::from(id), Release);
                return None;
            }
            Some(id)
        };
        self.locked(register)
    }

    /// Returns the id of an equal description of an event.
    fn id_of(
        &self,
        index: Option<&mut Index>,
        hash: u32,
        channel: u16,
        desc: &EventDesc,
    ) -> Option<u16> {
        let equal = |body: &[u8]| {
            let id = event_id(body)?;
            // The bytes that are not compared yet; none after the first difference.
            let mut rest = Some(body);
            event_body(
                &mut |bytes| rest = rest.and_then(|rest| rest.strip_prefix(bytes)),
                channel,
                id,
                desc,
            );
            rest.is_some_and(<[u8]>::is_empty).then_some(id)
        };
        if let Some(index) = index
            && index.is_there(self.mapping.len())
        {
            self.scan(index);
            return index.find(hash, |at| self.record(at).and_then(|(_, body)| equal(body)));
        }
        self.records(RECORDS_OFF as u64)
            .filter(|record| is_event(record.1))
            .find_map(|record| equal(record.2))
    }

    /// Adds the events that were appended since the last scan.
    fn scan(&self, index: &mut Index) {
        for (at, kind, body) in self.records(index.scanned.max(RECORDS_OFF as u64)) {
            if is_event(kind) && event_id(body).is_some() {
                let blanked = [&body[..ID_AT], &[0; 2], &body[ID_AT + 2..]];
                index.add(blanked.into_iter().fold(fnv::BASIS, fnv::with_bytes), at);
            }
            index.scanned = behind(at, body);
        }
    }

    /// Frees the memory of the index, because nothing is registered any more.
    pub(crate) fn forget(&self) {
        if let Ok(mut index) = self.index.try_lock() {
            *index = Index::default();
        }
    }

    /// Returns the bodies of the records of a channel's own contexts, in order.
    pub(crate) fn contexts_of(&self, channel: u16) -> Vec<Vec<u8>> {
        let of_channel = |(_, kind, body): &(u64, u16, &[u8])| {
            *kind == abi::KIND_CONTEXT && body.starts_with(&channel.to_ne_bytes())
        };
        self.records(RECORDS_OFF as u64)
            .filter(of_channel)
            .map(|record| record.2.to_vec())
            .collect()
    }

    /// Iterates over keys and values of the properties of the trace.
    pub(crate) fn properties(&self) -> impl Iterator<Item = (String, String)> {
        let properties =
            self.records(RECORDS_OFF as u64).filter(|record| record.1 == abi::KIND_ENV);
        properties.filter_map(|record| env_of(record.2))
    }

    /// Iterates over offset, kind and body of every record from offset `at` on.
    fn records(&self, mut at: u64) -> impl Iterator<Item = (u64, u16, &[u8])> {
        std::iter::from_fn(move || {
            let (kind, body) = self.record(at)?;
            let here = at;
            at = behind(here, body);
            Some((here, kind, body))
        })
    }

    /// Returns kind and body of the record at this offset.
    fn record(&self, at: u64) -> Option<(u16, &[u8])> {
        let end = self.control().end.load(Acquire).min(self.mapping.len());
        if at + RECORD_HEADER_LEN as u64 > end {
            return None;
        }
        // SAFETY: the header is before `end`, inside the region, on a multiple of 8.
        let header =
            unsafe { self.mapping.as_ptr().add(at as usize).cast::<RecordHeader>().read() };
        let len = u64::from(header.len);
        if len < RECORD_HEADER_LEN as u64 || at + len > end {
            return None;
        }
        // SAFETY: the check above keeps it inside the region; records before `end` do not change.
        let body = unsafe {
            let start = self.mapping.as_ptr().add(at as usize + RECORD_HEADER_LEN);
            core::slice::from_raw_parts(start, header.len as usize - RECORD_HEADER_LEN)
        };
        Some((header.kind, body))
    }
}

/// Returns the part of `all` that descriptions of events of this level may use. The last sixteenth
/// is for errors, and the sixteenth before it for warnings and errors: a program that has too many
/// kinds of events must not lose the error that ends it.
fn room_for(event_level: u8, all: u64) -> u64 {
    match event_level {
        level::ERROR => all,
        level::WARN => all - all / 16,
        _ => all - all / 8,
    }
}

fn is_event(kind: u16) -> bool {
    matches!(kind, abi::KIND_EVENT | abi::KIND_EVENT_MANY)
}

/// Returns the offset of the record after the one with this body.
fn behind(at: u64, body: &[u8]) -> u64 {
    at + ((RECORD_HEADER_LEN + body.len()) as u64).next_multiple_of(8)
}

/// Returns the id in the body of an event's record.
fn event_id(body: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*body.get(ID_AT..)?.first_chunk()?))
}
