//! Determines the kind of a file by its first bytes.

use super::{CTF, FileKind, Opens, Place, SOURCES};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The number of bytes that are read.
const HEAD: usize = 512;

/// The kind of a file, as far as its first bytes tell.
#[derive(Clone, Copy)]
pub(crate) enum Beginning {
    /// A file of one of the places.
    Of(&'static Place, &'static FileKind),
    /// A file in a compressed form that is not read, described in words. It may hold a trace.
    Compressed(&'static str),
    /// A file without a trace, described in words.
    Other(&'static str),
}

impl Beginning {
    /// Returns true if the file may hold a trace.
    pub(crate) fn is_input(self) -> bool {
        matches!(self, Self::Of(_, file) if file.opens != Opens::Folder)
    }

    /// Returns true if the file is one of these.
    pub(crate) fn is_of(self, place: &Place) -> bool {
        matches!(self, Self::Of(own, _) if own == place)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Of(_, file) => file.words,
            Self::Compressed(words) | Self::Other(words) => words,
        }
    }
}

/// Returns the kind of a file. Returns none if the file cannot be read or has an unknown beginning.
pub(crate) fn of_file(path: &Path) -> Option<Beginning> {
    look(path).ok().flatten()
}

/// Returns the kind of a file, or none if its beginning is unknown.
///
/// # Errors
/// The file cannot be read.
pub(super) fn look(path: &Path) -> io::Result<Option<Beginning>> {
    let mut head = Vec::new();
    let file = File::open(path)?;
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    file.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(of_head(&head, len))
}

/// Returns the kind of a file by its first bytes and its length.
fn of_head(head: &[u8], len: u64) -> Option<Beginning> {
    const COMPRESSED: [(&[u8], &str); 4] = [
        (b"\x1f\x8b", "gzip data: decompress it first"),
        (b"\xfd7zXZ\0", "xz data: decompress it first"),
        (b"BZh", "bzip2 data: decompress it first"),
        (b"\x04\x22\x4d\x18", "lz4 data: decompress it first"),
    ];
    const OTHERS: [(&[u8], &str); 6] = [
        (b"\x7fELF", "an ELF program"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"%PDF", "a PDF document"),
        (b"\x89PNG", "a picture"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"PERFILE2", "a file of perf"),
    ];
    let begins = |magic: &[u8]| head.starts_with(magic);
    let mut known =
        SOURCES.into_iter().flat_map(|place| place.files.iter().map(move |file| (place, file)));
    if let Some((place, file)) = known.find(|(_, file)| (file.begins)(head, len)) {
        return Some(Beginning::Of(place, file));
    }
    if let Some((_, words)) = COMPRESSED.iter().find(|(magic, _)| begins(magic)) {
        return Some(Beginning::Compressed(words));
    }
    if let Some((_, words)) = OTHERS.iter().find(|(magic, _)| begins(magic)) {
        return Some(Beginning::Other(words));
    }
    if head.get(257..262).is_some_and(|magic| magic == b"ustar") {
        return Some(Beginning::Other("a tar archive"));
    }
    if head.is_empty() {
        return Some(Beginning::Other("empty"));
    }
    let text = std::str::from_utf8(head).map_or_else(|error| error.error_len().is_none(), |_| true);
    let is_text = text
        && !head
            .iter()
            .any(|byte| byte.is_ascii_control() && !b"\t\n\r\x1b\x0c\x1e".contains(byte));
    is_text.then_some(Beginning::Other("text"))
}

/// Returns true if a file is one of a place's, by its first bytes.
pub(super) fn is_file_of(path: &Path, place: &Place) -> bool {
    of_file(path).is_some_and(|beginning| beginning.is_of(place))
}

/// Returns true if a file begins as a stream of CTF, in either byte order.
#[must_use]
pub fn is_ctf_stream(path: &Path) -> bool {
    is_file_of(path, &CTF)
}

/// Says what a file is, as a sentence without its end: `this is text`.
pub(crate) fn sentence(beginning: Option<Beginning>) -> String {
    match beginning {
        Some(beginning) => format!("this is {}", beginning.words()),
        None => "its contents match no known format".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_their_beginnings() {
        let dir = tempfile::tempdir().unwrap();
        let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
        let of = |bytes: &[u8]| {
            let path = dir.path().join("file");
            std::fs::write(&path, bytes).unwrap();
            sentence(of_file(&path))
        };
        assert_eq!(of(&elf), "this is an ELF program");
        elf[16] = 4;
        assert_eq!(of(&elf), "this is an ELF core");
        assert_eq!(of(b"\x1f\x8b\x08\0"), "this is gzip data: decompress it first");
        assert_eq!(of("some text, \u{e4} cut".as_bytes()), "this is text");
        assert_eq!(of(b""), "this is empty");
        assert_eq!(of(b"\x17\x08\x44tracing6"), "this is a trace.dat file");
        assert_eq!(of(b"KDUMP   "), "this is a kernel crash dump");
        assert_eq!(of(&[0xa5; 600]), "its contents match no known format");
        assert!(of_file(&dir.path().join("none")).is_none());
    }
}
