//! The descriptions of a machine, read from bytes of either version.

use std::collections::BTreeMap;

use lastwords_bytes::ByteOrder;
use lastwords_bytes::{Error, Reader};
use lastwords_trace::evidence::{Cause, Gap};
use lastwords_trace::ftrace::{Format, HeaderPage};

use super::symbols::Listed;
use crate::ftrace::format_file;

/// Most remarks on a file, and most losses that are told each by itself.
const MOST_NOTES: usize = 1000;

/// What a file tells of the machine.
#[derive(Default)]
pub(super) struct Machine {
    pub(super) header_page: Option<HeaderPage>,
    /// Bytes of data in a sub-buffer, as `header_page` tells it.
    pub(super) data_size: u32,
    pub(super) formats: BTreeMap<u16, Format>,
    pub(super) symbols: Listed,
    pub(super) printk_formats: BTreeMap<u64, String>,
    pub(super) comms: BTreeMap<u32, String>,
    pub(super) notes: Vec<String>,
    /// What of the file is lost, beside sub-buffers.
    pub(super) gaps: Vec<Gap>,
    /// How many remarks found no room there.
    pub(super) more_notes: u64,
    /// Bytes of the file that CPUs' data were found in so far.
    pub(super) claimed: u64,
}

/// A reader of one part, in the file's byte order.
pub(super) fn reader(bytes: &[u8], order: ByteOrder) -> Reader<'_> {
    Reader::new("trace.dat", bytes, order)
}

/// Bytes as text; what is no UTF-8 is replaced.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// A length of eight bytes and text.
fn sized(from: &mut Reader<'_>) -> Result<String, Error> {
    let size = usize::try_from(from.u64()?).unwrap_or(usize::MAX);
    Ok(text(from.take(size)?))
}

/// Text up to a NUL.
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
    /// `header_page` and `header_event`.
    pub(super) fn headers(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let name = string(from)?;
        if name != "header_page" {
            return Err(from.unexpected(0, "the words header_page"));
        }
        let text = sized(from)?;
        self.header_page = format_file::parse_header_page(&text);
        let size = text.lines().find(|l| l.contains(" data;")).and_then(|l| l.split("size:").nth(1)?.split(';').next());
        self.data_size = size.and_then(|s| s.trim().parse().ok()).unwrap_or(0);
        string(from)?;
        sized(from).map(drop)
    }

    fn format(&mut self, system: &str, text: &str) {
        match format_file::parse(system, text) {
            Some(format) => {
                self.formats.insert(format.id, format);
            }
            None => {
                self.lose(Cause::Damaged, None, format!("system {system}: a format that cannot be read: {:.60?}", text))
            }
        }
    }

    /// Keeps a remark on the file; of very many, the first.
    pub(super) fn note(&mut self, note: String) {
        match self.notes.len() < MOST_NOTES {
            true => self.notes.push(note),
            false => self.more_notes = self.more_notes.saturating_add(1),
        }
    }

    /// Tells of a loss; of very many, the first.
    pub(super) fn lose(&mut self, cause: Cause, bytes: Option<u64>, place: String) {
        match self.gaps.len() < MOST_NOTES {
            true => self.gaps.push(Gap { stream: None, place, cause, events: None, bytes }),
            false => self.more_notes = self.more_notes.saturating_add(1),
        }
    }

    /// Formats of ftrace's own entries.
    pub(super) fn own_events(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        for _ in 0..from.u32()? {
            let text = sized(from)?;
            self.format("ftrace", &text);
        }
        Ok(())
    }

    /// Formats of all other events.
    pub(super) fn events(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        for _ in 0..from.u32()? {
            let system = string(from)?;
            for _ in 0..from.u32()? {
                let text = sized(from)?;
                self.format(&system, &text);
            }
        }
        Ok(())
    }

    /// `/proc/kallsyms`.
    pub(super) fn kallsyms(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let size = from.u32()? as usize;
        self.symbols = Listed::new(text(from.take(size)?));
        Ok(())
    }

    /// `printk_formats`.
    pub(super) fn printk(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let size = from.u32()? as usize;
        let text = text(from.take(size)?);
        self.printk_formats.append(&mut printk_formats(&text));
        Ok(())
    }

    /// `saved_cmdlines`.
    pub(super) fn command_lines(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        self.comms.append(&mut comms(&sized(from)?));
        Ok(())
    }
}

/// Format strings of `trace_printk` by address: the text of `printk_formats`.
#[must_use]
pub fn printk_formats(text: &str) -> BTreeMap<u64, String> {
    let row = |line: &str| {
        let (address, format) = line.split_once(" : ")?;
        let address = u64::from_str_radix(address.trim().trim_start_matches("0x"), 16).ok()?;
        let format = format.strip_prefix('"').and_then(|f| f.strip_suffix('"')).unwrap_or(format);
        Some((address, unescaped(format)))
    };
    text.lines().filter_map(row).collect()
}

/// Names of tasks by pid: the text of `saved_cmdlines`.
#[must_use]
pub fn comms(text: &str) -> BTreeMap<u32, String> {
    let row = |line: &str| {
        let (pid, comm) = line.split_once(' ')?;
        Some((pid.parse().ok()?, comm.to_owned()))
    };
    text.lines().filter_map(row).collect()
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
