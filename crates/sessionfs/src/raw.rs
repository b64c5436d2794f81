//! Records and pages in the format of the kernel's ring buffer, for `trace_pipe_raw` and
//! `snapshot_raw`.
//!
//! A page is as `events/header_page` says: a time stamp, a `commit` word, then events. An event is
//! a word with 5 bits of kind and 27 bits of time since the previous event, and a record. A record
//! is as the event's `format` says: `common_type` and the other common fields, fields of a fixed
//! size one after the other, then the bytes of the fields of variable size. The source of the
//! layout is `kernel/trace/ring_buffer.c` of Linux 6.12 (`rb_update_event`,
//! `ring_buffer_read_page`), and for fields of variable size `include/trace/stages/
//! stage1_struct_define.h`. Times are nanoseconds since the epoch, as in `trace`.

use std::collections::HashMap;

use lastwords_ctf::read::{Due, Reader, unwatched};
use lastwords_ftrace::HeaderPage;
use lastwords_ftrace::page::{MISSED_EVENTS, MISSED_STORED};
use lastwords_open::Trace;
use lastwords_render::events;
use lastwords_trace::schema::{Channel, FieldClass, Schema};
use lastwords_trace::source::Source as _;

use crate::kinds::Kinds;
use crate::view::Part;

/// The size of the common fields of a record.
pub(crate) const COMMON_LEN: usize = 8;
/// The layout of a page's header on this machine.
pub(crate) const HEADER: HeaderPage = HeaderPage::of_word_size(size_of::<usize>() as u8);
/// The largest size of a page. A record whose fields have offsets and lengths of 16 bits fits into
/// it.
pub(crate) const MOST_PAGE_SIZE: usize = 128 << 10;

/// Kind of an event whose word is followed by more bits of time.
const TIME_EXTEND: u32 = 30;
/// Length of the longest record that the kind expresses, in bytes.
const LONGEST_SHORT: usize = 28 * 4;
/// Bits of time in an event's word.
const DELTA_BITS: u32 = 27;
/// Bits of time in an event's word and the word that follows it.
const EXTENDED_BITS: u32 = DELTA_BITS + 32;

/// Returns the size of a page of memory, which is that of a page of the kernel's ring buffer by
/// default.
pub(crate) fn least_page_size() -> usize {
    rustix::param::page_size()
}

/// An event as a record of ftrace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Nanoseconds since the epoch, in two's complement.
    pub(crate) time: u64,
    /// The fields, the common ones first.
    pub(crate) bytes: Vec<u8>,
}

/// The layout of a kind of events.
struct Layout {
    id: u16,
    classes: Vec<FieldClass>,
    /// Bytes of the common fields, the fields of a fixed size and the words of the others.
    fixed: usize,
}

/// Calls `put` with the CPU of each event of a part of a trace, in order of time, and with its
/// record: none if a record cannot hold the event, because an offset or a length does not fit 16
/// bits. An event that several channels have comes once.
pub(crate) fn each(
    trace: &Trace,
    part: &Part,
    kinds: &mut Kinds,
    put: &mut dyn FnMut(Option<u32>, Option<Record>),
) -> Option<()> {
    let schema = trace.session()?.session.schema();
    let packets = [trace.packets(lastwords_ctf::Version::V2)?.ok()?];
    let mut layouts: HashMap<(usize, u64), Option<Layout>> = HashMap::new();
    let mut last = 0;
    let mut visit = |reader: &mut Reader<'_>, event: &Due| {
        let stream = reader.stream();
        let (position, cpu) = (stream.class, stream.memory.as_ref().and_then(|memory| memory.cpu));
        // An event without a time is at that of the event before.
        last = event.nanoseconds.map_or(last, i64::cast_unsigned);
        let id = reader.class_of(event.class).map(|class| class.id);
        let layout = id.and_then(|id| {
            layouts
                .entry((position, id))
                .or_insert_with(|| layout_of(schema, position, id, kinds))
                .as_ref()
        });
        let record = layout.zip(schema.channels.get(position)).and_then(|(layout, channel)| {
            let (_, _, part) = reader.parts();
            let at = usize::try_from((event.body / 8).checked_sub(part.base)?).ok()?;
            record(layout, channel, part.bytes.get(at..)?, last)
        });
        put(cpu, record);
    };
    events::each(&packets, &part.selection(), &unwatched, &mut visit, &mut |_| {});
    Some(())
}

