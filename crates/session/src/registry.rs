//! Reads the registry region, which has the descriptions of events.
//!
//! A damaged record costs that record: the walk continues at the next 8-aligned offset where the
//! checksum of a record is right.

use super::info::Module;
use super::layout::{field, part};
use super::region::Region;
use super::sparse;
use super::types;
use lastwords_abi::VERSION_MINOR;
use lastwords_abi::region::checksum;
use lastwords_abi::registry::{self as abi, RecordHeader, RegistryControl};
use lastwords_bytes::{Budget, Error, Reader};
use lastwords_image::Image;
use lastwords_trace::schema::{EventClass, Field};
use std::collections::BTreeMap;

/// Most bytes of records that are read.
const MAX_BYTES: u64 = 1 << 26;
/// Longest record that is accepted, bytes.
const MAX_RECORD: usize = 1 << 20;
/// Limit of the bytes checksummed while searching after damage, as a multiple of the bytes of
/// records.
const SEARCH_FACTOR: u64 = 64;

/// The contents of the registry.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Descriptions of events, by channel and event id.
    pub(crate) events: BTreeMap<(u32, u16), EventClass>,
    /// User-defined contexts, by channel and index.
    pub(crate) contexts: BTreeMap<(u32, u16), Field>,
    pub(crate) modules: Vec<Module>,
    pub(crate) env: BTreeMap<String, String>,
    /// Number of descriptions that did not fit.
    pub(crate) dropped: u64,
    /// Number of thread names that did not fit.
    names_dropped: u64,
    /// Number of values that were cut or left out, because their events were too large.
    pub(crate) values_cut: u64,
    /// Number of texts in which NULs were replaced.
    pub(crate) values_changed: u64,
    /// Damaged parts: offset in the region and length, bytes. Length 0 marks damage that cost
    /// nothing.
    pub(crate) damage: Vec<(u64, u64)>,
    /// Number of records that a later minor version of the format defines, by their kind.
    newer: BTreeMap<u16, u64>,
    pub(crate) notes: Vec<String>,
}

/// A decoded record.
enum Record {
    Event(u32, EventClass),
    Context(u32, u16, Field),
    Module(Module),
    Env(String, String),
}

/// Reads the records, as far as the image has them.
pub(crate) fn read(image: &dyn Image, region: &Region, budget: &Budget) -> Registry {
    let mut registry = Registry::default();
    if let Err(error) = walk(image, region, budget, &mut registry) {
        registry.notes.push(format!("{error}: the registry is read up to there"));
        registry.damage.push((error.offset, region.size.saturating_sub(error.offset)));
    }
    registry.mark_names();
    registry.note_environment();
    registry
}

impl Registry {
    /// Says which records only a newer program can read; none if this program reads all of them.
    /// `minor` is the session's version.
    pub(crate) fn unread(&self, minor: u16) -> Option<String> {
        let count: u64 = self.newer.values().sum();
        let kinds: Vec<String> = self.newer.keys().map(ToString::to_string).collect();
        let kinds = format!("kind{} {}", if kinds.len() == 1 { "" } else { "s" }, kinds.join(", "));
        let need = if count == 1 {
            format!("1 record of {kinds} needs")
        } else {
            format!("{count} records of {kinds} need")
        };
        let versions =
            format!("the session has format 1.{minor}, this program reads up to 1.{VERSION_MINOR}");
        (count > 0)
            .then(|| format!("registry: {need} a newer lastwords: {versions}; events that need them are not shown"))
    }

    /// Returns true if some records need a newer program.
    pub(crate) fn has_newer(&self) -> bool {
        !self.newer.is_empty()
    }

    /// Notes what the environment variable `LASTWORDS` of the program could not do.
    fn note_environment(&mut self) {
        self.notes.extend(self.env.get(abi::ENV_IGNORED).cloned());
        if let Some(asked) = self.env.get(abi::ENV_ASKED).filter(|_| self.events.is_empty()) {
            self.notes.push(format!("{}={asked} left no event enabled", abi::ENV_ASKED));
        }
    }

