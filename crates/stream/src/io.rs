//! Waits for sockets that do not block, and moves bytes between them, pipes and files.

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bytes of a pipe. Users without privileges may have as much (`/proc/sys/fs/pipe-max-size`).
pub(crate) const PIPE: usize = 1 << 20;

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The socket can be used, or is broken.
    Ready,
    /// The other end of the pipe was closed: the work is to end.
    Ended,
    /// Time is up.
    Late,
}

/// Waits until a socket can be used, the other end of `ended` is closed, or time is up.
pub(crate) fn wait(
    socket: BorrowedFd<'_>,
    flags: PollFlags,
    ended: Option<BorrowedFd<'_>>,
    timeout: Duration,
) -> anyhow::Result<Wait> {
    let mut fds = vec![PollFd::from_borrowed_fd(socket, flags)];
    fds.extend(ended.map(|ended| PollFd::from_borrowed_fd(ended, PollFlags::IN)));
    let timeout = Timespec::try_from(timeout).context("a time limit")?;
    match poll(&mut fds, Some(&timeout)) {
        // The caller waits again.
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error).context("poll"),
    }
    let came = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ok(if came(1) {
        Wait::Ended
    } else if came(0) {
        Wait::Ready
    } else {
        Wait::Late
    })
}

/// Makes a pipe for the bytes that are moved.
pub(crate) fn pipe() -> anyhow::Result<(OwnedFd, OwnedFd)> {
    let pipe = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
    // With a smaller pipe, more calls move the same.
    let _ = fcntl_setpipe_size(&pipe.1, PIPE);
    Ok(pipe)
}
