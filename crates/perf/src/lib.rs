//! Reads perf's buffers out of a kernel's memory: events, positions, records.
//!
//! [`Perf::read`] finds the buffers through the files that processes have open, and
//! [`Perf::records`] reads the records of one buffer that its owner had not consumed. What the image
//! lacks costs only itself: it becomes a gap in [`Perf::evidence`]. [`Perf::write_data`] writes the
//! buffers of one process as a file `perf.data`. No debug information is needed: the layouts come
//! from the kernel's BTF.
//!
//! Source of the facts: `include/uapi/linux/perf_event.h`, `kernel/events/{core,ring_buffer}.c` of
//! Linux 6.12, and `tools/perf/Documentation/perf.data-file-format.txt`.
//!
//! The crate has no features.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod buffer;
mod data;
mod event;
mod find;
mod layout;
mod report;
mod ring;
mod text;

pub use buffer::{Buffer, Owner, Positions};
pub use data::{Recording, Written};
pub use event::Event;
pub use report::{BufferReport, Report};
pub use ring::Record;

use lastwords_ftrace::Tracing;
use lastwords_kernel::{Kernel, lost};
use lastwords_trace::evidence::{Evidence, Gap};
use std::io;
use std::sync::Arc;

/// The buffers of perf of a kernel.
pub struct Perf {
    kernel: Arc<Kernel>,
    /// What describes the events of ftrace, which tracepoints share.
    tracing: Tracing,
    /// The buffers, in the order of the processes that have them.
    pub buffers: Vec<Buffer>,
    /// Losses in the list, and in the buffers that were read.
    pub evidence: Evidence,
}

impl Perf {
    /// Lists the buffers of a kernel.
    #[must_use]
    pub fn read(kernel: &Arc<Kernel>) -> Self {
        // Only the formats of events are of interest, and only if there are tracepoints.
        let tracing = lastwords_ftrace::memory::description(kernel)
            .unwrap_or_else(|_| lastwords_ftrace::memory::without_arrays(kernel));
        let (buffers, gaps) = Self::list(kernel, &tracing);
        let evidence = Evidence { gaps, ..Evidence::default() };
        Self { kernel: Arc::clone(kernel), tracing, buffers, evidence }
    }

    /// Lists the buffers of a kernel, and what is lost of the list. `tracing` has the names of the
    /// tracepoints.
    #[must_use]
    pub fn list(kernel: &Kernel, tracing: &Tracing) -> (Vec<Buffer>, Vec<Gap>) {
        let mut gaps = Vec::new();
        (find::all(kernel, tracing, &mut gaps), gaps)
    }

    /// Reads the records of a buffer that were not consumed, and calls `take` with each.
    ///
    /// # Errors
    /// `take` fails.
    pub fn records(
        &mut self,
        buffer: &Buffer,
        take: &mut dyn FnMut(Record) -> io::Result<()>,
    ) -> io::Result<()> {
        ring::read(&self.kernel, buffer, &mut self.evidence.gaps, take)
    }
}
