//! Moves the sub-buffers of one CPU from `trace_pipe_raw` into a file or a socket, through a pipe
//! and without a copy in user space.

use crate::changes::Changes;
use crate::instance::Instance;
use anyhow::Context;
use lastwords_open::Shortage;
use lastwords_stream::{Flush, Sender};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The size of the pipe in bytes. Users without privileges may have as much
/// (`/proc/sys/fs/pipe-max-size`).
const PIPE: usize = 1 << 20;
/// The longest time between two looks at the ring. The kernel wakes a poller when the ring is
/// filled by `buffer_percent`.
const TICK: Duration = Duration::from_secs(1);

/// The ring of one CPU, and where its sub-buffers go to.
pub(crate) struct Drain {
    pub(crate) cpu: u32,
    raw: File,
    target: Target,
    pipe: (OwnedFd, OwnedFd),
    /// Bytes of a sub-buffer.
    size: u32,
    /// When the sub-buffer that is not full is read.
    flush: Flush,
    /// A sub-buffer was read before it was full, so that `splice` may not give its rest.
    has_read_part: bool,
}

/// Where sub-buffers go to.
enum Target {
    File {
        path: PathBuf,
        file: File,
        /// Offset of the events in the file.
        begin: u64,
    },
    Receiver(Arc<Sender>),
}

