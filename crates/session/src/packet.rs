//! The header and packet context at the start of a sub-buffer.

use lastwords_abi::packet::{CHECK_FROM_END, CTF_MAGIC, HEADER_LEN, TRAILER_LEN, at};
use lastwords_abi::region::checksum;
use lastwords_bytes::{ByteOrder, Error, Reader};

/// The header fields that all sub-buffers of a stream have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) uuid: [u8; 16],
    pub(crate) channel: u32,
    pub(crate) stream: u32,
    pub(crate) cpu: u32,
    pub(crate) size: u64,
    pub(crate) order: ByteOrder,
}

/// Packet header and packet context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) magic: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) stream_id: u32,
    pub(crate) instance: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) content_bits: u64,
    pub(crate) packet_bits: u64,
    pub(crate) number: u64,
    pub(crate) discarded: u64,
    pub(crate) cpu: u32,
}

impl Header {
    pub(crate) fn parse(bytes: &[u8], order: ByteOrder) -> Result<Self, Error> {
        let r = Reader::new("sub-buffer", bytes, order);
        Ok(Self {
            magic: r.u32_at(at::MAGIC)?,
            uuid: r.array_at(at::UUID)?,
            stream_id: r.u32_at(at::STREAM_ID)?,
            instance: r.u64_at(at::STREAM_INSTANCE_ID)?,
            begin: r.u64_at(at::TIMESTAMP_BEGIN)?,
            end: r.u64_at(at::TIMESTAMP_END)?,
            content_bits: r.u64_at(at::CONTENT_SIZE)?,
            packet_bits: r.u64_at(at::PACKET_SIZE)?,
            number: r.u64_at(at::PACKET_SEQ_NUM)?,
            discarded: r.u64_at(at::EVENTS_DISCARDED)?,
            cpu: r.u32_at(at::CPU_ID)?,
        })
    }

    /// Encodes the header.
    pub(crate) fn bytes(&self, order: ByteOrder) -> Vec<u8> {
        let u32_of =
            |v: u32| if order == ByteOrder::Little { v.to_le_bytes() } else { v.to_be_bytes() };
        let u64_of =
            |v: u64| if order == ByteOrder::Little { v.to_le_bytes() } else { v.to_be_bytes() };
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend(u32_of(self.magic));
        out.extend(self.uuid);
        out.extend(u32_of(self.stream_id));
        for word in [
            self.instance,
            self.begin,
            self.end,
            self.content_bits,
            self.packet_bits,
            self.number,
            self.discarded,
        ] {
            out.extend(u64_of(word));
        }
        out.extend(u32_of(self.cpu));
        out
    }
}

impl Identity {
    /// Header of sub-buffer `number` with the common fields only; clocks, content size and
    /// discarded events are 0.
    pub(crate) fn header(&self, number: u64) -> Header {
        Header {
            magic: CTF_MAGIC,
            uuid: self.uuid,
            stream_id: self.channel,
            instance: u64::from(self.stream),
            begin: 0,
            end: 0,
            content_bits: 0,
            packet_bits: self.size.saturating_mul(8),
            number,
            discarded: 0,
            cpu: self.cpu,
        }
    }

    /// Replaces the fields of `header` that follow from the stream and `number`.
    pub(crate) fn mended(&self, header: &Header, number: u64) -> Header {
        let Header { begin, end, content_bits, discarded, .. } = *header;
        Header { begin, end, content_bits, discarded, ..self.header(number) }
    }

    /// Describes the first field of `header` that is wrong for sub-buffer `number`; none if all are
    /// right.
    pub(crate) fn difference(&self, header: &Header, number: u64) -> Option<String> {
        let right = self.mended(header, number);
        let say = |offset: usize, found: u64, expected: u64| {
            Some(format!("header offset {offset}: found {found:#x}, expected {expected:#x}"))
        };
        if header.magic != right.magic {
            return say(at::MAGIC, u64::from(header.magic), u64::from(right.magic));
        }
        if header.uuid != right.uuid {
            return Some(format!("header offset {}: the UUID of another session", at::UUID));
        }
        if header.stream_id != right.stream_id {
            return say(at::STREAM_ID, u64::from(header.stream_id), u64::from(right.stream_id));
        }
        if header.instance != right.instance {
            return say(at::STREAM_INSTANCE_ID, header.instance, right.instance);
        }
        if header.packet_bits != right.packet_bits {
            return say(at::PACKET_SIZE, header.packet_bits, right.packet_bits);
        }
        if header.number != right.number {
            return say(at::PACKET_SEQ_NUM, header.number, right.number);
        }
        if header.cpu != right.cpu {
            return say(at::CPU_ID, u64::from(header.cpu), u64::from(right.cpu));
        }
        None
    }

    /// Content size in bytes from the header of a closed sub-buffer, if the size is valid.
    pub(crate) fn content(&self, header: &Header) -> Option<usize> {
        let bytes = header.content_bits / 8;
        let limit = self.size.saturating_sub(TRAILER_LEN as u64);
        let can_be =
            header.content_bits.is_multiple_of(8) && bytes >= HEADER_LEN as u64 && bytes <= limit;
        usize::try_from(bytes).ok().filter(|_| can_be)
    }
}

