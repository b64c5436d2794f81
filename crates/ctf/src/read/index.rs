//! Finds the packets of a file: from LTTng's index file, or from the packets themselves.

use super::error::Error;
use crate::program::{Expected, Fault, Packet, Program};
use lastwords_bytes::Budget;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The magic of an index file. LTTng-tools 2.13, src/common/index/ctf-index.h.
const MAGIC: u32 = 0xc1f1_dcc1;
/// Size of an index file's header, in bytes.
const HEADER: usize = 16;
/// Size of an entry of version 1.0, in bytes.
const ENTRY: usize = 56;
/// Number of bytes of a packet that are read first for its header and context.
const HEAD: usize = 512;
/// Largest size of a packet's header and context, in bytes.
const MAX_HEAD: usize = 1 << 22;

/// Steps of the budget that an entry takes.
const STEPS: u64 = 4;

/// Position and time of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Offset in its file, bytes.
    pub offset: u64,
    /// Size with padding, in bytes.
    pub size: u64,
    /// Clock at the beginning; [`u64::MAX`] if it is not known.
    pub begin: u64,
    /// Clock at the end; [`u64::MAX`] if it is not known.
    pub end: u64,
    /// Number of the packet in the stream.
    pub sequence: Option<u64>,
}

/// The packets of a file. The fault is an error in the packet after the last entry.
pub(super) struct Index {
    pub(super) entries: Vec<Entry>,
    /// Header and context of the first packet.
    pub(super) first: Option<Packet>,
    pub(super) fault: Option<Error>,
}

/// Pays for this many entries. A packet of a real trace has at least some dozens of bytes.
fn spend(budget: &Budget, entries: u64) -> std::io::Result<()> {
    budget.steps("packets", entries.saturating_mul(STEPS)).map_err(std::io::Error::other)
}

/// Finds the packets of a file.
///
/// # Errors
/// The file cannot be read.
pub(super) fn of_file(path: &Path, program: &Program, budget: &Budget) -> Result<Index, Error> {
    let file = File::open(path).map_err(Error::io(path))?;
    let data = file.metadata().map_err(Error::io(path))?;
    let size = data.len();
    budget.admit(lastwords_bytes::stored(&data));
    let mut scan = Scan { path, file: &file, size, program, head: Vec::new() };
    let known = index_file(path, budget);
    let total = known.iter().flatten().map(|entry| entry.size).fold(0, u64::saturating_add);
    if let Some(entries) = known.filter(|_| total == size) {
        return Ok(match scan.packet(0) {
            Ok(first) => Index { entries, first: Some(first), fault: None },
            Err(fault) => Index { entries: Vec::new(), first: None, fault: Some(fault) },
        });
    }
    let mut index = Index { entries: Vec::new(), first: None, fault: None };
    let mut offset = 0;
    while offset < size {
        match scan
            .entry(offset)
            .and_then(|found| spend(budget, 1).map_err(Error::io(path)).map(|()| found))
        {
            Ok((packet, entry)) => {
                index.first.get_or_insert(packet);
                index.entries.push(entry);
                offset = offset.saturating_add(entry.size);
            }
            Err(fault) => {
                index.fault = Some(fault);
                break;
            }
        }
    }
    // The file may have more packets than its index while it is written; it never has fewer.
    if index.fault.is_none() && total > size {
        let what = format!("the file has {size} bytes, and its index has packets of {total}");
        index.fault = Some(Error::io(path)(std::io::Error::other(what)));
    }
    Ok(index)
}

/// Returns true if a file begins with the magic number of packets.
pub(super) fn begins_with_magic(path: &Path) -> bool {
    let mut first = [0; 4];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut first, 0));
    let magic = crate::program::MAGIC;
    read.is_ok()
        && [u32::from_le_bytes(first), u32::from_be_bytes(first)]
            .iter()
            .any(|word| u64::from(*word) == magic)
}

struct Scan<'a> {
    path: &'a Path,
    file: &'a File,
    size: u64,
    program: &'a Program,
    head: Vec<u8>,
}

