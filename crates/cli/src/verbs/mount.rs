//! Implements `lastwords mount` and `umount`: live sessions as a file system in the shape of
//! tracefs.

use crate::control;
use crate::exit::Outcome;
use crate::say;
use anyhow::{Context, bail};
use lastwords_control::{self, Summary};
use lastwords_sessionfs::{Programs, Sessions, Tree};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The socket of the system's log.
const SYSTEM_LOG: &str = "/dev/log";

/// The arguments of `mount`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "`lastwords umount DIR` or `umount DIR` ends the mount.",
    after_long_help = "docs/MOUNT.md describes each file. Only this user may read them. `lastwords umount DIR` or `umount DIR` ends the mount."
)]
pub(crate) struct Args {
    /// The folder to mount on
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The session at the top level; by default, the newest live one
    ///
    /// SESSION is the name or folder of a session. By default, it is the live session that began
    /// last. The other live sessions are in the folder `instances`.
    #[arg(value_name = "SESSION")]
    session: Option<String>,

    /// Stay in the foreground. SIGINT and SIGTERM unmount
    #[arg(long)]
    foreground: bool,

    /// Print a line once the folder is mounted
    ///
    /// `mount` without --foreground uses this option.
    #[arg(long, hide = true, requires = "foreground")]
    announce: bool,
}

/// The arguments of `umount`.
#[derive(Debug, clap::Args)]
pub(crate) struct Umount {
    /// The folder on which sessions are mounted
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Unmount although files are open
    ///
    /// They can be read and written until they are closed.
    #[arg(long)]
    lazy: bool,
}

/// The arguments of `mount-recorder`.
#[derive(Debug, clap::Args)]
pub(crate) struct Recorder {
    #[arg(value_enum)]
    how: How,
    session: String,
}

/// How a recorder gets its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum How {
    /// It makes the session, and removes it at the end
    Make,
    /// It joins a session that is there
    Join,
}

/// The arguments of `mount-guard`.
#[derive(Debug, clap::Args)]
pub(crate) struct Guard {
    dir: PathBuf,
    device: String,
}

/// Mounts the sessions.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if !args.dir.is_dir() {
        bail!("{}: this is no folder; make it with mkdir", args.dir.display());
    }
    let folder = match &args.session {
        Some(word) => control::folder(word)?,
        None => newest()?,
    };
    if !args.foreground {
        return in_background(&args.dir, &folder);
    }
    if args.announce {
        // The terminal's signals are for whoever started this in the background.
        let _ = rustix::process::setsid();
    }
    let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
    let words = |verb: &str| vec![verb.into()];
    let program = std::env::current_exe().context("the path of this program")?;
    let programs =
        Programs { program, recorder: words("mount-recorder"), guard: words("mount-guard") };
    let sessions =
        Sessions::new(None, &folder, programs).with_context(|| folder.display().to_string())?;
    let mounted = lastwords_sessionfs::mount(Tree::new(sessions), &args.dir);
    let mounted = mounted.with_context(|| {
        let is_root = rustix::process::geteuid().is_root();
        let needs = if is_root {
            "/dev/fuse"
        } else {
            "a /dev/fuse that you may open, and fusermount3 (package fuse3)"
        };
        format!("{}: cannot mount here, which needs {needs}", args.dir.display())
    })?;
    say::line(format_args!("{}: {}", args.dir.display(), folder.display()));
    let waiting = mounted.wait().with_context(|| args.dir.display().to_string())?;
    if waiting > 0 {
        let text = format!("{}: {}", args.dir.display(), unread(waiting));
        say::warning(&text);
        if args.announce {
            // Nobody reads the standard error of a mount in the background.
            say::to_system_log(Path::new(SYSTEM_LOG), &text);
        }
    }
    Ok(Outcome::Done)
}

/// Returns a sentence about events that are lost when a mount ends.
fn unread(count: usize) -> String {
    let events =
        if count == 1 { "1 event is lost".to_owned() } else { format!("{count} events are lost") };
    format!("{events}: trace_pipe had consumed what nobody has read")
}

/// Returns the folder of the live session that began last.
fn newest() -> anyhow::Result<PathBuf> {
    let live = lastwords_control::list(None)?.into_iter().filter(lastwords_live::is_live_summary);
    let since = |summary: &Summary| summary.details.as_ref().map_or(0, |details| details.created);
    let newest = live.max_by_key(since);
    newest.map(|summary| summary.folder).context(
        "no session lives; `lastwords list` shows those that are left over: name one after the folder, or start a program that records",
    )
}

/// Starts this program again in the background, and waits until it has mounted or failed.
fn in_background(dir: &Path, session: &Path) -> anyhow::Result<Outcome> {
    let program = std::env::current_exe().context("the path of this program")?;
    let mut command = Command::new(program);
    command.arg("mount").arg(dir).arg(absolute(session)?).args(["--foreground", "--announce"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if !line.is_empty() {
        say::print(line);
        return Ok(Outcome::Done);
    }
    let mut why = String::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_string(&mut why)?;
    }
    child.wait()?;
    let (notes, error) = why.trim().rsplit_once('\n').unwrap_or(("", why.trim()));
    notes.lines().for_each(say::said);
    bail!("{}", error.trim_start_matches("error:").trim());
}

/// Returns a path that contains a slash, so that it is not taken for a session's name.
fn absolute(session: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(session).with_context(|| session.display().to_string())
}

/// Ends a mount.
pub(crate) fn unmount(args: &Umount) -> anyhow::Result<Outcome> {
    let waiting = lastwords_sessionfs::unmount(&args.dir, args.lazy)?;
    if waiting > 0 {
        say::warning(format_args!("{}: {}", args.dir.display(), unread(waiting)));
    }
    Ok(Outcome::Done)
}

/// Records for a mount.
pub(crate) fn recorder(args: &Recorder) -> anyhow::Result<Outcome> {
    lastwords_sessionfs::record(&args.session, args.how == How::Make)?;
    Ok(Outcome::Done)
}

/// Unmounts the folder of a mount whose process has died.
pub(crate) fn guard(args: &Guard) -> anyhow::Result<Outcome> {
    lastwords_sessionfs::guard(&args.dir, &args.device)?;
    Ok(Outcome::Done)
}
