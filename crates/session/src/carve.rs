//! Finds sub-buffers that no region leads to: because the region's header is overwritten or
//! missing, or because its pages are scattered in raw memory.
//!
//! A sub-buffer begins with its header, at a multiple of its size or of a page. The checksum of a
//! closed sub-buffer covers header and events, so the checksum also proves which pages belong
//! together. An open sub-buffer has no checksum: its events are accepted as far as they decode and
//! their clock steps are plausible.

use super::find::heads;
use super::loose::{Loose, load};
use super::packet::{Header, Identity, Judged, judge};
use super::region::Region;
use lastwords_abi::packet::{CTF_MAGIC, HEADER_LEN, TRAILER_LEN};
use lastwords_bytes::{Budget, ByteOrder, Error};
use lastwords_image::process_pages::{PAGE, PageTables, Stitched, Whose, pieces};
use lastwords_image::{Image, Range, Watch};
use lastwords_trace::evidence::Verdict;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Sub-buffers begin at a multiple of this, which is also the smallest size of a sub-buffer.
const STEP: usize = 128;
/// Limits of a plausible header: sub-buffer size in bytes; numbers of channel, CPU and stream; and
/// most sub-buffers that are kept.
const SIZE_MAX: u64 = 1 << 28;
const CHANNELS_MAX: u32 = 32;
const _: () = assert!(CHANNELS_MAX as usize == lastwords_abi::session::MAX_CHANNELS);
const CPUS_MAX: u32 = 1 << 16;
const STREAMS_MAX: u64 = 1 << 20;
const FOUND_MAX: usize = 1 << 22;
/// Most pages of scattered regions that are reassembled.
const PAGES_MAX: u64 = 1 << 26;

/// Data found in an image without the help of regions.
pub(crate) struct Carved {
    /// An image in which regions are contiguous: scattered pages are reassembled.
    pub(crate) image: Arc<dyn Image>,
    /// The sub-buffers found, by session.
    pub(crate) loose: BTreeMap<[u8; 16], Vec<Loose>>,
}

