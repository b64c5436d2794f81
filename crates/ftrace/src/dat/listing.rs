//! Reads the descriptions of a machine. Both versions of the format have the same bytes here.

use std::collections::BTreeMap;

use crate::{Format, HeaderPage};
use lastwords_bytes::ByteOrder;
use lastwords_bytes::{Error, Reader};
use lastwords_trace::evidence::{Cause, Gap};

use super::id;
use super::symbols::Listed;
use crate::format_file;

/// Most remarks on a file, and most losses that are reported one by one.
const MOST_NOTES: usize = 1000;

/// Reads one description.
type ReadDescription = fn(&mut Machine, &mut Reader<'_>) -> Result<(), Error>;

/// The descriptions of a file in order: id, content in words, and reader.
pub(super) const DESCRIPTIONS: [(u16, &str, ReadDescription); 6] = [
    (id::HEADER_INFO, "the layout of sub-buffers", Machine::headers),
    (id::FTRACE_EVENTS, "the formats of ftrace's own entries", Machine::own_events),
    (id::EVENT_FORMATS, "the formats of events", Machine::events),
    (id::KALLSYMS, "the names of addresses", Machine::kallsyms),
    (id::PRINTK, "the texts of trace_printk", Machine::printk),
    (id::COMMAND_LINES, "the names of tasks", Machine::command_lines),
];

/// The description of the machine in a file.
#[derive(Default)]
pub(super) struct Machine {
    pub(super) header_page: Option<HeaderPage>,
    /// Bytes of data in a sub-buffer, from `header_page`.
    pub(super) data_size: u32,
    pub(super) formats: BTreeMap<u16, Format>,
    pub(super) symbols: Listed,
    pub(super) printk_formats: BTreeMap<u64, String>,
    pub(super) comms: BTreeMap<u32, String>,
    pub(super) notes: Vec<String>,
    /// Lost parts of the file, except sub-buffers.
    pub(super) gaps: Vec<Gap>,
    /// Number of remarks that exceeded [`MOST_NOTES`].
    pub(super) more_notes: u64,
    /// Bytes of the file that are assigned to CPUs' data so far.
    pub(super) claimed: u64,
}

/// Returns a reader of one part in the file's byte order.
pub(super) fn reader(bytes: &[u8], order: ByteOrder) -> Reader<'_> {
    Reader::new("trace.dat", bytes, order)
}

/// Returns bytes as text. Bytes that are not UTF-8 are replaced.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Reads a length of eight bytes and that many bytes of text.
fn sized(from: &mut Reader<'_>) -> Result<String, Error> {
    let size = usize::try_from(from.u64()?).unwrap_or(usize::MAX);
    Ok(text(from.take(size)?))
}

/// Reads text up to a NUL.
pub(super) fn string(from: &mut Reader<'_>) -> Result<String, Error> {
    let rest = from.bytes_at(from.position(), from.left())?;
    let Some(end) = rest.iter().position(|b| *b == 0) else {
        return Err(from.unexpected(rest.len() as u64, "a text that ends with NUL"));
    };
    let found = text(rest.get(..end).unwrap_or_default());
    from.skip(end.saturating_add(1))?;
    Ok(found)
}

impl Machine {
    /// Reads `header_page` and `header_event`.
    pub(super) fn headers(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let name = string(from)?;
        if name != "header_page" {
            return Err(from.unexpected(0, "the words header_page"));
        }
        let text = sized(from)?;
        self.header_page = format_file::parse_header_page(&text);
        let size = text
            .lines()
            .find(|l| l.contains(" data;"))
            .and_then(|l| l.split("size:").nth(1)?.split(';').next());
        self.data_size = size.and_then(|s| s.trim().parse().ok()).unwrap_or(0);
        string(from)?;
        sized(from).map(drop)
    }

    fn format(&mut self, system: &str, text: &str) {
        match format_file::parse(system, text) {
            Some(format) => {
                self.formats.insert(format.id, format);
            }
            None => self.lose(
                Cause::Damaged,
                None,
                format!("system {system}: a format that cannot be read: {:.60?}", text),
            ),
        }
    }

