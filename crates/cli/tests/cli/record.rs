//! `record` and `restore` on the machine's tracefs: compared with trace-cmd, with what the command
//! did, and with the state of the machine's tracing before.
//!
//! They need root. Where tracefs is not mounted, they mount it, and leave it mounted as a Debian
//! system has it.

use crate::child::{TASK, task};
use crate::support::{Place, Ran, entries, ran, tool, wait_until, words};
use lastwords::{Session, event};
use lastwords_testkit::trace_cmd::{self, Tracing};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const TRACEFS: &str = "/sys/kernel/tracing";

/// The machine's tracing for one test at a time, with a place for the test. It is an error if a
/// test changes other settings of tracing than it restores.
pub(crate) struct Alone {
    place: Place,
    /// The state before the test.
    pub(crate) before: BTreeMap<&'static str, String>,
    /// Instances and probes of other tests are not part of the state. The lock is held until the
    /// file is closed.
    _lock: fs::File,
}

impl std::ops::Deref for Alone {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Alone {
    /// Fails unless tracing is as it was before the test, without a recorder's journal.
    #[track_caller]
    pub(crate) fn is_restored(&self, after: &str) {
        assert_eq!(state(), self.before, "after {after}");
        let left = names(&self.sessions());
        assert!(left.iter().all(|name| !name.starts_with(".record")), "{left:?} after {after}");
    }

    /// The same, and fails if the place has other files than `trace.dat`.
    #[track_caller]
    pub(crate) fn has_only_its_file(&self, after: &str) {
        self.is_restored(after);
        let files = names(self.path());
        let is_known = |name: &String| name == "sessions" || name == "trace.dat";
        assert!(files.iter().all(is_known), "{files:?} after {after}");
    }
}

/// Returns none where the tests cannot run, and says so.
pub(crate) fn tracing() -> Option<Alone> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can record with the kernel's tracer");
        return None;
    }
    let lock = fs::File::create(std::env::temp_dir().join("lastwords-tests-of-tracing.lock"))
        .expect("a file for the lock");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("the lock");
    let is_mounted = || Path::new(TRACEFS).join("events").is_dir();
    if !is_mounted() {
        let done = Command::new("mount")
            .args(["-t", "tracefs", "nodev", TRACEFS])
            .output()
            .expect("mount");
        if !is_mounted() {
            // A container's root has no kernel tracer.
            eprintln!(
                "tracefs cannot be mounted: {}",
                String::from_utf8_lossy(&done.stderr).trim()
            );
            return None;
        }
    }
    Some(Alone { place: Place::new(), before: state(), _lock: lock })
}

/// The folder of an instance.
pub(crate) fn instance(name: &str) -> PathBuf {
    Path::new(TRACEFS).join("instances").join(name)
}

/// An instance of a test's own, which is removed at the end.
pub(crate) struct Instance(pub(crate) PathBuf);

impl Instance {
    pub(crate) fn new(name: &str) -> Self {
        let instance = Self(instance(name));
        fs::create_dir(&instance.0).expect("an instance");
        instance
    }

    pub(crate) fn set(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    pub(crate) fn get(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).expect(file)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The state of the machine's tracing, by file.
pub(crate) fn state() -> BTreeMap<&'static str, String> {
    let files = [
        "set_event",
        "dynamic_events",
        "kprobe_events",
        "uprobe_events",
        "synthetic_events",
        "tracing_on",
        "current_tracer",
        "trace_clock",
        "buffer_size_kb",
        "saved_cmdlines_size",
        "set_event_pid",
        "set_ftrace_filter",
        "set_ftrace_notrace",
        "set_ftrace_pid",
        "set_graph_function",
        "set_graph_notrace",
        "max_graph_depth",
        "tracing_cpumask",
        "trace_options",
    ];
    // A kernel that lacks a file lacks it afterwards too.
    let read = |name: &'static str| {
        (name, fs::read_to_string(Path::new(TRACEFS).join(name)).unwrap_or_default())
    };
    let mut state: BTreeMap<_, _> = files.into_iter().map(read).collect();
    let folder = Path::new(TRACEFS).join("options");
    let value = |name: &String| {
        format!("{name} {}", fs::read_to_string(folder.join(name)).unwrap_or_default())
    };
    state.insert("options", names(&folder).iter().map(value).collect());
    state.insert("instances", names(&Path::new(TRACEFS).join("instances")).join(" "));
    state
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    entries(folder).into_iter().map(name).collect()
}

