//! `cargo xtask bench record-user`: the events of an application, sent over TCP to a receiver on
//! the same machine while it records: `lastwords record --user` with `lastwords receive`, and
//! LTTng-UST with its consumer and relay daemons, one after the other.
//!
//! The application is the same program in C with the macros of either library. It rests after each
//! burst of events, so that neither has to drop any; a run in which one did is an error.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::contenders::{ALL, Contender};
use super::floors::{Limit, Verdict};
use super::lttng::Session;
use super::process::{self, PAUSE, cpu_time, ended, free_port, start_receiver};
use super::programs::Programs;
use super::stats::Spread;
use super::{Judging, report};
use rig::process::wait_until;
use rig::run_quietly;
use rig::scratch::{self, Scratch};

/// LTTng's rings: as large as ours, and events that find no room are dropped and counted, which is
/// the default of streams.
const CHANNEL: &[&str] = &["--discard", "--subbuf-size=256k", "--num-subbuf=64"];
/// Our rings: the same for each of two CPUs.
const SIZE: &str = "size=32M";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Events of each run
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    events: u64,
    /// Events after which the application rests for a millisecond
    #[arg(long, value_name = "N", default_value_t = 1000)]
    burst: u64,
    /// How often each recorder runs
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    #[command(flatten)]
    judging: Judging,
}

/// The runs of one recorder. All times are seconds.
#[derive(Default)]
struct Laps {
    /// CPU time of each event in the application, in nanoseconds, its pauses left out.
    application: Vec<f64>,
    /// CPU time of what reads the rings and sends.
    sender: Vec<f64>,
    /// CPU time of what receives.
    receiver: Vec<f64>,
}

