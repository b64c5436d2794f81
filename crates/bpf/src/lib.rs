//! Reads BPF out of a kernel's memory: programs, maps and their entries, records of ring buffers.
//!
//! [`Bpf::read`] lists the programs and maps in the order of their ids, and [`Bpf::content`] reads
//! what is in one map. What the image lacks costs only itself: it becomes a gap in
//! [`Bpf::evidence`]. No debug information is needed: the layouts come from the kernel's BTF, and
//! the types of entries from the BTF of their map. A record of a ring buffer has no type in the
//! kernel, so it stays bytes.
//!
//! Source of the facts: `kernel/bpf/{syscall,ringbuf,arraymap,hashtab}.c` of Linux 6.12, and
//! `ringbuf.c` of 6.19, which added the overwrite mode.
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

mod array;
mod content;
mod hash;
mod idr;
mod json;
mod map;
mod program;
mod ring;
mod text;
mod value;
mod words;

pub use content::{Content, Entry, Positions, Record, State};
pub use json::{MapReport, Report};
pub use map::Map;
pub use program::Program;
pub use value::Value;

use content::Sink;
use lastwords_kernel::{Error, Kernel};
use lastwords_trace::evidence::{Evidence, Gap};
use std::io;
use words::Words;

/// The BPF programs and maps of a kernel.
pub struct Bpf<'k> {
    kernel: &'k Kernel,
    /// The programs that were loaded, by id.
    pub programs: Vec<Program>,
    /// The maps, by id.
    pub maps: Vec<Map>,
    /// Losses in the lists, and in the contents that were read.
    pub evidence: Evidence,
}

impl<'k> Bpf<'k> {
    /// Lists the programs and maps of a kernel.
    #[must_use]
    pub fn read(kernel: &'k Kernel) -> Self {
        let (words, mut evidence) = (Words::new(&kernel.types), Evidence::default());
        let gaps = &mut evidence.gaps;
        let maps = listed(map::all(kernel, &words, gaps), "the list of BPF maps", gaps);
        let programs = program::all(kernel, &words, gaps);
        let programs = listed(programs, "the list of BPF programs", gaps);
        Self { kernel, programs, maps, evidence }
    }

    /// Reads what is in a map, and calls `take` with each record or entry. Returns false if maps of
    /// this kind are not read.
    ///
    /// # Errors
    /// `take` fails.
    pub fn content(
        &mut self,
        map: &Map,
        take: &mut dyn FnMut(Content) -> io::Result<()>,
    ) -> io::Result<bool> {
        let (kernel, gaps) = (self.kernel, &mut self.evidence.gaps);
        let mut sink = Sink { kernel, map, gaps, take };
        match map.kind.as_str() {
            "ringbuf" => ring::read(&mut sink, true)?,
            // The program in user space writes the headers of this kind.
            "user_ringbuf" => ring::read(&mut sink, false)?,
            "array" => array::read(&mut sink, false)?,
            "percpu_array" => array::read(&mut sink, true)?,
            "hash" | "lru_hash" => hash::read(&mut sink, false)?,
            "percpu_hash" | "lru_percpu_hash" => hash::read(&mut sink, true)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Returns what was listed. If it could not be listed, it adds a gap.
fn listed<T>(found: Result<Vec<T>, Error>, what: &str, gaps: &mut Vec<Gap>) -> Vec<T> {
    found.unwrap_or_else(|error| {
        gaps.push(lost(what, &error));
        Vec::new()
    })
}

/// Returns the gap of something that cannot be read. It costs no event.
fn lost(what: &str, error: &Error) -> Gap {
    lastwords_kernel::lost(what, error).with_events(Some(0))
}
