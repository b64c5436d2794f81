//! The places that events and spans come from: how their events are described, and whether anyone records them, which is one
//! load before anything is formatted.
//!
//! Callsites of `tracing` have a site for each kind of event. Records of the `log` crate come from one callsite a level; there
//! each place in the source has a site, so that target, file and line are told once, by the description.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use lastwords_abi::registry::level;
use tracing_core::field::{Field, Visit};
use tracing_core::{Event, Level, Metadata};

use super::class::Class;
use super::name::{self, Name};
use super::table::{Chain, Table};
use crate::record::callsite::Guard;
use crate::record::slot;
use crate::session::listener;
use crate::session::registry::EventDesc;

/// What happened at the callsite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Event,
    New,
    Enter,
    Exit,
    Record,
    Close,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::New => "new",
            Self::Enter => "enter",
            Self::Exit => "exit",
            Self::Record => "record",
            Self::Close => "close",
        }
    }
}

/// Where events come from.
pub(super) struct Site {
    /// Address of the static metadata, which is a multiple of eight, and the kind in its low bits; 0 for a place of the `log`
    /// crate.
    key: usize,
    pub(super) kind: Kind,
    /// The place of a record of the `log` crate.
    place: Option<Place>,
    /// Its records of the `log` crate are told apart by their places.
    is_log: bool,
    /// Fields of the callsite that `desc` tells, a bit each.
    pub(super) told: u64,
    /// Where the message is among the fields, if it is constant text: it is the name then.
    pub(super) message_at: Option<usize>,
    /// The description without fields.
    pub(super) desc: EventDesc,
    /// The name of events whose message is not the constant text.
    pub(super) other_name: &'static str,
    /// The classes of events from here.
    pub(super) classes: Chain<Class>,
    /// Whether a session records its events. Written under the lock of the callsites.
    wanted: AtomicBool,
}

static SITES: Table<Site> = Table::new();

impl Site {
    /// A site that is wanted until it is judged.
    fn new(metadata: &'static Metadata<'static>, kind: Kind, desc: EventDesc) -> Self {
        Self {
            key: key_of(metadata, kind),
            kind,
            place: None,
            is_log: false,
            told: 0,
            message_at: None,
            desc,
            other_name: desc.name,
            classes: Chain::new(),
            wanted: AtomicBool::new(true),
        }
    }

    /// The site of the events of a callsite, named by the message of the first of them.
    fn of_events(event: &Event<'_>, provider: &'static str, file: &'static str, line: u32) -> Self {
        let metadata = event.metadata();
        let place = match metadata.name() {
            // The macros make up this name for events without one, tracing-log the other.
            name if name.starts_with("event ") || name == "log event" || name.is_empty() => None,
            name => Some(name),
        };
        let other_name = place.unwrap_or_else(|| name::of_place(file, line));
        let named = if place.is_none() { name::of_event(event) } else { Name::None };
        let (name, is_constant) = match named {
            Name::Constant(text) => (text, true),
            Name::Pattern(text) => (text, false),
            Name::None => (other_name, false),
        };
        let desc = EventDesc { provider, name, level: level_of(metadata), format: "", file, line, fields: &[] };
        let message = metadata.fields().field("message");
        let message_at = message.filter(|_| is_constant).map(|field| field.index());
        let other_name = if is_constant { other_name } else { name };
        Self { message_at, other_name, ..Self::new(metadata, Kind::Event, desc) }
    }

    /// The caller holds the lock.
    fn judge(&self) {
        let other = EventDesc { name: self.other_name, ..self.desc };
        let wanted = slot::any_takes(&self.desc) || (self.message_at.is_some() && slot::any_takes(&other));
        self.wanted.store(wanted || listener::is_missing(), Relaxed);
    }

    #[inline]
    fn if_wanted(&self) -> Option<&Self> {
        self.wanted.load(Relaxed).then_some(self)
    }
}

