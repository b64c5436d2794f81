//! Rebuilds rings of which only the sub-buffers are left.
//!
//! A page of the image is accepted as a sub-buffer if its header is valid and its events fill the
//! committed bytes exactly. All events must be of known kinds, have room for their fields, and name
//! possible tasks. The CPU is derived from tasks that are bound to a CPU and from idle tasks.
//! Sub-buffers of one ring and CPU follow each other in time; as many rings are made as that needs.

use super::lists::{self, CpuHints};
use super::lost::{bound_tasks, cpu_of};
use super::memory_ring::MemoryRing;
use super::ring::{Break, Cpu, Shape, Summary, default_shape, missing};
use super::search::{self, Candidate, EVENTS, Window, are_known};
use super::{formats, without_arrays};
use crate::{Array, Format, Tracing};
use lastwords_image::Image;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_kernel::{Error, Kernel, Mask};
use lastwords_trace::evidence::Gap;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Most sub-buffers of the image that are examined.
const PAGES_MAX: usize = 1 << 18;

/// A sub-buffer that was proven by its contents.
#[derive(Debug)]
struct Loose {
    address: u64,
    look: Summary,
    /// CPU of the sub-buffer, if known.
    cpu: Option<u32>,
}

/// Sub-buffers of one ring and CPU, ordered by time.
#[derive(Debug, Default)]
struct Row {
    pages: Vec<(u64, Summary)>,
}

/// Finds all ftrace sub-buffers in `memory`, including those of known rings; returns them as arrays
/// `carved`, `carved-2` and so on.
///
/// # Errors
/// The kernel's event formats cannot be read, or the budget is spent.
pub fn carve(kernel: &Arc<Kernel>, memory: &Arc<VirtualMemory>) -> Result<Tracing, Error> {
    let mut tracing = without_arrays(kernel);
    tracing.formats = formats::read(kernel, &mut tracing.evidence)?;
    let shape = default_shape(kernel);
    let pages = search(kernel, memory.physical(), shape, &tracing.formats)?;
    let unknown = no_cpu(kernel);
    let silent = pages.iter().filter(|page| page.cpu.is_none()).count();
    tracing.evidence.notes.push(format!(
        "carved: {} sub-buffers were found by their contents; those of rings that are gone may be among them, and nothing says what \
         was lost between them",
        pages.len()
    ));
    if silent > 0 {
        tracing.evidence.notes.push(format!(
            "{silent} sub-buffers do not show their CPU: they are listed as CPU {unknown}"
        ));
    }
    for (n, rows) in rings(&pages, unknown).into_iter().enumerate() {
        let name =
            if n == 0 { "carved".to_owned() } else { format!("carved-{}", n.saturating_add(1)) };
        tracing.arrays.push(array(kernel, memory, shape, name, rows));
    }
    Ok(tracing)
}

/// Finds the pages that prove to be sub-buffers, without duplicates, ordered by time.
fn search(
    kernel: &Kernel,
    physical: &Arc<dyn Image>,
    shape: Shape,
    formats: &BTreeMap<u16, Format>,
) -> Result<Vec<Loose>, Error> {
    let any = Window {
        ring: 0,
        cpu: 0,
        at: Break { before: 0, count: None },
        after: 1,
        before: u64::MAX,
    };
    let bound = bound_tasks(kernel);
    let (mut pages, mut bytes, mut seen) = (Vec::new(), vec![0u8; shape.size], HashSet::new());
    for found in search::search(kernel, physical, shape, &[any], &HashSet::new())? {
        let look = found.look;
        if pages.len() >= PAGES_MAX
            || look.events < EVENTS
            || physical.read(found.address, &mut bytes).is_err()
        {
            continue;
        }
        if !are_known(kernel, &bytes, shape, &look, formats) {
            continue;
        }
        // Files and pipes keep copies of sub-buffers.
        if !seen.insert((look.first, look.last, look.commit, look.events)) {
            continue;
        }
        pages.push(loose(kernel, &bytes, shape, &found, &bound));
    }
    Ok(pages)
}

fn loose(
    kernel: &Kernel,
    bytes: &[u8],
    shape: Shape,
    found: &Candidate,
    bound: &HashMap<u32, u32>,
) -> Loose {
    let mut told = CpuHints::default();
    lists::ask(kernel, &mut told, bytes, shape, &found.look);
    Loose { address: found.address, look: found.look, cpu: cpu_of(&told, bound) }
}

