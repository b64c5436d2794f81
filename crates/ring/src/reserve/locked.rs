//! Signals blocked and a lock that names its owner, so that a dead owner does not hold it.
//!
//! What is published is published by one store, as in the restartable sequences: a dead owner leaves nothing but bytes
//! behind the produced position, and whoever takes the lock from it simply goes on.

use lastwords_abi::sync::Ordering::{Relaxed, Release};

use super::Reserve;
use super::exclusive::{self, At, Publish, Step};
use crate::channel::{Channel, Persist};
use crate::hooks::{fault, point};
use crate::memory::Memory;
use crate::record::{Lost, Pieces, Record};
use crate::stream::Stream;
use crate::{os, threads};

/// Records under the stream's lock.
#[derive(Debug, Clone, Copy)]
pub struct Locked;

impl Reserve for Locked {
    fn record<M: Memory>(channel: &Channel, stream: &Stream, record: &Record<'_>) -> Result<(), Lost> {
        let _signals = SignalsBlocked::new();
        let mine = threads::lock_word();
        if !os::lock(&stream.control.lock, mine, channel.foreign) {
            return Err(Lost::Lock);
        }
        point!(Locked);
        let done = run::<M>(channel, stream, record);
        os::unlock(&stream.control.lock, mine);
        done
    }
}

fn run<M: Memory>(channel: &Channel, stream: &Stream, record: &Record<'_>) -> Result<(), Lost> {
    let publish = Plain { persist: channel.persist };
    loop {
        match exclusive::step::<M, _>(channel, stream, &publish, record) {
            Step::Done => return Ok(()),
            Step::Progress => {}
            Step::Aborted => return Err(Lost::Lock),
            Step::Lost(cause) => return Err(cause),
        }
    }
}

/// Publishes with the lock held.
struct Plain {
    persist: Option<Persist>,
}

impl Publish for Plain {
    fn publish(&self, stream: &Stream, at: At, end: u64, pieces: &Pieces) -> bool {
        let control = stream.half(at.half as usize);
        if control.reserve.load(Relaxed) != at.position {
            return false;
        }
        control.attempt.store(end, Relaxed);
        if fault!(PublishFirst) {
            control.reserve.store(end, Release);
        }
        // SAFETY: the lock is held and the position stands, so that nobody else writes behind it; `exclusive` gives pieces
        // between position and end, or in the header of the open sub-buffer.
        unsafe { pieces.copy() };
        if let Some(persist) = self.persist {
            pieces.as_slice().iter().for_each(|p| (persist.flush)(p.dst, p.len));
            (persist.fence)();
        }
        point!(Step);
        control.reserve.store(end, Release);
        point!(Published);
        if let Some(persist) = self.persist {
            (persist.flush)(core::ptr::from_ref(control).cast(), 64);
            (persist.fence)();
        }
        true
    }
}

/// All signals of this thread are blocked while it lives.
struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    fn new() -> Self {
        // SAFETY: both sets are valid places for the calls to fill; an all-zero set is valid.
        unsafe {
            let mut all: libc::sigset_t = core::mem::zeroed();
            let mut before: libc::sigset_t = core::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, core::ptr::null_mut()) };
    }
}
