//! Reads one CPU's ring: the reader's sub-buffer first, then those from the head to the one being
//! committed.

use super::chain::{self, Chain, Chains, Node};
use crate::page::{self, Events};
use crate::{CpuRing, HeaderPage, Stats};
use lastwords_kernel::{Error, Kernel, Object};
use lastwords_trace::evidence::{Cause, Gap, SubBuffer, Verdict};

/// Most sub-buffers of a CPU that are accepted.
const SUB_BUFFERS_MAX: u64 = 1 << 24;

/// Address of a sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// A virtual address.
    Virtual(u64),
    /// A physical address, of a sub-buffer that no pointer leads to.
    Physical(u64),
}

/// One sub-buffer of a ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct SubBufferAt {
    pub(super) at: Where,
    /// Number of bytes of data that a consumer has read.
    pub(super) consumed: usize,
    pub(super) verdict: Verdict,
}

/// A CPU's ring, as far as pointers lead.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    pub(super) ring: CpuRing,
    pub(super) places: Vec<SubBufferAt>,
    pub(super) sub_buffers: Vec<SubBuffer>,
    pub(super) gaps: Vec<Gap>,
    pub(super) notes: Vec<String>,
    /// Places where sub-buffers are missing because nothing points at them.
    pub(super) breaks: Vec<Break>,
    /// Set if the image lacks the CPU's own structure: the number of sub-buffers that its list
    /// must have, if known.
    pub(super) lost: Option<Option<u64>>,
    /// True if the counters are not the kernel's but were counted from the events.
    pub(super) is_counted: bool,
}

/// A place in the order of a ring where structures are missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Break {
    /// Index in `places` of the sub-buffer after the break.
    pub(super) before: usize,
    /// Number of missing structures, if known.
    pub(super) count: Option<u64>,
}

/// Size of a ring's sub-buffers and of their headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) size: usize,
    pub(super) header: HeaderPage,
}

impl Cpu {
    /// The ring of a CPU of which nothing was found yet.
    pub(super) fn new(cpu: u32, shape: Shape) -> Self {
        let ring = CpuRing { cpu, sub_buffer_size: shape.bytes(), ..CpuRing::default() };
        Self { ring, ..Self::default() }
    }

    /// Adds a sub-buffer whose content was proven, at a place in the order.
    pub(super) fn insert(&mut self, stream: usize, at: usize, address: u64, look: &Summary) {
        let (verdict, at) = (Verdict::Committed, at.min(self.places.len()));
        let place = SubBufferAt { at: Where::Physical(address), consumed: 0, verdict };
        self.places.insert(at, place);
        let (content, why) = (look.commit as u64, String::new());
        let row = SubBuffer { stream, sequence: at as u64, verdict, content, why };
        self.sub_buffers.insert(at.min(self.sub_buffers.len()), row);
        for (n, row) in self.sub_buffers.iter_mut().enumerate().skip(at) {
            row.sequence = n as u64;
        }
    }
}

impl Shape {
    /// The size of a sub-buffer, as a ring tells it.
    pub(super) fn bytes(&self) -> u32 {
        u32::try_from(self.size).unwrap_or(u32::MAX)
    }
}

/// Summary of a sub-buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summary {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) commit: usize,
    pub(super) events: u64,
}

/// Reads the counters and finds the sub-buffers of one CPU. `index` is that of the CPU in the ring,
/// for the evidence.
pub(super) fn cpu(kernel: &Kernel, at: u64, shape: Shape, index: usize) -> Result<Cpu, Error> {
    let object = kernel.object("ring_buffer_per_cpu", at)?;
    let mut found = Cpu::new(object.fit("cpu")?, shape);
    found.ring.stats = stats(&object)?;
    let pointer = |path: &str| object.address(path).unwrap_or(0);
    let (reader, commit) = (pointer("reader_page"), pointer("commit_page"));
    let mut order = Vec::new();
    match reader_page(kernel, reader) {
        Ok((node, read)) => order.push((node, read)),
        Err(error) => {
            found.notes.push(format!(
                "CPU {}: the reader's sub-buffer is not known: {error}",
                found.ring.cpu
            ));
            found.breaks.push(Break { before: 0, count: Some(1) });
        }
    }
    if reader != commit {
        let most = object.u64("nr_pages").unwrap_or(0).min(SUB_BUFFERS_MAX) as usize;
        let seeds = [pointer("pages"), pointer("head_page"), commit, pointer("tail_page")];
        let chains = chain::follow(kernel, &seeds, most, false);
        in_order(&mut found, &chains, commit, pointer("head_page"), &mut order);
    }
    look_at_all(kernel, &mut found, shape, index, order, commit);
    in_flight(&mut found, &object, index);
    Ok(found)
}

