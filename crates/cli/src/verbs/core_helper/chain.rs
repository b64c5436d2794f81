//! The helper that the kernel runs. It opens the dying process and the file for its core first, has
//! the sessions saved, and then passes the core on. Whatever goes wrong with the sessions, the core
//! is passed on. What happened is written into the kernel's log, because a helper has no terminal.
//!
//! The helper keeps the kernel's pipe open until the sessions are saved, so that the kernel keeps
//! the process for as long (with a `core_pipe_limit` above 0). Nothing that a user controls can
//! keep the helper longer than its limits.

use super::core_file::CoreFile;
use super::dying::Process;
use super::state::State;
use super::{Dying, File, Pipe, save};
use crate::exit::Outcome;
use crate::say;
use crate::table::plain;
use anyhow::bail;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Smallest limit at which the kernel writes a core into a file (`min_coredump` of
/// fs/binfmt_elf.c).
const LEAST_CORE: u64 = 4096;
/// Most bytes of the line in the kernel's log, which has at most about a thousand.
const MOST_LINE: usize = 900;

/// Saves the sessions, and becomes the program that gets the core.
///
/// # Errors
/// The program cannot be started.
pub(super) fn pipe(args: &Pipe) -> anyhow::Result<Outcome> {
    let Some((program, arguments)) = args.words.split_first() else { bail!("no program is named") };
    let told = args.dying.told;
    let mut crash = Crash::new(&args.dying);
    let process = open(&args.dying);
    crash.save(&process);
    crash.log();
    if let Some(handle) = told.handle.filter(|_| told.is_shared) {
        lastwords_control::dead::keep_file_at_exec(handle);
    }
    let error = Command::new(program).args(arguments).exec();
    let why =
        format!("{}: {error}; the core of process {} is lost", program.display(), args.dying.pid);
    crash.notes.push(why.clone());
    crash.log();
    bail!("{why}");
}

/// Saves the sessions, and writes the core into the file into which the kernel would have written
/// it.
///
/// # Errors
/// The file cannot be written.
pub(super) fn file(args: &File) -> anyhow::Result<Outcome> {
    let mut crash = Crash::new(&args.dying);
    let process = open(&args.dying);
    let path = file_path(&args.words, &args.own_pid, uses_pid());
    let file = (!path.is_empty() && args.limit >= LEAST_CORE).then(|| match &process {
        Ok(process) => CoreFile::open(process, &args.dying, &path, args.limit),
        Err(_) => Err(anyhow::anyhow!("its user and its folder are not known")),
    });
    crash.save(&process);
    let written = file.map_or(Ok(()), |file| file.and_then(CoreFile::write));
    if let Err(error) = &written {
        let (pid, why) = (args.dying.pid, lastwords_open::chain(error));
        crash.notes.push(format!("the core of process {pid} is lost: {why}"));
    }
    crash.log();
    written.map(|()| Outcome::Done)
}

/// Opens the dying process. The kernel's handle of it is not for the parts of the helper.
fn open(dying: &Dying) -> anyhow::Result<Process> {
    lastwords_control::dead::close_files_at_exec();
    Process::open(dying.pid, dying.told.handle)
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

/// The work on one crash, and what there is to say about it.
struct Crash<'a> {
    dying: &'a Dying,
    /// None if there is no folder for the state.
    state: Option<State>,
    notes: Vec<String>,
}

impl<'a> Crash<'a> {
    fn new(dying: &'a Dying) -> Self {
        let state = State::open();
        let no_state =
            |error| vec![format!("{}; no sessions are saved", lastwords_open::chain(&error))];
        let (state, notes) =
            state.map_or_else(|error| (None, no_state(error)), |state| (Some(state), Vec::new()));
        Self { dying, state, notes }
    }

    /// Has the sessions of the process saved, if not too many helpers do that already.
    fn save(&mut self, process: &anyhow::Result<Process>) {
        let Some(state) = &self.state else { return };
        let done = match process {
            Ok(process) => process.owner().and_then(|owner| match state.slot(owner.uid) {
                Some(_slot) => save::sessions_of(process, self.dying),
                None => bail!("other helpers are at work, and the process does not wait for them"),
            }),
            Err(error) => Err(anyhow::anyhow!("{}", lastwords_open::chain(error))),
        };
        match done {
            Ok(text) => self.notes.extend(text.lines().map(str::to_owned)),
            Err(error) => {
                let why = lastwords_open::chain(&error);
                self.notes
                    .push(format!("sessions of process {} are not saved: {why}", self.dying.pid));
            }
        }
    }

    /// Writes what there is to say as one line into the kernel's log, and on stderr, where a person
    /// has started this. If the log cannot be opened, nobody can be told.
    fn log(&mut self) {
        let notes = std::mem::take(&mut self.notes);
        if notes.is_empty() {
            return;
        }
        notes.iter().for_each(say::note);
        let left_out = match self.state.as_ref().map(State::line) {
            Some(None) => return,
            Some(Some(left_out)) => left_out,
            None => 0,
        };
        let mut line = plain(&notes.join("; "));
        let most = (0..=MOST_LINE.min(line.len()))
            .rev()
            .find(|at| line.is_char_boundary(*at))
            .unwrap_or(0);
        line.truncate(most);
        if left_out > 0 {
            line.push_str(&format!(" (left out before: {left_out} lines)"));
        }
        if let Ok(mut log) = std::fs::OpenOptions::new().write(true).open("/dev/kmsg") {
            let _ = log.write_all(format!("<5>lastwords core-helper: {line}\n").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
