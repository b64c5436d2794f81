//! What `recover` and `convert` write, and the line that tells of it.

pub(crate) mod machine;
pub(crate) mod session;

use crate::exit::Outcome;
use crate::say;
use crate::table::plain;
use anyhow::{Context, bail};
use lastwords_ctf::Version;
use lastwords_formats::{Error, create_file, create_folder};
use rustix::fs::Access;
use serde::Serialize;
use std::fs::DirBuilder;
use std::io::{BufWriter, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A CTF 1.8 folder: babeltrace2, Trace Compass
    Ctf,
    /// A CTF 2 folder: babeltrace2 from 2.1 on
    Ctf2,
    /// JSON lines
    Json,
    /// Text, as `report` prints it
    Text,
    /// A trace.dat file of a kernel's trace: trace-cmd, KernelShark
    TraceDat,
    /// A Perfetto trace: ui.perfetto.dev, trace_processor
    Perfetto,
}

impl Format {
    /// What is behind the dot of a file's name; none for a folder.
    pub(crate) fn suffix(self) -> Option<&'static str> {
        match self {
            Self::Ctf | Self::Ctf2 => None,
            Self::Json => Some("jsonl"),
            Self::Text => Some("txt"),
            Self::TraceDat => Some("dat"),
            Self::Perfetto => Some("perfetto-trace"),
        }
    }

    /// The version of CTF that it is; none where it is something else.
    pub(crate) fn ctf_version(self) -> Option<Version> {
        match self {
            Self::Ctf => Some(Version::V1_8),
            Self::Ctf2 => Some(Version::V2),
            _ => None,
        }
    }

    /// The path of a file or folder of this format.
    pub(crate) fn path(self, folder: &Path, name: &str) -> PathBuf {
        folder.join(self.suffix().map_or_else(|| name.to_owned(), |suffix| format!("{name}.{suffix}")))
    }
}

/// The line of one file or folder.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) path: PathBuf,
    pub(crate) session: String,
    pub(crate) from: PathBuf,
    /// Null where they were not counted.
    pub(crate) events: Option<u64>,
    pub(crate) streams: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Events known to be lost; overwritten ones and those in flight at death not counted.
    pub(crate) lost_events: u64,
    /// Something is lost by `--strict`'s measure, countable or not.
    pub(crate) losses: bool,
    /// Its packets are there, and nothing can read them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unreadable: bool,
    /// What else is in the same file, merged by time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) merged: Vec<Merged>,
}

/// A session or trace beside the first of a file.
#[derive(Debug, Serialize)]
pub(crate) struct Merged {
    pub(crate) session: String,
    pub(crate) from: PathBuf,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    sessions: &'a [Line],
}

/// Prints the lines as data (`lastwords.recover.v1`).
pub(crate) fn print_json(lines: &[Line]) -> anyhow::Result<()> {
    let report = Report { schema: "lastwords.recover.v1", sessions: lines };
    say::line(serde_json::to_string_pretty(&report)?);
    Ok(())
}

/// Prints the lines, as data or as text.
pub(crate) fn tell(lines: &[Line], json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(lines);
    }
    lines.iter().for_each(|line| say::line(text_of(line)));
    Ok(())
}

/// Exit status by what was lost, or cannot be read.
pub(crate) fn outcome(strict: bool, lines: &[Line]) -> Outcome {
    match strict && lines.iter().any(|line| line.losses) {
        true => Outcome::Losses,
        false if lines.iter().any(|line| line.unreadable) => Outcome::Negative,
        false => Outcome::Done,
    }
}

/// One line of text.
pub(crate) fn text_of(line: &Line) -> String {
    let events = line.events.map_or_else(|| "events not counted".to_owned(), |n| format!("{n} events"));
    let losses = match (line.losses, line.lost_events) {
        (false, _) => "nothing lost".to_owned(),
        (true, 0) => "with losses".to_owned(),
        (true, n) => format!("{n} events lost"),
    };
    format!("{}: {events}, {} streams, {losses}", plain(&line.path.to_string_lossy()), line.streams)
}

/// Makes the folder that is written into, and those above it, where they are missing.
pub(crate) fn folder(path: &Path) -> anyhow::Result<()> {
    if is_stdout(path) {
        bail!("-: what is written is a folder, which stdout cannot be; name one (./- for one called so)");
    }
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(above);
        made.with_context(|| format!("{}: cannot create the folder", above.display()))?;
    }
    Ok(create_folder(path)?)
}

/// Stdout was named as the output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Makes sure that a file or folder can be made, before work is done for it.
pub(crate) fn check_new(path: &Path) -> anyhow::Result<()> {
    if path.symlink_metadata().is_ok() {
        bail!("{}: it exists already; name another, or remove it", path.display());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let access = rustix::fs::access(above, Access::WRITE_OK | Access::EXEC_OK);
    access.with_context(|| format!("{}: cannot be made in {}", path.display(), above.display()))
}

/// Runs a writer over a new file, or over stdout; its errors name the file. A reader of stdout who left has what was wanted.
pub(crate) fn to_file<T: Default>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> lastwords_formats::Result<T>,
) -> anyhow::Result<T> {
    if is_stdout(path) {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let written = write(&mut out).and_then(|written| out.flush().map(|()| written).map_err(Error::Output));
        return match written {
            Err(error) if error.is_closed_pipe() => Ok(T::default()),
            written => Ok(written?),
        };
    }
    let mut out = BufWriter::new(create_file(path)?);
    let written = write(&mut out).with_context(|| path.display().to_string())?;
    out.flush().with_context(|| path.display().to_string())?;
    Ok(written)
}
