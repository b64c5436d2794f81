//! Sections of version 7.

use std::collections::BTreeSet;

use lastwords_bytes::Error;
use lastwords_trace::evidence::Cause;

use super::chunks::Algorithm;
use super::id;
use super::listing::{Machine, reader};
use super::options::Told;
use super::reader::{MOST, Source};

/// Bytes of the header of a section.
const HEADER: u64 = 16;
/// A section's flag: it is compressed.
const COMPRESSED: u16 = 1;

/// What a section's header says, and where its content stands.
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
    Ok(Header { id, is_compressed: flags & COMPRESSED != 0, size, content: offset.saturating_add(HEADER) })
}

/// The content of a section of the id that is expected.
fn content(source: &Source, algorithm: Algorithm, offset: u64, expected: u16) -> Result<Vec<u8>, Error> {
    let header = header(source, offset)?;
    let mut at = source.at(header.content);
    if header.id != expected {
        return Err(source.at(offset).unexpected(u64::from(header.id), &format!("a section of id {expected}")));
    }
    if !header.is_compressed {
        return at.bytes(header.size);
    }
    let (compressed, size) = (u64::from(at.u32()?), u64::from(at.u32()?));
    if size > MOST {
        return Err(at.unexpected(size, "the size of a section"));
    }
    source.described(size)?;
    let raw = at.bytes(compressed)?;
    let whole = algorithm.uncompress(&raw, size as usize);
    whole.ok_or_else(|| source.at(header.content).unexpected(compressed, "compressed data of the size it tells"))
}

/// Reads all options, from the section at `first` on.
pub(super) fn options(source: &Source, algorithm: Algorithm, first: u64, told: &mut Told) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    let mut next = first;
    while next != 0 {
        if !seen.insert(next) {
            return Err(source.at(next).unexpected(next, "a section of options that was not read before"));
        }
        let data = content(source, algorithm, next, id::DONE)?;
        let mut from = reader(&data, source.order);
        next = 0;
        while from.left() >= 6 {
            let (option, size) = (from.u16()?, from.u32()? as usize);
            let value = from.take(size)?;
            if option == id::DONE {
                next = reader(value, source.order).u64().unwrap_or(0);
                break;
            }
            told.option(option, value, source.order, true)?;
        }
    }
    Ok(())
}

/// What a description of the machine tells, in words.
fn title(id: u16) -> &'static str {
    match id {
        id::HEADER_INFO => "the layout of sub-buffers",
        id::FTRACE_EVENTS => "the formats of ftrace's own entries",
        id::EVENT_FORMATS => "the formats of events",
        id::KALLSYMS => "the names of addresses",
        id::PRINTK => "the texts of trace_printk",
        _ => "the names of tasks",
    }
}

/// Reads the descriptions of the machine. What a damaged one tells is lost.
pub(super) fn machine(source: &Source, algorithm: Algorithm, told: &Told) -> Machine {
    let mut machine = Machine::default();
    for (id, offset) in &told.sections {
        let outcome = content(source, algorithm, *offset, *id).and_then(|data| {
            let mut from = reader(&data, source.order);
            match *id {
                id::HEADER_INFO => machine.headers(&mut from),
                id::FTRACE_EVENTS => machine.own_events(&mut from),
                id::EVENT_FORMATS => machine.events(&mut from),
                id::KALLSYMS => machine.kallsyms(&mut from),
                id::PRINTK => machine.printk(&mut from),
                id::COMMAND_LINES => machine.command_lines(&mut from),
                _ => Ok(()),
            }
        });
        if let Err(error) = outcome {
            machine.lose(Cause::Damaged, None, format!("{}: {error}", title(*id)));
        }
    }
    machine
}
