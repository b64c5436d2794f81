//! Finds where the physical memory of a guest is: in a file that QEMU maps, or in QEMU's own memory.

use super::qmp::Qmp;
use anyhow::{Context, ensure};
use lastwords_open::RawRun;
use serde_json::{Value, json};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// The memory of a guest.
pub(super) struct Places {
    /// The file that has it.
    pub(super) path: String,
    /// Its runs in that file.
    pub(super) runs: Vec<RawRun>,
}

/// A run of the guest's memory, and its place in a block of QEMU's.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    address: u64,
    len: u64,
    block: String,
    offset: u64,
}

/// A block of memory that QEMU has mapped.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    name: String,
    len: u64,
    /// Address in QEMU's memory.
    address: u64,
}

/// Finds the memory of the guest. A file that QEMU shares is taken if it has all of it, because it
/// outlives QEMU.
///
/// # Errors
/// QEMU does not say where the memory is, or this process may not read it.
pub(super) fn find(qmp: &mut Qmp) -> anyhow::Result<Places> {
    let backends = qmp.execute("query-memdev", json!({}))?;
    let backends: Vec<&Value> = backends.as_array().into_iter().flatten().collect();
    let names: Vec<&str> = backends.iter().filter_map(|backend| backend["id"].as_str()).collect();
    let mut runs = runs(&qmp.monitor("info mtree -f")?);
    // Before version 4.1, QEMU names a block by the path of its object.
    let is_memory = |run: &Run| {
        names.iter().any(|name| run.block == *name || run.block == format!("/objects/{name}"))
    };
    runs.retain(is_memory);
    ensure!(!runs.is_empty(), "QEMU does not say where the guest's memory is (`info mtree -f`)");
    if let [backend] = backends.as_slice()
        && let Some(places) = in_file(qmp, backend, &runs)
    {
        return Ok(places);
    }
    let process = format!("/proc/{}", qmp.process()?);
    let path = format!("{process}/mem");
    File::open(&path).with_context(|| format!("{path}: the guest's memory cannot be read"))?;
    let blocks = blocks(&qmp.monitor("info ramblock")?);
    let run = |run: &Run| {
        let block = blocks.iter().find(|block| block.name == run.block)?;
        let end = run.offset.checked_add(run.len)?;
        let offset = block.address.checked_add(run.offset).filter(|_| end <= block.len)?;
        Some(RawRun { address: run.address, len: run.len, offset: Some(offset) })
    };
    let found: Option<Vec<RawRun>> = runs.iter().map(run).collect();
    let runs =
        found.context("QEMU does not say where its memory of the guest is (`info ramblock`)")?;
    Ok(in_descriptor(&process, &runs).unwrap_or(Places { path, runs }))
}

/// Returns the places in the file that a process has mapped at the places in its memory, if it is
/// shared, and one descriptor has all of it. What was never written of a memfd has no pages, and
/// reading it in the memory of the process would make them.
fn in_descriptor(process: &str, runs: &[RawRun]) -> Option<Places> {
    let maps = std::fs::read_to_string(format!("{process}/maps")).ok()?;
    let mappings: Vec<Mapping> = maps.lines().filter_map(mapping).collect();
    let mut inode = None;
    let run = |run: &RawRun| {
        let at = run.offset?;
        let mapping = mappings.iter().find(|mapping| mapping.range.contains(&at))?;
        let is_one = *inode.get_or_insert(mapping.inode) == mapping.inode;
        let is_whole = at.checked_add(run.len)? <= mapping.range.end;
        let offset = mapping.offset.checked_add(at.checked_sub(mapping.range.start)?)?;
        (is_one && is_whole).then_some(RawRun { offset: Some(offset), ..*run })
    };
    let runs = runs.iter().map(run).collect::<Option<_>>()?;
    let is_it = |path: &PathBuf| {
        path.metadata().is_ok_and(|data| data.is_file() && Some(data.ino()) == inode)
    };
    let descriptors = std::fs::read_dir(format!("{process}/fd")).ok()?;
    let paths = descriptors.filter_map(|entry| Some(entry.ok()?.path()));
    let path = paths.into_iter().find(is_it)?.display().to_string();
    Some(Places { path, runs })
}

/// A shared mapping of a file.
struct Mapping {
    range: Range<u64>,
    /// The offset of its first byte in the file.
    offset: u64,
    inode: u64,
}

/// Parses a line of `/proc/PID/maps`; none if the mapping is private or has no file.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let range = hexadecimal(start)?..hexadecimal(end)?;
    words.next().filter(|rights| rights.ends_with('s'))?;
    let offset = hexadecimal(words.next()?)?;
    let inode = words.nth(1)?.parse().ok().filter(|inode| *inode != 0)?;
    Some(Mapping { range, offset, inode })
}

/// Returns the places in the file of the only memory that the guest has, if there is a file, the
/// guest's writes reach it, and it can be read.
fn in_file(qmp: &mut Qmp, backend: &Value, runs: &[Run]) -> Option<Places> {
    if backend["share"] != json!(true) {
        return None;
    }
    let object = format!("/objects/{}", backend["id"].as_str()?);
    let mut property =
        |name: &str| qmp.execute("qom-get", json!({ "path": object, "property": name })).ok();
    let path = property("mem-path")?.as_str()?.to_owned();
    // Older versions have no such property, and map files from their beginning on.
    let first = property("offset").and_then(|offset| offset.as_u64()).unwrap_or(0);
    let file = File::open(&path).ok().filter(|file| file.metadata().is_ok_and(|m| m.is_file()))?;
    let len = file.metadata().ok()?.len();
    let run = |run: &Run| {
        let offset = first.checked_add(run.offset)?;
        let end = offset.checked_add(run.len)?;
        let run = RawRun { address: run.address, len: run.len, offset: Some(offset) };
        (end <= len).then_some(run)
    };
    Some(Places { path, runs: runs.iter().map(run).collect::<Option<_>>()? })
}

