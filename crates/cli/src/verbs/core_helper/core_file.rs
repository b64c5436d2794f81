//! Writes a core into a file, as the kernel would have done it.
//!
//! A part of the helper takes the root, the working folder and the rights of the dying process,
//! opens the file before anything else is done for the process, and writes what the helper passes
//! on. The helper itself, which is root, never touches a file of the user, and gives up if the file
//! does not take the core.

use super::Dying;
use super::dying::{Owner, Process};
use super::part::{Part, answer, receive};
use crate::exit::Outcome;
use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fstat, openat, unlink};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use rustix::process::{chroot, fchdir, geteuid};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The verb of the part.
pub(super) const VERB: &str = "write";
/// The bits of a core file's mode that the kernel checks (fs/coredump.c): nobody else may use it.
const CHECKED_MODE: u32 = 0o677;
/// How long it may take to open the file, the start of the part included. The kernel itself would
/// wait without a limit; where many processes crash at once on a slow machine, parts take long to
/// start. Waiting holds up nothing but the process that dies.
const OPEN: Duration = Duration::from_secs(120);
/// Seconds for which the file may take nothing of the core.
const STALL: i64 = 120;
/// The message of the part when the file is open.
const OPENED: &[u8] = b"\n";

/// The task of the part.
#[derive(Serialize, Deserialize)]
struct Task {
    /// The user of the process; none if the core is root's.
    owner: Option<Owner>,
    /// The bytes of the path.
    path: Vec<u8>,
    /// Largest size of the core, in bytes.
    limit: u64,
}

/// A core file that is open, in a part of the helper.
pub(super) struct CoreFile {
    part: Part,
    /// The pipe through which the part gets the core.
    pipe: OwnedFd,
}

impl CoreFile {
    /// Opens the file for the core of the process.
    ///
    /// # Errors
    /// The file cannot be opened, or its file system does not answer.
    pub(super) fn open(
        process: &Process,
        dying: &Dying,
        path: &OsStr,
        limit: u64,
    ) -> anyhow::Result<Self> {
        // The core of a process with more rights than its user is root's.
        let owner = if dying.told.dumpable == 1 { Some(process.owner()?) } else { None };
        let (theirs, pipe) = pipe_with(PipeFlags::CLOEXEC).context("a pipe")?;
        let task = Task { owner, path: path.as_bytes().to_vec(), limit };
        let mut part =
            Part::start(VERB, &task, &[process.root.as_fd(), process.cwd.as_fd(), theirs.as_fd()])?;
        let in_time = part.read(Instant::now() + OPEN, |text| text == OPENED);
        let text = part.text();
        if text.as_bytes() == OPENED {
            return Ok(Self { part, pipe });
        }
        part.end(if in_time { Part::soon() } else { Instant::now() });
        bail!(if in_time { text } else { "its file system does not answer".into() });
    }

    /// Passes the core on, from stdin to its end.
    ///
    /// # Errors
    /// The file cannot be written, or does not take the core.
    pub(super) fn write(mut self) -> anyhow::Result<()> {
        let passed = pass(std::io::stdin().as_fd(), self.pipe.as_fd());
        drop(self.pipe);
        let limit = Instant::now() + Duration::from_secs(STALL as u64);
        let has_ended = passed.is_ok() && self.part.read(limit, |_| false);
        let text = self.part.text();
        self.part.end(if has_ended { Part::soon() } else { Instant::now() });
        passed?;
        match text.as_bytes().strip_prefix(OPENED) {
            Some([]) if has_ended => Ok(()),
            Some([]) => bail!("the file does not take the core"),
            _ => bail!(text.trim_start().to_owned()),
        }
    }
}

