//! Finds the lists of rings whose own structure the image lacks.
//!
//! The array notes the size of a CPU's ring and the enabled events elsewhere. Events show the CPU by bound tasks and by
//! the idle task. A snapshot is older than the live ring.

use std::collections::{HashMap, HashSet};

use lastwords_kernel::Kernel;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_trace::evidence::{Cause, Evidence, Gap};

use super::carve;
use super::lists::{self, CpuHints, List, number};
use super::memory_ring::{MemoryRing, Role};
use super::ring::{self, Shape};

/// Lower ids are those of tracers' own events, which every array can have.
pub(super) const TRACERS: u16 = 20;
/// Cost of a list without events. It is higher than the cost of any list whose events do not contradict the ring.
const EMPTY: f64 = 5.0;
/// Extra cost of a list that is not a closed circle.
const PIECE: f64 = 4.0;
/// Most rounds of exchanges; each round lowers the total cost.
const ROUNDS: usize = 64;

/// A CPU's ring whose list is searched.
struct Lane {
    ring: usize,
    cpu: usize,
    number: u32,
    sub_buffers: Option<u64>,
}

/// Finds lists for rings that are lost. Reads the whole image if there are any.
pub(super) fn fill(kernel: &Kernel, memory: &VirtualMemory, rings: &mut [&mut MemoryRing], evidence: &mut Evidence) {
    let lanes = lanes(rings);
    if lanes.is_empty() {
        return;
    }
    let mut shapes: Vec<Shape> = Vec::new();
    for shape in lanes.iter().filter_map(|l| rings.get(l.ring)).map(|r| r.shape()) {
        if !shapes.iter().any(|s| s.size == shape.size) {
            shapes.push(shape);
        }
    }
    let known: HashSet<u64> = carve::known(memory, rings);
    let lists = match lists::find(kernel, memory, &shapes, &known) {
        Ok(lists) => lists,
        Err(error) => return evidence.notes.push(format!("rings that are lost are not looked for: {error}")),
    };
    let bound = bound_tasks(kernel);
    let span = Span::of(&lists);
    let costs: Vec<Vec<Option<f64>>> = lanes
        .iter()
        .map(|lane| {
            let ring = rings.get(lane.ring);
            lists.iter().map(|list| ring.and_then(|r| cost(lane, (r.shape(), &r.role), list, &bound, &span))).collect()
        })
        .collect();
    let chosen = assign(&costs, lists.len());
    for (lane, list) in lanes.iter().zip(chosen) {
        let Some(ring) = rings.get_mut(lane.ring) else { continue };
        match list.and_then(|n| lists.get(n)) {
            Some(list) => put(kernel, ring, lane, list, &bound, evidence),
            None => missing(ring, lane),
        }
    }
}

fn lanes(rings: &mut [&mut MemoryRing]) -> Vec<Lane> {
    let mut lanes = Vec::new();
    for (n, ring) in rings.iter_mut().enumerate() {
        for (cpu, found) in ring.found_mut().iter().enumerate() {
            if let Some(sub_buffers) = found.lost {
                lanes.push(Lane { ring: n, cpu, number: found.ring.cpu, sub_buffers });
            }
        }
    }
    lanes
}

/// CPUs of tasks that can run on one CPU only, from their names: `ksoftirqd/1`, `kworker/1:0H`.
pub(super) fn bound_tasks(kernel: &Kernel) -> HashMap<u32, u32> {
    let mut bound = HashMap::new();
    let alone = |place: u64| {
        let task = kernel.object("task_struct", place).ok()?;
        Some(task.u64("nr_cpus_allowed").ok()? == 1)
    };
    for task in kernel.tasks().rows {
        let cpu = task.comm.split_once('/').and_then(|(_, rest)| number(rest.as_bytes()));
        if let (Some(cpu), Some(true)) = (cpu.filter(|_| task.pid != 0), alone(task.place)) {
            bound.insert(task.pid, cpu);
        }
    }
    bound
}

