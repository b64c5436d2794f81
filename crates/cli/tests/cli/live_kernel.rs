//! The running kernel's tracer: its triggers in a recording, and its instances, followed alone and
//! together with a session.

use crate::child::{Running, TASK};
use crate::record::{Instance, KILLED, KILLS, TRACEFS, kills, start, tracing};
use crate::support::{Place, ran, tool, wait_until};
use lastwords_testkit::text::Text as _;
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn a_trigger_ends_a_recording() {
    let Some(place) = tracing() else { return };
    let args = ["-e", "syscalls:sys_enter_kill", "-f", KILLED, "-R", "traceoff if pid == 1000007"];
    let mut recorder = start(&place, &[&args[..], &["--instance", "lastwords_test"]].concat());
    let trigger =
        Path::new(TRACEFS).join("instances/lastwords_test/events/syscalls/sys_enter_kill/trigger");
    wait_until("the trigger is set", || {
        fs::read_to_string(&trigger).is_ok_and(|text| text.contains("traceoff:unlimited"))
    });
    tool("bash", &["-c", KILLS]);
    recorder.wait().has_status(0).says("a trigger has switched the tracing off");
    assert_eq!(kills(&place.at("trace.dat")), (0..8).collect::<Vec<_>>());
    place.is_restored("a recording");
    for (more, why) in [
        (&["-e", "sched", "-R", "!traceoff"][..], "no trigger to remove"),
        (
            &["-e", "sched:sched_switch", "-R", "no_such_trigger"],
            "a trigger of -e sched:sched_switch",
        ),
    ] {
        let ran = place.run(&[&["record", "--force"], more, &["--", "true"]].concat());
        ran.has_status(1).says(why);
        place.is_restored(why);
    }
    let ran = place.run(&["record", "-R", "traceoff", "-e", "sched"]);
    ran.has_status(2).says("has no --event before it");
}

/// An instance with calls of `kill`.
fn instance(clock: &str) -> Instance {
    let instance = Instance::new("lastwords_test");
    instance.set("trace_clock", clock);
    instance.set("events/syscalls/sys_enter_kill/enable", "1");
    instance
}

/// Leaves the session `turns`, whose events stand around calls of `kill`.
fn record_turns(place: &Place) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "record::child_takes_turns_with_the_kernel"]);
    ran(command
        .env(TASK, "")
        .env("LASTWORDS_DIR", place.sessions())
        .output()
        .expect("this program"))
    .has_status(0);
}

/// Follows until `enough` says so of the text, then ends by Ctrl-C. Returns the text and what was
/// said.
fn follow(
    place: &Place,
    inputs: &[&str],
    meanwhile: impl FnOnce(),
    enough: impl Fn(&str) -> bool,
) -> (String, String) {
    let (out, err) = (place.at("out"), place.at("err"));
    let mut command = place.command();
    command.args(["report", "--follow"]).args(inputs);
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let mut child = Running::start(&mut command);
    let text = |path: &PathBuf| fs::read_to_string(path).expect("text");
    wait_until("it has begun", || text(&out).contains('\n'));
    meanwhile();
    wait_until("all is printed", || enough(&text(&out)));
    child.signal(Signal::INT);
    assert!(child.wait().success(), "{}", text(&err));
    (text(&out), text(&err))
}

/// The processes that events of `kill` name.
fn targets(text: &str) -> Vec<u64> {
    let target = |line: &str| {
        let rest = line.split("sys_kill(pid: ").nth(1)?;
        u64::from_str_radix(rest.split(',').next()?.trim_start_matches("0x"), 16).ok()
    };
    text.lines().filter_map(target).collect()
}

#[test]
fn an_instance_is_followed_alone_and_with_a_session() {
    let Some(place) = tracing() else { return };
    let instance = instance("mono");
    record_turns(&place);
    let is_done = |text: &str| targets(text).contains(&1_019_999);
    let run = || _ = tool("bash", &["-c", KILLS]);
    let (text, said) = follow(&place, &["turns", "lastwords_test"], run, is_done);
    said.has("nothing lost");
    let numbers: Vec<u64> =
        targets(&text).into_iter().filter(|pid| (1_000_000..1_020_000).contains(pid)).collect();
    assert_eq!(numbers, (1_000_000..1_020_000).collect::<Vec<_>>());
    assert_eq!(
        (text.matches("test:before").count(), text.matches("test:after").count()),
        (200, 200)
    );
    // Events that were printed have left the ring. A ring that is too small loses events, and the
    // account tells each of them.
    instance.set("buffer_size_kb", "4");
    let burst =
        || _ = tool("bash", &["-c", &format!("({KILLS}); kill -0 2000000 2> /dev/null; true")]);
    tool("bash", &["-c", "kill -0 1500000 2> /dev/null; true"]);
    let (text, said) =
        follow(&place, &["lastwords_test"], burst, |text| targets(text).contains(&2_000_000));
    let lost: usize = match said.lines().last().and_then(|line| line.split("; ").nth(1)) {
        Some("nothing lost") => 0,
        Some(words) => {
            words.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
        }
        None => panic!("{said}"),
    };
    let here =
        targets(&text).into_iter().filter(|pid| (1_000_000..=2_000_000).contains(pid)).count();
    assert!(here + lost >= 20_002, "{here} and {lost}: {said}");
    drop(instance);
    place.is_restored("a recording");
}

#[test]
fn a_clock_that_nothing_relates_is_refused_beside_a_session() {
    let Some(place) = tracing() else { return };
    let _instance = instance("local");
    record_turns(&place);
    place.run(&["report", "--follow", "turns", "lastwords_test"]).has_status(1).says("echo mono >");
}
