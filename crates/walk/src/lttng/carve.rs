//! The kernel's sub-buffers in memory whose structures cannot be followed: no symbols, an unknown release, a list that is cut.
//!
//! A sub-buffer begins with a packet header at the beginning of a page. Its pages are not contiguous; the tracer has a table of
//! them, rows of a page's address and its frame number. In all rows the difference of the two is the same, the beginning of
//! the kernel's map of all memory: no other data look like that, so a table proves which pages belong together. A packet that
//! ends in its first page needs no table.

use super::header::{Header, MAGIC, Shape};
use super::metadata::Metadata;
use super::plan::{Mode, Ring};
use super::session::{Domain, Loss, Packet, Session, SetData, Stream};
use lastwords_bytes::{Budget, ByteOrder, Error};
use lastwords_image::{Hole, HoleCause, Image, Watch};
use lastwords_trace::evidence::{Evidence, SubBuffer, Verdict};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Bytes of a page: of machines with larger ones, packets of one page are found.
const PAGE: u64 = 4096;
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Most pages and bits of a sub-buffer, packets, CPUs and channels that are believed.
const PAGES_MAX: u64 = 1 << 18;
const BITS_MAX: u64 = PAGES_MAX << 15;
const PACKETS_MAX: usize = 1 << 22;
const CPUS_MAX: u32 = 1 << 13;
const CHANNELS_MAX: u32 = 1 << 12;
/// Kernel addresses are in the upper half.
const KERNEL: u64 = 1 << 63;

/// A packet's header and its pages.
type Candidate = (Header, Vec<u64>);

/// Sessions whose packets are in `image`, which is physical memory at its addresses.
///
/// # Errors
/// The Budget is spent.
pub fn carve(image: &Arc<dyn Image>, budget: &Budget, watch: Watch<'_>) -> Result<Vec<Session>, Error> {
    let shape = Shape { order: ByteOrder::Little, word: 8 };
    let firsts = first_pages(image, shape, budget, watch)?;
    if firsts.is_empty() {
        return Ok(Vec::new());
    }
    let tables = tables(image, &firsts, budget, watch)?;
    let mut traces: BTreeMap<[u8; 16], Vec<Candidate>> = BTreeMap::new();
    let mut used = HashSet::new();
    for (page, pages) in tables {
        if let Some(header) = firsts.get(&page)
            && used.insert(page)
        {
            traces.entry(header.uuid).or_default().push((*header, pages));
        }
    }
    for (page, header) in firsts.iter().filter(|(page, _)| !used.contains(page)) {
        traces.entry(header.uuid).or_default().push((*header, vec![*page]));
    }
    Ok(traces.into_iter().map(|(uuid, packets)| session(image, uuid, shape, packets)).collect())
}

/// Calls `each` with the address and bytes of pieces of all that the image has.
fn pieces(
    image: &Arc<dyn Image>,
    what: &'static str,
    watch: Watch<'_>,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let total = image.ranges().iter().map(|range| range.len).fold(0, u64::saturating_add);
    let (mut done, mut bytes) = (0u64, Vec::new());
    for range in image.ranges().iter().filter(|range| range.hole.is_none()) {
        let mut at = range.address;
        while at < range.end() {
            // By pages from the first on, so that what lies before a hole within a piece is not lost.
            let len = usize::try_from(range.end().saturating_sub(at)).unwrap_or(usize::MAX).min(PIECE);
            bytes.clear();
            bytes.resize(len, 0);
            let got = match image.read(at, &mut bytes) {
                Ok(()) => len,
                Err(hole) => usize::try_from(hole.address.saturating_sub(at)).unwrap_or(0).min(len),
            };
            each(at, bytes.get(..got).unwrap_or_default())?;
            // A hole costs its page.
            let step = if got < len { (got as u64 & !PAGE.saturating_sub(1)).saturating_add(PAGE) } else { len as u64 };
            at = at.saturating_add(step);
            done = done.saturating_add(step);
            watch(lastwords_image::Progress { what, done: done.min(total), total: Some(total) });
        }
    }
    Ok(())
}

