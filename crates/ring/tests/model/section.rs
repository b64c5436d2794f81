//! Models restartable sections: on each CPU one section runs at a time, and an interrupted section
//! does not continue.
//!
//! A CPU is a mutex around the number of the section that it runs. Each step of a section takes the
//! mutex, checks whether the section is still the running one, and does one thing. No other section
//! of that CPU can come in between, and threads on other CPUs see every state between two steps.

use core::cell::Cell;

use lastwords_abi::header::{CLOCK_BITS, LEN_COMPACT, TAG_BITS};
use lastwords_abi::packet::HEADER_LEN;
use lastwords_abi::sync::Ordering::{Acquire, Relaxed, Release};

use super::{Point, area, point, tick, with_world};
use crate::hooks::fault;
use crate::record::{Piece, Tail};
use crate::reserve::lane::Lane;
// The model has no texts of C, and records the other payloads as words with a tail.
pub(crate) use crate::reserve::never::{record_padded, record_short_text, record_varying};
use crate::reserve::rseq::Commit;

std::thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// A running section, on the CPU where the thread was when it began.
struct Running {
    cpu: u32,
    number: u64,
}

impl Running {
    fn begin() -> Self {
        let number = NUMBER.with(|n| n.replace(n.get() + 1)) + 1;
        let cpu = area().cpu_id.load(core::sync::atomic::Ordering::Relaxed);
        with_world(|w| *w.cpus[cpu as usize].lock().expect("no panics") = number);
        Self { cpu, number }
    }

    /// Does one thing, unless the section was interrupted or the thread moved. Returns true if it
    /// was done.
    fn step(&self, does: impl FnOnce() -> bool) -> bool {
        point(Point::Step);
        with_world(|w| {
            let running = w.cpus[self.cpu as usize].lock().expect("no panics");
            let goes_on = (*running == self.number && !super::aborts()) || fault!(NoAbort);
            goes_on
                && area().cpu_id.load(core::sync::atomic::Ordering::Relaxed) == self.cpu
                && does()
        })
    }
}

/// Copies into the ring, in a step of a section.
fn copy(piece: Piece) -> bool {
    super::writes(piece.dst, piece.len);
    // SAFETY: the section that copies has checked that the destination is in the ring of this CPU,
    // whose mutex is held.
    unsafe { core::ptr::copy_nonoverlapping(piece.src, piece.dst, piece.len) };
    true
}

/// Runs the section. Returns false if it was restarted, or if the values from which it was computed
/// have changed.
///
/// # Safety
/// The conditions of the modelled sections apply: nobody else writes the destinations while the
/// position is current on this CPU.
pub(crate) unsafe fn publish(section: &Commit<'_>, pieces: &[Piece]) -> bool {
    let running = Running::begin();
    let control = section.control;
    let live =
        || (section.half ^ section.flip.load(Relaxed) ^ section.stream_flip.load(Relaxed)) & 1 == 0;
    let stands = running
        .step(|| running.cpu == section.cpu && control.reserve.load(Relaxed) == section.position)
        && running.step(live);
    stands
        && running.step(|| {
            control.attempt.store(section.end, Relaxed);
            true
        })
        && pieces.iter().all(|piece| running.step(|| copy(*piece)))
        && running.step(|| {
            control.reserve.store(section.end, Release);
            true
        })
}

/// Runs the fast path's section: does what its instructions do, in their order. Whole words are
/// stored, and bytes after `len` are not published.
///
/// # Safety
/// The conditions of the modelled sections apply: `id` is of a compact header, and `len` is at most
/// `8 * W`.
pub(crate) unsafe fn record<const W: usize>(
    lane: &Lane,
    id: u32,
    words: &[u64; W],
    len: usize,
    _most: usize,
    tail: Option<Tail<'_>>,
) -> bool {
    let words = &words[..len.div_ceil(8)];
    let running = Running::begin();
    let control = lane.control;
    let total = (LEN_COMPACT + len + tail.map_or(0, Tail::size)) as u64;
    let (position, clock) = (Cell::new(0), Cell::new(0));
    // Acquire: the processor's loads are in order, or the section's caller has loaded the flips
    // with this order.
    let live = || (lane.flip.load(Acquire) ^ lane.stream_flip.load(Acquire) ^ lane.half) & 1 == 0;
    let fits = || {
        position.set(control.reserve.load(Relaxed));
        let behind = (position.get() & lane.sub_buffer_mask).wrapping_sub(HEADER_LEN as u64);
        clock.set(tick());
        let near = clock.get().wrapping_sub(control.last_clock.load(Relaxed)) >> CLOCK_BITS == 0;
        behind <= lane.room && behind + total <= lane.room && near
    };
    let to = |at: usize| lane.data.wrapping_add((position.get() & lane.half_mask) as usize + at);
    let put = |at: usize, bytes: &[u8]| {
        copy(Piece { dst: to(at), src: bytes.as_ptr(), len: bytes.len() })
    };
    let done = running.step(|| running.cpu == lane.cpu || fault!(OtherCpu))
        && running.step(|| live() || fault!(OtherHalf))
        && running.step(fits)
        && running.step(|| {
            control.attempt.store(position.get() + total, Relaxed);
            put(0, &(((clock.get() as u32) << TAG_BITS) | id).to_ne_bytes());
            words.iter().enumerate().all(|(n, word)| put(LEN_COMPACT + 8 * n, &word.to_ne_bytes()))
        })
        && tail.is_none_or(|tail| {
            running.step(|| {
                put(LEN_COMPACT + len, tail.bytes());
                tail.size() == tail.bytes().len()
                    || put(LEN_COMPACT + len + tail.bytes().len(), &[0])
            })
        })
        && running.step(|| {
            control.reserve.store(position.get() + total, Release);
            true
        });
    if done {
        control.last_clock.store(clock.get(), Relaxed);
    }
    done
}

/// Restarts every running section, as an interrupt on every CPU does.
pub(crate) fn restart_all() {
    with_world(|w| w.cpus.iter().for_each(|cpu| *cpu.lock().expect("no panics") = 0));
}
