//! Reads a session's metadata from the tracer's cache, which has the whole text whatever a reader
//! has consumed.

use crate::Metadata;
use lastwords_bytes::Error as BytesError;
use lastwords_kernel::{Error, Kernel, Object};

/// Most bytes of metadata that are accepted.
const MOST: u64 = 256 << 20;
/// Number of bytes read at once.
const PIECE: u64 = 4096;

/// Reads the cache that `session` points to. The text ends at the first byte that cannot be read.
pub(super) fn read(
    kernel: &Kernel,
    session: &Object<'_>,
    notes: &mut Vec<String>,
) -> Result<Metadata, Error> {
    let cache = session.pointer("metadata_cache")?;
    let written = cache.u64("metadata_written")?;
    let room = cache.u64("cache_alloc").unwrap_or(written);
    let len = written.min(room);
    if len > MOST {
        return Err(BytesError::value(
            "metadata_written",
            cache.place(),
            written,
            "at most 256 MiB",
        )
        .into());
    }
    kernel.budget().bytes("metadata", len)?;
    let mut metadata = Metadata {
        text: Vec::new(),
        is_partial: cache.u64("producing").unwrap_or(0) != 0 || written > room,
    };
    let from = cache.address("data")?;
    let mut at = 0u64;
    while at < len {
        // Read up to a page boundary, so that the bytes before a hole are kept.
        let address = from.wrapping_add(at);
        let part =
            PIECE.saturating_sub(address & PIECE.saturating_sub(1)).min(len.saturating_sub(at));
        let old = metadata.text.len();
        metadata.text.resize(old.saturating_add(usize::try_from(part).unwrap_or_default()), 0);
        if let Err(hole) =
            kernel.memory.read(address, metadata.text.get_mut(old..).unwrap_or_default())
        {
            metadata.text.truncate(old);
            metadata.is_partial = true;
            notes.push(format!("the metadata ends after {at} of {len} bytes: {hole}"));
            break;
        }
        at = at.saturating_add(part);
    }
    Ok(metadata)
}
