//! Sections, options and descriptions of a trace.dat file of version 7 (`trace-cmd.dat.v7`): found
//! by the list of options, by code that shares nothing with the program.

use std::ops::Range;

/// Numbers of options that are the places of sections.
const PLACES: [(u16, &str); 8] = [
    (3, "buffer"),
    (16, "header"),
    (17, "formats of ftrace"),
    (18, "formats of events"),
    (19, "symbols"),
    (20, "formats of printk"),
    (21, "names of tasks"),
    (22, "buffer of text"),
];

/// Returns the parts of a file; none for another format.
pub(crate) fn parts(bytes: &[u8]) -> Option<Vec<(String, Range<usize>)>> {
    let rest = bytes.strip_prefix(b"\x17\x08\x44tracing")?;
    let version = rest.split(|byte| *byte == 0).next()?;
    if version != b"7" {
        return None;
    }
    // Byte order, size of a long, size of a page; then the compression's name and version.
    let mut at = 10 + version.len() + 1 + 1 + 1 + 4;
    for _ in 0..2 {
        at += bytes.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
    }
    let mut options = usize::try_from(number(bytes, at, 8)?).ok()?;
    let mut found = vec![("header of the file".to_owned(), 0..at + 8)];
    // Each list of options ends with the place of the next one.
    for _ in 0..16 {
        let section = section(bytes, options)?;
        let (mut at, end) = (section.start, section.end);
        found.push(("list of options".into(), options..end));
        options = 0;
        while at + 6 <= end {
            let (id, size) = (number(bytes, at, 2)? as u16, number(bytes, at + 2, 4)? as usize);
            let data = at + 6..at + 6 + size;
            if id == 0 {
                options = usize::try_from(number(bytes, data.start, 8)?).ok()?;
                break;
            }
            found.push((format!("option {id}"), at..data.end));
            if let Some((_, name)) = PLACES.iter().find(|(place, _)| *place == id) {
                let place = usize::try_from(number(bytes, data.start, 8)?).ok()?;
                if let Some(inside) = self::section(bytes, place) {
                    found.extend(descriptions(bytes, &inside));
                    found.push(((*name).to_owned(), inside));
                }
            }
            at = data.end;
        }
        if options == 0 {
            break;
        }
    }
    Some(found)
}

/// Returns the bytes of the section at a place, behind its head: number, flags, description, size.
fn section(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let size = usize::try_from(number(bytes, at + 8, 8)?).ok()?;
    let inside = at + 16..(at + 16).checked_add(size)?;
    bytes.get(inside.clone()).map(|_| inside)
}

/// Returns the descriptions of events in a section.
fn descriptions(bytes: &[u8], section: &Range<usize>) -> Vec<(String, Range<usize>)> {
    const HEAD: &[u8] = b"name: ";
    let text = &bytes[section.clone()];
    let begins: Vec<usize> = text
        .windows(HEAD.len())
        .enumerate()
        .filter(|(_, at)| *at == HEAD)
        .map(|(at, _)| at)
        .collect();
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    let ranges = begins.iter().zip(ends).map(|(begin, end)| {
        let name = text[*begin..end].split(|byte| *byte == b'\n').next().unwrap_or_default();
        // The size of the next description is in front of it.
        (
            format!("description {:?}", String::from_utf8_lossy(name)),
            section.start + begin..section.start + end.saturating_sub(8).max(*begin),
        )
    });
    ranges.collect()
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let raw = bytes.get(at..at.checked_add(size)?)?;
    Some(raw.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}
