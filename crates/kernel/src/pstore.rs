//! Finds what pstore keeps in memory that survives a reset (`ramoops`): the records of panics and
//! oopses, the console, and messages of programs.
//!
//! Such memory is divided into zones, each with a head of its own, so no table and no kernel is
//! needed. The search takes the beginning of each page. What error-correcting codes behind the data
//! could repair is not repaired. Zones of the function tracer, whose heads depend on the kernel's
//! version, are not searched.
//!
//! Sources of the layout: `fs/pstore/ram_core.c` (`struct persistent_ram_buffer`), `fs/pstore/ram.c`
//! (`ramoops_write_kmsg_hdr`) and `fs/pstore/platform.c` of Linux 5.10 to 7.2.

use crate::Error;
use lastwords_bytes::Budget;
use lastwords_image::process_pages::pieces;
use lastwords_image::{Image, Watch};
use std::io::Read as _;

/// The first word of a zone, "DBGC".
const MAGIC: [u8; 4] = 0x4347_4244_u32.to_le_bytes();
/// Bytes of the head: the magic, the position behind the newest byte, and the number of bytes.
const HEAD: usize = 12;
/// Zones begin at multiples of this: their sizes are powers of two from a page on.
const STEP: usize = 4096;
/// The fewest zeros that are no data.
const ZEROS: usize = 16;
/// The most bytes of a zone.
const MAX: usize = 16 << 20;
/// The most bytes of a record when it is decompressed.
const TEXT_MAX: u64 = 16 << 20;

/// The kind of data in a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The end of the kernel's log at a panic or an oops, with the real time, seconds and
    /// nanoseconds.
    Record {
        /// Seconds since 1970.
        seconds: i64,
        /// Nanoseconds of the second.
        nanoseconds: u32,
    },
    /// Lines of the kernel's log as they were printed: the console.
    Console,
    /// Other bytes: messages of programs (`/dev/pmsg0`), or a console that begins with them.
    Other,
}

/// A zone with data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// The physical address of its head.
    pub address: u64,
    /// What it has.
    pub kind: Kind,
    /// The data, the oldest first. Of a record, the text behind its first line, decompressed.
    pub text: Vec<u8>,
    /// Why data are missing; none if all that the head says is there.
    pub missing: Option<String>,
}

/// Finds the zones of an image that have data, in the order of their addresses.
///
/// # Errors
/// The budget is spent.
pub fn find(image: &dyn Image, budget: &Budget, watch: Watch<'_>) -> Result<Vec<Zone>, Error> {
    let mut heads = Vec::new();
    pieces(image, "looking for pstore", budget, watch, |at, bytes| {
        for (number, page) in bytes.chunks(STEP).enumerate() {
            if let Some(size) = size(page) {
                heads.push((at.saturating_add((number as u64).saturating_mul(STEP as u64)), size));
            }
        }
        Ok(())
    })?;
    let ends = heads.iter().skip(1).map(|(at, _)| *at).chain([u64::MAX]).collect::<Vec<_>>();
    let mut zones = Vec::new();
    for ((at, (start, size)), end) in heads.into_iter().zip(ends).filter(|((_, of), _)| of.1 > 0) {
        budget.bytes(image.name(), size as u64)?;
        zones.push(zone(image, at, (start, size), end));
    }
    Ok(zones)
}

/// Returns the position behind the newest byte and the number of bytes, if a page begins with the
/// head of a zone.
fn size(page: &[u8]) -> Option<(usize, usize)> {
    let word = |at: usize| page.get(at..)?.first_chunk::<4>().copied();
    let number = |at: usize| usize::try_from(u32::from_le_bytes(word(at)?)).ok();
    let (start, size) = (number(4)?, number(8)?);
    (word(0)? == MAGIC && size <= MAX && start <= size).then_some((start, size))
}

/// The bytes of a zone, the oldest first, divided where some are missing.
struct Data {
    runs: Vec<Vec<u8>>,
    /// Bytes that are missing, and the reason of the first.
    missing: usize,
    why: Option<String>,
    /// The last bytes are missing.
    is_cut: bool,
}

impl Data {
    /// Reads the bytes in a range of addresses, page by page. A page of zeros is missing, too: no text
    /// has one.
    fn read(&mut self, image: &dyn Image, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let end = (at | 4095).saturating_add(1).min(to);
            let mut page = vec![0; usize::try_from(end.saturating_sub(at)).unwrap_or(0)];
            let why = match image.read(at, &mut page) {
                Err(hole) => Some(hole.to_string()),
                Ok(()) if page.len() >= ZEROS && page.iter().all(|byte| *byte == 0) => {
                    Some(format!("address {at:#x} reads as zero"))
                }
                Ok(()) => None,
            };
            let is_there = why.is_none();
            match self.runs.last_mut().filter(|_| is_there && !self.is_cut) {
                Some(run) => run.append(&mut page),
                None if is_there => self.runs.push(page),
                None => self.missing = self.missing.saturating_add(page.len()),
            }
            self.why = self.why.take().or(why);
            self.is_cut = !is_there;
            at = end;
        }
    }

    /// The bytes that are there. Lines that are not whole are left out.
    fn lines(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (at, run) in self.runs.iter().enumerate() {
            let newline = |byte: &u8| *byte == b'\n';
            let after = |place: usize| place.saturating_add(1);
            let is_first = at == 0;
            let from =
                if is_first { 0 } else { run.iter().position(newline).map_or(run.len(), after) };
            let is_last = after(at) == self.runs.len() && !self.is_cut;
            let to =
                if is_last { run.len() } else { run.iter().rposition(newline).map_or(0, after) };
            text.extend_from_slice(run.get(from..to).unwrap_or_default());
        }
        text
    }
}