/// Makes arrays of sub-buffers that no ring is proven to have. They take the next names.
pub(super) fn arrays(
    kernel: &Arc<Kernel>,
    memory: &Arc<VirtualMemory>,
    (shape, found): (Shape, &[Candidate]),
    names: &mut dyn Iterator<Item = String>,
) -> Vec<Array> {
    let (bound, mut bytes) = (bound_tasks(kernel), vec![0u8; shape.size]);
    let mut read = |at: &Candidate| {
        memory
            .physical()
            .read(at.address, &mut bytes)
            .is_ok()
            .then(|| loose(kernel, &bytes, shape, at, &bound))
    };
    let pages: Vec<Loose> = found.iter().filter_map(&mut read).collect();
    rings(&pages, no_cpu(kernel))
        .into_iter()
        .zip(names)
        .map(|(rows, name)| array(kernel, memory, shape, name, rows))
        .collect()
}

/// Returns the number that stands for an unknown CPU: the first that no CPU has.
pub(super) fn no_cpu(kernel: &Kernel) -> u32 {
    kernel.cpus(Mask::Possible).into_iter().max().unwrap_or(0).saturating_add(1)
}

/// Distributes sub-buffers, ordered by time, over as many rings as needed so that no two of the
/// same CPU overlap.
fn rings(pages: &[Loose], unknown: u32) -> Vec<BTreeMap<u32, Row>> {
    let mut rings: Vec<BTreeMap<u32, Row>> = Vec::new();
    for page in pages {
        let cpu = page.cpu.unwrap_or(unknown);
        let behind = |ring: &BTreeMap<u32, Row>| {
            let last = ring.get(&cpu).and_then(|row| row.pages.last());
            last.map_or(Some(u64::MAX), |(_, look)| page.look.first.checked_sub(look.last))
        };
        let near = rings.iter().enumerate().filter_map(|(n, ring)| Some((behind(ring)?, n))).min();
        let at = near.map_or(rings.len(), |(_, n)| n);
        if at == rings.len() {
            rings.push(BTreeMap::new());
        }
        if let Some(ring) = rings.get_mut(at) {
            ring.entry(cpu).or_default().pages.push((page.address, page.look));
        }
    }
    rings
}

fn array(
    kernel: &Arc<Kernel>,
    memory: &Arc<VirtualMemory>,
    shape: Shape,
    name: String,
    rows: BTreeMap<u32, Row>,
) -> Array {
    let found: Vec<Cpu> =
        rows.iter().enumerate().map(|(n, (cpu, row))| of_row(*cpu, n, row, shape)).collect();
    let count = found.len();
    let mut ring =
        MemoryRing::new(kernel.clone(), Some(memory.physical().clone()), shape, found, 0);
    (0..count).for_each(|cpu| ring.count_events(cpu));
    ring.recount();
    ring.facts =
        ["its tracer", "its clock", "its options"].map(|fact| Gap::not_known(None, fact)).to_vec();
    Array::unknown(name, Arc::new(ring))
}

fn of_row(cpu: u32, stream: usize, row: &Row, shape: Shape) -> Cpu {
    let mut found = Cpu::new(cpu, shape);
    for (at, (address, look)) in row.pages.iter().enumerate() {
        found.insert(stream, at, *address, look);
    }
    let place = format!("CPU {cpu}: its ring: what was lost is not known");
    found.gaps.push(missing(Some(stream), place));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loose(address: u64, times: (u64, u64), cpu: Option<u32>) -> Loose {
        Loose {
            address,
            look: Summary { first: times.0, last: times.1, commit: 64, events: 9 },
            cpu,
        }
    }

    #[test]
    fn what_overlaps_is_of_another_ring() {
        let pages = [
            loose(1, (0, 10), Some(0)),
            loose(2, (0, 30), Some(1)),
            loose(3, (5, 25), Some(0)),
            loose(4, (10, 20), Some(0)),
            loose(5, (26, 40), Some(0)),
            loose(6, (30, 50), None),
        ];
        let found: Vec<Vec<(u32, Vec<u64>)>> = rings(&pages, 2)
            .into_iter()
            .map(|ring| {
                ring.into_iter()
                    .map(|(cpu, row)| (cpu, row.pages.iter().map(|page| page.0).collect()))
                    .collect()
            })
            .collect();
        // The fifth is closer to the third than to the fourth.
        assert_eq!(
            found,
            [vec![(0, vec![1, 4]), (1, vec![2]), (2, vec![6])], vec![(0, vec![3, 5])]]
        );
    }
}
