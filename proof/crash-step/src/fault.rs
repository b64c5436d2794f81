//! Seeded faults: a check that cannot fail proves nothing.

use std::sync::atomic::Ordering::{Relaxed, Release};

use lastwords_abi::packet::HEADER_LEN;
use lastwords_abi::stream::{CONTROL_OFF, StreamControl};
use lastwords_ring::StreamSpec;
use lastwords_ring::packet::{self, Closing};

use super::arena::Arena;
use super::naive::Half;

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// A recorder that moves the produced position before it copies.
    PublishFirst,
    /// A child that reports an event as recorded before it records it.
    ReportFirst,
    /// A bit of the newest event is flipped.
    FlipBit,
    /// The produced position is set back by one event.
    StepBack,
}

/// Records as `locked` does, but moves the produced position before it copies. Only fills the first
/// sub-buffer.
pub(crate) fn publish_first(
    arena: &Arena,
    spec: &StreamSpec,
    at: u64,
    id: u16,
    payload: &[u8],
) -> bool {
    // SAFETY: a stream region that the parent initialised; its fields are atomics.
    let control = unsafe { &*arena.at(at + CONTROL_OFF as u64).cast::<StreamControl>() };
    let half = &control.half[0];
    let data = at + spec.data_range(0).start;
    let clock = lastwords_ring::clock::counter();
    let mut position = half.reserve.load(Relaxed);
    if position == 0 {
        half.attempt.store(HEADER_LEN as u64, Relaxed);
        write(arena, data, &packet::header(spec, 0, clock, Closing::default()));
        position = HEADER_LEN as u64;
    }
    let mut event = ((clock as u32) << 5 | 29).to_ne_bytes().to_vec();
    event.extend(id.to_ne_bytes());
    event.extend(u32::MAX.to_ne_bytes());
    event.extend(clock.to_ne_bytes());
    event.extend(payload);
    let end = position + event.len() as u64;
    if end > spec.sub_buffer_size - 16 {
        return false;
    }
    half.attempt.store(end, Relaxed);
    half.reserve.store(end, Release);
    write(arena, data + position, &event);
    true
}

fn write(arena: &Arena, at: u64, bytes: &[u8]) {
    for (i, byte) in bytes.iter().enumerate() {
        // SAFETY: `at` checks that the byte is in the arena; only this thread writes there.
        unsafe { arena.at(at + i as u64).write_volatile(*byte) };
    }
}

/// Damages the newest event of `half`, which is the first of the stream at `at`. False while there
/// is none.
pub(crate) fn damage(fault: Fault, arena: &Arena, spec: &StreamSpec, at: u64, half: &Half) -> bool {
    let Some(newest) = half.events.last() else { return false };
    match fault {
        Fault::FlipBit => {
            let place = arena
                .at(at + spec.data_range(0).start + (newest.payload.0 + newest.payload.1) as u64
                    - 1);
            // SAFETY: a byte of the arena; the child is stopped.
            unsafe { place.write_volatile(place.read_volatile() ^ 4) };
        }
        Fault::StepBack => {
            // SAFETY: as in `publish_first`; the child is stopped.
            let control = unsafe { &*arena.at(at + CONTROL_OFF as u64).cast::<StreamControl>() };
            control.half[0].reserve.store(newest.position, Relaxed);
        }
        Fault::None | Fault::PublishFirst | Fault::ReportFirst => return false,
    }
    true
}
