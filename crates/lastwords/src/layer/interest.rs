//! Whether anyone records what a callsite of `tracing` says: one load, before anything is formatted.
//!
//! Rules see provider, name and level, so that all that spans do passes one of a few gates, and each callsite of events has its
//! own. Records of the `log` crate come from one callsite a level: there each target has one.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use lastwords_abi::registry::level;
use tracing_core::field::{Field, Visit};
use tracing_core::{Event, Level, Metadata};

use super::class::Kind;
use super::table::Table;
use crate::record::callsite::Guard;
use crate::record::slot;
use crate::session::registry::EventDesc;

/// Most targets of the `log` crate that are told apart: a program may make up any number. Those beyond have the provider `log`.
const MOST_LOG_TARGETS: usize = 1024;
static LOG_TARGETS: AtomicUsize = AtomicUsize::new(0);
/// The field of a record of the `log` crate that has its target.
const LOG_TARGET: &str = "log.target";

/// What one interest lets through.
pub(super) struct Interest {
    /// Provider, name and level of the records.
    pub(super) desc: EventDesc,
    /// Written under the lock of the callsites.
    wanted: AtomicBool,
}

impl Interest {
    const fn new(provider: &'static str, name: &'static str, level: u8, wanted: bool) -> Self {
        let desc = EventDesc { provider, name, level, format: "", file: "", line: 0, fields: &[] };
        Self { desc, wanted: AtomicBool::new(wanted) }
    }

    /// The caller holds the lock.
    fn judge(&self) {
        self.wanted.store(slot::any_takes(&self.desc), Relaxed);
    }

    #[inline]
    fn if_wanted(&self) -> Option<&Self> {
        self.wanted.load(Relaxed).then_some(self)
    }
}

/// Judges every interest anew; the caller holds the lock of the callsites.
pub(crate) fn refresh() {
    SPANS.iter().flatten().chain(SITES.iter().map(|site| &site.interest)).for_each(Interest::judge);
}

/// What spans do, by kind and level. That is no warning and no error, whatever the level of what happens in the span: a channel
/// for those takes none of it.
static SPANS: [[Interest; 3]; 5] =
    [of_kind("new"), of_kind("enter"), of_kind("exit"), of_kind("record"), of_kind("close")];

const fn of_kind(name: &'static str) -> [Interest; 3] {
    [
        Interest::new("span", name, level::INFO, false),
        Interest::new("span", name, level::DEBUG, false),
        Interest::new("span", name, level::TRACE, false),
    ]
}

/// The interest of what the span does, if it is wanted.
#[inline]
pub(super) fn of_span(metadata: &Metadata<'_>, kind: Kind) -> Option<&'static Interest> {
    let kinds = &SPANS[kind as usize - Kind::New as usize];
    let least = usize::from(level_of(metadata).saturating_sub(level::INFO));
    kinds[least].if_wanted()
}

/// Where events come from.
struct Site {
    /// Address of the static metadata.
    metadata: usize,
    /// The target of its records of the `log` crate.
    log_target: Option<&'static str>,
    /// It is a callsite of the `log` crate, for all targets.
    is_log: bool,
    interest: Interest,
}

static SITES: Table<Site> = Table::new();

/// The interest of the event, if it is wanted.
#[inline]
pub(super) fn of_event(event: &Event<'_>) -> Option<&'static Interest> {
    let metadata = event.metadata();
    let mut site = site(metadata);
    if site.is_log {
        let mut visit = OfLog { metadata, site: None };
        event.record(&mut visit);
        site = visit.site.unwrap_or(site);
    }
    site.interest.if_wanted()
}

/// Whether events of the callsite are wanted. What is not known is: `log` asks with metadata that last as long as the question.
#[inline]
pub(super) fn is_wanted(metadata: &Metadata<'_>) -> bool {
    let (key, hash) = key_and_hash(metadata);
    let site = SITES.find(hash, |site| site.metadata == key && site.log_target.is_none());
    site.is_none_or(|site| site.is_log || site.interest.if_wanted().is_some())
}

/// The site of the callsite, which is known from now on.
#[inline]
fn site(metadata: &'static Metadata<'static>) -> &'static Site {
    let (key, hash) = key_and_hash(metadata);
    let is = |site: &Site| site.metadata == key && site.log_target.is_none();
    SITES.find(hash, is).unwrap_or_else(|| {
        let is_log = metadata.name() == "log event" && metadata.fields().field(LOG_TARGET).is_some();
        let interest = Interest::new(metadata.target(), event_name(metadata), level_of(metadata), true);
        add(hash, is, Site { metadata: key, log_target: None, is_log, interest })
    })
}

/// Makes the callsite known.
pub(super) fn prepare(metadata: &'static Metadata<'static>) {
    site(metadata);
}

/// Finds the site of a record of the `log` crate.
struct OfLog {
    metadata: &'static Metadata<'static>,
    site: Option<&'static Site>,
}

impl Visit for OfLog {
    fn record_str(&mut self, field: &Field, target: &str) {
        if field.name() == LOG_TARGET {
            self.site = of_log(self.metadata, target);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// The site of the target's records of that level; none where there are too many targets.
fn of_log(metadata: &'static Metadata<'static>, target: &str) -> Option<&'static Site> {
    let (key, hash) = key_and_hash(metadata);
    let hash = target.bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let is = |site: &Site| site.metadata == key && site.log_target == Some(target);
    SITES.find(hash, is).or_else(|| {
        if LOG_TARGETS.fetch_add(1, Relaxed) >= MOST_LOG_TARGETS {
            LOG_TARGETS.store(MOST_LOG_TARGETS, Relaxed);
            return None;
        }
        let target: &'static str = String::leak(target.to_owned());
        let interest = Interest::new(target, event_name(metadata), level_of(metadata), true);
        Some(add(hash, is, Site { metadata: key, log_target: Some(target), is_log: false, interest }))
    })
}

/// Adds the site and judges it. Where the lock is not to be had it is wanted until the next change.
#[cold]
#[inline(never)]
fn add(hash: u64, is: impl Fn(&Site) -> bool, site: Site) -> &'static Site {
    let site = SITES.add(hash, is, site);
    if let Some(_guard) = Guard::take() {
        site.interest.judge();
    }
    site
}

#[inline]
fn key_and_hash(metadata: &Metadata<'_>) -> (usize, u64) {
    let key = std::ptr::from_ref(metadata).addr();
    (key, key as u64 >> 3)
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

/// The name that an event was given; the macros make up `event FILE:LINE` for those without, tracing-log `log event`.
fn event_name(metadata: &'static Metadata<'static>) -> &'static str {
    let name = metadata.name();
    if name.starts_with("event ") || name == "log event" || name.is_empty() { "event" } else { name }
}
