//! What is known besides the input: the boot of this machine, the kernel's log, pstore.

use super::KernelLine;

/// What is known besides the input. By default nothing is.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    /// The id of this machine's boot.
    pub boot_id: Option<[u8; 16]>,
    /// The name of this machine.
    pub hostname: String,
    /// The log of the running kernel, oldest line first. Its ids and times are of this boot.
    pub kernel_log: Vec<KernelLine>,
    /// Why the log of the running kernel cannot be read.
    pub no_kernel_log: Option<String>,
    /// A log that a user gave, of a boot that is not known.
    pub given_log: Vec<KernelLine>,
    /// What the kernel kept for the next boot.
    pub pstore: Vec<PstoreRecord>,
}

/// A record in pstore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PstoreRecord {
    /// The name of its file.
    pub name: String,
    /// When the kernel wrote it, nanoseconds since the epoch; none if that is not known.
    pub written: Option<u64>,
    /// The text.
    pub text: String,
}

/// The first words of the line of a panic.
const PANIC: &str = "Kernel panic - not syncing: ";

impl PstoreRecord {
    /// Returns the line of the panic in the record, if there is one.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.text.lines().find_map(|line| line.find(PANIC).and_then(|at| line.get(at..)))
    }
}
