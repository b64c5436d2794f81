//! Makes a tracer of events that no kernel recorded, so that they can be written as trace.dat: each
//! kind of event gets a format, and the events of each CPU become sub-buffers.
//!
//! Numbers are fields of eight bytes, texts are `__data_loc char[]`. Sub-buffers have 64 KiB, as on
//! machines with such pages, because events of applications are longer than a kernel's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use lastwords_bytes::{ByteOrder, low_u32};
use lastwords_trace::evidence::{Evidence, Verdict};

use crate::page::{LONGEST_SHORT, TIME_EXTEND, put_native};
use crate::{Array, Clock, CpuRing, Field, Format, HeaderPage, Ring, SubBufferInfo, Tracing};

/// Bytes of a sub-buffer, and of its header.
const SUB_BUFFER: usize = 64 << 10;
const HEADER: usize = 16;
/// Bytes of the common fields of an event.
const COMMON: usize = 8;
/// Bits of the time since the previous event.
const DELTA_BITS: u32 = 27;
/// Most bytes that an event's payload has, padding included. The locator of a text has 16 bits for
/// the offset, and an event needs room for a time and its length.
const LONGEST: usize = SUB_BUFFER - HEADER - 24;

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A number that is not negative.
    Unsigned,
    /// The same, which is shown in hexadecimal digits.
    Hexadecimal,
    /// A number.
    Signed,
    /// Text.
    Text,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The bits of a number.
    Number(u64),
    /// Text without NUL.
    Text(String),
}

/// An event's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The CPU.
    pub cpu: u32,
    /// The time in nanoseconds. The times of a CPU do not fall.
    pub time: u64,
    /// The format, as [`Maker::format`] returned it.
    pub format: u16,
    /// The thread, which the format calls `common_pid`.
    pub tid: i32,
}

/// Takes events, and makes a tracer of them. Sub-buffers are kept in a temporary file.
pub struct Maker {
    file: File,
    end: u64,
    formats: BTreeMap<u16, Format>,
    names: BTreeSet<(String, String)>,
    cpus: BTreeMap<u32, Lane>,
    comms: BTreeMap<u32, String>,
}

/// The events of one CPU.
struct Lane {
    /// The positions in the file of the sub-buffers that are full.
    places: Vec<u64>,
    /// The sub-buffer that is being filled; empty before the first event.
    bytes: Vec<u8>,
    /// The time of the last event.
    time: u64,
    events: u64,
}

