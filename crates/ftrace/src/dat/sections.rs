//! Sections of version 7.

use std::collections::BTreeSet;

use lastwords_bytes::{Error, ErrorKind};
use lastwords_trace::evidence::Cause;

use super::chunks::{Algorithm, Unpacker};
use super::id;
use super::listing::{DESCRIPTIONS, Machine, reader};
use super::options::FileOptions;
use super::reader::{MOST, Source};

/// Bytes of the header of a section.
const HEADER: u64 = 16;
/// Cost of reading a section, in entries of tables. Files have some dozens of sections.
const WALK: u64 = 16;
/// Flag of a section: its content is compressed.
const COMPRESSED: u16 = 1;

/// The header of a section, and the position of its content.
pub(super) struct Header {
    pub(super) id: u16,
    pub(super) is_compressed: bool,
    pub(super) size: u64,
    pub(super) content: u64,
}

/// Reads the header of a section.
pub(super) fn header(source: &Source, offset: u64) -> Result<Header, Error> {
    let mut at = source.at(offset);
    let (id, flags) = (at.u16()?, at.u16()?);
    at.u32()?;
    let size = at.u64()?;
    Ok(Header {
        id,
        is_compressed: flags & COMPRESSED != 0,
        size,
        content: offset.saturating_add(HEADER),
    })
}

/// Reads the content of a section, which must have the id `expected`.
fn content(
    source: &Source,
    algorithm: Algorithm,
    offset: u64,
    expected: u16,
) -> Result<Vec<u8>, Error> {
    let header = header(source, offset)?;
    let mut at = source.at(header.content);
    if header.id != expected {
        return Err(source
            .at(offset)
            .unexpected(u64::from(header.id), &format!("a section of id {expected}")));
    }
    if !header.is_compressed {
        return at.bytes(header.size);
    }
    let (compressed, length) = (u64::from(at.u32()?), at.u32()?);
    if u64::from(length) > MOST {
        return Err(at.unexpected(u64::from(length), "the size of a section"));
    }
    source.described(u64::from(length))?;
    let raw = at.bytes(compressed)?;
    let mut whole = Vec::new();
    let outcome = Unpacker::default().unpack(algorithm, &raw, length as usize, &mut whole);
    outcome.map(|()| whole).ok_or_else(|| {
        source.at(header.content).unexpected(compressed, "compressed data of the stated size")
    })
}

/// The position at which the options of a file end too early.
pub(super) struct Truncation {
    /// Offset of the last section of options that was read.
    read: u64,
    /// Offset of the section of options that cannot be read.
    missing: u64,
    why: Error,
}

/// Reads all options, beginning with the section at `first`. Each section has the offset of the
/// next one. A recorder writes one section after the data of each buffer, so a truncated file has
/// the first sections.
///
/// # Errors
/// The first section cannot be read, or the budget is spent.
pub(super) fn options(
    source: &Source,
    algorithm: Algorithm,
    first: u64,
    options: &mut FileOptions,
) -> Result<Option<Truncation>, Error> {
    let mut seen = BTreeSet::new();
    let (mut next, mut read) = (first, first);
    while next != 0 {
        let outcome = match seen.insert(next) {
            true => content(source, algorithm, next, id::DONE)
                .and_then(|data| options.read_section(&data, source.order)),
            false => Err(source
                .at(next)
                .unexpected(next, "a section of options that was not read before")),
        };
        match outcome {
            Ok(behind) => (read, next) = (next, behind),
            Err(why) if next == first || why.kind == ErrorKind::Budget => return Err(why),
            Err(why) => return Ok(Some(Truncation { read, missing: next, why })),
        }
    }
    Ok(None)
}

/// Reports the missing options, and the data of the buffers that these options would describe.
pub(super) fn report_missing(
    source: &Source,
    truncation: &Truncation,
    options: &FileOptions,
    machine: &mut Machine,
) {
    let Truncation { read, missing, why } = truncation;
    machine.lose(
        Cause::Missing,
        None,
        format!("the options at offset {missing:#x} and all later ones: {why}"),
    );
    let mut offset = *read;
    while let (Ok(()), Ok(section)) = (source.entries(WALK), header(source, offset)) {
        let Header { id, size, content, .. } = section;
        let there = size.min(source.length.saturating_sub(content));
        let is_described = options.buffers.iter().any(|buffer| buffer.offset == offset);
        if id == id::BUFFER && there > 0 && !is_described {
            let place = format!(
                "{there} of {size} bytes of a buffer at offset {offset:#x}: no option describes its CPUs"
            );
            machine.lose(Cause::Missing, Some(there), place);
        }
        // Sections follow each other without space between them.
        offset = content.saturating_add(size);
    }
}

/// Reads the descriptions of the machine. The content of a damaged description is reported as a
/// loss.
pub(super) fn machine(source: &Source, algorithm: Algorithm, options: &FileOptions) -> Machine {
    let mut machine = Machine::default();
    for (id, offset) in &options.sections {
        let Some((_, title, read)) = DESCRIPTIONS.iter().find(|(known, ..)| known == id) else {
            continue;
        };
        let outcome = content(source, algorithm, *offset, *id)
            .and_then(|data| read(&mut machine, &mut reader(&data, source.order)));
        if let Err(error) = outcome {
            machine.lose(Cause::Damaged, None, format!("{title}: {error}"));
        }
    }
    machine
}
