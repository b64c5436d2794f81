//! The file in a session's folder that lists the regions that are not files in this folder.
//!
//! It is text with one line for each region: `NAME OFFSET LENGTH PATH`. Numbers are decimal, and
//! the path extends to the end of the line. Readers that scan for the regions' magic need it only
//! to find the file to scan.

use std::fmt;

/// Name of the file.
pub const PLACES_FILE: &str = "regions";

/// The location of one region. Its text is the line of the file, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the region.
    pub name: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length, in bytes.
    pub len: u64,
    /// The file; `/proc/PID/fd/N` for a memfd, `heap:PID:ADDRESS` for the heap.
    pub path: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, offset, len, path } = self;
        write!(f, "{name} {offset} {len} {path}")
    }
}

/// Parses the lines; lines of another form are left out.
#[must_use]
pub fn parse_places(text: &str) -> Vec<Place> {
    let parse = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let name = words.next()?.to_owned();
        let offset = words.next()?.parse().ok()?;
        let len = words.next()?.parse().ok()?;
        Some(Place { name, offset, len, path: words.next()?.to_owned() })
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let place = |path: &str| Place {
            name: "stream-0".into(),
            offset: 1 << 40,
            len: 7,
            path: path.into(),
        };
        let places = [place("/a path/with spaces"), place("heap:12:0x7f00")];
        let text: String = places.iter().map(|place| format!("{place}\n")).collect();
        assert_eq!(
            parse_places(&format!("{text}a b c\nsession 1\n\n{text}")),
            [&places[..], &places[..]].concat()
        );
    }
}
