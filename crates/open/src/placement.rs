//! Tells whether the addresses in a region's events are those of the boot whose address the region
//! saves.
//!
//! Linux 6.12 to 6.14 saves the address of its code when the region is made, and leaves it when the
//! next boot goes on recording there. Events of that boot have addresses of their own: with address
//! randomisation, most lie outside of the kernel's image as the saved address places it.

use crate::describe::{self, Described};
use lastwords_ftrace::page;
use lastwords_ftrace::persistent::{Form, Region};
use std::collections::BTreeSet;
use std::ops::Range;

/// Where the image of an x86-64 kernel can be. Modules follow, or begin in its middle without
/// address randomisation.
const IMAGES: Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_c000_0000;
const MIDDLE: u64 = 0xffff_ffff_a000_0000;
/// As many different numbers outside of the image can be there by chance, because negative numbers
/// look like addresses.
const BY_CHANCE: usize = 3;
/// Most different addresses that are kept.
const MOST: usize = 1 << 16;

/// The boot by whose addresses events are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// The boot whose address the region saves.
    Saved,
    /// The boot that the description is of.
    Described,
    /// None: the number of addresses that are outside of the image of the boot whose address the
    /// region saves.
    Unknown(usize),
}

/// Finds the boot by whose addresses the events of a region can be named.
pub(super) fn find(described: &Described, region: &Region) -> Placement {
    let marks = &described.landmarks;
    let is_known = region.layout.form() == Form::PerCpu && region.layout.word_size == 8;
    let ([Some(code), Some(begin)], Some(end), Some(saved)) =
        (marks.text, marks.end, region.boot.text_address)
    else {
        return Placement::Saved;
    };
    if !is_known || !described.tracing.uname.contains("x86_64") {
        return Placement::Saved;
    }
    let are_modules_low =
        described.modules.iter().any(|(_, address)| (MIDDLE..IMAGES.end).contains(address));
    let area = IMAGES.start..if are_modules_low { MIDDLE } else { IMAGES.end };
    let addresses = addresses(region, &area);
    let outside = |delta: u64| {
        let image = begin.wrapping_add(delta)..end.wrapping_add(delta);
        addresses.iter().filter(|address| !image.contains(address)).count()
    };
    let fits = |outside: usize| outside <= BY_CHANCE.min(addresses.len().saturating_sub(outside));
    match outside(saved.wrapping_sub(code)) {
        few if fits(few) => Placement::Saved,
        _ if fits(outside(0)) => Placement::Described,
        count => Placement::Unknown(count),
    }
}

/// The words of a region's events that are in an area.
fn addresses(region: &Region, area: &Range<u64>) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    describe::each_payload(region, usize::MAX, |payload| {
        let values =
            payload.chunks_exact(8).map(|word| page::native(word, 0, 8, region.layout.byte_order));
        found.extend(
            values.filter(|value| area.contains(value)).take(MOST.saturating_sub(found.len())),
        );
    });
    found
}
