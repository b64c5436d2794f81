//! Builds the trace's schema from session region and registry. If the session region is lost, the
//! contexts are found by trial. Contexts of a wrong size shift every field of an event: where the
//! size is not certain, no event is decoded.

use super::common_context;
use super::data::Stream;
use super::events::{Rules, Zeros, walk};
use super::info::{ChannelInfo, Info, SessionScope};
use super::loose::Pool;
use super::packet::{Judged, judge};
use super::registry::Registry;
use lastwords_abi::context;
use lastwords_abi::packet::HEADER_LEN;
use lastwords_bytes::{Budget, ByteOrder};
use lastwords_ctf::program;
use lastwords_ctf::session::{ChannelDecoder, DecodeError, Expected, Position};
use lastwords_trace::clock::Clock;
use lastwords_trace::evidence::{Cause, Gap, Verdict};
use lastwords_trace::schema::{BOOT_ORIGIN, Channel, EnvValue, Field, FieldClass, Schema};
use std::collections::{BTreeMap, BTreeSet};

/// Most sub-buffers of a channel with which its contexts are tried.
const SAMPLES: usize = 4;
/// Bytes of whole sub-buffers that are enough to confirm the declared contexts.
const ENOUGH: usize = 64 << 10;
/// Number of combinations of contexts.
const COMBINATIONS: u32 = 2 * context::USER;

/// A schema with compiled decoders, and its uncertain channels.
pub(crate) struct Resolved {
    pub(crate) schema: Schema,
    /// In the order of the schema's channels; none if no event of the channel is described.
    pub(crate) decoders: Vec<Option<ChannelDecoder>>,
    /// By channel: the sub-buffers must be walked even if their checksums are right.
    pub(crate) thorough: Vec<bool>,
    /// The losses of channels whose contexts are not known.
    pub(crate) gaps: Vec<Gap>,
}

impl Resolved {
    /// The decoder of a channel id.
    pub(crate) fn decoder(&self, channel: u32) -> Option<&ChannelDecoder> {
        let position = self.schema.channels.iter().position(|c| c.id == channel)?;
        self.decoders.get(position)?.as_ref()
    }
}

