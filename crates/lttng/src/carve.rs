//! Finds LTTng kernel packets in memory whose structures cannot be followed: without symbols, of an
//! unknown release, or behind a broken list.
//!
//! A sub-buffer begins with a packet header at the start of a page. Its pages are not contiguous.
//! The tracer has a table of them; each row is the address of a page and its frame number. In all
//! rows the difference of the two is the same: the start of the kernel's direct map of all memory.
//! No other data look like that, so a table proves which pages belong together. A packet that ends
//! in its first page needs no table.

use super::committed::{self, Open};
use super::header::{Header, MAGIC, Shape};
use super::plan::{Mode, Ring};
use super::session::{Domain, Doubt, Loss, Packet, Session, SetData, Stream};
use lastwords_bytes::{Budget, ByteOrder, Error};
use lastwords_image::process_pages::{PAGE, PAGE_LEN, PageTables, Whose, pieces, words};
use lastwords_image::{Hole, HoleCause, Image, Watch, front, read_parts};
use lastwords_trace::evidence::{Evidence, SubBuffer, Verdict};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Limits of plausible values: pages and bits of a sub-buffer, number of packets, CPUs.
const PAGES_MAX: u64 = 1 << 18;
const BITS_MAX: u64 = PAGES_MAX << 15;
const PACKETS_MAX: usize = 1 << 22;
const CPUS_MAX: u32 = 1 << 13;
const CHANNELS_MAX: u32 = 1 << 12;
/// Most pages of a sub-buffer whose size is unknown.
const OPEN_MAX: u64 = 1 << 10;
/// Only 64-bit tracers are supported.
const SHAPE: Shape = Shape { order: ByteOrder::Little, word: 8 };
/// Bit that is set in every kernel address.
const KERNEL: u64 = 1 << 63;

/// The source of a packet's list of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// A table of the kernel tracer.
    Table,
    /// The page tables of a process.
    PageTables,
    /// The packet fits into its first page.
    OnePage,
    /// No source: the physically adjacent pages are taken.
    Adjacent,
}

impl How {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Table => "pages by a table of the tracer",
            Self::PageTables => "pages by the page tables of a process",
            Self::OnePage => "whole in one page",
            Self::Adjacent => "its other pages are those behind the first, or lost",
        }
    }
}

/// The header of a packet and its pages.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) header: Header,
    pub(super) pages: Vec<u64>,
    pub(super) how: How,
    /// For an open packet: possible ends in bytes, from the commit counters that fit.
    pub(super) ends: Vec<u64>,
}

impl Candidate {
    /// The property of the packet that only its events can prove.
    pub(super) fn doubt(&self) -> Doubt {
        match self.how {
            _ if self.header.is_open() => Doubt::End,
            How::Adjacent => Doubt::Pages,
            _ => Doubt::None,
        }
    }
}

