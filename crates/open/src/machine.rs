//! Opens inputs with a kernel's tracer: dumps of a machine's memory, and trace.dat files.

use crate::fired::Fired;
use crate::{Body, Memory, Meter, Opened, Options, Origin};
use crate::{lttng, persistent};
use anyhow::{Context, anyhow};
use lastwords_bytes::Budget;
use lastwords_formats::perfetto::{Process, Task};
use lastwords_ftrace::dat;
use lastwords_ftrace::{Array, Tracing};
use lastwords_image::HoleCause;
use lastwords_image::vmcore::Physical;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_kernel::{Kernel, Time, find, tasks};
use lastwords_lttng::Session;
use std::path::Path;
use std::sync::Arc;

/// A kernel's tracer.
pub struct Machine {
    /// The kernel, if the input is an image of its memory.
    pub kernel: Option<Arc<Kernel>>,
    /// The input is the memory of a machine.
    pub is_memory: bool,
    /// The data of its tracer.
    pub tracing: Arc<Tracing>,
    /// Counts what is read of its rings.
    pub meter: Arc<Meter>,
    /// Remarks on the file.
    pub notes: Vec<String>,
}

impl Machine {
    pub(super) fn new(
        kernel: Option<Arc<Kernel>>,
        mut tracing: Tracing,
        notes: Vec<String>,
    ) -> Self {
        let meter = Meter::new(&mut tracing);
        Self { is_memory: kernel.is_some(), kernel, tracing: Arc::new(tracing), meter, notes }
    }

    /// Returns the trace array at a position.
    #[must_use]
    pub fn array(&self, index: usize) -> Option<&Array> {
        self.tracing.arrays.get(index)
    }

    /// Returns the offset to add to readings of an array's clock, to get nanoseconds since the
    /// epoch. Returns none if it is not known.
    #[must_use]
    pub fn real_time(&self, index: usize) -> Option<i64> {
        if self.kernel.is_none() {
            return self
                .tracing
                .real_time
                .filter(|_| self.array(index).is_some_and(|array| array.is_in_ns()));
        }
        let (time, reading) = self.last_tick(index)?;
        Some(time.wall.wrapping_sub(reading).cast_signed())
    }

    /// Returns the nanoseconds that `CLOCK_BOOTTIME` is ahead of an array's clock. Returns none if
    /// this is not known.
    #[must_use]
    pub fn boot_time(&self, index: usize) -> Option<i64> {
        let (time, reading) = self.last_tick(index)?;
        Some(time.uptime.wrapping_sub(reading).cast_signed())
    }

    /// Returns the timekeeper's values at its last update, and the reading of an array's clock at
    /// that time.
    fn last_tick(&self, index: usize) -> Option<(Time, u64)> {
        let (array, kernel) = (self.array(index)?, self.kernel.as_ref()?);
        let time = kernel.time().ok()?;
        let reading = match array.clock_name() {
            "boot" => time.uptime,
            "mono" => time.monotonic,
            "local" => kernel.sched_clock()?,
            // The kernel keeps the correction of `local_clock()` in this variable.
            "global" | "perf" => kernel
                .sched_clock()?
                .wrapping_add(kernel.number("__sched_clock_offset", 8).unwrap_or(0)),
            _ => return None,
        };
        Some((time, reading))
    }

    /// Returns the tasks in the kernel's memory. What is missing there is left out.
    #[must_use]
    pub fn tasks(&self) -> Vec<Task> {
        let Some(kernel) = &self.kernel else { return Vec::new() };
        let process = |task: &tasks::Task| {
            let lineage = kernel.lineage(task).ok().filter(|_| task.pid == task.tgid)?;
            let tasks::Lineage { parent, uid, is_kernel_thread, started } = lineage;
            Some(Process { parent, uid, is_kernel_thread, started })
        };
        let rows = kernel.tasks().rows.into_iter();
        rows.map(|t| Task { pid: t.pid, tgid: t.tgid, process: process(&t), comm: t.comm })
            .collect()
    }

    /// Returns true if the array at a position has events.
    #[must_use]
    pub fn has_events(&self, index: usize) -> bool {
        // A trace.dat file does not have the number of events of all its buffers.
        let is_file = self.kernel.is_none();
        let rings = self
            .array(index)
            .into_iter()
            .flat_map(|array| std::iter::once(&array.live).chain(&array.snapshot));
        let mut cpus = rings.flat_map(|ring| ring.cpus());
        cpus.any(|cpu| cpu.stats.entries > 0 || is_file && cpu.sub_buffers > 0)
    }
}

/// Returns the name of an array on the command line.
fn name(array: &Array) -> String {
    if array.name.is_empty() { "top".to_owned() } else { array.name.clone() }
}

/// Adds a machine and its traces.
pub(super) fn add(
    path: &Path,
    kind: &'static str,
    machine: Machine,
    sessions: Vec<Session>,
    options: &Options<'_>,
    opened: &mut Opened,
) {
    let sessions = lttng::bodies(sessions, options.watch);
    let origin = Origin { path: path.to_owned(), kind, core: None, machine: Some(machine) };
    let arrays = arrays(&origin, options);
    opened.add(options, origin, arrays.into_iter().chain(sessions).collect());
}