fn layout_of(schema: &Schema, position: usize, id: u64, kinds: &mut Kinds) -> Option<Layout> {
    let class = schema.channels.get(position)?.events.iter().find(|class| class.id == id)?;
    let classes: Vec<FieldClass> = class.fields.iter().map(|field| field.class.clone()).collect();
    let fixed = COMMON_LEN + classes.iter().map(record_size).sum::<usize>();
    Some(Layout { id: kinds.kind(&class.name, &class.fields).id?, classes, fixed })
}

/// Returns the bytes of a field among the fields of a fixed size: its own, or a word with an offset
/// and a length.
pub(crate) fn record_size(class: &FieldClass) -> usize {
    class.fixed_size().unwrap_or(4)
}

/// Makes the record of an event. `bytes` begin with its contexts; the payload follows.
fn record(layout: &Layout, channel: &Channel, bytes: &[u8], time: u64) -> Option<Record> {
    let (mut rest, mut tid) = (bytes, 0i32);
    for context in &channel.contexts {
        let (value, after) = rest.split_at_checked(context.class.fixed_size()?)?;
        if matches!(context.name.as_str(), "vtid" | "tid") {
            tid = value.first_chunk().map_or(0, |value| i32::from_ne_bytes(*value));
        }
        rest = after;
    }
    let mut fixed = Vec::with_capacity(layout.fixed);
    fixed.extend(layout.id.to_ne_bytes());
    // common_flags and common_preempt_count.
    fixed.extend([0, 0]);
    fixed.extend(tid.to_ne_bytes());
    let mut variable: Vec<u8> = Vec::new();
    let is_optional = |class: &&FieldClass| matches!(class, FieldClass::Optional(_));
    let present;
    (present, rest) =
        rest.split_at_checked(layout.classes.iter().filter(is_optional).count().div_ceil(8))?;
    let mut bit = 0;
    for class in &layout.classes {
        let (value, after) = match class {
            FieldClass::Optional(inner) => {
                bit += 1;
                if is_set(present, bit - 1) { value(inner, rest)? } else { (&[] as &[u8], rest) }
            }
            class => value(class, rest)?,
        };
        match class.fixed_size() {
            Some(_) => fixed.extend(value),
            None => {
                let offset = u16::try_from(layout.fixed + variable.len()).ok()?;
                let length = u16::try_from(value.len()).ok()?;
                fixed.extend((u32::from(length) << 16 | u32::from(offset)).to_ne_bytes());
                variable.extend(value);
            }
        }
        rest = after;
    }
    fixed.extend(variable);
    Some(Record { time, bytes: fixed })
}

/// Returns true if the bit of an optional field is set. The recorder ran on this machine, so the
/// bytes have its order.
fn is_set(bits: &[u8], at: usize) -> bool {
    let place = if cfg!(target_endian = "little") { at % 8 } else { 7 - at % 8 };
    bits.get(at / 8).is_some_and(|byte| byte >> place & 1 == 1)
}

/// Returns the bytes of a field's value at the beginning of the bytes, and the bytes after it. A
/// text has its NUL; an array of variable length has no count.
fn value<'b>(class: &FieldClass, bytes: &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
    let counted = |size: usize| {
        let (count, rest) = bytes.split_first_chunk()?;
        let count = usize::try_from(u32::from_ne_bytes(*count)).ok()?;
        rest.split_at_checked(count.checked_mul(size)?)
    };
    match class {
        FieldClass::String => bytes.split_at_checked(bytes.iter().position(|byte| *byte == 0)? + 1),
        FieldClass::Bytes => counted(1),
        FieldClass::Sequence(element) => counted(element.fixed_size()?),
        other => bytes.split_at_checked(other.fixed_size()?),
    }
}

/// Events that are missing before a page: their number, or none if it is not known.
pub(crate) type Missed = Option<u64>;

/// Returns the number of missing events of two losses together.
pub(crate) fn added(before: Option<Missed>, missed: Missed) -> Option<Missed> {
    Some(before.map_or(missed, |before| before?.checked_add(missed?)))
}

/// A page that is being filled.
#[derive(Debug)]
pub(crate) struct Page {
    bytes: Vec<u8>,
    size: usize,
    /// The time of the last event; none if the page has none.
    time: Option<u64>,
}

impl Page {
    /// Begins a page of this size.
    pub(crate) fn new(size: usize) -> Self {
        Self { bytes: vec![0; HEADER.data_offset as usize], size, time: None }
    }

