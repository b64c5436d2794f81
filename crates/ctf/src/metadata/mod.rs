//! Reads metadata of both versions from a file (text, or packets of text), and writes them.

pub(crate) mod emit;
mod spec2;
mod tsdl;

use crate::read::Error;
use lastwords_bytes::{Budget, Limits};
use lastwords_trace::class::TraceClass;
use std::path::Path;

pub use emit::emit;

/// The version of CTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// CTF 1.8.3: metadata in TSDL.
    V1_8,
    /// CTF 2: metadata as a JSON text sequence (CTF2-SPEC-2.0).
    V2,
}

/// Largest metadata file that is read, in bytes.
const MAX_METADATA: u64 = 1 << 28;
/// The number at the beginning of a packet of metadata. CTF 1.8.3, section 7.1.
const MAGIC: u32 = 0x75d1_1d57;
/// Size of a metadata packet's header, in bytes.
const HEADER: usize = 37;

/// Reads the metadata file of a trace.
///
/// # Errors
/// The file cannot be read, or does not follow the format.
pub fn metadata(path: &Path) -> Result<TraceClass, Error> {
    let length = std::fs::metadata(path).map_err(Error::io(path))?.len();
    if length > MAX_METADATA {
        return Err(Error::metadata(path, 0, format!("{length} bytes, expected at most {MAX_METADATA}")));
    }
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    parse(path, &bytes)
}

/// Limit for each byte of the metadata: bytes of the model, and name comparisons. Types and aliases are written once and
/// used many times.
const COST: u64 = 32;
/// Limit for any metadata, in addition to [`COST`] for each byte.
const COST_OF_ANY: u64 = 1 << 26;

/// Returns the budget for a model that is made of `length` bytes of metadata: bytes of memory, and steps of looking up
/// names.
fn budget(length: usize) -> Budget {
    let cost = (length as u64).saturating_mul(COST).saturating_add(COST_OF_ANY);
    Budget::new(Limits { bytes: cost, steps: cost, ..Limits::default() })
}

/// Parses metadata. `path` is only used in errors.
///
/// # Errors
/// The metadata do not follow the format, or ask for far more fields than they have bytes.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<TraceClass, Error> {
    let unpacked;
    let (bytes, uuid) = match packets(bytes) {
        Some(order) => {
            let (text, uuid) = unpack(path, bytes, order)?;
            unpacked = text;
            (unpacked.as_slice(), Some(uuid))
        }
        None => (bytes, None),
    };
    if bytes.first() == Some(&0x1e) {
        return spec2::read(path, bytes, &budget(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        Error::metadata(path, 0, format!("offset {:#x}: expected text of CTF 1.8 or CTF 2", e.valid_up_to()))
    })?;
    let class = tsdl::read(text, &budget(text.len())).map_err(|wrong| Error::metadata(path, wrong.line, wrong.what))?;
    match (uuid, class.uuid) {
        (Some(packets), Some(text)) if packets != text => {
            Err(Error::metadata(path, 0, "its packets have another UUID than its trace block"))
        }
        _ => Ok(class),
    }
}

/// Returns none if the bytes are no packets, else whether the packets' integers are big-endian.
fn packets(bytes: &[u8]) -> Option<bool> {
    let magic = bytes.first_chunk::<4>()?;
    match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
        (MAGIC, _) => Some(false),
        (_, MAGIC) => Some(true),
        _ => None,
    }
}

/// Extracts the text of the packets, and their UUID.
fn unpack(path: &Path, bytes: &[u8], big: bool) -> Result<(Vec<u8>, [u8; 16]), Error> {
    let mut text = Vec::with_capacity(bytes.len());
    let mut uuid = None;
    let mut at = 0usize;
    // Bytes after the last packet that are too few for a header are ignored.
    while let Some(header) = bytes.get(at..).and_then(|rest| rest.first_chunk::<HEADER>()) {
        let wrong = |what: String| Error::metadata(path, 0, format!("packet at offset {at:#x}: {what}"));
        let number = |offset: usize| {
            let raw = header.get(offset..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap_or_default();
            if big { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) }
        };
        if number(0) != MAGIC {
            return Err(wrong(format!("magic {:#x}, expected {MAGIC:#x}", number(0))));
        }
        let found: [u8; 16] = header.get(4..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        if uuid.get_or_insert(found) != &found {
            return Err(wrong("its UUID is not that of the first packet".into()));
        }
        let schemes = header.get(32..35).unwrap_or_default();
        if schemes.iter().any(|scheme| *scheme != 0) {
            let list: Vec<String> = schemes.iter().map(u8::to_string).collect();
            return Err(wrong(format!("compression, encryption and checksum {}: expected none", list.join(", "))));
        }
        let [.., major, minor] = *header;
        if !matches!((major, minor), (1, 8) | (2, 0)) {
            return Err(wrong(format!("version {major}.{minor}, expected 1.8 or 2.0")));
        }
        let (content, packet) = (number(24) as usize / 8, number(28) as usize / 8);
        let rest = bytes.get(at..).unwrap_or_default();
        if content < HEADER || packet < content || packet > rest.len() {
            return Err(wrong(format!(
                "content of {content} bytes in a packet of {packet}, {} are left: expected {HEADER} ≤ content ≤ packet ≤ left",
                rest.len()
            )));
        }
        text.extend_from_slice(rest.get(HEADER..content).unwrap_or_default());
        at = at.saturating_add(packet);
    }
    Ok((text, uuid.unwrap_or_default()))
}
