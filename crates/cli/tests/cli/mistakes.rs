//! Messages about usual mistakes: wrong names, wrong places, selections that leave nothing.

use crate::child::{EVENTS, THREADS, start, start_in};
use crate::recovery::killed;
use crate::support::{Place, event_lines, ran, trace_dat};
use crate::terminal::Terminal;
use lastwords_testkit::text::Text as _;

#[test]
fn a_place_of_sessions_that_is_none_is_an_error() {
    let place = Place::new();
    std::fs::write(place.at("file"), "text").unwrap();
    let there = |args: &[&str]| {
        ran(place.command().env("LASTWORDS_DIR", place.at("file")).args(args).output().unwrap())
    };
    for (args, said) in [
        (&["list"][..], "Not a directory"),
        (&["list", "--json"], "Not a directory"),
        (&["report", "shop"], "file, which cannot be read (Not a directory"),
    ] {
        there(args).has_status(1).says(said).prints_nothing();
    }
    there(&["doctor", "--color", "never"]).has_status(1).prints("file is no folder");
}

#[test]
fn outputs_of_a_wrong_kind_are_refused_before_anything_is_written() {
    let place = killed();
    std::fs::write(place.at("file"), "text").unwrap();
    for (args, said) in [
        (
            &["recover", "app", "-o", "file"][..],
            "file is a file, and the output is a folder: choose another name",
        ),
        (
            &["recover", "app", "--force", "-o", "file"],
            "file is a file, and the output is a folder",
        ),
        (&["man", "-o", "file"], "file is a file, and the output is a folder"),
        (
            &["convert", "app", "-o", "x.csv"],
            "x.csv: no format has the extension .csv: name one by --to",
        ),
        (&["view", "app", "-o", "x.pdf"], "x.pdf: a page is HTML, not pdf"),
    ] {
        place.run(args).has_status(1).says(said).does_not_say("os error");
    }
    assert_eq!(std::fs::read(place.at("file")).unwrap(), b"text");
    assert!(!place.at("x.csv").exists() && !place.at("x.pdf").exists());
    // A version is no extension.
    place.ok(&["convert", "app", "-o", "app-1.5"]);
    assert!(place.at("app-1.5/metadata").is_file());
    place.ok(&["convert", "app", "-o", "x.csv", "--to", "text"]);
}

#[test]
fn a_selection_that_leaves_nothing_names_what_was_given() {
    let place = killed();
    let ran = place.run(&["report", "app", "--since", "2100-01-01", "--cpu", "0-999"]);
    let newest = place.ok(&["report", "app"]);
    let time = newest.lines().last().and_then(|line| line.get(..15)).expect("an event");
    let said = "no event is left by --cpu and --since; the newest event is at ";
    ran.has_status(1).says(said).says(&format!(" {time}\n"));
    let ran = place.run(&["report", "app", "--filter", "event == \"tick\""]);
    ran.has_status(1).says("event is the whole name");
    // A name of the kernel's, without its second character.
    std::fs::copy(trace_dat("whole-7"), place.at("k.dat")).unwrap();
    let told = place.json(&["inspect", "k.dat", "--json"]);
    let event =
        told["kernels"][0]["instances"][0]["activity"]["events"][0]["name"].as_str().unwrap();
    let event = event.rsplit(':').next().unwrap();
    let wrong = format!("{}{}", &event[..1], &event[2..]);
    let ran = place.run(&["report", "k.dat", "-e", &wrong]);
    ran.has_status(1).says(&format!("no event is called {wrong}; did you mean ")).says(event);
    let ran = place.run(&["report", "k.dat", "--since", "99999"]);
    ran.has_status(1).says("no event is left by --since; the newest event is at ");
    let ran = place.run(&["report", "k.dat", "--channel", "main"]);
    ran.has_status(1).says("k.dat has no channels");
}

#[test]
fn rules_for_what_nothing_has_get_a_note() {
    let place = Place::new();
    let _child = start(&place, "shm", "tick");
    for (args, said) in [
        (&["enable", "nope"][..], "no event of session app is called nope so far"),
        (&["disable", "nope:*"], "no event of session app is called nope:* so far"),
        (&["trigger", "add", "nope:x"], "no event of session app is called nope:x so far"),
        (&["trigger", "add", "nope"], "no event of session app is called nope so far"),
        (
            &["enable", "tick", "--filter", "nofield > 3"],
            "no event of session app has a field nofield so far",
        ),
    ] {
        place.run(args).has_status(0).says(said);
    }
    for args in
        [&["enable", "test:*", "--filter", "pid != 1"][..], &["disable", "tick"], &["enable", "*"]]
    {
        place.run(args).has_status(0).does_not_say("so far");
    }
    let ran = place.run(&["report", "app", "--snapshot", "--last", "1"]);
    assert!(ran.status == 1 && ran.err.lines().count() == 1, "{ran:?}");
    ran.err.ends("session app has no snapshot; take one: lastwords snapshot take --session app\n");
    place.run(&["trigger", "remove", "zzz"]).has_status(1).says("no condition is called zzz");
}

