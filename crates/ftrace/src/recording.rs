//! Answers the questions of writers about a kernel whose tracer recorded a trace.

use crate::filter::{add_names, is_known};
use crate::page::Events;
use crate::print::{Names, Show};
use crate::{Ring, Tracing};
use lastwords_filter::{Described, Name};
use lastwords_trace::tracer::{Addresses, Machine, Stats, Thread, Tracer};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A kernel's tracer, with the ring that is read.
#[derive(Clone, Copy)]
pub struct Recording<'a> {
    /// The tracer.
    pub tracing: &'a Tracing,
    /// The ring.
    pub ring: &'a dyn Ring,
}

impl Tracer for Recording<'_> {
    fn machine(&self) -> Machine<'_> {
        let Tracing { uname, release, machine: name, page_size, cpus, .. } = self.tracing;
        Machine { uname, release, name, page_size: *page_size, cpus: *cpus }
    }

    fn threads(&self) -> Vec<Thread<'_>> {
        let Tracing { tgids, comms, .. } = self.tracing;
        let thread = |(pid, tgid): (&u32, &u32)| Thread {
            pid: *pid,
            tgid: *tgid,
            comm: comms.get(pid).map_or("", String::as_str),
        };
        tgids.iter().map(thread).collect()
    }

    fn counters(&self) -> Vec<(u32, Stats)> {
        self.ring.cpus().iter().map(|cpu| (cpu.cpu, cpu.stats)).collect()
    }

    fn earliest(&self) -> u64 {
        let mut bytes = Vec::new();
        let first = |cpu: usize| {
            let info = self.ring.sub_buffer(cpu, 0, &mut bytes);
            let tracing = self.tracing;
            let mut events =
                Events::new(&bytes, tracing.header_page, tracing.byte_order, info.committed);
            let _first = events.next()?;
            Some(events.time())
        };
        let cpus = self.ring.cpus().iter().enumerate().filter(|(_, cpu)| cpu.sub_buffers > 0);
        cpus.map(|(at, _)| at).filter_map(first).min().unwrap_or(0)
    }

    fn declaration(&self, event: u64, field: &str) -> Option<&str> {
        let format = self.tracing.formats.get(&u16::try_from(event).ok()?)?;
        let field = format.fields.iter().find(|own| own.name == field)?;
        Some(&field.declaration)
    }

    fn addresses(&self) -> Box<dyn Addresses> {
        Box::new(Names::new(self.tracing, false))
    }
}

impl Addresses for Names {
    fn has(&self, address: u64) -> bool {
        Self::has(self, address)
    }

    fn show(&mut self, out: &mut Vec<u8>, address: u64) {
        Self::show(self, out, address, Show::Bare);
    }

    fn text_at(&self, address: u64) -> Option<Arc<[u8]>> {
        Self::text_at(self, address)
    }
}

impl Described for Tracing {
    fn has(&self, name: &Name) -> bool {
        is_known(name, self)
    }

    fn add_names(&self, names: &mut BTreeSet<String>) {
        add_names(self, names);
    }

    fn add_events(&self, names: &mut BTreeSet<String>) {
        let name = |format: &crate::Format| format!("{}:{}", format.system, format.name);
        names.extend(self.formats.values().map(name));
    }
}
