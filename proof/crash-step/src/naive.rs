//! A plain reader of streams, written from docs/ABI.md alone: the oracle beside the product's own
//! walker.
//!
//! Every event has one field of raw bytes, so that a payload is a u32 count and that many bytes.

use lastwords_abi::region::checksum;

/// The geometry of a stream; read once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) index: u32,
    pub(crate) lockless: bool,
    /// Bytes of a sub-buffer.
    pub(crate) size: u64,
    /// Sub-buffers of a half.
    pub(crate) count: u64,
    pub(crate) session: [u8; 16],
    pub(crate) channel: u32,
}

/// An event in a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) position: u64,
    pub(crate) clock: u64,
    pub(crate) id: u16,
    /// Offset of its payload in the half's data, and its bytes.
    pub(crate) payload: (usize, usize),
}

/// The verdict on a sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Closed; header and checksum are right.
    Committed,
    /// Not closed; all events there.
    Open,
    /// Holes in it.
    Torn,
    /// The contents are of an older lap.
    Stale,
    /// Not to be believed.
    Invalid,
}

/// All that a half holds.
#[derive(Debug, Default)]
pub(crate) struct Half {
    pub(crate) events: Vec<Found>,
    /// Number, verdict and content of each sub-buffer.
    pub(crate) sub_buffers: Vec<(u64, Verdict, u64)>,
    pub(crate) first: u64,
    /// The produced position.
    pub(crate) produced: u64,
    /// Number of the oldest sub-buffer that can be there.
    pub(crate) lowest: u64,
    pub(crate) consumed: u64,
    /// Reservations that nobody wrote.
    pub(crate) holes: usize,
    /// The half is being begun anew: its first position is told, the produced one is still of what
    /// was in it.
    pub(crate) half_begun: bool,
    /// The faults, in words.
    pub(crate) faults: Vec<String>,
    /// Last reading of the clock.
    pub(super) clock: u64,
}

/// A half's control words, slots and data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<'a> {
    /// 192 bytes.
    pub(crate) control: &'a [u8],
    /// 64 bytes for each place.
    pub(crate) slots: &'a [u8],
    pub(crate) data: &'a [u8],
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

impl Half {
    /// Its header is right and its checksum holds.
    pub(crate) fn is_whole(geometry: &Geometry, packet: &Packet<'_>) -> bool {
        let (content, size) = (u64_at(packet.bytes, 48) / 8, geometry.size);
        packet.is_headed(geometry)
            && (84..=size - 16).contains(&content)
            && checksum(&packet.bytes[..content as usize])
                == u64_at(packet.bytes, size as usize - 8)
    }

    /// A sub-buffer that must be closed.
    pub(crate) fn read_closed(&mut self, geometry: &Geometry, packet: &Packet<'_>) {
        let content = u64_at(packet.bytes, 48) / 8;
        let verdict = if Self::is_whole(geometry, packet) {
            self.decode(packet, content, &[], false);
            Verdict::Committed
        } else if u64_at(packet.bytes, 64) < packet.number {
            Verdict::Stale
        } else {
            self.faults.push(format!(
                "sub-buffer {} is closed, but its header or checksum is wrong: {:02x?}",
                packet.number, packet.bytes
            ));
            Verdict::Invalid
        };
        self.sub_buffers.push((packet.number, verdict, content));
    }

    /// A sub-buffer of which the first `content` bytes are there.
    pub(crate) fn read_open(&mut self, geometry: &Geometry, packet: &Packet<'_>, content: u64) {
        let verdict = if packet.is_headed(geometry) {
            self.decode(packet, content, &[], false);
            Verdict::Open
        } else {
            self.faults.push(format!("open sub-buffer {}: its header is wrong", packet.number));
            Verdict::Invalid
        };
        self.sub_buffers.push((packet.number, verdict, content));
    }

    /// Decodes the events up to `content`, passing over `holes` (positions). `headless`: nothing of
    /// the header is taken; where the first event, which has the whole clock, is a hole, the next
    /// counts from the sub-buffer before.
    pub(crate) fn decode(
        &mut self,
        packet: &Packet<'_>,
        content: u64,
        holes: &[(u64, u64)],
        headless: bool,
    ) {
        let base = packet.number * packet.bytes.len() as u64;
        let mut clock = if headless { self.clock } else { u64_at(packet.bytes, 32) };
        let mut at = 84u64;
        while at < content {
            if let Some(&(_, end)) =
                holes.iter().find(|&&(begin, end)| (begin..end).contains(&(base + at)))
            {
                at = end - base;
                continue;
            }
            let position = base + at;
            let Some((header, id)) =
                header(packet.bytes, at as usize, content as usize, &mut clock)
            else {
                self.faults.push(format!(
                    "position {position}: an event's header is cut by the content's end {content}"
                ));
                return;
            };
            let start = at as usize + header;
            let len = if start + 4 <= content as usize {
                u32_at(packet.bytes, start) as usize + 4
            } else {
                usize::MAX
            };
            if len > content as usize - start {
                self.faults.push(format!(
                    "position {position}: a payload of {len} bytes leaves the content {content}"
                ));
                return;
            }
            if position >= self.first {
                self.events.push(Found { position, clock, id, payload: (packet.at + start, len) });
            }
            at += (header + len) as u64;
            self.clock = clock;
        }
        if at != content {
            self.faults.push(format!(
                "sub-buffer {}: events end at {at}, content at {content}",
                packet.number
            ));
        }
    }
}

/// A sub-buffer's bytes.
#[derive(Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) number: u64,
    /// Offset in the half's data.
    pub(crate) at: usize,
    pub(crate) bytes: &'a [u8],
}

impl Packet<'_> {
    /// The fields that are written when a sub-buffer is begun are those of this sub-buffer.
    pub(crate) fn is_headed(&self, geometry: &Geometry) -> bool {
        u32_at(self.bytes, 0) == 0xC1FC_1FC1
            && self.bytes[4..20] == geometry.session
            && u32_at(self.bytes, 20) == geometry.channel
            && u64_at(self.bytes, 24) == u64::from(geometry.index)
            && u64_at(self.bytes, 56) == geometry.size * 8
            && u64_at(self.bytes, 64) == self.number
    }
}

/// Decodes an event's header: its length and the id; moves the clock.
fn header(bytes: &[u8], at: usize, end: usize, clock: &mut u64) -> Option<(usize, u16)> {
    if at + 4 > end {
        return None;
    }
    let word = u32_at(bytes, at);
    let low = u64::from(word >> 5);
    let mut full = (*clock & !((1 << 27) - 1)) | low;
    if full < *clock {
        full += 1 << 27;
    }
    let (len, id) = match word & 31 {
        29 if at + 18 <= end => {
            full = u64_at(bytes, at + 10);
            (18, u16_at(bytes, at + 4))
        }
        30 if at + 10 <= end => (10, u16_at(bytes, at + 4)),
        31 if at + 6 <= end => (6, u16_at(bytes, at + 4)),
        tag @ 0..=28 => (4, tag as u16),
        _ => return None,
    };
    *clock = full;
    Some((len, id))
}
