//! Consuming reads: how far a half can be read so that nothing before that place is still to come, and that it was read.

use lastwords_abi::session::InFlight;
use lastwords_abi::sync::AtomicU64;
use lastwords_abi::sync::Ordering::{Acquire, Relaxed, Release};

use crate::channel::SessionParts;
use crate::hooks::fault;
use crate::os;
use crate::stream::Stream;
use crate::threads;

impl Stream {
    /// The position in `half` before which every event is committed, or never will be, as its recorder is dead. What is recorded
    /// from now on lies behind it: a reader that stops here, and begins here the next time, misses nothing and sees nothing twice.
    #[must_use]
    pub fn settled(&self, half: usize, parts: SessionParts) -> u64 {
        let produced = self.position(half);
        if !self.is_lockless() || fault!(Unsettled) {
            return produced;
        }
        // Who reserved before `produced` had announced that; who has withdrawn the announcement since has committed. Where the ring
        // has come round, whoever is still writing was passed over.
        let kept = self.next_sub_buffer(produced.saturating_sub(1)).saturating_sub(self.half_size());
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

    /// Makes readers begin at `end`: what lies before it was read, and a ring that discards has that room again. Nobody swaps
    /// meanwhile.
    pub fn consume(&self, half: usize, end: u64) {
        // Before `first`: a reader that begins there knows why.
        raise(&self.half(half).consumed, end);
        raise(&self.half(half).first, end);
    }

    /// Makes readers pass over all that is in `half` now; a ring that discards has that room again. Nobody swaps meanwhile.
    pub fn clear(&self, half: usize) {
        raise(&self.half(half).first, self.position(half));
    }
}

/// `fetch_max`, which ThreadSanitizer does not see.
fn raise(position: &AtomicU64, to: u64) {
    // An error says that it is as high already.
    let _ = position.fetch_update(Release, Relaxed, |now| (now < to).then_some(to));
}
