//! Implements `record`: the kernel's own tracer, and with a command the applications that it runs,
//! as one recording.

mod buffers;
mod choice;
mod command;
mod guests;
mod options;
mod probes;
mod sessions;
mod snapshots;

use crate::exit::Outcome;
use crate::progress::human_bytes;
use crate::say;
use crate::verbs::kernel;
use anyhow::{Context, bail};
pub(super) use buffers::{BufferOptions, OfOne};
pub(super) use choice::ProcessOptions;
use clap::ValueHint;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use command::Signals;
pub(crate) use command::{CommandArgs, run_command};
use guests::{GuestOptions, Guests};
use lastwords_render::evidence::{Amount, Losses};
use lastwords_render::missing::count;
use lastwords_stream::Address;
use lastwords_trace::evidence::{Cause, Gap};
use lastwords_tracefs::{Plan, Recording, Saved};
pub(super) use probes::ProbeOptions;
use sessions::Sessions;
use snapshots::SnapshotOptions;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The clocks that user space can read too, so that both are shown in one timeline.
const SHARED_CLOCKS: [&str; 3] = ["mono", "mono_raw", "boot"];

/// The interval of flushes by default.
const FLUSH: Duration = Duration::from_secs(1);

/// The arguments of `record`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lastwords record [OPTIONS]\n       lastwords record [OPTIONS] -- <COMMAND> [ARGS]..."
)]
#[command(
    after_help = "Ctrl-C or the end of COMMAND stops the tracing and saves it. The kernel's tracer needs root."
)]
#[command(after_long_help = "\
The rings keep the newest events. Ctrl-C, SIGTERM or the end of COMMAND stops the tracing and saves them. With --stream, all events are \
written while recording goes on.

With an address in place of FILE, all events are sent to `lastwords receive` (docs/STREAM.md). Then --user sends the sessions of \
COMMAND's applications too, and --session sends one live session. Without -e, -p and probes, the kernel's tracer is not used then.

The kernel's tracer records in an instance of its own, and is left as it was found. After `kill -9`, `lastwords restore` saves the trace \
and cleans up. The kernel's tracer needs root, or access to /sys/kernel/tracing.

If a signal ends the recording, the exit status is not that of COMMAND, and COMMAND is sent SIGTERM if it still runs.")]
pub(crate) struct Args {
    #[command(flatten)]
    own: BufferOptions,

    #[command(flatten)]
    probes: ProbeOptions,

    /// A full ring discards new events, not the oldest ones
    #[arg(long)]
    discard: bool,

    /// Write all events while recording goes on
    ///
    /// Without this option, the file has what the rings have at the end.
    #[arg(long)]
    stream: bool,

    /// The file to write, or the address of a receiver
    ///
    /// An address is tcp:HOST:PORT, vsock:CID:PORT or unix:PATH of a `lastwords receive`, to which
    /// all events are sent while recording goes on.
    #[arg(short, long, value_name = "FILE", default_value = "trace.dat", value_hint = ValueHint::FilePath)]
    #[arg(value_parser = OsStringValueParser::new().try_map(output))]
    output: Output,

    /// How often a receiver gets what is new: 1s, 100ms, off
    ///
    /// Sub-buffers are sent when they are full, and what is committed of the others at this
    /// interval, so that the death of this process or machine costs the events of that time at
    /// most. By default, it is 1s.
    #[arg(long, value_name = "TIME", value_parser = flush)]
    flush: Option<Duration>,

    #[command(flatten)]
    processes: ProcessOptions,

    #[command(flatten)]
    guests: GuestOptions,

    #[command(flatten)]
    snapshots: SnapshotOptions,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// The name of the kernel's trace instance
    ///
    /// By default, it is lastwords- and the process ID. An instance that exists is used with its
    /// events and settings and those that are given here, and its settings are restored at the
    /// end. What is in its rings is saved, too, and leaves them.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,

    /// Keep the sessions of COMMAND's applications in FILE.user
    ///
    /// Applications that use lastwords record into this folder. With an address in place of FILE,
    /// their sessions are sent to the receiver.
    #[arg(long, requires = "command")]
    user: bool,

