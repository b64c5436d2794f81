//! The parts of a trace that can be missing.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::read::{BUNDLE, DESCRIPTION};

mod dat;
mod tar;
mod text;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Most pages of one file that are parts.
const MOST_PAGES: usize = 4096;

/// A part of a trace.
#[derive(Debug)]
pub(crate) struct Part {
    /// The part, in words.
    pub(crate) name: String,
    /// The file, from the trace's folder; empty if the trace is a file.
    file: PathBuf,
    /// Its bytes; none for the whole file.
    bytes: Option<Range<usize>>,
    /// The part is of a text, of which bytes can be missing without a hole.
    is_text: bool,
    /// The part is a packet of metadata or a file of an archive: the others can be there without it.
    can_go: bool,
}

impl Part {
    /// Returns true for a part of what describes a kernel's events, not of the events.
    pub(crate) fn is_of_description(&self) -> bool {
        self.file.starts_with(DESCRIPTION) || self.file == Path::new(BUNDLE)
    }
}

/// How parts are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// They read as zero, or as spaces in a text.
    Zero,
    /// Files, parts of texts and packets of metadata are not there; parts of other files read as
    /// zero.
    Removed,
    /// The file ends in the part.
    Cut,
}

/// Returns the parts of a trace.
pub(crate) fn find(trace: &Path) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for file in files(trace)? {
        let bytes = std::fs::read(place(trace, &file))?;
        let is_member = file != Path::new("");
        let is_text = text::is_text(&bytes);
        let is_metadata = bytes.starts_with(&METADATA);
        let mut add_part = |name: String, range: Option<Range<usize>>, can_go: bool| {
            let name = format!("{} {name}", file.display());
            parts.push(Part { name, file: file.clone(), bytes: range, is_text, can_go });
        };
        for tar::File { name, whole, contents } in tar::files(&bytes).unwrap_or_default() {
            add_part(format!("contents of {name}"), Some(contents), false);
            add_part(name, Some(whole), true);
        }
        let mut add = |name: String, range: Option<Range<usize>>| {
            let can_go = is_metadata && range.is_some();
            add_part(name, range, can_go);
        };
        if is_member {
            add("file".into(), None);
        }
        if is_text {
            text::declarations(&bytes).into_iter().for_each(|(name, range)| add(name, Some(range)));
        } else if let Some(sections) = dat::parts(&bytes) {
            sections.into_iter().for_each(|(name, range)| add(name, Some(range)));
        }
        let packets = packets(&bytes);
        let has_packets = !packets.is_empty();
        packets
            .into_iter()
            .for_each(|range| add(format!("packet {:#x}", range.start), Some(range)));
        // A session has many pages that were never written.
        let pages = (0..bytes.len().div_ceil(PAGE))
            .map(|page| page * PAGE..bytes.len().min((page + 1) * PAGE));
        let used: Vec<_> =
            pages.filter(|page| bytes[page.clone()].iter().any(|byte| *byte != 0)).collect();
        let step = used.len().div_ceil(MOST_PAGES).max(1);
        // A page of zeros inside a packet cannot be told from events of zeros: CTF has no
        // checksums.
        if !is_text && !has_packets {
            used.into_iter()
                .step_by(step)
                .for_each(|page| add(format!("page {:#x}", page.start), Some(page)));
        }
    }
    ensure!(!parts.is_empty(), "{}: no parts", trace.display());
    Ok(parts)
}

/// The number at the beginning of packets of events, and of metadata.
const EVENTS: [u8; 4] = 0xc1fc_1fc1u32.to_le_bytes();
const METADATA: [u8; 4] = 0x75d1_1d57u32.to_le_bytes();

/// Returns the packets of a file of CTF. They begin with a magic number.
fn packets(bytes: &[u8]) -> Vec<Range<usize>> {
    let Some(magic) = [EVENTS, METADATA].into_iter().find(|magic| bytes.starts_with(magic)) else {
        return Vec::new();
    };
    let begins: Vec<usize> =
        (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&magic)).collect();
    let ends = begins.iter().skip(1).copied().chain([bytes.len()]);
    begins.iter().copied().zip(ends).map(|(begin, end)| begin..end).collect()
}

/// Returns the files of a trace, from its folder.
fn files(trace: &Path) -> Result<Vec<PathBuf>> {
    if trace.is_file() {
        return Ok(vec![PathBuf::new()]);
    }
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> =
            std::fs::read_dir(trace.join(&folder))?.collect::<std::io::Result<_>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}

/// Leaves the index of each stream of which something is taken out: nothing else says that the last
/// of its packets, or all, were there.
pub(crate) fn keep_indexes(chosen: &mut Vec<&Part>) {
    let index = |file: &Path| {
        Some(file.parent()?.join("index").join(format!("{}.idx", file.file_name()?.display())))
    };
    let kept: Vec<PathBuf> = chosen.iter().filter_map(|part| index(&part.file)).collect();
    chosen.retain(|part| !kept.contains(&part.file));
}

/// Returns the place of a trace's file.
fn place(trace: &Path, file: &Path) -> PathBuf {
    if file == Path::new("") { trace.to_owned() } else { trace.join(file) }
}

/// Copies a trace without these parts. `below` returns a number below its argument.
pub(crate) fn copy_without(
    trace: &Path,
    copy: &Path,
    parts: &[&Part],
    loss: Loss,
    below: &mut dyn FnMut(u64) -> u64,
) -> Result<()> {
    for file in files(trace)? {
        let of_file: Vec<&&Part> = parts.iter().filter(|part| part.file == file).collect();
        let is_gone = of_file.iter().any(|part| part.bytes.is_none() && loss == Loss::Removed);
        if is_gone {
            continue;
        }
        let (from, to) = (place(trace, &file), place(copy, &file));
        std::fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        let mut bytes = std::fs::read(from)?;
        take_out(&mut bytes, &of_file, loss, below);
        std::fs::write(to, bytes)?;
    }
    // An empty folder remains of a trace without files.
    if trace.is_dir() {
        std::fs::create_dir_all(copy)?;
    }
    Ok(())
}

fn take_out(bytes: &mut Vec<u8>, parts: &[&&Part], loss: Loss, below: &mut dyn FnMut(u64) -> u64) {
    let is_text = parts.iter().any(|part| part.is_text);
    let mut ranges: Vec<(Range<usize>, bool)> = parts
        .iter()
        .map(|part| (part.bytes.clone().unwrap_or(0..bytes.len()), is_text || part.can_go))
        .collect();
    ranges.sort_by_key(|(range, can_go)| (std::cmp::Reverse(range.start), *can_go));
    // A part that was chosen twice is missing once.
    ranges.dedup();
    for (range, can_go) in ranges {
        let range = range.start.min(bytes.len())..range.end.min(bytes.len());
        match loss {
            Loss::Cut => bytes.truncate(range.start + below(range.len() as u64) as usize),
            Loss::Removed if can_go => drop(bytes.drain(range)),
            Loss::Zero | Loss::Removed => bytes[range].fill(if is_text { b' ' } else { 0 }),
        }
    }
}