/// Builds a CPU's ring from its list alone. `reader` is the reader's sub-buffer, if it was found.
pub(super) fn of_list(
    kernel: &Kernel,
    chains: &Chains,
    commit: u64,
    reader: Option<(Node, usize)>,
    shape: Shape,
    index: usize,
    cpu: u32,
) -> Cpu {
    let mut found = Cpu::new(cpu, shape);
    let mut order: Vec<(Node, usize)> = reader.into_iter().collect();
    in_order(&mut found, chains, commit, 0, &mut order);
    look_at_all(kernel, &mut found, shape, index, order, commit);
    found
}

/// Builds the ring of a CPU whose own structure the image lacks. `sub_buffers` is the number that
/// its list must have, if known.
pub(super) fn lost(cpu: u32, shape: Shape, sub_buffers: Option<u64>) -> Cpu {
    Cpu { lost: Some(sub_buffers), ..Cpu::new(cpu, shape) }
}

/// Adds the sub-buffers that are not empty.
fn look_at_all(
    kernel: &Kernel,
    found: &mut Cpu,
    shape: Shape,
    index: usize,
    order: Vec<(Node, usize)>,
    commit: u64,
) {
    let mut begins = Vec::with_capacity(order.len());
    for (node, consumed) in order {
        begins.push(found.places.len());
        look_at(kernel, found, (shape, index), node, consumed, node.at == commit);
    }
    for gap in &mut found.breaks {
        gap.before = begins.get(gap.before).copied().unwrap_or(found.places.len());
    }
}

fn stats(object: &Object<'_>) -> Result<Stats, Error> {
    let number = |path: &str| object.u64(path);
    let (overrun, read) = (number("overrun")?, number("read")?);
    Ok(Stats {
        entries: number("entries")?.saturating_sub(overrun.saturating_add(read)),
        overrun,
        commit_overrun: number("commit_overrun")?,
        bytes: number("entries_bytes")?.saturating_sub(number("read_bytes")?),
        dropped: number("dropped_events")?,
        read,
    })
}

fn reader_page(kernel: &Kernel, at: u64) -> Result<(Node, usize), Error> {
    let object = kernel.object("buffer_page", at)?;
    Ok((Node { at, page: object.address("page")? }, object.fit("read")?))
}

/// Orders the nodes from the head to the commit page; adds breaks where chains do not join.
fn in_order(
    found: &mut Cpu,
    chains: &Chains,
    commit: u64,
    head_member: u64,
    order: &mut Vec<(Node, usize)>,
) {
    let head = chains.head.unwrap_or(head_member);
    if chains.closed {
        let Some(nodes) = chains.chains.first().map(|c| &c.nodes) else { return };
        let begin = nodes.iter().position(|n| n.at == head).unwrap_or(0);
        for node in nodes.iter().cycle().skip(begin).take(nodes.len()) {
            order.push((*node, 0));
            if node.at == commit {
                return;
            }
        }
        found.notes.push(format!(
            "CPU {}: the commit page {commit:#x} is not in its list",
            found.ring.cpu
        ));
        return;
    }
    let rank = |chain: &Chain| {
        let has = |at: u64| chain.nodes.iter().any(|n| n.at == at);
        (!has(head), has(commit) && !has(head))
    };
    let mut chains: Vec<&Chain> = chains.chains.iter().collect();
    chains.sort_by_key(|c| rank(c));
    let mut previous: Option<&Chain> = None;
    let only = chains.len() == 1;
    for chain in chains {
        let starts = chain.nodes.iter().position(|n| n.at == head);
        let ends = chain.nodes.iter().position(|n| n.at == commit);
        let count = previous.and_then(|p| (p.after == chain.before).then_some(1));
        match (starts, ends) {
            // The hole is between commit page and head, outside the written part.
            (Some(begin), Some(end)) if begin <= end => {
                order.extend(
                    chain
                        .nodes
                        .iter()
                        .skip(begin)
                        .take(end.saturating_sub(begin).saturating_add(1))
                        .map(|n| (*n, 0)),
                );
                return;
            }
            (Some(begin), Some(end)) => {
                order.extend(chain.nodes.iter().skip(begin).map(|n| (*n, 0)));
                let count = (only && chain.after == chain.before).then_some(1);
                found.breaks.push(Break { before: order.len(), count });
                order.extend(chain.nodes.iter().take(end.saturating_add(1)).map(|n| (*n, 0)));
                return;
            }
            (begin, end) => {
                if previous.is_some() || begin.is_none() {
                    found.breaks.push(Break { before: order.len(), count });
                }
                let nodes = chain.nodes.iter().skip(begin.unwrap_or(0));
                let len = end.map_or(chain.nodes.len(), |e| e.saturating_add(1));
                order.extend(nodes.take(len.saturating_sub(begin.unwrap_or(0))).map(|n| (*n, 0)));
            }
        }
        previous = Some(chain);
    }
    if previous.is_none_or(|p| !p.nodes.iter().any(|n| n.at == commit)) {
        found.breaks.push(Break { before: order.len(), count: None });
    }
}