    /// Send a live session to the receiver, until it ends
    ///
    /// SESSION is its name or folder.
    #[arg(short, long, value_name = "SESSION", conflicts_with = "user")]
    session: Option<String>,

    /// Exit with status 3 if events were lost
    #[arg(long)]
    strict: bool,

    /// The command to run and record
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Args {
    /// Returns the interval of flushes; zero for none.
    fn flush(&self) -> Duration {
        self.flush.unwrap_or(FLUSH)
    }
}

/// Where the trace goes to.
#[derive(Debug, Clone)]
enum Output {
    File(PathBuf),
    Receiver(Address),
}

/// Reads the name of a file, or an address.
fn output(name: OsString) -> Result<Output, String> {
    match Address::of_output(&name) {
        Ok(Some(address)) => Ok(Output::Receiver(address)),
        Ok(None) => Ok(Output::File(name.into())),
        Err(error) => Err(format!("{error}; a file of this name is ./{}", name.display())),
    }
}

/// Reads the interval of `--flush`; zero is never.
fn flush(text: &str) -> Result<Duration, String> {
    if text == "off" { Ok(Duration::ZERO) } else { crate::moment::length(text) }
}

/// Reads a number of bytes, with K, M or G.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let unit =
        text.chars().last().and_then(|last| Some((last, "KMG".find(last.to_ascii_uppercase())?)));
    let (digits, shift) = unit
        .map_or((text, 0), |(last, at)| (text.strip_suffix(last).unwrap_or(text), (at + 1) * 10));
    let number = digits.parse::<u64>().ok().filter(|number| *number > 0);
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "it is no number of bytes such as 65536, 64M or 1G".to_owned())
}

/// Records.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.session.is_some() && matches!(args.output, Output::File(_)) {
        bail!(
            "--session: only a receiver takes a live session: name its address with -o; `lastwords recover` writes files"
        );
    }
    if args.flush.is_some() && matches!(args.output, Output::File(_)) {
        bail!("--flush: only a stream to a receiver is flushed: name its address with -o");
    }
    let plan = plan(args)?;
    let user = match &args.output {
        Output::File(path) if args.user => Some(user_folder(path)?),
        Output::Receiver(_) if args.user => Some(user_folder(&broken_output())?),
        _ => None,
    };
    let result = record(args, plan.as_ref(), user.as_deref());
    if let (Err(_), Some(folder)) = (&result, &user) {
        // It stays if an application has recorded in it.
        let _ = std::fs::remove_dir(folder);
    }
    result
}

/// Starts to send sessions, if they are wanted.
fn send_sessions(args: &Args, user: Option<&Path>) -> anyhow::Result<Option<Sessions>> {
    let Output::Receiver(address) = &args.output else { return Ok(None) };
    if let Some(name) = &args.session {
        return Sessions::one(address, crate::control::folder(name)?, args.flush()).map(Some);
    }
    user.map(|folder| Sessions::of_folder(address, folder, args.flush())).transpose()
}

/// Ends the sending of sessions. Returns true if one could not be sent, and true if events were
/// lost. What arrived is removed here.
fn finish_sessions(sessions: Option<Sessions>, user: Option<&Path>) -> (bool, bool) {
    let Some(sessions) = sessions else { return (false, false) };
    let sent = sessions.finish();
    if let Some(folder) = user {
        let found = lastwords_control::list(Some(folder)).unwrap_or_default();
        if sent.is_all && !found.iter().any(lastwords_live::is_live_summary) {
            let folders = found.iter().map(|summary| &summary.folder);
            folders.for_each(|session| _ = lastwords_control::destroy(session));
            let _ = std::fs::remove_file(folder.join(".lock"));
            let _ = std::fs::remove_dir(folder);
        }
        if folder.exists() {
            say::note(format_args!("{}: the sessions are kept here, too", folder.display()));
        }
    }
    (sent.failed, sent.lost)
}