/// Runs `lastwords record` with these arguments.
pub(super) fn record(place: &Place, args: &[&str]) -> Ran {
    place.run(&[&["record"], args].concat())
}

/// The number of events that the closing line tells.
pub(crate) fn told(ran: &Ran) -> usize {
    let is_closing = |line: &&str| line.contains(" events of ") || line.contains(" event of ");
    let line = ran.err.lines().find(is_closing).unwrap_or_else(|| panic!("{}", ran.err));
    line.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// The events that trace-cmd shows of a file: pid, and the line without its time. The name of a
/// buffer before a line is left out.
pub(crate) fn by_trace_cmd(file: &Path) -> Vec<(u32, String)> {
    let text = tool("trace-cmd", &["report", "-i", file.to_str().unwrap()]).out;
    let mut events = Vec::new();
    for line in text.lines().filter(|line| line.contains(" [0") && line.contains(": ")) {
        let (task, rest) = line.split_once(" [").unwrap();
        // There is no blank before the time of a clock whose times trace-cmd shows in nanoseconds.
        let (cpu, rest) = rest.split_once(']').unwrap();
        let (_, event) = rest.trim_start().split_once(": ").unwrap();
        let task = task.rsplit(": ").next().unwrap().trim();
        let (_, pid) = task.rsplit_once('-').unwrap();
        events.push((pid.parse().unwrap(), format!("{task} [{cpu}] {event}")));
    }
    events
}

#[test]
fn events_are_those_of_trace_cmd() {
    let Some(place) = tracing() else { return };
    let switches = ["-f", "prev_pid != 1", "-e", "sched:sched_process_ex*"];
    let rules = [&words("-e syscalls:* -e sched:sched_switch")[..], &switches].concat();
    for how in [&["--size", "8M"][..], &["--stream"]] {
        let (ours, theirs, pid) = (place.at("ours.dat"), place.at("theirs.dat"), place.at("pid"));
        let script =
            format!("echo $$ > {}; exec find /usr/share/doc -maxdepth 1 -name 'l*'", pid.display());
        // trace-cmd ends last: it resizes the table of tasks' names, which empties it.
        let instance = Path::new(TRACEFS).join("instances/lastwords_peer");
        let [program, words @ ..] = trace_cmd::words(Tracing::Instance(&instance));
        let mut command = Command::new(program);
        command.args(words).args(["record", "-q", "-B", "lastwords_peer"]).args(&rules);
        // Where much runs beside, its readers come late: what they read last must not be overwritten.
        command.args(["-b", "65536", "-C", "mono", "-o"]).arg(&theirs);
        command.arg(env!("CARGO_BIN_EXE_lastwords"));
        command.arg("record").args(&rules).args(how).arg("-o").arg(&ours);
        command.args(["--", "sh", "-c", &script]);
        command.current_dir(place.path()).env("LASTWORDS_DIR", place.sessions());
        let both =
            ran(command.output().expect("unshare and trace-cmd are needed: cargo xtask setup"));
        let _ = fs::remove_dir(instance);
        both.has_status(0);
        let pid: u32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        let all = by_trace_cmd(&ours);
        assert_eq!(told(&both), all.len(), "{}", both.err);
        both.says("nothing lost");
        // Both trace the whole of what the second program of the process does.
        // The name of the task is left out: trace-cmd may have read the kernel's table before the
        // name changed.
        let of = |events: Vec<(u32, String)>| -> Vec<String> {
            let lines = events.into_iter().filter(|(of, _)| *of == pid);
            let lines = lines.map(|(_, line)| line.split_once(" [").unwrap().1.to_owned());
            let lines = lines.skip_while(|line| {
                !(line.contains("sched_process_exec:") && line.contains("/find"))
            });
            let mut is_over = false;
            lines
                .take_while(|line| {
                    !std::mem::replace(&mut is_over, line.contains("sched_process_exit:"))
                })
                .collect()
        };
        let of_theirs = by_trace_cmd(&theirs);
        let peer = format!(
            "{} events, {:?}; {}{}",
            of_theirs.len(),
            of_theirs.iter().filter(|(of, _)| *of == pid).collect::<Vec<_>>(),
            both.out,
            both.err
        );
        let (ours_text, theirs_text) = (of(all), of(of_theirs));
        assert!(
            ours_text.len() > 100 && ours_text.last().unwrap().contains("sched_process_exit"),
            "{ours_text:?}"
        );
        assert_eq!(ours_text, theirs_text, "{how:?} {peer}");
        fs::remove_file(&ours).unwrap();
    }
}

/// A command whose system call `kill` has the numbers from 1000000 on, so that each event is known.
pub(crate) const KILLS: &str =
    "exec 2>/dev/null; for ((i = 0; i < 20000; i++)); do kill -0 $((1000000 + i)); done; true";

/// A filter that only the calls of [`KILLS`], and of those whose numbers are below 9000000, pass.
/// The number of a group of processes, which others may kill meanwhile, is negative, and a large
/// one for the filter.
pub(crate) const KILLED: &str = "pid >= 1000000 && pid < 9000000";

/// The numbers of the events that a file has of [`KILLS`], in order.
pub(crate) fn kills(file: &Path) -> Vec<u64> {
    let number = |line: &str| {
        let text = line.split("pid: 0x").nth(1)?.split(',').next()?;
        u64::from_str_radix(text, 16).ok()?.checked_sub(1_000_000).filter(|number| *number < 20_000)
    };
    by_trace_cmd(file).iter().filter_map(|(_, line)| number(line)).collect()
}

#[test]
fn every_event_is_saved_or_told() {
    let Some(place) = tracing() else { return };
    let file = place.at("k.dat");
    // On one CPU, so that the newest events and the oldest are those of one ring.
    let script =
        format!("cpus=$(taskset -cp $$); taskset -cp ${{cpus##*[ ,-]}} $$ > pinned; {KILLS}");
    let of = |how: &[&str], status: i32| {
        let args =
            ["-e", "syscalls:sys_enter_kill", "-f", KILLED, "--strict", "--force", "-o", "k.dat"];
        let ran = record(&place, &[how, &args, &["--", "bash", "-c", &script]].concat());
        ran.has_status(status);
        let numbers = kills(&file);
        assert_eq!(told(&ran), numbers.len(), "{}", ran.err);
        let gap = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]);
        assert!(
            gap.is_none(),
            "a gap: {gap:?}; {}",
            fs::read_to_string(place.at("pinned")).unwrap()
        );
        (ran.err, numbers)
    };
    let count = |text: &str, word: &str| -> u64 {
        let amounts = text.split_whitespace().collect::<Vec<_>>();
        amounts
            .windows(3)
            .filter(|w| w[1] == "events" && w[2].starts_with(word))
            .map(|w| w[0].parse::<u64>().unwrap())
            .sum()
    };
    // A flight recorder keeps the newest.
    let (said, numbers) = of(&["--size", "64K"], 0);
    assert_eq!(
        (numbers.last(), numbers.len() as u64 + count(&said, "overwritten")),
        (Some(&19_999), 20_000),
        "{said}"
    );
    assert!(numbers[0] > 0 && said.contains("nothing else lost"), "{said}");
    // A ring that discards keeps the oldest, and that is a loss.
    let (said, numbers) = of(&["--size", "64K", "--discard"], 3);
    assert_eq!(
        (numbers[0], numbers.len() as u64 + count(&said, "discarded")),
        (0, 20_000),
        "{said}"
    );
    let (said, numbers) = of(&["--stream"], 0);
    assert_eq!(numbers.len(), 20_000, "{said}");
}