/// Reads a zone that ends before `end`, where the next one begins.
fn zone(image: &dyn Image, address: u64, (start, size): (usize, usize), end: u64) -> Zone {
    let from = address.saturating_add(HEAD as u64);
    let at = |position: usize| from.saturating_add(position as u64);
    let mut data = Data { runs: Vec::new(), missing: 0, why: None, is_cut: false };
    if at(size) > end {
        let over = at(size).saturating_sub(end.max(from));
        data.why = Some(format!("its size leads into the zone at {end:#x}"));
        data.missing = usize::try_from(over).unwrap_or(size);
        data.read(image, from, end);
        data.is_cut = true;
    } else {
        // The oldest byte is behind the newest, if the zone was filled.
        let oldest = if start < size { start } else { 0 };
        data.read(image, at(oldest), at(size));
        data.read(image, from, at(oldest));
    }
    let why =
        data.why.as_ref().map(|why| format!("{} of {size} bytes are missing: {why}", data.missing));
    let first = data.runs.first().map_or(&[][..], Vec::as_slice);
    match record(first) {
        Some((kind, text, true)) => {
            let (text, other) = decompress(text);
            Zone { address, kind, text, missing: why.or(other) }
        }
        Some((kind, text, false)) => {
            let head = first.len().saturating_sub(text.len());
            let text = data.lines().split_off(head.min(data.lines().len()));
            Zone { address, kind, text, missing: why }
        }
        None if is_log(first) => {
            Zone { address, kind: Kind::Console, text: data.lines(), missing: why }
        }
        None => Zone { address, kind: Kind::Other, text: data.runs.concat(), missing: why },
    }
}

/// Divides a record: its time, its text, and whether that is compressed. Its first line is
/// `====SECONDS.FRACTION-C`, with `D` if it is not compressed. The fraction has nine digits, and six
/// before Linux 4.19.
fn record(data: &[u8]) -> Option<(Kind, &[u8], bool)> {
    let end = data.iter().take(64).position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(data.get(..end)?).ok()?.strip_prefix("====")?;
    let text = data.get(end.checked_add(1)?..)?;
    let (time, how) = line.split_once('-').unwrap_or((line, "D"));
    let (seconds, fraction) = time.split_once('.')?;
    let unit = if fraction.len() == 6 { 1000 } else { 1 };
    let nanoseconds = fraction.parse::<u32>().ok()?.checked_mul(unit)?;
    let kind = Kind::Record { seconds: seconds.parse().ok()?, nanoseconds };
    let is_compressed = match how {
        "C" => true,
        "D" => false,
        _ => return None,
    };
    Some((kind, text, is_compressed))
}

/// Returns what can be decompressed, and why it is not all.
fn decompress(bytes: &[u8]) -> (Vec<u8>, Option<String>) {
    let mut text = Vec::new();
    let mut decoder = flate2::read::DeflateDecoder::new(bytes).take(TEXT_MAX);
    let why = match decoder.read_to_end(&mut text) {
        Ok(_) if decoder.limit() == 0 => "it is longer than 16 MiB".to_owned(),
        Ok(_) => return (text, None),
        Err(error) => format!("its compressed text cannot be read (deflate): {error}"),
    };
    (text, Some(why))
}

