//! `cargo xtask bench record-kernel`: `lastwords record --stream` beside `trace-cmd record`, of the
//! same system calls of a program that does nothing else, one after the other. Both work in an
//! instance of their own. With `--network`, both send over TCP to a receiver on the same machine:
//! `lastwords receive` and `trace-cmd listen`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lastwords_testkit::trace_cmd::{self, Tracing};
use serde_json::json;

use super::floors::{Limit, Verdict};
use super::process::{PAUSE, end, free_port, start_receiver};
use super::stats::Spread;
use super::{Judging, report};
use rig::process::wait_until;
use rig::run_quietly;
use rig::scratch::{self, Scratch};

const INSTANCES: &str = "/sys/kernel/tracing/instances";
/// Our CPU time as a part of trace-cmd's.
const HALF: f64 = 0.5;
#[derive(clap::Args)]
pub(crate) struct Args {
    /// System calls of the program that is recorded; each gives two events
    #[arg(long, value_name = "N", default_value_t = 5_000_000)]
    calls: u64,
    /// How often each recorder runs
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// The ring of each CPU, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 16 << 10)]
    size: u64,
    /// Send over TCP to a receiver on this machine, in place of writing a file
    #[arg(long)]
    network: bool,
    #[command(flatten)]
    judging: Judging,
}

/// One recorder.
struct Contender {
    name: &'static str,
    command: Vec<String>,
    /// The command that receives, with its port; none if the recorder writes a file.
    receiver: Option<(Vec<String>, u16)>,
    wall: Vec<f64>,
    cpu: Vec<f64>,
    /// CPU time of the receiver.
    receiver_cpu: Vec<f64>,
    /// Bytes of the file, and events that rings overwrote.
    last: (u64, u64),
}

pub(super) fn run(args: &Args) -> Result<()> {
    eprintln!("building");
    let lastwords = rig::programs::lastwords()?;
    let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-bench-record-kernel")?;
    let pid = std::process::id();
    let (ours, theirs) = (format!("lastwords-bench-{pid}"), format!("lastwords-peer-{pid}"));
    let size = args.size.to_string();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (our_port, their_port) = (free_port()?, free_port()?);
    let (us_to, peer_to) = match args.network {
        true => (format!("-o tcp:127.0.0.1:{our_port}"), format!("-N 127.0.0.1:{their_port}")),
        false => ("--stream --force -o trace.dat".to_owned(), "-o trace.dat".to_owned()),
    };
    let peer = |compression: &str| {
        let start =
            trace_cmd::words(Tracing::Instance(&Path::new(INSTANCES).join(&theirs))).to_vec();
        let what = format!(
            "record -q{compression} -B {theirs} -e raw_syscalls -b {size} -C mono {peer_to}"
        );
        [start, words(&what)].concat()
    };
    let program = lastwords.display().to_string();
    let record = format!("record --instance {ours} -e raw_syscalls --size {size}K {us_to}");
    let us = [vec![program.clone()], words(&record)].concat();
    let contender = |name, command, receiver| Contender {
        name,
        command,
        receiver,
        wall: Vec::new(),
        cpu: Vec::new(),
        receiver_cpu: Vec::new(),
        last: (0, 0),
    };
    let mut all = match args.network {
        true => {
            let receive = format!("{program} receive -d in --listen tcp:127.0.0.1:{our_port}");
            let listen = format!("trace-cmd listen -p {their_port} -d in");
            vec![
                contender("lastwords", us, Some((words(&receive), our_port))),
                contender("trace-cmd", peer(""), Some((words(&listen), their_port))),
            ]
        }
        false => vec![
            contender("lastwords", us, None),
            contender("trace-cmd", peer(""), None),
            contender("trace-cmd, uncompressed", peer(" --compression none"), None),
        ],
    };
    for round in 0..args.rounds.max(1) {
        eprintln!("round {}", round + 1);
        for (at, contender) in all.iter_mut().enumerate() {
            let instance = Path::new(INSTANCES).join(if at == 0 { &ours } else { &theirs });
            let ran = one(contender, &instance, scratch.path(), args.calls, &lastwords);
            let _ = fs::remove_dir(&instance);
            ran.with_context(|| contender.name)?;
        }
    }
    print(&all);
    let ratio =
        |of: fn(&Contender) -> &Vec<f64>, by: usize| median(of(&all[0])) / median(of(&all[by]));
    let mut verdicts = vec![
        // The load takes as long as the machine lets it, so a tenth is noise.
        Verdict::new("time, of trace-cmd's", Limit::AtMost(1.1), Some(ratio(|c| &c.wall, 1))),
        Verdict::new("CPU time, of trace-cmd's", Limit::AtMost(HALF), Some(ratio(|c| &c.cpu, 1))),
    ];
    if !args.network {
        let what = "CPU time, of trace-cmd's uncompressed";
        verdicts.push(Verdict::new(what, Limit::AtMost(HALF), Some(ratio(|c| &c.cpu, 2))));
    }
    print!("{}", report::floors(&verdicts));
    let row = |c: &Contender| json!({"name": c.name, "wall_s": c.wall, "cpu_s": c.cpu, "receiver_cpu_s": c.receiver_cpu, "bytes": c.last.0, "overwritten": c.last.1});
    args.judging.end(
        json!({"calls": args.calls, "contenders": all.iter().map(row).collect::<Vec<_>>()}),
        &verdicts,
    )
}