/// A recorder that runs, or was killed. What is left of it when a test fails is removed.
pub(crate) struct Recorder<'a>(Option<Child>, &'a Place);

impl<'a> Recorder<'a> {
    pub(crate) fn new(child: Child, place: &'a Place) -> Self {
        Self(Some(child), place)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().unwrap())
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end(&mut self, signal: Signal) -> Ran {
        kill_process(self.pid(), signal).expect("it runs");
        self.wait()
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(&mut self) -> Ran {
        ran(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.1.run(&["restore", "--discard"]);
    }
}

/// Starts `lastwords record` without waiting for it.
pub(crate) fn start<'a>(place: &'a Place, args: &[&str]) -> Recorder<'a> {
    let mut command = place.command();
    command.arg("record").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    Recorder(Some(command.spawn().expect("it starts")), place)
}

/// Waits until an instance records, with the settings made.
pub(crate) fn wait_for_instance(name: &str) -> PathBuf {
    let path = instance(name);
    // A new instance records for a moment, but has no events then.
    let has = |file: &str, value: &str| {
        fs::read_to_string(path.join(file)).is_ok_and(|text| text.trim() == value)
    };
    wait_until(name, || has("tracing_on", "1") && !has("events/enable", "0"));
    path
}

/// A probe of a program in user space, which every kernel with uprobes can define: the first byte
/// of the code of `sh`.
fn probe() -> String {
    let bytes = fs::read("/bin/sh").expect("a shell");
    let entry = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    format!("p:started /bin/sh:{entry:#x}")
}

