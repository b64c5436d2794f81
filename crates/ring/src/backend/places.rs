//! Writes, reads and follows the file that lists the regions that are not files in their session's
//! folder.

use std::fs::File;
use std::io::{Read as _, Write as _};

use lastwords_folders::{PLACES_FILE, Place, parse_places};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mm::MapFlags;

use super::file::{NamedFile, check_limit, is_device, is_own, open_at};
use super::{BackendError, Folder, Mapping, PAGE};

/// Largest such file that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Writes the file into a session's folder.
///
/// # Errors
/// The error of the system.
pub fn write_places<'a>(
    folder: Folder<'_>,
    mappings: impl Iterator<Item = &'a Mapping>,
) -> Result<(), BackendError> {
    let mut text = String::new();
    for mapping in mappings {
        let heap = format!("heap:{}:{:#x}", std::process::id(), mapping.as_ptr() as usize);
        let (path, offset) = mapping.place().unwrap_or((&heap, 0));
        let place =
            Place { name: mapping.name.clone(), offset, len: mapping.len(), path: path.to_owned() };
        text.push_str(&format!("{place}\n"));
    }
    let (path, len) = (folder.shown(PLACES_FILE.as_ref()), text.len() as u64);
    let failed = |call, error| BackendError::new(call, &path, 0, len, error);
    check_limit("write", &path, 0, len)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file =
        open_at(folder.fd, PLACES_FILE, flags).map_err(|error| failed("open", error.into()))?;
    File::from(file).write_all(text.as_bytes()).map_err(|error| failed("write", error))
}

/// Reads a folder's file; returns `None` if the folder has none.
///
/// # Errors
/// The error of the system.
pub fn open_places(folder: Folder<'_>) -> Result<Option<Vec<Place>>, BackendError> {
    let failed = |call, len, error| {
        BackendError::new(call, &folder.shown(PLACES_FILE.as_ref()), 0, len, error)
    };
    let file = match open_at(folder.fd, PLACES_FILE, OFlags::RDONLY) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(|error| failed("open", 0, error.into()))?,
    };
    let mut text = String::new();
    match File::from(file).take(LONGEST).read_to_string(&mut text) {
        Ok(_) => Ok(Some(parse_places(&text))),
        Err(error) => Err(failed("read", LONGEST, error)),
    }
}

/// Maps the region of a place, writable. The file must belong to this user or be a device.
///
/// # Errors
/// The error of the system, or a description of what is wrong with the location.
pub fn map_place(place: &Place) -> Result<Mapping, BackendError> {
    let Place { name, offset, len, path } = place;
    if let Some(place) = path.strip_prefix("heap:") {
        let pid = place.split(':').next().unwrap_or_default();
        let what = format!(
            "on the heap of process {pid}; `lastwords report` reads it there, or in a core of it (`gcore {pid}`)"
        );
        return Err(BackendError::invalid(name, 0, *len, what));
    }
    let is_link = path.starts_with("/proc/");
    let file = if is_link {
        open_link(path)?
    } else {
        NamedFile::open(Folder::here(), path, OFlags::RDWR)?
    };
    let stat = file.look()?;
    let (is_device, block) = (is_device(&stat), stat.st_blksize as u64);
    let fits = *len > 0
        && offset.checked_add(*len).is_some_and(|end| is_device || end <= stat.st_size as u64);
    if !(fits && (is_device || is_own(&stat))) {
        return Err(BackendError::invalid(
            path,
            *offset,
            *len,
            "no region of this user can be there",
        ));
    }
    // hugetlbfs maps only complete huge pages; its block size is their size.
    let is_huge = !is_device && block.is_power_of_two() && block > 65536;
    file.region(name, *offset, *len, if is_huge { block } else { PAGE }, MapFlags::SHARED)
}

/// Opens `/proc/PID/fd/N`, which is always a link, if it leads to a memfd.
fn open_link(path: &str) -> Result<NamedFile, BackendError> {
    let failed = |error| BackendError::new("open", path, 0, 0, error);
    let target = std::fs::read_link(path).map_err(failed)?;
    if !target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:lastwords") {
        let what = format!("leads to {}, which is no memfd of ours", target.display());
        return Err(BackendError::invalid(path, 0, 0, what));
    }
    let fd = File::options().read(true).write(true).open(path).map_err(failed)?.into();
    NamedFile::new(fd, path.to_owned())
}
