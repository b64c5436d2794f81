//! The bytes that a file really has, as opposed to the length that it claims.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Bytes that some file systems keep without a block.
const INLINE: u64 = 1 << 16;

/// Returns the bytes that a regular file takes on disk, without its holes: what it may add to a
/// [`Budget`](crate::Budget). Its length is what whoever made the file claims.
///
/// ```
/// let file = std::fs::metadata("Cargo.toml")?;
/// // A small file has no holes.
/// assert_eq!(lastwords_bytes::stored(&file), file.len());
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn stored(file: &Metadata) -> u64 {
    file.len().min(file.blocks().saturating_mul(512).max(INLINE))
}
