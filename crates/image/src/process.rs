//! Reads the memory of a running process through `/proc`.

use crate::HoleCause;
use crate::file::Backing;
use crate::opened::{ImageKind, Opened};
use crate::segments::{Segment, Segments};
use lastwords_bytes::{Budget, Error};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// True if the path is `/proc/PID/mem`.
pub(crate) fn is_memory(path: &Path) -> bool {
    let words: Vec<&str> = path.iter().filter_map(|word| word.to_str()).collect();
    matches!(words[..], ["/", "proc", pid, "mem"] if pid == "self" || pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Opens the memory at `path`, which is `/proc/PID/mem`. Only writable memory is mapped: sessions
/// are there.
///
/// # Errors
/// The process has exited, belongs to another user or may not be inspected; or the budget is spent.
pub(crate) fn open(path: &Path, budget: &Budget) -> Result<Opened, Error> {
    let name = path.display().to_string();
    let maps = path.with_file_name("maps");
    let shown = maps.display().to_string();
    let text = std::fs::read_to_string(&maps).map_err(|e| Error::io(&shown, 0, &e))?;
    let memory = File::open(path).map_err(|e| Error::io(&name, 0, &e))?;
    of_files(memory, &text, &name, budget)
}

/// Opens the memory of a process by its `/proc/PID/mem`, which is open already, and the text of its
/// `/proc/PID/maps`. So a caller can give up rights between opening these files and reading the
/// memory. Only writable memory is mapped: sessions are there. `name` is that of the image in
/// messages.
///
/// # Errors
/// The budget is spent.
pub fn of_files(memory: File, maps: &str, name: &str, budget: &Budget) -> Result<Opened, Error> {
    budget.steps(name, maps.lines().count() as u64)?;
    let segments: Vec<Segment> = maps.lines().filter_map(mapping).collect();
    budget.admit(segments.iter().map(|segment| segment.len).fold(0, u64::saturating_add));
    let (image, _) = Segments::new(name, vec![Backing::of_memory(memory, name)], segments, true);
    Ok(Opened {
        image: Arc::new(image),
        kind: ImageKind::Process,
        core: None,
        is_damaged: false,
        notes: Vec::new(),
    })
}

/// Parses a line of `maps` (`START-END rwxp OFFSET DEVICE INODE PATH`); none if the memory is not
/// readable and writable.
fn mapping(line: &str) -> Option<Segment> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = u64::from_str_radix(start, 16).ok()?;
    let len = u64::from_str_radix(end, 16).ok()?.checked_sub(address)?;
    let wanted = words.next()?.starts_with("rw");
    wanted.then_some(Segment {
        address,
        len,
        held: len,
        file: 0,
        offset: address,
        rest: HoleCause::Unmapped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_may_write_is_read_where_it_lies() {
        let bytes = vec![7u8; 10_000];
        let path = Path::new("/proc/self/mem");
        assert!(is_memory(path) && is_memory(Path::new("/proc/1/mem")));
        assert!(!is_memory(Path::new("/proc/1/maps")) && !is_memory(Path::new("proc/1/mem")));
        let opened = open(path, &Budget::default()).unwrap();
        let mut read = vec![0u8; bytes.len()];
        opened.image.read(bytes.as_ptr() as u64, &mut read).unwrap();
        assert_eq!(read, bytes);
        assert_eq!(opened.image.read(16, &mut read).unwrap_err().cause, HoleCause::Unmapped);
        assert!(opened.image.is_virtual());
    }

    #[test]
    fn a_line_of_maps_is_a_segment_where_it_can_be_written() {
        let segment = mapping("7f00a000-7f00c000 rw-p 00000000 00:00 0   [heap]").unwrap();
        assert_eq!(
            (segment.address, segment.len, segment.offset),
            (0x7f00_a000, 0x2000, 0x7f00_a000)
        );
        for other in [
            "7f00a000-7f00c000 r--p 0 0:0 0",
            "7f00c000-7f00a000 rw-p",
            "",
            "x-y rw-p",
            "1000 rw-p",
        ] {
            assert!(mapping(other).is_none(), "{other}");
        }
    }
}
