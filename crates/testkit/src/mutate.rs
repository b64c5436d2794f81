//! Structured damage: lists every field of an image, with values that are likely to break readers.

use crate::checksum::checksum;
use crate::image::Image;
use crate::layout::{
    Row, packet as pk, region as rg, registry as rc, session as se, spans as sp, stream as st,
};
use crate::put::Order;

pub use crate::layout::Role;

/// A field in an arena.
#[derive(Debug, Clone)]
pub struct Field {
    /// Names of region, structure and field.
    pub name: String,
    /// Offset in the arena.
    pub at: usize,
    /// Size of the field in bytes: 1, 2, 4 or 8.
    pub width: usize,
    /// Meaning of the field.
    pub role: Role,
    /// Index of the region.
    pub region: usize,
}

/// Number of edge values that are tried for each field.
pub const EDGES: usize = 12;

impl Field {
    /// Edge value number `n`, given the current value and the length of the region.
    pub fn edge(&self, n: usize, now: u64, region: u64) -> u64 {
        let top = u64::MAX >> (64 - 8 * self.width);
        let value = match n {
            0 => 0,
            1 => 1,
            2 => 2,
            3 => now.wrapping_sub(1),
            4 => now.wrapping_add(1),
            5 => now.wrapping_mul(2),
            6 => top,
            7 => top - 1,
            8 => top / 2,
            9 => top / 2 + 1,
            10 => region,
            _ => region - region / 4 + 8,
        };
        value & top
    }
}

/// A mutable copy of an arena with the offsets of its regions.
#[derive(Debug, Clone)]
pub struct Arena {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Byte order.
    pub order: Order,
    /// For each region: offset, length, and number of bytes after the header that the checksum
    /// covers.
    pub regions: Vec<(usize, usize, usize)>,
}

impl Arena {
    /// Copies the arena of an image.
    pub fn new(image: &Image) -> Self {
        let fixed = |bytes: &[u8]| image.order.at32(bytes, rg::FIXED_LEN_AT).unwrap_or(0) as usize;
        let regions = image.regions.iter().enumerate();
        let regions =
            regions.map(|(n, r)| (image.offset_of(n), r.bytes.len(), fixed(&r.bytes))).collect();
        Self { bytes: image.arena(), order: image.order, regions }
    }

    /// The value of a field.
    pub fn value(&self, field: &Field) -> u64 {
        let o = self.order;
        let value = match field.width {
            1 => self.bytes.get(field.at).copied().map(u64::from),
            2 => o.at16(&self.bytes, field.at).map(u64::from),
            4 => o.at32(&self.bytes, field.at).map(u64::from),
            _ => o.at64(&self.bytes, field.at),
        };
        value.unwrap_or(0)
    }

    /// Stores a field.
    pub fn set(&mut self, field: &Field, value: u64) {
        let o = self.order;
        match field.width {
            1 => self.bytes[field.at] = value as u8,
            2 => o.put16(&mut self.bytes, field.at, value as u16),
            4 => o.put32(&mut self.bytes, field.at, value as u32),
            _ => o.put64(&mut self.bytes, field.at, value),
        }
    }

    /// Edge value number `n` of a field.
    pub fn edge(&self, field: &Field, n: usize) -> u64 {
        field.edge(n, self.value(field), self.regions[field.region].1 as u64)
    }

    /// Recomputes the checksum in a region's header, so that a reader accepts the changes.
    pub fn seal(&mut self, region: usize) {
        let (at, len, _) = self.regions[region];
        let r = &mut self.bytes[at..at + len];
        let said = self.order.at32(r, rg::FIXED_LEN_AT).unwrap_or(0) as usize;
        let fixed = said.min(len - rg::HEADER_LEN);
        let covered = [&r[..rg::CHECK_AT], &r[rg::HEADER_LEN..rg::HEADER_LEN + fixed]].concat();
        self.order.put64(r, rg::CHECK_AT, checksum(&covered));
    }

    /// Recomputes the checksums of the records of a registry region, up to the first invalid
    /// length.
    pub fn seal_records(&mut self, region: usize) {
        let (at, len, _) = self.regions[region];
        let (o, r) = (self.order, &mut self.bytes[at..at + len]);
        let mut from = rc::RECORDS_AT;
        while let Some(n) =
            o.at32(r, from).map(|n| n as usize).filter(|n| *n >= rc::RECORD_HEADER_LEN)
        {
            let Some(record) = r.get_mut(from..).and_then(|rest| rest.get_mut(..n)) else { break };
            let sum = checksum(&record[rc::RECORD_HEADER_LEN..]);
            o.put64(record, rc::RECORD_CHECK_AT, sum);
            from += n.next_multiple_of(8);
        }
    }

    /// Recomputes the checksum at the end of a sub-buffer, for the content size in its header.
    pub fn seal_packet(&mut self, at: usize, size: usize) {
        let packet = &mut self.bytes[at..at + size];
        let bits = self.order.at64(packet, pk::CONTENT_SIZE_AT).unwrap_or(0);
        let content = usize::try_from(bits / 8).unwrap_or(usize::MAX).min(size);
        let sum = checksum(&packet[..content]);
        self.order.put64(packet, size - pk::CHECK_FROM_END, sum);
    }
}

/// Collects the fields of one region.
struct List<'a> {
    fields: &'a mut Vec<Field>,
    region: usize,
    name: &'a str,
    base: usize,
}