/// Pages that begin with a packet's header, by address.
fn first_pages(
    image: &Arc<dyn Image>,
    shape: Shape,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<HashMap<u64, Header>, Error> {
    let mut found = HashMap::new();
    pieces(image, "looking for packets", watch, |at, bytes| {
        for (n, page) in bytes.chunks(PAGE as usize).enumerate() {
            if page.starts_with(&MAGIC.to_le_bytes())
                && let Ok(header) = Header::parse(page, shape)
                && is_plausible(&header, shape)
                && found.len() < PACKETS_MAX
            {
                budget.steps("packets", 1)?;
                found.insert(at.saturating_add(PAGE.saturating_mul(n as u64)), header);
            }
        }
        Ok(())
    })?;
    Ok(found)
}

fn is_plausible(header: &Header, shape: Shape) -> bool {
    let sizes = header.is_open() || header.content(shape).is_some() && header.packet_bits <= BITS_MAX;
    let times = header.end == 0 || header.begin <= header.end;
    let ids = header.stream_id < CHANNELS_MAX && header.cpu < CPUS_MAX;
    sizes && times && ids && header.uuid != [0; 16]
}

/// Tables of pages: the first page of each, and all of them.
fn tables(
    image: &Arc<dyn Image>,
    firsts: &HashMap<u64, Header>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<(u64, Vec<u64>)>, Error> {
    // Rows whose page begins a packet: place of the row, that page, beginning of the kernel's map.
    let mut rows: Vec<(u64, u64, u64)> = Vec::new();
    pieces(image, "looking for tables of pages", watch, |at, bytes| {
        let words = bytes.chunks_exact(8).map(|word| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
        let mut before = 0u64;
        for (n, word) in words.enumerate() {
            let (address, frame) = (std::mem::replace(&mut before, word), word);
            if address & (KERNEL | PAGE.saturating_sub(1)) != KERNEL || frame == 0 || frame >= 1 << 40 {
                continue;
            }
            let page = frame.wrapping_shl(12);
            if firsts.contains_key(&page) && rows.len() < PACKETS_MAX {
                budget.steps("tables", 1)?;
                let row = at.saturating_add((n as u64).saturating_mul(8)).saturating_sub(8);
                rows.push((row, page, address.wrapping_sub(page)));
            }
        }
        Ok(())
    })?;
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    rows.iter().for_each(|row| {
        let count = votes.entry(row.2).or_default();
        *count = count.saturating_add(1);
    });
    let Some((map, _)) = votes.into_iter().max_by_key(|(_, count)| *count) else { return Ok(Vec::new()) };
    let mut tables = Vec::new();
    for (row, page, _) in rows.into_iter().filter(|row| row.2 == map) {
        tables.push((page, pages(image, row, map, budget)?));
    }
    // Of several tables of a page the longest: others are what was left of earlier ones.
    tables.sort_by_key(|(page, pages)| (*page, std::cmp::Reverse(pages.len())));
    Ok(tables)
}

/// The pages of the table whose first row is at `row`.
fn pages(image: &Arc<dyn Image>, row: u64, map: u64, budget: &Budget) -> Result<Vec<u64>, Error> {
    let mut pages = Vec::new();
    let mut at = row;
    while (pages.len() as u64) < PAGES_MAX {
        budget.steps("tables", 1)?;
        let mut raw = [0u8; 16];
        if image.read(at, &mut raw).is_err() {
            break;
        }
        let (address, frame) = raw.split_at(8);
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let page = word(frame).wrapping_shl(12);
        if word(frame) == 0 || word(frame) >= 1 << 40 || word(address).wrapping_sub(page) != map {
            break;
        }
        pages.push(page);
        at = at.saturating_add(16);
    }
    // A sub-buffer has a power of two of them.
    let len = pages.len().checked_ilog2().map_or(0, |order| 1usize.wrapping_shl(order));
    pages.truncate(len);
    Ok(pages)
}

/// Makes a session of what was found of a trace.
fn session(image: &Arc<dyn Image>, uuid: [u8; 16], shape: Shape, found: Vec<Candidate>) -> Session {
    let name = uuid.iter().take(4).fold(super::NAMELESS.to_owned(), |name, byte| format!("{name}{byte:02x}"));
    let mut session = Session {
        name: name.replace(super::NAMELESS, "carved-"),
        domain: Domain::Kernel,
        folder: String::new(),
        created: String::new(),
        is_active: None,
        uuid,
        shape,
        page_size: PAGE,
        metadata: Metadata::default(),
        streams: Vec::new(),
        evidence: Evidence::default(),
    };
    let mut streams: BTreeMap<(u32, u32), Vec<Candidate>> = BTreeMap::new();
    for (header, pages) in found {
        streams.entry((header.stream_id, header.cpu)).or_default().push((header, pages));
    }
    for ((channel, cpu), packets) in streams {
        let index = session.streams.len();
        let stream = stream(image, channel, cpu, packets, shape, index, &mut session.evidence);
        session.streams.push(stream);
    }
    session.evidence.notes.push(
        "carved: no structure of the tracer says which packets count; those of sessions that are gone may be among them".to_owned(),
    );
    session
}

fn stream(
    image: &Arc<dyn Image>,
    channel: u32,
    cpu: u32,
    mut found: Vec<Candidate>,
    shape: Shape,
    index: usize,
    evidence: &mut Evidence,
) -> Stream {
    // Where two have one number, the one with more pages is proven better.
    found.sort_by_key(|(header, pages)| (header.sequence, std::cmp::Reverse(pages.len())));
    let mut sets = Sets { image: Arc::clone(image), sets: Vec::new() };
    let mut packets: Vec<Packet> = Vec::new();
    for (header, pages) in found {
        let room = (pages.len() as u64).saturating_mul(PAGE);
        let (len, content) = (header.packet_bits / 8, header.content(shape).unwrap_or(0));
        let before = packets.last().map(|packet| packet.header);
        if before.is_some_and(|before| before.sequence == header.sequence) {
            // A copy, in a file's pages or in memory that was given back: what was proven better stands already.
            continue;
        }
        let why = match before {
            _ if header.is_open() => "it was being written; without its counters its end is not known",
            _ if len > room => "its pages are not known: no table of them was found",
            Some(before) if before.end > header.begin || before.discarded > header.discarded => {
                "its time does not follow the packet before"
            }
            _ => "",
        };
        let verdict = if why.is_empty() { Verdict::Committed } else { Verdict::Invalid };
        let proof = if pages.len() > 1 { "pages by a table of the tracer" } else { "whole in one page" };
        let set = sets.sets.len() as u64;
        sets.sets.push(pages);
        let mut piece = vec![0; PAGE as usize];
        let is_there = (0..len.div_ceil(PAGE)).all(|n| sets.read(set, n.saturating_mul(PAGE), &mut piece).is_ok());
        let (verdict, why) = match verdict {
            Verdict::Committed if !is_there => (Verdict::Missing, "a page of it is missing"),
            Verdict::Committed => (verdict, ""),
            verdict => (verdict, why),
        };
        let why = if why.is_empty() { String::new() } else { format!("{why} ({proof})") };
        evidence.sub_buffers.push(SubBuffer { stream: index, sequence: header.sequence, verdict, content, why });
        if verdict == Verdict::Committed {
            packets.push(Packet { header, verdict, content, len, set, is_as_delivered: true });
        }
    }
    let ring = Ring {
        sub_buffer_size: PAGE.saturating_mul(sets.sets.iter().map(Vec::len).max().unwrap_or(0) as u64),
        mode: Mode::Overwrite,
        word: shape.word,
        produced: 0,
        consumed: 0,
        counter_mask: u64::MAX,
        slots: Vec::new(),
        reader: None,
        held: None,
    };
    Stream {
        channel,
        channel_name: String::new(),
        cpu: Some(cpu),
        ring,
        loss: Loss::default(),
        last_time: None,
        packets,
        data: Arc::new(sets),
    }
}

/// Pages of packets, by number of packet.
struct Sets {
    image: Arc<dyn Image>,
    sets: Vec<Vec<u64>>,
}

impl SetData for Sets {
    fn read(&self, set: u64, at: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let nowhere = Hole { address: at, cause: HoleCause::Unmapped };
        let pages = usize::try_from(set).ok().and_then(|set| self.sets.get(set)).ok_or(nowhere)?;
        let mut done = 0usize;
        while done < buf.len() {
            let at = at.saturating_add(done as u64);
            let page = usize::try_from(at / PAGE).ok().and_then(|page| pages.get(page)).ok_or(nowhere)?;
            let inside = at % PAGE;
            let len = usize::try_from(PAGE.saturating_sub(inside)).unwrap_or(0).min(buf.len().saturating_sub(done));
            let part = buf.get_mut(done..done.saturating_add(len)).unwrap_or_default();
            self.image.read(page.saturating_add(inside), part)?;
            done = done.saturating_add(len);
        }
        Ok(())
    }

    fn data_size(&self, _: u64) -> Option<u64> {
        None
    }
}