    /// Keeps a remark on the file. After [`MOST_NOTES`] remarks it only counts them.
    pub(super) fn note(&mut self, note: String) {
        match self.notes.len() < MOST_NOTES {
            true => self.notes.push(note),
            false => self.more_notes = self.more_notes.saturating_add(1),
        }
    }

    /// Reports a loss. Only the first [`MOST_NOTES`] losses are kept.
    pub(super) fn lose(&mut self, cause: Cause, bytes: Option<u64>, place: String) {
        match self.gaps.len() < MOST_NOTES {
            true => self.gaps.push(Gap { stream: None, place, cause, events: None, bytes }),
            false => self.more_notes = self.more_notes.saturating_add(1),
        }
    }

    /// Reads the formats of ftrace's own entries.
    pub(super) fn own_events(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        for _ in 0..from.u32()? {
            let text = sized(from)?;
            self.format("ftrace", &text);
        }
        Ok(())
    }

    /// Reads the formats of all other events.
    pub(super) fn events(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        for _ in 0..from.u32()? {
            let place = *from;
            let system = string(from)?;
            if system.is_empty() {
                return Err(place.unexpected(0, "the name of a system of events"));
            }
            for _ in 0..from.u32()? {
                let text = sized(from)?;
                self.format(&system, &text);
            }
        }
        Ok(())
    }

    /// Reads `/proc/kallsyms`.
    pub(super) fn kallsyms(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let size = from.u32()? as usize;
        let text = self.listed("the names of addresses", from.take(size)?);
        self.symbols = Listed::new(text);
        Ok(())
    }

    /// Reads `printk_formats`.
    pub(super) fn printk(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let size = from.u32()? as usize;
        let text = self.listed("the texts of trace_printk", from.take(size)?);
        self.printk_formats.append(&mut printk_formats(&text));
        Ok(())
    }

    /// Reads `saved_cmdlines`.
    pub(super) fn command_lines(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let size = usize::try_from(from.u64()?).unwrap_or(usize::MAX);
        let text = self.listed("the names of tasks", from.take(size)?);
        self.comms.append(&mut comms(&text));
        Ok(())
    }

    /// Returns a list as text. Zeros in it are a loss: only one may follow it.
    fn listed(&mut self, what: &str, bytes: &[u8]) -> String {
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        let zeros = bytes.iter().filter(|byte| **byte == 0).count();
        if zeros > 0 {
            self.lose(
                Cause::Missing,
                Some(zeros as u64),
                format!("{what}: {zeros} bytes read as zero"),
            );
        }
        let text = text(bytes);
        let cut = text.len().saturating_sub(whole_lines(&text).len());
        if cut > 0 && zeros == 0 {
            self.lose(Cause::Missing, None, format!("{what}: the end of the list is cut off"));
        }
        text
    }
}

/// Reads the text of `printk_formats`: format strings of `trace_printk` by address.
#[must_use]
pub fn printk_formats(text: &str) -> BTreeMap<u64, String> {
    let row = |line: &str| {
        let (address, format) = line.split_once(" : ")?;
        let address = u64::from_str_radix(address.trim().trim_start_matches("0x"), 16).ok()?;
        let format = format.strip_prefix('"').and_then(|f| f.strip_suffix('"')).unwrap_or(format);
        Some((address, unescaped(format)))
    };
    lines(text).filter_map(row).collect()
}

/// Reads the text of `saved_cmdlines`: names of tasks by pid.
#[must_use]
pub fn comms(text: &str) -> BTreeMap<u32, String> {
    let row = |line: &str| {
        let (pid, comm) = line.split_once(' ')?;
        Some((pid.parse().ok()?, comm.to_owned()))
    };
    lines(text).filter_map(row).collect()
}

/// Returns the lines of a list of which nothing reads as zero or is cut off.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    whole_lines(text).lines().filter(|line| !line.contains('\0'))
}

/// Returns a list without a last line that does not end, because its end is missing.
#[must_use]
pub fn whole_lines(text: &str) -> &str {
    let end = text.rfind('\n').map_or(0, |at| at.saturating_add(1));
    text.get(..end).unwrap_or_default()
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            (other, false) => out.push(other),
        }
    }
    out
}
