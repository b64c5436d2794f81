//! The places that events and spans come from. A site describes its events, and knows whether
//! anyone records them. That takes one load, before anything is formatted.
//!
//! Callsites of `tracing` have a site for each kind of event. Records of the `log` crate come from
//! one callsite for each level. There, each place in the source has a site, so that the description
//! contains target, file and line once.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

use lastwords_abi::registry::level;
use tracing_core::{Event, Level, Metadata};
use tracing_log::NormalizeEvent as _;

use super::class::Class;
use super::hiding::{self, Ways};
use super::interest;
use super::message;
use super::signature::A_WORD;
use super::span_text::SpanHead;
use super::table::{Chain, Table};
use super::threads;
use crate::record::callsite::Guard;
use crate::record::takes;
use crate::session::desc::EventDesc;
use crate::session::listener;

/// The kinds of events of a callsite.
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
    fn word(self) -> &'static str {
        ["event", "new", "enter", "exit", "record", "close"][self as usize]
    }
}

/// Index of no field.
const NO_MESSAGE: usize = usize::MAX;

/// A place that events come from.
pub(super) struct Site {
    /// Address of the static metadata, which is a multiple of eight, and the kind in its low bits.
    /// For a place of the `log` crate, [`LOG_PLACE`] replaces the kind.
    key: usize,
    pub(super) kind: Kind,
    /// The module of a place of the `log` crate.
    module: &'static str,
    /// The site is for records of the `log` crate, which are distinguished by their places.
    is_log: bool,
    /// Fields of the callsite that `desc` already contains, one bit each.
    pub(super) told: u64,
    /// Fields below this index may take the shortest way into a payload: those in the first word
    /// of a signature; 0 if `told` has a field.
    pub(super) usual: usize,
    /// Index of the message among the fields, if it is constant text, which is the name then;
    /// otherwise [`NO_MESSAGE`].
    pub(super) message_at: usize,
    /// The description without fields.
    pub(super) desc: EventDesc,
    /// The name of events whose message is not the constant text.
    pub(super) other_name: &'static str,
    /// The head of a new span's text.
    pub(super) span_head: SpanHead,
    /// Number of fields of the callsite.
    pub(super) fields: usize,
    /// Level of the callsite, as the registry has it.
    pub(super) level: u8,
    /// The callsite.
    pub(super) metadata: &'static Metadata<'static>,
    /// The classes of events from here.
    pub(super) classes: Chain<Class>,
    /// True if a session records the site's events. It is written under the lock of the callsites.
    wanted: AtomicBool,
    /// How the fields are hidden, if one is; else null. It is written under the lock of the
    /// callsites (Release) after the memory that it points to.
    hides: AtomicPtr<Ways>,
}

static SITES: Table<Site> = Table::new();

impl Site {
    /// Makes a site that is wanted until it is evaluated.
    pub(super) fn new(metadata: &'static Metadata<'static>, kind: Kind, desc: EventDesc) -> Self {
        Self {
            key: key_of(metadata, kind),
            kind,
            module: "",
            is_log: false,
            told: 0,
            usual: A_WORD,
            message_at: NO_MESSAGE,
            desc,
            other_name: desc.name,
            span_head: SpanHead::default(),
            fields: metadata.fields().len(),
            level: level_of(metadata),
            metadata,
            classes: Chain::new(),
            wanted: AtomicBool::new(true),
            hides: AtomicPtr::new(kept(hiding::ways(metadata))),
        }
    }

    /// Makes the site of a callsite's events. If the message is constant, it is the name; otherwise
    /// the place is.
    fn of_events(event: &Event<'_>, provider: &'static str, file: &'static str, line: u32) -> Self {
        let metadata = event.metadata();
        // A name of its own stays, whatever the message is.
        let place = Some(metadata.name())
            .filter(|name| !event.is_log() && !is_made_by_macro(name, metadata));
        let other_name = place.unwrap_or_else(|| message::place(file, line));
        let field = if place.is_none() { metadata.fields().field("message") } else { None };
        let constant = field.as_ref().and_then(|field| message::name(event, field));
        let name = constant.unwrap_or(other_name);
        let desc = EventDesc { file, line, ..EventDesc::named(provider, name, level_of(metadata)) };
        let message_at =
            field.filter(|_| constant.is_some()).map_or(NO_MESSAGE, |field| field.index());
        Self { message_at, other_name, ..Self::new(metadata, Kind::Event, desc) }
    }

