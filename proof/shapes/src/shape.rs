//! Random shapes: the configuration of a session, and the events that a program records in it.

use lastwords_testkit::random::{Random, mix};

use super::form::Form;

/// The language of the program that records a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Language {
    Rust,
    C,
    Cpp,
}

impl Language {
    pub(super) fn is_rust(self) -> bool {
        self == Self::Rust
    }
}

/// Where the memory of a session comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    Shm,
    Memfd,
    Heap,
    Huge,
    Dax,
    Physical,
}

impl Memory {
    fn random(rng: &mut Random) -> Self {
        match rng.below(12) {
            0 => Self::Memfd,
            1 => Self::Heap,
            2 => Self::Huge,
            3 => Self::Dax,
            4 => Self::Physical,
            _ => Self::Shm,
        }
    }
}

/// How the trace is read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    Ctf,
    Ctf2,
    Json,
    Text,
    Perfetto,
    /// `report --style babeltrace`.
    Babeltrace,
    /// `trace_pipe_raw` of a mount. Reading it consumes the events.
    Pages,
}

pub(super) const FORMATS: [Format; 7] = [
    Format::Ctf,
    Format::Ctf2,
    Format::Json,
    Format::Text,
    Format::Perfetto,
    Format::Babeltrace,
    Format::Pages,
];

impl Format {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ctf => "ctf",
            Self::Ctf2 => "ctf2",
            Self::Json => "json",
            Self::Text => "text",
            Self::Perfetto => "perfetto",
            Self::Babeltrace => "babeltrace",
            Self::Pages => "pages",
        }
    }
}

/// A field: its name and what it holds.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) form: Form,
}

/// One line of a program that records.
#[derive(Debug, Clone)]
pub(super) struct Class {
    /// 1 error to 5 trace.
    pub(super) level: u8,
    /// A marker's format string.
    pub(super) mark: Option<String>,
    /// In Rust, the fields of a marker before this one have no name in the program.
    pub(super) unnamed: usize,
    pub(super) fields: Vec<Field>,
    /// The field that holds the number; none in an event without fields.
    pub(super) number: Option<usize>,
}

/// A shape.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) index: u64,
    /// From which all values are made.
    pub(super) seed: u64,
    pub(super) language: Language,
    pub(super) memory: Memory,
    /// `rseq`, `lockless`, `locked`.
    pub(super) reservation: &'static str,
    /// Index in [`CLOCKS`].
    pub(super) clock: usize,
    /// Bits of contexts; none for the default.
    pub(super) contexts: Option<u32>,
    pub(super) user_contexts: Vec<Field>,
    pub(super) payload_size: bool,
    pub(super) full_headers: bool,
    pub(super) discard: bool,
    pub(super) of_user: bool,
    pub(super) snapshot: bool,
    pub(super) sub_buffers: u32,
    pub(super) sub_buffer_size: u64,
    pub(super) classes: Vec<Class>,
    pub(super) threads: usize,
    /// Each thread stays on one CPU.
    pub(super) pinned: bool,
    /// Microseconds between signals whose handler records; 0 for none.
    pub(super) every: u64,
    /// The rings hold 0xAA before the first event.
    pub(super) fill: bool,
    /// Events of the first thread before the kill.
    pub(super) target: u64,
    /// Microseconds after that.
    pub(super) delay: u64,
    /// A core of the process is read, where the memory is lost with it; else the stopped process.
    pub(super) core: bool,
    pub(super) formats: Vec<Format>,
}

pub(super) const PID: u32 = 1;
pub(super) const TID: u32 = 2;
pub(super) const NAME: u32 = 4;
pub(super) const CPU: u32 = 8;

/// Clocks: the default, and others, as Rust and C name them.
pub(super) const CLOCKS: [(&str, &str); 4] = [
    ("", ""),
    ("Monotonic", "LW_CLOCK_MONOTONIC"),
    ("MonotonicRaw", "LW_CLOCK_MONOTONIC_RAW"),
    ("Boottime", "LW_CLOCK_BOOTTIME"),
];

/// Names that a field may have besides `f0`, `f1`, ...: words of the CTF 1.8 language, and of the
/// lines of readers.
const NAMES: [&str; 12] = [
    "event", "align", "string", "stream", "cpu_id", "name", "_x", "value", "time", "level", "id",
    "clock",
];

