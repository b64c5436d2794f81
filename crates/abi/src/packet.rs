//! A sub-buffer is one CTF packet: header, context, events, padding, trailer.

/// Magic of a CTF 1.8 packet.
pub const CTF_MAGIC: u32 = 0xC1FC_1FC1;
/// Bytes before the first event.
pub const HEADER_LEN: usize = 84;
/// Bytes at the end of each sub-buffer that hold no events: padding in CTF terms. A record may be
/// copied in whole words, so up to this many bytes behind an event may be written; the last eight
/// are the trailer.
pub const TRAILER_LEN: usize = 16;
/// Offset of the checksum from the END of the sub-buffer: a u64, [`crate::region::checksum`] of the
/// first `content_size / 8` bytes, written when the sub-buffer is closed.
pub const CHECK_FROM_END: usize = 8;

/// Offsets of the fields of packet header and packet context; packed, native-endian.
pub mod at {
    /// u32, [`super::CTF_MAGIC`].
    pub const MAGIC: usize = 0;
    /// 16 bytes: UUID of the session, which is that of the trace.
    pub const UUID: usize = 4;
    /// u32: id of the channel, CTF's stream class id.
    pub const STREAM_ID: usize = 20;
    /// u64: index of the stream.
    pub const STREAM_INSTANCE_ID: usize = 24;
    /// u64: clock when the sub-buffer was begun.
    pub const TIMESTAMP_BEGIN: usize = 32;
    /// u64: clock when it was closed; 0 while open.
    pub const TIMESTAMP_END: usize = 40;
    /// u64: bits from the packet's first to behind its last event; 0 while open.
    pub const CONTENT_SIZE: usize = 48;
    /// u64: bits of the whole sub-buffer.
    pub const PACKET_SIZE: usize = 56;
    /// u64: number of the sub-buffer since the ring was begun (position / sub-buffer size), for the
    /// whole life of the stream: swaps and clears continue it.
    pub const PACKET_SEQ_NUM: usize = 64;
    /// u64: running total of events lost in this stream when the sub-buffer was closed.
    pub const EVENTS_DISCARDED: usize = 72;
    /// u32: CPU, or [`crate::stream::ANY_CPU`].
    pub const CPU_ID: usize = 80;
}