    /// Returns target, module, file and line, which distinguish places of the `log` crate.
    fn place(&self) -> (&str, &str, &str, u32) {
        (self.desc.provider, self.module, self.desc.file, self.desc.line)
    }

    /// Returns how the fields are hidden, if one is.
    #[inline]
    pub(super) fn hides(&self) -> Option<Ways> {
        // SAFETY: only pointers to values that live for ever are stored.
        unsafe { self.hides.load(Acquire).as_ref() }.copied()
    }

    /// Evaluates whether a session wants the site's events, and which fields are hidden. The caller
    /// holds the lock.
    fn judge(&self) {
        let hides = hiding::ways(self.metadata);
        if hides != self.hides() {
            self.hides.store(kept(hides), Release);
        }
        let other = EventDesc { name: self.other_name, ..self.desc };
        let wanted = takes::any_takes(&self.desc)
            || (self.message_at != NO_MESSAGE && takes::any_takes(&other));
        let wanted = wanted || listener::is_missing();
        if self.wanted.swap(wanted, Relaxed) != wanted {
            interest::changed();
        }
    }

    /// Returns the site if a session records its events.
    #[inline]
    pub(super) fn if_wanted(&self) -> Option<&Self> {
        self.wanted.load(Relaxed).then_some(self)
    }
}

/// Keeps the ways for ever; null if there are none.
fn kept(ways: Option<Ways>) -> *mut Ways {
    ways.map_or(std::ptr::null_mut(), |ways| Box::into_raw(Box::new(ways)))
}

/// Returns true if the name is the one that the macros make for events without one: `event
/// FILE:LINE`.
fn is_made_by_macro(name: &str, metadata: &Metadata<'_>) -> bool {
    let (file, line) = (metadata.file().unwrap_or(""), metadata.line().unwrap_or(0));
    let place =
        name.strip_prefix("event ").and_then(|place| place.strip_prefix(file)?.strip_prefix(':'));
    name.is_empty() || place.is_some_and(|place| place.parse() == Ok(line))
}

/// Evaluates every site again. The caller holds the lock of the callsites.
pub(crate) fn refresh() {
    threads::sessions_changed();
    SITES.iter().for_each(Site::judge);
}

/// Lets all events through, so that each of them looks for changes of rules. Async-signal-safe.
pub(crate) fn watch() {
    SITES.iter().for_each(|site| site.wanted.store(true, Relaxed));
}

/// Returns the site of the event, if it is wanted.
#[inline]
pub(super) fn of_event(event: &Event<'_>) -> Option<&'static Site> {
    let metadata = event.metadata();
    let mut site = find(metadata, Kind::Event).unwrap_or_else(|| add_event(event));
    if site.is_log {
        site = of_log(event).unwrap_or(site);
    }
    site.if_wanted()
}

/// Returns the site of this kind of event of the span.
#[inline]
pub(super) fn of_span(metadata: &'static Metadata<'static>, kind: Kind) -> &'static Site {
    find(metadata, kind).unwrap_or_else(|| add_span(metadata, kind))
}

/// Returns true if events of the callsite are wanted. An unknown callsite is wanted, because `log`
/// asks with metadata that do not outlive the call.
#[inline]
pub(super) fn is_wanted(metadata: &Metadata<'_>) -> bool {
    find(metadata, Kind::Event).is_none_or(|site| site.is_log || site.if_wanted().is_some())
}

/// Returns true if events of the callsite are wanted now. Before the first event their name is not
/// known, so that the rules for names decide nothing here.
pub(super) fn is_wanted_now(metadata: &'static Metadata<'static>) -> bool {
    if let Some(site) = find(metadata, Kind::Event) {
        return !site.is_log && site.if_wanted().is_some();
    }
    takes::any_takes(&EventDesc::named(metadata.target(), metadata.name(), level_of(metadata)))
}