/// Judges every site anew; the caller holds the lock of the callsites.
pub(crate) fn refresh() {
    SITES.iter().for_each(Site::judge);
}

/// Lets everything through, so that all that happens looks for changes of rules. Async-signal-safe.
pub(crate) fn watch() {
    SITES.iter().for_each(|site| site.wanted.store(true, Relaxed));
}

/// The site of the event, if it is wanted.
#[inline]
pub(super) fn of_event(event: &Event<'_>) -> Option<&'static Site> {
    let metadata = event.metadata();
    let mut site = find(metadata, Kind::Event).unwrap_or_else(|| add_event(event));
    if site.is_log {
        site = of_log(event).unwrap_or(site);
    }
    site.if_wanted()
}

/// The site of what the span does, if it is wanted.
#[inline]
pub(super) fn of_span(metadata: &'static Metadata<'static>, kind: Kind) -> Option<&'static Site> {
    find(metadata, kind).unwrap_or_else(|| add_span(metadata, kind)).if_wanted()
}

/// Whether events of the callsite are wanted. What is not known is: `log` asks with metadata that last as long as the question.
#[inline]
pub(super) fn is_wanted(metadata: &Metadata<'_>) -> bool {
    find(metadata, Kind::Event).is_none_or(|site| site.is_log || site.if_wanted().is_some())
}

#[cold]
#[inline(never)]
fn add_event(event: &Event<'_>) -> &'static Site {
    let metadata = event.metadata();
    let is_log = metadata.name() == "log event" && metadata.fields().iter().map(|field| field.name()).eq(LOG_FIELDS);
    let site = if is_log {
        let level = level_of(metadata);
        let desc = EventDesc { provider: "log", name: "record", level, format: "", file: "", line: 0, fields: &[] };
        Site { is_log, ..Site::new(metadata, Kind::Event, desc) }
    } else {
        let (file, line) = (metadata.file().unwrap_or(""), metadata.line().unwrap_or(0));
        Site::of_events(event, metadata.target(), file, line)
    };
    add(site.key as u64, site)
}

#[cold]
#[inline(never)]
fn add_span(metadata: &'static Metadata<'static>, kind: Kind) -> &'static Site {
    let name = format!("{} {}::{}", kind.word(), metadata.target(), metadata.name());
    let site = Site::new(metadata, kind, describe_span(metadata, String::leak(name)));
    add(site.key as u64, site)
}

/// What a span does is no warning and no error, whatever the level of what happens in it: a channel for those takes none of it.
fn describe_span(metadata: &'static Metadata<'static>, name: &'static str) -> EventDesc {
    EventDesc {
        provider: "span",
        name,
        level: level_of(metadata).max(level::INFO),
        format: "",
        file: metadata.file().unwrap_or(""),
        line: metadata.line().unwrap_or(0),
        fields: &[],
    }
}

/// Adds the site and judges it. Where the lock is not to be had it is wanted until the next change.
fn add(hash: u64, new: Site) -> &'static Site {
    let site = SITES.add(hash, |a, b| (a.key, &a.place) == (b.key, &b.place), new);
    if let Some(_guard) = Guard::take() {
        site.judge();
    }
    site
}