/// Records what applications record alone, without the kernel's tracer.
fn record_sessions(args: &Args, user: Option<&Path>) -> anyhow::Result<Outcome> {
    let mut signals = Signals::catch()?;
    let sessions = send_sessions(args, user)?;
    let mut child = command::start(&args.command, user)?;
    if let (Some(name), Output::Receiver(address)) = (&args.session, &args.output) {
        say::note(format_args!("sending the session {name} to {address}; Ctrl-C ends it"));
    }
    let is_over = || args.session.is_some() && sessions.as_ref().is_some_and(Sessions::is_idle);
    let status = command::wait(&mut signals, &mut child, &is_over);
    let (failed, lost) = finish_sessions(sessions, user);
    if let (Some(child), Ok(None) | Err(_)) = (child, &status) {
        command::end(&mut signals, child);
    }
    Ok(outcome(args, status?.map(command::code), failed, lost))
}

fn outcome(args: &Args, code: Option<u8>, failed: bool, lost: bool) -> Outcome {
    match code {
        _ if failed => Outcome::Negative,
        Some(code) if code != 0 => Outcome::Command(code),
        _ if args.strict && lost => Outcome::Losses,
        _ => Outcome::Done,
    }
}

fn record(args: &Args, plan: Option<&Plan>, user: Option<&Path>) -> anyhow::Result<Outcome> {
    let Some(plan) = plan else { return record_sessions(args, user) };
    // A signal that comes while settings are made ends the recording once it has begun.
    let mut signals = Signals::catch()?;
    args.own.all().for_each(|own| own.choice.tell_other_threads());
    let mut recording = Recording::begin(plan)?;
    let mut guests = Guests::begin(args, &mut recording, signals.ended())?;
    let sessions = send_sessions(args, user)?;
    let commands = Arc::new(AtomicBool::new(false));
    let tell_snapshot = args.snapshots.tell(recording.instance(), Arc::clone(&commands));
    guests.start(signals.ended())?;
    let (mut child, _pipe) = if args.processes.is_for_command() {
        let waiting = command::start_waiting(&args.command, user)?;
        waiting.iter().try_for_each(|waiting| recording.choose_process(waiting.pid()))?;
        recording.start(tell_snapshot)?;
        waiting.map(command::Waiting::go).transpose()?.unzip()
    } else {
        recording.start(tell_snapshot)?;
        (command::start(&args.command, user)?, None)
    };
    if child.is_none() {
        let instance = recording.instance();
        match recording.receiver() {
            Some(receiver) => say::note(format_args!(
                "sending the instance {instance} to {receiver}; Ctrl-C ends it"
            )),
            None => {
                let path = recording.output().display();
                say::note(format_args!(
                    "recording in the instance {instance}; Ctrl-C saves it to {path}"
                ));
            }
        }
    }
    let takes_snapshots = recording.takes_snapshots();
    // Without a command, a trigger may end the recording.
    let is_alone = child.is_none();
    let is_over = || {
        guests.watch();
        recording.has_failed() || is_alone && recording.was_stopped()
    };
    let status = command::wait(&mut signals, &mut child, &is_over);
    if is_alone && recording.was_stopped() {
        say::note("a trigger has switched the tracing off");
    }
    // A second signal ends the wait for guests.
    signals.forget();
    let of_guests = guests.finish(&mut recording, signals.ended());
    let finished = recording.finish();
    let (failed, lost) = finish_sessions(sessions, user);
    if let (Some(child), Ok(None) | Err(_)) = (child, &status) {
        command::end(&mut signals, child);
    }
    let (saved, errors) = finished?;
    tell(&saved);
    saved.buffers.iter().for_each(tell);
    tell_overwritten(args, &saved);
    let dropped = saved.histograms.as_deref().map(kernel::hist::tell).transpose();
    if takes_snapshots && saved.snapshots.is_empty() {
        say::note("no trigger took a snapshot");
    }
    errors.iter().for_each(say::error);
    if let (Some(folder), Output::File(path)) = (user, &args.output) {
        let shown = format!("lastwords report {} {}", path.display(), folder.display());
        say::note(format_args!("both in one timeline: {shown}"));
    }
    let failed = failed || of_guests.0 || !errors.is_empty() || commands.load(Relaxed);
    let lost = lost || of_guests.1 || dropped? == Some(true) || saved.all().any(has_losses);
    Ok(outcome(args, status?.map(command::code), failed, lost))
}