impl Maker {
    /// Begins without events.
    ///
    /// # Errors
    /// There is no room for a temporary file.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            file: tempfile::tempfile()?,
            end: 0,
            formats: BTreeMap::new(),
            names: BTreeSet::new(),
            cpus: BTreeMap::new(),
            comms: BTreeMap::new(),
        })
    }

    /// Adds the format of a kind of event. Characters that names of formats cannot have become `_`,
    /// and a name that was given before gets a number. Returns none if there are 65,535 formats.
    pub fn format(&mut self, system: &str, name: &str, fields: &[(String, Kind)]) -> Option<u16> {
        let id = u16::try_from(self.formats.len().checked_add(1)?).ok()?;
        let (system, base) = (identifier(system), identifier(name));
        let mut name = base.clone();
        for number in 2_u32.. {
            if self.names.insert((system.clone(), name.clone())) {
                break;
            }
            name = format!("{base}_{number}");
        }
        let mut all = common();
        let mut offset = COMMON;
        let mut taken: BTreeSet<String> = all.iter().map(|field| field.name.clone()).collect();
        let (mut words, mut arguments) = (Vec::new(), String::new());
        for (given, kind) in fields {
            let base = identifier(given);
            let mut name = base.clone();
            for number in 2_u32.. {
                if taken.insert(name.clone()) {
                    break;
                }
                name = format!("{base}_{number}");
            }
            let (declaration, size, word) = match kind {
                Kind::Text => (format!("__data_loc char[] {name}"), 4, "%s"),
                Kind::Signed => (format!("long long {name}"), 8, "%lld"),
                Kind::Unsigned => (format!("unsigned long long {name}"), 8, "%llu"),
                Kind::Hexadecimal => (format!("unsigned long long {name}"), 8, "0x%llx"),
            };
            offset = offset.next_multiple_of(size);
            words.push(format!("{name}={word}"));
            arguments += &match kind {
                Kind::Text => format!(", __get_str({name})"),
                _ => format!(", REC->{name}"),
            };
            all.push(Field {
                declaration,
                name,
                offset: low_u32(offset as u64),
                size: low_u32(size as u64),
                is_signed: *kind == Kind::Signed,
                is_common: false,
            });
            offset = offset.saturating_add(size);
        }
        let print_format = format!("\"{}\"{arguments}", words.join(" "));
        let format = Format { id, system, name, fields: all, print_format, probed: None };
        self.formats.insert(id, format);
        Some(id)
    }

    /// Names a thread. Returns false if it had another name before: a file has one name for each.
    pub fn name_thread(&mut self, tid: i32, name: &str) -> bool {
        let Ok(tid) = u32::try_from(tid) else { return true };
        let clean = name.replace(['\n', '\0'], " ");
        self.comms.insert(tid, clean.clone()).is_none_or(|old| old == clean)
    }

    /// Adds an event, whose values are those of its format's fields, in order. Returns false if
    /// texts were cut because the event would be longer than a sub-buffer.
    ///
    /// # Errors
    /// The temporary file cannot be written.
    pub fn add(&mut self, head: Head, values: &[Value]) -> io::Result<bool> {
        let Some(format) = self.formats.get(&head.format) else { return Ok(true) };
        let (payload, is_whole) = payload(format, head, values);
        let new = Lane { places: Vec::new(), bytes: Vec::new(), time: 0, events: 0 };
        let lane = self.cpus.entry(head.cpu).or_insert(new);
        if lane.bytes.len().saturating_add(payload.len()).saturating_add(24) > SUB_BUFFER {
            flush(lane, &self.file, &mut self.end)?;
        }
        lane.add(head.time, &payload);
        Ok(is_whole)
    }

    /// Ends, and returns the tracer. `real_time` is what is added to times for nanoseconds since
    /// the epoch.
    ///
    /// # Errors
    /// The temporary file cannot be written.
    pub fn finish(mut self, real_time: Option<i64>) -> io::Result<Tracing> {
        let (mut cpus, mut places) = (Vec::new(), Vec::new());
        for (cpu, mut lane) in std::mem::take(&mut self.cpus) {
            flush(&mut lane, &self.file, &mut self.end)?;
            let mut ring = CpuRing {
                cpu,
                sub_buffers: lane.places.len(),
                sub_buffer_size: low_u32(SUB_BUFFER as u64),
                ..CpuRing::default()
            };
            ring.stats.entries = lane.events;
            cpus.push(ring);
            places.push(lane.places);
        }
        let header_page = HeaderPage::of_word_size(8);
        let mut tracing = Tracing::from_uname("", header_page, ByteOrder::Little);
        tracing.page_size = low_u32(SUB_BUFFER as u64);
        tracing.cpus = low_u32(cpus.len() as u64);
        tracing.formats = self.formats;
        tracing.comms = self.comms;
        tracing.real_time = real_time;
        let clock = Some(Clock { name: "mono".to_owned(), is_in_ns: true });
        let live = Arc::new(Made { file: self.file, cpus, places });
        tracing.arrays.push(Array { clock, ..Array::unknown("", live) });
        Ok(tracing)
    }
}

impl Lane {
    /// Appends an event, for which there is room.
    fn add(&mut self, time: u64, payload: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&time.to_le_bytes());
            self.bytes.extend_from_slice(&0u64.to_le_bytes());
            self.time = time;
        }
        let delta = time.saturating_sub(self.time);
        let low = low_u32(delta & ((1 << DELTA_BITS) - 1));
        let mut put = |word: u32| self.bytes.extend_from_slice(&word.to_le_bytes());
        let mut rest = low;
        if delta >> DELTA_BITS > 0 {
            put(TIME_EXTEND | low << 5);
            put(u32::try_from(delta >> DELTA_BITS).unwrap_or(u32::MAX));
            rest = 0;
        }
        let words = low_u32(payload.len() as u64 / 4);
        if (1..=LONGEST_SHORT).contains(&words) {
            put(words | rest << 5);
        } else {
            put(rest << 5);
            put(low_u32(payload.len() as u64).saturating_add(4));
        }
        self.bytes.extend_from_slice(payload);
        self.time = self.time.max(time);
        self.events = self.events.saturating_add(1);
    }
}

