//! Builds the trace's schema from session region and registry. If the session region is lost, the contexts are found by
//! trial.

use super::common_context;
use super::data::Stream;
use super::events::{Rules, Zeros, walk};
use super::info::{ChannelInfo, Info};
use super::loose::Pool;
use super::packet::{Judged, judge};
use super::registry::Registry;
use lastwords_abi::packet::HEADER_LEN;
use lastwords_abi::session::context;
use lastwords_bytes::{Budget, ByteOrder};
use lastwords_ctf::session::{ChannelDecoder, Position};
use lastwords_trace::clock::Clock;
use lastwords_trace::evidence::Verdict;
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
}

impl Resolved {
    /// The decoder of a channel id.
    pub(crate) fn decoder(&self, channel: u32) -> Option<&ChannelDecoder> {
        let position = self.schema.channels.iter().position(|c| c.id == channel)?;
        self.decoders.get(position)?.as_ref()
    }
}

/// Builds the schema. `streams` are all streams of the session, `pool` has the sub-buffers that were found without a
/// region.
pub(crate) fn resolve(
    info: &Info,
    clock: Clock,
    registry: &Registry,
    (streams, pool): (&[Stream], &Pool<'_>),
    budget: &Budget,
    notes: &mut Vec<String>,
) -> Resolved {
    let mut orders = streams.iter().map(|s| s.identity.order).chain(pool.loose.iter().map(|l| l.identity.order));
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
    };
    for id in ids {
        let described = info.channels.iter().find(|c| c.id == id);
        let mut resolver = Resolver { registry, order, id, budget, notes, doubt: !registry.damage.is_empty() };
        let channel = resolver.channel(described, streams, pool);
        resolved.thorough.push(resolver.doubt);
        resolved.decoders.push((!channel.events.is_empty()).then(|| ChannelDecoder::new(&channel, order)));
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
    if info.creator_pid != 0 {
        env.insert("vpid".into(), EnvValue::Integer(i64::from(info.creator_pid)));
    }
    if let Some(origin) = info.clock.monotonic_origin {
        let slept =
            registry.env.get(lastwords_abi::registry::ENV_SLEPT).and_then(|slept| slept.parse().ok()).unwrap_or(0);
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
}

/// Sub-buffers with which the contexts of a channel are tried.
#[derive(Default)]
struct Samples {
    /// Committed sub-buffers: their events fill them exactly.
    whole: Vec<Sample>,
    /// Sub-buffers that were being written or have holes of dead threads: their events may end early.
    open: Vec<Sample>,
}

struct Resolver<'a> {
    registry: &'a Registry,
    order: ByteOrder,
    id: u32,
    budget: &'a Budget,
    notes: &'a mut Vec<String>,
    /// The schema of this channel is uncertain.
    doubt: bool,
}

impl Resolver<'_> {
    fn channel(&mut self, described: Option<&ChannelInfo>, streams: &[Stream], pool: &Pool<'_>) -> Channel {
        let events = self.registry.events.iter().filter(|(key, _)| key.0 == self.id).map(|(_, class)| class.clone());
        let name = described.map(|c| c.name.clone()).unwrap_or_default();
        let mut channel = Channel { id: self.id, name, contexts: Vec::new(), events: events.collect() };
        let declared = described.map(|c| c.contexts);
        channel.contexts = if channel.events.is_empty() {
            self.fields(declared.unwrap_or(0))
        } else {
            let samples = |enough| self.samples(streams, pool, enough);
            match declared.filter(|bits| self.decodes(*bits, &channel, &samples(ENOUGH), ENOUGH)) {
                Some(bits) => self.fields(bits),
                None => self.tried_contexts(declared, &channel, &samples(usize::MAX)),
            }
        };
        channel
    }

    /// The context fields of a combination of bits.
    fn fields(&self, bits: u32) -> Vec<Field> {
        let number = |signed| FieldClass::Integer { size: 4, signed, base: 10 };
        let known = [
            (context::PID, "vpid", number(true)),
            (context::TID, "vtid", number(true)),
            (context::THREAD_NAME, "procname", FieldClass::Text { size: 16 }),
            (context::CPU, "cpu", number(false)),
        ];
        let mut fields: Vec<Field> = known
            .into_iter()
            .filter(|(bit, ..)| bits & bit != 0)
            .map(|(_, name, class)| Field { name: name.into(), class })
            .collect();
        if bits & context::USER != 0 {
            fields.extend(self.user().cloned());
        }
        fields
    }

    fn user(&self) -> impl Iterator<Item = &Field> {
        self.registry.contexts.iter().filter(|(key, _)| key.0 == self.id).map(|(_, field)| field)
    }

    /// Returns the fields that all combinations of contexts that fit the samples have in common. The declared contexts
    /// do not fit, or there are none.
    fn tried_contexts(&mut self, declared: Option<u32>, channel: &Channel, samples: &Samples) -> Vec<Field> {
        let id = self.id;
        self.doubt = true;
        let fitting: Vec<Vec<Field>> =
            self.fitting(channel, samples).into_iter().map(|bits| self.fields(bits)).collect();
        let said = match declared {
            None => "are lost with the session region".to_string(),
            Some(bits) => format!("{bits:#x} do not fit its events"),
        };
        let (fields, how) = match (fitting.as_slice(), declared) {
            ([], None) => (Vec::new(), "none are taken".to_string()),
            ([], Some(bits)) => (self.fields(bits), format!("nor do others; {bits:#x} are taken")),
            ([only], _) => (only.clone(), format!("{}, the only ones that fit", names(only))),
            ([first, others @ ..], _) => {
                let fields = common_context::common(first, others);
                let many = fitting.len();
                let how =
                    format!("{many} combinations fit its events; what they agree in is taken: {}", names(&fields));
                (fields, how)
            }
        };
        self.notes.push(format!("channel {id}: contexts {said}; {how}"));
        fields
    }

    /// Returns the combinations with which all whole samples decode; without whole samples, those with which the most
    /// bytes decode.
    fn fitting(&self, channel: &Channel, samples: &Samples) -> Vec<u32> {
        let described = self.user().next().is_some();
        let all = if described { COMBINATIONS } else { context::USER };
        let mut fitting: Vec<u32> = match samples.whole.is_empty() {
            false => (0..all).filter(|bits| self.decodes(*bits, channel, samples, usize::MAX)).collect(),
            true => self.farthest(all, channel, samples),
        };
        // A program that registers a context of its own uses it; and a thread's name is text.
        prefer(&mut fitting, |bits| !described || bits & context::USER != 0);
        prefer(&mut fitting, |bits| self.is_text(bits, channel, samples));
        fitting
    }

    /// True if the field at the place of the thread's name is text in all samples, or there is no such field.
    fn is_text(&self, bits: u32, channel: &Channel, samples: &Samples) -> bool {
        let Some(at) = common_context::offset_of("procname", &self.fields(bits)) else { return true };
        let decoder = self.decoder(bits, channel);
        samples.whole.iter().chain(&samples.open).all(|sample| {
            let mut position = Position { offset: HEADER_LEN, clock: sample.begin };
            let mut events = std::iter::from_fn(|| decoder.step(&mut position, &sample.bytes).ok().flatten());
            events.all(|event| {
                let name = sample.bytes.get(event.context()).and_then(|c| c.get(at..)?.first_chunk::<16>());
                name.is_some_and(common_context::is_padded_text)
            })
        })
    }

    /// True if the first events of each whole sample decode, up to `enough` bytes.
    fn decodes(&self, bits: u32, channel: &Channel, samples: &Samples, enough: usize) -> bool {
        let decoder = self.decoder(bits, channel);
        samples.whole.iter().all(|sample| {
            let mut position = Position { offset: HEADER_LEN, clock: sample.begin };
            let (mut steps, mut events) = (decoder.steps(), 0u64);
            let error = loop {
                match steps.step(&mut position, &sample.bytes) {
                    Ok(Some(_)) if position.offset < enough => events = events.saturating_add(1),
                    Ok(_) => break false,
                    Err(_) => break true,
                }
            };
            !error && self.budget.events("samples", events).is_ok()
        })
    }

    /// The combinations with which the most bytes of the open samples decode, if any bytes do.
    fn farthest(&self, all: u32, channel: &Channel, samples: &Samples) -> Vec<u32> {
        let reach = |bits: u32| {
            let decoder = self.decoder(bits, channel);
            let rules = Rules::new(Zeros::Unwritten);
            let ends = samples.open.iter().map(|s| walk(&decoder, &s.bytes, HEADER_LEN, s.begin, 0, rules).end);
            ends.fold(0usize, |n, end| n.saturating_add(end.saturating_sub(HEADER_LEN)))
        };
        let reached: Vec<(u32, usize)> = (0..all).map(|bits| (bits, reach(bits))).collect();
        let most = reached.iter().map(|r| r.1).max().filter(|most| *most > 0);
        reached.into_iter().filter(|r| Some(r.1) == most).map(|r| r.0).collect()
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
            let of_kind = if is_whole { &mut samples.whole } else { &mut samples.open };
            if of_kind.len() < SAMPLES {
                let mut bytes = Vec::new();
                loose.load(pool.image, loose.content, &mut bytes);
                of_kind.push(Sample { bytes, begin: loose.header.begin });
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
        let bytes = self.whole.iter().fold(0usize, |sum, sample| sum.saturating_add(sample.bytes.len()));
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
        for number in [current.checked_sub(1), current.checked_sub(2), Some(current)].into_iter().flatten() {
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
                    self.whole.push(Sample { bytes: std::mem::take(&mut bytes), begin: header.begin });
                }
                Judged::Unclosed(header) if self.open.len() < SAMPLES => {
                    let limit = if number == current { g.within(position) } else { g.content_limit() };
                    bytes.truncate(usize::try_from(limit).unwrap_or(0));
                    self.open.push(Sample { bytes: std::mem::take(&mut bytes), begin: header.begin });
                }
                _ => {}
            }
        }
    }
}