    /// Appends an event. Returns false, and appends nothing, if it belongs on another page: the
    /// page is full, or the event's time cannot be expressed after that of the event before.
    /// `is_after_loss`: the number of missing events will follow the events.
    pub(crate) fn put(&mut self, record: &Record, is_after_loss: bool) -> bool {
        let length = record.bytes.len().next_multiple_of(4);
        let delta = record.time.checked_sub(self.time.unwrap_or(record.time));
        let Some(delta) = delta.filter(|delta| *delta < 1 << EXTENDED_BITS) else { return false };
        let is_extended = delta >= 1 << DELTA_BITS;
        let is_long = length > LONGEST_SHORT;
        let needed =
            [is_extended, is_extended, true, is_long].into_iter().filter(|word| *word).count() * 4
                + length;
        let reserved = if is_after_loss { usize::from(HEADER.commit_size) } else { 0 };
        if self.bytes.len() + needed + reserved > self.size {
            return false;
        }
        if self.time.is_none() {
            self.bytes[..8].copy_from_slice(&record.time.to_ne_bytes());
        }
        self.time = Some(record.time);
        let low = (delta & ((1 << DELTA_BITS) - 1)) as u32;
        if is_extended {
            self.word(head(TIME_EXTEND, low));
            self.word((delta >> DELTA_BITS) as u32);
        }
        let low = if is_extended { 0 } else { low };
        if is_long {
            self.word(head(0, low));
            self.word(length as u32 + 4);
        } else {
            self.word(head(length as u32 / 4, low));
        }
        let end = self.bytes.len() + length;
        self.bytes.extend(&record.bytes);
        self.bytes.resize(end, 0);
        true
    }

    fn word(&mut self, word: u32) {
        self.bytes.extend(word.to_ne_bytes());
    }

    /// Returns true if the page has no event.
    pub(crate) fn is_empty(&self) -> bool {
        self.time.is_none()
    }

    /// Ends the page. `missed`: events are missing before its first.
    pub(crate) fn finish(mut self, missed: Option<Missed>) -> Vec<u8> {
        let begin = HEADER.data_offset as usize;
        let mut commit = self.bytes.len() - begin;
        if missed.is_some() {
            commit |= MISSED_EVENTS as usize;
        }
        if let Some(Some(count)) = missed {
            commit |= MISSED_STORED as usize;
            self.bytes.extend(usize::try_from(count).unwrap_or(usize::MAX).to_ne_bytes());
        }
        self.bytes[8..begin].copy_from_slice(&commit.to_ne_bytes());
        self.bytes.resize(self.size, 0);
        self.bytes
    }
}

/// Returns an event's word, whose fields are bit fields of the machine's compiler.
fn head(kind: u32, delta: u32) -> u32 {
    if cfg!(target_endian = "little") { kind | delta << 5 } else { kind << DELTA_BITS | delta }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All combinations of nine optional fields: those that the event lacks have length 0, the
    /// others their bytes.
    #[test]
    fn records_of_optional_fields() {
        let class = FieldClass::Optional(Box::new(FieldClass::Integer {
            size: 2,
            signed: false,
            base: 10,
        }));
        let classes = vec![class; 9];
        let fixed = COMMON_LEN + 9 * 4;
        let layout = Layout { id: 40, classes, fixed };
        let channel =
            Channel { id: 0, name: String::new(), contexts: Vec::new(), events: Vec::new() };
        for present in 0..1u32 << 9 {
            let has = |at: usize| present >> at & 1 == 1;
            let mut bytes = vec![0u8; 2];
            for at in (0..9).filter(|at| has(*at)) {
                bytes[at / 8] |=
                    1 << if cfg!(target_endian = "little") { at % 8 } else { 7 - at % 8 };
                bytes.extend((at as u16 + 100).to_ne_bytes());
            }
            let record = record(&layout, &channel, &bytes, 0).expect("a record").bytes;
            for at in 0..9 {
                let word = u32::from_ne_bytes(
                    *record[COMMON_LEN + 4 * at..].first_chunk().expect("a word"),
                );
                let (offset, len) = ((word & 0xffff) as usize, (word >> 16) as usize);
                let expected =
                    if has(at) { (at as u16 + 100).to_ne_bytes().to_vec() } else { Vec::new() };
                assert_eq!(record[offset..offset + len], expected, "{present:b}, field {at}");
            }
        }
    }
}
