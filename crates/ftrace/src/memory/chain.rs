//! Follows the circular list of a CPU's sub-buffers, or what is left of it.
//!
//! Layout: `ring_buffer_per_cpu.pages` points at the list member, which is the first member, of
//! some `struct buffer_page`. The two low bits of a `next` pointer are flags of the page pointed
//! at: 1 means that the page is the head; 2 means that a writer is moving the head away from the
//! page. If the image lacks a structure, its neighbours still have its address; the ring then falls
//! apart into chains.

use std::collections::{HashMap, HashSet};

use lastwords_kernel::Kernel;

/// Mask of the flags in a `next` pointer.
const FLAGS: u64 = 3;
/// Flag: the page pointed at is the head.
const HEAD: u64 = 1;

/// A structure that describes a sub-buffer (`struct buffer_page`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    /// Address of the structure.
    pub(super) at: u64,
    /// Virtual address of the sub-buffer.
    pub(super) page: u64,
}

/// The chains of a ring.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// Chains, each in list order. Exactly one structure is missing between two chains if `after`
    /// of the first equals `before` of the second; otherwise the gap is unknown.
    pub(super) chains: Vec<Chain>,
    /// Address of the structure whose sub-buffer is the oldest of the ring.
    pub(super) head: Option<u64>,
    /// True if the list is a closed circle, so that no structure is missing.
    pub(super) closed: bool,
}

/// A run of consecutive sub-buffers.
#[derive(Debug, Clone, Default)]
pub(super) struct Chain {
    pub(super) nodes: Vec<Node>,
    /// Address of the structure before the first node; the image lacks it.
    pub(super) before: u64,
    /// Address of the structure after the last node; the image lacks it.
    pub(super) after: u64,
}

/// Follows the list from `seeds`, at most `most` structures. With `strict`, only neighbours that
/// point at each other are followed: a seed may be a freed structure that still points into a list
/// it has left.
pub(super) fn follow(kernel: &Kernel, seeds: &[u64], most: usize, strict: bool) -> Chains {
    let mut walk = Walk {
        kernel,
        most,
        strict,
        seen: HashSet::new(),
        flagged: HashMap::new(),
        chains: Chains::default(),
    };
    for seed in seeds.iter().map(|s| s & !FLAGS).filter(|s| *s != 0) {
        walk.from(seed);
        if walk.chains.closed {
            break;
        }
    }
    let flagged = walk.flagged;
    let of = |flag: u64| flagged.iter().find(|(_, flags)| **flags == flag).map(|(at, _)| *at);
    walk.chains.head = of(HEAD).or_else(|| of(2));
    walk.chains
}

struct Walk<'k> {
    kernel: &'k Kernel,
    most: usize,
    strict: bool,
    seen: HashSet<u64>,
    /// Flags of pages, by address of the page's structure.
    flagged: HashMap<u64, u64>,
    chains: Chains,
}

/// The members of a structure.
struct Read {
    next: u64,
    prev: u64,
    page: u64,
}

impl Walk<'_> {
    fn read(&self, at: u64) -> Option<Read> {
        let node = self.kernel.object("buffer_page", at).ok()?;
        let read = |path: &str| node.address(path).ok();
        Some(Read { next: read("list.next")?, prev: read("list.prev")?, page: read("page")? })
    }

    /// Adds the chain that contains `seed`, unless it was already found.
    fn from(&mut self, seed: u64) {
        if self.seen.contains(&seed) || self.seen.len() >= self.most {
            return;
        }
        let Some(first) = self.read(seed) else { return };
        let mut chain =
            Chain { nodes: vec![Node { at: seed, page: first.page }], ..Chain::default() };
        self.seen.insert(seed);
        let mut here = first.next;
        let mut from = seed;
        loop {
            let at = here & !FLAGS;
            if here & FLAGS != 0 {
                self.flagged.insert(at, here & FLAGS);
            }
            if at == seed {
                self.chains.closed = true;
                self.chains.chains = vec![chain];
                return;
            }
            match self.read(at) {
                Some(read)
                    if self.seen.len() < self.most
                        && (!self.strict || read.prev & !FLAGS == from)
                        && self.seen.insert(at) =>
                {
                    chain.nodes.push(Node { at, page: read.page });
                    (from, here) = (at, read.next);
                }
                _ => {
                    chain.after = at;
                    break;
                }
            }
        }
        let mut at = first.prev & !FLAGS;
        let mut older = Vec::new();
        let mut from = seed;
        while let Some(read) = self.read(at) {
            if self.strict && read.next & !FLAGS != from {
                break;
            }
            from = at;
            // The flags of the page after this one are in this structure's `next` pointer.
            if read.next & FLAGS != 0 {
                self.flagged.insert(read.next & !FLAGS, read.next & FLAGS);
            }
            if self.seen.len() >= self.most || !self.seen.insert(at) {
                break;
            }
            older.push(Node { at, page: read.page });
            at = read.prev & !FLAGS;
        }
        chain.before = at;
        older.reverse();
        older.append(&mut chain.nodes);
        chain.nodes = older;
        self.chains.chains.push(chain);
    }
}
