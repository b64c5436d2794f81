//! Finds the lists of rings whose own structure the image lacks.
//!
//! Nothing in a list says whose it is. It is given to a ring only where evidence decides: its
//! events are of kinds that one array alone has enabled, nearly all events that tell a CPU tell the
//! ring's, and the array lost as many rings of this CPU as there are such lists. Other lists become
//! arrays of their own, whose name is not known.

use super::carve;
use super::lists::{self, CpuHints, List, number};
use super::memory_ring::MemoryRing;
use super::ring::{self, Cpu, Shape, missing};
use super::search::TRACERS;
use crate::Format;
use lastwords_kernel::Kernel;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_trace::evidence::{Evidence, Gap};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A CPU's ring whose list is searched.
struct Lane {
    ring: usize,
    cpu: usize,
    number: u32,
    sub_buffers: Option<u64>,
}

/// A list that may be of any of several rings.
pub(super) struct Unowned {
    list: List,
    /// The CPU, if the events show it.
    cpu: Option<u32>,
}

/// Finds lists for rings that are lost, and returns those that no ring is proven to have. Reads the
/// whole image if rings are lost. `is_whole` says that all arrays of the kernel are among the
/// rings.
pub(super) fn fill(
    kernel: &Kernel,
    memory: &VirtualMemory,
    rings: &mut [&mut MemoryRing],
    (is_whole, formats): (bool, &BTreeMap<u16, Format>),
    evidence: &mut Evidence,
) -> Vec<Unowned> {
    let lanes = lanes(rings);
    if lanes.is_empty() {
        return Vec::new();
    }
    let mut shapes: Vec<Shape> = Vec::new();
    for shape in lanes.iter().filter_map(|l| rings.get(l.ring)).map(|r| r.shape()) {
        if !shapes.iter().any(|s| s.size == shape.size) {
            shapes.push(shape);
        }
    }
    let known: HashSet<u64> = carve::known(memory, rings);
    let mut lists = lists::find(kernel, memory, &shapes, &known).unwrap_or_else(|error| {
        evidence.notes.push(format!("rings that are lost are not looked for: {error}"));
        Vec::new()
    });
    // A list without events has nothing to tell or to lose. One with kinds that the kernel does not
    // have is no ring.
    let are_known = |list: &List| {
        let known =
            list.told.ids.iter().filter(|(id, _)| formats.contains_key(id)).map(|(_, count)| count);
        known.sum::<u64>() == list.told.events
    };
    lists.retain(|list| {
        list.told.events > 0 && are_known(list) && lanes.iter().any(|lane| fits(lane, rings, list))
    });
    let bound = bound_tasks(kernel);
    let mut unowned = Vec::new();
    for (at, mut lists) in by_owner(lists, rings, is_whole, &bound) {
        let mut own: Vec<&Lane> = match at {
            Some((array, cpu)) => lanes
                .iter()
                .filter(|lane| lane.number == cpu && array_of(rings, lane) == Some(array))
                .collect(),
            None => Vec::new(),
        };
        // A snapshot is older than the live ring.
        own.sort_by_key(|lane| rings.get(lane.ring).is_some_and(|ring| !ring.role.is_snapshot));
        lists.sort_by_key(|list| list.told.last);
        let all_fit = own.len() == lists.len()
            && own.iter().zip(&lists).all(|(lane, list)| fits(lane, rings, list));
        if all_fit {
            own.iter().zip(&lists).for_each(|(lane, list)| put(kernel, rings, lane, list, &bound));
        } else {
            unowned.extend(
                lists.into_iter().map(|list| Unowned { cpu: cpu_of(&list.told, &bound), list }),
            );
        }
    }
    for lane in &lanes {
        if let Some(found) =
            rings.get_mut(lane.ring).and_then(|ring| ring.found_mut().get_mut(lane.cpu))
            && found.lost.is_some()
        {
            let place =
                "the image lacks the structure of its ring, and nothing proves which list is its";
            found.gaps.push(missing(Some(lane.cpu), place.to_owned()));
        }
    }
    unowned
}

impl Unowned {
    /// Makes the ring of one CPU: the one that the events show, otherwise `unknown`.
    pub(super) fn into_cpu(self, kernel: &Kernel, unknown: u32) -> (Shape, Cpu) {
        let Self { list, cpu } = self;
        let mut found = ring::of_list(
            kernel,
            &list.chains,
            list.commit,
            list.reader,
            list.shape,
            0,
            cpu.unwrap_or(unknown),
        );
        let place = "whose ring it is, and how many events it overwrote and refused, because its structure is missing";
        found.gaps.push(Gap::not_known(Some(0), place));
        if cpu.is_none() {
            found.gaps.push(Gap::not_known(
                Some(0),
                "its CPU, which is shown as a number that no CPU has",
            ));
        }
        (list.shape, found)
    }
}

fn array_of(rings: &[&mut MemoryRing], lane: &Lane) -> Option<usize> {
    rings.get(lane.ring).map(|ring| ring.role.array)
}

