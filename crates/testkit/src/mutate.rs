//! Structured damage: lists every field of an image, with values that are likely to break readers.

use crate::checksum::checksum;
use crate::image::Image;
use crate::layout::{
    packet as pk, region as rg, registry as rc, session as se, spans as sp, stream as st,
};
use crate::put::Order;

/// Meaning of a field, as far as it can mislead a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A length or count.
    Length,
    /// An offset.
    Offset,
    /// Another value.
    Other,
}

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

    fn all(&mut self, list: &[(&str, usize, usize, Role)], base: usize) {
        for (name, at, width, role) in list {
            self.add(name, base + at, *width, *role);
        }
    }
}

use Role::{Length, Offset, Other};

const HEADER: &[(&str, usize, usize, Role)] = &[
    ("magic", 0, 8, Other),
    ("major", rg::MAJOR_AT, 2, Other),
    ("minor", rg::MINOR_AT, 2, Other),
    ("kind", rg::KIND_AT, 4, Other),
    ("byte_order", rg::BYTE_ORDER_AT, 4, Other),
    ("word_size", rg::WORD_SIZE_AT, 4, Other),
    ("size", rg::SIZE_AT, 8, Length),
    ("session", rg::SESSION_AT, 8, Other),
    ("index", rg::INDEX_AT, 4, Other),
    ("fixed_len", rg::FIXED_LEN_AT, 4, Length),
    ("check", rg::CHECK_AT, 8, Other),
];

const SESSION: &[(&str, usize, usize, Role)] = &[
    ("created_realtime", se::CREATED_REALTIME_AT, 8, Other),
    ("created_monotonic", se::CREATED_MONOTONIC_AT, 8, Other),
    ("reservation", se::RESERVATION_AT, 4, Other),
    ("backend", se::BACKEND_AT, 4, Other),
    ("scope", se::SCOPE_AT, 4, Other),
    ("cpus", se::CPUS_AT, 4, Length),
    ("control_off", se::CONTROL_OFF_AT, 4, Offset),
    ("clock_off", se::CLOCK_OFF_AT, 4, Offset),
    ("channels_off", se::CHANNELS_OFF_AT, 4, Offset),
    ("processes_off", se::PROCESSES_OFF_AT, 4, Offset),
    ("threads_off", se::THREADS_OFF_AT, 4, Offset),
    ("threads", se::THREADS_AT, 4, Length),
    ("name", se::NAME_AT, 8, Other),
];

const CONTROL: &[(&str, usize, usize, Role)] = &[
    ("flip", se::FLIP_AT, 4, Other),
    ("recording", se::RECORDING_AT, 4, Other),
    ("finished", se::FINISHED_AT, 4, Other),
    ("ending", se::ENDING_AT, 4, Other),
    ("snapshot", se::SNAPSHOT_AT, 4, Other),
    ("snapshot_stream", se::SNAPSHOT_STREAM_AT, 4, Other),
    ("rules_turn", se::RULES_TURN_AT, 4, Length),
    ("rules_len", se::RULES_LEN_AT, 4, Length),
];

const CLOCK: &[(&str, usize, usize, Role)] = &[
    ("kind", se::CLOCK_KIND_AT, 4, Other),
    ("newest", se::CLOCK_NEWEST_AT, 4, Other),
    ("frequency", se::CLOCK_FREQUENCY_AT, 8, Other),
    ("clock0", se::CLOCK_SAMPLES_AT, 8, Other),
    ("monotonic0", se::CLOCK_SAMPLES_AT + 8, 8, Other),
    ("realtime0", se::CLOCK_SAMPLES_AT + 16, 8, Other),
    ("clock1", se::CLOCK_SAMPLES_AT + 32, 8, Other),
    ("monotonic1", se::CLOCK_SAMPLES_AT + 40, 8, Other),
    ("realtime1", se::CLOCK_SAMPLES_AT + 48, 8, Other),
];

