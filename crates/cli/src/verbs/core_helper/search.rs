//! The part that reads the memory of a dying process: finds its sessions, and sends what is to be
//! known of them and their copies to the saver. It has no rights ([`super::sandbox`]), because what
//! it reads may have been written to harm it.

use super::maps::Maps;
use super::part::{limit_memory, receive};
use super::sandbox;
use super::wire::{Message, Sender, WANTED};
use crate::exit::Outcome;
use lastwords_bytes::Budget;
use lastwords_control::dead::{DeadSession, Death, Region};
use lastwords_image::unwatched;
use lastwords_session::{RegionPlace, region_places};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;

/// The verb of the part.
pub(super) const VERB: &str = "search";
/// Largest number of bytes of address space that this process takes. What the dying process has in
/// its memory does not change how much is needed.
const MOST_MEMORY: u64 = 1 << 30;
/// Largest number of sessions of one process that are saved.
pub(super) const MOST_SESSIONS: usize = 64;

/// The task of the part.
#[derive(Serialize, Deserialize)]
pub(super) struct Task {
    /// The process's id in its own pid namespace.
    pub(super) pid: u32,
    /// Inode of that namespace; 0 if it is not known.
    pub(super) pid_namespace: u64,
    /// The signal.
    pub(super) signal: u8,
    /// Largest number of bytes that are read for copies.
    pub(super) most_read: u64,
}

impl Task {
    pub(super) fn death(&self) -> Death {
        Death { pid: self.pid, pid_namespace: self.pid_namespace, signal: self.signal }
    }
}

/// The part.
pub(super) fn run() -> anyhow::Result<Outcome> {
    let (task, [memory, maps], socket) = receive::<Task, 2>()?;
    limit_memory(MOST_MEMORY);
    let searched = sandbox::enter().and_then(|()| search(&task, memory, maps, &socket));
    if let Err(error) = searched {
        // If nobody reads it, nobody waits for it.
        let _ = Message::Unreadable(lastwords_open::chain(&error)).write(&mut &socket);
    }
    Ok(Outcome::Done)
}

fn search(task: &Task, memory: OwnedFd, maps: OwnedFd, socket: &UnixStream) -> anyhow::Result<()> {
    let memory = File::from(memory);
    let maps = Maps::read(maps)?.of_sessions();
    let budget = Budget::default();
    let opened = lastwords_image::process::of_files(
        memory.try_clone()?,
        &maps,
        "the process's memory",
        &budget,
    )?;
    let mut sessions: BTreeMap<[u8; 16], Vec<Region>> = BTreeMap::new();
    for place in region_places(&*opened.image, &budget, &unwatched)? {
        let RegionPlace { address, len, kind, index, session, fixed } = place;
        sessions.entry(session).or_default().push(Region { address, len, kind, index, fixed });
    }
    let (death, room) = (task.death(), Cell::new(task.most_read));
    let read = |address: u64, buffer: &mut [u8]| memory.read_exact_at(buffer, address).is_ok();
    let mut sender = Sender(BufWriter::with_capacity(1 << 16, socket));
    for (uuid, regions) in sessions.iter().take(MOST_SESSIONS) {
        let Some(session) = DeadSession::new(*uuid, regions, &read) else { continue };
        Message::Session(session.facts(&death)).write(&mut sender.0)?;
        sender.0.flush()?;
        let mut answer = [0];
        (&*socket).read_exact(&mut answer)?;
        if answer == [WANTED] {
            let copied = match session.copy(&death, &room, &mut sender) {
                Ok(missing) => Message::Copied { missing },
                Err(error) => Message::Failed(error.to_string()),
            };
            copied.write(&mut sender.0)?;
        }
    }
    Ok(sender.0.flush()?)
}
