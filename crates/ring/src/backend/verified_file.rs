//! Descriptors that stay open for long.
//!
//! Programs close descriptors that they did not open (`closefrom` of a daemon), and other files
//! then get the same numbers. So the file's identity is kept with its descriptor, and checked
//! before each use.

use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd};

/// A descriptor and the identity of its file. Dropping it closes the descriptor if it still refers
/// to that file.
#[derive(Debug)]
pub struct VerifiedFile {
    /// The descriptor; -1 after it was given up.
    fd: AtomicI32,
    /// Device and inode of the file.
    identity: (u64, u64),
}

impl VerifiedFile {
    /// Keeps the descriptor.
    ///
    /// # Errors
    /// The system does not report the file's identity.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let identity = identity_of(fd.as_fd())?;
        Ok(Self { fd: AtomicI32::new(fd.into_raw_fd()), identity })
    }

    /// Returns the descriptor; `None` if the program closed it, or if it was given up.
    #[must_use]
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.load(Relaxed);
        // SAFETY: the number is not -1. Until `fstat` has confirmed that it is open and refers to
        // our file, it is used for nothing else. If other code closes it meanwhile, it did not get
        // it from us.
        let file = (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })?;
        self.is(file).then_some(file)
    }

    /// Closes the descriptor if it still refers to our file.
    ///
    /// # Safety
    /// Nobody uses the descriptor that [`VerifiedFile::get`] returned.
    pub unsafe fn give_up(&self) {
        if self.get().is_some() {
            // SAFETY: this value owns the descriptor, which still refers to the same file. The
            // caller guarantees that nobody else uses it.
            drop(unsafe { OwnedFd::from_raw_fd(self.fd.swap(-1, Relaxed)) });
        }
    }

    /// Returns the device and the inode of the file.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns true if a descriptor refers to the same file.
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