const CHANNEL: &[(&str, usize, usize, Role)] = &[
    ("state", se::CHANNEL_STATE_AT, 4, Other),
    ("next_id", se::CHANNEL_NEXT_ID_AT, 4, Other),
    ("mode", se::CHANNEL_MODE_AT, 4, Other),
    ("flags", se::CHANNEL_FLAGS_AT, 4, Other),
    ("contexts", se::CHANNEL_CONTEXTS_AT, 4, Other),
    ("first_stream", se::CHANNEL_FIRST_STREAM_AT, 4, Other),
    ("streams", se::CHANNEL_STREAMS_AT, 4, Other),
    ("sub_buffer_size", se::CHANNEL_SUB_BUFFER_SIZE_AT, 8, Other),
    ("sub_buffers", se::CHANNEL_SUB_BUFFERS_AT, 4, Other),
    ("name", se::CHANNEL_NAME_AT, 8, Other),
];

const LEVEL: &[(&str, usize, usize, Role)] = &[
    ("target", se::TARGET_AT, 8, Other),
    ("begin", se::BEGIN_AT, 8, Other),
    ("end", se::END_AT, 8, Other),
    ("confirmed", se::CONFIRMED_AT, 8, Other),
    ("state", se::STATE_AT, 8, Other),
];

const STREAM: &[(&str, usize, usize, Role)] = &[
    ("channel", st::CHANNEL_AT, 4, Other),
    ("cpu", st::CPU_AT, 4, Other),
    ("reservation", st::RESERVATION_AT, 4, Other),
    ("mode", st::MODE_AT, 4, Other),
    ("sub_buffer_size", st::SUB_BUFFER_SIZE_AT, 8, Length),
    ("sub_buffers", st::SUB_BUFFERS_AT, 4, Length),
    ("page_size", st::PAGE_SIZE_AT, 4, Length),
    ("slots_off0", st::SLOTS_OFF_AT, 8, Offset),
    ("slots_off1", st::SLOTS_OFF_AT + 8, 8, Offset),
    ("data_off0", st::DATA_OFF_AT, 8, Offset),
    ("data_off1", st::DATA_OFF_AT + 8, 8, Offset),
];

const HALF: &[(&str, usize, usize, Role)] = &[
    ("reserve", st::RESERVE_AT, 8, Length),
    ("attempt", st::ATTEMPT_AT, 8, Other),
    ("first", st::FIRST_AT, 8, Offset),
    ("contiguous", st::CONTIGUOUS_AT, 8, Other),
    ("consumed", st::CONSUMED_AT, 8, Other),
    ("dropped", st::DROPPED_AT, 8, Other),
];

const SLOT: &[(&str, usize, usize, Role)] = &[
    ("committed", st::COMMITTED_AT, 8, Other),
    ("content_end", st::CONTENT_END_AT, 8, Other),
    ("end_clock", st::END_CLOCK_AT, 8, Other),
];

const PACKET: &[(&str, usize, usize, Role)] = &[
    ("magic", pk::MAGIC_AT, 4, Other),
    ("uuid", pk::UUID_AT, 8, Other),
    ("channel", pk::CHANNEL_AT, 4, Other),
    ("stream", pk::STREAM_AT, 8, Other),
    ("begin", pk::BEGIN_AT, 8, Other),
    ("end", pk::END_AT, 8, Other),
    ("content_size", pk::CONTENT_SIZE_AT, 8, Other),
    ("packet_size", pk::PACKET_SIZE_AT, 8, Other),
    ("seq_num", pk::SEQ_NUM_AT, 8, Other),
    ("discarded", pk::DISCARDED_AT, 8, Other),
    ("cpu", pk::CPU_AT, 4, Other),
    ("event0", pk::HEADER_LEN, 4, Other),
    ("event0+4", pk::HEADER_LEN + 4, 2, Other),
    ("event0+6", pk::HEADER_LEN + 6, 4, Other),
    ("event0+10", pk::HEADER_LEN + 10, 8, Other),
    ("payload0", pk::HEADER_LEN + 18, 4, Other),
];

const SPAN: &[(&str, usize, usize, Role)] = &[
    ("id", sp::ID_AT, 8, Other),
    ("opened", sp::OPENED_AT, 8, Other),
    ("state", sp::STATE_AT, 4, Other),
    ("text_len", sp::TEXT_LEN_AT, 4, Other),
    ("level", sp::LEVEL_AT, 4, Other),
    ("inside", sp::INSIDE_AT, 4, Other),
    ("text", sp::TEXT_AT, 8, Other),
];