/// The time range of all lists.
struct Span {
    first: u64,
    length: u64,
}

impl Span {
    fn of(lists: &[List]) -> Self {
        let written = || lists.iter().filter(|l| l.told.events > 0).map(|l| l.told.last);
        let first = written().min().unwrap_or(0);
        Self { first, length: written().max().unwrap_or(0).saturating_sub(first).max(1) }
    }

    /// Position of a list's end in the time range: 0 for the list that ends first, 1 for the one that ends last.
    fn place(&self, list: &List) -> f64 {
        list.told.last.saturating_sub(self.first) as f64 / self.length as f64
    }
}

/// Number of events that point to this CPU, and number of events that point to any CPU.
pub(super) fn votes(told: &CpuHints, bound: &HashMap<u32, u32>, cpu: u32) -> (u64, u64) {
    let tasks = told.pids.iter().filter_map(|(pid, count)| bound.get(pid).map(|cpu| (*cpu, *count)));
    let idle = told.idle.iter().map(|(cpu, count)| (*cpu, *count));
    tasks.chain(idle).fold((0, 0), |(own, all), (of, count)| {
        (own.saturating_add(if of == cpu { count } else { 0 }), count.saturating_add(all))
    })
}

/// Cost of assigning a list to a ring, the lower the better; none if the list cannot be this ring.
fn cost(
    lane: &Lane,
    (shape, role): (Shape, &Role),
    list: &List,
    bound: &HashMap<u32, u32>,
    span: &Span,
) -> Option<f64> {
    let nodes = list.nodes as u64;
    let fits = |wanted: u64| if list.chains.closed { nodes == wanted } else { nodes <= wanted };
    if list.shape.size != shape.size || !lane.sub_buffers.is_none_or(fits) {
        return None;
    }
    if list.told.events == 0 {
        // A piece of an empty ring cannot be told from remains of freed rings and other structures.
        return list.chains.closed.then_some(EMPTY);
    }
    let share = |part: u64, all: u64| if all == 0 { 0.5 } else { part as f64 / all as f64 };
    let (own, all) = votes(&list.told, bound, lane.number);
    let is_event = |id: &u16| *id >= TRACERS;
    let count = |wanted: &dyn Fn(&u16) -> bool| {
        list.told.ids.iter().filter(|(id, _)| wanted(id)).map(|(_, n)| *n).fold(0, u64::saturating_add)
    };
    // No event counts as enabled if the array's list of events is lost.
    let events = if role.enabled.is_empty() { 0 } else { count(&is_event) };
    let enabled = count(&|id| is_event(id) && role.enabled.contains(id));
    let late = span.place(list);
    let time = if role.is_snapshot { late } else { 1.0 - late };
    // Pieces of lists may also be remains of freed rings.
    let piece = if list.chains.closed { 0.0 } else { PIECE };
    Some(piece + 4.0 * (1.0 - share(enabled, events)) + 2.0 * (1.0 - share(own, all)) + time)
}

