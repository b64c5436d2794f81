//! Recovery by the product's own reader, beside the plain one: both must find the same events.
//!
//! Recovery depends on nothing but the memory, so it runs when that has changed since the stop
//! before; at the stops between it would find the same.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use lastwords_abi::session::{SNAPSHOT_SWAPPING, SNAPSHOT_TAKEN};
use lastwords_bytes::Budget;
use lastwords_ctf::session::Decoder;
use lastwords_image::{Hole, HoleCause, Image, Range, unwatched};
use lastwords_session::Options;
use lastwords_session::{self as session, Session};
use lastwords_trace::evidence::{Cause, Verdict};
use lastwords_trace::source::Source as _;

use super::arena::{Arena, Layout};
use super::naive::{self, Found, Half, u32_at};
use super::oracle::Stop;

/// The arena's session as an image, at the addresses of the child.
struct ArenaImage {
    arena: Arc<Arena>,
    /// Offset in the arena of the session.
    begin: u64,
    ranges: Vec<Range>,
}

impl Image for ArenaImage {
    fn name(&self) -> &str {
        "arena"
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let at = address.wrapping_sub(self.ranges[0].address).wrapping_add(self.begin);
        let bytes =
            usize::try_from(at).ok().and_then(|at| self.arena.bytes().get(at..)?.get(..buf.len()));
        let bytes = bytes.filter(|_| address >= self.ranges[0].address);
        buf.copy_from_slice(bytes.ok_or(Hole { address, cause: HoleCause::Unmapped })?);
        Ok(())
    }
}

/// Recovers by the product's reader and compares.
pub(crate) struct Walker {
    arena: Arc<Arena>,
    begin: u64,
    image: Option<Arc<dyn Image>>,
    /// The session's memory when it was last recovered.
    last: Vec<u8>,
}

impl std::fmt::Debug for Walker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walker").finish_non_exhaustive()
    }
}

/// Clock, id and payload of a recovered event.
type Event = (u64, u16, Vec<u8>);

impl Walker {
    pub(crate) fn new(arena: &Arc<Arena>, layout: &Layout) -> Self {
        Self { arena: arena.clone(), begin: layout.session, image: None, last: Vec::new() }
    }

    /// The child has the arena at that address.
    pub(crate) fn found_at(&mut self, base: u64) {
        let len = self.arena.bytes().len() as u64 - self.begin;
        let range =
            Range { address: base + self.begin, len, name: "arena".into(), offset: 0, hole: None };
        self.image = Some(Arc::new(ArenaImage {
            arena: self.arena.clone(),
            begin: self.begin,
            ranges: vec![range],
        }));
        self.last.clear();
    }

    /// Recovers and compares, if memory has changed. True where it had.
    /// `was_recorded` checks an event that stands in a place which was passed over: the plain
    /// reader leaves those out.
    pub(crate) fn judge(
        &mut self,
        stop: &Stop<'_>,
        arena: &[u8],
        layout: &Layout,
        was_recorded: &dyn Fn(u16, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let now = &arena[self.begin as usize..];
        if self.last == now {
            return Ok(false);
        }
        self.last.clear();
        self.last.extend_from_slice(now);
        let image = self.image.as_ref().context("no child yet")?;
        let snapshot = u32_at(arena, layout.control as usize + 64);
        let session = recover(image, false)?;
        for (index, halves) in stop.streams.iter().enumerate() {
            let live = (stop.flip & 1) as usize;
            let wanted: &[usize] =
                if snapshot == SNAPSHOT_SWAPPING { &[live ^ 1, live] } else { &[live] };
            compare(&session, index, halves, wanted, stop, was_recorded)
                .with_context(|| format!("stream {index}, live"))?;
        }
        if snapshot == SNAPSHOT_TAKEN {
            let session = recover(image, true)?;
            for (index, halves) in stop.streams.iter().enumerate() {
                let other = (stop.flip & 1) as usize ^ 1;
                compare(&session, index, halves, &[other], stop, was_recorded)
                    .with_context(|| format!("stream {index}, snapshot"))?;
            }
        }
        Ok(true)
    }
}

pub(crate) fn recover(image: &Arc<dyn Image>, snapshot: bool) -> Result<Session> {
    let found = session::find(
        image,
        &Options { snapshot, ..Options::default() },
        &Budget::default(),
        &unwatched,
    )?;
    ensure!(found.sessions.len() == 1 && found.notes.is_empty(), "recovery: {found:?}");
    let session = found.sessions.into_iter().next().context("no session")?;
    let evidence = session.evidence();
    let bad = evidence
        .sub_buffers
        .iter()
        .find(|s| matches!(s.verdict, Verdict::Invalid | Verdict::Missing));
    ensure!(bad.is_none(), "recovery: {bad:?}");
    let bad = evidence.gaps.iter().find(|g| matches!(g.cause, Cause::Damaged | Cause::Missing));
    ensure!(bad.is_none(), "recovery: {bad:?}");
    Ok(session)
}

/// The session's stream has the events that the plain reader found in `wanted` halves.
fn compare(
    session: &Session,
    index: usize,
    halves: &[Half; 2],
    wanted: &[usize],
    stop: &Stop<'_>,
    was_recorded: &dyn Fn(u16, &[u8]) -> Result<()>,
) -> Result<()> {
    let decoder = Decoder::new(session.schema());
    let stream = session.streams().get(index).context("recovery has no such stream")?;
    let mut packets = session.packets(index);
    let mut bytes = Vec::new();
    let mut expected = wanted.iter().flat_map(|&h| halves[h].events.iter().map(move |e| (h, e)));
    let is_stale = |number: u64| {
        let in_place = |(n, verdict, _): &(u64, naive::Verdict, u64)| {
            *verdict == naive::Verdict::Stale
                && number < *n
                && (n - number).is_multiple_of(stop.places)
        };
        wanted.iter().any(|&h| halves[h].sub_buffers.iter().any(in_place))
    };
    while let Some(packet) = packets.next_packet(&mut bytes) {
        let is_stale = is_stale(packet.sequence);
        for event in decoder.events(stream.channel, &bytes, packet.begin, packet.events_at) {
            let event = event?;
            if is_stale {
                was_recorded(event.id, &bytes[event.payload()])?;
                continue;
            }
            let got: Event = (event.clock, event.id, bytes[event.payload()].to_vec());
            let want = expected.next().map(|(half, e)| as_event(e, stop.data[index][half]));
            ensure!(
                want.as_ref() == Some(&got),
                "recovery found {got:?}, the plain reader {want:?}"
            );
        }
    }
    let missing = expected.next();
    ensure!(missing.is_none(), "recovery did not find {missing:?}");
    Ok(())
}

fn as_event(found: &Found, data: &[u8]) -> Event {
    let (at, len) = found.payload;
    (found.clock, found.id, data[at..at + len].to_vec())
}
