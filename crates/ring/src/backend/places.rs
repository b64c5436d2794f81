//! The file in a session's folder that says where regions are that are no files there.
//!
//! Text, a line a region: `NAME OFFSET LENGTH PATH`, numbers decimal, the path to the end of the line. Readers that scan
//! for the regions' magic need it only to find the file to scan.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::mapping::Backing;
use super::{BackendError, Mapping, file};

/// Name of the file.
pub const PLACES_FILE: &str = "regions";
/// Longest such file that is read.
const LONGEST: u64 = 1 << 20;

/// Where one region is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the region.
    pub name: String,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
    /// The file; `/proc/PID/fd/N` for a memfd, `heap:PID:ADDRESS` for the heap.
    pub path: String,
}

/// Writes the file into a session's folder.
///
/// # Errors
/// What the system said.
pub fn write_places(folder: BorrowedFd<'_>, shown: &str, mappings: &[&Mapping]) -> Result<(), BackendError> {
    let mut text = String::new();
    for mapping in mappings {
        let heap = format!("heap:{}:{:#x}", std::process::id(), mapping.as_ptr() as usize);
        let (path, offset) = mapping.place().unwrap_or((&heap, 0));
        text.push_str(&format!("{} {offset} {} {path}\n", mapping.name(), mapping.len()));
    }
    let path = format!("{shown}/{PLACES_FILE}");
    file::check_limit("write", &path, 0, text.len() as u64)?;
    let fd = file::create_at(folder.as_raw_fd(), PLACES_FILE, &path)?;
    let failed = |source| BackendError { call: "write", path: path.clone(), offset: 0, len: text.len() as u64, source };
    std::fs::File::from(fd).write_all(text.as_bytes()).map_err(failed)
}

/// Reads the lines; those that are not of the form are left out.
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

/// Reads a folder's file, or `None` where it has none.
///
/// # Errors
/// What the system said.
pub fn open_places(folder: BorrowedFd<'_>, shown: &str) -> Result<Option<Vec<Place>>, BackendError> {
    let path = format!("{shown}/{PLACES_FILE}");
    let fd = match file::open_at(folder.as_raw_fd(), PLACES_FILE, &path, libc::O_RDONLY | libc::O_NONBLOCK) {
        Ok(fd) => fd,
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    let read = std::fs::File::from(fd).take(LONGEST).read_to_string(&mut text);
    match read {
        Ok(_) => Ok(Some(parse_places(&text))),
        Err(source) => Err(BackendError { call: "read", path, offset: 0, len: LONGEST, source }),
    }
}

impl Place {
    /// Maps the region, writable. The file's owner is checked: only this user's, or a device.
    ///
    /// # Errors
    /// What the system said, or what is wrong with the place.
    pub fn map(&self) -> Result<Mapping, BackendError> {
        let Self { name, offset, len, path } = self;
        if let Some(place) = path.strip_prefix("heap:") {
            let pid = place.split(':').next().unwrap_or_default();
            let what = format!(
                "on the heap of process {pid}; `lastwords report` reads it there, or in a core of it (`gcore {pid}`)"
            );
            return Err(BackendError::invalid(name, 0, *len, what));
        }
        let is_link = path.starts_with("/proc/");
        let fd = if is_link { open_link(path)? } else { file::open_at(libc::AT_FDCWD, path, path, FLAGS)? };
        let stat = file::stat(&fd, path)?;
        let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        let device = stat.st_mode & libc::S_IFMT == libc::S_IFCHR;
        // SAFETY: geteuid has no way to fail.
        let own = stat.st_uid == unsafe { libc::geteuid() };
        let has = u64::try_from(stat.st_size).unwrap_or(0);
        let fits = *len > 0 && offset.checked_add(*len).is_some_and(|end| device || end <= has);
        if !(fits && (device || (regular && own))) {
            return Err(BackendError::invalid(path, *offset, *len, "no region of this user can be there"));
        }
        // hugetlbfs maps whole huge pages only; its block size is their size.
        let step = if regular { u64::try_from(stat.st_blksize).unwrap_or(4096).max(4096) } else { 4096 };
        let step = if step.is_power_of_two() && step > 65536 { step } else { 4096 };
        let before = offset % step;
        let start = file::map(&fd, path, offset - before, super::round_up(before + len, step), libc::MAP_SHARED)?;
        // SAFETY: `before` is less than the mapping's length.
        let start = unsafe { start.add(before as usize) };
        let blocks = regular && step == 4096;
        let backing = Backing::File { fd: file::hold(fd, path)?, path: path.clone(), offset: *offset, blocks };
        Ok(Mapping { name: name.clone(), start, len: *len, backing })
    }
}

const FLAGS: i32 = libc::O_RDWR | libc::O_NONBLOCK;

/// Opens `/proc/PID/fd/N`, which is a link by nature, if it leads to a memfd.
fn open_link(path: &str) -> Result<std::os::fd::OwnedFd, BackendError> {
    let failed = |source| BackendError { call: "open", path: path.to_owned(), offset: 0, len: 0, source };
    let target = std::fs::read_link(path).map_err(failed)?;
    if !target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:lastwords") {
        return Err(BackendError::invalid(
            path,
            0,
            0,
            format!("leads to {}, which is no memfd of ours", target.display()),
        ));
    }
    std::fs::File::options().read(true).write(true).open(path).map(Into::into).map_err(failed)
}
