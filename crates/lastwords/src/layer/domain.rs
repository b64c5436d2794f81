//! Numbers that distinguish the recorders of `tracing` in a process. Each registry gives ids to its
//! own spans, so that spans of two registries have the same ids.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Number of recorders that were made.
static RECORDERS: AtomicU32 = AtomicU32::new(0);
/// A bit for each of the first recorders, set by the thread that takes it out of the program. It
/// stays set.
static GONE: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// A recorder of `tracing`, to which the ids of spans belong. A clone is another recorder.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) number: u32,
    /// The difference between an id and the key of its span; 0 for the first recorder.
    mix: u64,
    /// Set at its first span, by the thread that opens it. It orders nothing: who takes the recorder
    /// out of the program has it alone.
    has_spans: AtomicBool,
}

impl Domain {
    pub(super) fn new() -> Self {
        Self::numbered(RECORDERS.fetch_add(1, Relaxed))
    }

    /// Returns the recorder of this number.
    pub(super) fn numbered(number: u32) -> Self {
        Self { number, mix: mixed(number), has_spans: AtomicBool::new(false) }
    }

    /// Notes that this recorder opens a span.
    #[inline]
    pub(super) fn opens_span(&self) {
        if !self.has_spans.load(Relaxed) {
            self.has_spans.store(true, Relaxed);
        }
    }

    /// Notes that this recorder is taken out of the program. Returns true if it has opened spans.
    pub(super) fn leave(&self) -> bool {
        let bit = 1 << (self.number % 64);
        if let Some(bits) = GONE.get(self.number as usize / 64) {
            bits.fetch_or(bit, Relaxed);
        }
        self.has_spans.load(Relaxed)
    }

    /// Returns true if the recorder of this number was taken out of the program, if it was one of
    /// the first.
    pub(super) fn is_gone(number: u32) -> bool {
        let bits = GONE.get(number as usize / 64).map_or(0, |bits| bits.load(Relaxed));
        bits >> (number % 64) & 1 != 0
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
