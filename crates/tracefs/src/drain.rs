//! Moves the sub-buffers of one CPU from `trace_pipe_raw` into a file, through a pipe and without a copy in user space.

use crate::changes::Changes;
use crate::instance::Instance;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

/// The size of the pipe in bytes. Users without privileges may have as much (`/proc/sys/fs/pipe-max-size`).
const PIPE: usize = 1 << 20;
/// The longest time between two looks at the ring. The kernel wakes a poller when the ring is filled by `buffer_percent`.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The ring of one CPU, and the file that its sub-buffers go to.
pub(crate) struct Drain {
    pub(crate) cpu: u32,
    path: PathBuf,
    raw: File,
    file: File,
    pipe: (OwnedFd, OwnedFd),
    /// Bytes of a sub-buffer.
    size: u32,
    /// Offset of the events in the file.
    begin: u64,
}

impl Drain {
    /// Opens the ring and the file of a CPU. A file that exists is continued after its last whole sub-buffer.
    pub(crate) fn open(changes: &Changes, instance: &Instance, cpu: u32, size: u32) -> anyhow::Result<Self> {
        let path = changes.part(cpu);
        let named = || path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(NOFOLLOW);
        let mut file = options.open(&path).with_context(named)?;
        let begin = changes.journal.begin_of_parts();
        let mut length = file.metadata().with_context(named)?.len().saturating_sub(begin);
        if let Some((_, bytes)) = changes.journal.in_place.filter(|(of, _)| *of == cpu) {
            length = length.min(bytes);
        }
        let end = begin + length - length % u64::from(size);
        file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end))).with_context(named)?;
        let pipe = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        // With a smaller pipe, more calls move the same.
        let _ = fcntl_setpipe_size(&pipe.1, PIPE);
        Ok(Self { cpu, raw: instance.open_raw(cpu)?, file, pipe, size, begin, path })
    }

    /// Moves sub-buffers whenever the ring is filled by `buffer_percent`, until the other end of `ended` is closed.
    ///
    /// # Errors
    /// The ring cannot be read, or the file cannot be written.
    pub(crate) fn follow(&mut self, ended: BorrowedFd<'_>) -> anyhow::Result<()> {
        loop {
            let raw = self.raw.as_fd();
            let mut fds =
                [PollFd::from_borrowed_fd(raw, PollFlags::IN), PollFd::from_borrowed_fd(ended, PollFlags::IN)];
            match poll(&mut fds, Some(&TICK)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("poll"),
            }
            let has_ended = !fds[1].revents().is_empty();
            if has_ended {
                return Ok(());
            }
            self.full()?;
        }
    }

    /// Moves what is left in the ring of a stopped tracer. Returns the bytes of events in the file.
    ///
    /// # Errors
    /// As for [`Drain::follow`].
    pub(crate) fn finish(&mut self) -> anyhow::Result<u64> {
        self.full()?;
        self.partial()?;
        let end = self.file.stream_position().with_context(|| self.path.display().to_string())?;
        Ok(end.saturating_sub(self.begin))
    }

    /// Returns the bytes of a sub-buffer.
    pub(crate) fn sub_buffer_size(&self) -> u32 {
        self.size
    }

    /// Closes the ring, and returns the file with its path.
    pub(crate) fn into_file(self) -> (File, PathBuf) {
        (self.file, self.path)
    }

    /// Moves all full sub-buffers.
    fn full(&mut self) -> anyhow::Result<()> {
        let all = PIPE - PIPE % (self.size as usize).min(PIPE);
        loop {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match splice(&self.raw, None, &self.pipe.1, None, all.max(self.size as usize), flags) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).with_context(|| format!("CPU {}: the ring cannot be read", self.cpu)),
                Ok(moved) => self.empty_pipe(moved)?,
            }
        }
    }

    fn empty_pipe(&mut self, mut left: usize) -> anyhow::Result<()> {
        while left > 0 {
            match splice(&self.pipe.0, None, &self.file, None, left, SpliceFlags::MOVE) {
                Err(Errno::INTR) => {}
                Ok(moved) if moved > 0 => left -= moved.min(left),
                written => {
                    let error = written.err().unwrap_or(Errno::IO);
                    let what = format!("{}: cannot be written, {left} bytes of events are lost", self.path.display());
                    return Err(error).context(what);
                }
            }
        }
        Ok(())
    }

    /// Reads the sub-buffer that is not full, and whatever else `splice` did not give.
    fn partial(&mut self) -> anyhow::Result<()> {
        let mut bytes = vec![0; self.size as usize];
        loop {
            bytes.fill(0);
            match self.raw.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| format!("CPU {}: the ring cannot be read", self.cpu)),
                Ok(_) => self.file.write_all(&bytes).with_context(|| self.path.display().to_string())?,
            }
        }
    }
}

/// `O_NOFOLLOW`.
const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
