//! Reads ftrace from a kernel's memory: every trace array with its rings and snapshots, event
//! formats, names.
//!
//! Sub-buffers are found through the kernel's own lists. If the image lacks structures, sub-buffers
//! are found by their contents. Only the image is needed.

mod arrays;
mod carve;
mod chain;
mod columns;
mod compiled;
mod field_list;
mod formats;
mod histograms;
mod lists;
mod loose;
mod lost;
mod memory_ring;
mod names;
mod preempt;
mod printk;
mod ring;
mod search;

pub use histograms::{Histograms, count_histograms, histograms};
pub use loose::carve;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{HeaderPage, Tracing};
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_kernel::{Error, Kernel, Mask};
use lastwords_trace::evidence::{Evidence, Gap};

/// Reads all ftrace data of the kernel. `memory` is searched for sub-buffers that no pointer leads
/// to.
///
/// # Errors
/// The kernel has no ftrace, or its top level cannot be read.
pub fn read(kernel: &Arc<Kernel>, memory: Option<&Arc<VirtualMemory>>) -> Result<Tracing, Error> {
    let mut evidence = Evidence::default();
    let formats = formats::read(kernel, &mut evidence)?;
    let arrays = arrays::read(kernel, memory, &formats, &mut evidence)?;
    let tracing = without_arrays(kernel);
    evidence.append(tracing.evidence.clone());
    Ok(Tracing { arrays, formats, evidence, ..tracing })
}

/// Reads what describes the events of a kernel in memory: everything except arrays.
///
/// # Errors
/// The event formats cannot be read.
pub fn description(kernel: &Arc<Kernel>) -> Result<Tracing, Error> {
    let mut tracing = without_arrays(kernel);
    tracing.formats = formats::read(kernel, &mut tracing.evidence)?;
    Ok(tracing)
}

/// Reads what describes the events that are compiled into a kernel, from its file. The notes are
/// about events alone, because a kernel that has not booted has no names of tasks and no modules.
///
/// # Errors
/// The event formats cannot be read.
pub fn compiled_description(kernel: &Arc<Kernel>) -> Result<Tracing, Error> {
    let mut evidence = Evidence::default();
    let formats = compiled::read(kernel, &mut evidence.notes)?;
    Ok(Tracing { formats, evidence, pointer_key: None, ..without_arrays(kernel) })
}

/// Reads everything except arrays and event formats, for a kernel without readable ftrace.
pub fn without_arrays(kernel: &Arc<Kernel>) -> Tracing {
    let mut evidence = Evidence::default();
    let virtual_memory = &kernel.memory;
    let uname = kernel.uname().unwrap_or_default();
    let mut noted = |what: &str, error: &Error| {
        evidence.gaps.push(Gap::not_known(None, &format!("{what}: {error}")))
    };
    kernel.missing.iter().for_each(|error| noted("names of the kernel's addresses", error));
    let cpus = running_cpus(kernel);
    if cpus == 0 {
        noted(
            "the number of CPUs",
            &Error::Null { structure: "cpumask".into(), member: "cpu_online_mask".into() },
        );
    }
    let pointer_key = printk::pointer_key(kernel).unwrap_or_else(|error| {
        noted("the key by which the kernel hides addresses", &error);
        None
    });
    let printk_formats = printk::formats(kernel).unwrap_or_else(|error| {
        noted("formats of trace_printk", &error);
        Default::default()
    });
    let comms = kernel.saved_cmdlines();
    comms.missing.iter().for_each(|error| noted("names of tasks", error));
    let comms = BTreeMap::from_iter(comms.rows);
    Tracing {
        uname: format!(
            "{} {} {} {} {}",
            uname.system, uname.node, uname.release, uname.version, uname.machine
        ),
        release: uname.release,
        page_size: u32::try_from(virtual_memory.page_size()).unwrap_or(4096),
        cpus,
        comms,
        // The kernel keeps these only if the option record-tgid was ever on.
        tgids: kernel.saved_tgids().map(BTreeMap::from_iter).unwrap_or_default(),
        printk_formats,
        symbols: Arc::new(names::Names::new(kernel.clone())),
        pointer_key,
        preempt_voluntary: preempt::is_voluntary(kernel, &uname.machine),
        flag_columns: columns::read(kernel),
        machine: uname.machine,
        preempt_dynamic_mode: kernel
            .number("preempt_dynamic_mode", 4)
            .ok()
            .and_then(|mode| u8::try_from(mode).ok()),
        evidence,
        ..Tracing::from_uname(
            "",
            HeaderPage::of_word_size(virtual_memory.word_size()),
            virtual_memory.byte_order(),
        )
    }
}

/// Number of CPUs that ran. A panic takes other CPUs offline to stop them, but they stay active;
/// unplugged CPUs do not.
fn running_cpus(kernel: &Kernel) -> u32 {
    let online = kernel.cpus(Mask::Online).len();
    let active = kernel.symbol("__cpu_active_mask").map_or(0, |at| kernel.mask(at).len());
    u32::try_from(online.max(active)).unwrap_or(u32::MAX)
}