impl Scan<'_> {
    fn entry(&mut self, offset: u64) -> Result<(Packet, Entry), Error> {
        let packet = self.packet(offset)?;
        let left = self.size.saturating_sub(offset);
        let size = packet.total.map_or(left, |bits| bits / 8);
        if size > left || size == 0 {
            let fault =
                Fault { at: 0, value: size.saturating_mul(8), expected: Expected::FitsFile };
            return Err(Error::Packet { path: self.path.to_path_buf(), offset, source: fault });
        }
        let begin = packet.begin.unwrap_or(u64::MAX);
        let end = packet.end.unwrap_or(u64::MAX);
        Ok((packet, Entry { offset, size, begin, end, sequence: packet.sequence }))
    }

    fn packet(&mut self, offset: u64) -> Result<Packet, Error> {
        let mut wanted = HEAD;
        let mut decoder = self.program.decoder();
        loop {
            let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let length = wanted.min(left);
            read_at(self.file, self.path, offset, length, &mut self.head)?;
            match self.program.packet(&mut decoder, &self.head) {
                Err(fault) if fault.is_short() && length < left && wanted < MAX_HEAD => {
                    wanted = wanted.saturating_mul(8)
                }
                Err(source) => {
                    return Err(Error::Packet { path: self.path.to_path_buf(), offset, source });
                }
                Ok(packet) => return Ok(packet),
            }
        }
    }
}

/// Fills `bytes` with `length` bytes from an offset; with fewer if the file was truncated
/// meanwhile.
pub(super) fn read_at(
    file: &File,
    path: &Path,
    offset: u64,
    length: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), Error> {
    bytes.resize(length, 0);
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(read) => done = done.saturating_add(read),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io(path)(e)),
        }
    }
    bytes.truncate(done);
    Ok(())
}

/// The name of the folder with the index files, and how their names end.
const FOLDER: &str = "index";
const ENDING: &str = ".idx";

/// Returns the stream files that are missing in a folder, or are empty, while an index file has
/// packets of them.
pub(super) fn missing_files(folder: &Path, budget: &Budget) -> Vec<Error> {
    let Ok(entries) = std::fs::read_dir(folder.join(FOLDER)) else { return Vec::new() };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let missing = |name: &std::ffi::OsString| {
        let own = name.as_encoded_bytes().strip_suffix(ENDING.as_bytes())?;
        let path = folder.join(std::ffi::OsStr::from_bytes(own));
        let why = match std::fs::symlink_metadata(&path) {
            Ok(data) if data.is_file() && data.len() == 0 => "the file is empty",
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "there is no such file",
            _ => return None,
        };
        let packets = index_file(&path, budget).filter(|entries| !entries.is_empty())?.len();
        let what = format!("{why}, and its index has {packets} packets");
        Some(Error::io(&path)(std::io::Error::other(what)))
    };
    names.iter().filter_map(missing).collect()
}

/// Returns the path of the index file of a stream's file.
pub(super) fn path_of(path: &Path) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_owned();
    name.push(ENDING);
    Some(path.parent()?.join(FOLDER).join(name))
}

/// Returns the entries of the file `index/NAME.idx`; none if there is no such file, or it cannot be
/// read.
fn index_file(path: &Path, budget: &Budget) -> Option<Vec<Entry>> {
    let index = path_of(path)?;
    let length = std::fs::metadata(&index).ok().filter(std::fs::Metadata::is_file)?.len();
    spend(budget, length.div_ceil(ENTRY as u64)).ok()?;
    let bytes = std::fs::read(index).ok()?;
    let word = |at: usize| {
        bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).map(|raw| u32::from_be_bytes(*raw))
    };
    let long = |bytes: &[u8], at: usize| {
        bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).map(|raw| u64::from_be_bytes(*raw))
    };
    let length = word(12)? as usize;
    let body = bytes.get(HEADER..)?;
    if word(0)? != MAGIC || word(4)? != 1 || length < ENTRY || !body.len().is_multiple_of(length) {
        return None;
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(body.len().checked_div(length)?);
    for raw in body.chunks_exact(length) {
        let bits = long(raw, 8)?;
        let sequence = if word(8)? >= 1 { long(raw, 64) } else { None };
        let entry = Entry {
            offset: long(raw, 0)?,
            size: bits / 8,
            begin: long(raw, 24)?,
            end: long(raw, 32)?,
            sequence,
        };
        let ordered =
            entries.last().is_none_or(|last| entry.offset >= last.offset.saturating_add(last.size));
        if !bits.is_multiple_of(8) || bits == 0 || !ordered || entry.end < entry.begin {
            return None;
        }
        entries.push(entry);
    }
    Some(entries)
}
