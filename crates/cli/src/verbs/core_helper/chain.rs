//! The helper that the kernel runs: has the sessions saved, and then passes the core on. Whatever goes wrong with the
//! sessions, the core is passed on; what happened is written into the kernel's log, because a helper has no terminal.

use super::process::{Owner, Status};
use super::{Dying, File, Pipe};
use crate::exit::Outcome;
use crate::table::plain;
use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fstat, openat, unlink};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, chroot, fchdir, geteuid, pidfd_open};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Seconds that the saving of sessions may take.
const MOST_SECONDS: i64 = 20;
/// Most bytes of what the saving process prints that are passed on.
const MOST_TEXT: u64 = 16 << 10;
/// Smallest limit at which the kernel writes a core into a file (`min_coredump` of fs/binfmt_elf.c).
const LEAST_CORE: u64 = 4096;
/// The bits of a core file's mode that the kernel checks (fs/coredump.c): nobody else may use it.
const CHECKED_MODE: u32 = 0o677;

/// Saves the sessions, and becomes the program that gets the core.
///
/// # Errors
/// The program cannot be started.
pub(super) fn pipe(args: &Pipe) -> anyhow::Result<Outcome> {
    preserve(&args.dying);
    let Some((program, arguments)) = args.words.split_first() else { bail!("no program is named") };
    let error = Command::new(program).args(arguments).exec();
    let why = format!("{}: {error}; the core of process {} is lost", program.display(), args.dying.pid);
    log(&why);
    bail!("{why}");
}

/// Saves the sessions, and writes the core into the file into which the kernel would have written it.
///
/// # Errors
/// The file cannot be written.
pub(super) fn file(args: &File) -> anyhow::Result<Outcome> {
    preserve(&args.dying);
    let path = file_path(&args.words, &args.own_pid, uses_pid());
    if path.is_empty() || args.limit < LEAST_CORE {
        return Ok(Outcome::Done);
    }
    let pid = args.dying.pid;
    let written = create(&args.dying, Path::new(&path)).and_then(|file| write_core(&file, args.limit));
    written.inspect_err(|error| {
        log(&format!("the core of process {pid} is lost: {}", lastwords_open::chain(error)));
    })?;
    Ok(Outcome::Done)
}

/// Returns true if the kernel appends the process id to the names of core files.
fn uses_pid() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/core_uses_pid").is_ok_and(|text| text.trim() != "0")
}

/// Returns the path of the core file. `pid` is `-` if the pattern has the process id in it.
fn file_path(words: &[OsString], pid: &OsStr, uses_pid: bool) -> OsString {
    let mut path = words.join(OsStr::new(" "));
    if uses_pid && pid != "-" {
        path.push(".");
        path.push(pid);
    }
    path
}

/// Creates the core file by the rules of the kernel (`do_coredump` of fs/coredump.c): a new file of the process's user,
/// in the process's root and working folder. If the process has more rights than its user, it is root's, and its path
/// has to be absolute, in the root of this process.
fn create(dying: &Dying, path: &Path) -> anyhow::Result<std::fs::File> {
    let shown = || path.display().to_string();
    if dying.dumpable == 1 {
        if geteuid().is_root() {
            let owner = Status::read(dying.pid)?.owner()?;
            enter(dying.pid, &owner)?;
        }
        // If a file stays there, the call below fails and reports it.
        let _ = unlink(path);
    } else if !path.is_absolute() {
        bail!("{}: the process has more rights than its user, and the path is not absolute", shown());
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: OwnedFd = openat(rustix::fs::CWD, path, flags, Mode::RUSR | Mode::WUSR).with_context(shown)?;
    let stat = fstat(&file).with_context(shown)?;
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & CHECKED_MODE != 0o600 {
        bail!("{}: the file system gave the file another owner or mode", shown());
    }
    Ok(file.into())
}

/// Takes the root, the working folder and the rights of the process.
fn enter(pid: u32, owner: &Owner) -> anyhow::Result<()> {
    let open = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        openat(rustix::fs::CWD, &path, flags, Mode::empty()).context(path)
    };
    let (root, folder) = (open("root")?, open("cwd")?);
    fchdir(&root).context("the process's root")?;
    chroot(".").context("the process's root")?;
    fchdir(&folder).context("the process's working folder")?;
    owner.become_owner()
}