/// Checks a sub-buffer and adds it unless it is empty.
fn look_at(
    kernel: &Kernel,
    found: &mut Cpu,
    (shape, index): (Shape, usize),
    node: Node,
    consumed: usize,
    open: bool,
) {
    let (address, at) = (node.page, Where::Virtual(node.page));
    let mut bytes = vec![0u8; shape.size];
    let sequence = found.places.len() as u64;
    let mut row = |verdict: Verdict, content: u64, why: String| {
        found.sub_buffers.push(SubBuffer { stream: index, sequence, verdict, content, why });
        found.places.push(SubBufferAt { at, consumed, verdict });
    };
    if let Err(hole) = kernel.memory.read(address, &mut bytes) {
        return row(Verdict::Missing, 0, format!("sub-buffer at {address:#x}: {hole}"));
    }
    match look(&bytes, kernel.memory.byte_order(), shape.header) {
        Ok(look) if look.commit == 0 && events_of(kernel, node) > 0 => {
            let events = events_of(kernel, node);
            row(
                Verdict::Missing,
                0,
                format!(
                    "sub-buffer at {address:#x}: it reads as empty, its structure counts {events} events"
                ),
            );
        }
        Ok(look) if look.commit <= consumed => {}
        Ok(look) => row(
            if open { Verdict::Open } else { Verdict::Committed },
            look.commit as u64,
            String::new(),
        ),
        Err(why) => row(Verdict::Invalid, 0, format!("sub-buffer at {address:#x}: {why}")),
    }
}

/// Returns the number of events that a sub-buffer's structure counts. The bits above count updates
/// by writers.
fn events_of(kernel: &Kernel, node: Node) -> u64 {
    let count = kernel.object("buffer_page", node.at).and_then(|page| page.u64("entries"));
    count.unwrap_or_default() & 0xf_ffff
}

/// Summarizes a sub-buffer; an error if its events do not fit.
pub(super) fn look(
    bytes: &[u8],
    order: lastwords_bytes::ByteOrder,
    layout: HeaderPage,
) -> Result<Summary, String> {
    let header = page::header(bytes, layout, order).map_err(|misfit| misfit.to_string())?;
    let commit = header.committed;
    let mut events = Events::new(bytes, layout, order, commit);
    let mut look = Summary { first: header.time, last: header.time, commit, events: 0 };
    for event in events.by_ref() {
        event.map_err(|misfit| misfit.to_string())?;
        look.events = look.events.saturating_add(1);
    }
    look.last = events.time();
    Ok(look)
}

/// Adds a gap for bytes between the committed and the written position.
fn in_flight(found: &mut Cpu, object: &Object<'_>, index: usize) {
    let written = || -> Result<(u64, u64), Error> {
        let tail = object.pointer("tail_page")?;
        // The low 20 bits are the position; the bits above count updates by writers.
        let write = tail.u64("write")? & 0xf_ffff;
        let commit = tail.pointer("page")?.u64("commit")? & 0x3fff_ffff;
        Ok((commit, write))
    };
    let Ok((commit, write)) = written() else { return };
    if object.u64("committing").unwrap_or(0) != 0 && write > commit {
        let bytes = Some(write.saturating_sub(commit));
        let place = format!("CPU {}: behind the committed position {commit}", found.ring.cpu);
        found.gaps.push(Gap::new(Some(index), Cause::InFlight, place).with_bytes(bytes));
    }
}