#[test]
fn words_that_are_no_values_are_wrong_usage() {
    let place = Place::new();
    for (args, said) in [
        (["report", "app", "--last", "abc"], "not a number: give one such as 20"),
        (["report", "app", "--pid", "-x"], ""),
        (["inspect", "--pid", "abc", "-v"], "not a number: give one such as 20"),
        (["report", "app", "-e", ""], "it is empty: * matches all"),
        (["report", "app", "--budget", "x"], "not a number: give one such as 20"),
        (["report", "app", "--last", "99999999999999999999"], "it is too large"),
        (["view", "app", "--limit", "0"], "give a number from 1 to 100000000"),
        (["report", "app", "--budget", "0"], "give 1 or more"),
    ] {
        place.run(&args).has_status(2).says(said).does_not_say("digit");
    }
}

#[test]
fn verbs_of_trace_cmd_are_found_in_kernel() {
    let place = Place::new();
    for verb in ["start", "stop", "restart", "show", "extract", "reset", "hist"] {
        let args = [verb, "-e", "sched"];
        place.run(&args).has_status(2).says(&format!("'kernel {verb}'"));
    }
    for args in [&["trigger", "start"][..], &["kernel", "strat"], &["no-verb"], &["list", "-p"]] {
        place.run(args).has_status(2).does_not_say("'kernel ");
    }
}

#[test]
fn a_terminal_gets_the_end_first() {
    let place = killed();
    let report = Terminal::start(&place, &["report", "app", "--last", "2", "--no-pager"], 24, 200);
    let screen = report.wait("the events", |screen| screen.lines().count() > 4);
    let head: Vec<&str> = screen.lines().take(3).collect();
    assert!(
        head[0].starts_with("# app: killed by SIGKILL or by a signal without a handler, ")
            && head[2].starts_with("# TIME LEVEL "),
        "{screen}"
    );
    let events = format!("# app: {} events over ", THREADS * EVENTS);
    assert!(head[1].starts_with(&events) && head[1].ends_with("s; nothing lost"), "{screen}");
}

#[test]
fn inputs_without_a_name_and_runs_that_overlap_are_refused() {
    let place = Place::new();
    std::fs::write(place.at("memory"), [1; 256]).unwrap();
    for (args, said) in [
        (&["report", ""][..], "the name of an input is empty"),
        (&["report", "-"], "-: no input is read from stdin"),
        (
            &["report", "memory", "--raw=0x40+64,0x0+65"],
            "--raw: the runs 0x0+0x41 and 0x40+0x40 have addresses in common",
        ),
        (&["report", "memory", "--raw=0x40+64,0x0+64"], "memory: no VMCOREINFO"),
        (&["report", "memory", "--raw"], "memory: no VMCOREINFO"),
    ] {
        place.run(args).has_status(1).says(said).prints_nothing();
    }
    for wrong in ["--raw=0x40", "--raw=a+b", "--raw=0+0", "--raw=0x0+0x10000000000000000"] {
        place.run(&["report", "memory", wrong]).has_status(2).says("ADDRESS+LENGTH");
    }
}