/// Writes stdin into a file, up to the limit. Blocks of zeroes become holes, as in the kernel's own core files.
fn write_core(file: &std::fs::File, limit: u64) -> anyhow::Result<()> {
    const BLOCK: usize = 4096;
    let mut core = std::io::stdin().lock().take(limit);
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

/// Has the sessions of the process saved, by a process that may fail or hang, and logs what it did.
fn preserve(dying: &Dying) {
    let done = match Status::read(dying.pid) {
        Ok(status) if !status.is_dumping() => Err(anyhow::anyhow!("the kernel is not dumping it")),
        Ok(_) => save(dying),
        Err(error) => Err(error),
    };
    match done {
        Ok(text) => text.lines().for_each(log),
        Err(error) => {
            let why = lastwords_open::chain(&error);
            log(&format!("sessions of process {} are not saved: {why}", dying.pid));
        }
    }
}

fn save(dying: &Dying) -> anyhow::Result<String> {
    let words = [dying.pid.to_string(), dying.signal.to_string(), dying.dumpable.to_string()];
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
    command.args(["core-helper", "save"]).args(words);
    let (mut text, has_ended) = output_of(&mut command, MOST_SECONDS)?;
    if !has_ended {
        let pid = dying.pid;
        text.push_str(&format!("sessions of process {pid}: not all are saved, it took more than {MOST_SECONDS} s\n"));
    }
    Ok(text)
}

/// Runs a command that prints little, and kills it if it does not end in time. Returns what it printed on stdout and then on
/// stderr, and whether it ended by itself.
fn output_of(command: &mut Command, seconds: i64) -> anyhow::Result<(String, bool)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let has_ended = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        Ok(handle) => wait_for(handle.as_fd(), seconds),
        // Kernels before 5.3: the process is waited for, however long it takes.
        Err(_) => true,
    };
    if !has_ended {
        // If it has ended meanwhile, the call fails.
        let _ = child.kill();
    }
    child.wait()?;
    let mut text = Vec::new();
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    out.map_or(Ok(0), |out| out.take(MOST_TEXT).read_to_end(&mut text))?;
    errors.map_or(Ok(0), |errors| errors.take(MOST_TEXT).read_to_end(&mut text))?;
    Ok((String::from_utf8_lossy(&text).into_owned(), has_ended))
}

/// Waits for the process of a pidfd; false if it does not end in time.
fn wait_for(process: std::os::fd::BorrowedFd<'_>, seconds: i64) -> bool {
    let most = Timespec { tv_sec: seconds, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&most)) {
            Err(Errno::INTR) => {}
            ended => return ended != Ok(0),
        }
    }
}

/// Writes a line into the kernel's log. If that cannot be opened, nobody can be told.
fn log(line: &str) {
    if let Ok(mut log) = std::fs::OpenOptions::new().write(true).open("/dev/kmsg") {
        let _ = log.write_all(format!("<5>lastwords core-helper: {}\n", plain(line)).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_too_long_is_killed() {
        let run = |script: &str, seconds| output_of(Command::new("/bin/sh").args(["-c", script]), seconds).unwrap();
        assert_eq!(run("echo one; echo two >&2", 600), ("one\ntwo\n".into(), true));
        assert!(!run("exec sleep 600", 0).1);
    }

    #[test]
    fn the_name_of_a_file_is_that_of_the_kernel() {
        let path = |words: &[&str], pid: &str, uses_pid| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            file_path(&words, OsStr::new(pid), uses_pid).into_string().unwrap()
        };
        assert_eq!(path(&["core"], "12", true), "core.12");
        assert_eq!(path(&["core"], "12", false), "core");
        assert_eq!(path(&["core.12"], "-", true), "core.12");
        assert_eq!(path(&["a", "name"], "-", false), "a name");
        assert_eq!(path(&[], "12", true), ".12");
        assert_eq!(path(&[], "12", false), "");
    }
}
