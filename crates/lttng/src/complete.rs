//! Adds packets to sessions whose walk did not reach all structures of the tracer.
//!
//! A dump can lack structures of the tracer, because makedumpfile takes some for free memory, and
//! still have the packets. A packet names its trace, stream and CPU; its number is its place in the
//! stream.

use super::carve::{Candidate, Sets, candidates, packet, stream};
use super::session::{Session, SetData};
use lastwords_bytes::{Budget, Error};
use lastwords_image::{Hole, Image, Watch};
use lastwords_trace::evidence::{Cause, Evidence, SubBuffer, Verdict};
use std::collections::BTreeMap;
use std::sync::Arc;

/// First set number for packets that were found by carving.
const OTHERS: u64 = 1 << 40;

impl Session {
    /// True if the walk missed sub-buffers of this session or could not read some of its rings.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        let rows = self.evidence.sub_buffers.iter().any(|row| row.verdict == Verdict::Missing);
        rows || self.is_cut
    }
}

/// Adds to partial sessions the packets in `image`, an image of physical memory, that no walk
/// reached.
///
/// # Errors
/// The budget is spent.
pub fn complete(
    image: &Arc<dyn Image>,
    sessions: &mut [Session],
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<(), Error> {
    if !sessions.iter().any(Session::is_partial) {
        return Ok(());
    }
    let mut found: BTreeMap<([u8; 16], u32, u32), Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates(image, budget, watch)? {
        let header = &candidate.header;
        found.entry((header.uuid, header.stream_id, header.cpu)).or_default().push(candidate);
    }
    for session in sessions.iter_mut().filter(|session| session.is_partial()) {
        let own = |key: &&([u8; 16], u32, u32)| key.0 == session.uuid;
        for key in found.keys().filter(own).copied().collect::<Vec<_>>() {
            let packets = found.remove(&key).unwrap_or_default();
            let at = session
                .streams
                .iter()
                .position(|stream| (stream.channel, stream.cpu) == (key.1, Some(key.2)));
            match at {
                Some(at) => fill(session, at, packets, image),
                None => add(session, (key.1, key.2), packets, image),
            }
        }
    }
    Ok(())
}

/// Adds a stream that the walk did not find.
fn add(
    session: &mut Session,
    (channel, cpu): (u32, u32),
    found: Vec<Candidate>,
    image: &Arc<dyn Image>,
) {
    let index = session.streams.len();
    let mut evidence = Evidence::default();
    let stream = stream(image, channel, cpu, found, session.shape, index, &mut evidence);
    // No counter says that rejected packets belong to this stream: they may be from an old session
    // that used the same memory.
    evidence.sub_buffers.retain(|row| row.verdict != Verdict::Missing);
    let count = stream.packets.len();
    if count == 0 {
        return;
    }
    session.evidence.sub_buffers.append(&mut evidence.sub_buffers);
    session.evidence.notes.push(format!(
        "channel {channel}, CPU {cpu}: the image lacks its ring; {count} packets were found by themselves: how many it had is not known"
    ));
    session.gap(
        index,
        "its ring: what was lost or overwritten is not known".to_owned(),
        Cause::Missing,
    );
    session.streams.push(stream);
}

/// Fills the places of sub-buffers that the walk missed in a stream.
fn fill(session: &mut Session, index: usize, mut found: Vec<Candidate>, image: &Arc<dyn Image>) {
    let shape = session.shape;
    let Some(stream) = session.streams.get_mut(index) else { return };
    let mut others = Sets { image: Arc::clone(image), sets: Vec::new() };
    found
        .sort_by_key(|c| (c.header.sequence, c.header.is_open(), std::cmp::Reverse(c.pages.len())));
    let mut count = 0usize;
    let rows = session.evidence.sub_buffers.iter_mut();
    let mut missed: BTreeMap<u64, &mut SubBuffer> = rows
        .filter(|row| row.stream == index && row.verdict == Verdict::Missing)
        .map(|row| (row.sequence, row))
        .collect();
    for candidate in found {
        let number = candidate.header.sequence;
        if !missed.contains_key(&number) {
            continue;
        }
        let at = stream.packets.partition_point(|packet| packet.header.sequence < number);
        let before = at.checked_sub(1).and_then(|at| stream.packets.get(at));
        let after = stream.packets.get(at);
        let begins = before.is_none_or(|before| before.header.end <= candidate.header.begin);
        let ends = after.is_none_or(|after| candidate.header.end <= after.header.begin);
        if !begins || !ends {
            continue;
        }
        let set = others.sets.len() as u64;
        others.sets.push(candidate.pages.clone());
        let Ok(mut packet) = packet(&candidate, &others, set, shape) else { continue };
        packet.set = set.saturating_add(OTHERS);
        let Some(row) = missed.remove(&number) else { continue };
        row.verdict = packet.verdict;
        row.content = packet.content;
        row.why =
            format!("no structure leads to it; it was found by itself ({})", candidate.how.words());
        stream.packets.insert(at, packet);
        count = count.saturating_add(1);
    }
    if count == 0 {
        return;
    }
    stream.data = Arc::new(Joined { own: Arc::clone(&stream.data), others });
    let (channel, cpu) = (stream.channel, stream.cpu.unwrap_or(0));
    session.evidence.notes.push(format!(
        "channel {channel}, CPU {cpu}: {count} packets whose structures the image lacks were found by themselves"
    ));
}

/// The sets of pages of a ring, and those of packets that were found by carving.
struct Joined {
    own: Arc<dyn SetData>,
    others: Sets,
}

impl SetData for Joined {
    fn read(&self, set: u64, at: u64, buf: &mut [u8]) -> Result<(), Hole> {
        match set.checked_sub(OTHERS) {
            Some(set) => self.others.read(set, at, buf),
            None => self.own.read(set, at, buf),
        }
    }

    fn data_size(&self, set: u64) -> Option<u64> {
        if set < OTHERS { self.own.data_size(set) } else { None }
    }
}
