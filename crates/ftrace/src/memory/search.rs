//! Finds pages of the image that may be sub-buffers, by their contents.

use super::ring::{Break, Shape, Summary, look};
use crate::Format;
use crate::page::Events;
use lastwords_image::Image;
use lastwords_kernel::Kernel;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Number of bytes read at once while searching pages.
const CHUNK: usize = 1 << 20;

/// A page of the image that may be a sub-buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) address: u64,
    pub(super) look: Summary,
}

/// A break in a ring, and the times between which the missing sub-buffers must lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) ring: usize,
    pub(super) cpu: usize,
    pub(super) at: Break,
    pub(super) after: u64,
    pub(super) before: u64,
}

/// Finds pages that may be sub-buffers in one of the windows.
///
/// # Errors
/// The budget is spent.
pub(super) fn search(
    kernel: &Kernel,
    physical: &Arc<dyn Image>,
    shape: Shape,
    windows: &[Window],
    known: &HashSet<u64>,
) -> Result<Vec<Candidate>, lastwords_bytes::Error> {
    let order = kernel.memory.byte_order();
    let (low, high) = (
        windows.iter().map(|w| w.after).min().unwrap_or(0),
        windows.iter().map(|w| w.before).max().unwrap_or(0),
    );
    let mut found = Vec::new();
    let mut chunk = vec![0u8; CHUNK.next_multiple_of(shape.size.max(1))];
    let size = shape.size as u64;
    for range in physical.ranges().iter().filter(|r| r.hole.is_none()) {
        let mut at = range.address.next_multiple_of(size);
        while at < range.end() {
            // Skip runs of zeros, as in sparse files.
            let data = physical.next_data(at, range.end());
            if data >= at.saturating_add(size) {
                at = data.saturating_add(1).next_multiple_of(size).saturating_sub(size);
                continue;
            }
            let len = (range.end().saturating_sub(at)).min(chunk.len() as u64);
            let Some(bytes) = chunk.get_mut(..usize::try_from(len).unwrap_or(0)) else { break };
            let pages = match physical.read(at, bytes) {
                Ok(()) => bytes,
                // Use the bytes before the hole; the search continues after the page with the hole.
                Err(hole) => {
                    let held = usize::try_from(hole.address.saturating_sub(at)).unwrap_or(0);
                    bytes.get_mut(..held).unwrap_or_default()
                }
            };
            let whole = pages.len().checked_div(shape.size).unwrap_or(0);
            for (n, page) in pages.chunks_exact(shape.size.max(1)).enumerate() {
                let address = at.saturating_add((n as u64).saturating_mul(size));
                let stamp = page.first_chunk::<8>().map_or(0, |raw| match order {
                    lastwords_bytes::ByteOrder::Little => u64::from_le_bytes(*raw),
                    lastwords_bytes::ByteOrder::Big => u64::from_be_bytes(*raw),
                });
                if stamp < low || stamp > high || stamp == 0 || known.contains(&address) {
                    continue;
                }
                if let Ok(look) = look(page, order, shape.header)
                    && look.events > 0
                {
                    found.push(Candidate { address, look });
                }
            }
            let advance = if (whole as u64).saturating_mul(size) >= len {
                len
            } else {
                ((whole as u64).saturating_add(1)).saturating_mul(size)
            };
            kernel.budget().bytes(physical.name(), advance.max(size))?;
            at = at.saturating_add(advance.max(size));
        }
    }
    found.sort_by_key(|c| (c.look.first, c.look.last));
    Ok(found)
}

/// Fewest events of a sub-buffer that is accepted; fewer prove too little.
pub(super) const EVENTS: u64 = 4;

/// Upper limit of task numbers (`PID_MAX_LIMIT`).
const PIDS: u32 = 1 << 22;

/// True if all events are of kinds that the kernel has, have room for their fields, and name
/// possible tasks.
pub(super) fn are_known(
    kernel: &Kernel,
    bytes: &[u8],
    shape: Shape,
    look: &Summary,
    formats: &BTreeMap<u16, Format>,
) -> bool {
    Events::new(bytes, shape.header, kernel.memory.byte_order(), look.commit).flatten().all(
        |event| {
            let Some([a, b, _, _, pid @ ..]) =
                bytes.get(event.payload.clone()).and_then(|p| p.first_chunk::<8>())
            else {
                return false;
            };
            let id = u16::from_le_bytes([*a, *b]);
            let format = formats.get(&id);
            let ends = |format: &Format| {
                format
                    .fields
                    .iter()
                    .map(|f| f.offset.saturating_add(f.size) as usize)
                    .max()
                    .unwrap_or(8)
            };
            // A tracer's own events can be shorter than their format.
            let fits = |format: &Format| {
                id < TRACERS || ends(format) <= event.payload.len().next_multiple_of(8)
            };
            format.is_some_and(fits) && u32::from_le_bytes(*pid) < PIDS
        },
    )
}

/// Lower ids are those of tracers' own events, which every array can have.
pub(super) const TRACERS: u16 = 20;
