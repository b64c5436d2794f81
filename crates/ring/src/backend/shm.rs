//! Shared-memory files: one file a region in the session's folder. What a killed process wrote stays in the page cache.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use lastwords_abi::session::BACKEND_SHM;

use super::mapping::Backing;
use super::{Backend, BackendError, Mapping, Plan, file};

/// Files in a folder, made with O_EXCL and O_NOFOLLOW, mode 0600.
#[derive(Debug)]
pub struct ShmBackend {
    folder: OwnedFd,
    path: String,
}

impl ShmBackend {
    /// `folder` is the session's folder, open; `path` names it in messages.
    #[must_use]
    pub fn new(folder: OwnedFd, path: impl Into<String>) -> Self {
        Self { folder, path: path.into() }
    }

    fn make(&self, plan: &Plan) -> Result<Mapping, BackendError> {
        let path = format!("{}/{}", self.path, plan.name);
        let fd = file::create_at(self.folder.as_raw_fd(), &plan.name, &path)?;
        file::map_plan(fd, path, plan)
    }
}

impl Backend for ShmBackend {
    fn kind(&self) -> u32 {
        BACKEND_SHM
    }

    fn allocate(&mut self, plans: &[Plan]) -> Result<Vec<Mapping>, BackendError> {
        let mut mappings: Vec<Mapping> = Vec::with_capacity(plans.len());
        for plan in plans {
            match self.make(plan) {
                Ok(mapping) => mappings.push(mapping),
                Err(error) => {
                    // What is mapped would keep its memory after its file is removed.
                    // SAFETY: nobody else has these mappings.
                    mappings.iter().for_each(|mapping| unsafe { mapping.detach() });
                    return Err(error);
                }
            }
        }
        Ok(mappings)
    }

    fn in_folder(&self) -> bool {
        true
    }

    fn note(&self) -> String {
        "one file a region".to_owned()
    }
}

/// Maps a region that another process made as a file in its folder. A file that is no regular file, or that is shorter
/// than a region header, is refused.
///
/// # Errors
/// What the system said, or what is wrong with the file.
pub fn open_region(folder: BorrowedFd<'_>, folder_path: &str, name: &str) -> Result<Mapping, BackendError> {
    let path = format!("{folder_path}/{name}");
    // O_NONBLOCK: a FIFO in the place of the file must not stop us.
    let fd = file::open_at(folder.as_raw_fd(), name, &path, libc::O_RDWR | libc::O_NONBLOCK)?;
    let stat = file::stat(&fd, &path)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(BackendError::invalid(&path, 0, 0, "not a regular file"));
    }
    let len = u64::try_from(stat.st_size).unwrap_or(0);
    if len < lastwords_abi::region::REGION_ALIGN || len % lastwords_abi::region::REGION_ALIGN != 0 {
        return Err(BackendError::invalid(&path, 0, len, "not the length of a region"));
    }
    let start = file::map(&fd, &path, 0, len, libc::MAP_SHARED)?;
    let backing = Backing::File { fd: file::hold(fd, &path)?, path, offset: 0, blocks: true };
    Ok(Mapping { name: name.to_owned(), start, len, backing })
}
