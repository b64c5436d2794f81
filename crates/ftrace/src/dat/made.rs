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

use crate::format::identifier;
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
    /// The time in nanoseconds. If it is before that of the CPU's last event, a sub-buffer begins.
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
        let system = identifier(system);
        let name = unused(name, |name| self.names.insert((system.clone(), name.to_owned())));
        let mut all = Field::common();
        let mut offset = COMMON;
        let mut taken: BTreeSet<String> = all.iter().map(|field| field.name.clone()).collect();
        let (mut words, mut arguments) = (Vec::new(), String::new());
        for (given, kind) in fields {
            let name = unused(given, |name| taken.insert(name.to_owned()));
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

    /// Names a thread. Returns false if readers show another name: a file has one for each thread, the
    /// first, and the idle threads are `<idle>` whatever it says. A thread that is not known has none.
    pub fn name_thread(&mut self, tid: i32, name: &str) -> bool {
        let clean = name.replace(['\n', '\0'], " ");
        match u32::try_from(tid) {
            Ok(0) => clean == "<idle>",
            Ok(tid) => *self.comms.entry(tid).or_insert_with(|| clean.clone()) == clean,
            Err(_) => false,
        }
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
        let end = lane.bytes.len().saturating_add(payload.len()).saturating_add(24);
        if end > SUB_BUFFER || head.time < lane.time {
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
        self.time = time;
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

/// Returns a name as formats can have it, with the first number, if it needs one, with which `take`
/// finds it unused.
fn unused(name: &str, mut take: impl FnMut(&str) -> bool) -> String {
    let base = identifier(name);
    let mut name = base.clone();
    let mut number = 1_u32;
    while !take(&name) {
        number = number.saturating_add(1);
        name = format!("{base}_{number}");
    }
    name
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
            _ => SubBufferInfo::MISSING,
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dat::{WriteOptions, write};
    use lastwords_testkit::random::Random;
    use std::process::Command;

    /// What trace-cmd prints of the events, a line for each.
    fn printed(tracing: &Tracing) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("made.dat");
        write(&path, tracing, &WriteOptions::default()).expect("written");
        let mut command = Command::new("trace-cmd");
        let output = command.args(["report", "-t", "-i"]).arg(&path).output().expect("trace-cmd");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && errors.is_empty(), "{errors}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter(|line| !line.starts_with("cpus=")).map(str::to_owned).collect()
    }

    /// A line of trace-cmd without its columns' widths.
    fn line(comm: &str, head: Head, name: &str, rest: &str) -> String {
        let (seconds, ns) = (head.time / 1_000_000_000, head.time % 1_000_000_000);
        format!("{comm}-{} [{:03}] {seconds}.{ns:09}: {name}: {rest}", head.tid, head.cpu)
    }

    fn squeezed(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Numbers that fall on the borders of their types, times whose distance needs more bits than an
    /// event has, texts of all lengths, so that sub-buffers end everywhere.
    #[test]
    fn trace_cmd_finds_what_was_given() {
        let mut random = Random(7);
        let mut random = |end: u64| random.below(end);
        let mut maker = Maker::new().expect("a temporary file");
        let fields = |all: &[(&str, Kind)]| -> Vec<(String, Kind)> {
            all.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
        };
        let order = fields(&[
            ("id", Kind::Unsigned),
            ("text", Kind::Text),
            ("delta", Kind::Signed),
            ("mask", Kind::Hexadecimal),
            ("second", Kind::Text),
        ]);
        let bare = maker.format("shop", "tick", &[]).expect("a format");
        let order = maker.format("shop", "order", &order).expect("a format");
        assert!(maker.name_thread(41, "worker one"));
        assert!(maker.name_thread(41, "worker one"));
        assert!(!maker.name_thread(41, "another"));
        assert!(!maker.name_thread(0, "swapper/0") && maker.name_thread(0, "<idle>"));
        assert!(!maker.name_thread(-1, "of no thread"));
        let mut expected = Vec::new();
        let mut time = 5;
        for at in 0..4000_u64 {
            // Up to 2^44 ns, five hours.
            let shift = random(45);
            time += 1 + random(1 << shift);
            if random(300) == 0 {
                time /= 2;
            }
            let (cpu, tid) = ([0, 1, 5][random(3) as usize], if at % 2 == 0 { 41 } else { 42 });
            let comm = if tid == 41 { "worker one" } else { "<...>" };
            if random(4) == 0 {
                let head = Head { cpu, time, format: bare, tid };
                assert!(maker.add(head, &[]).expect("added"));
                expected.push(squeezed(&line(comm, head, "tick", "")));
                continue;
            }
            let number = |bits: u64| [0, 1, u64::MAX, 1 << 63, 1 << bits][bits as usize % 5];
            let (id, delta, mask) = (number(random(64)), number(random(64)), number(random(64)));
            let long = random(200) == 0;
            let len = random(if long { 30_000 } else { 60 }) as usize;
            let (text, second) = ("ä".repeat(len), format!("n{at}"));
            let values = [
                Value::Number(id),
                Value::Text(text.clone()),
                Value::Number(delta),
                Value::Number(mask),
                Value::Text(second.clone()),
            ];
            let head = Head { cpu, time, format: order, tid };
            assert!(maker.add(head, &values).expect("added"));
            let rest = format!(
                "id={id} text={text} delta={} mask={mask:#x} second={second}",
                delta.cast_signed()
            );
            expected.push(squeezed(&line(comm, head, "order", &rest)));
        }
        // trace-cmd merges the CPUs, each of which is in its order.
        let by_cpu = |lines: &mut Vec<String>| {
            lines.sort_by_key(|line| line.split_once(" [").map(|(_, rest)| rest[..3].to_owned()));
        };
        by_cpu(&mut expected);
        let tracing = maker.finish(None).expect("made");
        let rings = tracing.arrays[0].live.cpus();
        assert!(rings.iter().all(|ring| ring.sub_buffers > 2), "{rings:?}");
        let mut found: Vec<String> = printed(&tracing).iter().map(|line| squeezed(line)).collect();
        by_cpu(&mut found);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
        assert_eq!(found.len(), expected.len());
    }

    #[test]
    fn names_that_formats_cannot_have_are_changed_and_kept_apart() {
        let mut maker = Maker::new().expect("a temporary file");
        let fields: Vec<(String, Kind)> = ["a-b", "a_b", "struct", "7", "", "common_pid", "größe"]
            .map(|name| (name.to_owned(), Kind::Unsigned))
            .into();
        let values: Vec<Value> = (1..=7).map(Value::Number).collect();
        for (time, name) in [(1, "http::get"), (2, "http::get"), (3, "http--get")] {
            let format = maker.format("my crate::web", name, &fields).expect("a format");
            let head = Head { cpu: 0, time, format, tid: 1 };
            assert!(maker.add(head, &values).expect("added"));
        }
        let rest = "a_b=1 a_b_2=2 struct_=3 _7=4 _=5 common_pid_2=6 gr__e=7";
        let expected =
            [(1, "http__get"), (2, "http__get_2"), (3, "http__get_3")].map(|(time, name)| {
                line("<...>", Head { cpu: 0, time, format: 0, tid: 1 }, name, rest)
            });
        let tracing = maker.finish(None).expect("made");
        let found: Vec<String> = printed(&tracing).iter().map(|line| squeezed(line)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_and_told() {
        let mut maker = Maker::new().expect("a temporary file");
        let fields = ["one", "two"].map(|name| (name.to_owned(), Kind::Text));
        let format = maker.format("shop", "dump", &fields).expect("a format");
        let add = |maker: &mut Maker, lengths: [usize; 2], time| {
            let values = lengths.map(|len| Value::Text("é".repeat(len)));
            maker.add(Head { cpu: 0, time, format, tid: 1 }, &values).expect("added")
        };
        assert!(add(&mut maker, [16_000, 16_000], 1));
        assert!(!add(&mut maker, [40_000, 3], 2));
        assert!(add(&mut maker, [3, 3], 3));
        let found = printed(&maker.finish(None).expect("made"));
        let counts: Vec<usize> = found.iter().map(|line| line.matches('é').count()).collect();
        let [whole, cut, short] = counts[..] else { panic!("{counts:?}") };
        assert!(whole == 32_000 && (32_000..40_000).contains(&cut) && short == 6, "{counts:?}");
    }
}
