//! The crash stepper finds what is wrong, and nothing where nothing is.

use std::process::{Command, Output};

fn crash_step(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lastwords-proof-crash-step"))
        .args(["--this-build", "--seed", "1"])
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// The command fails, and says one of some words: where a fault shows first depends on the step.
#[test]
fn faults_are_found() {
    for (scenario, fault, words) in [
        ("locked", "publish-first", &["position", "Invalid"][..]),
        ("locked", "report-first", &["LOST"]),
        ("counters", "report-first", &["LOST"]),
        // The last byte of the shortest payload is one of the key: then the event is another.
        ("locked", "flip-bit", &["TORN", "INVENTED: key", "checksum is wrong"]),
        ("locked", "step-back", &["LOST", "checksum is wrong"]),
    ] {
        let output = crash_step(&["--scenario", scenario, "--points", "20000", "--fault", fault]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{scenario}, {fault}: {said}");
        assert!(words.iter().any(|word| said.contains(word)), "{scenario}, {fault}: {said}");
    }
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
