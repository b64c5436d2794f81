//! Finds sub-buffers that no pointer leads to, by their contents.
//!
//! A dump can lack the structures that describe sub-buffers and still have the sub-buffers. Such a
//! page begins with a time stamp between those of its neighbours in the ring. Its commit word is
//! valid, its events fill the committed bytes exactly, and no known ring has the page.

use super::memory_ring::MemoryRing;
use super::ring::{Cpu, Shape, SubBufferAt, Where, missing};
use super::search::{Candidate, EVENTS, Window, are_known, search};
use crate::Format;
use lastwords_kernel::Kernel;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_trace::evidence::{Cause, Evidence};
use std::collections::{BTreeMap, HashSet};

/// Finds sub-buffers for the breaks of these rings, and returns those that no counter proves to be
/// a ring's. Reads the whole image if there are breaks.
pub(super) fn fill(
    kernel: &Kernel,
    memory: &VirtualMemory,
    rings: &mut [&mut MemoryRing],
    formats: &BTreeMap<u16, Format>,
    evidence: &mut Evidence,
) -> Vec<(Shape, Vec<Candidate>)> {
    let windows: Vec<Window> =
        rings.iter_mut().enumerate().flat_map(|(n, ring)| windows(n, ring)).collect();
    if windows.is_empty() {
        return Vec::new();
    }
    let known = known(memory, rings);
    let mut shapes: Vec<Shape> = Vec::new();
    for window in &windows {
        let Some(shape) = rings.get(window.ring).map(|r| r.shape()) else { continue };
        if !shapes.iter().any(|s| s.size == shape.size) {
            shapes.push(shape);
        }
    }
    let mut unproven = Vec::new();
    for shape in shapes {
        let of_size: Vec<Window> = windows
            .iter()
            .filter(|w| rings.get(w.ring).is_some_and(|r| r.shape().size == shape.size))
            .copied()
            .collect();
        let mut found =
            search(kernel, memory.physical(), shape, &of_size, &known).unwrap_or_else(|error| {
                evidence.notes.push(format!("missing sub-buffers are not looked for: {error}"));
                Vec::new()
            });
        let mut bytes = vec![0u8; shape.size];
        found.retain(|candidate| {
            let is_there = memory.physical().read(candidate.address, &mut bytes).is_ok();
            is_there && are_known(kernel, &bytes, shape, &candidate.look, formats)
        });
        assign(rings, &of_size, &found, evidence);
        let mut withdrawn = HashSet::new();
        for window in &of_size {
            if let Some(ring) = rings.get_mut(window.ring) {
                withdrawn.extend(settle(ring, window.cpu, evidence));
            }
        }
        found.retain(|candidate| {
            withdrawn.contains(&candidate.address) && candidate.look.events >= EVENTS
        });
        unproven.push((shape, found));
    }
    unproven
}

/// Compares the number of a CPU's events with the ring's own counter. If they agree, nothing is
/// missing, and the sub-buffers that were found by their contents are the ring's. Otherwise nothing
/// proves that: takes them out, and returns their addresses.
fn settle(ring: &mut MemoryRing, cpu: usize, evidence: &mut Evidence) -> Vec<u64> {
    let events: u64 = ring.looks(cpu).iter().flatten().map(|l| l.events).sum();
    let Some(found) = ring.found_mut().get_mut(cpu) else { return Vec::new() };
    let counted = found.ring.stats.entries.saturating_add(found.ring.stats.read);
    if found.breaks.is_empty() {
        return Vec::new();
    }
    found.breaks.clear();
    let number = found.ring.cpu;
    if !found.is_counted && (events == found.ring.stats.entries || events == counted) {
        found.gaps.retain(|g| g.cause != Cause::Missing);
        evidence.notes.push(format!(
            "CPU {number}: its {events} events are as many as the ring's own counter says"
        ));
        return Vec::new();
    }
    let withdrawn = withdraw(found, cpu);
    let (is_counted, entries) = (found.is_counted, found.ring.stats.entries);
    ring.recount();
    if is_counted {
        ring.count_events(cpu);
    } else {
        let events: u64 = ring.looks(cpu).iter().flatten().map(|l| l.events).sum();
        evidence.notes.push(format!(
            "CPU {number}: {events} events are there, the ring's own counter says {entries}"
        ));
    }
    withdrawn
}

/// Takes out the sub-buffers that were found by their contents. The account says that they are
/// missing here.
fn withdraw(found: &mut Cpu, stream: usize) -> Vec<u64> {
    let mut withdrawn = Vec::new();
    let mut place = 0..found.places.len();
    let physical =
        |at: &SubBufferAt| if let Where::Physical(address) = at.at { Some(address) } else { None };
    found
        .sub_buffers
        .retain(|_| place.next().and_then(|at| physical(found.places.get(at)?)).is_none());
    found.places.retain(|at| physical(at).map(|address| withdrawn.push(address)).is_none());
    for (n, row) in found.sub_buffers.iter_mut().enumerate() {
        row.sequence = n as u64;
    }
    if !withdrawn.is_empty() {
        let place = format!(
            "{} sub-buffers, of which nothing proves that they are of this ring",
            withdrawn.len()
        );
        found.gaps.push(missing(Some(stream), place));
    }
    withdrawn
}