/// The seed of one shape of a run.
pub(super) fn seed_of(seed: u64, index: u64) -> u64 {
    mix(seed ^ mix(index.wrapping_add(0x5eed)))
}

/// The class of an event: the first events take each class in turn.
pub(super) fn class_of(seed: u64, number: u64, classes: u64) -> u64 {
    if number < classes { number } else { mix(seed ^ mix(number)) % classes }
}

impl Shape {
    /// The shape of that index of a run.
    pub(super) fn random(run: u64, index: u64) -> Self {
        let seed = seed_of(run, index);
        let rng = &mut Random(mix(seed));
        let language = match index % 16 {
            0..8 => Language::Rust,
            8..12 => Language::C,
            _ => Language::Cpp,
        };
        let memory = Memory::random(rng);
        let persistent = matches!(memory, Memory::Dax | Memory::Physical);
        let reservation = match rng.below(if persistent { 2 } else { 4 }) {
            0 => "locked",
            1 => "lockless",
            _ => "rseq",
        };
        let every = if rng.one_in(3) { 150 + rng.below(800) } else { 0 };
        // The header of an event has room for 29 ids in its first word.
        let count = if rng.one_in(12) { 20 + rng.below(30) } else { 1 + rng.below(3) };
        let mut classes: Vec<Class> =
            (0..count).map(|number| class(rng, language, index, number, every > 0)).collect();
        if rng.one_in(12) {
            let level = 1 + rng.below(5) as u8;
            classes.push(Class { level, mark: None, unnamed: 0, fields: Vec::new(), number: None });
        }
        let contexts = match rng.below(6) {
            0 | 1 => None,
            2 => Some(0),
            3 => Some(PID | TID | NAME | CPU),
            4 => Some(TID),
            _ => Some(rng.below(16) as u32),
        };
        let user = if rng.one_in(4) { 1 + rng.below(3) } else { 0 };
        let user_contexts = (0..user)
            .map(|i| Field { name: format!("u{i}"), form: Form::fixed(rng, language.is_rust(), 4) })
            .collect();
        let sub_buffer_size =
            sub_buffer_size(rng, &classes, if memory == Memory::Heap { 4096 } else { 256 });
        let sub_buffers = 2u32 << rng.below(4);
        let average =
            classes.iter().map(|class| class.most() / 2 + 16).sum::<u64>() / classes.len() as u64;
        let room = u64::from(sub_buffers) * sub_buffer_size / average;
        let target = match rng.below(4) {
            0 => 1 + rng.below(200),
            1 => room / 2,
            2 => room * 3,
            _ => room * 12,
        };
        let formats = formats(rng, index, !matches!(memory, Memory::Memfd | Memory::Heap));
        Self {
            index,
            seed,
            language,
            memory,
            reservation,
            clock: if rng.one_in(4) { rng.below(4) as usize } else { 0 },
            contexts,
            user_contexts,
            payload_size: rng.one_in(4),
            full_headers: index % 8 == 7,
            discard: rng.one_in(6),
            of_user: rng.one_in(8),
            snapshot: rng.one_in(8),
            sub_buffers,
            sub_buffer_size,
            classes,
            threads: 1 + rng.below(2) as usize,
            pinned: !rng.one_in(4),
            every,
            fill: rng.one_in(2) && memory != Memory::Heap,
            target: target.clamp(8, 60_000),
            delay: rng.below(2500),
            core: rng.one_in(6),
            formats,
        }
    }

    /// The contexts that are recorded, with the default resolved.
    pub(super) fn context_bits(&self) -> u32 {
        self.contexts.unwrap_or(if self.of_user { PID | TID } else { TID })
    }

    /// The name of a class in the trace.
    pub(super) fn name_of(&self, class: usize) -> String {
        match &self.classes[class].mark {
            Some(format) => format!("marker:{format}"),
            None => format!("s{}:c{class}", self.index),
        }
    }