/// Assigns a list to each lane: first greedily by cost, then by exchanges as long as they lower the cost.
fn assign(costs: &[Vec<Option<f64>>], lists: usize) -> Vec<Option<usize>> {
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    for (lane, row) in costs.iter().enumerate() {
        pairs.extend(row.iter().enumerate().filter_map(|(list, cost)| cost.map(|cost| (cost, lane, list))));
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut chosen: Vec<Option<usize>> = vec![None; costs.len()];
    let mut used = vec![false; lists];
    for (_, lane, list) in pairs {
        if let (Some(place @ None), Some(used @ false)) = (chosen.get_mut(lane), used.get_mut(list)) {
            (*place, *used) = (Some(list), true);
        }
    }
    let cost = |lane: usize, list: Option<usize>| match list {
        Some(list) => costs.get(lane).and_then(|row| row.get(list)).copied().flatten(),
        None => Some(12.0),
    };
    for _ in 0..ROUNDS {
        let mut better = false;
        for a in 0..chosen.len() {
            for b in 0..a {
                let (Some(&of_a), Some(&of_b)) = (chosen.get(a), chosen.get(b)) else { continue };
                let sum = |x: Option<f64>, y: Option<f64>| Some(x? + y?);
                let (now, then) = (sum(cost(a, of_a), cost(b, of_b)), sum(cost(a, of_b), cost(b, of_a)));
                if let (Some(now), Some(then)) = (now, then)
                    && then < now - 1e-9
                {
                    chosen.swap(a, b);
                    better = true;
                }
            }
        }
        if !better {
            break;
        }
    }
    chosen
}

fn put(
    kernel: &Kernel,
    ring: &mut MemoryRing,
    lane: &Lane,
    list: &List,
    bound: &HashMap<u32, u32>,
    evidence: &mut Evidence,
) {
    let cpu = ring::of_list(kernel, &list.chains, list.commit, list.reader, ring.shape(), lane.cpu, lane.number);
    let (own, all) = votes(&list.told, bound, lane.number);
    let which = if ring.role.is_snapshot { "snapshot" } else { "ring" };
    let sure = match all {
        0 => "nothing in it tells the CPU".to_owned(),
        _ => format!("{own} of {all} events that tell a CPU are of this one"),
    };
    evidence.notes.push(format!(
        "CPU {}: the image lacks the structure of its {which}, and with it how many events were overwritten; a list of {} \
         sub-buffers that nothing points at was taken: {sure}",
        lane.number, list.nodes
    ));
    ring.replace(lane.cpu, cpu);
    ring.count_events(lane.cpu);
}

fn missing(ring: &mut MemoryRing, lane: &Lane) {
    if let Some(found) = ring.found_mut().get_mut(lane.cpu) {
        let place = format!("CPU {}: the image lacks the structure of its ring, and no list could be its", lane.number);
        found.gaps.push(Gap { stream: Some(lane.cpu), place, cause: Cause::Missing, events: None, bytes: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftrace::chain::Chains;
    use crate::ftrace::lists::CpuHints;
    use lastwords_trace::ftrace::HeaderPage;

    #[test]
    fn a_piece_without_events_is_no_ring() {
        let shape = Shape { size: 4096, header: HeaderPage::of_word_size(8) };
        let lane = Lane { ring: 0, cpu: 0, number: 0, sub_buffers: Some(16) };
        let list = |closed: bool, nodes: usize, events: u64| List {
            chains: Chains { closed, ..Chains::default() },
            nodes,
            commit: 0,
            reader: None,
            shape,
            told: CpuHints { events, ..CpuHints::default() },
        };
        let cost = |list: &List| {
            let span = Span::of(std::slice::from_ref(list));
            cost(&lane, (shape, &Role::default()), list, &HashMap::new(), &span)
        };
        assert_eq!(cost(&list(true, 16, 0)), Some(EMPTY));
        assert_eq!(cost(&list(false, 3, 0)), None);
        // A piece with events can be a ring; a closed list of another length cannot.
        assert!(cost(&list(false, 3, 9)) > cost(&list(true, 16, 9)));
        assert_eq!(cost(&list(true, 15, 9)), None);
    }

    #[test]
    fn the_sum_of_the_costs_counts() {
        // The cheapest pair alone would leave the second lane with a list that fits badly.
        let costs = [vec![Some(0.4), Some(0.45)], vec![Some(0.5), Some(0.9)]];
        assert_eq!(assign(&costs, 2), [Some(1), Some(0)]);
        assert_eq!(assign(&[vec![None, Some(1.0)], vec![None, Some(2.0)]], 2), [Some(1), None]);
        assert_eq!(assign(&[vec![]], 0), [None]);
    }
}