    /// If thread names were left out, a thread without a name may have reused the thread id. Each
    /// thread's name gets `...` to show that.
    fn mark_names(&mut self) {
        if self.names_dropped == 0 {
            return;
        }
        let names = self.env.iter_mut().filter(|(key, _)| key.starts_with(abi::ENV_THREAD));
        names.for_each(|(_, names)| add_name(names, "..."));
        self.notes.push(format!(
            "{} threads found no room for their names in the registry: `NAME|...` is that thread or a later one of the same id",
            self.names_dropped
        ));
    }
}

fn walk(
    image: &dyn Image,
    region: &Region,
    budget: &Budget,
    registry: &mut Registry,
) -> Result<(), Error> {
    let what = region.place();
    let control =
        part(image, region, abi::CONTROL_OFF as u64, size_of::<RegistryControl>(), budget)?;
    let r = Reader::new(&what, &control, region.order).based(abi::CONTROL_OFF as u64);
    registry.dropped = field!(r, 0, RegistryControl, dropped, u64_at)?;
    registry.names_dropped = field!(r, 0, RegistryControl, names_dropped, u64_at)?;
    registry.values_cut = field!(r, 0, RegistryControl, values_cut, u64_at)?;
    registry.values_changed = field!(r, 0, RegistryControl, values_changed, u64_at)?;
    let end = field!(r, 0, RegistryControl, end, u64_at)?;
    let begin = abi::RECORDS_OFF as u64;
    let held = region.held.saturating_sub(begin);
    let all = usize::try_from(held.min(MAX_BYTES)).unwrap_or(0);
    let bytes = readable(image, region, begin, all, budget)?;
    let mut records = Records { what: &what, region, bytes: &bytes, registry, budget, searched: 0 };
    // An end of 0 means that the registry was just created.
    let said = if end == 0 { begin } else { end };
    let limit = said.saturating_sub(begin);
    if said < begin || said > region.size {
        records.registry.notes.push(
            Error::value(
                &what,
                abi::CONTROL_OFF as u64,
                end,
                "the end of the records, inside the region",
            )
            .to_string(),
        );
        return records.walk(bytes.len());
    }
    if limit > bytes.len() as u64 {
        records.registry.notes.push(format!(
            "{what}: records end at {said:#x}, the image has them up to {:#x}",
            region.held
        ));
        records.registry.damage.push((
            begin.saturating_add(bytes.len() as u64),
            limit.saturating_sub(bytes.len() as u64),
        ));
    }
    records.walk(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Reads up to `len` bytes from `offset` on, up to the first byte that the image does not have.
fn readable(
    image: &dyn Image,
    region: &Region,
    offset: u64,
    len: usize,
    budget: &Budget,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    // Without an error, what follows the bytes is a long hole, which has no records.
    let _ = sparse::read(image, region.address.saturating_add(offset), len, &mut bytes);
    budget.bytes(&region.name, bytes.len() as u64)?;
    Ok(bytes)
}

struct Records<'a> {
    what: &'a str,
    region: &'a Region,
    /// Bytes of the region from [`abi::RECORDS_OFF`] on.
    bytes: &'a [u8],
    registry: &'a mut Registry,
    budget: &'a Budget,
    /// Number of bytes whose checksum was computed and did not match.
    searched: u64,
}

impl Records<'_> {
    /// Reads all records before `limit`, and the valid records that directly follow.
    fn walk(&mut self, limit: usize) -> Result<(), Error> {
        let mut at = 0usize;
        while at < self.bytes.len() {
            self.budget.steps(self.what, 1)?;
            if let Some(len) = self.verified(at) {
                self.record(at, len);
                at = next(at, len);
            } else if let Some(len) = self.replaced(at, limit) {
                // The name of a thread that has ended was being replaced.
                self.registry.names_dropped = self.registry.names_dropped.saturating_add(1);
                at = next(at, len);
            } else if at >= limit {
                break;
            } else {
                at = self.search(at, limit.min(self.bytes.len()));
            }
        }
        Ok(())
    }

    /// Length of the record at `at`, if its checksum is right.
    fn verified(&mut self, at: usize) -> Option<usize> {
        let r = Reader::new(self.what, self.bytes, self.region.order);
        let len = usize::try_from(field!(r, at, RecordHeader, len, u32_at).ok()?).ok()?;
        let check = field!(r, at, RecordHeader, check, u64_at).ok()?;
        let body = len.checked_sub(abi::RECORD_HEADER_LEN).filter(|_| len <= MAX_RECORD)?;
        let body = r.bytes_at(at.saturating_add(abi::RECORD_HEADER_LEN), body).ok()?;
        if checksum(body) != check {
            self.searched = self.searched.saturating_add(body.len() as u64);
            return None;
        }
        Some(len)
    }

    /// Length of the record at `at`, if it is a thread's name that was being replaced.
    fn replaced(&self, at: usize, limit: usize) -> Option<usize> {
        let r = Reader::new(self.what, self.bytes, self.region.order);
        let len = usize::try_from(field!(r, at, RecordHeader, len, u32_at).ok()?).ok()?;
        let kind = field!(r, at, RecordHeader, kind, u16_at).ok()?;
        let flags = field!(r, at, RecordHeader, flags, u16_at).ok()?;
        let is_replaced = flags == abi::REPLACED && kind == abi::KIND_ENV;
        let fits =
            (abi::RECORD_HEADER_LEN..=MAX_RECORD).contains(&len) && at.checked_add(len)? <= limit;
        (is_replaced && fits).then_some(len)
    }

    /// Offset of the next valid record after `at`, or `limit`. The bytes up to there are marked as
    /// damaged.
    fn search(&mut self, at: usize, limit: usize) -> usize {
        let mut to = at;
        loop {
            to = to.saturating_add(8);
            let spent = self.searched > (self.bytes.len() as u64).saturating_mul(SEARCH_FACTOR);
            if to >= limit || spent {
                to = limit.max(to);
                break;
            }
            if self.verified(to).is_some() {
                break;
            }
        }
        self.damaged(at, to.saturating_sub(at), "is no record whose checksum holds");
        to
    }

    fn damaged(&mut self, at: usize, len: usize, why: &str) {
        let offset = (abi::RECORDS_OFF as u64).saturating_add(at as u64);
        self.registry
            .notes
            .push(format!("{}: offset {offset:#x}: registry: {len} bytes: {why}", self.what));
        self.registry.damage.push((offset, len as u64));
    }

    /// Decodes a record whose checksum is right. The checksum covers only the body, so if the body
    /// does not fit the kind, kinds that differ in one bit are tried.
    fn record(&mut self, at: usize, len: usize) {
        let r =
            Reader::new(self.what, self.bytes, self.region.order).based(abi::RECORDS_OFF as u64);
        let kind = field!(r, at, RecordHeader, kind, u16_at).unwrap_or(0);
        // A later minor version may define kinds and types that this program does not know.
        let is_newer = self.region.minor > VERSION_MINOR;
        let near = (0..if is_newer { 0 } else { 16u32 }).map(|bit| kind ^ 1u16.wrapping_shl(bit));
        for candidate in std::iter::once(kind).chain(near) {
            let mut body = r;
            let parsed = body.skip(at.saturating_add(abi::RECORD_HEADER_LEN)).and_then(|()| {
                let mut body = body.sub(len.saturating_sub(abi::RECORD_HEADER_LEN))?;
                parse(candidate, &mut body, self.budget)
            });
            if let Ok(record) = parsed {
                if candidate != kind {
                    self.damaged(
                        at,
                        0,
                        &format!("a record of kind {kind} is read as kind {candidate}, which its body fits"),
                    );
                }
                self.insert(record, at);
                return;
            }
        }
        if is_newer {
            let count = self.registry.newer.entry(kind).or_default();
            *count = count.saturating_add(1);
            return;
        }
        self.damaged(
            at,
            len,
            &format!("a record of kind {kind} does not describe anything this program knows"),
        );
    }

    fn insert(&mut self, record: Record, at: usize) {
        let again = match record {
            Record::Event(channel, class) => {
                let id = u16::try_from(class.id).unwrap_or(u16::MAX);
                match self.registry.events.entry((channel, id)) {
                    std::collections::btree_map::Entry::Vacant(free) => {
                        free.insert(class);
                        None
                    }
                    std::collections::btree_map::Entry::Occupied(old)
                        if old.get().name == class.name =>
                    {
                        None
                    }
                    std::collections::btree_map::Entry::Occupied(old) => Some(format!(
                        "event id {id} of channel {channel} was described before, as {}",
                        old.get().name
                    )),
                }
            }
            Record::Context(channel, index, field) => {
                self.registry.contexts.entry((channel, index)).or_insert(field);
                None
            }
            Record::Module(module) => {
                self.registry.modules.push(module);
                None
            }
            Record::Env(key, value) => {
                match self.registry.env.get_mut(&key) {
                    // Two threads had the same id at different times, and an event does not tell
                    // which of them recorded it.
                    Some(names) if key.starts_with(abi::ENV_THREAD) => add_name(names, &value),
                    _ => _ = self.registry.env.insert(key, value),
                }
                None
            }
        };
        if let Some(why) = again {
            self.damaged(at, 0, &why);
        }
    }
}