    /// Returns the shape in words.
    pub(super) fn shown(&self) -> String {
        let contexts = match self.contexts {
            None => "default".to_owned(),
            Some(bits) => format!("{bits:#x}"),
        };
        let mut text = format!(
            "{:?}, {:?}, {}, contexts {contexts} and {} of the application, {} x {} bytes, {} threads",
            self.language,
            self.memory,
            self.reservation,
            self.user_contexts.len(),
            self.sub_buffers,
            self.sub_buffer_size,
            self.threads
        );
        let flags = [
            (self.discard, "discard"),
            (self.payload_size, "payload size"),
            (self.full_headers, "full headers"),
            (self.of_user, "scope user"),
            (self.snapshot, "snapshots"),
            (self.pinned, "pinned"),
            (self.every > 0, "signal handlers"),
            (self.fill, "filled with 0xAA"),
        ];
        flags
            .iter()
            .filter(|(is_set, _)| *is_set)
            .for_each(|(_, flag)| text += &format!(", {flag}"));
        text
    }
}

impl Class {
    /// Most bytes of its payload.
    pub(super) fn most(&self) -> u64 {
        self.fields.iter().map(|field| field.form.most()).sum()
    }
}

/// Bytes of a sub-buffer, which has room for two of the largest events, or now and then not even
/// for one.
fn sub_buffer_size(rng: &mut Random, classes: &[Class], least: u64) -> u64 {
    let largest = classes.iter().map(Class::most).max().unwrap_or(0) + 160 + 192;
    let size = (2 * largest + 128).next_power_of_two().max(least) << rng.below(4);
    if rng.one_in(10) { (largest / 2).next_power_of_two().max(least) } else { size }
}

fn class(rng: &mut Random, language: Language, shape: u64, number: u64, in_handler: bool) -> Class {
    let is_mark = rng.one_in(5);
    // Short events are what programs record most, and what the fast paths are for.
    let count = match rng.below(4) {
        0 => 1 + rng.below(16),
        _ => 1 + rng.below(5),
    } as usize;
    let at = rng.below(count as u64) as usize;
    // Most of all, some numbers and then a text.
    let text_last = count > 1 && at + 1 < count && rng.one_in(2);
    // Most events have no long text, some have two, few have any number of them in any place.
    let mut large = match rng.below(12) {
        0 => count.min(6),
        1 | 2 => 2,
        _ => 0,
    };
    let mut fields: Vec<Field> = Vec::new();
    for i in 0..count {
        let form = if i == at {
            Form::number(rng)
        } else if text_last && i + 1 == count {
            Form::text(rng)
        } else if text_last && rng.one_in(2) {
            Form::wide(rng)
        } else {
            Form::random(rng, language.is_rust(), in_handler, &mut large)
        };
        // Markers take values alone.
        let form = if is_mark && !form.prefix().is_empty() { Form::Char } else { form };
        let other = NAMES[rng.below(NAMES.len() as u64) as usize];
        let is_free = !is_mark
            && !fields
                .iter()
                .any(|field| field.name.trim_start_matches('_') == other.trim_start_matches('_'));
        let name = if rng.one_in(8) && is_free { other.to_owned() } else { format!("f{i}") };
        fields.push(Field { name, form });
    }
    let level = 1 + rng.below(5) as u8;
    if !is_mark {
        return Class { level, mark: None, unnamed: 0, fields, number: Some(at) };
    }
    let unnamed = if language.is_rust() { rng.below(count as u64 + 1) as usize } else { count };
    let mut format = format!("S{shape}C{number}");
    for (i, field) in fields.iter_mut().enumerate() {
        if language.is_rust() && i < unnamed {
            field.name = format!("arg{i}");
        }
        format += &if i < unnamed { "|{}".to_owned() } else { format!("|{{{}}}", field.name) };
    }
    format.push('|');
    Class { level: 3, mark: Some(format), unnamed, fields, number: Some(at) }
}

/// A format that comes round, and at times one more. A session whose memory is not in its folder
/// cannot be mounted.
fn formats(rng: &mut Random, index: u64, is_mounted: bool) -> Vec<Format> {
    let mut formats = vec![FORMATS[(index % FORMATS.len() as u64) as usize]];
    let other = FORMATS[rng.below(FORMATS.len() as u64) as usize];
    if rng.one_in(2) && other != formats[0] {
        formats.push(other);
    }
    // Nothing can be read after what consumes.
    formats.sort_by_key(|format| *format == Format::Pages);
    formats
        .iter_mut()
        .filter(|format| !is_mounted && **format == Format::Pages)
        .for_each(|format| *format = Format::Text);
    formats.dedup();
    formats
}