/// Builds the schema. `streams` are all streams of the session, `pool` has the sub-buffers that
/// were found without a region.
pub(crate) fn resolve(
    info: &Info,
    clock: Clock,
    registry: &Registry,
    (streams, pool): (&[Stream], &Pool<'_>),
    budget: &Budget,
    notes: &mut Vec<String>,
) -> Resolved {
    let mut orders =
        streams.iter().map(|s| s.identity.order).chain(pool.loose.iter().map(|l| l.identity.order));
    let order = orders.next().unwrap_or(ByteOrder::Little);
    let mut ids: BTreeSet<u32> = info.channels.iter().map(|c| c.id).collect();
    ids.extend(streams.iter().map(|s| s.geometry.channel));
    ids.extend(pool.loose.iter().map(|l| l.identity.channel));
    ids.extend(registry.events.keys().map(|k| k.0));
    let mut resolved = Resolved {
        schema: Schema {
            uuid: info.uuid,
            name: info.name.clone(),
            byte_order: order,
            env: env(info, registry),
            clock,
            channels: Vec::new(),
        },
        decoders: Vec::new(),
        thorough: Vec::new(),
        gaps: Vec::new(),
    };
    for id in ids {
        let described = info.channels.iter().find(|c| c.id == id);
        let (gaps, doubt) = (&mut resolved.gaps, !registry.damage.is_empty());
        let mut resolver = Resolver { registry, order, id, budget, notes, gaps, doubt };
        let channel = resolver.channel(described, streams, pool);
        resolved.thorough.push(resolver.doubt);
        resolved
            .decoders
            .push((!channel.events.is_empty()).then(|| ChannelDecoder::new(&channel, order)));
        resolved.schema.channels.push(channel);
    }
    resolved
}

fn env(info: &Info, registry: &Registry) -> BTreeMap<String, EnvValue> {
    let mut env = BTreeMap::new();
    let mut text = |key: &str, value: &str| {
        if !value.is_empty() {
            env.insert(key.to_string(), EnvValue::Text(value.to_string()));
        }
    };
    text("tracer_name", "lastwords");
    text("trace_name", &info.name);
    text("hostname", &info.hostname);
    text("program", &info.program);
    for (key, value) in &registry.env {
        match key.strip_prefix(lastwords_abi::registry::ENV_THREAD) {
            Some(thread) => text(&lastwords_trace::schema::thread_key(thread), value),
            None => text(key, value),
        }
    }
    // Other processes that record in the session have other ids.
    let is_alone = info.scope == SessionScope::Process
        && info.processes.iter().all(|process| process.pid == info.creator_pid);
    if info.creator_pid != 0 && is_alone {
        env.insert("vpid".into(), EnvValue::Integer(i64::from(info.creator_pid)));
    }
    if let Some(origin) = info.clock.monotonic_origin {
        let slept = registry
            .env
            .get(lastwords_abi::registry::ENV_SLEPT)
            .and_then(|slept| slept.parse().ok())
            .unwrap_or(0);
        env.insert(BOOT_ORIGIN.into(), EnvValue::Integer(origin.saturating_sub(slept)));
    }
    env.insert("tracer_major".into(), EnvValue::Integer(i64::from(lastwords_abi::VERSION_MAJOR)));
    env.insert("tracer_minor".into(), EnvValue::Integer(i64::from(info.minor)));
    env
}

/// The events of a sub-buffer.
struct Sample {
    bytes: Vec<u8>,
    begin: u64,
    /// Clock of a committed sub-buffer's end.
    end: Option<u64>,
}

/// Sub-buffers with which the contexts of a channel are tried.
#[derive(Default)]
struct Samples {
    /// Committed sub-buffers: their events fill them exactly.
    whole: Vec<Sample>,
    /// Sub-buffers of a stream's first lap that were being written or have holes of dead threads:
    /// their events may end early, before memory that was never written. In later laps, events of
    /// the lap before may follow.
    open: Vec<Sample>,
}

struct Resolver<'a> {
    registry: &'a Registry,
    order: ByteOrder,
    id: u32,
    budget: &'a Budget,
    notes: &'a mut Vec<String>,
    gaps: &'a mut Vec<Gap>,
    /// The schema of this channel is uncertain.
    doubt: bool,
}

