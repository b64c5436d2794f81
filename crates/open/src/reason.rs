//! The reasons why inputs cannot be opened, as programs distinguish them.

use lastwords_ctf::read::Error as ReadError;
use std::error::Error as StdError;
use std::io;

/// The reason of a [`Failure`](crate::Failure), for programs. Words change; these do not.
///
/// ```
/// use lastwords_open::{Options, Reason, open};
///
/// let file = tempfile::NamedTempFile::new()?;
/// std::fs::write(file.path(), "a shopping list")?;
/// let opened = open(&[file.path()], &Options::default())?;
/// assert_eq!(opened.failures[0].reason, Reason::NothingToRecover);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The input was read, and holds no trace and nothing damaged that could be one.
    NothingToRecover,
    /// The input is compressed in a form that is not read: gzip, xz, bzip2 or lz4. It may hold a
    /// trace.
    Compressed,
    /// The system could not read the input now, and may be able to later: a device that failed, a
    /// file server that does not answer, too many open files, no memory.
    MayPass,
    /// All else: the input is damaged, is not there, lacks its description, or may not be read.
    Unreadable,
}

impl Reason {
    /// Returns the reason of an error.
    pub(crate) fn from_error(error: &anyhow::Error) -> Self {
        if let Some(own) = error.downcast_ref::<NothingToRecover>() {
            return own.reason;
        }
        match error.chain().any(|cause| errno(cause).is_some_and(may_pass)) {
            true => Self::MayPass,
            false => Self::Unreadable,
        }
    }
}

/// Returns the number of the system's error.
fn errno(cause: &(dyn StdError + 'static)) -> Option<i32> {
    let of_io = |error: &io::Error| error.raw_os_error();
    let of_bytes = |error: &lastwords_bytes::Error| error.errno;
    let of_ctf = |error: &ReadError| match error {
        ReadError::Io { source, .. } => source.raw_os_error(),
        _ => None,
    };
    let io = cause.downcast_ref::<io::Error>().and_then(of_io);
    let bytes = cause.downcast_ref::<lastwords_bytes::Error>().and_then(of_bytes);
    io.or(bytes).or_else(|| cause.downcast_ref::<ReadError>().and_then(of_ctf))
}

/// Returns true if the same call may succeed later.
fn may_pass(errno: i32) -> bool {
    use rustix::io::Errno;
    const PASSING: [Errno; 18] = [
        Errno::IO,
        Errno::AGAIN,
        Errno::INTR,
        Errno::BUSY,
        Errno::TXTBSY,
        Errno::NOMEM,
        Errno::NOBUFS,
        Errno::MFILE,
        Errno::NFILE,
        Errno::STALE,
        Errno::TIMEDOUT,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::NETRESET,
        Errno::CONNRESET,
        Errno::NOTCONN,
    ];
    PASSING.iter().any(|passing| passing.raw_os_error() == errno)
}

/// An error: the input has nothing to recover, by its kind and not because of damage, or is
/// compressed.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct NothingToRecover {
    why: String,
    /// The input is of a kind that has something, as a rule.
    pub(crate) is_loss: bool,
    pub(crate) reason: Reason,
}

impl NothingToRecover {
    /// Makes the error of an input that nobody expects to hold a trace.
    pub(crate) fn error(why: String) -> anyhow::Error {
        anyhow::Error::from(Self { why, is_loss: false, reason: Reason::NothingToRecover })
    }

    /// Makes the error of an input in a compressed form that is not read.
    pub(crate) fn compressed(why: String) -> anyhow::Error {
        anyhow::Error::from(Self { why, is_loss: false, reason: Reason::Compressed })
    }

    /// Makes the error of an input of a kind that has a trace, as a rule.
    pub(crate) fn unexpected(why: String) -> anyhow::Error {
        anyhow::Error::from(Self { why, is_loss: true, reason: Reason::NothingToRecover })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, open};
    use anyhow::Context as _;
    use std::path::Path;

    #[test]
    fn what_may_pass_is_known_by_the_number_of_the_systems_error() {
        let of = |error: anyhow::Error| Reason::from_error(&error.context("core").context("input"));
        let system = |number| io::Error::from_raw_os_error(number);
        for (number, reason) in [
            (5, Reason::MayPass),
            (24, Reason::MayPass),
            (116, Reason::MayPass),
            (2, Reason::Unreadable),
            (13, Reason::Unreadable),
            (21, Reason::Unreadable),
        ] {
            assert_eq!(of(system(number).into()), reason, "{number}");
            let bytes = lastwords_bytes::Error::io("core", 7, &system(number));
            assert_eq!(of(bytes.into()), reason, "{number} of bytes");
            let ctf = ReadError::Io { path: "metadata".into(), source: system(number) };
            assert_eq!(of(ctf.into()), reason, "{number} of CTF");
        }
        // The words are those of an error that may pass, and it is none.
        assert_eq!(of(anyhow::anyhow!("Input/output error (os error 5)")), Reason::Unreadable);
        let nothing = Err::<(), _>(NothingToRecover::unexpected("a core".into())).context("x");
        assert_eq!(Reason::from_error(&nothing.unwrap_err()), Reason::NothingToRecover);
    }

    /// The reason of the only failure at a path.
    fn reason(path: &Path) -> Reason {
        let opened = open(&[path], &Options::default()).unwrap();
        assert!(opened.traces.is_empty() && opened.failures.len() == 1, "{:?}", opened.failures);
        opened.failures[0].reason
    }

    #[test]
    fn what_holds_nothing_is_not_what_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let file = |bytes: &[u8]| {
            let path = folder.path().join("file");
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let program = std::env::current_exe().unwrap();
        assert_eq!(reason(&program), Reason::NothingToRecover);
        for bytes in [&b""[..], b"some text", &[0xa5; 9000]] {
            assert_eq!(reason(&file(bytes)), Reason::NothingToRecover, "{bytes:?}");
        }
        for bytes in [&b"\x1f\x8b\x08\0"[..], b"\xfd7zXZ\0", b"BZh9", b"\x04\x22\x4d\x18"] {
            assert_eq!(reason(&file(bytes)), Reason::Compressed, "{bytes:?}");
            assert_eq!(reason(folder.path()), Reason::Compressed, "{bytes:?} in a folder");
        }
        // The beginnings of a trace.dat file, of a stream of CTF, of a core and of a region.
        let mut core = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0\x3e\0".to_vec();
        core.resize(300, 0xff);
        let mut region = vec![0xa5; 4096];
        region.extend_from_slice(b"\x89LASTWORDS\r\n\x1a\n\0\0");
        region.resize(3 * 4096, 0xa5);
        for bytes in [&b"\x17\x08\x44tracing6"[..], b"\xc1\x1f\xfc\xc1", &core, &region] {
            assert_eq!(reason(&file(bytes)), Reason::Unreadable, "{bytes:?}");
        }
        assert_eq!(reason(&folder.path().join("none")), Reason::Unreadable);
        std::fs::remove_file(folder.path().join("file")).unwrap();
        assert_eq!(reason(folder.path()), Reason::NothingToRecover);
        std::fs::write(folder.path().join("session"), "cut").unwrap();
        assert_eq!(reason(folder.path()), Reason::Unreadable);
    }
}