/// Moves all bytes from one pipe to another, until the first has no writer any more or the second
/// no reader.
fn pass(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> anyhow::Result<()> {
    const MOST: usize = 1 << 20;
    loop {
        match splice(from, None, to, None, MOST, SpliceFlags::NONBLOCK | SpliceFlags::MOVE) {
            Ok(0) | Err(Errno::PIPE) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error).context("the core"),
        }
        let stall = Timespec { tv_sec: STALL, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&to, PollFlags::OUT)], Some(&stall)) == Ok(0) {
            bail!("the file does not take the core");
        }
        // Here it is the core that is missing. The kernel may take its time.
        let mut ends = [PollFd::new(&from, PollFlags::IN), PollFd::new(&to, PollFlags::empty())];
        // After a signal, the next round waits again.
        let _ = poll(&mut ends, None);
        if ends[1].revents().contains(PollFlags::ERR) {
            return Ok(());
        }
    }
}

/// The part: opens the file, and writes the core.
pub(super) fn run() -> anyhow::Result<Outcome> {
    let (task, [root, cwd, core], socket) = receive::<Task, 3>()?;
    let written = create(&task, &root, &cwd).and_then(|file| {
        (&socket).write_all(OPENED)?;
        write_core(&file, File::from(core), task.limit)
    });
    answer(&socket, written);
    Ok(Outcome::Done)
}

/// Creates the core file by the rules of the kernel (`do_coredump` of fs/coredump.c): a new file of
/// the process's user, in the process's root and working folder. If the process has more rights
/// than its user, it is root's, and its path has to be absolute, in the root of this process.
fn create(task: &Task, root: &OwnedFd, cwd: &OwnedFd) -> anyhow::Result<File> {
    let path = OsString::from_vec(task.path.clone());
    let path = Path::new(&path);
    let shown = || path.display().to_string();
    if let Some(owner) = &task.owner {
        fchdir(root).context("the process's root")?;
        chroot(".").context("the process's root")?;
        owner.take_rights()?;
        fchdir(cwd).context("the process's working folder")?;
        // If a file stays there, the call below fails and reports it.
        let _ = unlink(path);
    } else if !path.is_absolute() {
        bail!(
            "{}: the process has more rights than its user, and the path is not absolute",
            shown()
        );
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: OwnedFd =
        openat(rustix::fs::CWD, path, flags, Mode::RUSR | Mode::WUSR).with_context(shown)?;
    let stat = fstat(&file).with_context(shown)?;
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & CHECKED_MODE != 0o600 {
        bail!("{}: the file system gave the file another owner or mode", shown());
    }
    Ok(file.into())
}

/// Writes the core into a file, up to the limit. Blocks of zeroes become holes, as in the kernel's
/// own core files.
fn write_core(file: &File, core: File, limit: u64) -> anyhow::Result<()> {
    const BLOCK: usize = 4096;
    let mut core = core.take(limit);
    let mut buffer = vec![0; 16 * BLOCK];
    let mut len = 0;
    loop {
        let mut got = 0;
        while got < buffer.len() {
            match core.read(&mut buffer[got..]).context("the core")? {
                0 => break,
                more => got += more,
            }
        }
        for (index, block) in buffer[..got].chunks(BLOCK).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                file.write_all_at(block, len + (index * BLOCK) as u64)?;
            }
        }
        len += got as u64;
        if got < buffer.len() {
            file.set_len(len)?;
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than both pipes hold goes through, and the end of the reader ends it.
    #[test]
    fn a_core_is_passed_on() {
        let (core, mut kernel) = std::io::pipe().unwrap();
        let (mut reader, to) = std::io::pipe().unwrap();
        let bytes: Vec<u8> = (0..300_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || kernel.write_all(&sent));
        let read = std::thread::spawn(move || {
            let mut got = Vec::new();
            reader.read_to_end(&mut got).map(|_| got)
        });
        pass(core.as_fd(), to.as_fd()).unwrap();
        drop(to);
        writer.join().unwrap().unwrap();
        assert!(read.join().unwrap().unwrap() == bytes);

        // Nobody reads: there is nothing to wait for, though the core has no end.
        let (core, _kernel) = std::io::pipe().unwrap();
        let (reader, to) = std::io::pipe().unwrap();
        drop(reader);
        pass(core.as_fd(), to.as_fd()).unwrap();
    }
}
