//! Finds lists of sub-buffer structures that no pointer leads to, by the structures' own pointers.
//!
//! A `struct buffer_page` points to its neighbours, which point back, and to its sub-buffer; no
//! other structure does that. If the sub-buffers of a list are in order of time, the list is a
//! ring, even if the image lacks the structure that holds the list.

use std::collections::{HashMap, HashSet};

use crate::page::Events;
use lastwords_bytes::{Budget, Error};
use lastwords_image::unwatched;
use lastwords_kernel::Kernel;
use lastwords_kernel::virtual_memory::VirtualMemory;

use super::chain::{self, Chains, Node};
use super::ring::{self, Shape, Summary};
use lastwords_image::process_pages::pieces;

/// Most structures in a list that is accepted.
const NODES_MAX: usize = 1 << 20;
/// Kernel addresses are above this.
const KERNEL: u64 = 0xff00_0000_0000_0000;
/// Mask of the flags in a `next` pointer.
const FLAGS: u64 = 3;

/// A list that may be a CPU's ring.
#[derive(Debug)]
pub(super) struct List {
    pub(super) chains: Chains,
    pub(super) nodes: usize,
    /// Address of the structure with the newest sub-buffer; 0 if nothing was written.
    pub(super) commit: u64,
    pub(super) reader: Option<(Node, usize)>,
    pub(super) shape: Shape,
    pub(super) told: CpuHints,
}

/// Facts from the events of a list that help to find its ring and CPU.
#[derive(Debug, Default)]
pub(super) struct CpuHints {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) events: u64,
    /// Number of events by event id.
    pub(super) ids: HashMap<u16, u64>,
    /// Number of events by the task that was running.
    pub(super) pids: HashMap<u32, u64>,
    /// Number of events that name the idle task of a CPU, by CPU; only that CPU switches to and
    /// from its idle task.
    pub(super) idle: HashMap<u32, u64>,
}

/// Offsets of members of `struct buffer_page`.
#[derive(Clone, Copy)]
struct Layout {
    next: usize,
    prev: usize,
    page: usize,
    size: usize,
}

/// Three pointers that may be those of a `struct buffer_page`.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    physical: u64,
    next: u64,
    prev: u64,
    page: u64,
}

/// Finds all lists whose sub-buffers have one of these sizes, except lists with a page of `known`.
///
/// # Errors
/// The budget is spent.
pub(super) fn find(
    kernel: &Kernel,
    memory: &VirtualMemory,
    shapes: &[Shape],
    known: &HashSet<u64>,
) -> Result<Vec<List>, Error> {
    let Some(layout) = layout(kernel) else { return Ok(Vec::new()) };
    let candidates = scan(memory, layout, kernel.budget())?;
    let (mut seen, mut lists, mut shift) = (HashSet::new(), Vec::new(), None);
    for candidate in &candidates {
        let Some(at) = own_address(kernel, memory, layout, candidate) else { continue };
        shift = Some(at.wrapping_sub(candidate.physical));
        if seen.contains(&at) {
            continue;
        }
        let chains = chain::follow(kernel, &[at], NODES_MAX, true);
        seen.extend(chains.chains.iter().flat_map(|c| &c.nodes).map(|n| n.at));
        lists.extend(shapes.iter().find_map(|shape| list(kernel, memory, &chains, *shape, known)));
    }
    if let Some(shift) = shift {
        readers(kernel, &mut lists, &candidates, shift);
    }
    Ok(lists)
}

fn layout(kernel: &Kernel) -> Option<Layout> {
    let id = kernel.types.id("buffer_page").ok()?;
    let offset = |path: &str| usize::try_from(kernel.types.member_of(id, path).ok()?.offset).ok();
    let size = usize::try_from(kernel.types.size(id)).ok()?;
    let words = kernel.memory.word_size() == 8
        && kernel.memory.byte_order() == lastwords_bytes::ByteOrder::Little;
    words.then_some(Layout {
        next: offset("list.next")?,
        prev: offset("list.prev")?,
        page: offset("page")?,
        size,
    })
}

/// Finds everything in the image that looks like a `struct buffer_page`.
fn scan(memory: &VirtualMemory, layout: Layout, budget: &Budget) -> Result<Vec<Candidate>, Error> {
    let mut found = Vec::new();
    pieces(&**memory.physical(), "looking for rings", budget, &unwatched, |at, bytes| {
        let from = at.checked_next_multiple_of(8).unwrap_or(at).saturating_sub(at);
        let bytes = bytes.get(usize::try_from(from).unwrap_or(0)..).unwrap_or_default();
        candidates(bytes, at.saturating_add(from), layout, &mut found);
        Ok(())
    })?;
    Ok(found)
}

fn candidates(bytes: &[u8], address: u64, layout: Layout, found: &mut Vec<Candidate>) {
    let mut at = 0usize;
    while let Some(object) = bytes.get(at..at.saturating_add(layout.size)) {
        let word = |offset: usize| {
            object
                .get(offset..)
                .and_then(|b| b.first_chunk::<8>())
                .map_or(0, |b| u64::from_le_bytes(*b))
        };
        let (page, next, prev) = (word(layout.page), word(layout.next), word(layout.prev));
        if page & 0xfff == 0
            && page >= KERNEL
            && next >= KERNEL
            && prev >= KERNEL
            && prev & 7 == 0
            && next & 4 == 0
        {
            found.push(Candidate {
                physical: address.saturating_add(at as u64),
                next: next & !FLAGS,
                prev,
                page,
            });
        }
        at = at.saturating_add(8);
    }
}

