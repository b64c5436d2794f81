//! Descriptors that are kept for long.
//!
//! Programs close descriptors that they did not open (`closefrom` of a daemon), and the numbers are soon other files'. So
//! the file's identity is kept with its descriptor, and looked at before each use.

use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};

/// A descriptor and the identity of its file. Dropping it closes the descriptor if it is still that file's.
#[derive(Debug)]
pub struct VerifiedFile {
    /// -1 once it was given up.
    fd: AtomicI32,
    identity: Identity,
}

/// Device and inode of a file.
type Identity = (libc::dev_t, libc::ino_t);

impl VerifiedFile {
    /// Keeps the descriptor.
    ///
    /// # Errors
    /// The system does not tell the file's identity.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let identity = identity_of(fd.as_raw_fd())?;
        Ok(Self { fd: AtomicI32::new(fd.into_raw_fd()), identity })
    }

    /// The descriptor; `None` where the program closed it, or it was given up.
    #[must_use]
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.load(Relaxed);
        let same = identity_of(fd).is_ok_and(|identity| identity == self.identity);
        // SAFETY: it is open, as `fstat` said, and of our file. Who closes it meanwhile did not get it from us.
        same.then(|| unsafe { BorrowedFd::borrow_raw(fd) })
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
        identity_of(other.as_raw_fd()).is_ok_and(|identity| identity == self.identity)
    }
}

impl Drop for VerifiedFile {
    fn drop(&mut self) {
        // SAFETY: this is the only reference.
        unsafe { self.give_up() }
    }
}

fn identity_of(fd: RawFd) -> io::Result<Identity> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the buffer is a `stat`; a descriptor that is not open is an error.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled by the call that succeeded.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_number_that_is_another_files_now_is_neither_used_nor_closed() {
        let open = |path| std::fs::File::open(path).expect("it opens");
        let held = VerifiedFile::new(open("/proc/self/exe").into()).expect("held");
        assert!(held.get().is_some_and(|fd| held.is(fd)));
        let other = open("/proc/version");
        assert!(!held.is(other.as_fd()));
        let number = held.fd.load(Relaxed);
        // SAFETY: both descriptors are open; the first is `held`'s alone.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        assert!(held.get().is_none());
        drop(held);
        // SAFETY: the copy made above, which nobody else closes.
        assert_eq!(unsafe { libc::close(number) }, 0, "it was left open");
    }
}
