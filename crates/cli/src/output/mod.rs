//! Writes the outputs of `recover` and `convert`, and prints a line for each of them.

mod each;
mod lttng;
mod made_dat;
mod one;
mod otlp;
mod page;
#[cfg(feature = "perf")]
mod perf_data;
mod room;
#[cfg(feature = "arrow")]
pub(crate) mod tables;
mod write;

use crate::account;
use crate::metrics;
use crate::say;
use crate::select::Events;
use crate::table::plain;
use crate::text::KERNEL_TEXT;
use crate::traces::Traces;
use crate::verbs::counters;
use anyhow::{Context, bail};
use clap::ValueEnum as _;
use lastwords_ctf::Version;
use lastwords_open::{Account, Body, Losses, Severity, Trace};
use lastwords_render::missing::count;
use lastwords_render::{Error, create_file, create_folder};
use rustix::fs::Access;
use serde::Serialize;
use std::fs::{DirBuilder, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

pub(crate) use each::each;
pub(crate) use one::one;
pub(crate) use page::page;
#[cfg(feature = "perf")]
pub(crate) use perf_data::perf_data;

/// The formats that can be written.
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
    /// OTLP as JSON lines: OpenTelemetry's collector
    Otlp,
    /// The table of events as Parquet: DuckDB, Polars, Spark
    #[cfg(feature = "arrow")]
    Parquet,
    /// The table of events as Arrow: pandas, Polars
    #[cfg(feature = "arrow")]
    Arrow,
    /// A perf.data file of perf's buffers in a kernel's memory: perf script
    #[cfg(feature = "perf")]
    PerfData,
}

impl Format {
    /// Returns the extension of a file's name, or none for a folder.
    pub(crate) fn suffix(self) -> Option<&'static str> {
        match self {
            Self::Ctf | Self::Ctf2 => None,
            Self::Json => Some("jsonl"),
            Self::Text => Some("txt"),
            Self::TraceDat => Some("dat"),
            Self::Perfetto => Some("perfetto-trace"),
            Self::Otlp => Some("otlp"),
            #[cfg(feature = "arrow")]
            Self::Parquet => Some("parquet"),
            #[cfg(feature = "arrow")]
            Self::Arrow => Some("arrow"),
            #[cfg(feature = "perf")]
            Self::PerfData => Some("data"),
        }
    }

    /// Returns the version if the format is CTF.
    pub(crate) fn ctf_version(self) -> Option<Version> {
        match self {
            Self::Ctf => Some(Version::V1_8),
            Self::Ctf2 => Some(Version::V2),
            _ => None,
        }
    }

    /// Returns the path of a file or folder of this format.
    pub(crate) fn path(self, folder: &Path, name: &str) -> PathBuf {
        folder.join(
            self.suffix().map_or_else(|| name.to_owned(), |suffix| format!("{name}.{suffix}")),
        )
    }

    /// Returns the format that the extension of a path names, if any.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" | "jsonl" => Self::Json,
            "txt" => Self::Text,
            "dat" => Self::TraceDat,
            "perfetto-trace" | "pftrace" => Self::Perfetto,
            "otlp" => Self::Otlp,
            #[cfg(feature = "arrow")]
            "parquet" => Self::Parquet,
            #[cfg(feature = "arrow")]
            "arrow" => Self::Arrow,
            #[cfg(feature = "perf")]
            "data" => Self::PerfData,
            _ => return None,
        })
    }

    /// Returns the format of an output for which no format was named: what its extension names,
    /// else CTF in a folder.
    ///
    /// # Errors
    /// The extension is that of a file, and no format has it.
    pub(crate) fn of_output(path: &Path) -> anyhow::Result<Self> {
        if let Some(format) = Self::of_path(path) {
            return Ok(format);
        }
        match foreign_extension(path, &["ctf", "d"]) {
            Some(extension) => bail!(
                "{}: no format has the extension .{extension}: name one by --to, or use .json, .jsonl, .txt, .dat, \
                 .perfetto-trace, .pftrace, .otlp, .parquet, .arrow or .data",
                path.display()
            ),
            None => Ok(Self::Ctf),
        }
    }

    /// Returns the words for the formats of traces, for a line of help.
    pub(crate) fn words() -> String {
        let all = Self::value_variants().iter().copied();
        let of_traces = |format: &Self| Family::ALL.iter().any(|f| f.formats().contains(format));
        format!("As {}", words(&all.filter(of_traces).collect::<Vec<_>>()))
    }

    /// Returns the help for the option that names a format.
    pub(crate) fn help() -> String {
        let with_suffix = Self::value_variants().iter().filter_map(|format| format.suffix());
        let suffixes: Vec<String> = with_suffix.map(|suffix| format!(".{suffix}")).collect();
        let mut text = format!(
            "{}\n\nBy default, the extension of OUT names the format ({}, .json, .pftrace). Without such an extension, it is ctf, and \
             trace-dat for a kernel's trace.\n\nPossible values:",
            Self::words(),
            suffixes.join(", ")
        );
        for value in Self::value_variants().iter().filter_map(clap::ValueEnum::to_possible_value) {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            text += &format!("\n- {}: {help}", value.get_name());
        }
        text
    }

    /// Returns the word for the format on the command line.
    fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns true if one file holds all arrays of a machine.
    fn holds_all(self) -> bool {
        matches!(self, Self::TraceDat | Self::Json | Self::Otlp) || self.is_table()
    }

    /// Returns true if the format has a table of events.
    fn is_table(self) -> bool {
        match self {
            #[cfg(feature = "arrow")]
            Self::Parquet | Self::Arrow => true,
            _ => false,
        }
    }

    /// Returns true if the kernel's log can appear among the events.
    fn has_log(self) -> bool {
        matches!(self, Self::Text | Self::Json | Self::Perfetto | Self::Otlp)
    }
}