/// Lists every field of an image that a reader uses. Of tables, only the first entries and those in
/// use are listed.
pub fn fields(image: &Image) -> Vec<Field> {
    let arena = Arena::new(image);
    let mut fields = Vec::new();
    for (region, r) in image.regions.iter().enumerate() {
        let base = arena.regions[region].0;
        let mut list = List { fields: &mut fields, region, name: &r.name, base };
        list.all(HEADER, 0);
        match arena.order.at32(&r.bytes, rg::KIND_AT) {
            Some(rg::KIND_SESSION) => session_fields(&mut list, &r.bytes, arena.order),
            Some(rg::KIND_REGISTRY) => registry_fields(&mut list, &r.bytes, arena.order),
            Some(rg::KIND_SPANS) => {
                list.all(
                    &[
                        ("capacity", sp::CAPACITY_AT, 4, Length),
                        ("next_id", sp::NEXT_ID_AT, 8, Other),
                    ],
                    0,
                );
                (0..3).for_each(|n| list.all(SPAN, sp::SPANS_AT + n * sp::SPAN_LEN));
            }
            _ => stream_fields(&mut list, &r.bytes, arena.order),
        }
    }
    for spot in &image.spots {
        let name = format!("stream-{}.sub-buffer-{}", spot.stream, spot.number);
        let base = image.spot_in_arena(spot);
        let mut list = List { fields: &mut fields, region: spot.region, name: &name, base };
        list.all(PACKET, 0);
        list.add("trailer", spot.len - pk::CHECK_FROM_END, 8, Other);
    }
    fields
}

fn session_fields(list: &mut List<'_>, r: &[u8], o: Order) {
    list.all(SESSION, se::INFO_AT);
    let area = |at: usize| o.at32(r, se::INFO_AT + at).unwrap_or(0) as usize;
    list.all(CONTROL, area(se::CONTROL_OFF_AT));
    list.all(CLOCK, area(se::CLOCK_OFF_AT));
    (0..3).for_each(|c| list.all(CHANNEL, area(se::CHANNELS_OFF_AT) + c * se::CHANNEL_LEN));
    let process = area(se::PROCESSES_OFF_AT);
    list.all(
        &[("pid", se::PROCESS_PID_AT, 4, Other), ("start", se::PROCESS_START_AT, 8, Other)],
        process,
    );
    let threads = area(se::THREADS_AT).min(4);
    for level in 0..threads * se::LEVELS {
        let thread = area(se::THREADS_OFF_AT) + level / se::LEVELS * se::THREAD_LEN;
        list.all(LEVEL, thread + se::LEVELS_AT + level % se::LEVELS * se::LEVEL_LEN);
    }
}

fn registry_fields(list: &mut List<'_>, r: &[u8], o: Order) {
    list.all(&[("end", rc::END_AT, 8, Length), ("dropped", rc::DROPPED_AT, 8, Other)], 0);
    let end = o.at64(r, rc::END_AT).unwrap_or(0) as usize;
    let mut at = rc::RECORDS_AT;
    let mut n = 0;
    while at < end {
        let len = o.at32(r, at).unwrap_or(0) as usize;
        let header = [
            ("len", 0, 4, Length),
            ("kind", 4, 2, Other),
            ("flags", 6, 2, Other),
            ("check", 8, 8, Other),
        ];
        list.all(&header, at);
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
    list.all(STREAM, st::INFO_AT);
    list.add("flip", st::CONTROL_AT + st::FLIP_AT, 4, Other);
    (0..st::LOST).for_each(|n| list.add("lost", st::CONTROL_AT + st::LOST_AT + 8 * n, 8, Other));
    let count = o.at32(r, st::INFO_AT + st::SUB_BUFFERS_AT).unwrap_or(0) as usize;
    for half in 0..2 {
        list.all(HALF, st::CONTROL_AT + st::HALVES_AT + half * st::HALF_LEN);
        let slots = o.at64(r, st::INFO_AT + st::SLOTS_OFF_AT + 8 * half).unwrap_or(0) as usize;
        (0..count.min(8)).for_each(|n| list.all(SLOT, slots + n * st::SLOT_LEN));
    }
}
