//! `record -o ADDRESS` and `receive` on the machine's tracefs: what arrives is what a file of the
//! same run has, whoever is killed.
//!
//! They need root. The streams that the tests of the crate `lastwords-stream` put together need
//! nothing.

use crate::child::Running;
use crate::record::{self, KILLED, KILLS, by_trace_cmd, kills, names, told, wait_for_instance};
use crate::support::{NOBODY, Place, assert_members, make_folder, ran, tool, wait_until, words};
use lastwords_testkit::text::Text as _;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

/// A `lastwords receive --json` that runs. It is killed if a test fails.
pub(crate) struct Receiver {
    pub(crate) child: Running,
    out: BufReader<ChildStdout>,
    pub(crate) address: String,
    /// Its first message.
    pub(crate) first: Value,
}

impl Receiver {
    pub(super) fn start(command: Command, args: &[&str]) -> Self {
        let mut receiver = Self::start_until(command, args, "listening");
        receiver.address = receiver.first["address"].as_str().unwrap().to_owned();
        receiver
    }

    pub(crate) fn start_until(mut command: Command, args: &[&str], event: &str) -> Self {
        command.arg("receive");
        command.args(args).arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Running::start(&mut command);
        let out = BufReader::new(child.child.stdout.take().unwrap());
        let mut receiver = Self { child, out, address: String::new(), first: Value::Null };
        receiver.first = receiver.next(event);
        receiver
    }

    /// A receiver of TCP into the folder `in`.
    pub(crate) fn at(place: &Place) -> Self {
        Self::start(place.command(), &["--dir", "in", "--listen", "tcp:127.0.0.1:0"])
    }

    /// The next line that tells of such an event.
    pub(crate) fn next(&mut self, event: &str) -> Value {
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).unwrap() == 0 {
                let mut err = String::new();
                self.child.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
                panic!("no {event}: {err}");
            }
            let told: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(told["schema"], "lastwords.receive.v1");
            if told["event"] == event {
                return told;
            }
            assert!(told["event"] != "failed", "{told}");
        }
    }

    pub(crate) fn end(&mut self, signal: Signal) -> Option<i32> {
        self.child.signal(signal);
        self.child.wait().code()
    }
}

pub(crate) fn path(place: &Place, told: &Value) -> PathBuf {
    place.at(told["path"].as_str().unwrap())
}

/// Events by CPU, each with its task's ID. The names of tasks, which the kernel keeps of some tasks
/// alone, are left out.
fn by_cpu(events: Vec<(u32, String)>) -> BTreeMap<String, Vec<(u32, String)>> {
    let mut cpus: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
    for (pid, line) in events {
        let (_, rest) = line.split_once(" [").unwrap();
        let (cpu, event) = rest.split_once("] ").unwrap();
        cpus.entry(cpu.to_owned()).or_default().push((pid, event.to_owned()));
    }
    cpus
}

#[test]
fn what_arrives_is_what_a_file_of_the_same_run_has() {
    let Some(place) = record::tracing() else { return };
    let mut receiver = Receiver::at(&place);
    let events = ["-e", "syscalls:sys_enter_kill", "-f", KILLED, "-e", "sched:sched_process_ex*"];
    let mut command = place.command();
    command.arg("record").args(events).args(["--stream", "-o", "ours.dat", "--"]);
    command.arg(env!("CARGO_BIN_EXE_lastwords")).arg("record").args(events).args([
        "--strict",
        "-o",
        &receiver.address,
    ]);
    let both = ran(command.args(["--", "bash", "-c", KILLS]).output().unwrap());
    both.has_status(0);
    let saved = receiver.next("saved");
    let received = path(&place, &saved);
    assert_members(&saved, &json!({ "lost": 0, "ended_early": null }));
    check_all(kills(&received));
    let (ours, theirs) = (by_trace_cmd(&place.at("ours.dat")), by_trace_cmd(&received));
    assert_eq!(saved["events"].as_u64().unwrap() as usize, theirs.len());
    both.says(&format!("{}: {} events of ", receiver.address, theirs.len()));
    // The file is the longer one: it has the begin and the end of the process that sends, too. Each
    // instance reads the clock for itself, so that events of different CPUs may change places.
    let (ours, theirs) = (by_cpu(ours), by_cpu(theirs));
    for (cpu, theirs) in &theirs {
        let ours = &ours[cpu];
        let is_part = ours.windows(theirs.len()).any(|part| part == theirs);
        assert!(
            is_part,
            "CPU {cpu}: {} of {} events: {:?}",
            theirs.len(),
            ours.len(),
            theirs.iter().take(3)
        );
    }
    // `report` reads it, too.
    assert_eq!(
        place.ok(&["report", received.to_str().unwrap()]).matches("sys_kill(").count(),
        20_000
    );
    assert_eq!(receiver.end(Signal::INT), Some(0));
    place.is_restored("a recording");
}

