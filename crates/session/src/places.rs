//! Tells where the regions of sessions lie in an image, for a program that copies them and does not
//! read their events.

use super::find;
use super::region::Region;
use lastwords_bytes::{Budget, ByteOrder, Error};
use lastwords_image::{Image, Watch};

/// Where a region lies in an image, and what its header says of it. The header's checksum was
/// right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionPlace {
    /// Address of the region in the image.
    pub address: u64,
    /// Length of the region in bytes, from its header.
    pub len: u64,
    /// One of `KIND_` of `lastwords_abi::region`.
    pub kind: u32,
    /// Index of a stream; else 0.
    pub index: u32,
    /// UUID of the session.
    pub session: [u8; 16],
    /// The bytes behind the header that its checksum covers.
    pub fixed: Vec<u8>,
}

/// Finds the regions of all sessions in an image, in the order of their addresses. Regions whose
/// header is damaged, or which a machine of the other byte order wrote, are left out.
///
/// # Errors
/// The budget is spent.
pub fn region_places(
    image: &dyn Image,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<RegionPlace>, Error> {
    let whole = |region: &Region| region.mended.is_none() && region.order == ByteOrder::NATIVE;
    let found = find::regions(image, budget, watch)?.regions.into_iter().filter(whole);
    let place = |region: Region| {
        let Region { address, size, kind, index, session, fixed, .. } = region;
        RegionPlace { address, len: size, kind, index, session, fixed }
    };
    Ok(found.map(place).collect())
}
