//! Files that targets read.

use std::io::Write as _;

use tempfile::NamedTempFile;

/// A file that holds `data`, and goes when it is dropped.
pub(crate) fn file_of(data: &[u8]) -> NamedTempFile {
    let mut file =
        tempfile::Builder::new().prefix("lastwords-fuzz-").tempfile().expect("a scratch file");
    file.write_all(data).expect("a scratch file");
    file
}