/// Virtual address of a candidate, from the pointer of a neighbour.
fn own_address(
    kernel: &Kernel,
    memory: &VirtualMemory,
    layout: Layout,
    candidate: &Candidate,
) -> Option<u64> {
    let is_own = |at: &u64| memory.translate(*at).is_ok_and(|m| m.physical == candidate.physical);
    let named = |place: u64| kernel.memory.pointer(place).ok().map(|at| at & !FLAGS).filter(is_own);
    memory.translate(candidate.page).ok()?;
    named(candidate.prev.wrapping_add(layout.next as u64))
        .or_else(|| named(candidate.next.wrapping_add(layout.prev as u64)))
}

/// Builds the list if its sub-buffers form a ring.
fn list(
    kernel: &Kernel,
    memory: &VirtualMemory,
    chains: &Chains,
    shape: Shape,
    known: &HashSet<u64>,
) -> Option<List> {
    chains.head?;
    let nodes: Vec<Node> = chains.chains.iter().flat_map(|c| &c.nodes).copied().collect();
    let mut told = CpuHints::default();
    let (mut commit, mut newest, mut looks) = (0, 0, HashMap::new());
    for node in &nodes {
        let order = kernel.object("buffer_page", node.at).ok()?;
        let pages =
            if order.has("order") { 1u64.checked_shl(order.fit("order").ok()?)? } else { 1 };
        // A sub-buffer that was left out of the image is still mapped.
        let physical = memory.translate(node.page).ok()?.physical;
        if pages.checked_mul(kernel.memory.page_size())? != shape.size as u64
            || known.contains(&physical)
        {
            return None;
        }
        let mut bytes = vec![0u8; shape.size];
        if kernel.memory.read(node.page, &mut bytes).is_err() {
            continue;
        }
        let look = ring::look(&bytes, kernel.memory.byte_order(), shape.header).ok()?;
        if look.commit > 0 && look.first >= newest {
            (commit, newest) = (node.at, look.first);
        }
        ask(kernel, &mut told, &bytes, shape, &look);
        looks.insert(node.page, look);
    }
    let chains = Chains { chains: chains.chains.clone(), head: chains.head, closed: chains.closed };
    let list = List { chains, nodes: nodes.len(), commit, reader: None, shape, told };
    is_in_order(kernel, &list, &looks).then_some(list)
}

/// True if times increase from the head to the newest sub-buffer.
fn is_in_order(kernel: &Kernel, list: &List, looks: &HashMap<u64, Summary>) -> bool {
    let cpu = ring::of_list(kernel, &list.chains, list.commit, None, list.shape, 0, 0);
    let pages = cpu.places.iter().filter_map(|place| match place.at {
        ring::Where::Virtual(page) => looks.get(&page),
        ring::Where::Physical(_) => None,
    });
    // Compare only the first times: if an interrupt came between, a sub-buffer's own time can be
    // before the last event of the previous one.
    let mut first = 0;
    for look in pages {
        if look.first < first {
            return false;
        }
        first = look.first;
    }
    true
}

/// Adds the facts from a sub-buffer's events.
pub(super) fn ask(
    kernel: &Kernel,
    told: &mut CpuHints,
    bytes: &[u8],
    shape: Shape,
    look: &Summary,
) {
    if look.events == 0 {
        return;
    }
    told.first = if told.events == 0 { look.first } else { told.first.min(look.first) };
    told.last = told.last.max(look.last);
    told.events = told.events.saturating_add(look.events);
    for event in Events::new(bytes, shape.header, kernel.memory.byte_order(), look.commit).flatten()
    {
        let Some(payload) = bytes.get(event.payload) else { continue };
        let Some([a, b, _, _, pid @ ..]) = payload.first_chunk::<8>() else { continue };
        add(&mut told.ids, u16::from_le_bytes([*a, *b]));
        add(&mut told.pids, u32::from_le_bytes(*pid));
        if let Some(cpu) = idle_task(payload) {
            add(&mut told.idle, cpu);
        }
    }
}

fn add<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u64>, key: K) {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(1);
}

/// The CPU whose idle task an event names.
fn idle_task(payload: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"swapper/";
    let at = payload.windows(NAME.len()).position(|w| w == NAME)?.checked_add(NAME.len())?;
    number(payload.get(at..)?)
}

/// Parses the decimal number at the start of a text.
pub(super) fn number(text: &[u8]) -> Option<u32> {
    let digits = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

/// A structure that points into a list which does not point back is that of the reader's
/// sub-buffer.
fn readers(kernel: &Kernel, lists: &mut [List], candidates: &[Candidate], shift: u64) {
    let mut owner = HashMap::new();
    for (n, list) in lists.iter().enumerate() {
        for node in list.chains.chains.iter().flat_map(|c| &c.nodes) {
            owner.insert(node.at, n);
        }
    }
    for candidate in candidates {
        let at = candidate.physical.wrapping_add(shift);
        let (Some(n), Some(other)) = (owner.get(&candidate.next), owner.get(&candidate.prev))
        else {
            continue;
        };
        let Some(list) = lists.get_mut(*n).filter(|_| n == other && !owner.contains_key(&at))
        else {
            continue;
        };
        let mut bytes = vec![0u8; list.shape.size];
        if kernel.memory.read(candidate.page, &mut bytes).is_err() {
            continue;
        }
        let look = ring::look(&bytes, kernel.memory.byte_order(), list.shape.header);
        let Ok(look) = look.as_ref().map_err(|_| ()) else { continue };
        let read = kernel.object("buffer_page", at).and_then(|page| page.fit("read")).unwrap_or(0);
        if look.events > 0 && look.last <= list.told.first && list.reader.is_none() {
            list.reader = Some((Node { at, page: candidate.page }, read));
        }
    }
}