impl List<'_> {
    fn add(&mut self, name: &str, at: usize, width: usize, role: Role) {
        let name = format!("{}.{name}", self.name);
        self.fields.push(Field { name, at: self.base + at, width, role, region: self.region });
    }

    fn all(&mut self, list: &[Row], base: usize) {
        for (name, at, width, role) in list {
            self.add(name, base + at, *width, *role);
        }
    }
}

use Role::{Offset, Other};

/// Parts of the first event of a packet.
const EVENT: &[Row] = &[
    ("event0", 0, 4, Other),
    ("event0+4", 4, 2, Other),
    ("event0+6", 6, 4, Other),
    ("event0+10", 10, 8, Other),
    ("payload0", 18, 4, Other),
];

/// Lists every field of an image that a reader uses. Of tables, only the first entries and those in
/// use are listed.
pub fn fields(image: &Image) -> Vec<Field> {
    let arena = Arena::new(image);
    let mut fields = Vec::new();
    for (region, r) in image.regions.iter().enumerate() {
        let base = arena.regions[region].0;
        let mut list = List { fields: &mut fields, region, name: &r.name, base };
        list.all(rg::HEADER, 0);
        match arena.order.at32(&r.bytes, rg::KIND_AT) {
            Some(rg::KIND_SESSION) => session_fields(&mut list, &r.bytes, arena.order),
            Some(rg::KIND_REGISTRY) => registry_fields(&mut list, &r.bytes, arena.order),
            Some(rg::KIND_SPANS) => {
                list.all(sp::TABLE, 0);
                (0..3).for_each(|n| list.all(sp::SPAN, sp::SPANS_AT + n * sp::SPAN_LEN));
            }
            _ => stream_fields(&mut list, &r.bytes, arena.order),
        }
    }
    for spot in &image.spots {
        let name = format!("stream-{}.sub-buffer-{}", spot.stream, spot.number);
        let base = image.spot_in_arena(spot);
        let mut list = List { fields: &mut fields, region: spot.region, name: &name, base };
        list.all(pk::PACKET, 0);
        list.all(EVENT, pk::HEADER_LEN);
        list.add("trailer", spot.len - pk::CHECK_FROM_END, 8, Other);
    }
    fields
}

fn session_fields(list: &mut List<'_>, r: &[u8], o: Order) {
    list.all(se::SESSION, se::INFO_AT);
    let area = |at: usize| o.at32(r, se::INFO_AT + at).unwrap_or(0) as usize;
    list.all(se::CONTROL, area(se::CONTROL_OFF_AT));
    let clock = area(se::CLOCK_OFF_AT);
    list.all(se::CLOCK, clock);
    (0..2).for_each(|n| list.all(se::SAMPLE, clock + se::CLOCK_SAMPLES_AT + n * se::SAMPLE_LEN));
    (0..3).for_each(|c| list.all(se::CHANNEL, area(se::CHANNELS_OFF_AT) + c * se::CHANNEL_LEN));
    list.all(se::PROCESS, area(se::PROCESSES_OFF_AT));
    let threads = area(se::THREADS_AT).min(4);
    for level in 0..threads * se::LEVELS {
        let thread = area(se::THREADS_OFF_AT) + level / se::LEVELS * se::THREAD_LEN;
        list.all(se::LEVEL, thread + se::LEVELS_AT + level % se::LEVELS * se::LEVEL_LEN);
    }
}

fn registry_fields(list: &mut List<'_>, r: &[u8], o: Order) {
    list.all(rc::TABLE, 0);
    let end = o.at64(r, rc::END_AT).unwrap_or(0) as usize;
    let mut at = rc::RECORDS_AT;
    let mut n = 0;
    while at < end {
        let len = o.at32(r, at).unwrap_or(0) as usize;
        list.all(rc::RECORD, at);
        for byte in (rc::RECORD_HEADER_LEN..len).step_by(3) {
            list.add(
                &format!("record{n}.body+{}", byte - rc::RECORD_HEADER_LEN),
                at + byte,
                1,
                Other,
            );
        }
        at += len.next_multiple_of(8).max(8);
        n += 1;
    }
}

fn stream_fields(list: &mut List<'_>, r: &[u8], o: Order) {
    list.all(st::STREAM, st::INFO_AT);
    for at in [st::SLOTS_OFF_AT, st::DATA_OFF_AT].map(|at| st::INFO_AT + at) {
        (0..2).for_each(|half| list.add("offset of a half", at + 8 * half, 8, Offset));
    }
    list.add("flip", st::CONTROL_AT + st::FLIP_AT, 4, Other);
    (0..st::LOST).for_each(|n| list.add("lost", st::CONTROL_AT + st::LOST_AT + 8 * n, 8, Other));
    let count = o.at32(r, st::INFO_AT + st::SUB_BUFFERS_AT).unwrap_or(0) as usize;
    for half in 0..2 {
        list.all(st::HALF, st::CONTROL_AT + st::HALVES_AT + half * st::HALF_LEN);
        let slots = o.at64(r, st::INFO_AT + st::SLOTS_OFF_AT + 8 * half).unwrap_or(0) as usize;
        (0..count.min(8)).for_each(|n| list.all(st::SLOT, slots + n * st::SLOT_LEN));
    }
}
