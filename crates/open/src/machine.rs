//! Opens inputs with a kernel's tracer: dumps of a machine's memory, and trace.dat files.

use crate::Meter;
use lastwords_ftrace::{Array, Tracing};
use lastwords_kernel::{Kernel, Time, tasks};
use lastwords_render::perfetto::Task;
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

    /// Returns the offset to add to times of the kernel's log, to get nanoseconds since the epoch, if
    /// it is known. The log has the times of `local_clock`.
    #[must_use]
    pub fn log_real_time(&self) -> Option<i64> {
        let kernel = self.kernel.as_ref()?;
        let ahead = kernel.number("__sched_clock_offset", 8).unwrap_or(0);
        let wall = kernel.time().ok()?.wall;
        Some(wall.wrapping_sub(kernel.sched_clock()?.wrapping_add(ahead)).cast_signed())
    }

    /// Returns the tasks in the kernel's memory. What is missing there is left out.
    #[must_use]
    pub fn tasks(&self) -> Vec<Task> {
        let Some(kernel) = &self.kernel else { return Vec::new() };
        let process =
            |task: &tasks::Task| kernel.lineage(task).ok().filter(|_| task.pid == task.tgid);
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