#[test]
fn the_machine_is_left_as_it_was_found() {
    let Some(place) = tracing() else { return };
    let probe = probe();
    let with_probe = ["-e", "sched", "--uprobe", &probe, "--force"];
    let check = |what: &str| place.has_only_its_file(what);
    record(&place, &[&with_probe[..], &["--", "sh", "-c", "exit 7"]].concat()).has_status(7);
    assert!(by_trace_cmd(&place.at("trace.dat")).iter().any(|(_, line)| line.contains("started:")));
    check("a command that fails");
    let done = record(&place, &[&with_probe[..], &["--", "sh", "-c", "kill -9 $$"]].concat());
    assert_eq!(done.status, 128 + 9, "{}", done.err);
    check("a command that is killed");
    for (args, why) in [
        (
            &["--force", "-e", "sched", "--", "/no/such/program"][..],
            "/no/such/program: cannot be run",
        ),
        (
            &["--force", "-e", "sched", "--user", "--", "/no/such/program"],
            "/no/such/program: cannot be run",
        ),
        (&["--force", "-e", "sched", "--user", "-C", "local", "--", "true"], "cannot be related"),
        (&["--force", "-e", "sched:sched_switch", "-f", "no_such == 1"], "Field not found"),
        (&["--force", "-e", "no_such_event"], "no such event"),
        (&["--force", "-p", "no_such_tracer"], "this kernel has"),
        (&["--force", "-C", "no_such_clock", "-e", "sched"], "this kernel has"),
        (&["--force", "-e", "sched", "--uprobe", "p:x /no/such/file:0x10"], "dynamic_events"),
        (&["-e", "sched"], "trace.dat exists"),
        (&["--force"], "nothing to record"),
        (&["--force", "-e", "sched", "--before", "1s"], "no --trigger takes one"),
        (&["--force", "-e", "sched", "-o", "/no/such/folder/x.dat"], "its folder does not exist"),
        (&["--force", "-e", "sched", "--instance", "a/b"], "no name of a folder"),
    ] {
        record(&place, args).has_status(1).says(why);
        check(why);
    }
    assert_eq!(record(&place, &["-f", "x", "-e", "sched"]).status, 2);
    for (signal, command) in
        [(Signal::INT, &[][..]), (Signal::TERM, &[]), (Signal::TERM, &["--", "sleep", "100"])]
    {
        let mut child =
            start(&place, &[&with_probe[..], &["--instance", "lastwords_test"], command].concat());
        wait_for_instance("lastwords_test");
        let ended = child.end(signal);
        assert_eq!(ended.status, 0, "{signal:?} {command:?} {}", ended.err);
        assert!(told(&ended) > 0, "{}", ended.err);
        check("a signal");
    }
}

