//! Descriptors that are kept for long.
//!
//! Programs close descriptors that they did not open (`closefrom` of a daemon), and the numbers are soon other files'. So
//! the file's identity is kept with its descriptor, and looked at before each use.

use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd};

/// A descriptor and the identity of its file. Dropping it closes the descriptor if it is still that file's.
#[derive(Debug)]
pub struct VerifiedFile {
    /// -1 once it was given up.
    fd: AtomicI32,
    /// Device and inode of the file.
    identity: (u64, u64),
}

impl VerifiedFile {
    /// Keeps the descriptor.
    ///
    /// # Errors
    /// The system does not tell the file's identity.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let identity = identity_of(fd.as_fd())?;
        Ok(Self { fd: AtomicI32::new(fd.into_raw_fd()), identity })
    }

    /// The descriptor; `None` where the program closed it, or it was given up.
    #[must_use]
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.load(Relaxed);
        // SAFETY: a number that is not -1. Before `fstat` has said that it is open, and of our file, nothing else is asked of it.
        // Who closes it meanwhile did not get it from us.
        let file = (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })?;
        self.is(file).then_some(file)
    }

    /// Closes the descriptor, if it is still our file's.
    ///
    /// # Safety
    /// Nobody uses what [`VerifiedFile::get`] gave.
    pub unsafe fn give_up(&self) {
        if self.get().is_some() {
            // SAFETY: it was given to us for good, is still what was given, and nobody else's: the caller vouches for that.
            drop(unsafe { OwnedFd::from_raw_fd(self.fd.swap(-1, Relaxed)) });
        }
    }

    /// Whether a descriptor is of the same file.
    #[must_use]
    pub fn is(&self, other: BorrowedFd<'_>) -> bool {
        identity_of(other).is_ok_and(|identity| identity == self.identity)
    }
}

impl Drop for VerifiedFile {
    fn drop(&mut self) {
        // SAFETY: this is the only reference.
        unsafe { self.give_up() }
    }
}

fn identity_of(fd: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}
