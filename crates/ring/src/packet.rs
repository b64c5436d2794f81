//! The first and last bytes of a sub-buffer.

use lastwords_abi::packet::{self as abi, at};
use lastwords_abi::region::Checksum;

use crate::hooks::reads;
use crate::memory::Memory;

/// What stands in the packet header of every sub-buffer of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// UUID of the session.
    pub session: [u8; 16],
    /// Channel id.
    pub channel: u32,
    /// Stream index.
    pub stream: u32,
    /// CPU, or [`lastwords_abi::stream::ANY_CPU`].
    pub cpu: u32,
    /// Bytes of a sub-buffer.
    pub sub_buffer_size: u64,
}

/// What a closed sub-buffer's context says besides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Closing {
    /// Clock at the end; 0 while open.
    pub end: u64,
    /// Bytes of content; 0 while open.
    pub content: u64,
    /// Running total of lost events.
    pub discarded: u64,
}

/// Packet header and context of sub-buffer `number`.
#[must_use]
pub fn header(id: &Identity, number: u64, begin: u64, closing: Closing) -> [u8; abi::HEADER_LEN] {
    let mut h = [0u8; abi::HEADER_LEN];
    let mut put = |at: usize, bytes: &[u8]| h[at..at + bytes.len()].copy_from_slice(bytes);
    put(at::MAGIC, &abi::CTF_MAGIC.to_ne_bytes());
    put(at::UUID, &id.session);
    put(at::STREAM_ID, &id.channel.to_ne_bytes());
    put(at::STREAM_INSTANCE_ID, &u64::from(id.stream).to_ne_bytes());
    put(at::TIMESTAMP_BEGIN, &begin.to_ne_bytes());
    put(at::TIMESTAMP_END, &closing.end.to_ne_bytes());
    put(at::CONTENT_SIZE, &(closing.content * 8).to_ne_bytes());
    put(at::PACKET_SIZE, &(id.sub_buffer_size * 8).to_ne_bytes());
    put(at::PACKET_SEQ_NUM, &number.to_ne_bytes());
    put(at::EVENTS_DISCARDED, &closing.discarded.to_ne_bytes());
    put(at::CPU_ID, &id.cpu.to_ne_bytes());
    h
}

/// Reads the clock at which the sub-buffer at `offset` of a half was begun.
///
/// # Safety
/// The sub-buffer's header was written whole and its memory is readable; only a closing thread may write it meanwhile, and
/// never these bytes.
pub(crate) unsafe fn begin_clock<M: Memory>(memory: M, offset: u64) -> u64 {
    let mut bytes = [0u8; 8];
    for (i, b) in bytes.iter_mut().enumerate() {
        let (from, _) = memory.run(offset + (at::TIMESTAMP_BEGIN + i) as u64);
        reads!(from, 1);
        // SAFETY: as the caller vouches; a byte at a time because pages may break anywhere.
        *b = unsafe { from.read_volatile() };
    }
    u64::from_ne_bytes(bytes)
}

/// The trailer's checksum of a sub-buffer: `header` as it will stand, and the rest of its `content` bytes from memory.
///
/// # Safety
/// The `content` bytes from `offset` on are readable and nobody writes them, but for closing threads the header.
pub(crate) unsafe fn checksum<M: Memory>(memory: M, offset: u64, header: &[u8; abi::HEADER_LEN], content: u64) -> u64 {
    let mut first = [0u8; 128];
    first[..abi::HEADER_LEN].copy_from_slice(header);
    let content = content as usize;
    let mut sum = Checksum::default();
    for (at, b) in first.iter_mut().enumerate().take(content).skip(abi::HEADER_LEN) {
        let (from, _) = memory.run(offset + at as u64);
        reads!(from, 1);
        // SAFETY: below `content`, as the caller vouches.
        *b = unsafe { from.read() };
    }
    sum.add(&first[..content.min(128)]);
    let mut at = 128;
    while at < content {
        let (from, run) = memory.run(offset + at as u64);
        let len = run.min(content - at);
        reads!(from, len);
        // SAFETY: `len` bytes from `from` lie in one run and below `content`, as the caller vouches.
        sum.add(unsafe { core::slice::from_raw_parts(from, len) });
        at += len;
    }
    sum.finish()
}