impl Drain {
    /// Opens the ring and the file of a CPU. A file that exists is continued after its last whole
    /// sub-buffer.
    pub(crate) fn open(
        changes: &Changes,
        instance: &Instance,
        cpu: u32,
        size: u32,
    ) -> anyhow::Result<Self> {
        let path = changes.part(cpu);
        let named = || path.display().to_string();
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(NOFOLLOW);
        let mut file = options.open(&path).with_context(named)?;
        let begin = changes.journal.begin_of_parts();
        let mut length = file.metadata().with_context(named)?.len().saturating_sub(begin);
        if let Some((_, bytes)) = changes.journal.in_place.filter(|(of, _)| *of == cpu) {
            length = length.min(bytes);
        }
        let end = begin + length - length % u64::from(size);
        file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end))).with_context(named)?;
        Self::new(instance, cpu, size, (Target::File { path, file, begin }, Duration::ZERO))
    }

    /// Opens the ring of a CPU, whose sub-buffers of `size` bytes are sent to a receiver. One that
    /// is not full is sent each `flush`, if that is not zero.
    pub(crate) fn to_receiver(
        sender: &Arc<Sender>,
        instance: &Instance,
        (cpu, size): (u32, u32),
        flush: Duration,
    ) -> anyhow::Result<Self> {
        Self::new(instance, cpu, size, (Target::Receiver(Arc::clone(sender)), flush))
    }

    fn new(
        instance: &Instance,
        cpu: u32,
        size: u32,
        (target, flush): (Target, Duration),
    ) -> anyhow::Result<Self> {
        let pipe = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        // With a smaller pipe, more calls move the same.
        let _ = fcntl_setpipe_size(&pipe.1, PIPE);
        let (raw, flush) = (instance.open_raw(cpu)?, Flush::each(flush));
        Ok(Self { cpu, raw, target, pipe, size, flush, has_read_part: false })
    }

    /// Moves sub-buffers whenever the ring is filled by `buffer_percent`, until the other end of
    /// `ended` is closed.
    ///
    /// # Errors
    /// The ring cannot be read, the file cannot be written, or the receiver takes no more.
    pub(crate) fn follow(&mut self, ended: BorrowedFd<'_>) -> anyhow::Result<()> {
        loop {
            let sender = match &self.target {
                Target::Receiver(sender) => Some(Arc::clone(sender)),
                Target::File { .. } => None,
            };
            let socket = sender.as_ref().map(|sender| sender.as_fd());
            let fds = [Some(ended), Some(self.raw.as_fd()), socket].into_iter().flatten();
            let mut fds: Vec<_> =
                fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let wait = Timespec::try_from(self.flush.left().min(TICK)).context("a time")?;
            match poll(&mut fds, Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("poll"),
            }
            let came = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            if came(0) {
                return Ok(());
            }
            if let Some(sender) = &sender {
                // A receiver says nothing in the midst of a stream, unless it takes no more of it.
                if came(2) {
                    sender.interrupted()?;
                }
                sender.alive(ended)?;
            }
            let (has_events, is_due) = (came(1), self.flush.is_due());
            let moved = self.full(Some(ended))?;
            if is_due {
                self.flush(Some(ended))?;
                self.flush.done();
            } else if has_events && !moved && self.has_read_part {
                self.read(Some(ended))?;
                self.full(Some(ended))?;
            }
        }
    }

    /// Moves what is committed of the sub-buffer that is being filled. The kernel copies these
    /// events into a sub-buffer of their own, and gives the rest later: each event once.
    fn flush(&mut self, ended: Option<BorrowedFd<'_>>) -> anyhow::Result<()> {
        // First comes the rest of a sub-buffer of which a part was read before. Kernels before 6.1
        // splice nothing behind it until then.
        if self.has_read_part && self.read(ended)? {
            self.full(ended)?;
        }
        self.has_read_part = self.read(ended)?;
        Ok(())
    }

    /// Moves what is left in the ring of a stopped tracer.
    ///
    /// # Errors
    /// As for [`Drain::follow`].
    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        self.full(None)?;
        while self.read(None)? {}
        Ok(())
    }

    /// Returns the bytes of a sub-buffer.
    pub(crate) fn sub_buffer_size(&self) -> u32 {
        self.size
    }

    /// Closes the ring, and returns the file with its path and the bytes of events in it; none if
    /// the events went to a receiver.
    ///
    /// # Errors
    /// The file cannot tell its position.
    pub(crate) fn into_file(self) -> anyhow::Result<Option<(File, PathBuf, u64)>> {
        let Target::File { path, mut file, begin } = self.target else { return Ok(None) };
        let end = file.stream_position().with_context(|| path.display().to_string())?;
        Ok(Some((file, path, end.saturating_sub(begin))))
    }

    /// Moves all full sub-buffers, and returns true if there were any. A slow receiver is waited
    /// for until the other end of `ended` is closed, and then only for a while.
    fn full(&mut self, ended: Option<BorrowedFd<'_>>) -> anyhow::Result<bool> {
        let (mut has_moved, mut shortage) = (false, Shortage::default());
        let all = PIPE - PIPE % (self.size as usize).min(PIPE);
        loop {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match splice(&self.raw, None, &self.pipe.1, None, all.max(self.size as usize), flags) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(has_moved),
                Err(Errno::INTR) => continue,
                Err(Errno::NOMEM) if shortage.wait() => continue,
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("CPU {}: the ring cannot be read", self.cpu));
                }
                Ok(moved) => match &self.target {
                    Target::Receiver(sender) => {
                        sender.from_pipe(self.cpu, self.pipe.0.as_fd(), moved, ended)?
                    }
                    Target::File { path, file, .. } => empty_pipe(&self.pipe.0, file, path, moved)?,
                },
            }
            shortage.end();
            has_moved = true;
        }
    }

    /// Reads the next sub-buffer, full or not. Returns false if there are no events.
    fn read(&mut self, ended: Option<BorrowedFd<'_>>) -> anyhow::Result<bool> {
        let mut bytes = vec![0; self.size as usize];
        let mut shortage = Shortage::default();
        loop {
            match self.raw.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error)
                    if error.kind() == std::io::ErrorKind::OutOfMemory && shortage.wait() =>
                {
                    continue;
                }
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("CPU {}: the ring cannot be read", self.cpu));
                }
                Ok(_) => match &mut self.target {
                    Target::Receiver(sender) => sender.from_memory(self.cpu, &bytes, ended)?,
                    Target::File { path, file, .. } => {
                        file.write_all(&bytes).with_context(|| path.display().to_string())?;
                    }
                },
            }
            return Ok(true);
        }
    }
}

fn empty_pipe(pipe: &OwnedFd, file: &File, path: &Path, mut left: usize) -> anyhow::Result<()> {
    while left > 0 {
        match splice(pipe, None, file, None, left, SpliceFlags::MOVE) {
            Err(Errno::INTR) => {}
            Ok(moved) if moved > 0 => left -= moved.min(left),
            written => {
                let error = written.err().unwrap_or(Errno::IO);
                let what = format!(
                    "{}: cannot be written, {left} bytes of events are lost",
                    path.display()
                );
                return Err(error).context(what);
            }
        }
    }
    Ok(())
}

/// `O_NOFOLLOW`.
const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
