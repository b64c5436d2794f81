//! The choices of `record`: processes, CPUs and options, as trace-cmd sets them, with what is
//! recorded then, and what is left afterwards. That functions are chosen as by trace-cmd is a part
//! of `cargo xtask lab --scenario choice`: in some virtual machines the kernel refuses to open the
//! files of the function tracer. They need root.

use crate::record::{
    KILLED, KILLS, TRACEFS, by_trace_cmd, instance, names, record, start, told, tracing,
    wait_for_instance,
};
use crate::support::{ran, tool};
use lastwords_testkit::text::Text as _;
use lastwords_testkit::trace_cmd::{self, Tracing};
use rustix::process::Signal;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "lastwords_test";

/// Prints the settings that choices change, as the kernel has them, and the process of the shell. It
/// starts no process, which would be among those that are recorded.
const SETTINGS: &str = "cd $0; echo shell $$; show() { while read -r line; do echo \"$line\"; done; }; for f in set_event_pid tracing_cpumask current_tracer \
    options/event-fork options/function-fork options/stacktrace options/sym-addr options/irq-info \
    set_event; do echo == $f; show < $f; done";

/// The settings that a recorder makes, with the word `chosen` for the process of its command and for
/// this one.
fn settings(out: &str) -> String {
    let pid = out.lines().find_map(|line| line.strip_prefix("shell ")).expect("the shell's pid");
    let own = std::process::id().to_string();
    let line = |line: &str| match line.strip_prefix("shell ") {
        Some(_) => String::new(),
        None if line == pid || line == own => "chosen".to_owned(),
        None => line.to_owned(),
    };
    out.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn settings_are_those_of_trace_cmd() {
    let Some(place) = tracing() else { return };
    let own = std::process::id().to_string();
    let events = ["-e", "syscalls:sys_enter_kill", "-e", "sched:sched_process_exit"];
    let same = |choice: &'static [&'static str]| (choice.to_vec(), choice.to_vec());
    // By -F, trace-cmd also changes the top level, so that it gets a number instead.
    for (choice, of_trace_cmd) in [
        (vec!["-P", &own], vec!["-P", &own]),
        (vec!["-P", &own, "-c"], vec!["-P", &own, "-c"]),
        (vec!["-P", &format!("1,{own}")], vec!["-P", &own, "-P", "1"]),
        (vec!["-F"], vec!["-P", &own]),
        (vec!["-F", "-c"], vec!["-P", &own, "-c"]),
        same(&["-M", "1"]),
        same(&["-M", "-1"]),
        same(&["-T"]),
        same(&["-O", "sym-addr", "-O", "noirq-info"]),
    ] {
        let run = |path: &Path, mut command: Command, choice: &[&str], end: &[&str]| {
            command.args(events).args(choice).args(end);
            command.args(["sh", "-c", SETTINGS]).arg(path);
            command.current_dir(place.path()).env("LASTWORDS_DIR", place.sessions());
            let done = ran(command.output().unwrap());
            done.has_status(0);
            settings(&done.out)
        };
        let path = instance(NAME);
        let mut command = place.command();
        command.args(["record", "--force", "--instance", NAME]);
        let ours = run(&path, command, &choice, &["--"]);
        let path = instance("lastwords_peer");
        let [program, words @ ..] = trace_cmd::words(Tracing::Instance(&path));
        let mut command = Command::new(program);
        command.args(words).args(["record", "-q", "-B", "lastwords_peer"]);
        let theirs = run(&path, command, &of_trace_cmd, &["-o", "theirs.dat"]);
        let _ = fs::remove_dir(path);
        assert_eq!(ours, theirs, "{choice:?}");
        place.is_restored(&format!("{choice:?}"));
    }
}

/// A shell that tells its number, calls `kill`, and starts another that does.
const FAMILY: &str =
    "echo $$; kill -0 $$; sh -c 'echo $$; kill -0 $$'; sh -c 'echo $$; kill -0 $$'";

