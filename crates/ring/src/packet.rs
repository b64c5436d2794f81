//! Writes the first and last bytes of a sub-buffer.

use lastwords_abi::packet::{self as abi, at};
use lastwords_abi::region::Checksum;

use crate::hooks::bytes;
use crate::init::StreamSpec;
use crate::memory::Memory;

/// Fields of the packet context that are only known when a sub-buffer is closed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Closing {
    /// Clock at the end; 0 while the sub-buffer is open.
    pub end: u64,
    /// Bytes of content; 0 while the sub-buffer is open.
    pub content: u64,
    /// Number of events lost so far.
    pub discarded: u64,
}

/// Returns the packet header and context of sub-buffer `number` of a stream.
#[must_use]
pub fn header(
    stream: &StreamSpec,
    number: u64,
    begin: u64,
    closing: Closing,
) -> [u8; abi::HEADER_LEN] {
    let mut h = [0u8; abi::HEADER_LEN];
    let mut put = |at: usize, bytes: &[u8]| h[at..at + bytes.len()].copy_from_slice(bytes);
    put(at::MAGIC, &abi::CTF_MAGIC.to_ne_bytes());
    put(at::UUID, &stream.session);
    put(at::STREAM_ID, &stream.channel.to_ne_bytes());
    put(at::STREAM_INSTANCE_ID, &u64::from(stream.index).to_ne_bytes());
    put(at::TIMESTAMP_BEGIN, &begin.to_ne_bytes());
    put(at::TIMESTAMP_END, &closing.end.to_ne_bytes());
    put(at::CONTENT_SIZE, &(closing.content * 8).to_ne_bytes());
    put(at::PACKET_SIZE, &(stream.sub_buffer_size * 8).to_ne_bytes());
    put(at::PACKET_SEQ_NUM, &number.to_ne_bytes());
    put(at::EVENTS_DISCARDED, &closing.discarded.to_ne_bytes());
    put(at::CPU_ID, &stream.cpu.to_ne_bytes());
    h
}

/// Returns the checksum for the trailer of a sub-buffer. It covers `header`, as it will be written,
/// and the rest of the `content` bytes from memory.
///
/// # Safety
/// The `content` bytes from `offset` on are readable. Nobody writes them, except that closing
/// threads write the header.
pub(crate) unsafe fn checksum<M: Memory>(
    memory: M,
    offset: u64,
    header: &[u8; abi::HEADER_LEN],
    content: u64,
) -> u64 {
    let mut first = [0u8; 128];
    first[..abi::HEADER_LEN].copy_from_slice(header);
    let content = content as usize;
    let mut sum = Checksum::default();
    let (from, _) = memory.run(offset + abi::HEADER_LEN as u64);
    // Another process may have written any value where the content's end is kept.
    let events = content.min(128).saturating_sub(abi::HEADER_LEN);
    bytes!(reads, from, events);
    // SAFETY: the bytes are below `content`, which the caller guarantees; the first 128 bytes of a
    // sub-buffer are in one page.
    first[abi::HEADER_LEN..][..events]
        .copy_from_slice(unsafe { core::slice::from_raw_parts(from, events) });
    sum.add(&first[..content.min(128)]);
    for (from, len) in memory.runs(offset + 128, content.saturating_sub(128)) {
        bytes!(reads, from, len);
        // SAFETY: the run is below `content`, which the caller guarantees.
        sum.add(unsafe { core::slice::from_raw_parts(from, len) });
    }
    sum.finish()
}