/// Result of checking a complete sub-buffer that should be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Closed, with a valid checksum; the content size in bytes.
    Whole(Header, usize),
    /// The checksum is valid after the header fields that are known were corrected: nothing else is
    /// damaged.
    Mended(Header, usize, String),
    /// A valid sub-buffer, but with this other number.
    Other(u64),
    /// Not closed: its header has no content size.
    Unclosed(Header),
    /// Damaged: the number of bytes that may be content, and the reason.
    Damaged(Header, usize, String),
}

/// Checks the bytes of a complete sub-buffer that should be closed and have this number.
pub(crate) fn judge(identity: &Identity, number: u64, bytes: &mut [u8]) -> Judged {
    let limit = bytes.len().saturating_sub(TRAILER_LEN);
    let header = match Header::parse(bytes, identity.order) {
        Ok(header) => header,
        Err(error) => return Judged::Damaged(identity.header(number), 0, error.to_string()),
    };
    let check_at = bytes.len().saturating_sub(CHECK_FROM_END);
    let said = Reader::new("sub-buffer", bytes, identity.order).u64_at(check_at).unwrap_or(0);
    let Some(content) = identity.content(&header) else {
        if header.content_bits == 0 && identity.difference(&header, number).is_none() {
            return Judged::Unclosed(header);
        }
        if let Some(judged) = other_content(identity, number, &header, bytes, said) {
            return judged;
        }
        let why = format!(
            "header offset {}: a content of {} bits cannot be",
            at::CONTENT_SIZE,
            header.content_bits
        );
        return Judged::Damaged(identity.mended(&header, number), limit, why);
    };
    let difference = identity.difference(&header, number);
    if checksum(bytes.get(..content).unwrap_or_default()) == said {
        return match difference {
            None => Judged::Whole(header, content),
            Some(_) if identity.difference(&header, header.number).is_none() => {
                Judged::Other(header.number)
            }
            Some(why) => Judged::Damaged(identity.mended(&header, number), content, why),
        };
    }
    let mended = identity.mended(&header, number);
    let Some(why) = difference else {
        if let Some(judged) = other_content(identity, number, &header, bytes, said) {
            return judged;
        }
        let why = format!("checksum {said:#x} does not hold over {content} bytes");
        return Judged::Damaged(mended, content, why);
    };
    if let Some(place) = bytes.get_mut(..HEADER_LEN) {
        place.copy_from_slice(&mended.bytes(identity.order));
    }
    if checksum(bytes.get(..content).unwrap_or_default()) == said {
        Judged::Mended(mended, content, why)
    } else {
        Judged::Damaged(mended, content, format!("{why}; nor does the checksum hold"))
    }
}

/// Returns the repaired header if flipping one bit of its content size makes the checksum valid.
fn other_content(
    identity: &Identity,
    number: u64,
    header: &Header,
    bytes: &mut [u8],
    said: u64,
) -> Option<Judged> {
    for bit in 0..u64::BITS {
        let content_bits = header.content_bits ^ 1u64.wrapping_shl(bit);
        let mended = Header { content_bits, ..identity.mended(header, number) };
        let Some(content) = identity.content(&mended) else { continue };
        bytes.get_mut(..HEADER_LEN)?.copy_from_slice(&mended.bytes(identity.order));
        if checksum(bytes.get(..content).unwrap_or_default()) == said {
            let why = format!(
                "header offset {}: found a content of {} bits, expected {content_bits}",
                at::CONTENT_SIZE,
                header.content_bits
            );
            return Some(Judged::Mended(mended, content, why));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { uuid: [7; 16], channel: 1, stream: 3, cpu: 2, size: 512, order: ByteOrder::Big }
    }

    fn closed(number: u64) -> Vec<u8> {
        let id = identity();
        let header = Header { begin: 5, end: 9, content_bits: 200 * 8, ..id.header(number) };
        let mut bytes = header.bytes(id.order);
        bytes.resize(200, 0x5a);
        let check = checksum(&bytes);
        bytes.resize(512 - 8, 0);
        bytes.extend(check.to_be_bytes());
        bytes
    }

    #[test]
    fn whole_other_and_mended() {
        let id = identity();
        assert!(matches!(judge(&id, 6, &mut closed(6)), Judged::Whole(h, 200) if h.end == 9));
        assert_eq!(judge(&id, 6, &mut closed(2)), Judged::Other(2));
        for offset in (0..32).chain(48..72).chain(80..84) {
            let mut bytes = closed(6);
            bytes[offset] ^= 0x10;
            assert!(
                matches!(judge(&id, 6, &mut bytes), Judged::Mended(_, 200, _)),
                "offset {offset}"
            );
        }
    }

    #[test]
    fn every_bit_of_content_counts() {
        let id = identity();
        for bit in 0..200 * 8 {
            let mut bytes = closed(6);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(
                !matches!(judge(&id, 6, &mut bytes), Judged::Whole(..) | Judged::Other(_)),
                "bit {bit}"
            );
        }
    }
}
