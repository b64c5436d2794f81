//! The error numbers of failures.

use rustix::io::Errno;

/// Returns the error number that fits an error of the library.
pub(crate) fn errno_of(error: &lastwords::Error) -> Errno {
    use lastwords::Error;
    match error {
        Error::Io { source, .. } => {
            source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
        }
        Error::Untrusted { .. } => Errno::PERM,
        Error::TooLarge { .. } => Errno::NOMEM,
        Error::Full { .. } => Errno::NOSPC,
        Error::Busy { .. } => Errno::BUSY,
        _ => Errno::INVAL,
    }
}