#[test]
fn three_recorders_send_at_once() {
    let Some(place) = record::tracing() else { return };
    let mut receiver = Receiver::at(&place);
    let recorders: Vec<_> = (1..=3u32)
        .map(|number| {
            let (begin, end) = (number * 2_000_000, number * 2_000_000 + 20_000);
            let filter = format!("pid >= {begin} && pid < {end}");
            let script = KILLS.replace("1000000", &begin.to_string());
            let mut command = place.command();
            command.args(words("record --strict -e syscalls:sys_enter_kill -f")).arg(&filter);
            command.args(["-o", &receiver.address]);
            command.args(["--", "bash", "-c", &script]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("it starts")
        })
        .collect();
    for recorder in recorders {
        let ended = ran(recorder.wait_with_output().unwrap());
        assert_eq!((ended.status, told(&ended)), (0, 20_000), "{}", ended.err);
    }
    let mut begins = Vec::new();
    for _ in 0..3 {
        let file = path(&place, &receiver.next("saved"));
        let pid = |(_, line): (u32, String)| {
            u64::from_str_radix(line.split("pid: 0x").nth(1)?.split(',').next()?, 16).ok()
        };
        let numbers: Vec<u64> = by_trace_cmd(&file).into_iter().filter_map(pid).collect();
        assert_eq!(numbers, (numbers[0]..numbers[0] + 20_000).collect::<Vec<_>>());
        begins.push(numbers[0]);
    }
    begins.sort_unstable();
    assert_eq!(begins, [2_000_000, 4_000_000, 6_000_000]);
    assert_eq!(receiver.end(Signal::TERM), Some(0));
}

pub(crate) const KILL: [&str; 4] = ["-e", "syscalls:sys_enter_kill", "-f", KILLED];

/// Checks that each event of [`KILLS`] is there once. Those of a CPU that the command has left may
/// be sent after later ones of another.
fn check_all(mut numbers: Vec<u64>) {
    numbers.sort_unstable();
    let wrong = numbers.iter().zip(0..).find(|(number, expected)| *number != expected);
    assert!(numbers.len() == 20_000 && wrong.is_none(), "{} events; {wrong:?}", numbers.len());
}

/// The file of what a sender had not sent.
fn unsent(place: &Place) -> Option<PathBuf> {
    let name = names(place.path()).into_iter().find(|name| name.ends_with(".dat"));
    name.map(|name| place.at(&name))
}

/// The sum of a counter over all CPUs of an instance.
fn stat(instance: &Path, word: &str) -> u64 {
    let cpus = names(&instance.join("per_cpu")).into_iter();
    let text = cpus
        .map(|cpu| fs::read_to_string(instance.join("per_cpu").join(cpu).join("stats")).unwrap());
    text.map(|text| {
        text.lines().find_map(|line| line.strip_prefix(word)?.parse::<u64>().ok()).unwrap_or(0)
    })
    .sum()
}

/// Waits until all full sub-buffers have arrived: the threads of the recorder, and then of the
/// receiver, wait for more.
fn wait_until_arrived(recorder: &record::Recorder<'_>, receiver: &Receiver, instance: &Path) {
    wait_until("events are sent", || {
        stat(instance, "read events: ") > 10_000 && stat(instance, "entries: ") < 1000
    });
    for process in [recorder.pid(), Pid::from_child(&receiver.child.child)] {
        let tasks = PathBuf::from(format!("/proc/{}/task", process.as_raw_nonzero()));
        let waits = |task: String| {
            fs::read_to_string(tasks.join(task).join("wchan")).is_ok_and(|at| at.contains("poll"))
        };
        wait_until("all threads wait", || names(&tasks).into_iter().all(waits));
    }
}

/// A receiver, and a recorder that has sent it all full sub-buffers of its events.
fn both_at_work(place: &Place) -> (Receiver, record::Recorder<'_>) {
    let receiver = Receiver::at(place);
    let to = receiver.address.as_str();
    let args = ["--flush", "0", "--instance", "lastwords_test", "-o", to];
    let recorder = record::start(place, &[&KILL[..], &args].concat());
    let instance = wait_for_instance("lastwords_test");
    tool("bash", &["-c", KILLS]);
    wait_until_arrived(&recorder, &receiver, &instance);
    (receiver, recorder)
}

#[test]
fn a_sender_that_is_killed_loses_nothing_that_it_sent() {
    let Some(place) = record::tracing() else { return };
    let (mut receiver, mut recorder) = both_at_work(&place);
    let to = receiver.address.clone();
    assert_eq!(recorder.end(Signal::KILL).status, -1);
    let saved = receiver.next("saved");
    assert!(saved["ended_early"].as_str().unwrap().contains("closed the connection"), "{saved}");
    let received = path(&place, &saved);
    let arrived = kills(&received);
    assert_eq!(saved["events"].as_u64().unwrap() as usize, arrived.len());
    let ran = place.run(&["report", received.to_str().unwrap(), "--strict"]);
    ran.has_status(3).says("the stream ended early");
    let restored = place.run(&["restore"]);
    restored.has_status(0);
    let sent =
        format!("{} more events were taken from the ring before, and sent to {to}", arrived.len());
    restored.says(&sent);
    place.is_restored("a recording");
    check_all([arrived, kills(&unsent(&place).expect("what was not sent"))].concat());
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

#[test]
fn a_receiver_that_is_killed_ends_the_recording_and_nothing_that_arrived_is_lost() {
    let Some(place) = record::tracing() else { return };
    let (mut receiver, mut recorder) = both_at_work(&place);
    let to = receiver.address.clone();
    receiver.end(Signal::KILL);
    let ended = recorder.wait();
    ended.has_status(1).says(&to).says("keeps what arrived");
    place.is_restored("a recording");
    let rest = kills(&unsent(&place).expect("what was not sent"));
    assert_eq!(told(&ended), rest.len(), "{}", ended.err);
    let mut next = Receiver::start(place.command(), &["-d", "in", "--listen", "tcp:127.0.0.1:0"]);
    assert_eq!(next.end(Signal::INT), Some(0));
    let files = names(&place.at("in"));
    assert!(files.len() == 1 && files[0].ends_with(".dat"), "{files:?}");
    let arrived = kills(&place.at("in").join(&files[0]));
    check_all([arrived, rest].concat());
    // Nobody listens: nothing is changed.
    place
        .run(&[&["record", "-o", &to][..], &KILL, &["--", "true"]].concat())
        .has_status(1)
        .says("lastwords receive --listen");
    place.is_restored("a recording");
}

#[test]
fn a_slow_receiver_makes_the_rings_lose_and_both_ends_tell_it() {
    let Some(place) = record::tracing() else { return };
    let mut receiver = Receiver::at(&place);
    let to = receiver.address.clone();
    let args = ["-e", "raw_syscalls", "--size", "256K", "--instance", "lastwords_test", "-o", &to];
    let mut recorder = record::start(&place, &args);
    let instance = wait_for_instance("lastwords_test");
    receiver.next("started");
    receiver.child.signal(Signal::STOP);
    // Sockets and pipes fill, then the rings.
    while stat(&instance, "overrun: ") == 0 {
        tool("dd", &["if=/dev/zero", "of=/dev/null", "bs=1", "count=50000"]);
    }
    receiver.child.signal(Signal::CONT);
    let ended = recorder.end(Signal::INT);
    let saved = receiver.next("saved");
    let lost = saved["lost"].as_u64().unwrap();
    assert!(ended.status == 0 && lost > 0, "{} {saved}", ended.err);
    assert!(ended.err.contains(&format!("{lost} events lost")), "{saved} {}", ended.err);
    let file = path(&place, &saved);
    assert_eq!(saved["events"].as_u64().unwrap() as usize, told(&ended));
    assert_eq!(by_trace_cmd(&file).len(), told(&ended), "all that left the rings is in the file");
    let memory = fs::read_to_string(format!("/proc/{}/status", receiver.child.pid())).unwrap();
    let peak = memory
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap()
        .trim()
        .split(' ')
        .next()
        .unwrap();
    // Half of it is the description of the events. The stream has more than that, and more was
    // lost.
    assert!(peak.parse::<u64>().unwrap() < 300 << 10, "{peak} KiB");
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

#[test]
fn a_full_disk_is_told_to_both_ends_and_what_arrived_is_saved_later() {
    let Some(place) = record::tracing() else { return };
    // The disk is there for the receiver alone, and gone with it.
    fs::create_dir(place.at("in")).unwrap();
    let disk = r#"mount -t tmpfs -o size=3M,mode=700 none in && exec "$0" "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", disk, env!("CARGO_BIN_EXE_lastwords")]);
    command.current_dir(place.path()).env("LASTWORDS_DIR", place.sessions());
    let mut receiver = Receiver::start(command, &["-d", "in", "--listen", "tcp:127.0.0.1:0"]);
    let to = receiver.address.clone();
    let mut recorder =
        record::start(&place, &["-e", "raw_syscalls", "--instance", "lastwords_test", "-o", &to]);
    let instance = wait_for_instance("lastwords_test");
    while instance.is_dir() {
        tool("dd", &["if=/dev/zero", "of=/dev/null", "bs=1", "count=20000"]);
    }
    recorder.wait().has_status(1).says("No space left on device");
    place.is_restored("a recording");
    let failed = receiver.next("failed");
    assert!(failed["why"].as_str().unwrap().contains("what arrived is kept there"), "{failed}");
    let inside = |words: &[&str]| {
        let pid = receiver.child.pid().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &pid, "--mount"]).args(words).current_dir(place.path());
        command
    };
    let folder = place.at("in");
    let larger =
        inside(&["mount", "-o", "remount,size=64M", folder.to_str().unwrap()]).status().unwrap();
    assert!(larger.success(), "mount");
    let args = ["-d", folder.to_str().unwrap(), "--listen", "tcp:127.0.0.1:0"];
    let mut next =
        Receiver::start_until(inside(&[env!("CARGO_BIN_EXE_lastwords")]), &args, "saved");
    let file =
        format!("/proc/{}/root{}", receiver.child.pid(), path(&place, &next.first).display());
    assert_eq!(
        next.first["events"].as_u64().unwrap() as usize,
        by_trace_cmd(Path::new(&file)).len()
    );
    assert!(next.first["events"].as_u64().unwrap() > 1000, "{}", next.first);
    assert_eq!(next.end(Signal::INT), Some(0));
    assert_eq!(receiver.end(Signal::INT), Some(1), "a stream could not be saved");
}

#[test]
fn addresses_with_options_of_files_are_refused() {
    let place = Place::new();
    for (args, status, why) in [
        (&["-o", "tcp:x", "-e", "sched"][..], 2, "tcp:HOST:PORT"),
        (&["-o", "tcp:127.0.0.1:1", "-e", "sched", "--force"], 1, "--force"),
        (&["-o", "tcp:127.0.0.1:1", "--user", "--", "true"], 1, "lastwords receive --listen"),
        (&["-o", "x.dat", "--session", "app"], 1, "--session"),
    ] {
        place.run(&[&["record"], args].concat()).has_status(status).says(why);
    }
    assert_eq!(names(place.path()), ["sessions"]);
}

/// Runs a copy of the program as `nobody`, who may not enter the folder of the build.
fn as_nobody(place: &Place, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LASTWORDS_DIR", place.at("nobody"));
    command.env("TZ", "UTC").current_dir(place.at("nobody"));
    command.uid(NOBODY).gid(NOBODY);
    command
}

#[test]
fn another_user_gives_nothing_and_gets_nothing() {
    let Some(place) = record::tracing() else { return };
    let open = |name: &str, mode: u32| {
        fs::set_permissions(place.at(name), fs::Permissions::from_mode(mode)).unwrap()
    };
    make_folder(&place.at("nobody"), 0o755, NOBODY);
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.at("lastwords");
    fs::copy(env!("CARGO_BIN_EXE_lastwords"), &program).unwrap();
    open("lastwords", 0o755);
    let tried = as_nobody(&place, &program).arg("--version").output();
    assert!(tried.is_ok_and(|tried| tried.status.success()), "nobody can run the program");

    // A receiver of another user at the address gets no stream of root's.
    let theirs = place.at("nobody/socket");
    let listen = format!("unix:{}", theirs.display());
    let folder = place.at("nobody/in");
    let args = ["-d", folder.to_str().unwrap(), "--listen", &listen];
    let mut receiver = Receiver::start(as_nobody(&place, &program), &args);
    let done = place.run(&[&["record", "-o", &listen][..], &KILL, &["--", "true"]].concat());
    done.has_status(1).says("the peer is of user 65534");
    assert_eq!(receiver.end(Signal::INT), Some(0));
    assert_eq!(names(&folder), Vec::<String>::new());

    // Its folder is none for root's streams, and root's folder and files give it nothing.
    let refused =
        place.run(&["receive", "-d", folder.to_str().unwrap(), "--listen", "tcp:127.0.0.1:0"]);
    refused.has_status(1).says("other users could change");
    let socket = place.at("socket");
    let listen = format!("unix:{}", socket.display());
    let mut receiver = Receiver::start(place.command(), &["-d", "in", "--listen", &listen]);
    place
        .run(&[&["record", "-o", &listen][..], &KILL, &["--", "bash", "-c", KILLS]].concat())
        .has_status(0);
    let file = path(&place, &receiver.next("saved"));
    let read = as_nobody(&place, &program).arg("report").arg(&file).output().unwrap();
    assert!(read.stdout.is_empty() && !read.status.success(), "nobody reads root's stream");
    // Even where it may open the socket, its stream is refused.
    open("socket", 0o777);
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(999))";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(&socket).uid(NOBODY).gid(NOBODY).current_dir("/");
    ran(python.output().expect("python3 is needed: cargo xtask setup")).prints("user 65534");
    receiver.next("refused")["why"].as_str().unwrap().has("user 65534");
    assert_eq!(receiver.end(Signal::INT), Some(0));
    assert!(!socket.exists());
    place.is_restored("a recording");
}

