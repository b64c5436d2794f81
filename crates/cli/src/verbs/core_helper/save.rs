//! Saves the sessions of a dying process, as its user. The memory is read by a part without rights
//! ([`super::search`]); what it finds is checked here, written into the memory of sessions that
//! stay, or copied into files. That memory is reached through the process's `mem` file in /proc, so
//! that no path of the user is followed.

use super::dying::{Owner, Process};
use super::maps::Maps;
use super::part::{Part, answer, limit_memory, receive};
use super::wire::{Message, WANTED};
use super::{Dying, quota, search};
use crate::ended::signal_name;
use crate::exit::Outcome;
use crate::table::plain;
use anyhow::{Context, bail};
use lastwords_control::dead::{CopyFolder, CopyLimits, CopySink as _, Death, Facts};
use rustix::fs::OFlags;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The verb of the part.
pub(super) const VERB: &str = "save";
/// How long the saving of sessions may take.
const MOST_TIME: Duration = Duration::from_secs(20);
/// Largest number of bytes of address space that this process takes.
const MOST_MEMORY: u64 = 1 << 30;
/// Largest number of bytes that are read for the copies of one process's sessions.
const MOST_READ: u64 = 2 << 30;

/// The task of the part.
#[derive(Serialize, Deserialize)]
struct Task {
    search: search::Task,
    /// The user of the process; none if the copies are root's.
    owner: Option<Owner>,
}

/// Has the sessions of the process saved by a part that may fail or hang. Returns what it did, one
/// line for each session.
///
/// # Errors
/// The part cannot be started.
pub(super) fn sessions_of(process: &Process, dying: &Dying) -> anyhow::Result<String> {
    let Death { pid, pid_namespace, signal } = process.death(dying.pid, dying.signal);
    // A process with more rights than its user may have secrets, and its copy is for root.
    let owner = if dying.told.dumpable == 1 { Some(process.owner()?) } else { None };
    let task =
        Task { search: search::Task { pid, pid_namespace, signal, most_read: MOST_READ }, owner };
    let files = [
        process.file("mem", OFlags::RDWR)?,
        process.file("maps", OFlags::RDONLY)?,
        process.file("mem", OFlags::RDONLY)?,
        process.file("maps", OFlags::RDONLY)?,
    ];
    let deadline = Instant::now() + MOST_TIME;
    let mut part = Part::start(VERB, &task, &files.each_ref().map(|file| file.as_fd()))?;
    let in_time = part.read(deadline, |_| false);
    let mut text = part.text();
    part.end(if in_time { Part::soon() } else { deadline });
    if !in_time {
        let (pid, seconds) = (dying.pid, MOST_TIME.as_secs());
        text.push_str(&format!(
            "sessions of process {pid}: not all are saved, it took more than {seconds} s\n"
        ));
    }
    Ok(text)
}

/// The part: marks and copies the sessions of the process, and sends a line for each.
pub(super) fn run() -> anyhow::Result<Outcome> {
    let (task, [writable, maps, memory, parsed_maps], socket) = receive::<Task, 4>()?;
    limit_memory(MOST_MEMORY);
    answer(&socket, work(&task, writable, maps, [memory, parsed_maps], &socket));
    Ok(Outcome::Done)
}

fn work(
    task: &Task,
    writable: OwnedFd,
    maps: OwnedFd,
    searched: [OwnedFd; 2],
    socket: &UnixStream,
) -> anyhow::Result<()> {
    // Root alone can look into the folders of all users.
    let of_all = quota::used();
    let part =
        Part::start(search::VERB, &task.search, &searched.each_ref().map(|file| file.as_fd()))?;
    drop(searched);
    if let Some(owner) = &task.owner {
        owner.become_owner()?;
    }
    set_parent_process_death_signal(Some(Signal::KILL)).context("the end of the helper")?;
    let saver = Saver {
        memory: File::from(writable),
        maps: Maps::read(maps)?,
        death: task.search.death(),
        of_all,
        limits: CopyLimits::new(task.search.most_read),
        socket,
    };
    let mut results = BufReader::with_capacity(1 << 16, part.socket.try_clone()?);
    let done = saver.all(&mut results, &part.socket);
    drop(results);
    part.end(Part::soon());
    done
}

