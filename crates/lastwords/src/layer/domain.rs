//! Numbers that distinguish the recorders of `tracing` in a process. Each registry gives ids to its
//! own spans, so that spans of two registries have the same ids.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Number of recorders that were made.
static RECORDERS: AtomicU32 = AtomicU32::new(0);

/// A recorder of `tracing`, to which the ids of spans belong. A clone is another recorder.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) number: u32,
    /// The difference between an id and the key of its span; 0 for the first recorder.
    mix: u64,
}

impl Domain {
    pub(super) fn new() -> Self {
        Self::numbered(RECORDERS.fetch_add(1, Relaxed))
    }

    /// Returns the recorder of this number.
    pub(super) fn numbered(number: u32) -> Self {
        Self { number, mix: mixed(number) }
    }

    /// Returns the key of a span, which is the same for no other span of this process. 0 is no
    /// span.
    #[inline]
    pub(super) fn key(&self, id: u64) -> u64 {
        if id == 0 { 0 } else { id ^ self.mix }
    }
}

impl Clone for Domain {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns 0 for 0, and for other numbers 64 bits that look random (the finalizer of SplitMix64).
fn mixed(number: u32) -> u64 {
    let mut mix = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mix = (mix ^ mix >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mix = (mix ^ mix >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mix ^ mix >> 31
}