/// Most bytes of the joined names of a thread id.
const MOST_NAMES: usize = 200;

/// Appends a name to the names that a thread id had (`one|other`) unless it is there already. Names
/// beyond [`MOST_NAMES`] become `...`.
fn add_name(names: &mut String, name: &str) {
    let name = if names.len().saturating_add(name.len()) < MOST_NAMES { name } else { "..." };
    if !names.split('|').any(|known| known == name) {
        *names = format!("{names}|{name}");
    }
}

/// Offset of the next record.
fn next(at: usize, len: usize) -> usize {
    at.saturating_add(len).checked_next_multiple_of(8).unwrap_or(usize::MAX)
}

/// Decodes the body of a record; the body must be used up completely.
fn parse(kind: u16, body: &mut Reader<'_>, budget: &Budget) -> Result<Record, Error> {
    let record = match kind {
        abi::KIND_EVENT | abi::KIND_EVENT_MANY => event(kind, body, budget)?,
        abi::KIND_CONTEXT => {
            let (channel, index) = (body.u16()?, body.u16()?);
            let name = types::text(body)?;
            let class = types::class(body, budget)?;
            if class.fixed_size().is_none() {
                return Err(body.unexpected(u64::from(index), "a context of fixed size"));
            }
            Record::Context(u32::from(channel), index, Field { name, class })
        }
        abi::KIND_MODULE => Record::Module(Module {
            pid: body.u32()?,
            base: body.u64()?,
            start: body.u64()?,
            end: body.u64()?,
            build_id: types::bytes(body)?.to_vec(),
            path: types::text(body)?,
        }),
        abi::KIND_ENV => Record::Env(key(&types::text(body)?), types::text(body)?),
        other => return Err(body.unexpected(u64::from(other), "a record kind from 1 to 5")),
    };
    if body.left() != 0 {
        return Err(body.unexpected(body.left() as u64, "the end of the record"));
    }
    Ok(record)
}

