//! Sends a recording to a receiver: what describes it at the begin, and the account of its rings at
//! the end.

use crate::changes::Changes;
use crate::drain::Drain;
use crate::save::{self, Saved};
use anyhow::Context;
use lastwords_bytes::ByteOrder;
use lastwords_ftrace::{CpuRing, Stats, counters_of};
use lastwords_open::{Bundle, tracer_real_time};
use lastwords_stream::Sender;
use lastwords_stream::wire::{Counters, End, Settings};
use lastwords_trace::tracer::counts_nanoseconds;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The state that the last sent description is of.
#[derive(Debug, Default)]
pub(crate) struct Described {
    /// The modules of the kernel, with the addresses of their code.
    modules: Vec<(String, u64)>,
    /// The events that were enabled.
    events: BTreeSet<String>,
}

/// Sends the shape of the rings and the description of the events, which must arrive before the
/// first events. Opens the rings of all CPUs.
///
/// # Errors
/// The instance cannot be read, or the connection is broken.
pub(crate) fn begin(
    changes: &Changes,
    sender: &Arc<Sender>,
    flush: Duration,
) -> anyhow::Result<(Vec<Drain>, Described)> {
    let instance = changes.instance();
    let (size, cpus, clock) =
        (instance.sub_buffer_size(), instance.cpus()?, &changes.journal.clock);
    sender.settings(&Settings {
        is_big_endian: ByteOrder::NATIVE == ByteOrder::Big,
        page_size: u32::try_from(rustix::param::page_size()).context("the size of pages")?,
        sub_buffer_size: size,
        cpus: cpus.clone(),
        clock: clock.clone(),
        clock_in_ns: counts_nanoseconds(clock),
        tracer: instance.read("current_tracer")?.trim().to_owned(),
        real_time: tracer_real_time(clock),
    })?;
    let events = instance.enabled()?;
    let bundle = Bundle::of_running_tracer(Some(&events))?;
    sender.description(&bundle)?;
    let drains = cpus
        .into_iter()
        .map(|cpu| Drain::to_receiver(sender, &instance, (cpu, size), flush))
        .collect::<Result<_, _>>()?;
    Ok((drains, Described { modules: bundle.modules(), events }))
}

/// Sends what is left in the rings of a stopped instance, what has changed of the description, such
/// as the names of tasks, and the account. Returns when the receiver has said that it has all of
/// it.
///
/// # Errors
/// A ring cannot be read, the connection is broken, or the receiver does not have all of it.
pub(crate) fn finish(
    changes: &Changes,
    drains: Vec<Drain>,
    sender: &Sender,
    described: &Described,
) -> anyhow::Result<Saved> {
    let instance = changes.instance();
    let mut cpus = Vec::new();
    for mut drain in drains {
        drain.finish()?;
        let stats: Stats = changes.stats(drain.cpu)?;
        cpus.push(CpuRing {
            cpu: drain.cpu,
            sub_buffers: 0,
            sub_buffer_size: drain.sub_buffer_size(),
            stats,
        });
    }
    let changes = match instance.enabled()?.is_subset(&described.events) {
        true => Bundle::of_changes(&described.modules)?,
        // Another process has enabled more events in the instance.
        false => Bundle::of_running_tracer(None)?,
    };
    sender.description(&changes)?;
    let bytes = sender.bytes();
    let account = cpus.iter().map(|cpu| Counters::new(cpu.cpu, &cpu.stats)).collect();
    sender.end(&End { cpus: account, bytes })?;
    Ok(Saved {
        path: sender.address().to_string().into(),
        bytes,
        events: cpus.iter().fold(0, |sum, cpu| sum.saturating_add(cpu.stats.read)),
        gaps: counters_of(&cpus).chain(save::left_behind(&cpus)).collect(),
        cpus: cpus.iter().map(|cpu| cpu.cpu).collect(),
        is_stream: true,
        snapshots: Vec::new(),
        histograms: None,
        buffer: None,
        buffers: Vec::new(),
    })
}
