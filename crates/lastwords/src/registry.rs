//! Descriptions of events: what a callsite knows of itself, and how it is written to a session's registry.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::region;
use lastwords_abi::registry as abi;
use lastwords_abi::registry::{RECORD_HEADER_LEN, RECORDS_OFF, RecordHeader, RegistryControl, field};
use lastwords_abi::session::Channel;
use lastwords_ring::backend::{Mapping, flush};
use lastwords_ring::os;

/// What a callsite says of its event; `'static`, made once for each callsite.
#[derive(Debug, Clone, Copy)]
pub struct EventDesc {
    /// Who the event belongs to; the part of the full name before the colon.
    pub provider: &'static str,
    /// Name of the event within the provider.
    pub name: &'static str,
    /// Severity, [`lastwords_abi::registry::level`]: 1 error to 5 trace.
    pub level: u8,
    /// Format string of a marker; empty for events.
    pub format: &'static str,
    /// Source file of the callsite; may be empty.
    pub file: &'static str,
    /// Source line of the callsite; 0 when unknown.
    pub line: u32,
    /// The payload's fields in the order in which they are written.
    pub fields: &'static [FieldDesc],
}

/// A field of an event's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldDesc {
    /// Name of the field.
    pub name: &'static str,
    /// How its bytes are read.
    pub ty: FieldType,
}

/// How the bytes of a field are read; the same set as [`lastwords_abi::registry::field`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// Unsigned integer of 1, 2, 4 or 8 bytes, shown in base 10 or 16.
    Unsigned {
        /// Bytes of the value.
        bytes: u8,
        /// 10 or 16.
        base: u8,
    },
    /// Signed integer of 1, 2, 4 or 8 bytes, shown in base 10 or 16.
    Signed {
        /// Bytes of the value.
        bytes: u8,
        /// 10 or 16.
        base: u8,
    },
    /// IEEE float of 4 or 8 bytes.
    Float {
        /// Bytes of the value.
        bytes: u8,
    },
    /// One byte, 0 or 1.
    Bool,
    /// UTF-8 and a NUL.
    String,
    /// u32 count and that many elements of a scalar type.
    Sequence(&'static FieldType),
    /// A fixed number of elements of a scalar type.
    Array {
        /// Elements.
        count: u32,
        /// Type of each element.
        element: &'static FieldType,
    },
    /// An integer with labels.
    Enum {
        /// Bytes of the container.
        bytes: u8,
        /// Whether the container is signed.
        signed: bool,
        /// Values and their labels.
        labels: &'static [(i64, &'static str)],
    },
    /// Text of a fixed number of bytes, NUL-padded.
    Text {
        /// Bytes of the field.
        bytes: u32,
    },
    /// u32 count and that many bytes, shown in hexadecimal.
    Bytes,
}

impl FieldType {
    /// Bytes of a value, or `None` where values differ.
    #[must_use]
    pub fn fixed_size(&self) -> Option<usize> {
        match self {
            Self::Unsigned { bytes, .. } | Self::Signed { bytes, .. } | Self::Float { bytes } => {
                Some(usize::from(*bytes))
            }
            Self::Enum { bytes, .. } => Some(usize::from(*bytes)),
            Self::Bool => Some(1),
            Self::Text { bytes } => Some(*bytes as usize),
            Self::Array { count, element } => Some(element.fixed_size()? * *count as usize),
            Self::String | Self::Sequence(_) | Self::Bytes => None,
        }
    }
}

/// Body of a record in the making.
#[derive(Debug, Default)]
pub(crate) struct Body(pub(crate) Vec<u8>);

impl Body {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    /// A length and bytes; text is cut at a character where it is longer than a u16 counts.
    pub(crate) fn str(&mut self, text: &str) -> &mut Self {
        let end = text.floor_char_boundary_at(usize::from(u16::MAX));
        self.u16(end as u16);
        self.0.extend_from_slice(&text.as_bytes()[..end]);
        self
    }