/// Returns the words for formats: `ctf, json or text`.
fn words(formats: &[Format]) -> String {
    let words: Vec<String> = formats.iter().map(|format| format.word()).collect();
    words
        .split_last()
        .map_or_else(String::new, |(last, first)| format!("{} or {last}", first.join(", ")))
}

/// The kinds of traces that differ in their formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Sessions of lastwords and of LTTng, and folders of CTF.
    Packets,
    /// Trace arrays of a kernel.
    Ftrace,
}

impl Family {
    const ALL: [Self; 2] = [Self::Packets, Self::Ftrace];

    /// Returns the formats as which a trace of this kind can be written.
    fn formats(self) -> &'static [Format] {
        #[cfg(feature = "arrow")]
        use Format::{Arrow, Parquet};
        use Format::{Ctf, Ctf2, Json, Otlp, Perfetto, Text, TraceDat};
        match self {
            Self::Packets => &[
                Ctf,
                Ctf2,
                Json,
                Text,
                Perfetto,
                Otlp,
                TraceDat,
                #[cfg(feature = "arrow")]
                Parquet,
                #[cfg(feature = "arrow")]
                Arrow,
            ],
            Self::Ftrace => &[
                TraceDat,
                Text,
                Json,
                Perfetto,
                Otlp,
                #[cfg(feature = "arrow")]
                Parquet,
                #[cfg(feature = "arrow")]
                Arrow,
                Ctf,
                Ctf2,
            ],
        }
    }

    /// Returns these formats as a sentence.
    fn words(self) -> String {
        let what = match self {
            Self::Packets => "a session, of LTTng too, or a CTF trace",
            Self::Ftrace => "a kernel's trace",
        };
        format!("{what} is written as {}", words(self.formats()))
    }

    /// Returns the kind of a trace.
    fn from_trace(trace: &Trace) -> Self {
        if trace.ftrace().is_some() { Self::Ftrace } else { Self::Packets }
    }
}

/// Returns the name of a trace in messages.
fn name(trace: &Trace) -> String {
    match &trace.body {
        Body::Session(_) => format!("session {}", trace.name),
        Body::Lttng(_) => format!("session {} of LTTng", trace.name),
        Body::Ctf(ctf) => ctf.path.display().to_string(),
        Body::Ftrace { .. } => format!("instance {}", trace.name),
    }
}

/// Traces to be written, with the options for it.
pub(crate) struct Job<'a> {
    /// The traces.
    pub(crate) traces: &'a mut Traces,
    /// The options that select their events.
    pub(crate) events: &'a Events,
    /// The format. Without one it is ctf, or trace-dat for a kernel's trace.
    pub(crate) to: Option<Format>,
    /// The path of the output.
    pub(crate) output: &'a Path,
    /// The kernel's log appears among its events.
    pub(crate) with_log: bool,
    /// Print JSON in place of a line for each output.
    pub(crate) json: bool,
    /// Replace an existing output.
    pub(crate) force: bool,
    /// The traces were found by carving.
    pub(crate) carve: bool,
}

/// The result of a job.
#[derive(Debug, Default)]
pub(crate) struct Done {
    lines: Vec<Line>,
    /// The sum of the losses in the accounts of the traces.
    pub(crate) losses: Losses,
    /// Something could not be read or written, and this was reported.
    pub(crate) failed: bool,
    /// The selection left no event, and this was reported.
    pub(crate) nothing: bool,
}

