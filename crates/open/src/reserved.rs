//! A copy of a range of physical memory that the kernel keeps out of its own memory
//! (`memmap=SIZE$ADDRESS`).
//!
//! `/proc/kcore` does not have such a range. Root can read it in `/dev/mem`, also where the kernel
//! restricts that file to what is not its own memory, unless the kernel is locked down. Reading
//! consumes nothing.

use anyhow::Context;
use lastwords_bytes::Budget;
use lastwords_image::{Hole, HoleCause, Image, Range};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Physical memory.
const MEMORY: &str = "/dev/mem";

/// The copy, with addresses from 0 on.
pub(super) struct Reserved {
    bytes: Vec<u8>,
    ranges: [Range; 1],
}

impl Reserved {
    /// Copies a range.
    ///
    /// # Errors
    /// The range cannot be read; the budget is spent.
    pub(super) fn copy(address: u64, len: u64, budget: &Budget) -> anyhow::Result<Self> {
        budget.bytes(MEMORY, len)?;
        let mut bytes = vec![0; usize::try_from(len)?];
        let file = File::open(MEMORY).context(MEMORY)?;
        file.read_exact_at(&mut bytes, address)
            .with_context(|| format!("{MEMORY}: address {address:#x}"))?;
        Ok(Self::new(bytes))
    }

    fn new(bytes: Vec<u8>) -> Self {
        let range = Range {
            address: 0,
            len: bytes.len() as u64,
            name: MEMORY.into(),
            offset: 0,
            hole: None,
        };
        Self { bytes, ranges: [range] }
    }
}

impl Image for Reserved {
    fn name(&self) -> &str {
        MEMORY
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let rest = usize::try_from(address)
            .ok()
            .and_then(|begin| self.bytes.get(begin..))
            .unwrap_or_default();
        let (there, gone) = buf.split_at_mut(rest.len().min(buf.len()));
        there.copy_from_slice(rest.get(..there.len()).unwrap_or_default());
        let end = address.saturating_add(there.len() as u64);
        if gone.is_empty() {
            Ok(())
        } else {
            Err(Hole { address: end, cause: HoleCause::Unmapped })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_beyond_the_end_has_a_hole_there() {
        let copy = Reserved::new(vec![1, 2, 3, 4]);
        let mut buf = [0; 3];
        assert_eq!(copy.read(1, &mut buf), Ok(()));
        assert_eq!(buf, [2, 3, 4]);
        assert_eq!(copy.read(2, &mut buf), Err(Hole { address: 4, cause: HoleCause::Unmapped }));
        assert_eq!(copy.read(9, &mut buf), Err(Hole { address: 9, cause: HoleCause::Unmapped }));
    }
}
