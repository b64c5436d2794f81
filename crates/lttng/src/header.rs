//! The packet header and packet context of LTTng.
//!
//! LTTng 2.8 to 2.16 has one layout, for the kernel and for user space, in the ring buffer clients
//! that are bound to a CPU (`struct packet_header` in `lttng-ring-buffer-client.h` of lttng-modules
//! and `ring-buffer-client-template.h` of lttng-ust).

use lastwords_bytes::{ByteOrder, Error, Reader, low_u32};

/// Magic number at the start of every CTF packet.
pub(crate) const MAGIC: u32 = 0xc1fc_1fc1;

/// Offsets of the fields, bytes.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const UUID: usize = 4;
    pub(super) const STREAM_ID: usize = 20;
    pub(super) const STREAM_INSTANCE: usize = 24;
    pub(super) const BEGIN: usize = 32;
    pub(super) const END: usize = 40;
    pub(super) const CONTENT_SIZE: usize = 48;
    pub(super) const PACKET_SIZE: usize = 56;
    pub(super) const SEQUENCE: usize = 64;
    pub(super) const DISCARDED: usize = 72;
}

/// The properties of a tracer that determine the layout of its packet headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Byte order of the tracer.
    pub order: ByteOrder,
    /// Size of the tracer's `long`: 8 or 4 bytes. The count of discarded events is a `long`.
    pub word: u8,
}

impl Shape {
    /// Length of header and context, bytes.
    #[must_use]
    pub fn len(self) -> usize {
        if self.word == 8 { 84 } else { 80 }
    }

    /// Always false: a packet always has a header.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }
}

/// Packet header and packet context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// `0xc1fc1fc1`.
    pub magic: u32,
    /// UUID of the trace.
    pub uuid: [u8; 16],
    /// Id of the stream class, which is the channel id.
    pub stream_id: u32,
    /// Id of the stream in its channel.
    pub instance: u64,
    /// Clock when the packet was started, ticks.
    pub begin: u64,
    /// Clock when the packet was closed, ticks; 0 while it is open.
    pub end: u64,
    /// Bits of header, context and events; all ones while the packet is open.
    pub content_bits: u64,
    /// Bits of the whole packet; all ones while the packet is open.
    pub packet_bits: u64,
    /// Number of the packet in its stream.
    pub sequence: u64,
    /// Number of events that the stream had lost by the end of the packet.
    pub discarded: u64,
    /// CPU.
    pub cpu: u32,
}

impl Header {
    /// Parses the first bytes of a packet.
    ///
    /// # Errors
    /// `bytes` is shorter than [`Shape::len`].
    pub fn parse(bytes: &[u8], shape: Shape) -> Result<Self, Error> {
        let r = Reader::new("packet header", bytes, shape.order);
        let (discarded, cpu) = match shape.word {
            8 => (r.u64_at(at::DISCARDED)?, r.u32_at(at::DISCARDED.saturating_add(8))?),
            _ => (r.u32_at(at::DISCARDED)?.into(), r.u32_at(at::DISCARDED.saturating_add(4))?),
        };
        Ok(Self {
            magic: r.u32_at(at::MAGIC)?,
            uuid: r.array_at(at::UUID)?,
            stream_id: r.u32_at(at::STREAM_ID)?,
            instance: r.u64_at(at::STREAM_INSTANCE)?,
            begin: r.u64_at(at::BEGIN)?,
            end: r.u64_at(at::END)?,
            content_bits: r.u64_at(at::CONTENT_SIZE)?,
            packet_bits: r.u64_at(at::PACKET_SIZE)?,
            sequence: r.u64_at(at::SEQUENCE)?,
            discarded,
            cpu,
        })
    }

    /// True if the packet begins with the magic of CTF.
    #[must_use]
    pub fn has_magic(&self) -> bool {
        self.magic == MAGIC
    }

    /// True if the tracer has not closed the packet.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.content_bits == u64::MAX && self.packet_bits == u64::MAX
    }

    /// Encodes the header.
    #[must_use]
    pub fn bytes(&self, shape: Shape) -> Vec<u8> {
        let mut out = Vec::with_capacity(shape.len());
        let order = shape.order;
        out.extend(order.little(self.magic.to_le_bytes()));
        out.extend(self.uuid);
        out.extend(order.little(self.stream_id.to_le_bytes()));
        for long in [
            self.instance,
            self.begin,
            self.end,
            self.content_bits,
            self.packet_bits,
            self.sequence,
        ] {
            out.extend(order.little(long.to_le_bytes()));
        }
        match shape.word {
            8 => out.extend(order.little(self.discarded.to_le_bytes())),
            _ => out.extend(order.little(low_u32(self.discarded).to_le_bytes())),
        }
        out.extend(order.little(self.cpu.to_le_bytes()));
        out
    }

    /// Content size in bytes. None if the packet is open, the size is not a whole number of bytes,
    /// or it is smaller than a header or larger than the packet.
    #[must_use]
    pub fn content(&self, shape: Shape) -> Option<u64> {
        let bytes = self.content_bits / 8;
        // LTTng's events end on byte boundaries.
        let fits = self.content_bits.is_multiple_of(8) && bytes >= shape.len() as u64;
        (fits && self.content_bits <= self.packet_bits).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for word in [4, 8] {
                let shape = Shape { order, word };
                let header = Header {
                    magic: MAGIC,
                    uuid: [7; 16],
                    stream_id: 1,
                    instance: 2,
                    begin: 3,
                    end: u64::MAX - 4,
                    content_bits: 5,
                    packet_bits: 6,
                    sequence: 7,
                    discarded: 8,
                    cpu: 9,
                };
                let bytes = header.bytes(shape);
                assert_eq!(bytes.len(), shape.len());
                assert_eq!(Header::parse(&bytes, shape), Ok(header));
                assert!(Header::parse(&bytes[1..], shape).is_err());
            }
        }
    }

    #[test]
    fn a_content_fits_its_packet() {
        let shape = Shape { order: ByteOrder::Little, word: 8 };
        let content = |content_bits, packet_bits| {
            Header { content_bits, packet_bits, ..Header::default() }.content(shape)
        };
        assert_eq!(content(84 * 8, 4096 * 8), Some(84));
        assert_eq!(content(83 * 8, 4096 * 8), None);
        assert_eq!(content(85 * 8 + 1, 4096 * 8), None);
        assert_eq!(content(4096 * 8 + 8, 4096 * 8), None);
    }
}