/// Parses `info mtree -f`: the runs of the address space `memory`, of which each line is
/// `FIRST-LAST (prio N, KIND): BLOCK @OFFSET ACCELERATOR`.
fn runs(text: &str) -> Vec<Run> {
    let lines = text.lines().skip_while(|line| !line.trim_start().starts_with("AS \"memory\""));
    let lines = lines.take_while(|line| !line.trim().is_empty());
    lines.filter_map(run).collect()
}

fn run(line: &str) -> Option<Run> {
    let (range, rest) = line.trim_start().split_once(" (prio ")?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (hexadecimal(first)?, hexadecimal(last)?);
    let (kind, rest) = rest.split_once("): ")?;
    // What the firmware has made read-only is memory of the guest, too.
    if !matches!(kind.split_once(", ")?.1, "ram" | "rom" | "nv-ram") {
        return None;
    }
    let mut words = rest.split_whitespace();
    let block = words.next()?.to_owned();
    let offset = words.next().and_then(|word| word.strip_prefix('@'));
    let offset = offset.map_or(Some(0), hexadecimal)?;
    Some(Run { address: first, len: last.checked_sub(first)?.checked_add(1)?, block, offset })
}

/// Parses `info ramblock`, whose columns are the name, the size of pages in two words, the offset,
/// the used length, the length, and the address.
fn blocks(text: &str) -> Vec<Block> {
    let block = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, _, _, _, _, len, address, ..] = words.as_slice() else { return None };
        let number = |word: &str| hexadecimal(word.strip_prefix("0x")?);
        Some(Block { name: (*name).to_owned(), len: number(len)?, address: number(address)? })
    };
    text.lines().filter_map(block).collect()
}

fn hexadecimal(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of QEMU 10.0 with 5 GiB on the machine q35.
    const TREE: &str = r#"FlatView #1
 AS "I/O", root: io
 Root memory region: io
  0000000000000000-0000000000000007 (prio 0, i/o): dma-chan

FlatView #2
 AS "memory", root: system
 AS "cpu-memory-0", root: system
 Root memory region: system
  0000000000000000-00000000000bffff (prio 0, ram): mem KVM
  00000000000c0000-00000000000dffff (prio 1, rom): pc.rom
  0000000000100000-000000007fffffff (prio 0, ram): mem @0000000000100000 KVM
  00000000fec00000-00000000fec00fff (prio 0, i/o): ioapic
  0000000100000000-00000001bfffffff (prio 0, ram): mem @0000000080000000

FlatView #3
 AS "cpu-smm-0", root: memory
 Root memory region: memory
  0000000000000000-00000000000bffff (prio 0, ram): mem
"#;

    #[test]
    fn the_map_of_a_machine() {
        let run = |address, len, block: &str, offset| Run {
            address,
            len,
            block: block.to_owned(),
            offset,
        };
        let expected = [
            run(0, 0xc_0000, "mem", 0),
            run(0xc_0000, 0x2_0000, "pc.rom", 0),
            run(0x10_0000, 0x7ff0_0000, "mem", 0x10_0000),
            run(0x1_0000_0000, 0xc000_0000, "mem", 0x8000_0000),
        ];
        assert_eq!(runs(TREE), expected);
        for wrong in [
            "",
            " AS \"memory\"\n",
            " AS \"memory\"\n  10-00 (prio 0, ram): mem\n",
            " AS \"memory\"\n  0-ffffffffffffffff (prio 0, ram): mem\n",
            " AS \"memory\"\n  0-f (prio 0, ram): mem @x\n",
            " AS \"memory\"\n  0-f (prio 0): mem\n",
        ] {
            assert_eq!(runs(wrong), [], "{wrong}");
        }
    }

    #[test]
    fn mappings_that_are_shared() {
        let map = "7f00aa000000-7f01ea000000 rw-s 00100000 00:01 4242   /memfd:ram (deleted)";
        let found = mapping(map).expect("a mapping");
        assert_eq!((found.range.start, found.range.end), (0x7f00_aa00_0000, 0x7f01_ea00_0000));
        assert_eq!((found.offset, found.inode), (0x10_0000, 4242));
        for other in [
            "7f00aa000000-7f01ea000000 rw-p 00100000 00:01 4242 /memfd:ram (deleted)",
            "7f00aa000000-7f01ea000000 rw-s 00100000 00:01 0",
            "7f00aa000000 rw-s",
            "",
        ] {
            assert!(mapping(other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_blocks_of_qemu() {
        let text = "              Block Name    PSize              Offset               Used              Total                HVA  RO
                     mem    4 KiB  0x0000000000000000 0x0000000140000000 0x0000000140000000 0x00007faf7bfff000  rw
                 pc.bios    4 KiB  0x0000000140000000 0x0000000000040000 0x0000000000040000 0x00007fb102400000  ro
                   short    4 KiB  0x0
";
        let block = |name: &str, len, address| Block { name: name.to_owned(), len, address };
        let expected = [
            block("mem", 0x1_4000_0000, 0x7faf_7bff_f000),
            block("pc.bios", 0x4_0000, 0x7fb1_0240_0000),
        ];
        assert_eq!(blocks(text), expected);
    }
}