#[test]
fn a_killed_recorder_is_restored_and_its_trace_is_saved() {
    let Some(place) = tracing() else { return };
    let probe = probe();
    for how in [&[][..], &["--stream"]] {
        let args =
            ["-e", "syscalls:sys_enter_kill", "--uprobe", &probe, "--instance", "lastwords_test"];
        let mut child = start(&place, &[&args[..], how].concat());
        let instance = wait_for_instance("lastwords_test");
        let at_work = state();
        assert!(
            at_work != place.before && at_work["dynamic_events"].contains("/started"),
            "{at_work:?}"
        );
        tool("bash", &["-c", KILLS]);
        if !how.is_empty() {
            wait_until("events are streamed", || {
                place.at("trace.dat.lastwords_test.cpu0").exists()
            });
        }
        let refused = place.run(&["restore"]);
        assert_eq!((refused.status, refused.out.as_str()), (1, ""), "it is alive: {}", refused.err);
        assert!(refused.err.contains("still runs") && state() == at_work, "{}", refused.err);
        assert_eq!(child.end(Signal::KILL).status, -1);
        assert!(instance.is_dir(), "the instance outlives its recorder");
        record(&place, &args).has_status(1).says("lastwords restore");
        let restored = place.run(&["restore"]);
        restored.has_status(0);
        for what in
            ["saved ", "removed the instance lastwords_test", "removed the event lastwords_"]
        {
            assert!(restored.out.contains(what), "{what} is not in {}", restored.out);
        }
        place.is_restored("a recording");
        assert_eq!(kills(&place.at("trace.dat")), (0..20_000).collect::<Vec<_>>(), "{how:?}");
        assert_eq!(names(place.path()), ["sessions", "trace.dat"]);
        // The second time.
        let nothing = place.run(&["restore"]);
        assert_eq!(nothing.has_status(0).prints_nothing().err, "");
        fs::remove_file(place.at("trace.dat")).unwrap();
    }
}

const COUNT: u32 = 200;

/// Started again, this program is recorded by the kernel and by itself.
#[test]
fn child_takes_turns_with_the_kernel() {
    if task().is_none() {
        return;
    }
    let _session = Session::builder("turns").start().expect("a session");
    let wait = || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(20) {}
    };
    let pid = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
    for turn in 0..COUNT {
        event!(test, "before", turn = turn);
        wait();
        test_kill_process(pid).expect("it is this process");
        wait();
        event!(test, "after", turn = turn);
        wait();
    }
}

#[test]
fn applications_and_the_kernel_stand_in_one_timeline() {
    let Some(place) = tracing() else { return };
    let this = std::env::current_exe().unwrap();
    let mut command = place.command();
    command
        .args(words("record -e syscalls:sys_enter_kill -e syscalls:sys_exit_kill --user --"))
        .arg(this);
    command.args(["--exact", "record::child_takes_turns_with_the_kernel"]).env(TASK, "");
    let recorded = ran(command.output().unwrap());
    recorded.has_status(0);
    let said = recorded
        .err
        .lines()
        .find_map(|line| line.split_once("timeline: lastwords "))
        .expect("the line that shows both");
    let args: Vec<&str> = said.1.split(' ').collect();
    let text = place.ok(&args);
    let events: Vec<&str> = text
        .lines()
        .filter_map(|line| {
            ["test:before", "test:after", "sys_kill(", "sys_kill ->"]
                .into_iter()
                .find(|e| line.contains(e))
        })
        .collect();
    let turn = ["test:before", "sys_kill(", "sys_kill ->", "test:after"];
    assert_eq!(events, turn.repeat(COUNT as usize), "{text}");
}
