//! Sub-buffers whose header says that nothing is committed, although they have events.
//!
//! Linux 6.12 empties the header of a sub-buffer when a reader takes the next one, and the headers
//! of all sub-buffers when it begins anew. The events stay until a writer comes round. Nothing says
//! which boot recorded them: so they make a ring of their own, apart from that of the last boot.

use super::{CpuMeta, Judged, Region, Verdict};
use crate::{CpuRing, Stats};
use lastwords_trace::evidence::{Evidence, SubBuffer};
use std::sync::Arc;

impl Region {
    /// The sub-buffers of a CPU that are emptied and whole up to their end, in the order of their
    /// times. Where the times of two overlap, they are of two boots: the later one in this order is
    /// left out, so that the times of a ring never go back.
    pub(super) fn emptied_of(&self, meta: &CpuMeta, all: &[Judged]) -> Vec<Judged> {
        let mut bytes = Vec::new();
        let mut whole: Vec<Judged> = Vec::new();
        for sub in all.iter().filter(|sub| sub.has_remains && sub.committed == 0) {
            let mut sub = sub.clone();
            self.load(meta, sub.number, &mut bytes);
            sub.mend_size(&bytes, self.header_page(), self.layout.byte_order);
            if sub.committed > 0 {
                (sub.verdict, sub.why) = (Verdict::Committed, String::new());
                whole.push(sub);
            }
        }
        whole.sort_by_key(|sub| (sub.first, sub.number));
        let mut last = 0;
        whole.retain(|sub| {
            let follows = sub.first >= last;
            last = if follows { sub.last } else { last };
            follows
        });
        whole
    }

    /// The ring of the emptied sub-buffers; none where there are none.
    #[must_use]
    pub fn emptied(&self) -> Option<Self> {
        let mut evidence = Evidence::default();
        let mut cpus = Vec::new();
        for (stream, (meta, subs)) in self.emptied.iter().enumerate() {
            let header = u64::from(self.header_page().data_offset);
            for (sequence, sub) in subs.iter().enumerate() {
                let content = (sub.committed as u64).saturating_add(header);
                let (verdict, why, sequence) = (sub.verdict, sub.why.clone(), sequence as u64);
                evidence.sub_buffers.push(SubBuffer { stream, sequence, verdict, content, why });
            }
            let total =
                |of: &dyn Fn(&Judged) -> u64| subs.iter().map(of).fold(0, u64::saturating_add);
            let (entries, bytes) = (total(&|sub| sub.events), total(&|sub| sub.committed as u64));
            let stats = Stats { entries, bytes, ..Stats::default() };
            let (cpu, sub_buffer_size) =
                (u32::try_from(stream).unwrap_or(u32::MAX), meta.sub_buffer_size);
            cpus.push(CpuRing { cpu, sub_buffers: subs.len(), sub_buffer_size, stats });
        }
        let has_some = cpus.iter().any(|cpu| cpu.sub_buffers > 0);
        has_some.then(|| Self {
            boot: self.boot.clone(),
            image: Arc::clone(&self.image),
            planned: self.emptied.clone(),
            emptied: Vec::new(),
            cpus,
            evidence,
            ..*self
        })
    }
}
