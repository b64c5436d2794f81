//! The trace's schema from session region and registry; contexts found out where the session region does not tell.

use super::data::Stream;
use super::events::walk;
use super::info::{ChannelInfo, Info};
use super::packet::{Judged, judge};
use super::registry::Registry;
use lastwords_abi::packet::HEADER_LEN;
use lastwords_abi::session::context;
use lastwords_bytes::{Budget, ByteOrder as Order};
use lastwords_trace::clock::Clock;
use lastwords_trace::decode::ChannelDecoder;
use lastwords_trace::schema::{ByteOrder, Channel, EnvValue, Field, FieldClass, Schema};
use std::collections::{BTreeMap, BTreeSet};

/// Sub-buffers of a channel by which its contexts are tried.
const SAMPLES: usize = 4;
/// All combinations of the contexts that there are.
const COMBINATIONS: u32 = 2 * context::USER;

/// A schema, compiled, and how far it can be trusted.
pub(crate) struct Resolved {
    pub(crate) schema: Schema,
    /// In order of the schema's channels; none where no event of the channel is described.
    pub(crate) decoders: Vec<Option<ChannelDecoder>>,
    /// Sub-buffers of these channels must be walked even where they are whole.
    pub(crate) thorough: Vec<bool>,
}

/// Makes the schema. `streams` are all streams of the session.
pub(crate) fn resolve(
    info: &Info,
    clock: Clock,
    registry: &Registry,
    streams: &[Stream],
    budget: &Budget,
    notes: &mut Vec<String>,
) -> Resolved {
    let order = match streams.first().map(|s| s.identity.order) {
        Some(Order::Big) => ByteOrder::Big,
        _ => ByteOrder::Little,
    };
    let mut ids: BTreeSet<u32> = info.channels.iter().map(|c| c.id).collect();
    ids.extend(streams.iter().map(|s| s.geometry.channel));
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
        let channel = resolver.channel(described, streams);
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
        text(key, value);
    }
    if info.creator_pid != 0 {
        env.insert("vpid".into(), EnvValue::Integer(i64::from(info.creator_pid)));
    }
    env.insert("tracer_major".into(), EnvValue::Integer(i64::from(lastwords_abi::VERSION_MAJOR)));
    env.insert("tracer_minor".into(), EnvValue::Integer(i64::from(info.minor)));
    env
}

/// A sub-buffer whose events are known to fill it exactly.
struct Sample {
    bytes: Vec<u8>,
    begin: u64,
}

struct Resolver<'a> {
    registry: &'a Registry,
    order: ByteOrder,
    id: u32,
    budget: &'a Budget,
    notes: &'a mut Vec<String>,
    /// The schema of this channel is not sure.
    doubt: bool,
}

impl Resolver<'_> {
    fn channel(&mut self, described: Option<&ChannelInfo>, streams: &[Stream]) -> Channel {
        let events = self.registry.events.iter().filter(|(key, _)| key.0 == self.id).map(|(_, class)| class.clone());
        let name = described.map(|c| c.name.clone()).unwrap_or_default();
        let mut channel = Channel { id: self.id, name, contexts: Vec::new(), events: events.collect() };
        let declared = described.map(|c| c.contexts);
        let bits = if channel.events.is_empty() {
            declared.unwrap_or(0)
        } else {
            let samples = self.samples(streams);
            self.contexts(declared, &channel, &samples)
        };
        channel.contexts = self.fields(bits);
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

    /// The declared contexts if the samples decode with them, else those with which they do.
    fn contexts(&mut self, declared: Option<u32>, channel: &Channel, samples: &[Sample]) -> u32 {
        let id = self.id;
        if declared.is_some_and(|bits| samples.is_empty() || self.decodes(bits, channel, samples)) {
            return declared.unwrap_or(0);
        }
        self.doubt = true;
        let all = if self.user().next().is_some() { COMBINATIONS } else { context::USER };
        let fitting: Vec<u32> = (0..all).filter(|bits| self.decodes(*bits, channel, samples)).collect();
        let said = declared
            .map_or_else(|| "are lost with the session region".into(), |d| format!("{d:#x} do not fit its events"));
        match (fitting.as_slice(), samples.is_empty(), declared) {
            (_, true, _) => {
                self.notes.push(format!("channel {id}: contexts {said}; none are taken"));
                0
            }
            ([bits, others @ ..], false, _) => {
                let sure = if others.is_empty() { "the only ones" } else { "the first" };
                self.notes.push(format!("channel {id}: contexts {said}; {bits:#x} are taken, {sure} that do"));
                *bits
            }
            ([], false, Some(bits)) if self.registry.damage.is_empty() => {
                self.notes.push(format!("channel {id}: no contexts fit its events; {bits:#x}, as declared, are taken"));
                bits
            }
            ([], false, bits) => bits.unwrap_or(0),
        }
    }

    fn decodes(&self, bits: u32, channel: &Channel, samples: &[Sample]) -> bool {
        let trial = Channel { contexts: self.fields(bits), ..channel.clone() };
        let decoder = ChannelDecoder::new(&trial, self.order);
        samples.iter().all(|sample| {
            let walked = walk(&decoder, &sample.bytes, HEADER_LEN, sample.begin, 0);
            walked.error.is_none() && self.budget.events("samples", walked.events).is_ok()
        })
    }

    /// A few sub-buffers of the channel that are whole; where there is none, what is committed of open ones.
    fn samples(&self, streams: &[Stream]) -> Vec<Sample> {
        let (mut whole, mut open) = (Vec::new(), Vec::new());
        for stream in streams.iter().filter(|s| s.geometry.channel == self.id) {
            for half in 0..2 {
                if whole.len() < SAMPLES {
                    sample(stream, half, self.budget, &mut whole, &mut open);
                }
            }
        }
        if whole.is_empty() { open } else { whole }
    }
}

/// Adds the newest whole sub-buffers of a half, and its open one.
fn sample(stream: &Stream, half: usize, budget: &Budget, whole: &mut Vec<Sample>, open: &mut Vec<Sample>) {
    let Ok(control) = stream.control(budget) else { return };
    let Some(words) = control.half.get(half) else { return };
    let g = stream.geometry;
    let position = words.position(&g);
    let current = g.number(position);
    let size = usize::try_from(g.size).unwrap_or(0);
    let mut bytes = Vec::new();
    for number in [current.checked_sub(1), current.checked_sub(2), Some(current)].into_iter().flatten() {
        let loaded = stream.load(half, number, size, &mut bytes);
        if loaded.missing.is_some() || budget.bytes("samples", loaded.got as u64).is_err() {
            continue;
        }
        match judge(&stream.identity, number, &mut bytes) {
            Judged::Whole(header, content) if whole.len() < SAMPLES => {
                bytes.truncate(content);
                whole.push(Sample { bytes: std::mem::take(&mut bytes), begin: header.begin });
            }
            Judged::Unclosed(header) if number == current && !g.is_lockless() && open.len() < SAMPLES => {
                let end = usize::try_from(g.within(position)).unwrap_or(0);
                if end > HEADER_LEN {
                    bytes.truncate(end);
                    open.push(Sample { bytes: std::mem::take(&mut bytes), begin: header.begin });
                }
            }
            _ => {}
        }
    }
}