/// Calls `kill` with the numbers from 1000000 + `begin` on.
pub(crate) fn numbered(begin: u32, count: u32) -> String {
    let (begin, end) = (1_000_000 + begin, 1_000_000 + begin + count);
    format!("exec 2>/dev/null; for ((i = {begin}; i < {end}; i++)); do kill -0 $i; done; true")
}

/// A sub-buffer that is not full is sent each second.
#[test]
fn few_events_outlive_the_sender() {
    let Some(place) = record::tracing() else { return };
    let mut receiver = Receiver::at(&place);
    let to = receiver.address.clone();
    let mut recorder =
        record::start(&place, &[&KILL[..], &["--instance", "lastwords_test", "-o", &to]].concat());
    wait_for_instance("lastwords_test");
    receiver.next("started");
    tool("bash", &["-c", &numbered(0, 30)]);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    recorder.end(Signal::KILL);
    let file = path(&place, &receiver.next("saved"));
    assert_eq!(kills(&file), (0..30).collect::<Vec<_>>());
    drop(recorder);
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

/// Parts of sub-buffers are sent all the time, and the sender is killed at some moment: each event
/// is at the receiver once, or still in the ring, or was on its way and is counted.
#[test]
fn flushes_send_each_event_once() {
    let Some(place) = record::tracing() else { return };
    let mut receiver = Receiver::at(&place);
    let to = receiver.address.clone();
    let args = [&KILL[..], &["--flush", "3ms", "--instance", "lastwords_test", "-o", &to]].concat();
    let mut on_the_way = 0;
    for round in 1..=4u64 {
        let mut recorder = record::start(&place, &args);
        wait_for_instance("lastwords_test");
        receiver.next("started");
        let children = [0, 10_000].map(|begin| {
            Running::start(Command::new("bash").args(["-c", &numbered(begin, 10_000)]))
        });
        std::thread::sleep(std::time::Duration::from_millis(round * 37));
        recorder.end(Signal::KILL);
        children.into_iter().for_each(|mut child| _ = child.wait());
        let arrived = kills(&path(&place, &receiver.next("saved")));
        let restored = place.run(&["restore"]);
        restored.has_status(0);
        // There is no file if the last event was sent before the sender was killed.
        let rest = unsent(&place).map_or_else(Vec::new, |file| {
            let rest = kills(&file);
            fs::remove_file(file).unwrap();
            rest
        });
        let mut all = [&arrived[..], &rest].concat();
        all.sort_unstable();
        let twice = all.windows(2).find(|pair| pair[0] == pair[1]);
        assert!(twice.is_none(), "round {round}: {twice:?} twice");
        assert!(arrived.len() > 10, "round {round}: {}", arrived.len());
        // What left the ring has arrived or was on its way, and the number is told.
        let told = [&restored.out[..], &restored.err].concat();
        let taken =
            told.split_once(" events were taken from the ring before").map(|(text, _)| text);
        let taken =
            taken.and_then(|text| text.trim_end_matches(" more").rsplit(' ').next()?.parse().ok());
        let taken: usize = taken.unwrap_or_else(|| panic!("{told}"));
        assert_eq!(taken + rest.len(), 20_000, "round {round}: {}", restored.err);
        on_the_way += 20_000 - all.len();
    }
    assert!(on_the_way < 4000, "{on_the_way} events were on their way");
    assert_eq!(receiver.end(Signal::INT), Some(0));
}
