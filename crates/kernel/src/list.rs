//! The kernel's doubly linked lists.

use crate::Error;
use crate::memory::Memory;
use lastwords_bytes::Budget;

/// Iterates over the addresses of a list's entries, in order. The iteration ends at the head, at
/// the first error, or at an entry that was seen before. Loops are found with Brent's algorithm:
/// the entry kept for comparison is replaced at every power of two.
pub struct List<'k> {
    memory: &'k dyn Memory,
    budget: &'k Budget,
    head: u64,
    at: u64,
    /// Offset of the links in an entry, bytes.
    offset: u64,
    kept: u64,
    passed: u64,
    keep_at: u64,
    ended: bool,
}

impl<'k> List<'k> {
    pub(crate) fn new(memory: &'k dyn Memory, budget: &'k Budget, head: u64, offset: u64) -> Self {
        Self {
            memory,
            budget,
            head,
            at: head,
            offset,
            kept: head,
            passed: 0,
            keep_at: 1,
            ended: false,
        }
    }

    fn step(&mut self) -> Result<Option<u64>, Error> {
        self.budget.steps("list", 1)?;
        let next = self.memory.pointer(self.at).map_err(Error::hole("list"))?;
        if next == self.head {
            return Ok(None);
        }
        if next == 0 || next == self.kept {
            return Err(Error::Loop { head: self.head, at: next });
        }
        self.passed = self.passed.saturating_add(1);
        if self.passed == self.keep_at {
            self.kept = next;
            self.keep_at = self.keep_at.saturating_mul(2);
        }
        self.at = next;
        Ok(Some(next.wrapping_sub(self.offset)))
    }
}

impl Iterator for List<'_> {
    type Item = Result<u64, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step();
        self.ended = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}
