//! The crash stepper finds what is wrong, and nothing where nothing is.

use std::process::{Command, Output};

fn crash_step(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["crash-step", "--this-build", "--seed", "1"])
        .args(arguments)
        .output()
        .expect("xtask runs")
}

fn finds(fault: &str, words: &str) {
    let output = crash_step(&["--scenario", "locked", "--points", "20000", "--fault", fault]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{fault}: {said}");
    assert!(said.contains(words), "{fault}: {said}");
}

#[test]
fn a_recorder_that_publishes_before_it_copies() {
    finds("publish-first", "position");
}

#[test]
fn an_event_reported_and_not_recorded() {
    finds("report-first", "LOST");
}

#[test]
fn a_flipped_bit() {
    finds("flip-bit", "TORN");
}

#[test]
fn a_position_set_back() {
    finds("step-back", "LOST");
}

#[test]
fn nothing_where_nothing_is() {
    let output = crash_step(&["--scenario", "lockless-signals", "--points", "3000"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("none lost, none torn, none invented"));
}
