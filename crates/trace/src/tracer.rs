//! Defines what a writer can ask the kernel whose tracer recorded a trace, besides the events.

use std::sync::Arc;

/// A kernel's tracer, with the ring that is read.
pub trait Tracer {
    /// Returns the machine.
    fn machine(&self) -> Machine<'_>;

    /// Returns the threads whose process the tracer saved.
    fn threads(&self) -> Vec<Thread<'_>>;

    /// Returns the CPUs by rising number, each with its counters.
    fn counters(&self) -> Vec<(u32, Stats)>;

    /// Returns the clock's reading at the oldest event, or 0 if there is none.
    fn earliest(&self) -> u64;

    /// Returns the declaration in C of a field of the events with an id.
    fn declaration(&self, event: u64, field: &str) -> Option<&str>;

    /// Returns the names of the kernel's addresses.
    fn addresses(&self) -> Box<dyn Addresses>;
}

/// The names of a kernel's addresses.
pub trait Addresses {
    /// Returns true if the address has a symbol.
    fn has(&self, address: u64) -> bool;

    /// Appends the name of a function as the function tracer prints it.
    fn show(&mut self, out: &mut Vec<u8>, address: u64);

    /// Returns the text at an address.
    fn text_at(&self, address: u64) -> Option<Arc<[u8]>>;
}

/// A machine with a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine<'a> {
    /// The words of `uname -a`; empty if they are not known.
    pub uname: &'a str,
    /// `uname -r`; empty if it is not known.
    pub release: &'a str,
    /// `uname -m`.
    pub name: &'a str,
    /// Bytes of a page.
    pub page_size: u32,
    /// Number of CPUs that are online.
    pub cpus: u32,
}

/// A thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread<'a> {
    /// Its id.
    pub pid: u32,
    /// Id of its thread group.
    pub tgid: u32,
    /// Its name; empty if it is not known.
    pub comm: &'a str,
}

/// Facts about a process of a kernel besides its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Id of the process that is its parent; 0 if it has none.
    pub parent: u32,
    /// User whose rights it has.
    pub uid: u32,
    /// It runs in the kernel only.
    pub is_kernel_thread: bool,
    /// Time of its start: nanoseconds since the boot, including suspend.
    pub started: u64,
}

/// Counters of a CPU's ring, as in `per_cpu/cpuN/stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Events written and neither overwritten nor read.
    pub entries: u64,
    /// Events overwritten.
    pub overrun: u64,
    /// Events lost because the writer came round to a page that was being committed.
    pub commit_overrun: u64,
    /// Bytes written and neither overwritten nor read.
    pub bytes: u64,
    /// Events dropped because the ring was full and overwriting off.
    pub dropped: u64,
    /// Events read by a consumer.
    pub read: u64,
}

/// The word for a fact that is not known.
pub const UNKNOWN: &str = "unknown";

/// Clocks that do not count nanoseconds.
const PLAIN_CLOCKS: [&str; 3] = ["counter", "uptime", "x86-tsc"];

/// Returns false if the clock of the kernel's tracer with this name counts something else than
/// nanoseconds.
#[must_use]
pub fn counts_nanoseconds(clock: &str) -> bool {
    clock != UNKNOWN && !PLAIN_CLOCKS.contains(&clock)
}
