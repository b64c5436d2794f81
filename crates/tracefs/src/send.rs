//! Sends a recording to a receiver: what describes it at the begin, and the account of its rings at the end.

use crate::changes::Changes;
use crate::drain::Drain;
use crate::save::{self, Saved};
use anyhow::Context;
use lastwords_formats::ftrace::dat;
use lastwords_open::{Bundle, tracer_real_time};
use lastwords_stream::Sender;
use lastwords_stream::wire::{Counters, End, Hello, Settings};
use lastwords_trace::ftrace::{CpuRing, Stats, counters_of};
use std::sync::Arc;

/// Returns what a sender says of itself.
pub(crate) fn hello(instance: &str) -> Hello {
    let uname = rustix::system::uname();
    Hello { host: uname.nodename().to_string_lossy().into_owned(), instance: instance.to_owned() }
}

/// Sends the shape of the rings and the description of the events, which must arrive before the first events. Opens the rings of all
/// CPUs.
///
/// # Errors
/// The instance cannot be read, or the connection is broken.
pub(crate) fn begin(changes: &Changes, sender: &Arc<Sender>) -> anyhow::Result<Vec<Drain>> {
    let instance = changes.instance();
    let (size, cpus, clock) = (instance.sub_buffer_size(), instance.cpus()?, &changes.journal.clock);
    sender.settings(&Settings {
        is_big_endian: cfg!(target_endian = "big"),
        page_size: u32::try_from(rustix::param::page_size()).context("the size of pages")?,
        sub_buffer_size: size,
        cpus: cpus.clone(),
        clock: clock.clone(),
        clock_in_ns: dat::counts_nanoseconds(clock),
        tracer: instance.read("current_tracer")?.trim().to_owned(),
        real_time: tracer_real_time(clock),
    })?;
    sender.description(&Bundle::of_running_tracer()?)?;
    cpus.into_iter().map(|cpu| Drain::to_receiver(sender, &instance, cpu, size)).collect()
}

/// Sends what is left in the rings of a stopped instance, the names of tasks as they are now, and the account. Returns when the
/// receiver has said that it has all of it.
///
/// # Errors
/// A ring cannot be read, the connection is broken, or the receiver does not have all of it.
pub(crate) fn finish(changes: &Changes, drains: Vec<Drain>, sender: &Sender) -> anyhow::Result<Saved> {
    let instance = changes.instance();
    let mut cpus = Vec::new();
    for mut drain in drains {
        drain.finish()?;
        let stats: Stats = instance.stats(drain.cpu)?;
        cpus.push(CpuRing { cpu: drain.cpu, sub_buffers: 0, sub_buffer_size: drain.sub_buffer_size(), stats });
    }
    sender.description(&Bundle::of_running_tracer()?)?;
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
        snapshot: None,
    })
}
