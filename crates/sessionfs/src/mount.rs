//! Mounts a tree, and unmounts it when the program is told to end.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption};
use rustix::fs::{FlockOperation, flock};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::fuse::Fuse;
use crate::guard::{self, SOURCE};
use crate::tree::Tree;

/// Threads that answer the kernel. Reads of `trace_pipe` that wait have threads of their own.
const THREADS: usize = 4;
/// Time between two looks for a signal or the end of the mount.
const LOOK: Duration = Duration::from_millis(50);

/// A tree that is mounted.
#[derive(Debug)]
pub struct Mounted {
    tree: Tree,
    session: BackgroundSession,
    folder: PathBuf,
    signals: Signals,
    /// Unmounts the folder if this process dies: it waits for the end of its standard input.
    guard: Child,
    /// The folder below the mount, which is locked until this process ends ([`below`]).
    _below: File,
}

/// Opens the folder before it is mounted on, and locks it. A process that served it before holds
/// the lock until it has ended. It is waited for, for a bounded time, because it would unmount what
/// is mounted there now: fuser 0.18 unmounts a folder once more after somebody else has unmounted
/// it.
fn below(folder: &Path) -> io::Result<File> {
    let (file, begun) = (File::open(folder)?, Instant::now());
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
        && begun.elapsed() < guard::ENDS_IN
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(file)
}

/// Mounts a tree at a folder, for this user alone. Root mounts directly; for others, `fusermount3`
/// does.
///
/// # Errors
/// The folder cannot be mounted on.
pub fn mount(tree: Tree, folder: &Path) -> io::Result<Mounted> {
    let folder = folder.canonicalize()?;
    let programs = tree.sessions().programs().clone();
    // A signal that arrives from here on unmounts.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(SOURCE.into()),
        MountOption::Subtype(SOURCE.into()),
        MountOption::DefaultPermissions,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoExec,
    ];
    config.n_threads = Some(THREADS);
    let below = below(&folder)?;
    let session = fuser::spawn_mount(Fuse::new(tree.clone()), &folder, &config)?;
    let device = guard::device(&folder)?;
    let mut command = Command::new(&programs.program);
    command.args(&programs.guard).arg(&folder).arg(device);
    let guard =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(Mounted { tree, session, folder, signals, guard, _below: below })
}

impl Mounted {
    /// Serves the tree until it is unmounted, or until SIGTERM, SIGINT or SIGHUP, which unmount it.
    /// Returns the number of events that `trace_pipe` has consumed and that no reader has had: they
    /// are lost.
    ///
    /// # Errors
    /// The kernel's requests cannot be read, or the folder cannot be unmounted.
    pub fn wait(mut self) -> io::Result<usize> {
        let (ended, is_unmounted) = loop {
            if self.session.guard.is_finished() {
                // The thread unmounts when it ends, however it ends, unless the folder was
                // unmounted before.
                break (self.session.join(), true);
            }
            if self.signals.pending().next().is_some() {
                // Open files do not keep the mount: they fail once this process has ended.
                let detached = guard::detach(&self.folder, true).map(drop);
                let is_detached = detached.is_ok();
                break (detached, is_detached);
            }
            std::thread::sleep(LOOK);
        };
        if let Some(mut stdin) = self.guard.stdin.take()
            && is_unmounted
        {
            // The guard has nothing to unmount. If it has died, this fails, and nothing is to be
            // done either.
            let _ = stdin.write_all(b"x");
        }
        self.guard.wait()?;
        ended.map(|()| self.tree.sessions().waiting())
    }
}
