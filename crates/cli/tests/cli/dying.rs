//! Processes that the kernel is dumping, for as long as a test needs them: a handler of cores holds
//! each of them. So a test can run the core helper by hand, as often as it likes.

use crate::child::{Running, wait_for};
use crate::support::{Place, Ran, ran, tool, wait_for_some};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";
const PIPE_LIMIT: &str = "/proc/sys/kernel/core_pipe_limit";

/// Holds a core, and with it the process, while there is a file `hold` in the folder in which the
/// process is. Cores of other tests, which run beside this one, are where these look for them. A
/// thread that has ended is in no folder.
const HOLD: &str = "#!/bin/sh\n\
    for thread in /proc/$1/task/*; do cd \"$thread/cwd\" 2>/dev/null && break; done\n\
    [ -e hold ] || exec cat > core\n\
    : > held\n\
    while [ -e hold ] && [ -e \"/proc/$1\" ]; do sleep 0.02; done\n";

/// The machine's core_pattern and core_pipe_limit, for one test at a time. They are restored when
/// the test ends, also when it fails, and what the helper has copied of tests that ran meanwhile is
/// removed.
pub(crate) struct CorePattern {
    pub(crate) before: String,
    limit: String,
    copies: Vec<PathBuf>,
    _lock: File,
}

/// Waits for the lock of all tests that change the machine's core_pattern, or that run the helper.
pub(crate) fn lock() -> File {
    let file = File::open(CORE_PATTERN).expect("readable");
    flock(&file, FlockOperation::LockExclusive).expect("the lock");
    file
}

/// The copies of the tests' sessions in the folder of root's sessions.
fn all_copies() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm/lastwords-0")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains("/app.dead-")).collect()
}

impl CorePattern {
    pub(crate) fn now() -> String {
        fs::read_to_string(CORE_PATTERN).expect("readable")
    }

    pub(crate) fn pipe_limit() -> String {
        fs::read_to_string(PIPE_LIMIT).expect("readable")
    }

    pub(crate) fn keep() -> Self {
        let lock = lock();
        Self { before: Self::now(), limit: Self::pipe_limit(), copies: all_copies(), _lock: lock }
    }

    pub(crate) fn set(&self, pattern: &str) {
        fs::write(CORE_PATTERN, pattern).expect("written");
    }
}

impl Drop for CorePattern {
    fn drop(&mut self) {
        fs::write(CORE_PATTERN, &self.before).expect("the core_pattern of before");
        fs::write(PIPE_LIMIT, &self.limit).expect("the core_pipe_limit of before");
        let made = all_copies().into_iter().filter(|copy| !self.copies.contains(copy));
        // One that a helper is still making stays, which is no failure of the test.
        made.for_each(|copy| drop(fs::remove_dir_all(copy)));
    }
}

/// Copies a program by a process of its own. A file that this process has written could be busy: a
/// process that another test starts has all open files of this one for a moment.
pub(crate) fn install_program(from: &str, to: &Path) {
    tool("install", &["-m", "755", from, to.to_str().expect("a path")]);
}

/// A process that the kernel is dumping.
pub(crate) struct Dying<'a> {
    place: &'a Place,
    process: Option<Running>,
}

impl<'a> Dying<'a> {
    /// Starts a process whose folder is the place and that dies by itself, and waits until its core
    /// is held.
    pub(crate) fn hold(place: &'a Place, start: impl FnOnce() -> Running) -> Self {
        let (text, script) = (place.at("hold.text"), place.at("hold.sh"));
        fs::write(&text, HOLD).expect("a script");
        install_program(text.to_str().expect("a path"), &script);
        fs::write(place.at("hold"), "").expect("a file");
        let pattern = CorePattern::keep();
        pattern.set(&format!("|{} %P", script.display()));
        let process = start();
        wait_for(&place.at("held"));
        Self { place, process: Some(process) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("held").pid()
    }

    /// Kills the process. Its number is free after that.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }
}

impl Drop for Dying<'_> {
    fn drop(&mut self) {
        // The handler ends, and with it the process.
        let _ = fs::remove_file(self.place.at("hold"));
        self.kill();
    }
}

/// A helper that was started by hand, with a core on stdin.
pub(crate) struct Helper {
    child: Running,
}

impl Helper {
    pub(crate) fn start(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command();
        command.arg("core-helper").args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self { child: Running::start(&mut command) }
    }

    /// Gives it the core, and waits for its end, for a minute.
    pub(crate) fn end(mut self, core: &[u8]) -> Ran {
        let mut stdin = self.child.child.stdin.take().expect("a pipe");
        let core = core.to_vec();
        // The helper may end before it has read everything.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&core)));
        let status =
            wait_for_some("the helper ends", || self.child.child.try_wait().expect("a child"));
        writer.join().expect("written");
        let mut err = String::new();
        self.child.child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
        Ran { args: String::new(), status: status.code().unwrap_or(-1), out: String::new(), err }
    }

    /// Waits until the helper has a part of this name, and returns its process id.
    pub(crate) fn part(&self, name: &str) -> u32 {
        let is_part = |pid: &u32| words_of(*pid).contains(&name.into());
        wait_for_some(name, || descendants(self.child.pid()).into_iter().find(is_part))
    }
}

fn words_of(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).split('\0').map(str::to_owned).collect()
}

fn descendants(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<u32> =
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    let further = children.iter().flat_map(|pid| descendants(*pid)).collect::<Vec<_>>();
    [children, further].concat()
}

/// Runs the helper by hand, alone on the machine.
pub(crate) fn help(place: &Place, args: &[&str], core: &[u8]) -> Ran {
    let _lock = lock();
    Helper::start(place, args).end(core)
}

/// Runs a command that is not the helper itself but starts it.
pub(crate) fn help_by(command: &mut Command) -> Ran {
    let _lock = lock();
    ran(command.stdin(Stdio::null()).output().expect("the program starts"))
}
