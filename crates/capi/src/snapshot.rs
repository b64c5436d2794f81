//! Snapshots of a session, and marks of who reads them.

use std::ffi::c_int;

use lastwords::snapshot::{Rings, SnapshotReader, Taken};

use crate::error::{Outcome, boxed};
use crate::session::{lw_session, of, on};

/// A snapshot that was taken.
#[repr(C)]
pub struct lw_taken {
    /// Its number, from 1.
    pub number: u32,
    /// CPUs on which this thread may not run and whose recorders were only waited for.
    pub unvisited: u32,
    /// The session's clock when it was taken, ticks.
    pub clock: u64,
    /// Events that living threads were recording and that were not finished in bounded time.
    pub in_flight: u64,
    /// Bytes of the snapshot before it that nobody had consumed: they are gone.
    pub dropped: u64,
}

/// The mark that this process reads a snapshot, so that none replaces it meanwhile.
#[derive(Debug)]
pub struct lw_snapshot_reader {
    reader: SnapshotReader<'static>,
}

/// Allocates the spare of every ring, so that snapshots can be taken. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_enable_snapshots(session: *const lw_session) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { on(session, |session| Ok(session.enable_snapshots()?)) }
}

/// Frees the spares, and the snapshot in them. 0, or -1 (see `lw_error`): the snapshot is being read.
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_disable_snapshots(session: *const lw_session) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { on(session, |session| Ok(session.disable_snapshots()?)) }
}

/// Takes a snapshot: what was recorded until now is kept aside while recording goes on. Needs `lw_builder_snapshot` or
/// `lw_session_enable_snapshots`. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended; `taken` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_snapshot(session: *const lw_session, taken: *mut lw_taken) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { take(session, Rings::All, taken) }
}

/// Takes a snapshot of the streams that are bound to a CPU, in all channels. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended; `taken` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_snapshot_cpu(session: *const lw_session, cpu: u32, taken: *mut lw_taken) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { take(session, Rings::Cpu(cpu), taken) }
}

/// Takes a snapshot of the stream of that index, a channel's on a CPU. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended; `taken` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_snapshot_stream(
    session: *const lw_session,
    stream: u32,
    taken: *mut lw_taken,
) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { take(session, Rings::Stream(stream), taken) }
}

/// # Safety
/// `session` is null or was not ended; `taken` is null or writable.
unsafe fn take(session: *const lw_session, rings: Rings, taken: *mut lw_taken) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        on(session, |session| {
            let told = told(&session.take_snapshot_of(rings)?);
            if !taken.is_null() {
                taken.write(told);
            }
            Ok(())
        })
    }
}

fn told(taken: &Taken) -> lw_taken {
    let rest = &taken.rest;
    let (unvisited, in_flight) = (rest.unvisited.len() as u32, rest.in_flight as u64);
    lw_taken { number: taken.number, unvisited, clock: taken.clock, in_flight, dropped: taken.dropped }
}

/// Marks the snapshot as being read by this process, so that none replaces it. NULL (see `lw_error`): there is none, or another
/// process reads it.
///
/// # Safety
/// `session` is a session that is not ended before the mark is taken away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_read_snapshot(session: *const lw_session) -> *mut lw_snapshot_reader {
    let read = || -> Outcome<_> {
        // SAFETY: the caller vouches that the session outlives what comes of it.
        let session = unsafe { of(session) }?;
        Ok(lw_snapshot_reader { reader: session.read_snapshot()? })
    };
    boxed(read())
}

/// Takes the mark away and frees it. If `done` is not 0, the snapshot was read and is not needed again; else it can be read
/// again.
///
/// # Safety
/// `reader` is null, or came from `lw_session_read_snapshot` and was not ended; its session was not ended either.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_snapshot_reader_end(reader: *mut lw_snapshot_reader, done: c_int) {
    if reader.is_null() {
        return;
    }
    // SAFETY: made by `Box::into_raw`, and given up by the caller.
    let reader = unsafe { Box::from_raw(reader) }.reader;
    if done == 0 {
        drop(reader);
    } else {
        reader.release();
    }
}