/// Returns the key of a property. The id of a thread may begin with zeros in the record.
fn key(text: &str) -> String {
    match text.strip_prefix(abi::ENV_THREAD).and_then(|tid| tid.parse::<u32>().ok()) {
        Some(tid) => format!("{}{tid}", abi::ENV_THREAD),
        None => text.to_owned(),
    }
}

fn event(kind: u16, body: &mut Reader<'_>, budget: &Budget) -> Result<Record, Error> {
    let (channel, id) = (body.u16()?, body.u16()?);
    let level = body.u8()?;
    let fields = if kind == abi::KIND_EVENT_MANY { body.u16()? } else { u16::from(body.u8()?) };
    let (provider, name) = (types::text(body)?, types::text(body)?);
    let format = types::text(body)?;
    let (file, line) = (types::text(body)?, body.u32()?);
    let fields = (0..fields)
        .map(|_| Ok(Field { name: types::text(body)?, class: types::class(body, budget)? }))
        .collect::<Result<Vec<_>, Error>>()?;
    let class = EventClass {
        id: u64::from(id),
        name: if provider.is_empty() { name } else { format!("{provider}:{name}") },
        level,
        format,
        location: if file.is_empty() { String::new() } else { format!("{file}:{line}") },
        fields,
    };
    Ok(Record::Event(u32::from(channel), class))
}
