//! A ring in an image; its sub-buffers are read on demand.

use std::collections::HashSet;
use std::sync::Arc;

use crate::page::{self, Events};
use crate::{CpuRing, Latency, Ring, Stats, SubBufferInfo};
use lastwords_image::Image;
use lastwords_kernel::Kernel;
use lastwords_trace::evidence::{Evidence, Gap, Verdict};

use super::ring::{self, Cpu, Shape, Summary, Where};

/// One ring with all its CPUs.
pub(super) struct MemoryRing {
    kernel: Arc<Kernel>,
    physical: Option<Arc<dyn Image>>,
    shape: Shape,
    cpus: Vec<CpuRing>,
    found: Vec<Cpu>,
    time_start: u64,
    /// Facts of the ring's array that are not known.
    pub(super) facts: Vec<Gap>,
    /// Facts that tell this ring's sub-buffers from those of other rings.
    pub(super) role: Role,
    /// Header of the latency format.
    pub(super) latency: Latency,
}

/// Facts about a ring from outside its own structures.
#[derive(Debug, Clone, Default)]
pub(super) struct Role {
    /// Number of the array.
    pub(super) array: usize,
    /// True if the ring is the snapshot of its array.
    pub(super) is_snapshot: bool,
    /// Ids of the events that are enabled in the array; none if not all of them are known.
    pub(super) enabled: Option<HashSet<u16>>,
}

impl MemoryRing {
    pub(super) fn new(
        kernel: Arc<Kernel>,
        physical: Option<Arc<dyn Image>>,
        shape: Shape,
        found: Vec<Cpu>,
        time_start: u64,
    ) -> Self {
        let cpus = found
            .iter()
            .map(|c| CpuRing { sub_buffers: c.places.len(), ..c.ring.clone() })
            .collect();
        Self {
            kernel,
            physical,
            shape,
            cpus,
            found,
            time_start,
            facts: Vec::new(),
            role: Role::default(),
            latency: Latency::default(),
        }
    }

    /// Size of the ring's sub-buffers.
    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Summary of each sub-buffer of a CPU; none for a missing or damaged one.
    pub(super) fn looks(&self, cpu: usize) -> Vec<Option<Summary>> {
        let order = self.kernel.memory.byte_order();
        let mut bytes = Vec::new();
        let places = self.found.get(cpu).map_or(0, |c| c.places.len());
        (0..places)
            .map(|n| {
                let info = self.sub_buffer(cpu, n, &mut bytes);
                if info.verdict == Verdict::Missing {
                    None
                } else {
                    ring::look(&bytes, order, self.shape.header).ok()
                }
            })
            .collect()
    }

    /// Computes a CPU's counters from its sub-buffers if the structure with the counters is lost:
    /// events that are there and not read. The number of overwritten events is unknown.
    pub(super) fn count_events(&mut self, cpu: usize) {
        let order = self.kernel.memory.byte_order();
        let mut stats = Stats::default();
        let mut bytes = Vec::new();
        for index in 0..self.found.get(cpu).map_or(0, |c| c.places.len()) {
            let info = self.sub_buffer(cpu, index, &mut bytes);
            let events =
                |len| Events::new(&bytes, self.shape.header, order, len).flatten().count() as u64;
            let read = events(info.consumed);
            stats.read = stats.read.saturating_add(read);
            stats.entries =
                stats.entries.saturating_add(events(info.committed).saturating_sub(read));
            stats.bytes =
                stats.bytes.saturating_add(info.committed.saturating_sub(info.consumed) as u64);
        }
        if let (Some(ring), Some(found)) = (self.cpus.get_mut(cpu), self.found.get_mut(cpu)) {
            (ring.stats, found.ring.stats) = (stats, stats);
            found.is_counted = true;
        }
    }

    /// Updates the number of sub-buffers of each CPU.
    pub(super) fn recount(&mut self) {
        for (cpu, found) in self.cpus.iter_mut().zip(&self.found) {
            cpu.sub_buffers = found.places.len();
        }
    }

    /// Replaces a lost CPU's ring.
    pub(super) fn replace(&mut self, index: usize, found: Cpu) {
        if let (Some(place), Some(ring)) = (self.found.get_mut(index), self.cpus.get_mut(index)) {
            ring.clone_from(&found.ring);
            ring.sub_buffers = found.places.len();
            *place = found;
        }
    }

    /// The rings of the CPUs.
    pub(super) fn found_mut(&mut self) -> &mut [Cpu] {
        &mut self.found
    }
}

impl Ring for MemoryRing {
    fn cpus(&self) -> &[CpuRing] {
        &self.cpus
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        bytes.clear();
        bytes.resize(self.shape.size, 0);
        let Some(place) = self.found.get(cpu).and_then(|c| c.places.get(index)) else {
            return SubBufferInfo::MISSING;
        };
        let read = match (place.at, &self.physical) {
            (Where::Virtual(address), _) => self.kernel.memory.read(address, bytes).is_ok(),
            (Where::Physical(address), Some(image)) => image.read(address, bytes).is_ok(),
            (Where::Physical(_), None) => false,
        };
        let order = self.kernel.memory.byte_order();
        match page::header(bytes, self.shape.header, order) {
            Ok(header) if read => SubBufferInfo {
                committed: header.committed,
                consumed: place.consumed,
                missed: header.missed,
                verdict: place.verdict,
            },
            _ => SubBufferInfo::MISSING,
        }
    }

    fn latency(&self) -> Latency {
        self.latency.clone()
    }

    fn time_start(&self) -> u64 {
        self.time_start
    }

    fn evidence(&self) -> Evidence {
        let mut all = Evidence { gaps: self.facts.clone(), ..Evidence::default() };
        for cpu in &self.found {
            all.sub_buffers.extend(cpu.sub_buffers.iter().cloned());
            all.gaps.extend(cpu.gaps.iter().cloned());
            all.notes.extend(cpu.notes.iter().cloned());
        }
        all
    }
}
