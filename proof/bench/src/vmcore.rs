//! `cargo xtask bench vmcore`: time and memory of `report` of a kernel crash dump, and of a sparse
//! dump of 64 GB with the same buffers, beside trace-cmd printing the trace.dat that was made of
//! it, and crash with its trace extension where that is given.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::floors::{Limit, Verdict};
use super::programs::Programs;
use super::stopwatch::Laps;
use super::{Judging, report};
use rig::elf;
use rig::run_quietly;
use rig::scratch::Scratch;

/// Physical memory that the large dump has besides, all zeroes, bytes.
const SPARSE: u64 = 64 << 30;
/// Where that begins: above any memory of a small machine.
const SPARSE_AT: u64 = 1 << 40;
/// Most seconds of a report, and most resident memory, bytes.
const SECONDS: f64 = 1.0;
const MEMORY: f64 = 150e6;
/// How much faster than crash, at least.
const CRASH: f64 = 20.0;
/// Runs of crash, each of which takes half a minute.
const CRASH_ROUNDS: usize = 3;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// An ELF vmcore of a kernel that traced
    #[arg(long, value_name = "FILE")]
    dump: PathBuf,
    /// How often each program runs
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// The kernel with its debug information: crash reads the dump with it, and is compared
    #[arg(long, value_name = "FILE", requires = "extension")]
    vmlinux: Option<PathBuf>,
    /// crash's extension `trace.so`
    #[arg(long, value_name = "FILE", requires = "vmlinux")]
    extension: Option<PathBuf>,
    /// The program crash
    #[arg(long, value_name = "FILE", default_value = "crash")]
    crash: PathBuf,
    #[command(flatten)]
    judging: Judging,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let cpu = *rig::workers::allowed_cpus()?.last().context("no CPU")?;
    eprintln!("building");
    let programs = Programs::build()?;
    let lastwords = rig::programs::lastwords()?;
    let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-bench-vmcore")?;
    let large = scratch.path().join("sparse");
    widen(&args.dump, &large)?;
    run_quietly(
        Command::new(&lastwords)
            .arg("recover")
            .arg(&args.dump)
            .arg("-o")
            .arg(scratch.path().join("out")),
    )?;
    let dat = scratch.path().join("out/trace.dat");
    let (report_word, input) = (OsStr::new("report"), OsStr::new("-i"));
    let commands: [(&str, Vec<&OsStr>); 4] = [
        ("report of the dump", vec![lastwords.as_os_str(), report_word, args.dump.as_os_str()]),
        ("report of the sparse dump", vec![lastwords.as_os_str(), report_word, large.as_os_str()]),
        ("report of its trace.dat", vec![lastwords.as_os_str(), report_word, dat.as_os_str()]),
        (
            "trace-cmd report of that",
            vec![OsStr::new("trace-cmd"), report_word, input, dat.as_os_str()],
        ),
    ];
    let mut laps = [const { None }; 4].map(|_: Option<Laps>| Laps::default());
    for _ in 0..args.rounds.max(1) {
        for (lap, (_, command)) in laps.iter_mut().zip(&commands) {
            lap.run(&programs.bench, Some(cpu), command)?;
        }
    }
    let mut rows = Vec::new();
    let crash = crash(args, &programs.bench, cpu, scratch.path())?
        .map(|laps| (laps, "crash, trace report"));
    for (lap, name) in laps.into_iter().zip(commands.map(|(name, _)| name)).chain(crash) {
        let seconds = lap.seconds(args.judging.clock).context("no runs")?;
        println!("{name:<28} {:>8.3} s {:>8.1} MB", seconds.median, lap.peak_rss() as f64 / 1e6);
        rows.push((name, seconds.median, lap.peak_rss()));
    }
    let seconds = |n: usize| rows.get(n).map(|r| r.1);
    let memory = |n: usize| rows.get(n).map(|r| r.2 as f64);
    let mut verdicts = vec![
        Verdict::new("the dump, seconds", Limit::AtMost(SECONDS), seconds(0)),
        Verdict::new("the dump, bytes of memory", Limit::AtMost(MEMORY), memory(0)),
        Verdict::new("the sparse dump, seconds", Limit::AtMost(SECONDS), seconds(1)),
        Verdict::new("the sparse dump, bytes of memory", Limit::AtMost(MEMORY), memory(1)),
    ];
    if let (Some(crash), Some(ours)) = (seconds(4), seconds(0)) {
        let value = Some(crash / ours);
        verdicts.push(Verdict::new("times faster than crash", Limit::AtLeast(CRASH), value));
    }
    print!("{}", report::floors(&verdicts));
    let results = json!({
        "rows": rows.iter().map(|(what, s, rss)| json!({"what": what, "seconds": s, "peak_rss": rss})).collect::<Vec<_>>(),
    });
    args.judging.end(results, &verdicts)
}

/// Has crash print the trace with its extension; nothing where it was not asked for.
fn crash(args: &Args, stopwatch: &Path, cpu: usize, scratch: &Path) -> Result<Option<Laps>> {
    let (Some(vmlinux), Some(extension)) = (&args.vmlinux, &args.extension) else {
        return Ok(None);
    };
    let (commands, text) = (scratch.join("commands"), scratch.join("text"));
    let extension = std::path::absolute(extension)?;
    let script =
        format!("extend {}\ntrace report > {}\nquit\n", extension.display(), text.display());
    std::fs::write(&commands, script)?;
    let words = [args.crash.as_os_str(), OsStr::new("-s"), OsStr::new("-i"), commands.as_os_str()];
    let command = [&words[..], &[vmlinux.as_os_str(), args.dump.as_os_str()]].concat();
    let mut laps = Laps::default();
    for _ in 0..CRASH_ROUNDS.min(args.rounds.max(1)) {
        laps.run(stopwatch, Some(cpu), &command)?;
    }
    let lines = std::fs::read(&text).map_or(0, |text| text.iter().filter(|b| **b == b'\n').count());
    ensure!(
        lines > 1,
        "crash printed no trace: does {} fit it and the kernel?",
        extension.display()
    );
    eprintln!("crash printed {lines} lines");
    Ok(Some(laps))
}

/// Copies an ELF vmcore and gives it one more run of memory, which is a hole in the file.
fn widen(dump: &Path, large: &Path) -> Result<()> {
    let mut from = File::open(dump).with_context(|| dump.display().to_string())?;
    let elf::Table { count, bytes: mut table } =
        elf::Table::read(&from).with_context(|| dump.display().to_string())?;
    let mut to = File::create_new(large).with_context(|| large.display().to_string())?;
    from.seek(SeekFrom::Start(0))?;
    let len = std::io::copy(&mut from, &mut to)?;
    // The table moves behind the file, and has one more: the hole begins behind that.
    let table_at = len.next_multiple_of(4096);
    let hole_at = table_at + 65536;
    table.extend(1u32.to_le_bytes());
    table.extend(6u32.to_le_bytes());
    for value in [hole_at, 0, SPARSE_AT, SPARSE, SPARSE, 0] {
        table.extend(value.to_le_bytes());
    }
    to.seek(SeekFrom::Start(table_at))?;
    to.write_all(&table)?;
    to.set_len(hole_at + SPARSE).context("a sparse file of 64 GB: give another TMPDIR")?;
    to.write_all_at(&table_at.to_le_bytes(), 32)?;
    to.write_all_at(&(count + 1).to_le_bytes(), 56)?;
    Ok(())
}