#[inline]
fn find(metadata: &Metadata<'_>, kind: Kind) -> Option<&'static Site> {
    let key = key_of(metadata, kind);
    SITES.find(key as u64, |site| site.key == key)
}

#[inline]
fn key_of(metadata: &Metadata<'_>, kind: Kind) -> usize {
    const { assert!(align_of::<Metadata<'_>>() > Kind::Close as usize) };
    std::ptr::from_ref(metadata).addr() | kind as usize
}

pub(super) fn level_of(metadata: &Metadata<'_>) -> u8 {
    match *metadata.level() {
        Level::ERROR => level::ERROR,
        Level::WARN => level::WARN,
        Level::INFO => level::INFO,
        Level::DEBUG => level::DEBUG,
        Level::TRACE => level::TRACE,
    }
}

/// Most places of records of the `log` crate that are told apart: a program may make up any number of targets. Records of those
/// beyond have the provider `log`, and target, module, file and line as fields.
const MOST_PLACES: usize = 1024;
static PLACES: AtomicUsize = AtomicUsize::new(0);
/// Most bytes of target, module and file of a place.
const MOST_BYTES: usize = 512;
/// The fields of a record of the `log` crate, as the crate tracing-log makes them.
const LOG_FIELDS: [&str; 5] = ["message", "log.target", "log.module_path", "log.file", "log.line"];
const TARGET: usize = 1;
const MODULE: usize = 2;
const FILE: usize = 3;
const LINE: usize = 4;

/// A place in the source where records of the `log` crate come from.
#[derive(PartialEq, Eq)]
struct Place {
    /// [`key_of`] the callsite of the level.
    key: usize,
    /// Target, module and file.
    texts: [Box<str>; 3],
    line: u64,
}

/// Collects the place of a record.
struct OfLog {
    bytes: [u8; MOST_BYTES],
    /// Where target, module and file end.
    ends: [usize; 3],
    len: usize,
    line: u64,
    is_whole: bool,
}

impl OfLog {
    fn texts(&self) -> [&[u8]; 3] {
        let [target, module, file] = self.ends;
        [&self.bytes[..target], &self.bytes[target..module], &self.bytes[module..file]]
    }
}

impl Visit for OfLog {
    fn record_str(&mut self, field: &Field, text: &str) {
        let at = field.index();
        if !(TARGET..=FILE).contains(&at) {
            return;
        }
        match self.bytes.get_mut(self.len..self.len + text.len()) {
            Some(room) => room.copy_from_slice(text.as_bytes()),
            None => return self.is_whole = false,
        }
        self.len += text.len();
        // Those that are absent are empty.
        self.ends[at - TARGET..].fill(self.len);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.index() == LINE {
            self.line = value;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// The site of the record's place; none where there are too many places, or its texts are too long.
fn of_log(event: &Event<'_>) -> Option<&'static Site> {
    let mut found = OfLog { bytes: [0; MOST_BYTES], ends: [0; 3], len: 0, line: 0, is_whole: true };
    event.record(&mut found);
    if !found.is_whole {
        return None;
    }
    let key = key_of(event.metadata(), Kind::Event);
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = found.bytes[..found.len].iter().fold(key as u64 ^ found.line << 40, step);
    let texts = found.texts();
    let is = |site: &Site| {
        let place = site.place.as_ref().filter(|place| place.line == found.line && place.key == key);
        place.is_some_and(|place| place.texts.iter().zip(texts).all(|(a, b)| a.as_bytes() == b))
    };
    SITES.find(hash, is).or_else(|| add_place(event, &found, key, hash))
}

#[cold]
#[inline(never)]
fn add_place(event: &Event<'_>, found: &OfLog, key: usize, hash: u64) -> Option<&'static Site> {
    if PLACES.fetch_add(1, Relaxed) >= MOST_PLACES {
        PLACES.store(MOST_PLACES, Relaxed);
        return None;
    }
    let texts = found.texts().map(|text| String::from_utf8_lossy(text).into_owned().into_boxed_str());
    let leak = |text: &str| -> &'static str { String::leak(text.to_owned()) };
    // Most modules are their own target.
    let module = if texts[0] == texts[1] || texts[1].is_empty() { 1 << MODULE } else { 0 };
    let site = Site::of_events(event, leak(&texts[0]), leak(&texts[2]), u32::try_from(found.line).unwrap_or(0));
    let told = 1 << TARGET | 1 << FILE | 1 << LINE | module;
    let place = Some(Place { key, texts, line: found.line });
    Some(add(hash, Site { key: 0, told, place, ..site }))
}
