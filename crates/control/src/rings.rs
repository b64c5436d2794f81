//! The state of a living session's rings, as another process sees it: how full they are, how far
//! back they reach, what was lost. Nothing is copied, consumed or changed.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use lastwords_abi::packet::{HEADER_LEN, at};
use lastwords_abi::session::MODE_OVERWRITE;
use lastwords_abi::stream::ANY_CPU;
use lastwords_ring::HEADROOM;

use crate::consume::added_at;
use crate::sessions::Handle;
use lastwords::internals::regions::{Regions, StreamRegion};

/// The positions of one half of a ring, in bytes since the half was begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Half {
    /// The first position that readers get. It is raised when events are consumed or cleared, and
    /// set when the half is begun anew.
    pub first: u64,
    /// The produced position.
    pub produced: u64,
}

/// The state of a ring: of one channel on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    /// ID of the channel.
    pub channel: u32,
    /// The CPU; none for the ring of threads that are not bound to a CPU's ring.
    pub cpu: Option<u32>,
    /// New events overwrite old ones; otherwise they are discarded when the ring is full.
    pub overwrites: bool,
    /// Bytes of the ring.
    pub size: u64,
    /// The index of the half in which events are recorded now. A snapshot makes the other half the
    /// live one.
    pub live: usize,
    /// The halves.
    pub halves: [Half; 2],
    /// The position in the live half where its oldest sub-buffer begins, or where readers begin if
    /// that is later.
    pub begin: u64,
    /// The session's clock when the oldest sub-buffer of the live half was begun; none if nothing
    /// is in the ring, or if it cannot be read now.
    pub oldest: Option<u64>,
    /// Lost events by cause, as `lost` in docs/ABI.md, section 7, since the session began.
    pub lost: [u64; 7],
    /// Of the first ring of a channel that was created while the session recorded: events that
    /// processes lost because they had not mapped the channel yet.
    pub unattached: u64,
}

impl Ring {
    /// Returns the bytes that the live half holds, with headers of sub-buffers.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.halves[self.live & 1].produced.saturating_sub(self.begin)
    }

    /// Returns the bytes that were written since `before`, an earlier state of the ring. If more
    /// than one snapshot was taken in between, that is too few.
    #[must_use]
    pub fn written_since(&self, before: &Self) -> u64 {
        let of = |(now, before): (&Half, &Half)| {
            let from =
                if now.is_begun_anew(before, self.size) { now.first } else { before.produced };
            now.produced.saturating_sub(from)
        };
        self.halves.iter().zip(&before.halves).map(of).fold(0, u64::saturating_add)
    }
}

impl Half {
    /// Returns true if the half of a ring of `size` bytes was emptied for a snapshot since
    /// `before`. It then begins a whole number of laps after all that was produced, and at least
    /// [`HEADROOM`] bytes after it. Clearing and consuming do not move it so far.
    fn is_begun_anew(&self, before: &Self, size: u64) -> bool {
        self.first.is_multiple_of(size.max(1))
            && self.first >= before.produced.saturating_add(HEADROOM)
    }
}

impl Handle {
    /// Returns the state of all rings, in order of their index.
    #[must_use]
    pub fn rings(&self) -> Vec<Ring> {
        // A channel that cannot be mapped yet is there the next time.
        drop(self.attach(None));
        self.streams.iter().map(|stream| ring(self, stream)).collect()
    }

    /// Returns how many snapshots were taken.
    #[must_use]
    pub fn snapshots(&self) -> u32 {
        self.view.control().snapshots.load(Acquire)
    }
}

fn ring(regions: &Regions, region: &StreamRegion) -> Ring {
    let (stream, spec) = (&region.stream, region.stream.spec());
    let control = stream.control();
    let live = region.spare(&regions.view) ^ 1;
    let half = |half: usize| Half { first: stream.first(half), produced: stream.position(half) };
    let halves = [half(0), half(1)];
    let Half { first, produced } = halves[live];
    let oldest = (produced / spec.sub_buffer_size + 1).saturating_sub(u64::from(spec.sub_buffers));
    let begin = first.max(oldest * spec.sub_buffer_size);
    Ring {
        channel: spec.channel,
        cpu: (spec.cpu != ANY_CPU).then_some(spec.cpu),
        overwrites: spec.mode == MODE_OVERWRITE,
        size: stream.half_size(),
        live,
        halves,
        begin,
        oldest: (begin < produced)
            .then(|| begun(region, live, begin / spec.sub_buffer_size))
            .flatten(),
        lost: control.lost.each_ref().map(|counter| counter.load(Relaxed)),
        unattached: added_at(regions, region).map_or(0, |channel| channel.unattached.load(Relaxed)),
    }
}

/// Returns the clock at the begin of the sub-buffer with this number; none if another one is in its
/// place, or if its header is not written yet. The header is read from the session's file, because
/// a recorder may be writing it.
fn begun(region: &StreamRegion, half: usize, number: u64) -> Option<u64> {
    let spec = region.stream.spec();
    let (path, offset) = region.mapping.place()?;
    let place = number % u64::from(spec.sub_buffers) * spec.sub_buffer_size;
    let mut header = [0; HEADER_LEN];
    File::open(path)
        .ok()?
        .read_exact_at(&mut header, offset + spec.data_range(half).start + place)
        .ok()?;
    let word = |at: usize| header.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    (word(at::PACKET_SEQ_NUM)? == number)
        .then(|| word(at::TIMESTAMP_BEGIN))
        .flatten()
        .filter(|clock| *clock > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(halves: [(u64, u64); 2]) -> Ring {
        let halves = halves.map(|(first, produced)| Half { first, produced });
        let (lost, oldest) = ([0; 7], None);
        Ring {
            channel: 0,
            cpu: None,
            overwrites: true,
            size: 4096,
            live: 0,
            halves,
            begin: 0,
            oldest,
            lost,
            unattached: 0,
        }
    }

    #[test]
    fn bytes_are_counted_across_clears_and_snapshots() {
        let far = HEADROOM + 4096;
        let before = ring([(0, 1000), (far, far)]);
        assert_eq!(ring([(0, 1000), (far, far)]).written_since(&before), 0);
        assert_eq!(ring([(0, 9000), (far, far)]).written_since(&before), 8000, "more than a lap");
        assert_eq!(
            ring([(8192, 9000), (far, far)]).written_since(&before),
            8000,
            "cleared meanwhile"
        );
        assert_eq!(
            ring([(0, 1500), (far, far + 70)]).written_since(&before),
            570,
            "a snapshot was taken"
        );
        let anew = (far + HEADROOM + 8192) / 4096 * 4096;
        assert_eq!(
            ring([(anew, anew), (far, far + 70)]).written_since(&before),
            70,
            "and was freed"
        );
    }
}