impl Job<'_> {
    /// Returns the format for a kind of trace.
    fn format(&self, family: Family) -> Format {
        self.to.unwrap_or(match family {
            Family::Packets => Format::Ctf,
            Family::Ftrace if self.carve => Format::Text,
            Family::Ftrace => Format::TraceDat,
        })
    }

    /// Refuses options that cannot be met before anything is written. If the format holds only some
    /// kinds of traces, the others are left out and reported.
    fn check(&mut self) -> anyhow::Result<()> {
        let is_there = |family: &Family| {
            self.traces.all.iter().any(|trace| Family::from_trace(trace) == *family)
        };
        let present: Vec<Family> = Family::ALL.into_iter().filter(is_there).collect();
        let (held, left): (Vec<Family>, Vec<Family>) =
            present.iter().partition(|family| family.formats().contains(&self.format(**family)));
        if held.is_empty() && !left.is_empty() {
            let words: Vec<String> = left.iter().map(|family| family.words()).collect();
            let format = self.to.map_or_else(String::new, Format::word);
            bail!("nothing in the input can be written as {format}: {}", words.join("; "));
        }
        left.into_iter().for_each(|family| self.leave_out(family, &family.words()));
        for family in held {
            self.check_redacted(family)?;
            match self.format(family) {
                Format::Ctf | Format::Ctf2 if family != Family::Ftrace => {
                    self.events.refuse(
                        "CTF is copied packet by packet",
                        "text, json, perfetto, otlp, parquet and arrow",
                    )?;
                }
                Format::TraceDat if family == Family::Ftrace => self.events.refuse(
                    "a trace.dat file is written whole",
                    "text, json, perfetto, otlp, ctf, ctf2, parquet and arrow",
                )?,
                _ => {}
            }
        }
        if self.with_log {
            if !self.traces.has_arrays() {
                bail!("--with-log is for a kernel's memory; a session has no log");
            }
            if !self.format(Family::Ftrace).has_log() {
                bail!("--with-log is for text, json, perfetto and otlp");
            }
        }
        Ok(())
    }

    /// Leaves the traces of a kind out, and reports each of them.
    fn leave_out(&mut self, family: Family, why: &str) {
        for trace in self.traces.all.extract_if(.., |trace| Family::from_trace(trace) == family) {
            say::error(format_args!("{} is not in it: {why}", plain(&name(&trace))));
            self.traces.worst_failure = Some(Severity::Error);
        }
    }

    /// Refuses a format that is a copy, if fields are hidden.
    fn check_redacted(&self, family: Family) -> anyhow::Result<()> {
        let what = match (self.format(family), family) {
            (Format::Ctf | Format::Ctf2, _) => "ctf and ctf2, which copy packets",
            (Format::TraceDat, Family::Ftrace) => "trace-dat of a kernel, which is a copy",
            (Format::Text, Family::Ftrace) => KERNEL_TEXT,
            _ => return Ok(()),
        };
        self.traces.refuse_redacted(
            what,
            "json, perfetto, otlp, parquet, arrow, and text of sessions and of CTF",
        )
    }

    /// Prints the line of an output that was written, and adds it to the result.
    fn add_line(&self, line: Line, done: &mut Done) {
        if !self.json && !is_stdout(self.output) {
            say::line(text_of(&line));
        }
        done.losses.add(&line.losses);
        done.failed |= line.faults > 0;
        done.lines.push(line);
    }

    /// Prints the accounts of traces that were written.
    fn account(&self, traces: &Traces, accounts: &[Account<'_>], done: &mut Done) {
        done.losses.add(&account::print(traces, accounts, self.json));
        for (trace, account) in traces.all.iter().zip(accounts) {
            if let Err(error) = self.keep_counters(trace, account, done) {
                say::error(error);
                done.failed = true;
            }
        }
    }

    /// Writes the counters and histograms of a session next to the folder of CTF that was written
    /// last. Reports that other outputs do not have them.
    fn keep_counters(
        &self,
        trace: &Trace,
        account: &Account<'_>,
        done: &mut Done,
    ) -> anyhow::Result<()> {
        let found = metrics::of_trace(trace).zip(done.lines.last_mut());
        let Some((what, line)) = found else { return Ok(()) };
        if !line.path.is_dir() {
            metrics::note_left_out(&line.path, &what, &account.name);
            return Ok(());
        }
        let path = counters::kept_at(&line.path);
        self.make_room(&path)?;
        let mut file = create_file(&path)?;
        counters::keep(trace, account, &mut file).with_context(|| path.display().to_string())?;
        line.counters = Some(path);
        Ok(())
    }

    /// Ends a job: prints the JSON report if it was asked for.
    fn end(&self, done: Done) -> anyhow::Result<Done> {
        if self.json && !is_stdout(self.output) {
            let report = Report { schema: "lastwords.recover.v1", sessions: &done.lines };
            say::json(&report, false)?;
        }
        Ok(done)
    }
}