impl Resolver<'_> {
    fn channel(
        &mut self,
        described: Option<&ChannelInfo>,
        streams: &[Stream],
        pool: &Pool<'_>,
    ) -> Channel {
        let name = described.map(|described| self.name(described)).unwrap_or_default();
        let events = self
            .registry
            .events
            .iter()
            .filter(|(key, _)| key.0 == self.id)
            .map(|(_, class)| class.clone());
        let mut channel =
            Channel { id: self.id, name, contexts: Vec::new(), events: events.collect() };
        let declared = described.map(|c| c.contexts);
        channel.contexts = if channel.events.is_empty() {
            self.fields(declared.unwrap_or(0))
        } else {
            let samples = |enough| self.samples(streams, pool, enough);
            match declared.filter(|bits| self.decodes(*bits, &channel, &samples(ENOUGH), ENOUGH)) {
                Some(bits) => self.fields(bits),
                None if !self.is_used(streams, pool) => Vec::new(),
                None => self
                    .tried_contexts(declared, &channel, &samples(usize::MAX))
                    .unwrap_or_else(|| {
                        channel.events.clear();
                        Vec::new()
                    }),
            }
        };
        channel
    }

    /// Returns the channel's name, or nothing if no channel can have that name: no checksum covers it.
    fn name(&mut self, described: &ChannelInfo) -> String {
        let name = described.name.as_str();
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !name.is_empty() && name.chars().all(is_allowed) {
            return name.to_owned();
        }
        let fact = format!("channel {}: its name; found {name:?}, which no channel has", self.id);
        self.gaps.push(Gap::not_known(None, &fact));
        String::new()
    }

    /// True if something may have been recorded in the channel.
    fn is_used(&self, streams: &[Stream], pool: &Pool<'_>) -> bool {
        let is_begun = |stream: &Stream| {
            let control = stream.control(self.budget);
            control.map_or(true, |c| {
                c.half.iter().any(|half| half.position(&stream.geometry) > half.first)
            })
        };
        let mut own = streams.iter().filter(|s| s.geometry.channel == self.id);
        own.any(is_begun) || pool.loose.iter().any(|l| l.identity.channel == self.id)
    }

    /// The context fields of a combination of bits.
    fn fields(&self, bits: u32) -> Vec<Field> {
        let class = |value| match value {
            context::Value::Signed => FieldClass::Integer { size: 4, signed: true, base: 10 },
            context::Value::Unsigned => FieldClass::Integer { size: 4, signed: false, base: 10 },
            context::Value::Text => FieldClass::Text { size: 16 },
        };
        let known = context::KNOWN.iter().filter(|known| bits & known.bit != 0);
        let field =
            |known: &context::Known| Field { name: known.name.into(), class: class(known.value) };
        let mut fields: Vec<Field> = known.map(field).collect();
        if bits & context::USER != 0 {
            fields.extend(self.user().cloned());
        }
        fields
    }

    fn user(&self) -> impl Iterator<Item = &Field> {
        self.registry.contexts.iter().filter(|(key, _)| key.0 == self.id).map(|(_, field)| field)
    }

    /// Returns the fields that all combinations of contexts that fit the samples have in common;
    /// none if not even their size is certain. The declared contexts do not fit, or there are none.
    fn tried_contexts(
        &mut self,
        declared: Option<u32>,
        channel: &Channel,
        samples: &Samples,
    ) -> Option<Vec<Field>> {
        let id = self.id;
        self.doubt = true;
        let fitting: Vec<Vec<Field>> =
            self.fitting(channel, samples).into_iter().map(|bits| self.fields(bits)).collect();
        let said = match declared {
            None => "its name and contexts are lost with the session region".to_string(),
            Some(bits) => format!("its contexts {bits:#x} do not fit its events"),
        };
        let (fields, how) = match (fitting.as_slice(), declared) {
            ([], None) => (None, "and no combination fits".to_string()),
            ([], Some(bits)) => {
                (Some(self.fields(bits)), format!("nor do others; {bits:#x} are taken"))
            }
            ([only], _) => (Some(only.clone()), format!("{}, the only ones that fit", names(only))),
            ([first, others @ ..], _) => {
                let many = fitting.len();
                match common_context::common(first, others) {
                    Some(fields) => {
                        let how = format!("what they agree in is taken: {}", names(&fields));
                        (Some(fields), format!("{many} combinations fit its events; {how}"))
                    }
                    None => (None, format!("and {many} combinations of different sizes fit")),
                }
            }
        };
        if fields.is_some() {
            let fact = format!("channel {id}: {said}; {how}");
            match (declared, fitting.len()) {
                // The events show what they have.
                (Some(_), 1) => self.notes.push(fact),
                _ => self.gaps.push(Gap::not_known(None, &fact)),
            }
        } else {
            let place = format!("channel {id}: {said}, {how}; its events are not shown");
            self.gaps.push(Gap::new(None, Cause::Missing, place));
        }
        fields
    }

    /// Returns the combinations with which all whole samples decode; without whole samples, those
    /// with which the open ones may have been written. The true combination is one of them if there
    /// are samples.
    fn fitting(&self, channel: &Channel, samples: &Samples) -> Vec<u32> {
        let described = self.user().next().is_some();
        let all = if described { COMBINATIONS } else { context::USER };
        let (mut fitting, likely): (Vec<u32>, BTreeSet<u32>) =
            match (samples.whole.is_empty(), samples.open.is_empty()) {
                (true, true) => <_>::default(),
                (false, _) => {
                    let decoding =
                        (0..all).filter(|bits| self.decodes(*bits, channel, samples, usize::MAX));
                    (decoding.collect(), BTreeSet::new())
                }
                (true, false) => {
                    let open = |bits: u32| Some((bits, self.decodes_open(bits, channel, samples)?));
                    let open: Vec<(u32, bool)> = (0..all).filter_map(open).collect();
                    let likely = open
                        .iter()
                        .filter(|(_, is_likely)| *is_likely)
                        .map(|(bits, _)| *bits)
                        .collect();
                    (open.into_iter().map(|(bits, _)| bits).collect(), likely)
                }
            };
        // A program that registers a context of its own uses it; and a thread's name is text.
        prefer(&mut fitting, |bits| !described || bits & context::USER != 0);
        prefer(&mut fitting, |bits| self.is_text(bits, channel, samples));
        prefer(&mut fitting, |bits| likely.contains(&bits));
        fitting
    }

    /// True if the field at the place of the thread's name is text in all samples, or there is no
    /// such field.
    fn is_text(&self, bits: u32, channel: &Channel, samples: &Samples) -> bool {
        let Some(at) = common_context::offset_of("procname", &self.fields(bits)) else {
            return true;
        };
        let decoder = self.decoder(bits, channel);
        samples.whole.iter().chain(&samples.open).all(|sample| {
            let mut position = Position { offset: HEADER_LEN, clock: sample.begin };
            let mut events =
                std::iter::from_fn(|| decoder.step(&mut position, &sample.bytes).ok().flatten());
            events.all(|event| {
                let name = sample
                    .bytes
                    .get(event.context())
                    .and_then(|c| c.get(at..)?.first_chunk::<16>());
                name.is_some_and(common_context::is_padded_text)
            })
        })
    }

    /// True if the first events of each whole sample decode, up to `enough` bytes, and none is
    /// later than its end. An event of a kind whose description is damaged ends the decoding of a
    /// sample.
    fn decodes(&self, bits: u32, channel: &Channel, samples: &Samples, enough: usize) -> bool {
        let decoder = self.decoder(bits, channel);
        samples.whole.iter().all(|sample| {
            let mut position = Position { offset: HEADER_LEN, clock: sample.begin };
            let (mut steps, mut events) = (decoder.steps(), 0u64);
            let error = loop {
                match steps.step(&mut position, &sample.bytes) {
                    Ok(_) if sample.end.is_some_and(|end| position.clock > end) => break true,
                    Ok(Some(_)) if position.offset < enough => events = events.saturating_add(1),
                    Ok(_) => break false,
                    Err(error) => break !self.may_lack(error.expected),
                }
            };
            !error && self.budget.events("samples", events).is_ok()
        })
    }

    /// Returns none unless the events of each open sample decode to its end, or to memory that was
    /// never written; else true if many events decode, and nothing was ever written behind them. A
    /// combination of a wrong size stops earlier, at a number that happens to be zero.
    fn decodes_open(&self, bits: u32, channel: &Channel, samples: &Samples) -> Option<bool> {
        let decoder = self.decoder(bits, channel);
        let is_end = |e: DecodeError| e.expected == Expected::Written || self.may_lack(e.expected);
        let (mut events, mut is_unwritten) = (0u64, true);
        for sample in &samples.open {
            let walked = walk(
                &decoder,
                &sample.bytes,
                HEADER_LEN,
                sample.begin,
                0,
                Rules::new(Zeros::Unwritten),
            );
            if !walked.error.is_none_or(is_end) {
                return None;
            }
            events = events.saturating_add(walked.events);
            is_unwritten &= sample
                .bytes
                .get(walked.end..)
                .is_none_or(|rest| rest.iter().all(|byte| *byte == 0));
        }
        Some(is_unwritten && events >= MANY)
    }

    /// True if the description of an event that has none may be in a damaged part of the registry,
    /// or in a record that only a newer program can read.
    fn may_lack(&self, expected: Expected) -> bool {
        let is_damaged = self.registry.damage.iter().any(|damage| damage.1 > 0);
        (is_damaged || self.registry.has_newer())
            && expected == Expected::Class(program::Expected::EventClass)
    }

    fn decoder(&self, bits: u32, channel: &Channel) -> ChannelDecoder {
        let trial = Channel { contexts: self.fields(bits), ..channel.clone() };
        ChannelDecoder::new(&trial, self.order)
    }

    /// Loads a few sub-buffers of the channel: no more once the whole ones have `enough` bytes.
    fn samples(&self, streams: &[Stream], pool: &Pool<'_>, enough: usize) -> Samples {
        let mut samples = Samples::default();
        for loose in pool.loose.iter().filter(|l| l.identity.channel == self.id) {
            let is_whole = loose.verdict == Verdict::Committed;
            // A stream overwrites sub-buffer 0 first.
            let is_first_lap =
                || pool.loose.iter().any(|l| l.key() == (u64::from(loose.identity.stream), 0));
            if !is_whole && !is_first_lap() {
                continue;
            }
            let of_kind = if is_whole { &mut samples.whole } else { &mut samples.open };
            if of_kind.len() < SAMPLES {
                let mut bytes = Vec::new();
                loose.load(pool.image, loose.content, &mut bytes);
                let end = is_whole.then_some(loose.end);
                of_kind.push(Sample { bytes, begin: loose.header.begin, end });
            }
        }
        for stream in streams.iter().filter(|s| s.geometry.channel == self.id) {
            for half in 0..2 {
                samples.add(stream, half, enough, self.budget);
            }
        }
        samples
    }
}