#[test]
fn a_print_format_that_cannot_be_used_is_named_once() {
    const USABLE: &str = r#""comm=%s pid=%d", REC->comm, REC->pid"#;
    let place = Place::new();
    let file = std::fs::read(trace_dat("whole-7")).unwrap();
    let at = file
        .windows(USABLE.len())
        .position(|part| part == USABLE.as_bytes())
        .expect("the print format");
    const FIELDS: (&str, &str) = ("its fields are shown", "comm=init pid=0x");
    const RAW: (&str, &str) = ("raw values stand in their place", "comm=init pid=unknown");
    for (other, why, (instead, text)) in [
        (r#""comm=%s pid=%d", REC->comm"#, "fewer arguments than directives", FIELDS),
        (
            r#"REC->comm, REC->pid, "comm=%s pid=%d""#,
            "no format string where the print format begins",
            FIELDS,
        ),
        (r#""comm=%s pid=%d", REC->comm, REC->pod"#, "REC->pod: the event has no such field", RAW),
        (
            r#""comm=%s pid=%d", REC->comm, gone(7)"#,
            "functions that only the kernel can run: gone",
            RAW,
        ),
    ] {
        let mut file = file.clone();
        file[at..at + USABLE.len()]
            .copy_from_slice(format!("{other:<0$}", USABLE.len()).as_bytes());
        std::fs::write(place.at("k.dat"), file).unwrap();
        let ran = place.run(&["report", "k.dat", "-e", "wake"]);
        let said = format!("note: sched:wake: its print format has {why}");
        ran.has_status(0).says_times(&said, 1).says(&format!("; {instead}\n"));
        assert!(event_lines(&ran.out).count() > 1);
        assert!(
            ran.out.lines().all(|line| !line.contains(" wake: ") || line.contains(text)),
            "{}",
            ran.out
        );
        // A verb that shows no text has no note about it.
        place.run(&["inspect", "k.dat"]).does_not_say("print format");
    }
}

#[test]
fn inspect_knows_that_a_killed_program_was_alive_at_its_newest_event() {
    let place = Place::new();
    let mut child = start(&place, "shm", "tick");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    child.kill();
    let session = place.json(&["inspect", "app", "--json"])["sessions"][0].take();
    let number = |text: &serde_json::Value| {
        text.as_str().and_then(|text| text.parse::<u64>().ok()).expect("a time")
    };
    assert!(
        number(&session["ended"]["at_ns"]) >= number(&session["activity"]["end_ns"]),
        "{session}"
    );
    let alive = |text: String| {
        text.split("last seen alive ").nth(1).and_then(|rest| rest.get(..19)).map(str::to_owned)
    };
    let of_report = alive(place.run(&["report", "app"]).err);
    assert!(
        of_report.is_some() && of_report == alive(place.ok(&["inspect", "app"])),
        "{of_report:?}"
    );
}

#[test]
fn a_variable_that_left_no_event_is_reported() {
    for (asked, note, is_empty) in [
        ("shopp", "LASTWORDS=shopp left no event enabled", true),
        (
            "1",
            "LASTWORDS: \"1\" is ignored: it is no target and no level; `trace` enables all events",
            false,
        ),
    ] {
        let place = Place::new();
        start_in(&place, &format!("export LASTWORDS={asked}; exec \"$@\""), "shm", "wait").kill();
        let report = place.run(&["report", "app"]);
        assert_eq!(report.says(note).out.is_empty(), is_empty, "{asked}: {report:?}");
        let (list, one) = (place.ok(&["list"]), place.ok(&["list", "app"]));
        assert!(list.contains(note) && one.contains(note), "{asked}: {list}\n{one}");
        assert_eq!(place.json(&["list", "--json"])["sessions"][0]["notes"][0], note);
    }
}

/// A name with line breaks, colours and marks that reorder a line makes no line of its own, on
/// stderr and on stdout.
#[test]
fn a_name_of_another_makes_no_line() {
    let place = killed();
    let made = place.session();
    // A session's folder ends in digits of its UUID.
    let unique = made.to_str().unwrap().rsplit_once('-').unwrap().1;
    let forged = &format!("x\n<0>error: forged\r\u{1b}[31m\u{202e}y-{unique}");
    let folder = place.at(forged);
    std::fs::rename(&made, &folder).unwrap();
    let folder = folder.to_str().unwrap();
    let missing = format!("{folder}-missing");
    for args in [
        &["report", &missing][..],
        &["inspect", &missing],
        &["list", &missing],
        &["stop", &missing],
        &["recover", &missing, "-o", "out"],
        &["view", &missing, "-o", "page.html"],
        &["report", folder, "--since", "12:00:61"],
        &["report", folder, "--event", "nothing"],
        &["report", folder, "--filter", "nothing == 1"],
        &["report", folder, "-F", "nothing"],
        &["report", folder],
        &["inspect", folder],
        &["list", folder],
        &["list", folder, "--json"],
        &["top", folder, "--once"],
        &["recover", folder, "-o", "out\n<0>of another"],
        &["destroy", folder],
    ] {
        let ran = place.run(args);
        for line in ran.out.lines().chain(ran.err.lines()) {
            let is_safe = line.chars().all(|c| !matches!(c, '\r' | '\u{1b}' | '\u{202e}'));
            assert!(is_safe && !line.starts_with("<0>"), "{args:?}: {line:?}");
        }
    }
    assert!(!std::path::Path::new(folder).exists());
}
