//! The parts of the helper: this program, started again, each with rights of its own. A part gets
//! its task and its open files through a socket that is its stdin, and sends its results through
//! the same socket. It inherits nothing else, and looks nothing up by the number of the dying
//! process.
//!
//! A part may hang, or be in a state in which no signal ends it, where a user's file system does
//! not answer. So nobody waits for a part without a limit of time. A part that cannot be killed is
//! left to the system.

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Largest number of bytes of a part's results that are kept.
const MOST_TEXT: usize = 16 << 10;
/// Largest number of bytes of a task: a process has at most 65,536 groups.
const MOST_TASK: u64 = 4 << 20;
/// Largest number of files that a part gets.
const MOST_FILES: usize = 8;
/// How long a part may take to fetch its task, and to end after it has closed its socket.
const SHORT: Duration = Duration::from_secs(2);

/// A part at work.
pub(super) struct Part {
    child: Child,
    pub(super) socket: UnixStream,
    text: Vec<u8>,
}

impl Part {
    /// Starts `core-helper VERB` with this task and these files, in this order.
    ///
    /// # Errors
    /// The part cannot be started, or does not fetch its task.
    pub(super) fn start<T: Serialize>(
        verb: &str,
        task: &T,
        files: &[BorrowedFd<'_>],
    ) -> anyhow::Result<Self> {
        let (socket, theirs) = UnixStream::pair().context("a socket")?;
        // The program that runs, also where its file has been replaced.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("lastwords").args(["core-helper", verb]);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("this program, once more")?;
        // The command has the part's end of the socket. It has to be closed, so that the end of the
        // part is seen.
        drop(command);
        let part = Self { child, socket, text: Vec::new() };
        part.socket.set_write_timeout(Some(SHORT))?;
        let task = serde_json::to_vec(task).context("the task")?;
        if let Err(error) = give(&part.socket, &task, files) {
            part.end(Instant::now());
            return Err(error);
        }
        Ok(part)
    }

    /// Reads results until the part closes its socket, or `enough` is true for what it has sent.
    /// Returns false if neither happens in time.
    pub(super) fn read(&mut self, until: Instant, enough: impl Fn(&[u8]) -> bool) -> bool {
        while !enough(&self.text) {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Err(Errno::INTR) => continue,
                Ok(0) | Err(_) => return false,
                Ok(_) => {}
            }
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer) {
                Ok(0) | Err(_) => return true,
                Ok(len) => {
                    let room = MOST_TEXT.saturating_sub(self.text.len());
                    self.text.extend_from_slice(&buffer[..len.min(room)]);
                }
            }
        }
        true
    }

    /// Returns what the part has sent.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }

    /// Gives the part time to end, then kills it. A part that stays after that (it waits for a
    /// device or for a file system of a user) becomes a child of init when this process ends.
    pub(super) fn end(mut self, until: Instant) {
        if !self.has_ended(until) {
            // If it has ended meanwhile, the call fails.
            let _ = self.child.kill();
            self.has_ended(Instant::now() + Duration::from_millis(200));
        }
    }

    fn has_ended(&mut self, until: Instant) -> bool {
        loop {
            // Without an answer, there is nothing to wait for.
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// When a part that has closed its socket must have ended.
    pub(super) fn soon() -> Instant {
        Instant::now() + SHORT
    }
}

fn give(socket: &UnixStream, task: &[u8], files: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
    let len = (task.len() as u64).to_ne_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        bail!("too many files for a part of the helper");
    }
    let sent = sendmsg(socket, &[IoSlice::new(&len)], &mut control, SendFlags::NOSIGNAL);
    if sent.context("the task of a part of the helper")? != len.len() {
        bail!("a part of the helper does not take its task");
    }
    (&*socket).write_all(task).context("the task of a part of the helper")
}

/// In a part: takes the task and the files from stdin, and returns them with the socket for the
/// results.
///
/// # Errors
/// This process was not started as a part of the helper.
pub(super) fn receive<T: DeserializeOwned, const N: usize>()
-> anyhow::Result<(T, [OwnedFd; N], UnixStream)> {
    const WRONG: &str = "the helper starts this command itself";
    // The descriptors that the helper has inherited are not for the parts that this one starts.
    lastwords_control::dead::close_files_at_exec();
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().context(WRONG)?);
    let mut len = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got =
        recvmsg(&socket, &mut [IoSliceMut::new(&mut len)], &mut control, RecvFlags::CMSG_CLOEXEC);
    if got.context(WRONG)?.bytes != len.len() {
        bail!(WRONG);
    }
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    let len = u64::from_ne_bytes(len);
    let mut task = Vec::new();
    let read = (&socket).take(len.min(MOST_TASK)).read_to_end(&mut task).context(WRONG)?;
    let Some(files) = <[OwnedFd; N]>::try_from(files).ok().filter(|_| read as u64 == len) else {
        bail!(WRONG)
    };
    Ok((serde_json::from_slice(&task).context(WRONG)?, files, socket))
}

/// Bounds the address space of this process, in bytes. A part that crashes makes no core, and so
/// starts no helper.
pub(super) fn limit_memory(bytes: u64) {
    // If a limit cannot be set, the work is the same.
    let _ = setrlimit(Resource::As, Rlimit { current: Some(bytes), maximum: Some(bytes) });
    // With a limit of 1, the kernel runs no helper (core(5)).
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) });
}

/// Sends the error of a part as its result.
pub(super) fn answer(mut socket: &UnixStream, done: anyhow::Result<()>) {
    if let Err(error) = done {
        // If nobody reads it, nobody waits for it.
        let _ = socket.write_all(lastwords_open::chain(&error).as_bytes());
    }
}
