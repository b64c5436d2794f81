//! Services of axum and actix, as the book shows them, are killed in nine ways.
//!
//! Each service of `examples/services` has two lines of lastwords. It answers some orders and then
//! waits for those that its bank never answers. So it rests when it dies: what is recovered must be
//! all that it logged, and the open spans must be those of the orders that wait. The cause must be
//! proven or unknown. The ids of OpenTelemetry in OTLP must be those that the service logged and
//! exported.
//!
//! The services have a workspace of their own, which nothing else builds: what they use would slow
//! down each build of the workspace.
#![forbid(unsafe_code)]

mod judge;
mod service;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use rig::scratch::Scratch;
use service::Service;

/// Kill services of axum and actix in nine ways, and judge what is recovered
#[derive(Parser)]
#[command(bin_name = "cargo xtask services")]
struct Args {
    /// The program `lastwords`; by default that of the tests, which is built
    #[arg(long, value_name = "FILE")]
    lastwords: Option<PathBuf>,
    /// This service only: axum or actix
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// This signal only, such as SEGV
    #[arg(long, value_name = "NAME")]
    signal: Option<String>,
}

/// How a service ends by a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nobody handles the signal, so that the session has no record of it.
    Unknown,
    /// The handler of lastwords records the signal of this number.
    Recorded(u64),
    /// The service handles the signal, and exits with status 0.
    Exits,
}

/// The signals, and how a program ends by them that handles none.
const SIGNALS: [(&str, End); 9] = [
    ("KILL", End::Unknown),
    ("TERM", End::Unknown),
    ("USR1", End::Unknown),
    ("ALRM", End::Unknown),
    ("ABRT", End::Recorded(6)),
    ("SEGV", End::Recorded(11)),
    ("BUS", End::Recorded(7)),
    ("ILL", End::Recorded(4)),
    ("FPE", End::Recorded(8)),
];

/// A service of the book.
struct Program {
    name: &'static str,
    /// It logs the ids of OpenTelemetry's traces, and exports its spans.
    has_opentelemetry: bool,
    /// The signal at which it ends in good order.
    exits_at: Option<&'static str>,
    /// The name of the spans of requests.
    request: &'static str,
}

const PROGRAMS: [Program; 2] = [
    Program { name: "axum", has_opentelemetry: true, exits_at: None, request: "request" },
    Program {
        name: "actix",
        has_opentelemetry: false,
        exits_at: Some("TERM"),
        request: "HTTP request",
    },
];

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let lastwords = match &args.lastwords {
        Some(lastwords) => lastwords.canonicalize().context("--lastwords")?,
        None => rig::programs::tested()?,
    };
    let built = build()?;
    let is_asked =
        |asked: &Option<String>, name: &str| asked.as_ref().is_none_or(|own| own == name);
    let (mut cells, mut wrong) = (0, 0);
    for program in PROGRAMS.iter().filter(|program| is_asked(&args.service, program.name)) {
        has_two_lines(program.name)?;
        for (signal, end) in SIGNALS.iter().filter(|(signal, _)| is_asked(&args.signal, signal)) {
            let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-services")?;
            let end = if program.exits_at == Some(signal) { End::Exits } else { *end };
            let judged = Service::start(program, &built, scratch.path())
                .and_then(|service| service.kill(signal))
                .and_then(|died| judge::judge(program, &lastwords, &died, end));
            cells += 1;
            let shown = match &judged {
                Ok(shown) => shown.clone(),
                Err(error) => format!("WRONG: {error:#}"),
            };
            wrong += usize::from(judged.is_err());
            println!("{:<6} SIG{signal:<5} {shown}", program.name);
        }
    }
    ensure!(cells > 0, "no such service or signal");
    println!("{cells} cells: {} right, {wrong} wrong", cells - wrong);
    ensure!(wrong == 0, "{wrong} cells are wrong");
    Ok(())
}

/// Builds the services. Returns the folder where they are.
fn build() -> Result<PathBuf> {
    let target = rig::programs::target()?.join("services");
    let folder = rig::root().join("examples/services");
    let mut cargo = Command::new(rig::cargo());
    cargo.current_dir(folder).args(["build", "--quiet", "--locked", "--target-dir"]).arg(&target);
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "{}: {status}", rig::shown(&cargo));
    Ok(target.join("debug"))
}

/// Fails unless a service has two lines of ours, at most.
fn has_two_lines(name: &str) -> Result<()> {
    let file = rig::root().join("examples/services/src/bin").join(name).with_extension("rs");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let is_ours = |line: &&str| !line.starts_with("//") && line.contains("lastwords");
    let ours = text.lines().filter(is_ours).count();
    ensure!(ours == 2, "{}: {ours} lines of lastwords", file.display());
    Ok(())
}