/// Groups lists by the array and the CPU that they are proven to be of.
fn by_owner(
    lists: Vec<List>,
    rings: &[&mut MemoryRing],
    is_whole: bool,
    bound: &HashMap<u32, u32>,
) -> BTreeMap<Option<(usize, u32)>, Vec<List>> {
    let enabled: BTreeMap<usize, Option<&HashSet<u16>>> =
        rings.iter().map(|ring| (ring.role.array, ring.role.enabled.as_ref())).collect();
    let enabled: Option<Vec<(usize, &HashSet<u16>)>> =
        enabled.into_iter().map(|(array, enabled)| Some((array, enabled?))).collect();
    let enabled = enabled.filter(|_| is_whole).unwrap_or_default();
    let mut groups = BTreeMap::<_, Vec<List>>::new();
    for list in lists {
        let owner = owner(&list.told, &enabled).zip(cpu_of(&list.told, bound));
        groups.entry(owner).or_default().push(list);
    }
    groups
}

/// Returns the array that alone has all kinds of these events enabled.
fn owner(told: &CpuHints, enabled: &[(usize, &HashSet<u16>)]) -> Option<usize> {
    let kinds = || told.ids.keys().filter(|id| **id >= TRACERS);
    let mut having = enabled.iter().filter(|(_, enabled)| kinds().all(|id| enabled.contains(id)));
    match (kinds().next(), having.next(), having.next()) {
        (Some(_), Some((array, _)), None) => Some(*array),
        _ => None,
    }
}

/// Returns true if the list can be the lane's ring, by its sizes.
fn fits(lane: &Lane, rings: &[&mut MemoryRing], list: &List) -> bool {
    let nodes = list.nodes as u64;
    let has_number =
        |wanted: u64| if list.chains.closed { nodes == wanted } else { nodes <= wanted };
    rings.get(lane.ring).is_some_and(|ring| ring.shape().size == list.shape.size)
        && lane.sub_buffers.is_none_or(has_number)
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

/// Number of events that point to this CPU, and number of events that point to any CPU.
pub(super) fn votes(told: &CpuHints, bound: &HashMap<u32, u32>, cpu: u32) -> (u64, u64) {
    let tasks =
        told.pids.iter().filter_map(|(pid, count)| bound.get(pid).map(|cpu| (*cpu, *count)));
    let idle = told.idle.iter().map(|(cpu, count)| (*cpu, *count));
    tasks.chain(idle).fold((0, 0), |(own, all), (of, count)| {
        (own.saturating_add(if of == cpu { count } else { 0 }), count.saturating_add(all))
    })
}

/// The CPU that at least nine of ten events with a known CPU name; a task can be bound to another
/// CPU later.
pub(super) fn cpu_of(told: &CpuHints, bound: &HashMap<u32, u32>) -> Option<u32> {
    let named = told.pids.keys().filter_map(|pid| bound.get(pid)).chain(told.idle.keys());
    let cpus: HashSet<u32> = named.copied().collect();
    let best = cpus.into_iter().map(|cpu| (votes(told, bound, cpu), cpu)).max()?;
    let ((own, all), cpu) = best;
    (own > 0 && own.saturating_mul(10) >= all.saturating_mul(9)).then_some(cpu)
}

fn put(
    kernel: &Kernel,
    rings: &mut [&mut MemoryRing],
    lane: &Lane,
    list: &List,
    bound: &HashMap<u32, u32>,
) {
    let Some(ring) = rings.get_mut(lane.ring) else { return };
    let mut cpu = ring::of_list(
        kernel,
        &list.chains,
        list.commit,
        list.reader,
        ring.shape(),
        lane.cpu,
        lane.number,
    );
    let (own, all) = votes(&list.told, bound, lane.number);
    cpu.notes.push(format!(
        "CPU {}: the image lacks the structure of its ring; a list of {} sub-buffers that nothing points at is its: its events are of kinds \
         that only this instance has enabled, and {own} of {all} events that tell a CPU are of this one",
        lane.number, list.nodes
    ));
    cpu.gaps.push(Gap::not_known(
        Some(lane.cpu),
        "how many events its ring overwrote and refused, because its structure is missing",
    ));
    ring.replace(lane.cpu, cpu);
    ring.count_events(lane.cpu);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_one_array_alone_has_enabled_decide() {
        let told = |ids: &[u16]| CpuHints {
            ids: ids.iter().map(|id| (*id, 1)).collect(),
            ..CpuHints::default()
        };
        let [red, blue] = [HashSet::from([300, 301]), HashSet::from([300, 302])];
        let both = [(1, &red), (2, &blue)];
        assert_eq!(owner(&told(&[300, 301]), &both), Some(1));
        assert_eq!(owner(&told(&[5, 302]), &both), Some(2), "each array can have markers");
        assert_eq!(owner(&told(&[5, 300]), &both), None, "both have the event");
        assert_eq!(owner(&told(&[301, 302]), &both), None, "neither has both events");
        assert_eq!(owner(&told(&[5]), &both), None, "markers alone tell nothing");
        assert_eq!(owner(&told(&[300]), &[]), None, "the events of some array are not known");
    }

    #[test]
    fn few_events_of_other_cpus_do_not_decide() {
        let told = |pids: &[(u32, u64)]| CpuHints {
            pids: pids.iter().copied().collect(),
            ..CpuHints::default()
        };
        let bound = HashMap::from([(10, 0), (11, 1)]);
        assert_eq!(cpu_of(&told(&[(10, 19), (11, 1), (99, 50)]), &bound), Some(0));
        assert_eq!(cpu_of(&told(&[(10, 5), (11, 5)]), &bound), None);
        assert_eq!(cpu_of(&told(&[(99, 5)]), &bound), None);
    }
}
