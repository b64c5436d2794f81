//! Skips events without decoding their fields, if they have one size or one string.

use super::decode::Window;
use super::op::{Code, Op};

/// An event record class whose events can be skipped this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Simple {
    /// Position of the event record class in the stream class.
    pub(super) class: u32,
    pub(super) stride: Stride,
}

/// Sizes for skipping the contexts and the payload of an event. Sizes are in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stride {
    /// Size of everything, or of the part before the string.
    before: u64,
    /// Size of the part after the string, if there is a string.
    string: Option<u64>,
}

impl Stride {
    /// Returns the sizes if the code of contexts and payload, with runs merged, has such a form.
    pub(super) fn new(code: &Code) -> Option<Self> {
        let text = |op: &Op| matches!(op, Op::Text { unit: 1, .. });
        let (before, string) = match code.ops.as_slice() {
            [] => (0, None),
            [Op::Advance(all)] => (*all, None),
            [nul] if text(nul) => (0, Some(0)),
            [nul, Op::Advance(behind)] if text(nul) => (0, Some(*behind)),
            [Op::Advance(before), nul] if text(nul) => (*before, Some(0)),
            [Op::Advance(before), nul, Op::Advance(behind)] if text(nul) => {
                (*before, Some(*behind))
            }
            _ => return None,
        };
        Some(Self { before, string })
    }

    /// Returns the least size of contexts and payload, in bits.
    pub(super) fn least(self) -> u64 {
        self.before.saturating_add(self.string.map_or(0, |behind| behind.saturating_add(8)))
    }

    /// Returns the end of contexts and payload that begin at `body`; none if they do not end in the
    /// window.
    #[inline(always)]
    pub(super) fn over(self, window: &Window<'_>, body: u64) -> Option<u64> {
        let mut at = body.checked_add(self.before)?;
        if let Some(behind) = self.string {
            if !at.is_multiple_of(8) {
                return None;
            }
            let rest = window.bytes.get((at / 8) as usize..(window.end / 8) as usize)?;
            let nul = lastwords_trace::nul::find(rest)? as u64;
            at = at.checked_add(nul.checked_add(1)?.checked_mul(8)?)?.checked_add(behind)?;
        }
        (at <= window.end).then_some(at)
    }
}
