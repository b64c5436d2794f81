//! The programs of the guides, which call `lastwords::start` or `lw_start`, are killed in nine
//! ways: all their events are recovered, and the cause of death is known where somebody could
//! record it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{BUILT, COMPILERS, compile, lastwords, program, reported, run};

/// The signals, and how `list` names the end. Nobody handles the first ones, so that their session
/// does not say which of them it was.
const SIGNALS: [(&str, &str); 9] = [
    ("KILL", "killed"),
    ("TERM", "killed"),
    ("USR1", "killed"),
    ("ALRM", "killed"),
    ("ABRT", "SIGABRT"),
    ("SEGV", "SIGSEGV"),
    ("BUS", "SIGBUS"),
    ("ILL", "SIGILL"),
    ("FPE", "SIGFPE"),
];

/// The number of events after which a service is killed.
const ENOUGH: usize = 20;

/// A library that others load, and a program that loads it.
const LOADED: &str = "tests/capi/c/loaded.c";

/// Sends the signal until the process is dead: the handlers of Rust's standard library let a
/// process live on after the first SIGSEGV or SIGBUS that was sent.
fn kill(child: &mut Child, signal: &str) {
    let start = Instant::now();
    while child.try_wait().expect("it is a child").is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not die of {signal}");
        let pid = child.id().to_string();
        // The process may have died meanwhile.
        let _ = Command::new("kill").args(["-s", signal, &pid]).output();
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Returns the number after the first `before` in each line that has it. Lines of a span are those
/// of its opening.
fn numbers(lines: &[String], before: &str) -> Vec<u64> {
    let is_opening = |line: &&String| !before.contains('{') || line.ends_with(": span:new");
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let number = |line: &String| digits(line.split_once(before)?.1).parse().ok();
    lines.iter().filter(is_opening).filter_map(number).collect()
}

/// Waits until a service has recorded enough events. Returns the folder of its session.
fn once_it_records(name: &str, place: &Path, child: &mut Child, before: &str) -> PathBuf {
    let start = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        assert!(child.try_wait().expect("a child").is_none(), "{name}: it ended by itself");
        let sessions = std::fs::read_dir(place.join("sessions")).into_iter().flatten();
        let is_own = |path: &PathBuf| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
        };
        let session = sessions.map(|entry| entry.expect("an entry").path()).find(is_own);
        let recorded = session.filter(|folder| {
            // A session that is being made cannot be read yet.
            let report = Command::new(BUILT.join("lastwords")).arg("report").arg(folder).output();
            let text = String::from_utf8(report.expect("it runs").stdout).expect("text");
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            numbers(&lines, before).len() > ENOUGH
        });
        if let Some(folder) = recorded {
            return folder;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{name} does not record");
    }
}

/// Kills a service in each way. Each of its events has a number behind `before`, from 1 on.
fn kill_in_each_way(name: &str, service: &Path, before: &str) {
    for (signal, how) in SIGNALS {
        let place = tempfile::tempdir().expect("a folder");
        let log = place.path().join("log");
        let mut child = program(place.path(), service)
            .env("NO_COLOR", "1")
            .stdout(std::fs::File::create(&log).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let session = once_it_records(name, place.path(), &mut child, before);
        kill(&mut child, signal);
        let folder = session.to_str().expect("text");
        let at = format!("{name}, SIG{signal}");
        let listed = lastwords(&["list", folder]);
        assert!(listed.contains(&format!(": {how}")), "{at}: {listed}");
        let lines = reported(&[folder]);
        let crash = lines.iter().filter(|line| line.contains("crash:signal")).count();
        assert_eq!(crash, usize::from(how != "killed"), "{at}: {lines:#?}");
        let found = numbers(&lines, before);
        let expected: Vec<u64> = (1..).take(found.len()).collect();
        assert!(found.len() > ENOUGH, "{at}: {lines:#?}");
        assert_eq!(found, expected, "{at}");
        if name == "server" {
            logs_and_spans(&at, &log, folder, &lines);
        }
    }
}

/// Compares what the server logged with what it recorded, and looks at its open spans.
fn logs_and_spans(at: &str, log: &Path, folder: &str, lines: &[String]) {
    let logged = std::fs::read_to_string(log).expect("its log").lines().count();
    let is_logged = |line: &&String| {
        ["received", "answered", "the answer was slow"].iter().any(|text| line.contains(text))
    };
    let recorded = lines.iter().filter(is_logged).count();
    // Each thread may have died between the two.
    assert!(logged.abs_diff(recorded) <= 8, "{at}: {logged} logged, {recorded} recorded");
    let report = run(Command::new(BUILT.join("lastwords")).args(["report", folder]));
    let account = String::from_utf8_lossy(&report.stderr);
    assert!(account.contains("request{id="), "{at}: no open span in {account}");
}

#[test]
fn services_that_are_killed() {
    let rust = |name: &str| BUILT.join(name);
    let in_c = |at: usize, file: &str| -> PathBuf {
        compile(COMPILERS[at].0, COMPILERS[at].1, &format!("../../examples/quick-start/{file}"))
    };
    let library = compile("cc", &["-std=c99", "-O2", "-shared", "-fPIC"], LOADED);
    let library = format!("-DLIBRARY=\"{}\"", library.display());
    let loads = compile("cc", &["-std=c99", "-O2", "-Wl,--as-needed", &library], LOADED);
    let needs = run(Command::new("readelf").arg("-d").arg(&loads));
    let needs = String::from_utf8_lossy(&needs.stdout);
    assert!(needs.contains("libc.so") && !needs.contains("liblastwords"), "{needs}");
    let services = [
        ("shop", rust("shop"), "shop:order: id="),
        ("server", rust("server"), "request{id="),
        ("logging", rust("logging"), "logging: order "),
        ("c-shop", in_c(0, "shop.c"), "shop:order: id="),
        ("cpp-shop", in_c(2, "shop.cpp"), "shop:order: id="),
        ("payment", loads, "payment:charge: id="),
    ];
    std::thread::scope(|scope| {
        for (name, service, before) in &services {
            scope.spawn(move || kill_in_each_way(name, service, before));
        }
    });
}