/// Writes the sub-buffer of a CPU, and begins a new one.
fn flush(lane: &mut Lane, file: &File, end: &mut u64) -> io::Result<()> {
    if lane.bytes.is_empty() {
        return Ok(());
    }
    let committed = lane.bytes.len().saturating_sub(HEADER) as u64;
    put_native(&mut lane.bytes, 8, committed, 8, ByteOrder::Little);
    lane.bytes.resize(SUB_BUFFER, 0);
    file.write_all_at(&lane.bytes, *end)?;
    lane.places.push(*end);
    *end = end.saturating_add(SUB_BUFFER as u64);
    lane.bytes.clear();
    Ok(())
}

/// Returns the payload of an event, padded to words, and false if texts were cut.
fn payload(format: &Format, head: Head, values: &[Value]) -> (Vec<u8>, bool) {
    let own = || format.fields.iter().filter(|field| !field.is_common).zip(values);
    let end = |field: &Field| field.offset.saturating_add(field.size) as usize;
    let fixed = own().map(|(field, _)| end(field)).max().unwrap_or(COMMON);
    let mut bytes = vec![0; fixed.next_multiple_of(4)];
    let mut put = |at: usize, value: u64, size| {
        put_native(&mut bytes, at, value, size, ByteOrder::Little);
    };
    put(0, u64::from(head.format), 2);
    put(4, u64::from(head.tid.cast_unsigned()), 4);
    let mut texts: Vec<u8> = Vec::new();
    let room = LONGEST.saturating_sub(fixed.next_multiple_of(4));
    let mut is_whole = true;
    for (field, value) in own() {
        let at = field.offset as usize;
        match value {
            Value::Number(number) => put(at, *number, 8),
            Value::Text(text) => {
                let left = room.saturating_sub(texts.len()).saturating_sub(1);
                let end = (0..=left.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
                let kept = text.get(..end.unwrap_or(0)).unwrap_or_default();
                is_whole &= kept.len() == text.len();
                let offset = fixed.next_multiple_of(4).saturating_add(texts.len());
                let len = kept.len().saturating_add(1);
                put(at, (len << 16 | offset) as u64, 4);
                texts.extend_from_slice(kept.as_bytes());
                texts.push(0);
            }
        }
    }
    bytes.extend_from_slice(&texts);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    (bytes, is_whole)
}

/// The fields that all events have.
fn common() -> Vec<Field> {
    let field = |kind: &str, name: &str, offset, size, is_signed| Field {
        declaration: format!("{kind} {name}"),
        name: name.to_owned(),
        offset,
        size,
        is_signed,
        is_common: true,
    };
    vec![
        field("unsigned short", "common_type", 0, 2, false),
        field("unsigned char", "common_flags", 2, 1, false),
        field("unsigned char", "common_preempt_count", 3, 1, false),
        field("int", "common_pid", 4, 4, true),
    ]
}

/// Returns a name that formats can have: letters, digits and `_`, no digit first, and no word of C
/// that types begin with.
fn identifier(name: &str) -> String {
    const WORDS: [&str; 8] =
        ["unsigned", "signed", "const", "struct", "union", "enum", "volatile", "REC"];
    let valid = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut clean: String = name.chars().map(valid).collect();
    if clean.starts_with(|c: char| c.is_ascii_digit()) || clean.is_empty() {
        clean.insert(0, '_');
    }
    if WORDS.contains(&clean.as_str()) {
        clean.push('_');
    }
    clean
}

/// The ring of a [`Maker`].
struct Made {
    file: File,
    cpus: Vec<CpuRing>,
    /// The position of each sub-buffer.
    places: Vec<Vec<u64>>,
}

impl Ring for Made {
    fn cpus(&self) -> &[CpuRing] {
        &self.cpus
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        bytes.clear();
        bytes.resize(SUB_BUFFER, 0);
        let place = self.places.get(cpu).and_then(|places| places.get(index));
        let read = place.map(|place| self.file.read_exact_at(bytes, *place));
        let head = crate::page::header(bytes, HeaderPage::of_word_size(8), ByteOrder::Little);
        match (read, head) {
            (Some(Ok(())), Ok(head)) => SubBufferInfo {
                committed: head.committed,
                consumed: 0,
                missed: None,
                verdict: Verdict::Committed,
            },
            _ => {
                SubBufferInfo { committed: 0, consumed: 0, missed: None, verdict: Verdict::Missing }
            }
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence::default()
    }
}
