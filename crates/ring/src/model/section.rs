//! Restartable sections, modelled: on each CPU one thing runs at a time, and what was interrupted inside a section does
//! not go on.
//!
//! A CPU is a mutex around the number of the section that it runs. Each step of a section takes the mutex, looks whether
//! it is still the one, and does one thing: no other section of that CPU can come in between, and threads elsewhere see
//! every state between two steps.

use core::cell::Cell;

use lastwords_abi::stream::HalfControl;
use lastwords_abi::sync::AtomicU32;
use lastwords_abi::sync::Ordering::{Relaxed, Release};

use super::{Point, area, point, with_world};
use crate::hooks::fault;
use crate::record::Piece;

std::thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// What a section checks and publishes.
pub(crate) struct Section<'a> {
    pub(crate) cpu: u32,
    pub(crate) half: u32,
    pub(crate) flips: [&'a AtomicU32; 2],
    pub(crate) control: &'a HalfControl,
    pub(crate) position: u64,
    pub(crate) end: u64,
}

/// Runs the section; false if it was restarted, or if what it was computed from does not stand.
pub(crate) fn publish(section: &Section<'_>, pieces: &[Piece]) -> bool {
    let number = NUMBER.with(|n| n.replace(n.get() + 1)) + 1;
    with_world(|w| *w.cpus[section.cpu as usize].lock().expect("no panics") = number);
    let step = |does: &mut dyn FnMut() -> bool| {
        point(Point::Step);
        with_world(|w| {
            let running = w.cpus[section.cpu as usize].lock().expect("no panics");
            let goes_on = (*running == number && !super::aborts()) || fault!(NoAbort);
            goes_on && area().cpu_id.load(core::sync::atomic::Ordering::Relaxed) == section.cpu && does()
        })
    };
    let control = section.control;
    let live = || section.flips.iter().fold(section.half, |bits, flip| bits ^ flip.load(Relaxed)) & 1 == 0;
    let stands = step(&mut || control.reserve.load(Relaxed) == section.position) && step(&mut || live());
    stands
        && step(&mut || {
            control.attempt.store(section.end, Relaxed);
            true
        })
        && pieces.iter().all(|p| {
            step(&mut || {
                super::writes(p.dst, p.len);
                // SAFETY: `single_writer` lets the copy lie in the ring of this CPU, whose mutex is held.
                unsafe { core::ptr::copy_nonoverlapping(p.src, p.dst, p.len) };
                true
            })
        })
        && step(&mut || {
            control.reserve.store(section.end, Release);
            true
        })
}

/// What an interrupt on every CPU does: whatever section runs is restarted.
pub(crate) fn restart_all() {
    with_world(|w| w.cpus.iter().for_each(|cpu| *cpu.lock().expect("no panics") = 0));
}