#[cold]
#[inline(never)]
fn add_event(event: &Event<'_>) -> &'static Site {
    let metadata = event.metadata();
    let site = if event.is_log() {
        let desc = EventDesc::named("log", "record", level_of(metadata));
        Site { is_log: true, ..Site::new(metadata, Kind::Event, desc) }
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
    // The events of a span itself have level INFO at most, whatever the span's own level. So a
    // channel for warnings and errors takes none of them.
    let level = level_of(metadata).max(level::INFO);
    let desc = EventDesc {
        file: metadata.file().unwrap_or(""),
        line: metadata.line().unwrap_or(0),
        ..EventDesc::named("span", String::leak(name), level)
    };
    let head = |_| SpanHead::leak(metadata.target(), metadata.name());
    let span_head = Some(kind).filter(|kind| *kind == Kind::New).map(head).unwrap_or_default();
    let site = Site { span_head, ..Site::new(metadata, kind, desc) };
    add(site.key as u64, site)
}

/// Adds the site and evaluates it. If the lock cannot be taken, the site is wanted until the next
/// change.
fn add(hash: u64, new: Site) -> &'static Site {
    let site = SITES.add(hash, |a, b| (a.key, a.place()) == (b.key, b.place()), new);
    if let Some(_guard) = Guard::take() {
        site.judge();
    }
    if site.if_wanted().is_some() {
        interest::changed();
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
    const { assert!(align_of::<Metadata<'_>>() > LOG_PLACE) };
    std::ptr::from_ref(metadata).addr() | kind as usize
}

/// Returns the level as the registry has it: 1 is the most severe.
pub(super) fn level_of(metadata: &Metadata<'_>) -> u8 {
    let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG];
    levels
        .iter()
        .position(|level| level == metadata.level())
        .map_or(level::TRACE, |at| at as u8 + level::ERROR)
}

/// Largest number of places of the `log` crate that get their own site, because a program may use
/// any number of targets. Records of further places have the provider `log`, and target, module,
/// file and line as fields.
const MOST_PLACES: usize = 1024;
static PLACES: AtomicUsize = AtomicUsize::new(0);
/// Largest number of bytes of target, module and file of a place.
const MOST_BYTES: usize = 512;
/// Value in the low bits of [`Site::key`] for a place of the `log` crate.
const LOG_PLACE: usize = 7;
/// The fields that a place determines, by their index in a record of the `log` crate, as the crate
/// tracing-log makes it.
const TARGET: usize = 1;
const MODULE: usize = 2;
const FILE: usize = 3;
const LINE: usize = 4;

/// Returns the site of the record's place; none if there are too many places, or its texts are too
/// long.
fn of_log(event: &Event<'_>) -> Option<&'static Site> {
    let told = event.normalized_metadata()?;
    let (target, module, file) =
        (told.target(), told.module_path().unwrap_or(""), told.file().unwrap_or(""));
    if target.len() + module.len() + file.len() > MOST_BYTES {
        return None;
    }
    let line = told.line().unwrap_or(0);
    let key = key_of(event.metadata(), Kind::Event) | LOG_PLACE;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = [target, module, file]
        .into_iter()
        .flat_map(str::bytes)
        .fold(key as u64 ^ u64::from(line) << 40, step);
    let found =
        SITES.find(hash, |site| site.key == key && site.place() == (target, module, file, line));
    found.or_else(|| add_place(event, &told, key, hash))
}

#[cold]
#[inline(never)]
fn add_place(
    event: &Event<'_>,
    told: &Metadata<'_>,
    key: usize,
    hash: u64,
) -> Option<&'static Site> {
    if PLACES.fetch_add(1, Relaxed) >= MOST_PLACES {
        PLACES.store(MOST_PLACES, Relaxed);
        return None;
    }
    let leak = |text: Option<&str>| -> &'static str { String::leak(text.unwrap_or("").to_owned()) };
    let (target, module) = (leak(Some(told.target())), leak(told.module_path()));
    let site = Site::of_events(event, target, leak(told.file()), told.line().unwrap_or(0));
    // For most modules, the target is the module itself.
    let told = if target == module || module.is_empty() { 1 << MODULE } else { 0 };
    let told = told | 1 << TARGET | 1 << FILE | 1 << LINE;
    Some(add(hash, Site { key, told, usual: 0, module, ..site }))
}

#[cfg(test)]
pub(super) mod tests {
    use tracing_core::metadata::Kind;
    use tracing_core::{Callsite, Interest, Level, Metadata};

    use super::{EventDesc, Site};

    struct Place;
    impl Callsite for Place {
        fn set_interest(&self, _: Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            &METADATA
        }
    }
    static METADATA: Metadata<'static> = tracing_core::metadata! {
        name: "x", target: "x", level: Level::INFO, fields: &[], callsite: &Place, kind: Kind::SPAN,
    };

    /// Returns a new site.
    pub(in crate::layer) fn any() -> &'static Site {
        let desc = EventDesc::named("", "", 1);
        Box::leak(Box::new(Site::new(&METADATA, super::Kind::New, desc)))
    }
}