fn median(values: &[f64]) -> f64 {
    Spread::from_samples(values).map_or(f64::NAN, |spread| spread.median)
}

/// Prints a line for each recorder.
fn print(all: &[Contender]) {
    println!(
        "{:<26} {:>8} {:>8} {:>14} {:>10} {:>12}",
        "", "wall s", "CPU s", "receiver CPU s", "MB", "overwritten"
    );
    for Contender { name, wall, cpu, receiver_cpu, last, .. } in all {
        let (wall, cpu, megabytes) = (median(wall), median(cpu), last.0 as f64 / 1e6);
        let received = receiver_cpu
            .is_empty()
            .then(String::new)
            .unwrap_or_else(|| format!("{:.3}", median(receiver_cpu)));
        println!(
            "{name:<26} {wall:>8.3} {cpu:>8.3} {received:>14} {megabytes:>10.1} {:>12}",
            last.1
        );
    }
}

/// Starts the recorder, runs the load, and ends the recorder as Ctrl-C does.
fn one(
    contender: &mut Contender,
    instance: &Path,
    folder: &Path,
    calls: u64,
    lastwords: &Path,
) -> Result<()> {
    let file = folder.join("trace.dat");
    let _ = fs::remove_file(&file);
    let received = folder.join("in");
    let _ = fs::remove_dir_all(&received);
    scratch::private(&received)?;
    let receiver = contender
        .receiver
        .as_ref()
        .map(|(words, port)| start_receiver(words, *port, folder))
        .transpose()?;
    let mut command = Command::new(&contender.command[0]);
    command
        .args(&contender.command[1..])
        .current_dir(folder)
        .env("LASTWORDS_DIR", folder.join("sessions"));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let ready = wait_until(&mut child, PAUSE, || Ok(is_recording(instance)));
    if let Err(error) = ready {
        let _ = child.kill();
        bail!("{error:#}: {}", String::from_utf8_lossy(&child.wait_with_output()?.stderr));
    }
    // trace-cmd's recorders start after the settings are made.
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    run_quietly(Command::new("dd").args([
        "if=/dev/zero",
        "of=/dev/null",
        "bs=1",
        &format!("count={}", calls / 2),
    ]))?;
    let cpu = end(&child)?.with_children;
    contender.wall.push(begun.elapsed().as_secs_f64());
    contender.cpu.push(cpu);
    let ended = child.wait_with_output()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    let file = match receiver {
        None => file,
        Some(mut receiver) => {
            // trace-cmd receives in a process of its own for each stream.
            contender.receiver_cpu.push(end(&receiver)?.with_children);
            receiver.wait()?;
            let is_dat = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "dat");
            let files = fs::read_dir(&received)?.filter_map(|entry| Some(entry.ok()?.path()));
            files
                .filter(is_dat)
                .max_by_key(|path| path.metadata().map_or(0, |meta| meta.len()))
                .context("no file")?
        }
    };
    let account: serde_json::Value = serde_json::from_str(&run_quietly(
        Command::new(lastwords).arg("inspect").arg("--json").arg(&file),
    )?)?;
    contender.last = (fs::metadata(&file)?.len(), overwritten(&account));
    Ok(())
}

/// Sums the events of all gaps that are by the rings' counters, wherever they stand in the account.
fn overwritten(account: &serde_json::Value) -> u64 {
    use serde_json::Value;
    match account {
        Value::Object(map) => {
            let is_counter = map.get("cause").is_some_and(|c| c == "overwritten");
            let own = map.get("events").and_then(Value::as_u64).filter(|_| is_counter).unwrap_or(0);
            own + map.values().map(overwritten).sum::<u64>()
        }
        Value::Array(items) => items.iter().map(overwritten).sum(),
        _ => 0,
    }
}

fn is_recording(instance: &Path) -> bool {
    let has =
        |file: &str| fs::read_to_string(instance.join(file)).is_ok_and(|text| text.trim() == "1");
    has("events/raw_syscalls/enable") && has("tracing_on")
}
