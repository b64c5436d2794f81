//! Reads one stream: from its mapping to a ring.

use super::abi::{Abi, LEN, NumberAt};
use super::mapping::Mapping;
use super::tail::Tail;
use crate::{Counters, Header, Loss, Mode, Ring, SetData, Shape, Slot, Stream};
use lastwords_bytes::{Budget, Error};
use lastwords_image::{Hole, HoleCause, Image};
use std::sync::Arc;

/// A stream, with the identity that its packets have.
pub(super) struct Raw {
    pub(super) stream: Stream,
    pub(super) shape: Shape,
    /// UUID of the trace; none if no packet was started.
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) notes: Vec<String>,
    /// Length of the mapping, bytes.
    pub(super) length: u64,
    /// The part of the mapping that its file lacks.
    pub(super) lack: Option<Lack>,
}

/// The missing part of a stream.
pub(super) struct Lack {
    pub(super) words: String,
    /// Number of missing bytes, if known.
    pub(super) bytes: Option<u64>,
}

/// Reads the stream whose mapping begins at `at`; none if there is no stream.
///
/// # Errors
/// The stream cannot be decoded, or the budget is spent.
pub(super) fn read(
    what: &str,
    image: &Arc<dyn Image>,
    at: u64,
    budget: &Budget,
) -> Result<Option<Raw>, Error> {
    let mut head = [0u8; LEN];
    if image.read(at, &mut head).is_err() {
        return Ok(None);
    }
    let Some(abi) = Abi::parse(what, &head)? else { return Ok(None) };
    let mapping = Mapping { image: Arc::clone(image), at, order: abi.order, length: abi.length };
    budget.steps("slots", abi.count)?;
    let mut notes = Vec::new();
    let position = |place: NumberAt, whose: &str| {
        let expected = format!("the {whose} position of a mapping of {} bytes", abi.length);
        mapping.number(place).ok_or_else(|| Error::short(what, place.at, 0, &expected))
    };
    let (produced, consumed) = (position(abi.produced, "write")?, position(abi.consumed, "read")?);
    let shape = Shape { order: abi.order, word: abi.word };
    let tail = Tail::read(&mapping, &abi);
    let sets = Sets::read(&mapping, &abi, tail.and_then(|tail| tail.data));
    if tail.is_none() {
        notes.push(format!(
            "{what}: the layout behind the crash ABI is not known, so the losses of the stream are not known"
        ));
    }
    let tail = tail.unwrap_or_default();
    let headers = sets.headers(shape);
    let (uuid, channel, cpu) = identity(&headers);
    let set = |id: u64| if abi.has_reader_set() { Mode::Overwrite.set(id, abi.word) } else { id };
    let slot = |n: u64| {
        let contiguous = mapping.row(abi.hot, n, abi.contiguous);
        // The counter of deliveries is not part of the ABI; the packet header shows whether the
        // sub-buffer was delivered.
        let counters = Counters { contiguous, delivered: contiguous };
        let id = mapping.row(abi.slots, n, abi.slot_id).map(set);
        Slot { counters, set: id.or_else(|| newest_of_slot(&headers, n, abi.count)) }
    };
    let stream = Stream {
        channel,
        channel_name: String::new(),
        cpu,
        ring: Ring {
            sub_buffer_size: abi.sub_buffer_size,
            mode: if abi.is_overwrite { Mode::Overwrite } else { Mode::Discard },
            word: abi.word,
            produced,
            consumed,
            counter_mask: abi.counter_mask(),
            slots: (0..abi.count).map(slot).collect(),
            reader: tail.reader.map(set),
            held: tail.held,
        },
        loss: Loss { full: tail.full, wrap: tail.wrap, big: tail.big },
        last_time: tail.last_time,
        packets: Vec::new(),
        data: Arc::new(sets),
    };
    Ok(Some(Raw { stream, shape, uuid, notes, length: abi.length, lack: None }))
}

/// UUID, channel and CPU that most of the packets have.
fn identity(headers: &[(u64, Header)]) -> (Option<[u8; 16]>, u32, Option<u32>) {
    let mut votes: Vec<(usize, [u8; 16], u32, u32)> = Vec::new();
    for &(_, Header { uuid, stream_id, cpu, .. }) in headers {
        let is_known =
            votes.iter().position(|vote| (vote.1, vote.2, vote.3) == (uuid, stream_id, cpu));
        if is_known.is_none() && votes.len() < 64 {
            votes.push((0, uuid, stream_id, cpu));
        }
        let last = votes.len().saturating_sub(1);
        if let Some(vote) = votes.get_mut(is_known.unwrap_or(last)) {
            vote.0 = vote.0.saturating_add(1);
        }
    }
    let best = votes.into_iter().max_by_key(|vote| vote.0);
    best.map_or((None, 0, None), |(_, uuid, channel, cpu)| (Some(uuid), channel, Some(cpu)))
}

/// The set with the newest packet of slot `n` of `count`, by packet numbers. Used if the table of
/// slots is missing.
fn newest_of_slot(headers: &[(u64, Header)], n: u64, count: u64) -> Option<u64> {
    let own = headers.iter().filter(|(_, header)| header.sequence.checked_rem(count) == Some(n));
    own.max_by_key(|(_, header)| header.sequence).map(|(set, _)| *set)
}

/// The sets of pages of a mapping; each set is contiguous.
struct Sets {
    mapping: Mapping,
    size: u64,
    /// Offset of each set.
    sets: Vec<Option<u64>>,
}

impl Sets {
    /// Reads the offsets of the sets. If their table is missing, the sets are contiguous from
    /// `data` on.
    fn read(mapping: &Mapping, abi: &Abi, data: Option<u64>) -> Self {
        let place = |set: u64| {
            let pages = mapping.row(abi.sets, set, abi.set_offset)?;
            mapping
                .number(NumberAt { at: pages.checked_add(abi.data_offset.at)?, ..abi.data_offset })
        };
        let by_order = |set: u64| data?.checked_add(set.checked_mul(abi.sub_buffer_size)?);
        let sets = (0..abi.set_count()).map(|set| place(set).or_else(|| by_order(set))).collect();
        Self { mapping: mapping.clone(), size: abi.sub_buffer_size, sets }
    }

    /// Number and header of each set in which a packet was ever started.
    fn headers(&self, shape: Shape) -> Vec<(u64, Header)> {
        let mut bytes = vec![0u8; shape.len()];
        let header = |set: u64| {
            self.read(set, 0, &mut bytes).ok()?;
            Header::parse(&bytes, shape).ok().filter(Header::has_magic).map(|header| (set, header))
        };
        (0..self.sets.len() as u64).filter_map(header).collect()
    }
}

impl SetData for Sets {
    fn read(&self, set: u64, at: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let nowhere =
            Hole { address: self.mapping.at.saturating_add(at), cause: HoleCause::Unmapped };
        let begin = usize::try_from(set)
            .ok()
            .and_then(|set| self.sets.get(set).copied().flatten())
            .ok_or(nowhere)?;
        let end = at.checked_add(buf.len() as u64).ok_or(nowhere)?;
        if end > self.size {
            return Err(nowhere);
        }
        self.mapping.read(begin.checked_add(at).ok_or(nowhere)?, buf)
    }

    fn data_size(&self, _: u64) -> Option<u64> {
        None
    }
}