    pub(crate) fn field(&mut self, ty: &FieldType) -> &mut Self {
        match ty {
            FieldType::Unsigned { bytes, base } => self.u8(field::UNSIGNED).u8(*bytes).u8(*base),
            FieldType::Signed { bytes, base } => self.u8(field::SIGNED).u8(*bytes).u8(*base),
            FieldType::Float { bytes } => self.u8(field::FLOAT).u8(*bytes),
            FieldType::Bool => self.u8(field::BOOL),
            FieldType::String => self.u8(field::STRING),
            FieldType::Sequence(element) => self.u8(field::SEQUENCE).field(element),
            FieldType::Array { count, element } => self.u8(field::ARRAY).u32(*count).field(element),
            FieldType::Enum { bytes, signed, labels } => self.labels(*bytes, *signed, labels),
            FieldType::Text { bytes } => self.u8(field::TEXT).u32(*bytes),
            FieldType::Bytes => self.u8(field::BYTES),
        }
    }

    fn labels(&mut self, bytes: u8, signed: bool, labels: &[(i64, &str)]) -> &mut Self {
        let container = if signed { field::SIGNED } else { field::UNSIGNED };
        let count = labels.len().min(usize::from(u16::MAX));
        self.u8(field::ENUM).u8(container).u8(bytes).u8(10).u16(count as u16);
        for (value, label) in &labels[..count] {
            self.u64(*value as u64).str(label);
        }
        self
    }
}

trait CharBoundary {
    /// The largest character boundary that is not behind `most`.
    fn floor_char_boundary_at(&self, most: usize) -> usize;
}