/// The things that the saver uses.
struct Saver<'a> {
    /// The process's memory, for the words of a session's end.
    memory: File,
    maps: Maps,
    death: Death,
    /// The room that the copies of all users take.
    of_all: quota::Used,
    limits: CopyLimits,
    /// Where the lines go.
    socket: &'a UnixStream,
}

impl Saver<'_> {
    /// Does what the results of the search ask for.
    fn all(&self, results: &mut BufReader<UnixStream>, search: &UnixStream) -> anyhow::Result<()> {
        for _ in 0..search::MOST_SESSIONS {
            let facts = match Message::read(results)? {
                None => return Ok(()),
                Some(Message::Session(facts)) => facts,
                Some(Message::Unreadable(why)) => {
                    bail!("its memory cannot be searched: {}", plain(&why))
                }
                Some(_) => bail!("the search of its memory failed"),
            };
            let line = match self.save(&facts, results, search) {
                Ok(line) => line,
                Err(error) => {
                    format!(
                        "session {}: {}",
                        plain(&facts.name),
                        plain(&lastwords_open::chain(&error))
                    )
                }
            };
            (&*self.socket).write_all(format!("{line}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Marks the session, and copies it if it does not outlive the process. Returns the line about
    /// it.
    fn save(
        &self,
        facts: &Facts,
        results: &mut BufReader<UnixStream>,
        mut search: &UnixStream,
    ) -> anyhow::Result<String> {
        let write = |address: u64, bytes: &[u8]| self.memory.write_all_at(bytes, address);
        let marked = facts.mark(&self.death, &write);
        let (name, signal) = (plain(&facts.name), signal_name(self.death.signal));
        let lasting = self.maps.lasting_file(facts.address);
        let wants_copy = marked.is_ok() && lasting.is_none() && self.of_all.has_room();
        search.write_all(&[if wants_copy { WANTED } else { 0 }])?;
        let marked = marked.context("the end of the session cannot be written")?;
        if let Some(file) = lasting {
            let folder =
                plain(&Path::new(file).parent().unwrap_or(Path::new("/")).display().to_string());
            let done = if marked { "marked with" } else { "left as it is at" };
            return Ok(format!(
                "session {name} of process {}: {done} {signal} in {folder}",
                self.death.pid
            ));
        }
        if !wants_copy {
            bail!("not copied: {}", self.of_all);
        }
        self.copy(facts, results)
    }

    /// Writes the copy. All its messages are read, also after an error.
    fn copy(&self, facts: &Facts, results: &mut BufReader<UnixStream>) -> anyhow::Result<String> {
        let mut copy = CopyFolder::new(&facts.uuid, &facts.name, &self.death, &self.limits)
            .map_err(Into::into);
        let missing = loop {
            let written = match (Message::read(results)?, &mut copy) {
                (Some(Message::File { len, name }), Ok(copy)) => copy.create(&name, len),
                (Some(Message::Bytes { at, bytes }), Ok(copy)) => copy.write(at, &bytes),
                (Some(Message::File { .. } | Message::Bytes { .. }), Err(_)) => Ok(()),
                (Some(Message::Copied { missing }), _) => break missing,
                (Some(Message::Failed(why)), Ok(_)) => bail!(plain(&why)),
                (Some(Message::Failed(_)), Err(_)) => break 0,
                _ => bail!("the search of its memory failed"),
            };
            if let Err(error) = written {
                copy = Err(anyhow::Error::from(error));
            }
        };
        let copied = copy?.publish()?;
        let (name, signal) = (plain(&facts.name), signal_name(self.death.signal));
        let folder = plain(&copied.folder.display().to_string());
        let missing = match missing {
            0 => String::new(),
            bytes => format!(", without {bytes} bytes that cannot be read"),
        };
        let removed = match copied.removed {
            0 => String::new(),
            copies => format!("; older copies removed: {copies}"),
        };
        Ok(format!(
            "session {name} of process {}: copied at {signal} to {folder}{missing}{removed}",
            self.death.pid
        ))
    }
}