/// So many events do not decode by chance.
const MANY: u64 = 64;

/// Keeps the combinations that satisfy `wanted`, if there are any.
fn prefer(fitting: &mut Vec<u32>, wanted: impl Fn(u32) -> bool) {
    if fitting.iter().any(|bits| wanted(*bits)) {
        fitting.retain(|bits| wanted(*bits));
    }
}

fn names(fields: &[Field]) -> String {
    let names: Vec<&str> = fields.iter().map(|f| f.name.as_str()).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

impl Samples {
    /// The whole sub-buffers are as many as there shall be, or have `enough` bytes.
    fn is_enough(&self, enough: usize) -> bool {
        let bytes =
            self.whole.iter().fold(0usize, |sum, sample| sum.saturating_add(sample.bytes.len()));
        self.whole.len() >= SAMPLES || bytes >= enough
    }

    /// Adds the newest sub-buffers of a half.
    fn add(&mut self, stream: &Stream, half: usize, enough: usize, budget: &Budget) {
        let Ok(control) = stream.control(budget) else { return };
        let Some(words) = control.half.get(half) else { return };
        let g = stream.geometry;
        let position = words.position(&g);
        let current = g.number(position);
        let size = usize::try_from(g.size).unwrap_or(0);
        let mut bytes = Vec::new();
        for number in
            [current.checked_sub(1), current.checked_sub(2), Some(current)].into_iter().flatten()
        {
            if self.is_enough(enough) {
                return;
            }
            let loaded = stream.load(half, number, size, &mut bytes);
            if loaded.missing.is_some() || budget.bytes("samples", loaded.got as u64).is_err() {
                continue;
            }
            match judge(&stream.identity, number, &mut bytes) {
                Judged::Whole(header, content) => {
                    bytes.truncate(content);
                    let bytes = std::mem::take(&mut bytes);
                    self.whole.push(Sample { bytes, begin: header.begin, end: Some(header.end) });
                }
                Judged::Unclosed(header) if self.open.len() < SAMPLES && number < g.count => {
                    let limit =
                        if number == current { g.within(position) } else { g.content_limit() };
                    bytes.truncate(usize::try_from(limit).unwrap_or(0));
                    self.open.push(Sample {
                        bytes: std::mem::take(&mut bytes),
                        begin: header.begin,
                        end: None,
                    });
                }
                _ => {}
            }
        }
    }
}
