//! Errors of an application and errors that the kernel sees, in one run: each leaves the moments
//! before it, while recording goes on, and a second error during the first is kept, too.
//!
//! The kernel's side works on every kernel: an instance for each error, which the kernel's own
//! trigger `traceoff` stops at the error, while the other instances record on. (A kernel with
//! CONFIG_TRACER_SNAPSHOT has the trigger `snapshot` besides.)

use crate::record::{start, tracing, wait_for_instance};
use crate::support::{Place, wait_until};
use crate::triggers::{self, fail, requests, wait_for_session};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// Starts a shell under a name of its own, which ends itself with a signal. A copy could be busy: a
/// process that another test starts meanwhile has all open files for a moment.
fn die(place: &Place, name: &str, signal: &str) {
    let program = place.at(name);
    std::os::unix::fs::symlink("/bin/sh", &program).expect("a link");
    let status = Command::new(program)
        .args(["-c", &format!("kill -{signal} $$")])
        .status()
        .expect("it starts");
    assert!(!status.success());
}

/// Makes the kernel stop recording in an instance at a signal to a program of this name.
fn stop_at(instance: &Path, name: &str) {
    let trigger = instance.join("events/signal/signal_generate/trigger");
    std::fs::write(trigger, format!("traceoff:1 if comm == \"{name}\"\n"))
        .expect("the kernel takes the trigger");
}

fn is_stopped(instance: &Path) -> bool {
    std::fs::read_to_string(instance.join("tracing_on")).is_ok_and(|text| text.trim() == "0")
}

#[test]
fn errors_of_applications_and_of_the_kernel_leave_their_moments() {
    let Some(place) = tracing() else { return };
    let mut child = triggers::start(&place);
    place.ok(&["trigger", "add", "shop:failed", "--before", "100s"]);
    let instance = |name: &str| format!("lastwords_test_{name}");
    let record = |name: &str| {
        let file = format!("{name}.dat");
        start(&place, &["-e", "signal:signal_generate", "--instance", &instance(name), "-o", &file])
    };
    let mut recorders = [record("one"), record("two"), record("rest")];
    let [one, two, rest] = ["one", "two", "rest"].map(|name| wait_for_instance(&instance(name)));
    stop_at(&one, "lw_error_one");
    stop_at(&two, "lw_error_two");

    die(&place, "lw_before", "TERM");
    die(&place, "lw_error_one", "SEGV");
    // The second errors of both come during the first.
    let first = fail(&place);
    die(&place, "lw_between", "TERM");
    die(&place, "lw_error_two", "ABRT");
    let second = fail(&place);
    die(&place, "lw_after", "TERM");
    wait_until("both instances have stopped", || is_stopped(&one) && is_stopped(&two));
    assert!(!is_stopped(&rest), "recording goes on");
    wait_until("the application's snapshots", || {
        place.ok(&["list", "shop"]).contains("triggers fired: 2, 0 above the limit, 0 waiting")
    });
    wait_for_session(&place, "shop.snapshot-1");

    for recorder in &mut recorders {
        recorder.end(Signal::INT).has_status(0);
    }
    let names = ["lw_before", "lw_error_one", "lw_between", "lw_error_two", "lw_after"];
    let seen = |file: &str| {
        let text = place.ok(&["report", file]);
        let comm = |name: &&str| text.lines().any(|line| line.contains(&format!("comm={name} ")));
        names.into_iter().filter(comm).collect::<Vec<_>>()
    };
    assert_eq!(seen("one.dat"), names[..2], "what came before the first error, and no more");
    assert_eq!(seen("two.dat"), names[..4]);
    assert_eq!(seen("rest.dat"), names);
    // The application's errors: two snapshots, or one that has both.
    let mut kept = requests(&place, "shop.snapshot-1");
    if place.ok(&["list"]).contains("shop.snapshot-2") {
        kept.extend(requests(&place, "shop.snapshot-2"));
    }
    assert!(kept.contains(&first) && kept.contains(&second), "{first}, {second}: {kept:?}");
    kept.extend(requests(&place, "shop"));
    assert!(kept.iter().copied().eq(0..kept.len() as u64), "no request is missing: {kept:?}");
    child.kill();
}
