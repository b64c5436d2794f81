//! `cargo xtask bench trace-dat`: text of a large trace.dat, beside `trace-cmd report` of the same
//! file.
//!
//! Without a file, this machine's tracer records one, in an instance of its own that is gone
//! afterwards: system calls of a program that does nothing else.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::floors::{Limit, Verdict};
use super::programs::{Programs, count_lines};
use super::stopwatch::Laps;
use super::{Judging, report};
use rig::run_quietly;
use rig::scratch::Scratch;

/// Where the tracer's files are.
const TRACEFS: &str = "/sys/kernel/tracing";
/// Events of one step of the program that is traced: two system calls, entry and exit.
const EVENTS_A_STEP: u64 = 4;
/// Memory of an event in the ring, generously, bytes.
const EVENT_BYTES: u64 = 80;
/// How many times faster than trace-cmd.
const FASTER: f64 = 30.0;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A trace.dat with many events in one buffer [default: one is recorded, which needs root and
    /// tracefs]
    #[arg(long, value_name = "FILE")]
    dat: Option<PathBuf>,
    /// Events that are recorded
    #[arg(long, value_name = "N", default_value_t = 7_000_000)]
    events: u64,
    /// How often each program runs
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    #[command(flatten)]
    judging: Judging,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let cpu = *rig::workers::allowed_cpus()?.last().context("no CPU")?;
    eprintln!("building");
    let programs = Programs::build()?;
    let lastwords = rig::programs::lastwords()?;
    let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-bench-dat")?;
    let (dat, instance) = match &args.dat {
        Some(dat) => (dat.clone(), None),
        None => {
            let instance = Instance::create()?;
            let dat = scratch.path().join("trace.dat");
            instance.record(args.events, &dat)?;
            (dat, Some(instance))
        }
    };
    let mut ours = vec![lastwords.as_os_str(), OsStr::new("report"), dat.as_os_str()];
    if let Some(instance) = &instance {
        ours.extend([OsStr::new("--instance"), OsStr::new(&instance.name)]);
    }
    let theirs = [OsStr::new("trace-cmd"), OsStr::new("report"), OsStr::new("-i"), dat.as_os_str()];
    let (events, their_events) = (events(&ours)?, events(&theirs)?);
    ensure!(
        events > 0 && events == their_events,
        "not the same trace: {events} events, trace-cmd prints {their_events}"
    );
    let (mut laps, mut their_laps) = (Laps::default(), Laps::default());
    for round in 0..args.rounds.max(1) {
        eprintln!("round {} of {}", round + 1, args.rounds.max(1));
        laps.run(&programs.bench, Some(cpu), &ours)?;
        their_laps.run(&programs.bench, Some(cpu), &theirs)?;
    }
    let seconds = laps.seconds(args.judging.clock).context("no runs")?.median;
    let their_seconds = their_laps.seconds(args.judging.clock).context("no runs")?.median;
    for (name, seconds, rss) in [
        ("lastwords report", seconds, laps.peak_rss()),
        ("trace-cmd report", their_seconds, their_laps.peak_rss()),
    ] {
        let rate = events as f64 / seconds / 1e6;
        println!("{name:<20} {seconds:>8.3} s {rate:>7.2} M events/s {:>8.1} MB", rss as f64 / 1e6);
    }
    let verdicts = [Verdict::new(
        "text, times faster than trace-cmd",
        Limit::AtLeast(FASTER),
        Some(their_seconds / seconds),
    )];
    print!("{}", report::floors(&verdicts));
    let results = json!({
        "events": events,
        "seconds": seconds,
        "trace_cmd_seconds": their_seconds,
    });
    args.judging.end(results, &verdicts)
}

/// Lines of events that a program prints: those with a CPU in brackets.
fn events(command: &[&OsStr]) -> Result<u64> {
    let (program, arguments) = command.split_first().context("no program")?;
    count_lines(Command::new(program).args(arguments), is_event)
}

fn is_event(line: &[u8]) -> bool {
    let cpu = line.split(|b| *b == b'[').nth(1).and_then(|rest| rest.split(|b| *b == b']').next());
    !line.starts_with(b"#")
        && cpu.is_some_and(|cpu| !cpu.is_empty() && cpu.iter().all(u8::is_ascii_digit))
}

/// An instance of the tracer that is ours; it is removed when this is dropped.
struct Instance {
    name: String,
    folder: PathBuf,
}

impl Instance {
    fn create() -> Result<Self> {
        let name = format!("lastwords-bench-{}", std::process::id());
        let folder = Path::new(TRACEFS).join("instances").join(&name);
        std::fs::create_dir(&folder).with_context(|| {
            format!(
                "cannot make {}: be root, `mount -t tracefs nodev {TRACEFS}`, or give --dat FILE",
                folder.display()
            )
        })?;
        Ok(Self { name, folder })
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.folder.join(file);
        std::fs::write(&path, value).with_context(|| path.display().to_string())
    }

    /// Records about so many events and writes them as a trace.dat.
    fn record(&self, events: u64, dat: &Path) -> Result<()> {
        eprintln!("recording {events} events");
        self.set("buffer_size_kb", &(events * EVENT_BYTES / 1024).to_string())?;
        self.set("events/raw_syscalls/enable", "1")?;
        self.set("tracing_on", "1")?;
        let steps = format!("count={}", events / EVENTS_A_STEP);
        run_quietly(Command::new("dd").args(["if=/dev/zero", "of=/dev/null", "bs=1", &steps]))?;
        self.set("tracing_on", "0")?;
        self.set("events/raw_syscalls/enable", "0")?;
        run_quietly(Command::new("trace-cmd").args(["extract", "-B", &self.name, "-o"]).arg(dat))?;
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // `trace-cmd extract` removes it too.
        let _ = std::fs::remove_dir(&self.folder);
    }
}
