//! `cargo xtask bench`: what we cost and how fast we read, beside the peers, in one run on one
//! machine.
//!
//! The numbers of two runs, or of two machines, don't compare; ratios within a run do. That is what
//! `--check` looks at.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::{Value, json};

use self::floors::Verdict;

mod aborts;
mod contenders;
mod ctf;
mod floors;
mod lttng;
mod overhead;
mod process;
mod programs;
mod record;
mod record_kernel;
mod record_user;
mod recover;
mod report;
mod results;
mod shapes;
mod stats;
mod stopwatch;
mod trace_dat;
mod vmcore;
mod wedge;

/// Measure recording and recovering beside the peers
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench")]
struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Nanoseconds an event: us, the peers and the least that is possible, interleaved
    Record(record::Args),
    /// The cost of events of many shapes, as multiples of the least that is possible
    Shapes(shapes::Args),
    /// Events and bytes a second: recover to CTF and report to text, against babeltrace2
    Recover(recover::Args),
    /// Seconds and memory of a report of a kernel crash dump, and of a sparse one of 64 GB
    Vmcore(vmcore::Args),
    /// How many restartable sections are aborted when threads are preempted, interrupted and moved
    Aborts(aborts::Args),
    /// Events a second of a CTF trace of 20 million: text, counting, CTF to CTF, against
    /// babeltrace2
    Ctf(ctf::Args),
    /// What recording costs a server, a compiler and a search, in interleaved pairs
    Overhead(overhead::Args),
    /// Streaming the kernel's tracer to a file, beside trace-cmd: seconds and CPU time (needs root
    /// and tracefs)
    RecordKernel(record_kernel::Args),
    /// Streaming an application's events to a receiver, beside LTTng-UST with a relay daemon: CPU
    /// time
    RecordUser(record_user::Args),
    /// Text of a trace.dat of millions of events, beside trace-cmd
    TraceDat(trace_dat::Args),
    /// The part of `cargo xtask wedge --lttng` that kills writers of LTTng-UST
    #[command(hide = true)]
    Wedge(wedge::Args),
}

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    match &args.bench {
        Bench::Record(args) => record::run(args),
        Bench::Shapes(args) => shapes::run(args),
        Bench::Recover(args) => recover::run(args),
        Bench::Vmcore(args) => vmcore::run(args),
        Bench::Aborts(args) => aborts::run(args),
        Bench::Ctf(args) => ctf::run(args),
        Bench::Overhead(args) => overhead::run(args),
        Bench::RecordKernel(args) => record_kernel::run(args),
        Bench::RecordUser(args) => record_user::run(args),
        Bench::TraceDat(args) => trace_dat::run(args),
        Bench::Wedge(args) => wedge::run(args),
    }
}

/// Which clock the numbers are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Clock {
    /// Time that passed; right on a machine that does nothing else
    Wall,
    /// CPU time of the thread or process; steadier on a busy machine, blind to waiting
    Cpu,
}

impl Clock {
    fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Cpu => "cpu",
        }
    }
}

/// What every bench is asked besides.
#[derive(clap::Args)]
struct Judging {
    /// What is compared
    #[arg(long, value_enum, default_value_t = Clock::Wall)]
    clock: Clock,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fail unless every floor is met
    #[arg(long)]
    check: bool,
}

impl Judging {
    /// Writes the results, an object, with the machine and the floors where they are wanted as
    /// data; where it is asked for, an error if a floor was not met, or not measured.
    fn end(&self, mut results: Value, verdicts: &[Verdict]) -> Result<()> {
        if let Some(file) = &self.json {
            results["machine"] = machine();
            results["clock"] = self.clock.name().into();
            results["floors"] = report::verdict_data(verdicts);
            std::fs::write(file, format!("{results:#}\n"))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        let failed: Vec<&str> =
            verdicts.iter().filter(|verdict| !verdict.is_met()).map(|v| v.what).collect();
        if self.check && !failed.is_empty() {
            bail!("{} of {} floors not met: {}", failed.len(), verdicts.len(), failed.join("; "));
        }
        Ok(())
    }
}

/// The machine, as `--json` names it.
fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu_info = read("/proc/cpuinfo");
    let model =
        cpu_info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    json!({
        "cpu": model.trim_start_matches([' ', '\t', ':']),
        "cpus": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "load": read("/proc/loadavg").split(' ').next().unwrap_or_default(),
    })
}