/// Returns the file that gets what cannot be sent of a kernel's trace.
fn broken_output() -> PathBuf {
    format!("lastwords-{}.dat", std::process::id()).into()
}

/// Returns the plan of the recording of the kernel's tracer; none if only sessions are sent.
fn plan(args: &Args) -> anyhow::Result<Option<Plan>> {
    let definitions = args.probes.definitions();
    // An instance that exists may have events enabled.
    let is_adopted = args.instance.as_deref().is_some_and(lastwords_tracefs::has_instance);
    let has_kernel = is_adopted
        || args.own.all().any(has_events)
        || !args.own.others.is_empty()
        || !definitions.is_empty();
    let has_sessions =
        matches!(args.output, Output::Receiver(_)) && (args.user || args.session.is_some());
    if !has_kernel && !has_sessions {
        bail!("nothing to record: name events with -e, a tracer with -p, or a probe");
    }
    args.processes.check(args.own.all().chain(&args.own.guests).map(|own| &own.choice))?;
    if let (false, false) = (has_kernel, args.own.guests.is_empty()) {
        bail!("-A: the host records too: name events or a tracer before the first -A");
    }
    let main = &args.own.main;
    args.snapshots.check(&main.events.rules)?;
    if let Some(clock) =
        main.clock.as_deref().filter(|clock| args.user && !SHARED_CLOCKS.contains(clock))
    {
        bail!(
            "--user: the clock {clock} cannot be related to those of applications; use one of {}",
            SHARED_CLOCKS.join(", ")
        );
    }
    let (receiver, output) = match &args.output {
        Output::File(path) => (None, path.clone()),
        Output::Receiver(address) if args.force => {
            bail!("--force: there is no file to replace at {address}")
        }
        // It is written if the stream breaks.
        Output::Receiver(address) => (Some(address.clone()), broken_output()),
    };
    if !has_kernel {
        return Ok(None);
    }
    Ok(Some(Plan {
        instance: args.instance.clone(),
        events: main.events.rules.clone(),
        tracer: main.plugin.clone(),
        choice: args.processes.choice(&main.choice),
        buffers: args.own.buffers(&args.processes),
        definitions,
        size: main.size,
        clock: main.clock.clone(),
        discard: args.discard,
        stream: args.stream,
        receiver,
        flush: args.flush(),
        snapshots: args.snapshots.plan(),
        output,
        stays: false,
        force: args.force,
        journals: lastwords_control::dirs::make_base()?,
    }))
}

/// Returns true if the options of an instance name events or a tracer.
pub(super) fn has_events(own: &OfOne) -> bool {
    !own.events.rules.is_empty() || own.plugin.is_some()
}

/// Makes the folder for the sessions of the command's applications.
fn user_folder(output: &Path) -> anyhow::Result<PathBuf> {
    let mut name = output.as_os_str().to_owned();
    name.push(".user");
    let folder =
        std::path::absolute(&name).with_context(|| PathBuf::from(&name).display().to_string())?;
    let shown = folder.display();
    match folder.read_dir().map(|mut entries| entries.next().is_some()) {
        Ok(true) => bail!("{shown}: it has the sessions of an earlier recording: move it away"),
        Ok(false) => {}
        Err(_) => std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(&folder)
            .with_context(|| shown.to_string())?,
    }
    Ok(folder)
}

/// Returns true if a saved trace has losses.
pub(super) fn has_losses(saved: &Saved) -> bool {
    losses(saved).any
}

