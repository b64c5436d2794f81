//! Extracts the text of metadata in packets. CTF 1.8.3, section 7.1.

use super::{HOLE, Missing};
use std::collections::HashMap;

/// The number at the beginning of a packet.
const MAGIC: u32 = 0x75d1_1d57;
/// Size of a packet's header, in bytes.
const HEADER: usize = 37;

/// The text of metadata that were in packets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// The text, with [`HOLE`] where packets are missing.
    pub text: Vec<u8>,
    /// UUID of most packets.
    pub uuid: [u8; 16],
    /// Packets that are wrong, or not all there, one sentence for each.
    pub missing: Vec<String>,
}

/// Extracts the text of packets; returns none if the bytes do not begin with a packet. A packet
/// that is wrong is a hole of the text.
#[must_use]
pub fn unpack(bytes: &[u8]) -> Option<Unpacked> {
    let magic = bytes.first_chunk::<4>()?;
    let is_big = match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
        (MAGIC, _) => false,
        (_, MAGIC) => true,
        _ => return None,
    };
    let magic = *magic;
    let mut missing = Missing::default();
    let mut found = Vec::new();
    let mut at = 0usize;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match packet(rest, is_big) {
            Ok(packet) => {
                at = at.saturating_add(packet.length);
                found.push(Some(packet));
            }
            Err(what) => {
                // Bytes that are too few for a packet say nothing, if they are zeros.
                if rest.iter().any(|byte| *byte != 0) {
                    missing.add(|| format!("packet at offset {at:#x}: {what}"));
                } else {
                    missing.add(|| {
                        format!("offset {at:#x}: {} bytes of zeros in place of packets", rest.len())
                    });
                }
                found.push(None);
                let next = rest.windows(magic.len()).skip(1).position(|window| window == magic);
                at = next.map_or(bytes.len(), |next| at.saturating_add(next).saturating_add(1));
            }
        }
    }
    let uuid = most_frequent(found.iter().flatten().map(|packet| packet.uuid));
    let mut text = Vec::with_capacity(bytes.len());
    for packet in found {
        match packet {
            Some(packet) if packet.uuid == uuid => {
                text.extend_from_slice(packet.text);
                if packet.is_cut {
                    missing.add(|| "the last packet is cut".to_owned());
                    text.push(HOLE);
                }
            }
            Some(_) => {
                missing.add(|| "a packet has another UUID than the others".to_owned());
                text.push(HOLE);
            }
            None => text.push(HOLE),
        }
    }
    Some(Unpacked { text, uuid, missing: missing.told() })
}

struct Packet<'b> {
    uuid: [u8; 16],
    text: &'b [u8],
    length: usize,
    /// The bytes end before the packet's content does.
    is_cut: bool,
}

/// Reads the packet at the beginning of `bytes`.
fn packet(bytes: &[u8], is_big: bool) -> Result<Packet<'_>, String> {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return Err(format!("{} bytes are left, expected a header of {HEADER}", bytes.len()));
    };
    let number = |offset: usize| {
        let raw = header
            .get(offset..)
            .and_then(|rest| rest.first_chunk::<4>())
            .copied()
            .unwrap_or_default();
        if is_big { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) }
    };
    if number(0) != MAGIC {
        return Err(format!("magic {:#x}, expected {MAGIC:#x}", number(0)));
    }
    let uuid = header.get(4..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
    let schemes = header.get(32..35).unwrap_or_default();
    if schemes.iter().any(|scheme| *scheme != 0) {
        let list: Vec<String> = schemes.iter().map(u8::to_string).collect();
        return Err(format!(
            "compression, encryption and checksum {}: expected none",
            list.join(", ")
        ));
    }
    let [.., major, minor] = *header;
    if !matches!((major, minor), (1, 8) | (2, 0)) {
        return Err(format!("version {major}.{minor}, expected 1.8 or 2.0"));
    }
    let (content, length) = (number(24) as usize / 8, number(28) as usize / 8);
    if content < HEADER || length < content {
        return Err(format!(
            "content of {content} bytes in a packet of {length}: expected {HEADER} \u{2264} content \u{2264} packet"
        ));
    }
    let is_cut = content > bytes.len();
    let text = bytes.get(HEADER..content.min(bytes.len())).unwrap_or_default();
    Ok(Packet { uuid, text, length, is_cut })
}

fn most_frequent(uuids: impl Iterator<Item = [u8; 16]>) -> [u8; 16] {
    let mut counts: HashMap<[u8; 16], (u64, std::cmp::Reverse<usize>)> = HashMap::new();
    for (at, uuid) in uuids.enumerate() {
        let (count, _) = counts.entry(uuid).or_insert((0, std::cmp::Reverse(at)));
        *count = count.saturating_add(1);
    }
    counts.into_iter().max_by_key(|(_, rank)| *rank).map(|(uuid, _)| uuid).unwrap_or_default()
}
