//! The fields of records that tell whether bytes are a record: its event, its CPU, its length.

use crate::buffer::Buffer;
use crate::event::Event;
use lastwords_bytes::{ByteOrder, Reader};

/// Length of a record's header: a type of four bytes, flags of two and the size of two.
pub(crate) const HEADER: usize = 8;
/// Types of records (`enum perf_event_type`), which are part of the kernel's ABI.
pub(crate) const LOST: u32 = 2;
pub(crate) const SAMPLE: u32 = 9;
pub(crate) const LOST_SAMPLES: u32 = 13;

/// Fields of samples (`enum perf_event_sample_format`), which are part of the kernel's ABI.
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const STREAM_ID: u64 = 1 << 9;
const RAW: u64 = 1 << 10;
const IDENTIFIER: u64 = 1 << 16;
/// The fields of eight bytes that samples have before those of any length, in their order:
/// identifier, instruction, task, time, address, id, CPU and period.
const FIXED: [u64; 9] = [IDENTIFIER, 1, TID, TIME, 1 << 3, ID, STREAM_ID, CPU, 1 << 8];
/// The fields of samples at the end of other records, in their order.
const TRAILER: [u64; 6] = [TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER];
/// The fields whose length is known here.
const KNOWN: u64 =
    IDENTIFIER | 1 | TID | TIME | 1 << 3 | ID | STREAM_ID | CPU | 1 << 8 | READ | CALLCHAIN | RAW;
/// Forms of counters in samples (`enum perf_event_read_format`).
const READ_GROUP: u64 = 1 << 3;

/// What the fields of a record say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// The record names its buffer's event or CPU.
    Proven,
    /// Nothing contradicts.
    Plausible,
    /// The record names an event that is none of the buffer's known ones, some of which are missing.
    Foreign,
    /// It is no record of the buffer.
    Wrong,
}

/// Checks the bytes of a record, header included.
pub(crate) fn check(buffer: &Buffer, order: ByteOrder, kind: u32, bytes: &[u8]) -> Check {
    let reader = Reader::new("perf record", bytes, order);
    let checked = if kind == SAMPLE { sample(buffer, &reader) } else { other(buffer, &reader) };
    checked.unwrap_or(Check::Wrong)
}

/// Size of the fields of samples at the end of the other records of an event, bytes.
pub(crate) fn trailer_size(event: &Event) -> usize {
    let fields = TRAILER.iter().filter(|field| event.sample_type & **field != 0).count();
    if event.has_sample_id { fields.saturating_mul(8) } else { 0 }
}

/// True if an event's records name the event at a place that all events have in common.
pub(crate) fn has_identifier(event: &Event) -> bool {
    event.sample_type & IDENTIFIER != 0
}

/// Returns the event of a record and whether the record names it, or what can be said of a record
/// without its event. None if the number at the common place is that of no event.
fn event_of<'b>(
    buffer: &'b Buffer,
    reader: &Reader<'_>,
    at: usize,
) -> Option<Result<(&'b Event, bool), Check>> {
    let first = buffer.events.first()?;
    if buffer.events.iter().all(has_identifier) {
        let id = reader.u64_at(at).ok()?;
        let named = buffer.events.iter().find(|event| event.id == id);
        let foreign = buffer.lacks_events.then_some(Err(Check::Foreign));
        return named.map(|event| Ok((event, true))).or(foreign);
    }
    let form = |event: &Event| (event.sample_type, event.read_format, event.has_sample_id);
    let is_same = buffer.events.iter().all(|event| form(event) == form(first));
    // If the events differ, the record does not say of which it is.
    Some(if is_same { Ok((first, false)) } else { Err(Check::Plausible) })
}

/// Checks a sample. None if its fields do not fit into it.
fn sample(buffer: &Buffer, reader: &Reader<'_>) -> Option<Check> {
    let len = reader.left();
    let (event, is_named) = match event_of(buffer, reader, HEADER)? {
        Ok(found) => found,
        Err(said) => return Some(said),
    };
    let (mut at, mut cpu) = (HEADER, None);
    for field in FIXED.iter().filter(|field| event.sample_type & **field != 0) {
        let value = reader.u32_at(at).ok()?;
        reader.u64_at(at).ok()?;
        cpu = cpu.or((*field == CPU).then_some(value));
        at = at.checked_add(8)?;
    }
    if event.sample_type & READ != 0 {
        at = at.checked_add(counters_size(event.read_format, reader.u64_at(at).ok()?)?)?;
    }
    if event.sample_type & CALLCHAIN != 0 {
        let count = usize::try_from(reader.u64_at(at).ok()?).ok()?;
        at = at.checked_add(count.checked_mul(8)?)?.checked_add(8)?;
    }
    if event.sample_type & RAW != 0 {
        let size = usize::try_from(reader.u32_at(at).ok()?).ok()?;
        at = at.checked_add(size)?.checked_add(4)?;
    }
    let fits = if event.sample_type & !KNOWN == 0 { at == len } else { at <= len };
    Some(if fits { by_cpu(buffer, cpu, is_named) } else { Check::Wrong })
}

/// Checks another record. None if it is too short.
fn other(buffer: &Buffer, reader: &Reader<'_>) -> Option<Check> {
    let len = reader.left();
    if !buffer.events.iter().all(|event| event.has_sample_id) {
        return Some(Check::Plausible);
    }
    let last = len.checked_sub(8).filter(|last| *last >= HEADER)?;
    let (event, is_named) = match event_of(buffer, reader, last)? {
        Ok(found) => found,
        Err(said) => return Some(said),
    };
    let mut at = len.checked_sub(trailer_size(event)).filter(|at| *at >= HEADER)?;
    let mut cpu = None;
    for field in TRAILER.iter().filter(|field| event.sample_type & **field != 0) {
        cpu = cpu.or(if *field == CPU { reader.u32_at(at).ok() } else { None });
        at = at.checked_add(8)?;
    }
    Some(by_cpu(buffer, cpu, is_named))
}

fn by_cpu(buffer: &Buffer, cpu: Option<u32>, is_named: bool) -> Check {
    match (buffer.cpu, cpu) {
        (Some(own), Some(found)) if own != found => Check::Wrong,
        (Some(_), Some(_)) => Check::Proven,
        _ if is_named => Check::Proven,
        _ => Check::Plausible,
    }
}

/// Returns the size of counters in a sample, bytes. `first` is their first number.
fn counters_size(format: u64, first: u64) -> Option<usize> {
    let has = |bit: u32| usize::from(format.wrapping_shr(bit) & 1 != 0);
    let times = has(0).saturating_add(has(1));
    let each = 1usize.saturating_add(has(2)).saturating_add(has(4));
    let count = if format & READ_GROUP == 0 {
        each.saturating_add(times)
    } else {
        usize::try_from(first).ok()?.checked_mul(each)?.checked_add(times)?.checked_add(1)?
    };
    count.checked_mul(8)
}
