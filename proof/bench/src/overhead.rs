//! `cargo xtask bench overhead`: what recording costs whole programs, in interleaved pairs with and
//! without it.
//!
//! The server records itself, by our own events and by those of `tracing`. The compiler and the
//! search know nothing of recording: while they run, `lastwords record` records the kernel's
//! scheduling and all system calls.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::Judging;
use super::floors::{Limit, Verdict};
use super::programs::Programs;
use super::report::floors;
use super::stats::Spread;
use rig::process::Killed;
use rig::run_quietly;
use rig::scratch::Scratch;

/// Typical overhead, as LTTng claims it.
const TYPICAL: f64 = 1.05;
/// The server with every span and event of `tracing`, recorded by our own subscriber. The layer is
/// not judged: the registry under it, which is not ours, costs a large part of that alone.
const TRACING: f64 = 1.15;
/// Functions in the file that is compiled.
const FUNCTIONS: usize = 3000;
/// The events that the kernel records.
const EVENTS: [&str; 2] = ["sched", "syscalls"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many pairs of each program
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// Requests that the server serves in each run
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    requests: u64,
    /// The folder that is searched
    #[arg(long, value_name = "DIR", default_value = "/usr/share")]
    search: PathBuf,
    #[command(flatten)]
    judging: Judging,
}

/// A program with a recorder, beside the same without.
struct Row {
    what: &'static str,
    /// Time with the recorder divided by time without, of each round.
    ratios: Vec<f64>,
}

impl Row {
    fn new(what: &'static str) -> Self {
        Self { what, ratios: Vec::new() }
    }

    fn median(&self) -> Option<f64> {
        Spread::from_samples(&self.ratios).map(|spread| spread.median)
    }

    fn print(&self) {
        let Some(Spread { min, median, max, .. }) = Spread::from_samples(&self.ratios) else {
            return;
        };
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        println!(
            "{:<55}{:>8.1} %   ({:.1} to {:.1})",
            self.what,
            percent(median),
            percent(min),
            percent(max)
        );
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    eprintln!("building");
    let programs = Programs::build()?;
    let lastwords = rig::programs::lastwords()?;
    let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-bench-overhead")?;
    let source = scratch.path().join("compiled.c");
    std::fs::write(&source, c_source()).with_context(|| source.display().to_string())?;
    let mut rows = [
        Row::new("server, 5 events a request"),
        Row::new("server, a subscriber of tracing that records nothing"),
        Row::new("server, every span and event of tracing"),
        Row::new("server, the same by our own subscriber"),
        Row::new("compile, the kernel's scheduling and system calls"),
        Row::new("search, the same"),
    ];
    for round in 1..=args.rounds {
        eprintln!("round {round} of {}", args.rounds);
        let server =
            |recorder: &str| server(&programs.bench, recorder, args.requests, scratch.path());
        for (row, recorder) in rows.iter_mut().zip(["events", "registry", "tracing", "subscriber"])
        {
            let nothing = server("nothing")?;
            row.ratios.push(server(recorder)? / nothing);
        }
        let object = scratch.path().join("compiled.o");
        let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compile.args(["-O2", "-c"]).arg(&source).arg("-o").arg(&object);
        let mut search = Command::new("grep");
        search.args(["-r", "-c", "flight recorder"]).arg(&args.search);
        for (row, command) in rows.iter_mut().skip(4).zip([&mut compile, &mut search]) {
            let without = seconds(command)?;
            let recording = Recording::start(&lastwords, scratch.path())?;
            let with = seconds(command);
            recording.end()?;
            row.ratios.push(with? / without);
        }
    }
    println!("Time with recording more than without, {} pairs (least to most)", args.rounds);
    rows.iter().for_each(Row::print);
    let of = |at: usize| rows.get(at).and_then(Row::median);
    let typical: Vec<f64> = [0, 4, 5].into_iter().filter_map(of).collect();
    let typical = Spread::from_samples(&typical).map(|spread| spread.median);
    let verdicts = [
        Verdict::new("typical, x without recording", Limit::AtMost(TYPICAL), typical),
        Verdict::new("server with tracing, x without", Limit::AtMost(TRACING), of(3)),
    ];
    print!("{}", floors(&verdicts));
    let data: Vec<Value> =
        rows.iter().map(|row| json!({ "what": row.what, "ratios": row.ratios })).collect();
    args.judging.end(json!({ "rows": data }), &verdicts)
}

/// Nanoseconds of CPU time that the server takes for a request.
fn server(bench: &Path, recorder: &str, requests: u64, sessions: &Path) -> Result<f64> {
    let mut command = Command::new(bench);
    command
        .args(["server", recorder, &requests.to_string()])
        .env("LASTWORDS_DIR", sessions.join("sessions"));
    let line = run_quietly(&mut command)?;
    let data: Value =
        serde_json::from_str(&line).with_context(|| format!("the server printed {line:?}"))?;
    data["ns"].as_f64().with_context(|| format!("the server printed {line:?}"))
}

/// Seconds that a program takes. A search that finds nothing is no failure.
fn seconds(command: &mut Command) -> Result<f64> {
    let begun = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if status.code().is_none_or(|code| code > 1) {
        bail!("{:?}: {status}", command.get_program());
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// `lastwords record`, which records until [`Recording::end`].
struct Recording(Killed);

impl Recording {
    fn start(lastwords: &Path, folder: &Path) -> Result<Self> {
        let mut command = Command::new(lastwords);
        command.arg("record");
        command.args(EVENTS.iter().flat_map(|event| ["-e", event]));
        command.args(["--force", "-o"]).arg(folder.join("trace.dat"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().context("cannot run lastwords record")?;
        let mut recording = Self(Killed(child));
        std::thread::sleep(Duration::from_millis(500));
        match recording.0.0.try_wait()? {
            None => Ok(recording),
            Some(_) => Err(recording.failure()),
        }
    }

    fn failure(&mut self) -> anyhow::Error {
        let mut said = String::new();
        let stderr = self.0.0.stderr.take();
        let _ = stderr.map(|mut stderr| std::io::Read::read_to_string(&mut stderr, &mut said));
        anyhow::anyhow!("lastwords record: {}", said.trim())
    }

    /// Ends the recording as Ctrl-C does, and waits until the trace is saved.
    fn end(mut self) -> Result<()> {
        run_quietly(Command::new("kill").args(["-INT", &self.0.0.id().to_string()]))?;
        if self.0.0.wait()?.success() { Ok(()) } else { Err(self.failure()) }
    }
}

/// A program in C that takes a compiler about a second.
fn c_source() -> String {
    let function = |number: usize| {
        format!(
            "int f{number}(int a, int *b) {{ int s = a; for (int i = 0; i < b[0]; i++) {{ s = s * {} + b[i] % {}; \
             if (s & {}) b[i] ^= s; }} return s; }}\n",
            number * 31 + 7,
            number + 3,
            1 << (number % 16)
        )
    };
    (0..FUNCTIONS).map(function).collect()
}