/// Finds sub-buffers, and reassembles regions whose pages are scattered.
pub(crate) fn find(
    image: &Arc<dyn Image>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Carved, Error> {
    let headers = headers(&**image, budget, watch)?;
    let heads = if image.is_virtual() { Vec::new() } else { heads(&**image, budget, watch)? };
    let large =
        headers.iter().filter(|(_, header, _)| header.packet_bits / 8 > PAGE).map(|(at, ..)| *at);
    let mut wanted: HashSet<u64> = large.chain(heads.iter().map(|head| head.address)).collect();
    // Files of regions are contiguous: words in them that look like entries of page tables are
    // none.
    if !heads.is_empty() && heads.iter().all(|head| is_file(&**image, head)) {
        wanted.clear();
    }
    let tables = PageTables::find(&**image, &wanted, Whose::Process, budget, watch)?;
    let mut found = Carved { image: Arc::clone(image), loose: BTreeMap::new() };
    for (at, header, order) in headers {
        if let Some(loose) = prove(&**image, &tables, at, header, order, budget)? {
            found.loose.entry(header.uuid).or_default().push(loose);
        }
    }
    if !heads.is_empty() {
        found.image = Arc::new(stitched(image, &tables, &heads));
    }
    Ok(found)
}

/// True if a range of the image begins with the region and ends with it or before.
fn is_file(image: &dyn Image, head: &Region) -> bool {
    let begins = |range: &Range| {
        range.address == head.address && range.offset == 0 && range.len <= head.size
    };
    image.ranges().iter().any(begins)
}

/// Maps each region as one run of pages: in the order of a process's page tables, or contiguous if
/// no table has them.
fn stitched(image: &Arc<dyn Image>, tables: &PageTables<'_>, heads: &[Region]) -> Stitched {
    let mut left = PAGES_MAX;
    let mut mappings = Vec::new();
    for head in heads {
        let count = (head.size / PAGE).min(left);
        let run = tables.runs(head.address, count).into_iter().next();
        let held = (head.held / PAGE).min(count);
        let here = || {
            (0..held).map(|n| Some(head.address.saturating_add(n.saturating_mul(PAGE)))).collect()
        };
        let pages = run.unwrap_or_else(here);
        left = left.saturating_sub(pages.len() as u64);
        mappings.push(pages);
    }
    Stitched::new(image, mappings)
}

/// Finds the plausible headers of sub-buffers, with their addresses and byte orders.
fn headers(
    image: &dyn Image,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<(u64, Header, ByteOrder)>, Error> {
    let mut found = Vec::new();
    pieces(image, "looking for sub-buffers", budget, watch, |at, bytes| {
        for (n, place) in bytes.chunks(STEP).enumerate() {
            let order = match place.first_chunk().map(|magic| u32::from_le_bytes(*magic)) {
                Some(CTF_MAGIC) => ByteOrder::Little,
                Some(magic) if magic.swap_bytes() == CTF_MAGIC => ByteOrder::Big,
                _ => continue,
            };
            let address = at.saturating_add((n as u64).saturating_mul(STEP as u64));
            let header =
                Header::parse(place, order).ok().filter(|header| is_plausible(header, address));
            if let Some(header) = header.filter(|_| found.len() < FOUND_MAX) {
                budget.steps("sub-buffers", 1)?;
                found.push((address, header, order));
            }
        }
        Ok(())
    })?;
    Ok(found)
}

fn is_plausible(header: &Header, address: u64) -> bool {
    let size = header.packet_bits / 8;
    let sized = header.packet_bits.is_multiple_of(8)
        && size.is_power_of_two()
        && (STEP as u64..=SIZE_MAX).contains(&size);
    let placed = address & size.min(PAGE).wrapping_sub(1) == 0;
    let ids = header.stream_id < CHANNELS_MAX && header.instance < STREAMS_MAX;
    let cpu = header.cpu < CPUS_MAX || header.cpu == lastwords_abi::stream::ANY_CPU;
    sized && placed && ids && cpu && header.uuid != [0; 16] && header.number < 1 << 48
}

/// Returns the sub-buffer whose header is at `at`, if its checksum is right or if it is open.
fn prove(
    image: &dyn Image,
    tables: &PageTables<'_>,
    at: u64,
    header: Header,
    order: ByteOrder,
    budget: &Budget,
) -> Result<Option<Loose>, Error> {
    let identity = Identity {
        uuid: header.uuid,
        channel: header.stream_id,
        stream: u32::try_from(header.instance).unwrap_or(u32::MAX),
        cpu: header.cpu,
        size: header.packet_bits / 8,
        order,
    };
    let size = usize::try_from(identity.size).unwrap_or(0);
    let mut loose = Loose {
        identity,
        header,
        verdict: Verdict::Open,
        content: HEADER_LEN,
        end: header.begin,
        pages: Vec::new(),
    };
    let is_closed = header.content_bits != 0;
    let mut bytes = Vec::new();
    for pages in arrangements(tables, at, identity.size) {
        load(image, &pages, size, &mut bytes);
        budget.bytes("sub-buffers", bytes.len() as u64)?;
        if !is_closed {
            // An open sub-buffer has no checksum, so the first arrangement is taken: the page
            // tables' if there is one.
            loose.content = bytes.len().min(size.saturating_sub(TRAILER_LEN));
            loose.pages = pages;
            return Ok(Some(loose).filter(|loose| loose.content > HEADER_LEN));
        }
        if bytes.len() == size
            && let Judged::Whole(header, content) = judge(&identity, header.number, &mut bytes)
        {
            return Ok(Some(Loose {
                verdict: Verdict::Committed,
                content,
                end: header.end,
                pages,
                ..loose
            }));
        }
    }
    Ok(None)
}

/// Possible lists of the pages of `size` bytes from `at` on: first those from page tables, then the
/// contiguous one.
fn arrangements(tables: &PageTables<'_>, at: u64, size: u64) -> Vec<Vec<u64>> {
    let count = size.div_ceil(PAGE);
    let runs = if count > 1 { tables.runs(at, count) } else { Vec::new() };
    let known =
        |run: Vec<Option<u64>>| run.into_iter().map_while(|page| page).collect::<Vec<u64>>();
    let mut all: Vec<Vec<u64>> = runs.into_iter().map(known).collect();
    all.push((0..count).map(|n| at.saturating_add(n.saturating_mul(PAGE))).collect());
    all
}