/// The facts about one file or folder that was written.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Line {
    pub(crate) path: PathBuf,
    pub(crate) session: String,
    pub(crate) from: PathBuf,
    /// None if they are not known, as in some traces of LTTng.
    pub(crate) events: Option<u64>,
    pub(crate) streams: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// The sum of the losses in the accounts of its traces.
    #[serde(flatten)]
    pub(crate) losses: Losses,
    /// The file with the session's counters and histograms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counters: Option<PathBuf>,
    /// The other traces in the same file, merged by time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) merged: Vec<Merged>,
    /// Parts that could not be read. They were reported.
    #[serde(skip)]
    faults: u64,
}

/// A session or trace in a file, other than the first.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Merged {
    pub(crate) session: String,
    pub(crate) from: PathBuf,
}

impl Done {
    /// Returns the number of events that were written, as far as they were counted.
    fn events(&self) -> u64 {
        self.lines.iter().filter_map(|line| line.events).fold(0, u64::saturating_add)
    }
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    sessions: &'a [Line],
}

/// Formats a line of text.
fn text_of(line: &Line) -> String {
    let events = line.events.map_or_else(|| "events not counted".to_owned(), |n| count(n, "event"));
    let (streams, losses) = (count(line.streams, "stream"), line.losses.words());
    format!("{}: {events}, {streams}, {losses}", plain(&line.path.to_string_lossy()))
}

/// Makes the folder for the output and its parents if they are missing.
pub(crate) fn folder(path: &Path) -> anyhow::Result<()> {
    if is_stdout(path) {
        bail!(
            "-: what is written is a folder, which stdout cannot be; name one (./- for one called so)"
        );
    }
    if path.is_dir() {
        return Ok(());
    }
    check_is_no_file(path)?;
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(above);
        made.with_context(|| format!("{}: cannot create the folder", above.display()))?;
    }
    Ok(create_folder(path)?)
}

/// Checks that no file is where a folder is to be made.
pub(crate) fn check_is_no_file(path: &Path) -> anyhow::Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if !meta.is_dir() => {
            bail!("{} is a file, and the output is a folder: choose another name", path.display())
        }
        _ => Ok(()),
    }
}

/// Returns the extension of an output if it names a kind of file, and is none of `known`. Folders
/// may have versions in their names.
pub(crate) fn foreign_extension<'p>(path: &'p Path, known: &[&str]) -> Option<&'p str> {
    let extension = path.extension()?.to_str()?;
    let is_kind = extension.len() > 1 && extension.bytes().all(|byte| byte.is_ascii_alphabetic());
    Some(extension)
        .filter(|_| is_kind && !known.iter().any(|known| extension.eq_ignore_ascii_case(known)))
}

/// Returns true if the output is stdout.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Checks that a file or folder can be made, before work is done for it.
pub(crate) fn check_new(path: &Path) -> anyhow::Result<()> {
    if path.symlink_metadata().is_ok() {
        bail!("{} exists: choose another name, or remove it", path.display());
    }
    let above =
        path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let access = rustix::fs::access(above, Access::WRITE_OK | Access::EXEC_OK);
    access.with_context(|| format!("{}: cannot be made in {}", path.display(), above.display()))
}

/// Runs a writer over a new file or over stdout. Its errors name the file. If a reader of stdout
/// leaves, that is no error.
fn to_file<T: Default>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    if is_stdout(path) {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let written = write(&mut out).and_then(|written| Ok(out.flush().map(|()| written)?));
        let written = written.map_err(|error| match error.downcast() {
            Ok(of_output) => Error::Output(of_output).into(),
            Err(error) => error,
        });
        return match written {
            Err(error) if error.downcast_ref::<Error>().is_some_and(Error::is_closed_pipe) => {
                Ok(T::default())
            }
            written => written,
        };
    }
    let file = if room::is_device(path) {
        File::options().write(true).open(path).with_context(|| path.display().to_string())?
    } else {
        create_file(path)?
    };
    let mut out = BufWriter::new(file);
    let written = write(&mut out).with_context(|| path.display().to_string())?;
    out.flush().with_context(|| path.display().to_string())?;
    Ok(written)
}
