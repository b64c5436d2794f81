//! The form of the metadata of ftrace's persistent ring buffer.

/// The form of the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Linux 6.12: each CPU has a magic word.
    PerCpu,
    /// Linux 6.15 and newer: all CPUs have one header.
    Common,
}

impl Form {
    /// Bytes of a CPU's metadata before the table of the order.
    pub fn fixed(self) -> usize {
        if self == Self::PerCpu { 0x38 } else { 0x20 }
    }

    /// Offset in a CPU's metadata of the addresses of the first sub-buffer, of the head and of the
    /// commit.
    pub fn addresses(self) -> usize {
        if self == Self::PerCpu { 24 } else { 0 }
    }
}