/// Returns true if the first whole line begins as lines of the kernel's log: `[    1.234567] ` or
/// with a priority, `<4>[`.
fn is_log(data: &[u8]) -> bool {
    let mut lines = data.split(|byte| *byte == b'\n').take(3);
    lines.any(|line| {
        let line = match line.first() {
            Some(b'<') => line.get(3..).unwrap_or_default(),
            _ => line,
        };
        let time = line.strip_prefix(b"[").unwrap_or_default();
        let end = time.iter().position(|byte| *byte == b']').unwrap_or(0);
        let time = time.get(..end).unwrap_or_default();
        time.contains(&b'.') && time.iter().all(|byte| b" .0123456789".contains(byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_image::vmcore;
    use std::io::Write as _;

    fn head(start: u32, size: u32) -> Vec<u8> {
        [0x4347_4244, start, size].iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
    }

    /// Raw memory with zones at pages.
    fn found(zones: &[(usize, Vec<u8>)], len: usize) -> Vec<Zone> {
        let mut memory = vec![0; len];
        for (at, bytes) in zones {
            memory[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), memory).unwrap();
        let budget = Budget::default();
        let physical = vmcore::open_raw(file.path(), &[], &budget).unwrap();
        find(&*physical.image, &budget, &lastwords_image::unwatched).unwrap()
    }

    #[test]
    fn zones_are_told_apart() {
        let text = b"Panic#1 Part1\n<4>[    1.000000] last words\n";
        let mut deflate =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        deflate.write_all(text).unwrap();
        let packed =
            [b"====1795999000.000000007-C\n", deflate.finish().unwrap().as_slice()].concat();
        let plain = [b"====1795999001.123456-D\n", text.as_slice()].concat();
        let with =
            |data: &[u8]| [head(data.len() as u32, data.len() as u32).as_slice(), data].concat();
        // The newest byte is before the oldest.
        let console = [head(6, 29).as_slice(), b" last\n[   12.000001] first and"].concat();
        let zones = found(
            &[
                (0x1000, with(&packed)),
                (0x3000, with(&plain)),
                (0x8000, console),
                (0x9000, with(b"of a program\0")),
                (0xa000, head(0, 0)),
                (0xb004, with(b"not at a page")),
                (0xc000, head(9, 8)),
            ],
            0x10000,
        );
        let record = |seconds, nanoseconds| Kind::Record { seconds, nanoseconds };
        let expected = [
            (0x1000, record(1_795_999_000, 7), text.as_slice()),
            (0x3000, record(1_795_999_001, 123_456_000), text),
            (0x8000, Kind::Console, b"[   12.000001] first an last\n"),
            (0x9000, Kind::Other, b"of a program\0"),
        ];
        let zones: Vec<_> = zones.iter().map(|z| (z.address, z.kind, z.text.as_slice())).collect();
        assert_eq!(zones, expected);
    }

    /// What a damaged record still has is there, and it is told that it is not all.
    #[test]
    fn damage_is_told() {
        let text: String =
            (0..200).map(|n| format!("<4>[   {n}.00] line {}\n", n * 7919)).collect();
        let mut deflate =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        deflate.write_all(text.as_bytes()).unwrap();
        let packed = deflate.finish().unwrap();
        let data = [b"====1.000000001-C\n", &packed[..packed.len() / 2]].concat();
        let size = data.len() as u32;
        let zones = found(&[(0, [head(size, size).as_slice(), &data].concat())], 0x4000);
        assert!(text.as_bytes().starts_with(&zones[0].text), "{:?}", zones[0]);
        assert!(!zones[0].text.is_empty());
        assert!(zones[0].missing.as_ref().unwrap().contains("deflate"), "{:?}", zones[0].missing);
        let cut = found(&[(0x1000, [head(0x3000, 0x3000), vec![b'x'; 0xff4]].concat())], 0x2000);
        assert_eq!(cut[0].text.len(), 0x1000 - HEAD);
        assert!(cut[0].missing.as_ref().unwrap().starts_with("8204 of 12288 bytes"), "{cut:?}");
    }

    /// A page that reads as zero costs its lines, also where the zone was filled and goes on at its
    /// begin; and a size that leads into the next zone is not followed.
    #[test]
    fn a_page_costs_its_own_lines() {
        const LEN: usize = 24;
        let line = |n: usize| format!("<4>[  {n:04}.000000] line\n").into_bytes();
        let text: Vec<u8> = (0..700).flat_map(line).collect();
        let (start, size) = (1000, text.len());
        let mut data = text.clone();
        data.rotate_right(start);
        let mut zone = [head(start as u32, size as u32), data].concat();
        zone[0x2000..0x3000].fill(0);
        let zones = found(&[(0x1000, zone)], 0x8000);
        let lost = (0x2000 - HEAD - start)..(0x3000 - HEAD - start);
        let is_there = |n: &usize| n * LEN + LEN <= lost.start || n * LEN >= lost.end;
        let expected: Vec<u8> = (0..700).filter(is_there).flat_map(line).collect();
        assert_eq!((zones.len(), zones[0].kind), (1, Kind::Console));
        assert_eq!(String::from_utf8_lossy(&zones[0].text), String::from_utf8_lossy(&expected));
        let missing = zones[0].missing.as_ref().unwrap();
        assert!(missing.starts_with("4096 of 16800 bytes are missing"), "{missing}");
        let long = [head(0x1100, 0x1100), text[..0xff4].to_vec()].concat();
        let zones = found(&[(0x1000, long), (0x2000, head(0, 0))], 0x4000);
        assert_eq!((zones.len(), zones[0].kind), (1, Kind::Console));
        assert!(text.starts_with(&zones[0].text) && zones[0].text.len() > 0xff4 - LEN);
        assert!(zones[0].missing.as_ref().unwrap().contains("leads into the zone"));
    }
}