impl CharBoundary for str {
    fn floor_char_boundary_at(&self, most: usize) -> usize {
        let most = most.min(self.len());
        (0..=most).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// Offset of the id in the body of an event's record.
const ID_AT: usize = 2;
/// Most ids of a channel.
const MOST_IDS: u32 = 65_535;

fn event_body(channel: u16, desc: &EventDesc) -> Vec<u8> {
    let mut body = Body::default();
    let fields = &desc.fields[..desc.fields.len().min(255)];
    body.u16(channel).u16(0).u8(desc.level).u8(fields.len() as u8);
    body.str(desc.provider).str(desc.name).str(desc.format).str(desc.file).u32(desc.line);
    for field in fields {
        body.str(field.name).field(&field.ty);
    }
    body.0
}

/// Body of the record of a user-defined context.
pub(crate) fn context_body(channel: u16, index: u16, name: &str, ty: &FieldType) -> Vec<u8> {
    let mut body = Body::default();
    body.u16(channel).u16(index).str(name).field(ty);
    body.0
}

/// Body of the record of a trace property.
pub(crate) fn env_body(key: &str, value: &str) -> Vec<u8> {
    let mut body = Body::default();
    body.str(key).str(value);
    body.0
}

/// The registry region of a session.
#[derive(Debug)]
pub(crate) struct Registry {
    base: *mut u8,
    len: u64,
    foreign: bool,
    persistent: bool,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    /// Ids of events by their bodies with the id blanked.
    known: HashMap<Vec<u8>, u16>,
    /// Offset up to which records were looked at; 0 = none.
    scanned: u64,
}

// SAFETY: the region is reached through atomics, and its records are written by the holder of its lock.
unsafe impl Send for Registry {}
// SAFETY: as for Send.
unsafe impl Sync for Registry {}

impl Registry {
    /// The registry in a mapped region whose header was checked.
    pub(crate) fn of(mapping: &Mapping, foreign: bool, persistent: bool) -> Self {
        let (base, len) = (mapping.as_ptr(), mapping.len());
        Self { base, len, foreign, persistent, index: Mutex::default() }
    }

    fn control(&self) -> &'static RegistryControl {
        // SAFETY: a region has at least 4096 bytes and stays mapped for the life of the process.
        unsafe { &*self.base.add(abi::CONTROL_OFF).cast() }
    }

    /// Makes the region an empty registry.
    pub(crate) fn init(&self) {
        self.control().end.store(RECORDS_OFF as u64, Release);
    }

    /// Appends a record. False when there is no room, or the lock is not to be had. Allocates nothing.
    pub(crate) fn append(&self, kind: u16, body: &[u8]) -> bool {
        self.locked(|| self.append_locked(kind, body)).unwrap_or(false)
    }

    fn locked<T>(&self, run: impl FnOnce() -> T) -> Option<T> {
        let lock = &self.control().lock;
        let mine = lastwords_ring::threads::lock_word();
        if !os::lock(lock, mine, self.foreign) {
            return None;
        }
        let done = run();
        os::unlock(lock, mine);
        Some(done)
    }

    fn append_locked(&self, kind: u16, body: &[u8]) -> bool {
        let control = self.control();
        let at = control.end.load(Acquire).max(RECORDS_OFF as u64);
        let len = RECORD_HEADER_LEN + body.len();
        let end = at + (len as u64).next_multiple_of(8);
        if end > self.len {
            control.dropped.fetch_add(1, Relaxed);
            return false;
        }
        let header = RecordHeader { len: len as u32, kind, flags: 0, check: region::checksum(body) };
        // SAFETY: `at..end` lies in the region, behind all records, and the lock keeps other writers out; `at` is a multiple
        // of 8.
        unsafe {
            let record = self.base.add(at as usize);
            record.cast::<RecordHeader>().write(header);
            record.add(RECORD_HEADER_LEN).copy_from_nonoverlapping(body.as_ptr(), body.len());
        }
        self.persist(at, end - at);
        control.end.store(end, Release);
        self.persist(abi::CONTROL_OFF as u64, 64);
        true
    }

    fn persist(&self, at: u64, len: u64) {
        if self.persistent {
            // SAFETY: callers name bytes of the region.
            unsafe { flush::flush(self.base.add(at as usize), len as usize) };
            flush::fence();
        }
    }

    /// The id of the event in the channel: that of an equal description, or a new one. `None` when the registry or the
    /// channel's ids are full, or the lock is not to be had.
    pub(crate) fn register(&self, channel: u16, ids: &Channel, desc: &EventDesc) -> Option<u16> {
        let mut body = event_body(channel, desc);
        // A thread that was forked away may hold the mutex for ever in the child: then records are looked at anew.
        let mut fresh = Index::default();
        let mut guard = self.index.try_lock().ok();
        let index = guard.as_deref_mut().unwrap_or(&mut fresh);
        self.locked(|| {
            self.scan(index);
            if let Some(id) = index.known.get(&body) {
                return Some(*id);
            }
            let id = ids.next_id.load(Acquire);
            if id >= MOST_IDS {
                return None;
            }
            ids.next_id.store(id + 1, Release);
            body[ID_AT..ID_AT + 2].copy_from_slice(&(id as u16).to_ne_bytes());
            self.append_locked(abi::KIND_EVENT, &body).then_some(id as u16)
        })?
    }

    /// Notes the events that were appended since the last look.
    fn scan(&self, index: &mut Index) {
        let from = index.scanned.max(RECORDS_OFF as u64);
        index.scanned = self.visit(from, |kind, body| {
            if kind == abi::KIND_EVENT && body.len() > ID_AT + 2 {
                let id = u16::from_ne_bytes([body[ID_AT], body[ID_AT + 1]]);
                let mut key = body.to_vec();
                key[ID_AT..ID_AT + 2].fill(0);
                index.known.entry(key).or_insert(id);
            }
        });
    }

    /// Bodies of the records of a channel's own contexts, in order.
    pub(crate) fn contexts_of(&self, channel: u16) -> Vec<Vec<u8>> {
        let mut bodies = Vec::new();
        self.visit(RECORDS_OFF as u64, |kind, body| {
            if kind == abi::KIND_CONTEXT && body.starts_with(&channel.to_ne_bytes()) {
                bodies.push(body.to_vec());
            }
        });
        bodies
    }

    /// Calls `each` with the kind and body of every record from offset `from` on; where the records end.
    pub(crate) fn visit(&self, from: u64, mut each: impl FnMut(u16, &[u8])) -> u64 {
        let end = self.control().end.load(Acquire).min(self.len);
        let mut at = from;
        while at + RECORD_HEADER_LEN as u64 <= end {
            // SAFETY: the header lies before `end`, inside the region, on a multiple of 8.
            let header = unsafe { self.base.add(at as usize).cast::<RecordHeader>().read() };
            let len = u64::from(header.len);
            if len < RECORD_HEADER_LEN as u64 || at + len > end {
                break;
            }
            // SAFETY: inside the region by the check above; records before `end` do not change.
            let body = unsafe {
                let start = self.base.add(at as usize + RECORD_HEADER_LEN);
                core::slice::from_raw_parts(start, header.len as usize - RECORD_HEADER_LEN)
            };
            each(header.kind, body);
            at += len.next_multiple_of(8);
        }
        at
    }
}
