//! The facts that a helper needs of a dead process's session besides its bytes: where the words of
//! its end lie, and whose death is the end of the session.
//!
//! These facts come from the memory of the dead process. Whoever reads that memory need not be the
//! one who acts on them.

use std::mem::offset_of;

use lastwords_abi::session::{Control, SCOPE_USER};
use lastwords_ring::{ClockKind, os};

use super::Death;
use lastwords::Ending;

/// The facts of a session in the memory of a dead process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// UUID of the session.
    pub uuid: [u8; 16],
    /// Name of the session.
    pub name: String,
    /// Address of the session region in the process. The mapping there tells whether the session
    /// outlives the process.
    pub address: u64,
    /// Address of the words that say how the session ended.
    pub control: u64,
    /// One of the scopes of sessions.
    pub scope: u32,
    /// Process id of the creator in its own pid namespace.
    pub creator: u32,
    /// Start time of the creator, in clock ticks since boot.
    pub creator_start: u64,
    /// Inode of the creator's pid namespace.
    pub creator_pid_namespace: u64,
    /// The process itself has recorded how it ends: by a panic, or in a handler of the signal.
    pub has_told_its_end: bool,
}

impl Facts {
    /// Writes the signal as the session's end through `write`, which writes the process's memory at
    /// an address. Returns false, and writes nothing, where the end of the process is not that of
    /// the session (a child died, whose parent records on), or where the process has already told
    /// how it ends.
    ///
    /// # Errors
    /// `write` failed.
    pub fn mark(
        &self,
        death: &Death,
        write: &dyn Fn(u64, &[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<bool> {
        if !self.is_end_of_session(death) {
            return Ok(false);
        }
        for (offset, bytes) in ending(death) {
            write(self.control.saturating_add(offset), &bytes)?;
        }
        Ok(true)
    }

    /// The conditions of `ending::is_ours`, seen from outside of the process.
    fn is_end_of_session(&self, death: &Death) -> bool {
        let pidns = self.creator_pid_namespace;
        // A creator that could not read its namespace has left 0 there.
        let is_its_namespace = pidns == 0 || [0, pidns].contains(&death.pid_namespace);
        let is_creator = self.creator == death.pid && is_its_namespace;
        let creator_lives = || {
            pidns != os::pid_namespace()
                || os::is_process_alive(self.creator, self.creator_start as u32)
        };
        (self.scope == SCOPE_USER || is_creator || !creator_lives()) && !self.has_told_its_end
    }
}

/// Returns offsets in the control area, and the bytes to write there, in this order.
pub(super) fn ending(death: &Death) -> [(u64, Vec<u8>); 3] {
    let ending = Ending::Signal(Some(death.signal)).word().to_ne_bytes().to_vec();
    [
        (offset_of!(Control, ended) as u64, ClockKind::Realtime.now().to_ne_bytes().to_vec()),
        (offset_of!(Control, ended_by) as u64, death.pid.to_ne_bytes().to_vec()),
        (offset_of!(Control, ending) as u64, ending),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The creator's death ends its session. An unknown namespace, of the creator or of the dead
    /// process, matches any.
    #[test]
    fn a_creator_is_known_by_its_number_and_namespace() {
        let is_end = |creator: (u32, u64), death: (u32, u64)| {
            let facts = Facts {
                uuid: [0; 16],
                name: "app".into(),
                address: 0,
                control: 0,
                scope: 0,
                creator: creator.0,
                creator_start: 0,
                creator_pid_namespace: creator.1,
                has_told_its_end: false,
            };
            facts.is_end_of_session(&Death { pid: death.0, pid_namespace: death.1, signal: 6 })
        };
        assert!(is_end((7, 5), (7, 5)) && is_end((7, 0), (7, 5)) && is_end((7, 5), (7, 0)));
        assert!(!is_end((7, 5), (8, 5)) && !is_end((7, 5), (7, 6)) && !is_end((7, 0), (8, 5)));
    }
}