/// Opens a trace.dat file.
///
/// # Errors
/// The file cannot be read.
pub(super) fn open_dat(
    path: &Path,
    options: &Options<'_>,
    budget: &Arc<Budget>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let mut tracing = dat::open(path, budget).with_context(|| path.display().to_string())?;
    let notes = Fired::beside(path)?
        .map_or_else(Vec::new, |fired| fired.apply(&mut tracing, options.whole));
    add(path, "trace.dat", Machine::new(None, tracing, notes), Vec::new(), options, opened);
    Ok(())
}

/// Adds the traces of a kernel in the memory of a machine.
///
/// # Errors
/// Its tracer cannot be read.
pub(super) fn open_memory(
    path: &Path,
    physical: &Physical,
    found: find::FoundKernel,
    options: &Options<'_>,
    budget: Arc<Budget>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let named = || path.display().to_string();
    let (kernel, memory, mut notes) =
        kernel(physical, found, &options.memory, Arc::clone(&budget), ADVICE)
            .with_context(named)?;
    let tracing = lastwords_ftrace::memory::read(&kernel, Some(&memory));
    let source = options.memory.lttng(&kernel)?;
    let sessions = lttng::of_kernel(&kernel, &memory, &source, options.watch, &mut notes);
    // If there are sessions of LTTng, they are kept even if ftrace cannot be read.
    let tracing = match tracing {
        Err(error) if !sessions.is_empty() => {
            notes.push(format!("its ftrace is not known: {error}"));
            lastwords_ftrace::memory::without_arrays(&kernel)
        }
        tracing => tracing.with_context(named)?,
    };
    let mut tracing = tracing;
    let mut regions = Vec::new();
    if persistent::is_configured(&kernel) {
        match persistent::find(&physical.image, Some((&kernel, &tracing)), options, &budget)
            .with_context(named)
        {
            Ok(found) => regions = found,
            Err(error) => opened.errors.push(error),
        }
    }
    let is_replaced =
        |index: &usize| regions.iter().any(|region| region.instead_of == Some(*index));
    let kept = tracing.arrays.into_iter().enumerate().filter(|(index, _)| !is_replaced(index));
    tracing.arrays = kept.map(|(_, array)| array).collect();
    add(
        path,
        physical.format.words(),
        Machine::new(Some(kernel), tracing, notes),
        sessions,
        options,
        opened,
    );
    persistent::add(path, regions, options, opened);
    Ok(())
}

/// The command that works for a dump whose end is missing.
const ADVICE: &str = ". `lastwords recover --carve` searches the part that is there";

/// Opens the kernel that was found in a memory. Returns it with its memory and remarks. If the
/// kernel's symbols are in a part of the dump that is missing, the error ends with `advice`.
pub(super) fn kernel(
    physical: &Physical,
    found: find::FoundKernel,
    memory: &Memory,
    budget: Arc<Budget>,
    advice: &str,
) -> anyhow::Result<(Arc<Kernel>, Arc<VirtualMemory>, Vec<String>)> {
    let notes = physical.notes.iter().cloned().chain(found.notes).collect();
    let (sources, given) = (memory.sources(&found.info)?, memory.btf.as_ref());
    let memory = Arc::new(found.memory);
    let kernel = Kernel::open(memory.clone(), &found.info, sources, budget).map_err(|error| {
        let is_of_file =
            matches!(&error, lastwords_kernel::Error::Bytes(error) if &*error.what == "BTF");
        let error = missing_part(error, physical, advice);
        match given.filter(|_| is_of_file) {
            Some(path) => error.context(crate::memory::given("--btf", path)),
            None => error,
        }
    })?;
    Ok((Arc::new(kernel), memory, notes))
}

/// Says of an error that comes from the end of a dump that was cut off how much of the dump is
/// there, and adds `advice`.
fn missing_part(
    error: lastwords_kernel::Error,
    physical: &Physical,
    advice: &str,
) -> anyhow::Error {
    match &error {
        lastwords_kernel::Error::Hole { hole, .. } if hole.cause == HoleCause::Truncated => {
            // The caller names the file.
            let name = format!("{}: ", physical.image.name());
            let note = |note: &String| format!("{}. ", note.strip_prefix(&name).unwrap_or(note));
            let cut = physical.notes.first().map_or_else(String::new, note);
            anyhow!("{cut}The kernel's symbols are in the part that is missing ({error}){advice}")
        }
        _ => error.into(),
    }
}

/// Finds sub-buffers of ftrace anywhere in the memory, and groups them in rings as they fit.
///
/// # Errors
/// The kernel does not have the formats of events.
pub(super) fn carve(
    physical: &Physical,
    found: find::FoundKernel,
    memory: &Memory,
    budget: Arc<Budget>,
) -> anyhow::Result<Machine> {
    let (kernel, memory, notes) = kernel(physical, found, memory, budget, "")?;
    let tracing = lastwords_ftrace::memory::carve(&kernel, &memory)?;
    Ok(Machine::new(Some(kernel), tracing, notes))
}

/// Adds the traces that carving found.
pub(super) fn add_carved(
    origin: Origin,
    bodies: Vec<(String, Body)>,
    options: &Options<'_>,
    opened: &mut Opened,
) {
    let arrays = arrays(&origin, options);
    opened.add(options, origin, bodies.into_iter().chain(arrays).collect());
}

/// Returns the trace arrays of a machine with their names.
fn arrays(origin: &Origin, options: &Options<'_>) -> Vec<(String, Body)> {
    let snapshot = options.snapshot;
    let arrays =
        origin.machine.iter().flat_map(|machine| machine.tracing.arrays.iter().enumerate());
    arrays.map(|(index, array)| (name(array), Body::Ftrace { array: index, snapshot })).collect()
}