/// Returns the account's line on events that are missing, nobody knows how many.
pub(super) fn missing(stream: Option<usize>, place: String) -> Gap {
    Gap { stream, place, cause: Cause::Missing, events: None, bytes: None }
}

/// The shape of sub-buffers where nothing else is known: a page.
pub(super) fn default_shape(kernel: &Kernel) -> Shape {
    let header = HeaderPage::of_word_size(kernel.memory.word_size());
    Shape { size: usize::try_from(kernel.memory.page_size()).unwrap_or(4096), header }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(before: u64, at: &[u64], after: u64) -> Chain {
        Chain { nodes: at.iter().map(|&at| Node { at, page: at << 12 }).collect(), before, after }
    }

    /// Returns the structures from the head to the commit page, and the breaks: index and number.
    fn ordered(
        chains: Vec<Chain>,
        closed: bool,
        head: u64,
        commit: u64,
    ) -> (Vec<u64>, Vec<(usize, Option<u64>)>) {
        let chains = Chains { chains, head: Some(head), closed };
        let (mut found, mut order) = (Cpu::default(), Vec::new());
        in_order(&mut found, &chains, commit, 0, &mut order);
        let breaks = found.breaks.iter().map(|b| (b.before, b.count)).collect();
        (order.iter().map(|(n, _)| n.at).collect(), breaks)
    }

    #[test]
    fn a_list_that_closes_goes_from_head_to_commit() {
        let ring = || vec![chain(0, &[1, 2, 3, 4, 5], 0)];
        assert_eq!(ordered(ring(), true, 4, 2), (vec![4, 5, 1, 2], vec![]));
        assert_eq!(ordered(ring(), true, 2, 2), (vec![2], vec![]));
        // Without the commit page in the list, all of the list is taken.
        assert_eq!(ordered(ring(), true, 3, 9).0, [3, 4, 5, 1, 2]);
    }

    #[test]
    fn what_is_missing_outside_of_what_is_written_costs_nothing() {
        assert_eq!(ordered(vec![chain(9, &[1, 2, 3], 9)], false, 1, 3), (vec![1, 2, 3], vec![]));
    }

    #[test]
    fn one_missing_structure_is_one_break() {
        let (order, breaks) = ordered(vec![chain(9, &[1, 2, 3, 4], 9)], false, 3, 2);
        assert_eq!((order, breaks), (vec![3, 4, 1, 2], vec![(2, Some(1))]));
        let (order, breaks) =
            ordered(vec![chain(8, &[5, 6], 9), chain(9, &[1, 2], 8)], false, 1, 6);
        assert_eq!((order, breaks), (vec![1, 2, 5, 6], vec![(2, Some(1))]));
    }

    #[test]
    fn a_run_of_missing_structures_is_a_break_of_unknown_size() {
        let (order, breaks) =
            ordered(vec![chain(8, &[1, 2], 9), chain(7, &[5, 6], 8)], false, 1, 6);
        assert_eq!((order, breaks), (vec![1, 2, 5, 6], vec![(2, None)]));
        // The head, the commit page, or all structures are missing.
        assert_eq!(ordered(vec![chain(8, &[5, 6], 9)], false, 1, 6), (vec![5, 6], vec![(0, None)]));
        assert_eq!(ordered(vec![chain(8, &[1, 2], 9)], false, 1, 6), (vec![1, 2], vec![(2, None)]));
        assert_eq!(ordered(vec![], false, 1, 6), (vec![], vec![(0, None)]));
    }

    #[test]
    fn a_sub_buffer_that_lies_is_told() {
        let order = lastwords_bytes::ByteOrder::Little;
        let page = HeaderPage::of_word_size(8);
        let mut bytes = [0u8; 64];
        bytes[0] = 9;
        bytes[8] = 200;
        assert_eq!(
            look(&bytes, order, page).unwrap_err(),
            "offset 8: 200, expected at most 48 bytes committed"
        );
        bytes[8] = 8;
        bytes[16] = 28;
        assert_eq!(
            look(&bytes, order, page).unwrap_err(),
            "offset 16: 112, expected an event that ends within what is committed"
        );
        bytes[16] = 1 | 3 << 5;
        let look = look(&bytes, order, page).unwrap();
        assert_eq!((look.first, look.last, look.events), (9, 12, 1));
    }
}
