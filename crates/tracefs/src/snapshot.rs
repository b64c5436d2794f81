//! Saves the snapshot of an instance, which a trigger took, into a file beside the trace.

use crate::changes::{Changes, beside};
use crate::save::{self, Part, Parts, Saved};
use anyhow::Context;
use lastwords_open::{Bundle, tracer_real_time};
use lastwords_trace::evidence::{Cause, Gap};
use lastwords_trace::ftrace::{CpuRing, Ring as _, Stats};
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the file that the snapshot of a recording is saved as.
pub(crate) fn path(output: &Path) -> PathBuf {
    beside(output, ".snapshot")
}

/// Saves the snapshot; none if there is no event in it, because no trigger took one. The events leave the kernel's memory.
///
/// # Errors
/// The snapshot cannot be read, or the file cannot be written.
pub(crate) fn save(changes: &Changes) -> anyhow::Result<Option<Saved>> {
    let instance = changes.instance();
    let size = instance.sub_buffer_size();
    let (mut parts, mut cpus) = (Vec::new(), Vec::new());
    for cpu in instance.cpus()? {
        let part = Part::nameless(beside(&changes.journal.output, &format!(".{}.s{cpu}", changes.journal.instance)))?;
        let sub_buffers = copy(&instance.open_snapshot(cpu)?, cpu, &part, size)?;
        cpus.push(CpuRing { cpu, sub_buffers, sub_buffer_size: size, stats: Stats::default() });
        parts.push(part);
    }
    if cpus.iter().all(|cpu| cpu.sub_buffers == 0) {
        return Ok(None);
    }
    let mut tracing = Bundle::of_running_tracer(None)?.tracing();
    let mut ring = Parts::new(parts, 0, cpus, tracing.header_page);
    let (mut gaps, mut events) = (Vec::new(), 0u64);
    for at in 0..ring.cpus().len() {
        let found = count(&ring, at);
        events += found.events;
        gaps.extend(found.gap);
        ring.cpus_mut()[at].stats.read = found.events;
    }
    let ring = Arc::new(ring);
    tracing.real_time = tracer_real_time(&changes.journal.clock);
    tracing.arrays = vec![save::array(&instance, &changes.journal.clock, Arc::clone(&ring))?];
    let output = path(&changes.journal.output);
    let new = beside(&output, &format!(".{}.new", changes.journal.instance));
    let bytes = save::write_new(&new, &tracing, &ring, |_| save::rename(&new, &output, changes.journal.force))?;
    let cpus = ring.cpus().iter().map(|cpu| cpu.cpu).collect();
    Ok(Some(Saved { path: output, bytes, events, cpus, gaps, is_stream: false, snapshot: None }))
}

/// Copies the sub-buffers of a CPU's snapshot, and returns their number.
fn copy(mut raw: &File, cpu: u32, part: &Part, size: u32) -> anyhow::Result<usize> {
    let mut bytes = vec![0; size as usize];
    let mut count = 0;
    loop {
        bytes.fill(0);
        match raw.read(&mut bytes) {
            Ok(0) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(|| format!("CPU {cpu}: the snapshot cannot be read")),
            Ok(_) => {
                (&part.file).write_all(&bytes).with_context(|| part.path.display().to_string())?;
                count += 1;
            }
        }
    }
}

/// The events of a CPU, and those that were overwritten before them.
struct Counted {
    events: u64,
    gap: Option<Gap>,
}

fn count(ring: &Parts, at: usize) -> Counted {
    let mut bytes = Vec::new();
    let (mut events, mut missed, mut is_known) = (0, 0u64, true);
    for index in 0..ring.cpus()[at].sub_buffers {
        let info = ring.sub_buffer(at, index, &mut bytes);
        events += ring.events(&bytes, &info).flatten().count() as u64;
        if let Some(number) = info.missed {
            missed += number.unwrap_or(0);
            is_known &= number.is_some();
        }
    }
    let gap = (missed > 0 || !is_known).then(|| Gap {
        stream: Some(at),
        place: "before the snapshot".to_owned(),
        cause: Cause::Overwritten,
        events: is_known.then_some(missed),
        bytes: None,
    });
    Counted { events, gap }
}