#[test]
fn only_chosen_processes_are_recorded() {
    let Some(place) = tracing() else { return };
    for (how, is_family) in [(&["-F"][..], false), (&["-F", "-c"], true)] {
        let args = ["--force", "-e", "syscalls:sys_enter_kill", "-e", "sched:sched_process_exec"];
        let done = record(&place, &[&args, how, &["--", "sh", "-c", FAMILY]].concat());
        done.has_status(0);
        let pids: Vec<u32> = done.out.lines().map(|line| line.parse().unwrap()).collect();
        let events = by_trace_cmd(&place.at("trace.dat"));
        assert_eq!(told(&done), events.len());
        let of = |pid: u32, name: &str| {
            events.iter().filter(|(of, line)| *of == pid && line.contains(name)).count()
        };
        assert_eq!((of(pids[0], "sys_enter_kill:"), of(pids[0], "/sh ")), (1, 1), "{how:?}");
        for child in &pids[1..] {
            let found = (of(*child, "sys_enter_kill:"), of(*child, "/sh "));
            assert_eq!(found, if is_family { (1, 1) } else { (0, 0) }, "{how:?}");
        }
        assert!(events.iter().all(|(pid, _)| pids.contains(pid)), "{events:?}");
        place.is_restored("a recording");
    }
}

#[test]
fn a_process_that_runs_is_recorded_alone() {
    let Some(place) = tracing() else { return };
    let mut shell = Command::new("bash").stdin(Stdio::piped()).spawn().unwrap();
    let pid = shell.id();
    let args = ["-e", "syscalls:sys_enter_kill", "-P", &pid.to_string(), "--instance", NAME];
    let mut recorder = start(&place, &args);
    wait_for_instance(NAME);
    tool("sh", &["-c", "kill -0 $$"]);
    shell.stdin.take().unwrap().write_all(b"kill -0 $$; sh -c 'kill -0 $$'\n").unwrap();
    shell.wait().unwrap();
    recorder.end(Signal::INT).has_status(0);
    let events = by_trace_cmd(&place.at("trace.dat"));
    assert_eq!(events.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), [pid], "{events:?}");
    place.is_restored("a recording");
}

#[test]
fn one_cpu_and_stacks_are_recorded() {
    let Some(place) = tracing() else { return };
    let args = ["-e", "sched:sched_switch", "-M", "1", "-T", "--", "sh", "-c", "sleep 0.1; true"];
    record(&place, &args).has_status(0);
    let events = by_trace_cmd(&place.at("trace.dat"));
    assert!(!events.is_empty() && events.iter().all(|(_, line)| line.contains("[000]")));
    tool("trace-cmd", &["report", "-i", place.at("trace.dat").to_str().unwrap()])
        .out
        .has("kernel_stack:")
        .has("=> ");
    place.ok(&["report", "trace.dat"]).has("<stack trace>");
}

/// An option of the function tracer, which some kernels have once for all instances.
const SHARED: &[&str] = &["--force", "-e", "sched", "-O", "func_stack_trace", "--instance", NAME];

#[test]
fn what_all_instances_share_is_restored() {
    let Some(place) = tracing() else { return };
    if !Path::new(TRACEFS).join("options/func_stack_trace").exists() {
        eprintln!("this kernel has no tracer of functions");
        return;
    }
    let check = |what: &str| place.is_restored(what);
    record(&place, &[SHARED, &["--", "true"]].concat()).has_status(0);
    check("a command");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut recorder = start(&place, SHARED);
        let path = wait_for_instance(NAME);
        let option = fs::read_to_string(path.join("options/func_stack_trace")).unwrap();
        assert_eq!(option.trim(), "1");
        recorder.end(signal).has_status(0);
        check("a signal");
    }
    let mut recorder = start(&place, SHARED);
    wait_for_instance(NAME);
    recorder.end(Signal::KILL);
    place.run(&["restore"]).has_status(0);
    check("kill -9 and restore");
}

