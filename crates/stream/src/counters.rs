//! Copies of a session's counters and histograms.
//!
//! A frame has a whole copy of the counters region, without the lines that are zero. A receiver
//! writes each copy into a file of its own and renames that to `counters`, which is then the file
//! of the session folder: a receiver that is killed leaves the copy before or this one. The spool
//! has nothing of it, so that copies take the room of one.

use crate::error::{WireError, check, refuse};
use crate::head::{byte_order, read, word};
use crate::transfer::create;
use anyhow::Context;
use lastwords_abi::counters::{CONTROL_OFF, CountersControl, CountersInfo};
use lastwords_abi::region::{
    HEADER_SIZE, KIND_COUNTERS, MAGIC, REGION_ALIGN, RegionHeader, checksum,
};
use lastwords_abi::session::{Control, SessionInfo};
use lastwords_bytes::ByteOrder;
use lastwords_control::stream_out::Part;
use std::fs;
use std::io::ErrorKind;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The name of the file.
const NAME: &str = "counters";
/// The name of the file while it is written.
const NEW: &str = "counters.new";
/// Parts of a copy begin and end at multiples of this.
const LINE: usize = 64;
/// Bytes of the offset and the length before a part.
const PART: usize = 16;
/// Bytes of the region before its tables.
const BEGIN: usize = CONTROL_OFF.saturating_add(size_of::<CountersControl>());
/// Offset of the geometry.
const INFO: usize = HEADER_SIZE as usize;
/// Most bytes of a region: more than a session can have. The file has holes.
const MOST: u64 = 1 << 30;

/// Returns the content of a frame for a copy of the region that was made at a time.
pub(crate) fn content(parts: &[Part; 3], time: u64) -> Vec<u8> {
    let mut content = Vec::new();
    let mut add = |offset: u64, bytes: &[u8]| {
        let is_zero = |line: &&[u8]| line.iter().all(|byte| *byte == 0);
        let lines: Vec<&[u8]> = bytes.chunks(LINE).collect();
        let mut at = offset;
        for run in lines.chunk_by(|one, other| is_zero(one) == is_zero(other)) {
            let bytes = run.concat();
            let length = bytes.len() as u64;
            if !run.first().is_some_and(is_zero) {
                content.extend([at, length].map(u64::to_le_bytes).concat());
                content.extend(bytes);
            }
            at = at.saturating_add(length);
        }
    };
    let [(offset, begin), tables @ ..] = parts;
    let mut begin = begin.clone();
    let copied = CONTROL_OFF.saturating_add(offset_of!(CountersControl, copied));
    let field = begin.get_mut(copied..).unwrap_or_default();
    field.iter_mut().zip(time.to_ne_bytes()).for_each(|(byte, value)| *byte = value);
    add(*offset, &begin);
    tables.iter().for_each(|(offset, bytes)| add(*offset, bytes));
    content
}

/// Returns true if the session region that begins so is that of a session with counters.
pub(crate) fn are_in(session: &[u8]) -> bool {
    let Ok(order) = byte_order(session) else { return false };
    let half = |at: usize| {
        read(session, at).map_or(0, |raw: [u8; 4]| u32::from_le_bytes(order.little(raw)))
    };
    let control = half(INFO.saturating_add(offset_of!(SessionInfo, control_off))) as usize;
    let fields = [offset_of!(Control, counters), offset_of!(Control, histograms)];
    fields.into_iter().any(|field| half(control.saturating_add(field)) > 0)
}

/// A copy that a sender sent.
pub(crate) struct Copy<'a> {
    /// Bytes of the region.
    size: u64,
    /// Offsets and bytes.
    parts: Vec<(u64, &'a [u8])>,
}

impl<'a> Copy<'a> {
    /// Reads the content of a frame of the session with this UUID, in hexadecimal digits.
    ///
    /// # Errors
    /// It is no copy of a counters region of the session.
    pub(crate) fn read(content: &'a [u8], uuid: &str) -> Result<Self, WireError> {
        let (mut parts, mut rest, mut end) = (Vec::new(), content, 0u64);
        while !rest.is_empty() {
            let [offset, length] = [0, 8].map(|at| word(rest, at, ByteOrder::Little));
            let is_line = |number: u64| number.checked_rem(LINE as u64) == Some(0);
            let is_next = length > 0 && is_line(length) && is_line(offset) && offset >= end;
            let bytes = usize::try_from(length).ok().filter(|_| is_next);
            let bytes = bytes.and_then(|length| rest.get(PART..)?.split_at_checked(length));
            let Some((bytes, left)) = bytes else {
                refuse!(Content, "{length} bytes at {offset} of a counters region")
            };
            rest = left;
            end = offset.saturating_add(length);
            parts.push((offset, bytes));
        }
        let begin = parts.first().filter(|(offset, bytes)| *offset == 0 && bytes.len() >= BEGIN);
        let size = region_size(begin.map_or(&[], |(_, bytes)| *bytes), uuid)?;
        check!(Content, end <= size, "{end} bytes of a counters region of {size}");
        Ok(Self { size, parts })
    }

    /// Writes the copy into the folder, where it replaces an earlier one.
    ///
    /// # Errors
    /// A file cannot be written. The earlier one stays.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let new = folder.join(NEW);
        let named = || new.display().to_string();
        let file = create(&new)?;
        file.set_len(self.size).with_context(named)?;
        for (offset, bytes) in &self.parts {
            file.write_all_at(bytes, *offset).with_context(named)?;
        }
        fs::rename(&new, folder.join(NAME)).with_context(named)
    }
}

/// Removes the copy.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(NAME);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Removes a copy that a killed receiver has not finished.
pub(crate) fn remove_unfinished(folder: &Path) {
    let _ = fs::remove_file(folder.join(NEW));
}

/// Returns the bytes of the counters region that begins so.
fn region_size(begin: &[u8], uuid: &str) -> Result<u64, WireError> {
    check!(Content, begin.starts_with(&MAGIC), "the bytes are not the begin of a counters region");
    let order = byte_order(begin)?;
    let kind = read(begin, offset_of!(RegionHeader, kind)).unwrap_or_default();
    let kind = u32::from_le_bytes(order.little(kind));
    check!(Content, kind == KIND_COUNTERS, "a region of kind {kind} in the frame of counters");
    let check = offset_of!(RegionHeader, check);
    let info = INFO..INFO.saturating_add(size_of::<CountersInfo>());
    let covered = [begin.get(..check), begin.get(info)].map(Option::unwrap_or_default).concat();
    let (has, sum) = (word(begin, check, order), checksum(&covered));
    check!(Content, has == sum, "a counters region with the checksum {has:#x}, expected {sum:#x}");
    let of: [u8; 16] = read(begin, offset_of!(RegionHeader, session)).unwrap_or_default();
    let of: String = of.iter().map(|byte| format!("{byte:02x}")).collect();
    check!(Content, of == uuid, "counters of the session {of}, in the stream of {uuid}");
    let size = word(begin, offset_of!(RegionHeader, size), order);
    let is_size = size <= MOST && size.checked_rem(REGION_ALIGN) == Some(0);
    check!(Content, is_size, "a counters region of {size} bytes; {MOST} is the most");
    Ok(size)
}
