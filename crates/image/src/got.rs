//! Reads of a file at a place, and how far they came.

use crate::{Hole, HoleCause};
use lastwords_bytes::Error;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

/// Result of a read.
pub(crate) enum Got {
    All,
    /// The file ended after this many bytes.
    Ended(usize),
    /// Reading failed after this many bytes.
    Failed(usize),
}

impl Got {
    /// Returns the number of bytes that were read into memory at `address`, all `len`, or the hole
    /// where they end.
    pub(crate) fn part(self, address: u64, len: usize) -> Result<usize, Hole> {
        let (done, cause) = match self {
            Self::All => return Ok(len),
            Self::Ended(done) => (done, HoleCause::Truncated),
            Self::Failed(done) => (done, HoleCause::Bad),
        };
        Err(Hole { address: address.saturating_add(done as u64), cause })
    }

    /// Returns an error unless all was read: `len` bytes at `offset` of the file `name`.
    pub(crate) fn all(self, name: &str, offset: u64, len: usize) -> Result<(), Error> {
        match self {
            Self::All => Ok(()),
            Self::Ended(got) => {
                Err(Error::short(name, offset, got as u64, &format!("{len} bytes")))
            }
            Self::Failed(_) => Err(Error::io(
                name,
                offset,
                &std::io::Error::other(format!("{len} bytes cannot be read")),
            )),
        }
    }
}

/// Fills `buf` from `offset` of a file on.
pub(crate) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> Got {
    let mut done = 0usize;
    while done < buf.len() {
        let at = offset.saturating_add(done as u64);
        let Some(rest) = buf.get_mut(done..) else { break };
        match file.read_at(rest, at) {
            Ok(0) => return Got::Ended(done),
            Ok(n) => done = done.saturating_add(n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Got::Failed(done),
        }
    }
    Got::All
}
