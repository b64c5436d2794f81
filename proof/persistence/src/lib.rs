//! Bytes in memory as an image, which the product's readers take: for this rig, and for others with
//! regions in memory.
#![forbid(unsafe_code)]

use std::sync::Arc;

use lastwords_image::{Hole, HoleCause, Image, Range};

struct Bytes {
    bytes: Vec<u8>,
    ranges: [Range; 1],
}

/// Bytes as an image from address 0 on.
pub fn image(bytes: Vec<u8>) -> Arc<dyn Image> {
    let range =
        Range { address: 0, len: bytes.len() as u64, name: "memory".into(), offset: 0, hole: None };
    Arc::new(Bytes { bytes, ranges: [range] })
}

impl Image for Bytes {
    fn name(&self) -> &str {
        "memory"
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn is_virtual(&self) -> bool {
        false
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let rest =
            usize::try_from(address).ok().and_then(|at| self.bytes.get(at..)).unwrap_or_default();
        let have = rest.len().min(buf.len());
        buf[..have].copy_from_slice(&rest[..have]);
        let hole =
            Hole { address: address.saturating_add(have as u64), cause: HoleCause::Truncated };
        if have == buf.len() { Ok(()) } else { Err(hole) }
    }
}
