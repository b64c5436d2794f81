//! Copies of sub-buffers that living writers may overwrite before they are delivered: what was judged is what is delivered.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// An unlinked temporary file that grows.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
    len: u64,
}

impl Spool {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { file: tempfile::tempfile()?, len: 0 })
    }

    /// Keeps runs of `bytes`, one behind the other; where they begin.
    pub(crate) fn keep(&mut self, bytes: &[u8], runs: &[(usize, usize)]) -> io::Result<u64> {
        let begin = self.len;
        for (from, to) in runs {
            let run = bytes.get(*from..*to).unwrap_or_default();
            self.file.write_all_at(run, self.len)?;
            self.len = self.len.saturating_add(run.len() as u64);
        }
        Ok(begin)
    }

    /// Fills `bytes` with what was kept at `begin`.
    pub(crate) fn read(&self, begin: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, begin)
    }
}