/// Returns the sessions whose packets are in `image`, an image of physical memory.
///
/// # Errors
/// The budget is spent.
pub fn carve(
    image: &Arc<dyn Image>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<Session>, Error> {
    let mut traces: BTreeMap<[u8; 16], Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates(image, budget, watch)? {
        traces.entry(candidate.header.uuid).or_default().push(candidate);
    }
    Ok(traces.into_iter().map(|(uuid, packets)| session(image, uuid, SHAPE, packets)).collect())
}

/// Finds all packets of an image and their pages.
pub(super) fn candidates(
    image: &Arc<dyn Image>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<Candidate>, Error> {
    let firsts = first_pages(image, SHAPE, budget, watch)?;
    let mut found = Vec::new();
    if firsts.is_empty() {
        return Ok(found);
    }
    let mut used = HashSet::new();
    for (page, pages) in tables(image, &firsts, budget, watch)? {
        if let Some(header) = firsts.get(&page)
            && used.insert(page)
        {
            found.push(Candidate { header: *header, pages, how: How::Table, ends: Vec::new() });
        }
    }
    let left: BTreeMap<u64, Header> =
        firsts.iter().filter(|(page, _)| !used.contains(page)).map(|(p, h)| (*p, *h)).collect();
    let large = |header: &Header| header.is_open() || header.packet_bits / 8 > PAGE;
    let wanted: HashSet<u64> =
        left.iter().filter(|(_, header)| large(header)).map(|(page, _)| *page).collect();
    let by_process = PageTables::find(&**image, &wanted, Whose::Process, budget, watch)?;
    for (page, header) in left {
        found.push(without_table(&firsts, &by_process, page, header));
    }
    find_ends(image, &mut found, budget, watch)?;
    Ok(found)
}

/// Sets `ends` of the packets that were being written, from their commit counters.
fn find_ends(
    image: &Arc<dyn Image>,
    found: &mut [Candidate],
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<(), Error> {
    let is_open = |found: &&mut Candidate| found.header.is_open() && found.how == How::Table;
    let mut open: Vec<&mut Candidate> = found.iter_mut().filter(is_open).collect();
    let sizes: Vec<Open> = open
        .iter()
        .map(|c| Open {
            sequence: c.header.sequence,
            size: PAGE.saturating_mul(c.pages.len() as u64),
        })
        .collect();
    for (open, ends) in open.iter_mut().zip(committed::ends(image, &sizes, budget, watch)?) {
        open.ends = ends;
        open.ends.retain(|end| *end >= SHAPE.len() as u64);
    }
    Ok(())
}

/// Builds the candidate of a packet that is in none of the tracer's tables.
fn without_table(
    firsts: &HashMap<u64, Header>,
    by_process: &PageTables<'_>,
    page: u64,
    header: Header,
) -> Candidate {
    let is_next = |next: &u64| *next != page && firsts.contains_key(next);
    let (bytes, ends) = (header.packet_bits / 8, Vec::new());
    let count = if header.is_open() { OPEN_MAX } else { bytes.div_ceil(PAGE) };
    let run = if count > 1 { by_process.runs(page, count).into_iter().next() } else { None };
    if let Some(run) = run {
        // The run ends where the next packet begins.
        let pages: Vec<u64> =
            run.into_iter().map_while(|page| page).take_while(|next| !is_next(next)).collect();
        if header.is_open() || pages.len() as u64 == count {
            return Candidate { header, pages, how: How::PageTables, ends };
        }
    }
    if count <= 1 || header.is_open() {
        return Candidate { header, pages: vec![page], how: How::OnePage, ends };
    }
    let behind = (0..count).map(|n| page.saturating_add(n.saturating_mul(PAGE)));
    Candidate {
        header,
        pages: behind.take_while(|next| !is_next(next)).collect(),
        how: How::Adjacent,
        ends,
    }
}

/// Finds the pages that begin with a packet header, by address.
fn first_pages(
    image: &Arc<dyn Image>,
    shape: Shape,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<HashMap<u64, Header>, Error> {
    let mut found = HashMap::new();
    pieces(&**image, "looking for packets", budget, watch, |at, bytes| {
        for (n, page) in bytes.chunks(PAGE_LEN).enumerate() {
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
    let sizes =
        header.is_open() || header.content(shape).is_some() && header.packet_bits <= BITS_MAX;
    let times = header.end == 0 || header.begin <= header.end;
    let ids = header.stream_id < CHANNELS_MAX && header.cpu < CPUS_MAX;
    sizes && times && ids && header.uuid != [0; 16]
}

/// Finds the tracer's tables of pages; returns for each its first page and all of its pages.
fn tables(
    image: &Arc<dyn Image>,
    firsts: &HashMap<u64, Header>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<(u64, Vec<u64>)>, Error> {
    // Rows whose page begins a packet: address of the row, that page, start of the kernel's direct
    // map.
    let mut rows: Vec<(u64, u64, u64)> = Vec::new();
    pieces(&**image, "looking for tables of pages", budget, watch, |at, bytes| {
        let mut before = 0u64;
        for (place, word) in words(at, bytes) {
            let (address, frame) = (std::mem::replace(&mut before, word), word);
            if address & (KERNEL | PAGE.saturating_sub(1)) != KERNEL
                || frame == 0
                || frame >= 1 << 40
            {
                continue;
            }
            let page = frame.wrapping_shl(12);
            if firsts.contains_key(&page) && rows.len() < PACKETS_MAX {
                budget.steps("tables", 1)?;
                rows.push((place.saturating_sub(8), page, address.wrapping_sub(page)));
            }
        }
        Ok(())
    })?;
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    rows.iter().for_each(|row| {
        let count = votes.entry(row.2).or_default();
        *count = count.saturating_add(1);
    });
    let Some((map, _)) = votes.into_iter().max_by_key(|(_, count)| *count) else {
        return Ok(Vec::new());
    };
    let mut tables = Vec::new();
    for (row, page, _) in rows.into_iter().filter(|row| row.2 == map) {
        tables.push((page, pages(image, row, map, budget)?));
    }
    // If several tables have the same first page, the longest comes first: shorter ones are remains
    // of old tables.
    tables.sort_by_key(|(page, pages)| (*page, std::cmp::Reverse(pages.len())));
    Ok(tables)
}

/// Reads the pages of the table whose first row is at `row`.
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
    // A sub-buffer has a power of two of pages.
    let len = pages.len().checked_ilog2().map_or(0, |order| 1usize.wrapping_shl(order));
    pages.truncate(len);
    Ok(pages)
}

/// Processes map pages of the kernel tracer too, but only the kernel tracer has tables of pages.
fn domain(found: &[Candidate]) -> Domain {
    let any = |how| found.iter().any(|found| found.how == how);
    if any(How::PageTables) && !any(How::Table) { Domain::User } else { Domain::Kernel }
}

/// Builds a session from the packets of a trace.
fn session(image: &Arc<dyn Image>, uuid: [u8; 16], shape: Shape, found: Vec<Candidate>) -> Session {
    let name = uuid
        .iter()
        .take(4)
        .fold(super::CARVED.to_owned(), |name, byte| format!("{name}{byte:02x}"));
    let mut session = Session { name, ..Session::new(domain(&found), uuid, shape, PAGE) };
    let mut streams: BTreeMap<(u32, u32), Vec<Candidate>> = BTreeMap::new();
    for candidate in found {
        streams
            .entry((candidate.header.stream_id, candidate.header.cpu))
            .or_default()
            .push(candidate);
    }
    for ((channel, cpu), packets) in streams {
        let index = session.streams.len();
        let stream = stream(image, channel, cpu, packets, shape, index, &mut session.evidence);
        session.streams.push(stream);
    }
    session.evidence.notes.push(
        "carved: no structure of the tracer says which packets count; those of sessions that are gone may be among them".to_owned(),
    );
    session.lose("between and behind packets: what was lost is not known".to_owned());
    session
}

pub(super) fn stream(
    image: &Arc<dyn Image>,
    channel: u32,
    cpu: u32,
    mut found: Vec<Candidate>,
    shape: Shape,
    index: usize,
    evidence: &mut Evidence,
) -> Stream {
    // Of packets with the same number, a closed one comes before an open one, then one with more
    // pages: they are better proven.
    found.sort_by_key(|c| {
        (
            c.header.sequence,
            c.header.is_open(),
            c.how == How::Adjacent,
            std::cmp::Reverse(c.pages.len()),
        )
    });
    let mut sets = Sets { image: Arc::clone(image), sets: Vec::new() };
    let mut packets: Vec<Packet> = Vec::new();
    for candidate in found {
        let Candidate { header, pages, how, .. } = &candidate;
        let before = packets.last().map(|packet| packet.header);
        if before.is_some_and(|before| before.sequence == header.sequence) {
            // A copy of the packet, in a file's page cache or in freed memory; the better proven
            // one was already taken.
            continue;
        }
        let is_behind = |before: Header| {
            before.end <= header.begin && (header.is_open() || before.discarded <= header.discarded)
        };
        let set = sets.sets.len() as u64;
        sets.sets.push(pages.clone());
        let mut content = 0;
        let (verdict, why) = match packet(&candidate, &sets, set, shape) {
            Ok(_) if !before.is_none_or(is_behind) => {
                (Verdict::Invalid, "its time does not follow the packet before")
            }
            Ok(packet) => {
                let is_open = packet.verdict == Verdict::Open;
                let why = if is_open {
                    "it was being written; its events are taken as far as they decode"
                } else {
                    ""
                };
                content = packet.content;
                let verdict = packet.verdict;
                packets.push(packet);
                (verdict, why)
            }
            Err(why) => (Verdict::Missing, why),
        };
        let why = if why.is_empty() { String::new() } else { format!("{why} ({})", how.words()) };
        evidence.sub_buffers.push(SubBuffer {
            stream: index,
            sequence: header.sequence,
            verdict,
            content,
            why,
        });
    }
    Stream {
        channel,
        channel_name: String::new(),
        cpu: Some(cpu),
        ring: ring(&sets, shape),
        loss: Loss::default(),
        last_time: None,
        packets,
        data: Arc::new(sets),
    }
}

/// Makes the ring of a stream of which only packets are known.
fn ring(sets: &Sets, shape: Shape) -> Ring {
    Ring {
        sub_buffer_size: PAGE
            .saturating_mul(sets.sets.iter().map(Vec::len).max().unwrap_or(0) as u64),
        mode: Mode::Overwrite,
        word: shape.word,
        produced: 0,
        consumed: 0,
        counter_mask: u64::MAX,
        slots: Vec::new(),
        reader: None,
        held: None,
    }
}

/// Builds the packet of a candidate whose pages are set number `set`; or returns the reason why it
/// cannot.
pub(super) fn packet(
    candidate: &Candidate,
    sets: &dyn SetData,
    set: u64,
    shape: Shape,
) -> Result<Packet, &'static str> {
    let Candidate { header, pages, ends, .. } = candidate;
    let room = (pages.len() as u64).saturating_mul(PAGE);
    let doubt = candidate.doubt();
    let len = if header.is_open() { room } else { header.packet_bits / 8 };
    let len = if doubt == Doubt::Pages { len.min(room) } else { len };
    if len > room {
        return Err("its pages are not known");
    }
    // If the pages are guessed or the end is unknown, the packet is cut at the first missing page.
    let mut piece = vec![0; PAGE_LEN];
    let there = (0..len.div_ceil(PAGE))
        .take_while(|n| sets.read(set, n.saturating_mul(PAGE), &mut piece).is_ok())
        .count();
    let there = (there as u64).saturating_mul(PAGE).min(len);
    if there < len && (doubt == Doubt::None || there == 0) {
        return Err("a page of it is missing");
    }
    let verdict = if header.is_open() { Verdict::Open } else { Verdict::Committed };
    if doubt == Doubt::None {
        let content = header.content(shape).unwrap_or(0);
        let header = *header;
        return Ok(Packet {
            header,
            verdict,
            content,
            len,
            set,
            is_as_delivered: true,
            doubt,
            ends: Vec::new(),
        });
    }
    let content = header.content(shape).unwrap_or(there).min(there);
    let whole = Header {
        content_bits: content.saturating_mul(8),
        packet_bits: there.saturating_mul(8),
        ..*header
    };
    let is_as_delivered = whole == *header;
    let end = header.end.max(header.begin);
    let (header, ends) = (Header { end, ..whole }, ends.clone());
    Ok(Packet { header, verdict, content, len: there, set, is_as_delivered, doubt, ends })
}

/// The pages of packets, by set number.
pub(super) struct Sets {
    pub(super) image: Arc<dyn Image>,
    pub(super) sets: Vec<Vec<u64>>,
}

impl SetData for Sets {
    fn read(&self, set: u64, at: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let nowhere = Hole { address: at, cause: HoleCause::Unmapped };
        let pages = usize::try_from(set).ok().and_then(|set| self.sets.get(set)).ok_or(nowhere)?;
        read_parts(at, buf, |at, rest| {
            let page =
                usize::try_from(at / PAGE).ok().and_then(|page| pages.get(page)).ok_or(nowhere)?;
            let inside = at % PAGE;
            let part = front(rest, PAGE.saturating_sub(inside));
            self.image.read(page.saturating_add(inside), part)?;
            Ok(part.len())
        })
    }

    fn data_size(&self, _: u64) -> Option<u64> {
        None
    }
}
