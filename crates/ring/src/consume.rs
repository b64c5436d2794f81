//! Consuming reads: finds the position up to which a half is settled, and marks it as read.

use lastwords_abi::session::InFlight;
use lastwords_abi::sync::AtomicU64;
use lastwords_abi::sync::Ordering::{Acquire, Relaxed, Release};

use crate::channel::SessionParts;
use crate::hooks::fault;
use crate::os;
use crate::stream::Stream;
use crate::threads;

impl Stream {
    /// Returns the position in `half` before which every event is committed, or never will be
    /// because its recorder is dead. Events that are recorded from now on are after this position.
    /// So a reader that stops here and begins here the next time misses no event and sees no event
    /// twice.
    #[must_use]
    pub fn settled(&self, half: usize, parts: SessionParts) -> u64 {
        let produced = self.position(half);
        if !self.is_lockless() || fault!(Unsettled) {
            return produced;
        }
        // A recorder announced its reservation before `produced` included it. If it has withdrawn
        // the announcement since, it has committed. Where the ring has come round, the places of
        // recorders that were still writing were skipped.
        let kept =
            self.next_sub_buffer(produced.saturating_sub(1)).saturating_sub(self.half_size());
        let target = self.target(half);
        let begin = |level: &InFlight| {
            let begin = (level.target.load(Acquire) == target).then(|| level.begin.load(Acquire));
            begin.filter(|begin| *begin < produced && level.end.load(Acquire) > kept)
        };
        let mut namespace = None;
        let mut settled = produced;
        for thread in parts.threads {
            let oldest = thread.levels.iter().filter_map(begin).min();
            if let Some(begin) = oldest.filter(|begin| *begin < settled)
                && threads::is_alive(thread, *namespace.get_or_insert_with(os::pid_namespace))
            {
                settled = begin;
            }
        }
        settled
    }

    /// Moves the begin for readers to `end`, because everything before it was read. A ring in
    /// discard mode can reuse that room. There must be no swap during the call.
    pub fn consume(&self, half: usize, end: u64) {
        // `consumed` is raised before `first`, so that a reader that begins at `first` knows why.
        raise(&self.half(half).consumed, end);
        raise(&self.half(half).first, end);
    }

    /// Moves the begin for readers to the produced position of `half`, so that they skip everything
    /// in it. A ring in discard mode can reuse that room. There must be no swap during the call.
    pub fn clear(&self, half: usize) {
        raise(&self.half(half).first, self.position(half));
    }
}

/// Does the work of `fetch_max`, which ThreadSanitizer does not see.
fn raise(position: &AtomicU64, to: u64) {
    // An error means that the position is already that high.
    let _ = position.fetch_update(Release, Relaxed, |now| (now < to).then_some(to));
}
