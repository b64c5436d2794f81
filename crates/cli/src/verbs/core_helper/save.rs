//! Saves the sessions of a dying process, as its user.

use super::Dying;
use super::process::{Memory, Status, death};
use crate::ended::signal_name;
use crate::exit::Outcome;
use crate::say;
use crate::table::plain;
use anyhow::Context;
use lastwords::dead::{DeadSession, Death, Region};
use lastwords_bytes::Budget;
use lastwords_image::unwatched;
use lastwords_walk::session::{RegionPlace, region_places};
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Largest number of bytes of address space that this process takes. What the dying process has in its memory does not
/// change how much is needed.
const MOST_MEMORY: u64 = 1 << 30;
/// Largest number of bytes that are read for the copies of one process's sessions.
const MOST_READ: u64 = 2 << 30;
/// Largest number of sessions of one process that are saved.
const MOST_SESSIONS: usize = 64;

/// Marks and copies the sessions of the process, and prints a line for each.
///
/// # Errors
/// The process's memory cannot be read, or this process cannot become the process's user.
pub(super) fn run(dying: &Dying) -> anyhow::Result<Outcome> {
    // If the limit cannot be set, the work is the same.
    let _ = setrlimit(Resource::As, Rlimit { current: Some(MOST_MEMORY), maximum: Some(MOST_MEMORY) });
    let status = Status::read(dying.pid)?;
    let death = death(dying.pid, dying.signal, &status);
    let memory = Memory::open(dying.pid)?;
    // A process with more rights than its user may have secrets, and its copy is for root.
    if geteuid().is_root() && dying.dumpable == 1 {
        status.owner()?.become_owner()?;
    }
    let budget = Budget::default();
    let name = format!("/proc/{}/mem", dying.pid);
    let handle = memory.file.try_clone().context("the process's memory")?;
    let opened = lastwords_image::process::of_files(handle, &memory.maps, &name, &budget)?;
    let mut sessions: BTreeMap<[u8; 16], Vec<Region>> = BTreeMap::new();
    for place in region_places(&*opened.image, &budget, &unwatched)? {
        let RegionPlace { address, len, kind, index, session, fixed } = place;
        sessions.entry(session).or_default().push(Region { address, len, kind, index, fixed });
    }
    let room = Cell::new(MOST_READ);
    let read = |address: u64, buffer: &mut [u8]| memory.file.read_exact_at(buffer, address).is_ok();
    let mut outcome = Outcome::Done;
    for (uuid, regions) in sessions.iter().take(MOST_SESSIONS) {
        let Some(session) = DeadSession::of(*uuid, regions, &read) else { continue };
        if let Err(error) = save(&session, &memory, &death, &room) {
            say::line(format_args!("session {}: {}", plain(session.name()), plain(&lastwords_open::chain(&error))));
            outcome = Outcome::Negative;
        }
    }
    Ok(outcome)
}

fn save(session: &DeadSession<'_>, memory: &Memory, death: &Death, room: &Cell<u64>) -> anyhow::Result<()> {
    let write = |address: u64, bytes: &[u8]| memory.file.write_all_at(bytes, address);
    let marked = session.mark(death, &write).context("the end of the session cannot be written")?;
    let (name, signal) = (plain(session.name()), signal_name(death.signal));
    if let Some(file) = memory.lasting_file(session.address()) {
        let folder = plain(&Path::new(file).parent().unwrap_or(Path::new("/")).display().to_string());
        let done = if marked { "marked with" } else { "left as it is at" };
        say::line(format_args!("session {name} of process {}: {done} {signal} in {folder}", death.pid));
        return Ok(());
    }
    let copied = session.copy(death, room)?;
    let folder = plain(&copied.folder.display().to_string());
    let missing = match copied.missing {
        0 => String::new(),
        bytes => format!(", without {bytes} bytes that cannot be read"),
    };
    let removed = match copied.removed {
        0 => String::new(),
        copies => format!("; older copies removed: {copies}"),
    };
    say::line(format_args!(
        "session {name} of process {}: copied at {signal} to {folder}{missing}{removed}",
        death.pid
    ));
    Ok(())
}
