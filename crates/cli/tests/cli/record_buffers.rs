//! `record -B`: several instances in one recording, as trace-cmd reads them. They need root.

use crate::record::{
    KILLED, KILLS, instance, record, start, state, told, tracing, wait_for_instance,
};
use crate::support::{Place, tool};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;

const ONE: &str = "lastwords_one";
const TWO: &str = "lastwords_two";

/// Events of three instances: each has some that the others do not have.
const RULES: [&[&str]; 3] = [
    &["--force", "--instance", "lastwords_test", "-e", "sched:sched_process_exit"],
    &["-B", ONE, "-e", "syscalls:sys_enter_kill", "-f", KILLED, "--size", "4M"],
    &["-B", TWO, "-C", "boot", "-e", "sched:sched_process_exec", "-O", "sym-addr"],
];

/// The events that trace-cmd shows of a file, how often each, by instance.
fn by_instance(place: &Place, file: &str) -> BTreeMap<(String, String), usize> {
    let text = tool("trace-cmd", &["report", "-i", place.at(file).to_str().unwrap()]).out;
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let Some((head, rest)) = line.split_once(" [") else { continue };
        let Some(event) = rest.split(": ").nth(1) else { continue };
        let instance = head.split_once(": ").map_or("", |(name, _)| name.trim());
        *counts.entry((instance.to_owned(), event.trim().to_owned())).or_default() += 1;
    }
    counts
}

#[test]
fn several_instances_are_in_one_file() {
    let Some(place) = tracing() else { return };
    for how in [&[][..], &["--stream"]] {
        let done = record(&place, &[how, &RULES.concat(), &["--", "bash", "-c", KILLS]].concat());
        done.has_status(0).says("nothing lost");
        let found = by_instance(&place, "trace.dat");
        let key = |instance: &str, event: &str| (instance.to_owned(), event.to_owned());
        assert_eq!(found[&key(ONE, "sys_enter_kill")], 20_000, "{found:?}");
        assert!(found[&key(TWO, "sched_process_exec")] >= 1);
        let kinds: Vec<_> = found.keys().map(|(instance, event)| (&**instance, &**event)).collect();
        let mut expected =
            vec![("", "sched_process_exit"), (ONE, "sys_enter_kill"), (TWO, "sched_process_exec")];
        expected.retain(|(instance, event)| {
            !instance.is_empty() || found.contains_key(&key("", event))
        });
        assert_eq!(kinds, expected);
        // The account names each instance, and ours reads the same events.
        for (name, event) in [(ONE, "sys_kill("), (TWO, "sched_process_exec:")] {
            let said = format!("instance {name}: ");
            let line = done.err.lines().find(|line| line.contains(&said)).expect("an account");
            let count: usize = found.iter().filter(|((of, _), _)| of == name).map(|(_, n)| n).sum();
            assert!(line.contains(&format!("{said}{count} event")), "{line}, {count}");
            let text = place.ok(&["report", "trace.dat", "--instance", name]);
            assert_eq!(text.lines().filter(|line| line.contains(event)).count(), count);
        }
        place.has_only_its_file("a recording");
        assert!(told(&done) < 1000, "the main instance has its own events alone");
    }
}

#[test]
fn several_instances_are_left_as_they_were() {
    let Some(mut place) = tracing() else { return };
    // One of them exists.
    let own = instance(TWO);
    fs::create_dir(&own).unwrap();
    let files = ["trace_clock", "set_event", "tracing_on", "options/sym-addr"];
    let settings = || files.map(|file| fs::read_to_string(own.join(file)).unwrap());
    place.before = state();
    let settings_before = settings();
    let ended = || -> Vec<String> {
        let mut done = Vec::new();
        for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
            let mut recorder = start(&place, &RULES.concat());
            wait_for_instance(TWO);
            wait_for_instance("lastwords_test");
            let one = wait_for_instance(ONE);
            tool("bash", &["-c", KILLS]);
            let ended = recorder.end(signal);
            if signal == Signal::KILL {
                assert!(one.is_dir(), "the instance outlives its recorder");
                place.run(&["restore"]).has_status(0).prints("removed the instance lastwords_one");
            } else {
                ended.has_status(0);
            }
            let found = by_instance(&place, "trace.dat");
            done.push(format!("{:?}", found.get(&(ONE.to_owned(), "sys_enter_kill".to_owned()))));
            place.has_only_its_file("a signal");
            done.push(format!("{}", settings() == settings_before));
        }
        for (more, why) in [
            (&["-B", "x/y"][..], "no name of a folder"),
            (&["-B", "lastwords_x", "-e", "no_such_event"], "no such event"),
            (
                &["-B", "lastwords_x", "-e", "sched:sched_switch", "-f", "none == 1"],
                "Field not found",
            ),
            (&["-B", "lastwords_x", "-M", "fffffffff"], "-M: this machine has fewer"),
            (
                &["-B", "lastwords_x", "-e", "sched", "-R", "snapshot"],
                "snapshots are taken of the main",
            ),
            (&["-B", "lastwords_test"], "it is named twice"),
        ] {
            record(&place, &[&RULES.concat(), more, &["--", "true"]].concat())
                .has_status(1)
                .says(why);
            place.has_only_its_file(why);
            done.push(format!("{}", settings() == settings_before));
        }
        done
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ended));
    fs::remove_dir(&own).unwrap();
    let done = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    assert!(done.iter().all(|one| one == "true" || one == "Some(20000)"), "{done:?}");
    let twice = record(&place, &["-B", ONE, "-B", ONE, "-e", "sched"]);
    twice.has_status(2).says("given twice");
}
