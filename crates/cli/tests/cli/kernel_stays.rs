//! `kernel start`, `stop`, `restart`, `show`, `extract` and `reset`: an instance that stays, beside
//! the kernel's own text, trace-cmd, and the state of the machine's tracing before. They need root.

use crate::child::Running;
use crate::record::{self, KILLED, KILLS, instance, names, tracing};
use crate::support::{Place, Ran, tool};
use std::fs;
use std::process::Stdio;
use std::time::Duration;

const OWN: &str = "lastwords_stays";
const MORE: &str = "lastwords_stays_more";
const EVENTS: &[&str] = &["-e", "syscalls:sys_enter_kill", "-f", KILLED];

fn kernel(place: &Place, args: &[&str]) -> Ran {
    place.run(&[&["kernel"], args].concat())
}

fn begin(place: &Place, more: &[&str]) -> Ran {
    kernel(place, &[&["start", "--instance", OWN], EVENTS, more].concat())
}

fn kills() {
    tool("bash", &["-c", KILLS]);
}

/// The kernel's text without the heads: lines of events.
fn events(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("sys_kill(")).collect()
}

#[test]
fn what_is_shown_is_extracted() {
    let Some(place) = tracing() else { return };
    begin(&place, &["-B", MORE, "-e", "sched:sched_process_exit"]).has_status(0).says(OWN);
    kills();
    kernel(&place, &["stop"]).has_status(0);
    kills();
    let shown = kernel(&place, &["show", OWN]);
    let of_kernel = fs::read_to_string(instance(OWN).join("trace")).unwrap();
    assert_eq!(shown.has_status(0).out, of_kernel);
    let shown_events = events(&of_kernel);
    assert_eq!(shown_events.len(), 20_000);
    let more = kernel(&place, &["show", MORE]);
    assert_eq!(more.out, fs::read_to_string(instance(MORE).join("trace")).unwrap());
    assert!(more.out.contains("sched_process_exit"), "{}", more.out);
    kernel(&place, &["extract", "-o", "kept.dat"]).has_status(0).says("20000 events");
    let file = place.at("kept.dat");
    let number = |line: &&str| {
        let text = line.split("pid: ").nth(1).unwrap().split(',').next().unwrap();
        u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap() - 1_000_000
    };
    let shown_numbers: Vec<u64> = shown_events.iter().map(number).collect();
    assert_eq!(shown_numbers, (0..20_000).collect::<Vec<_>>());
    assert_eq!(record::kills(&file), shown_numbers, "as trace-cmd reads it");
    // Our own text of the file is the kernel's.
    let ours = place.ok(&["report", file.to_str().unwrap(), "--instance", "top"]);
    assert_eq!(events(&ours), shown_events);
    assert_eq!(events(&kernel(&place, &["show", OWN]).out).len(), 0, "they left the rings");
    // The rings go on for the next file.
    kernel(&place, &["restart"]).has_status(0);
    kills();
    kernel(&place, &["extract", "-o", "kept.dat"]).has_status(1).says("--force");
    let again = kernel(&place, &["extract", "-o", "kept.dat", "--force"]);
    again.has_status(0).says("20000 events").says("switched off");
    kernel(&place, &["reset"]).has_status(0);
    place.is_restored("reset");
    kernel(&place, &["reset"]).has_status(0).says("nothing to reset");
    kernel(&place, &["stop"]).has_status(1).says("kernel start");
    let files = names(place.path());
    assert!(files.iter().all(|name| name == "sessions" || name == "kept.dat"), "{files:?}");
}

#[test]
fn a_second_start_is_refused_and_reset_restores_all() {
    let Some(place) = tracing() else { return };
    let shared = ["-O", "sym-addr", "--eprobe", "stays syscalls/sys_enter_kill pid=$pid"];
    let started = begin(&place, &shared);
    if started.status != 0 {
        // The kernel has no such probes.
        begin(&place, &shared[..2]).has_status(0);
    }
    begin(&place, &[]).has_status(1).says("is started already").says("kernel reset");
    // `restore` is for recorders that were killed.
    place.run(&["restore"]).has_status(0);
    assert!(instance(OWN).exists());
    kernel(&place, &["reset", "other"]).has_status(1).says(OWN);
    kernel(&place, &["reset", OWN]).has_status(0).prints(OWN);
    place.is_restored("a second start");
    // Settings of an instance that exists are restored.
    fs::create_dir(instance(OWN)).unwrap();
    fs::write(instance(OWN).join("trace_clock"), "boot").unwrap();
    let clock = || fs::read_to_string(instance(OWN).join("trace_clock")).unwrap();
    let boot = clock();
    begin(&place, &["-C", "mono"]).has_status(0);
    assert_ne!(clock(), boot);
    kernel(&place, &["reset"]).has_status(0);
    assert_eq!(clock(), boot);
    assert_eq!(fs::read_to_string(instance(OWN).join("set_event")).unwrap(), "");
    fs::remove_dir(instance(OWN)).unwrap();
    place.is_restored("an instance that existed");
}

#[test]
fn an_instance_that_somebody_removed_is_no_obstacle() {
    let Some(place) = tracing() else { return };
    begin(&place, &["-O", "sym-addr"]).has_status(0);
    fs::remove_dir(instance(OWN)).unwrap();
    kernel(&place, &["show"]).has_status(1).says("somebody has removed it");
    kernel(&place, &["extract"]).has_status(1).says("kernel reset");
    kernel(&place, &["reset"]).has_status(0);
    place.is_restored("an instance that was removed");
}

#[test]
fn a_start_that_is_killed_leaves_what_reset_removes() {
    let Some(place) = tracing() else { return };
    for delay in 0..16 {
        let mut command = place.command();
        command.args(["kernel", "start", "--instance", OWN]).args(EVENTS).args(["-O", "sym-addr"]);
        let mut running = Running::start(command.stderr(Stdio::null()));
        // From the first change on; what is done meanwhile differs from round to round.
        while running.child.try_wait().unwrap().is_none() && !instance(OWN).exists() {}
        assert!(instance(OWN).exists(), "it makes the instance");
        std::thread::sleep(Duration::from_millis(delay));
        running.kill();
        if delay % 2 == 1 {
            // `restore` leaves alone one that was set up.
            place.run(&["restore"]).has_status(0);
        }
        kernel(&place, &["reset"]).has_status(0);
        place.is_restored("a start that was killed");
    }
}

#[test]
fn events_are_shown_as_they_come() {
    let Some(place) = tracing() else { return };
    begin(&place, &[]).has_status(0);
    kills();
    let mut command = place.command();
    command.args(["kernel", "show", "--live"]).stdout(fs::File::create(place.at("live")).unwrap());
    let mut running = Running::start(&mut command);
    let count = || events(&fs::read_to_string(place.at("live")).unwrap()).len();
    while count() < 20_000 {
        assert!(running.child.try_wait().unwrap().is_none(), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Others need not wait for it.
    kernel(&place, &["stop"]).has_status(0);
    kernel(&place, &["extract", "-o", "rest.dat"]).has_status(0).says("another reader");
    running.kill();
    kernel(&place, &["reset"]).has_status(0);
    place.is_restored("show --live");
}
