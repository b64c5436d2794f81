//! Snapshots of a session, and the marks of processes that read them.

use std::ffi::c_int;

use lastwords::snapshot::{Rings, SnapshotReader};

use crate::args::{Growing, choices, chosen, fill};
use crate::error::{boxed, end};
use crate::session::{actions, from_handle, lw_session};

#[repr(C)]
struct lw_taken {
    number: u32,
    unvisited: u32,
    clock: u64,
    in_flight: u64,
    dropped: u64,
}

// SAFETY: the fields are numbers without padding, which may all be zero.
unsafe impl Growing for lw_taken {}

/// C code holds a pointer to this type and never looks into it.
type lw_snapshot_reader = SnapshotReader<'static>;

actions! {
    fn lw_session_enable_snapshots(session) = session.enable_snapshots()?;
    fn lw_session_disable_snapshots(session) = session.disable_snapshots()?;
    fn lw_session_snapshot_sized(session, rings: u32, index: u32, taken: *mut lw_taken, size: usize) = {
        let rings = chosen("rings", rings, &choices![
            LW_RINGS_ALL = 1 => Rings::All,
            LW_RINGS_CPU = 2 => Rings::Cpu(index),
            LW_RINGS_STREAM = 3 => Rings::Stream(index),
        ])?;
        let snapshot = session.snapshot(rings)?;
        let rest = &snapshot.rest;
        fill(taken, size, &lw_taken {
            number: snapshot.number,
            unvisited: rest.unvisited.len() as u32,
            clock: snapshot.clock,
            in_flight: rest.in_flight as u64,
            dropped: snapshot.dropped,
        });
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_session_read_snapshot(
    session: *const lw_session,
) -> *mut lw_snapshot_reader {
    // SAFETY: C guarantees that the session outlives the mark.
    boxed(|| Ok(unsafe { from_handle(session) }?.read_snapshot()?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_snapshot_reader_end(reader: *mut lw_snapshot_reader, done: c_int) {
    // SAFETY: C does not use the mark afterwards, and the session still exists.
    unsafe { end(reader, |held| if done != 0 { held.release() } else { drop(held) }) }
}
