//! Probes of `record` by names: functions and static probes of programs, and events that are made of
//! others. They need root.

use crate::record::{by_trace_cmd, record, tracing};
use crate::support::{Place, tool};
use lastwords_testkit::text::Text as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// Returns the path of a library that `python3` has loaded, or of itself, by the end of the name.
fn loaded(part: &str) -> Option<String> {
    let done =
        Command::new("python3").args(["-c", "print(open('/proc/self/maps').read())"]).output();
    let text = String::from_utf8(done.ok()?.stdout).ok()?;
    text.lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains(part))
        .map(str::to_owned)
}

/// The number of events with a name that a Python program causes.
fn count(place: &Place, option: [&str; 2], event: &str, program: &str) -> usize {
    let args = [&["--force"], &option[..], &["--", "python3", "-c", program]].concat();
    record(place, &args).has_status(0);
    let name = format!("{event}:");
    by_trace_cmd(&place.at("trace.dat")).iter().filter(|(_, line)| line.contains(&name)).count()
}

#[test]
fn functions_and_static_probes_are_found_by_name() {
    let Some(place) = tracing() else { return };
    let (Some(libc), Some(python)) = (loaded("/libc.so"), loaded("python")) else {
        eprintln!("python3 is needed");
        return;
    };
    let calls = |n: u32| format!("import os\nfor i in range({n}): os.getpgid(0)");
    let probe = format!("p:called {libc}:getpgid pid=%di:s32");
    assert_eq!(count(&place, ["--uprobe", &probe], "called", &calls(7)), 7);
    let probe = format!("r:returned {libc}:getpgid pgid=$retval:s32");
    assert_eq!(count(&place, ["--uprobe", &probe], "returned", &calls(9)), 9);
    place.is_restored("a recording");
    // Python asks by a semaphore whether the probe is used.
    let notes = tool("readelf", &["-n", &python]).out;
    if notes.contains("Name: gc__start") {
        let collects =
            |n: u32| format!("import gc\ngc.disable()\nfor i in range({n}): gc.collect()");
        let probe = format!("p:collects {python}:python:gc__start");
        let of = |n| count(&place, ["--uprobe", &probe], "collects", &collects(n));
        let (few, many) = (of(3), of(10));
        assert_eq!((many - few, few >= 3), (7, true));
        place.is_restored("a recording");
    }
    for (probe, why) in [
        (format!("p:x {libc}:no_such_function"), "it has no function no_such_function"),
        (format!("p:x {libc}:memcpy"), "is chosen when the library is loaded"),
        (format!("p:x {python}:python:no_such"), "no static probe"),
        (format!("r:x {python}:python:gc__start"), "no return"),
        ("p:x /etc/passwd:main".to_owned(), "no ELF file"),
        ("p:x /no/such:main".to_owned(), "/no/such: No such file"),
    ] {
        if probe.contains("python:python") && !notes.contains("stapsdt") {
            continue;
        }
        record(&place, &["--force", "--uprobe", &probe, "--", "true"])
            .has_status(1)
            .says("--uprobe")
            .says(why);
        place.is_restored(&probe);
    }
}

/// Returns true if the kernel takes a probe that is defined by hand.
fn can_define(letter: &str, probe: &str) -> bool {
    let path = Path::new(crate::record::TRACEFS).join("dynamic_events");
    let write = |line: String| {
        let file = std::fs::OpenOptions::new().append(true).open(&path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
    };
    let defined = write(format!("{letter}:by_hand/{probe}\n")).is_ok();
    if defined {
        write("-:by_hand/x\n".to_owned()).unwrap();
    }
    defined
}

#[test]
fn an_event_is_made_of_another() {
    let Some(place) = tracing() else { return };
    for (option, letter, probe) in [
        ("--fprobe", "f", "x vfs_read"),
        ("--tprobe", "t", "x sched_switch"),
        ("--eprobe", "e", "x sched.sched_switch"),
    ] {
        if can_define(letter, probe) {
            record(&place, &["--force", option, probe, "--", "true"]).has_status(0);
            place.is_restored("a recording");
            continue;
        }
        record(&place, &["--force", option, probe, "--", "true"])
            .has_status(1)
            .says(&format!("{option}: Linux "))
            .says("they need");
        place.is_restored("a recording");
    }
    if !can_define("e", "x syscalls.sys_enter_kill") {
        return;
    }
    for event in ["syscalls.sys_enter_kill", "syscalls:sys_enter_kill"] {
        let probe = format!("killed {event} number=$pid:s32 if sig == 0");
        let args = ["--force", "--eprobe", &probe, "--", "bash", "-c", "kill -0 $$; echo $$"];
        let done = record(&place, &args);
        done.has_status(0);
        let pid = done.out.trim();
        let events = by_trace_cmd(&place.at("trace.dat"));
        let own: Vec<_> = events.iter().filter(|(of, _)| of.to_string() == pid).collect();
        assert_eq!(own.len(), 1, "{events:?}");
        own[0].1.has("killed:").has(&format!("number={pid}"));
        place.is_restored("a recording");
    }
}
