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
    let mut zones = Vec::new();
    for (at, (start, size)) in heads {
        budget.bytes(image.name(), size as u64)?;
        zones.push(zone(image, at, start, size));
    }
    Ok(zones)
}

/// Returns the position behind the newest byte and the number of bytes, if a page begins with the
/// head of a zone that has data.
fn size(page: &[u8]) -> Option<(usize, usize)> {
    let word = |at: usize| page.get(at..)?.first_chunk::<4>().copied();
    let number = |at: usize| usize::try_from(u32::from_le_bytes(word(at)?)).ok();
    let (start, size) = (number(4)?, number(8)?);
    (word(0)? == MAGIC && (1..=MAX).contains(&size) && start <= size).then_some((start, size))
}

/// Reads a zone. Data that the image lacks cost what is behind them, too.
fn zone(image: &dyn Image, address: u64, start: usize, size: usize) -> Zone {
    let mut data = vec![0; size];
    let at = address.saturating_add(HEAD as u64);
    let mut missing = None;
    if let Err(hole) = image.read(at, &mut data) {
        let held = usize::try_from(hole.address.saturating_sub(at)).unwrap_or(0).min(size);
        missing =
            Some(format!("{} of {size} bytes are missing: {hole}", size.saturating_sub(held)));
        data.truncate(held);
    }
    // The oldest byte is behind the newest, if the zone was filled.
    data.rotate_left(if missing.is_none() && start < size { start } else { 0 });
    match record(&data) {
        Some((kind, text, is_compressed)) => {
            let mut text = text.to_vec();
            if is_compressed {
                let (plain, why) = decompress(&text);
                text = plain;
                missing = missing.or(why);
            }
            Zone { address, kind, text, missing }
        }
        None => {
            let kind = if is_log(&data) { Kind::Console } else { Kind::Other };
            Zone { address, kind, text: data, missing }
        }
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
        let cut = found(&[(0x1000, head(0x3000, 0x3000))], 0x2000);
        assert_eq!(cut[0].text.len(), 0x1000 - HEAD);
        assert!(cut[0].missing.as_ref().unwrap().starts_with("8204 of 12288 bytes"), "{cut:?}");
    }
}