#[test]
fn an_error_leaves_nothing_behind() {
    let Some(place) = tracing() else { return };
    let own = std::process::id().to_string();
    for (args, why) in [
        (&["-e", "sched", "-O", "no-such"][..], "-O no-such: this kernel has the options"),
        (
            &["-e", "sched", "-O", "func_stack_trace", "-M", "fffffffff"],
            "-M: this machine has fewer",
        ),
        (&["-e", "sched", "-M", "x"], "-M x: it is no mask of CPUs"),
        (&["-e", "sched", "-P", "4194305"], "-P 4194305: no process or thread"),
        (&["-e", "sched", "-c"], "-c: it adds the children"),
        (&["-e", "sched", "-l", "vfs_read"], "-l vfs_read: it chooses functions of a tracer"),
        (&["-e", "sched", "-l", "vfs_read:traceoff"], "commands of functions"),
        (&["-e", "sched", "-g", "vfs_read", "-p", "function"], "add -p function_graph"),
        (&["-e", "sched", "-O", "trace_printk"], "-O trace_printk: the option is one of the whole"),
        (&["-p", "function", "-P", &own, "-l", "no_such_function"], "-l no_such_function: "),
        (&["-p", "function", "-n", "no_such_function"], "-n no_such_function: "),
    ] {
        record(&place, &[args, &["--", "true"]].concat()).has_status(1).says(why);
        place.is_restored(why);
        assert_eq!(names(place.path()), ["sessions"], "{args:?}");
    }
    for args in [&["-e", "sched", "-F"][..], &["-e", "sched", "-P", "x"], &["-P", "0"]] {
        assert_eq!(record(&place, args).status, 2, "{args:?}");
    }
    // The command of -F cannot be run: the recording has begun by then.
    record(&place, &["-e", "sched", "-F", "--", "/no/such/program"])
        .has_status(127)
        .says("/no/such/program: cannot be run");
    place.is_restored("a recording");
}

#[test]
fn an_instance_that_exists_keeps_its_choices() {
    let Some(place) = tracing() else { return };
    let path = instance("lastwords_own");
    fs::create_dir(&path).unwrap();
    let settings = [
        ("set_event_pid", "1"),
        ("tracing_cpumask", "1"),
        ("options/sym-addr", "1"),
        ("options/event-fork", "0"),
        ("options/stacktrace", "0"),
    ];
    settings.iter().for_each(|(file, text)| fs::write(path.join(file), text).unwrap());
    let args = ["-e", "syscalls:sys_enter_kill", "--instance", "lastwords_own", "-O", "nosym-addr"];
    let args = [&args[..], &["-F", "-c", "-M", "-1", "-T", "--", "sh", "-c", FAMILY]].concat();
    let done = record(&place, &args);
    let left = settings.map(|(file, _)| fs::read_to_string(path.join(file)).unwrap_or_default());
    fs::remove_dir(&path).unwrap();
    done.has_status(0);
    assert_eq!(left.map(|text| text.trim().to_owned()), settings.map(|(_, text)| text.to_owned()));
    let pids: Vec<u32> = done.out.lines().map(|line| line.parse().unwrap()).collect();
    let events = by_trace_cmd(&place.at("trace.dat"));
    let calls = events.iter().filter(|(_, line)| line.contains("sys_enter_kill:"));
    assert_eq!(calls.map(|(pid, _)| *pid).collect::<Vec<_>>().len(), pids.len(), "{events:?}");
}

#[test]
fn a_recording_of_too_much_says_how_to_record_less() {
    let Some(place) = tracing() else { return };
    let args = ["-e", "syscalls:sys_enter_kill", "-f", KILLED, "--size", "16K", "--", "bash", "-c"];
    record(&place, &[&args[..], &[KILLS]].concat())
        .has_status(0)
        .says("most events were overwritten: record less (-F: only COMMAND");
    record(&place, &["--force", "-e", "sched", "--", "true"]).does_not_say("overwritten: record");
}
