//! What is known of a machine beside its trace.

/// A task, as a process list has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub pid: u32,
    /// Number of its thread group.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
}

/// What is known beside the trace.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// Tasks that lived at the end.
    pub tasks: Vec<Task>,
    /// One moment by two clocks, nanoseconds: since the boot, and since 1970.
    pub moment: Option<(u64, u64)>,
}