impl Laps {
    /// Medians of the application's, the sender's and the receiver's time.
    fn medians(&self) -> [f64; 3] {
        [&self.application, &self.sender, &self.receiver]
            .map(|values| Spread::from_samples(values).map_or(f64::NAN, |spread| spread.median))
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    eprintln!("building");
    let programs = Programs::build()?;
    let program = |name: &str| {
        let contender: Option<&Contender> = ALL.iter().find(|contender| contender.name == name);
        programs.program(contender.context("a contender")?)
    };
    let (our_program, their_program) = (program("lastwords-c")?, program("lttng")?);
    let lastwords = rig::programs::lastwords()?;
    let (mut ours, mut theirs) = (Laps::default(), Laps::default());
    for round in 0..args.rounds.max(1) {
        eprintln!("round {}", round + 1);
        our_lap(args, &lastwords, &our_program, &mut ours).context("lastwords")?;
        their_lap(args, &lastwords, &their_program, &mut theirs).context("LTTng-UST")?;
    }
    println!(
        "{:<12} {:>20} {:>14} {:>16}",
        "", "application ns/event", "sender CPU s", "receiver CPU s"
    );
    for (name, laps) in [("lastwords", &ours), ("LTTng-UST", &theirs)] {
        let [application, sender, receiver] = laps.medians();
        println!("{name:<12} {application:>20.1} {sender:>14.3} {receiver:>16.3}");
    }
    let (us, them) = (ours.medians(), theirs.medians());
    let both = |of: [f64; 3]| of[1] + of[2];
    let verdicts = [
        Verdict::new(
            "CPU time of the application, of LTTng-UST's",
            Limit::AtMost(1.0),
            Some(us[0] / them[0]),
        ),
        Verdict::new(
            "CPU time of sender and receiver, of LTTng's",
            Limit::AtMost(0.5),
            Some(both(us) / both(them)),
        ),
    ];
    print!("{}", report::floors(&verdicts));
    let row = |name: &str, laps: &Laps| json!({"name": name, "application_ns": laps.application, "sender_s": laps.sender, "receiver_s": laps.receiver});
    let rows = [row("lastwords", &ours), row("lttng", &theirs)];
    args.judging
        .end(json!({"events": args.events, "burst": args.burst, "contenders": rows}), &verdicts)
}

/// The application's arguments, but for its name.
fn arguments(args: &Args) -> Result<[String; 3]> {
    let cpu = rig::workers::allowed_cpus()?.into_iter().next_back().context("no CPU")?;
    Ok(["b".to_owned(), args.events.to_string(), cpu.to_string()])
}

fn our_lap(args: &Args, lastwords: &Path, program: &Path, laps: &mut Laps) -> Result<()> {
    let folder = Scratch::create(&std::env::temp_dir(), "lastwords-bench-record-user")?;
    let received = folder.path().join("in");
    scratch::private(&received)?;
    let port = free_port()?;
    let receive = format!("{} receive -d in --listen tcp:127.0.0.1:{port}", lastwords.display());
    let words: Vec<String> = receive.split(' ').map(str::to_owned).collect();
    let mut receiver = start_receiver(&words, port, folder.path())?;
    let mut record = Command::new(lastwords);
    record.args(["record", "-o", &format!("tcp:127.0.0.1:{port}"), "--user", "--strict", "--"]);
    record.arg(program).arg("lastwords-c").args(arguments(args)?);
    record.env("LASTWORDS_DIR", folder.path().join("sessions")).env("LASTWORDS", SIZE);
    record.env("LASTWORDS_BENCH_BURST", args.burst.to_string()).current_dir(folder.path());
    let result = (|| {
        let child =
            record.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let time = ended(&child)?;
        let done = child.wait_with_output()?;
        ensure!(
            done.status.success(),
            "{}: {}",
            done.status,
            String::from_utf8_lossy(&done.stderr)
        );
        laps.sender.push(time.own);
        laps.application.push(application_ns(&String::from_utf8_lossy(&done.stdout))?);
        Ok(())
    })();
    laps.receiver.push(process::end(&receiver)?.own);
    receiver.wait()?;
    result.and_then(|()| check(lastwords, &received, args.events))
}

fn their_lap(args: &Args, lastwords: &Path, program: &Path, laps: &mut Laps) -> Result<()> {
    let folder = Scratch::create(&std::env::temp_dir(), "lastwords-bench-record-user")?;
    let received = folder.path().join("in");
    scratch::private(&received)?;
    let session = Session::daemon()?;
    let mut relay = Relay::start(&session, &received)?;
    let result = (|| {
        let [control, data] = [relay.ports[0], relay.ports[1]];
        let urls = [
            format!("--ctrl-url=tcp4://127.0.0.1:{control}"),
            format!("--data-url=tcp4://127.0.0.1:{data}"),
        ];
        session.create(&urls.each_ref().map(String::as_str), CHANNEL)?;
        let mut application = session.command(program);
        application
            .arg("lttng")
            .args(arguments(args)?)
            .env("LASTWORDS_BENCH_BURST", args.burst.to_string());
        laps.application.push(application_ns(&run_quietly(&mut application)?)?);
        session.destroy()?;
        let times: Result<Vec<f64>> =
            session.daemons()?.into_iter().map(|id| cpu_time(id).map(|time| time.own)).collect();
        laps.sender.push(times?.iter().sum());
        Ok(())
    })();
    laps.receiver.push(process::end(&relay.child)?.own);
    relay.child.wait()?;
    result.and_then(|()| check(lastwords, &received, args.events))
}

/// A relay daemon.
struct Relay {
    child: Child,
    /// Its ports for control, data and live readers.
    ports: [u16; 3],
}

impl Relay {
    fn start(session: &Session, folder: &Path) -> Result<Self> {
        let ports = [free_port()?, free_port()?, free_port()?];
        let mut command = session.command("lttng-relayd".as_ref());
        for (option, port) in ["--control-port", "--data-port", "--live-port"].iter().zip(ports) {
            command.arg(format!("{option}=tcp4://127.0.0.1:{port}"));
        }
        command.args([OsStr::new("--output"), folder.as_os_str()]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let listens = |port: &u16| {
            fs::read_to_string("/proc/net/tcp")
                .is_ok_and(|text| text.contains(&format!(":{port:04X} 00000000:0000 0A")))
        };
        if let Err(error) = wait_until(&mut child, PAUSE, || Ok(ports.iter().all(listens))) {
            let _ = child.kill();
            child.wait()?;
            return Err(error.context("lttng-relayd does not listen: package lttng-tools"));
        }
        Ok(Self { child, ports })
    }
}

/// The CPU time of an event, as the application prints it.
fn application_ns(line: &str) -> Result<f64> {
    let data: Value = serde_json::from_str(line.trim())
        .with_context(|| format!("not a line of JSON: {line:?}"))?;
    data["cpu_ns_per_event"].as_f64().with_context(|| format!("no time in {line:?}"))
}

/// An error unless all events were received, and the tenth that the application records before to
/// warm up.
fn check(lastwords: &Path, received: &Path, events: u64) -> Result<()> {
    let want = events + (events / 10).max(10_000);
    let text = run_quietly(
        Command::new(lastwords).args(["report", "--no-pager", "--strict"]).arg(received),
    )?;
    let count = text
        .lines()
        .filter(|line| line.contains("bench:b") || line.contains("lastwords_bench:b"))
        .count() as u64;
    ensure!(count == want, "{count} of {want} events were received: choose a smaller --burst");
    Ok(())
}