/// Returns the losses of a saved trace. It is not known of all of them how many events are lost.
fn losses(saved: &Saved) -> Losses {
    let lost: Vec<&Gap> = saved.gaps.iter().filter(|gap| saved.is_loss(gap)).collect();
    let (any, more) = (!lost.is_empty(), lost.iter().any(|gap| gap.events.is_none()));
    let overwritten =
        saved.gaps.iter().filter(|gap| gap.cause == Cause::Overwritten && !saved.is_loss(gap));
    Losses {
        events: saved.lost(),
        any,
        more,
        overwritten: Amount::from_gaps(overwritten),
        ..Losses::default()
    }
}

/// Says how to keep more of a recording most of whose events were overwritten.
fn tell_overwritten(args: &Args, saved: &Saved) {
    let is_most = |saved: &Saved| losses(saved).overwritten.events > saved.events;
    if ![saved].into_iter().chain(&saved.buffers).any(is_most) {
        return;
    }
    let tracer = args.own.all().find_map(|own| own.plugin.as_ref());
    let fewer = match (tracer, args.command.is_empty()) {
        (Some(_), false) => "less (-F: only COMMAND; -l: only some functions)",
        (Some(_), true) => "less (-P: only some processes; -l: only some functions)",
        (None, false) => "less (-F: only COMMAND; -f: a filter of events)",
        (None, true) => "less (-P: only some processes; -f: a filter of events)",
    };
    say::note(format_args!(
        "most events were overwritten: record {fewer}, or use larger rings (--size) or --stream"
    ));
}

/// Prints on stderr what a saved trace has and what was lost.
pub(crate) fn tell(saved: &Saved) {
    let (events, cpus, size) = (
        count(saved.events, "event"),
        count(saved.cpus.len() as u64, "CPU"),
        human_bytes(saved.bytes),
    );
    let path = saved.path.display();
    match &saved.buffer {
        Some(name) => say::said(format_args!(
            "{path}, instance {name}: {events} of {cpus}; {}",
            losses(saved).words()
        )),
        None => {
            say::said(format_args!("{path}: {events} of {cpus}, {size}; {}", losses(saved).words()))
        }
    }
    let place =
        saved.gaps.iter().find(|gap| gap.cause == Cause::InFlight).map(|gap| gap.place.as_str());
    if let Some(place) = place {
        say::note(format_args!(
            "{}: {} more events were {place}",
            saved.path.display(),
            saved.taken_before()
        ));
    }
    for gap in saved.gaps.iter().filter(|gap| saved.is_loss(gap)) {
        let cpu = gap
            .stream
            .and_then(|stream| saved.cpus.get(stream))
            .map_or(String::new(), |cpu| format!("CPU {cpu}: "));
        let events = gap.events.map_or_else(
            || "an unknown number of events".to_owned(),
            |events| count(events, "event"),
        );
        say::warning(format_args!("{cpu}{events} {}, {}", gap.cause.word(), gap.place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_only_if_nothing_is() {
        let gap = |cause, events| Gap::new(Some(0), cause, String::new()).with_events(events);
        let of = |gaps: &[Gap], is_stream| {
            let (path, gaps) = ("t.dat".into(), gaps.to_vec());
            losses(&Saved {
                path,
                bytes: 0,
                events: 0,
                cpus: vec![0],
                gaps,
                is_stream,
                snapshots: Vec::new(),
                histograms: None,
                buffer: None,
                buffers: Vec::new(),
            })
            .words()
        };
        let overwritten = |events| gap(Cause::Overwritten, events);
        for (gaps, of_rings, of_stream) in [
            (&[][..], "nothing lost", "nothing lost"),
            (&[overwritten(Some(7))], "7 events overwritten, nothing else lost", "7 events lost"),
            (&[overwritten(None)], "older events overwritten, nothing else lost", "with losses"),
            (
                &[overwritten(Some(7)), overwritten(None)],
                "at least 7 events overwritten, nothing else lost",
                "at least 7 events lost",
            ),
            (&[gap(Cause::Discarded, None)], "with losses", "with losses"),
        ] {
            assert_eq!([of(gaps, false), of(gaps, true)], [of_rings, of_stream], "{gaps:?}");
        }
    }
}
