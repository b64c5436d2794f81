//! The lockless part of the plain reader: reservations in flight, holes, commit counters. See
//! docs/ABI.md, section 8.

use super::naive::{Geometry, Half, Packet, Raw, Verdict, u64_at};

/// Bits of a reserve word that are the position.
pub(crate) const POSITION: u64 = (1 << 52) - 1;
const ENTRY_LEN: usize = 320;
const LEVELS: usize = 4;

/// The bytes are not all there.
const RESERVING: u64 = 1;
/// They are, the commit counter may not be.
const COPIED: u64 = 2;
/// Padding and the next header.
const SWITCH: u64 = 3;

/// A reservation in flight that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlight {
    begin: u64,
    end: u64,
    state: u64,
}

/// The reservations in flight of a half, from the table of threads.
pub(crate) fn in_flight(
    threads: &[u8],
    stream: u32,
    half: usize,
    reserve: u64,
    out: &mut Vec<InFlight>,
) {
    out.clear();
    let target = ((u64::from(stream) << 1) | half as u64) + 1;
    let owner = (reserve & !(1 << 63)) >> 52;
    for (entry, thread) in threads.chunks_exact(ENTRY_LEN).enumerate() {
        for level in 0..LEVELS {
            let words = &thread[64 + 64 * level..];
            if u64_at(words, 0) != target {
                continue;
            }
            let (begin, end, confirmed) = (u64_at(words, 8), u64_at(words, 16), u64_at(words, 24));
            let named = owner == (entry * LEVELS + level + 1) as u64 && reserve & POSITION == end;
            let seen = confirmed >> 52 == target & 0xfff && confirmed & POSITION >= end;
            if named || seen {
                out.push(InFlight { begin, end, state: u64_at(words, 32) });
            }
        }
    }
}

/// Reads sub-buffer `packet.number` of a lockless half.
pub(crate) fn read(
    half: &mut Half,
    geometry: &Geometry,
    raw: Raw<'_>,
    packet: &Packet<'_>,
    in_flight: &[InFlight],
) {
    let faults = half.faults.len();
    read_place(half, geometry, raw, packet, in_flight);
    if half.faults.len() > faults {
        let slot: Vec<u64> = (0..4)
            .map(|i| u64_at(&raw.slots[(packet.number % geometry.count) as usize * 64..], 8 * i))
            .collect();
        half.faults
            .push(format!("slot {slot:?}, produced {}, in flight {in_flight:?}", half.produced));
    }
}

fn read_place(
    half: &mut Half,
    geometry: &Geometry,
    raw: Raw<'_>,
    packet: &Packet<'_>,
    in_flight: &[InFlight],
) {
    let (size, number) = (geometry.size, packet.number);
    let slot = &raw.slots[(number % geometry.count) as usize * 64..];
    let committed = u64_at(slot, 0).wrapping_sub(number / geometry.count * size);
    let (begin, end) = (number * size, (number + 1) * size);
    let is_last = end > half.produced;
    let switch = |f: &&InFlight| f.state == SWITCH;
    let leaving = in_flight.iter().filter(switch).find(|f| (begin + 84..end).contains(&f.begin));
    let content = match leaving {
        _ if is_last => half.produced - begin,
        Some(f) => f.begin - begin,
        None => u64_at(slot, 8).wrapping_sub(begin),
    };
    // The counter was made whole where a dead recorder left a hole, and the ring had not yet come
    // round.
    let reclaimed = committed == size && in_flight.iter().any(|f| f.begin < end && f.end > begin);
    if committed == size && (!reclaimed || Half::is_whole(geometry, packet)) {
        return half.read_closed(geometry, packet);
    }
    // Only a switch reserves a header, so that it explains one that is not there.
    let headless = in_flight.iter().filter(switch).any(|f| f.end == begin + 84);
    if !headless && !packet.is_headed(geometry) {
        half.sub_buffers.push((number, Verdict::Stale, 0));
        return;
    }
    if !(84..=size - 16).contains(&content) {
        half.faults.push(format!("sub-buffer {number}: content {content}"));
        half.sub_buffers.push((number, Verdict::Invalid, content));
        return;
    }
    let here: Vec<InFlight> =
        in_flight.iter().copied().filter(|f| f.begin < begin + content && f.end > begin).collect();
    let whole = here.is_empty() && leaving.is_none();
    if whole && (!is_last && committed == size - 84 || is_last && committed == content - 84) {
        return half.read_open(geometry, packet, content);
    }
    let holes: Vec<(u64, u64)> =
        here.iter().filter(|f| f.state == RESERVING).map(|f| (f.begin, f.end)).collect();
    half.holes += holes.len();
    let expected = content - 84 - holes.iter().map(|h| h.1 - h.0).sum::<u64>();
    let mut maybe: Vec<u64> =
        here.iter().filter(|f| f.state == COPIED).map(|f| f.end - f.begin).collect();
    let mut sure = expected - maybe.iter().sum::<u64>();
    if !is_last {
        if leaving.is_some() { maybe.push(size - content) } else { sure += size - content }
    }
    if reclaimed || is_sum(committed, sure, &maybe) {
        half.decode(packet, content, &holes, headless);
        half.sub_buffers.push((number, Verdict::Torn, content));
    } else {
        let contiguous = u64_at(raw.control, 72);
        half.faults.push(format!(
            "sub-buffer {number}: {committed} bytes committed, not {sure} and some of {maybe:?}; contiguous {contiguous}"
        ));
        half.sub_buffers.push((number, Verdict::Invalid, content));
    }
}

/// `sum` is `sure` and some of `maybe`.
fn is_sum(sum: u64, sure: u64, maybe: &[u64]) -> bool {
    match maybe {
        [] => sum == sure,
        [first, rest @ ..] => is_sum(sum, sure, rest) || is_sum(sum, sure + first, rest),
    }
}
