//! The result of reading a part of a sub-buffer.

/// Result of reading: the number of bytes read, and why there are no more. If nothing is missing,
/// bytes after those read are zeros: a long hole at the end of a sub-buffer in a sparse file is not
/// read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) got: usize,
    pub(crate) missing: Option<String>,
}