/// Lists the breaks of a ring with the times around them, latest first, so that inserting
/// sub-buffers does not shift the other breaks.
fn windows(ring: usize, memory: &mut MemoryRing) -> Vec<Window> {
    let mut all = Vec::new();
    let mut looks = Vec::new();
    for cpu in 0..memory.found_mut().len() {
        looks.push(memory.looks(cpu));
    }
    for (cpu, looks) in looks.iter().enumerate() {
        let Some(found) = memory.found_mut().get(cpu) else { continue };
        for at in found.breaks.iter().rev() {
            let earlier = looks.get(..at.before).unwrap_or_default();
            let after = earlier.iter().rev().flatten().next().map_or(0, |l| l.last);
            let later = looks.get(at.before..).unwrap_or_default();
            let before = later.iter().flatten().next().map_or(u64::MAX, |l| l.first);
            all.push(Window { ring, cpu, at: *at, after, before });
        }
    }
    all
}

/// Physical addresses of all sub-buffers that the rings have.
pub(super) fn known(memory: &VirtualMemory, rings: &mut [&mut MemoryRing]) -> HashSet<u64> {
    let places = rings.iter_mut().flat_map(|r| {
        r.found_mut().iter().flat_map(|c| c.places.iter().map(|p| p.at)).collect::<Vec<_>>()
    });
    places
        .filter_map(|at| match at {
            Where::Virtual(address) => memory.translate(address).ok().map(|m| m.physical),
            Where::Physical(address) => Some(address),
        })
        .collect()
}

/// Inserts candidates where they fit.
fn assign(
    rings: &mut [&mut MemoryRing],
    windows: &[Window],
    found: &[Candidate],
    evidence: &mut Evidence,
) {
    for (window, chosen) in windows.iter().zip(choose(windows, found)) {
        let Some(ring) = rings.get_mut(window.ring) else { continue };
        put(ring, window, &chosen, evidence);
    }
}

/// Chooses the candidates of each window, ordered by time; each candidate is used at most once.
fn choose(windows: &[Window], found: &[Candidate]) -> Vec<Vec<Candidate>> {
    let fits = |w: &Window, c: &Candidate| c.look.first >= w.after && c.look.last <= w.before;
    let mut taken: HashSet<u64> = HashSet::new();
    let mut all = Vec::new();
    for window in windows {
        let mut chosen: Vec<Candidate> = Vec::new();
        for candidate in found.iter().filter(|c| fits(window, c) && !taken.contains(&c.address)) {
            let elsewhere = windows.iter().any(|w| {
                (w.ring, w.cpu, w.at.before) != (window.ring, window.cpu, window.at.before)
                    && fits(w, candidate)
                    && closer(w, window, candidate)
            });
            if !elsewhere && chosen.last().is_none_or(|l| l.look.last <= candidate.look.first) {
                chosen.push(*candidate);
            }
        }
        taken.extend(chosen.iter().map(|c| c.address));
        all.push(chosen);
    }
    all
}

/// True if the candidate's first event is closer to the time before `a` than to the time before
/// `b`.
fn closer(a: &Window, b: &Window, candidate: &Candidate) -> bool {
    candidate.look.first.abs_diff(a.after) < candidate.look.first.abs_diff(b.after)
}

fn put(ring: &mut MemoryRing, window: &Window, chosen: &[Candidate], evidence: &mut Evidence) {
    let Some(cpu) = ring.found_mut().get_mut(window.cpu) else { return };
    let lacking = window.at.count.map_or(0, |n| n.saturating_sub(chosen.len() as u64));
    if lacking > 0 || (chosen.is_empty() && window.at.count.is_none()) {
        let place = format!("CPU {}: before sub-buffer {}", cpu.ring.cpu, window.at.before);
        cpu.gaps.push(missing(Some(window.cpu), place));
    }
    if !chosen.is_empty() {
        evidence.notes.push(format!(
            "CPU {}: {} sub-buffers, whose descriptions the image lacks, were found by their contents",
            cpu.ring.cpu,
            chosen.len()
        ));
    }
    for (n, candidate) in chosen.iter().enumerate() {
        let at = window.at.before.saturating_add(n);
        cpu.insert(window.cpu, at, candidate.address, &candidate.look);
    }
    ring.recount();
}

#[cfg(test)]
mod tests {
    use super::super::ring::{Break, Summary};
    use super::*;

    fn window(ring: usize, after: u64, before: u64) -> Window {
        Window { ring, cpu: 0, at: Break { before: 1, count: Some(1) }, after, before }
    }

    fn candidate(address: u64, first: u64, last: u64) -> Candidate {
        Candidate { address, look: Summary { first, last, commit: 64, events: 4 } }
    }

    fn addresses(chosen: &[Vec<Candidate>]) -> Vec<Vec<u64>> {
        chosen.iter().map(|of| of.iter().map(|c| c.address).collect()).collect()
    }

    #[test]
    fn a_page_goes_to_one_ring() {
        let found = [candidate(0x1000, 20, 30), candidate(0x2000, 31, 40)];
        // Two rings with the same times around their breaks: neither is closer.
        let windows = [window(0, 10, 50), window(1, 10, 50)];
        assert_eq!(addresses(&choose(&windows, &found)), [vec![0x1000, 0x2000], vec![]]);
        // The closer ring gets the candidate, whatever the order of the windows.
        let windows = [window(0, 10, 50), window(1, 19, 30)];
        assert_eq!(addresses(&choose(&windows, &found)), [vec![0x2000], vec![0x1000]]);
        // Two pages whose times overlap cannot both be in a ring.
        let found = [candidate(0x1000, 20, 30), candidate(0x2000, 25, 40)];
        assert_eq!(addresses(&choose(&windows[..1], &found)), [vec![0x1000]]);
    }
}
