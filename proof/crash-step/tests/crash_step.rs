//! The crash stepper finds what is wrong, and nothing where nothing is.

use std::process::{Command, Output};

fn crash_step(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lastwords-proof-crash-step"))
        .args(["--this-build", "--seed", "1"])
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// The command fails, and says one of `words`: where the fault shows first depends on the step.
fn finds(scenario: &str, fault: &str, words: &[&str]) {
    let output = crash_step(&["--scenario", scenario, "--points", "20000", "--fault", fault]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{fault}: {said}");
    assert!(words.iter().any(|w| said.contains(w)), "{fault}: {said}");
}

#[test]
fn a_recorder_that_publishes_before_it_copies() {
    finds("locked", "publish-first", &["position", "Invalid"]);
}

#[test]
fn an_event_reported_and_not_recorded() {
    finds("locked", "report-first", &["LOST"]);
}

#[test]
fn an_addition_reported_and_not_made() {
    finds("counters", "report-first", &["LOST"]);
}

#[test]
fn a_flipped_bit() {
    // The last byte of the shortest payload is one of the key: then the event is another.
    finds("locked", "flip-bit", &["TORN", "INVENTED: key", "checksum is wrong"]);
}

#[test]
fn a_position_set_back() {
    finds("locked", "step-back", &["LOST", "checksum is wrong"]);
}

#[test]
fn nothing_where_nothing_is() {
    let output = crash_step(&["--scenario", "lockless-signals", "--points", "3000"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("none lost, none torn, none invented")
    );
}
