//! Determines the kind of a file by its first bytes.

use lastwords_ftrace::persistent;
use lastwords_image::vmcore::{MAGICS, is_foreign};
use lastwords_lttng::user;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The number of bytes that are read.
const HEAD: usize = 512;

/// The kinds of files, as far as their first bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// A trace.dat file.
    TraceDat,
    /// A dump of a machine's memory in a container.
    Dump,
    /// An ELF core, of a process or of a machine.
    Core,
    /// Data that zstd compressed.
    Zstd,
    /// A stream of LTTng's user-space tracer.
    Lttng,
    /// A stream of CTF: its folder has the metadata.
    CtfStream,
    /// A persistent ring buffer of ftrace.
    Persistent,
    /// A file in a compressed form that is not read, described in words. It may hold a trace.
    Compressed(&'static str),
    /// A file without a trace, described in words.
    Other(&'static str),
}

impl Beginning {
    /// Returns true if the file may hold a trace.
    pub(super) fn is_input(self) -> bool {
        !matches!(self, Self::Other(_) | Self::Compressed(_) | Self::CtfStream)
    }
}

/// Returns the kind of a file. Returns none if the file cannot be read or has an unknown beginning.
pub(super) fn of_file(path: &Path) -> Option<Beginning> {
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
    // ET_CORE of `e_type`, in either byte order.
    const CORES: [&[u8]; 2] = [&[4, 0], &[0, 4]];
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
    if begins(b"\x17\x08\x44tracing") {
        return Some(Beginning::TraceDat);
    }
    if begins(&user::MAGIC) {
        return Some(Beginning::Lttng);
    }
    if begins(b"\xc1\x1f\xfc\xc1") || begins(b"\xc1\xfc\x1f\xc1") {
        return Some(Beginning::CtfStream);
    }
    if persistent::is_region(head, len) {
        return Some(Beginning::Persistent);
    }
    if begins(b"\x28\xb5\x2f\xfd") {
        return Some(Beginning::Zstd);
    }
    if begins(b"\x7fELF") && head.get(16..18).is_some_and(|kind| CORES.contains(&kind)) {
        return Some(Beginning::Core);
    }
    // What cannot be read is refused with its name when it is opened.
    if MAGICS.iter().any(|magic| begins(magic)) || is_foreign(head) {
        return Some(Beginning::Dump);
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

/// Returns true if the file begins as a stream of LTTng's user-space tracer.
pub(super) fn is_lttng(path: &Path) -> bool {
    of_file(path) == Some(Beginning::Lttng)
}

/// Returns true if a file begins as a stream of CTF, in either byte order.
#[must_use]
pub fn is_ctf_stream(path: &Path) -> bool {
    of_file(path) == Some(Beginning::CtfStream)
}

/// Says what a file is, as a sentence without its end: `this is text`.
pub(super) fn sentence(kind: Option<Beginning>) -> String {
    let words = match kind {
        Some(Beginning::Other(words) | Beginning::Compressed(words)) => words,
        Some(Beginning::TraceDat) => "a trace.dat file",
        Some(Beginning::Dump) => "a kernel crash dump",
        Some(Beginning::Core) => "an ELF core",
        Some(Beginning::Zstd) => "zstd data",
        Some(Beginning::Lttng) => "a stream of LTTng",
        Some(Beginning::CtfStream) => "a stream of CTF: name its folder, which has the metadata",
        Some(Beginning::Persistent) => "a persistent ring buffer of ftrace",
        None => return "its contents match no known format".to_owned(),
    };
    format!("this is {words}")
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
            of_file(&path)
        };
        assert_eq!(of(&elf), Some(Beginning::Other("an ELF program")));
        elf[16] = 4;
        assert_eq!(of(&elf), Some(Beginning::Core));
        assert_eq!(
            of(b"\x1f\x8b\x08\0"),
            Some(Beginning::Compressed("gzip data: decompress it first"))
        );
        assert_eq!(of("some text, \u{e4} cut".as_bytes()), Some(Beginning::Other("text")));
        assert_eq!(of(b""), Some(Beginning::Other("empty")));
        assert_eq!(of(b"\x17\x08\x44tracing6"), Some(Beginning::TraceDat));
        assert_eq!(of(b"KDUMP   "), Some(Beginning::Dump));
        assert_eq!(of(&[0xa5; 600]), None);
        assert_eq!(sentence(None), "its contents match no known format");
        assert_eq!(sentence(Some(Beginning::Other("text"))), "this is text");
        assert_eq!(of_file(&dir.path().join("none")), None);
    }
}
