//! Sessions of killed programs: report, recover, inspect; and what babeltrace2 makes of the result.

use crate::child::{EVENTS, THREADS, start};
use crate::support::{Place, assert_members, cut_streams, entries, json_events, small, tool};
use lastwords_testkit::text::Text as _;
use serde_json::{Value, json};
use std::path::Path;

/// Every event of every thread is in the text, in order, once.
pub(crate) fn assert_whole(text: &str) {
    for thread in 0..THREADS {
        let by = |line: &str| {
            let marked =
                line.split(&format!("thread {thread} step ")).nth(1).map(ToOwned::to_owned);
            marked.or_else(|| {
                line.split(&format!(" thread={thread} sequence=")).nth(1).map(ToOwned::to_owned)
            })
        };
        let sequence =
            |rest: String| rest.split([' ', ',']).next().and_then(|n| n.parse::<u64>().ok());
        let seen: Vec<u64> = text.lines().filter_map(by).filter_map(sequence).collect();
        assert_eq!(seen, (0..EVENTS).collect::<Vec<_>>(), "thread {thread} of\n{text}");
    }
    assert_eq!(text.lines().count() as u64, THREADS * EVENTS);
}

pub(crate) fn killed() -> Place {
    let place = Place::new();
    start(&place, "shm", "wait").kill();
    place
}

#[test]
fn a_killed_program_is_reported_whole() {
    let place = killed();
    let ran = place.run(&["report", "app"]);
    ran.has_status(0);
    assert_whole(&ran.out);
    ran.says("nothing lost");
    assert!(!ran.out.contains('\u{1b}'), "an event steers the terminal");
    // The same by folder, and by the folder of all sessions.
    let folder = place.sessions();
    assert_eq!(place.ok(&["report", folder.to_str().unwrap()]), ran.out);
    let session = place.session();
    assert_eq!(place.ok(&["report", session.to_str().unwrap(), "--strict"]), ran.out);
}

/// How a session ended is in its files, whatever their folder is called. A copy of a session that
/// may have lived then says that it does not know.
#[test]
fn a_folder_under_another_name_tells_its_end() {
    let place = Place::new();
    let mut running = start(&place, "shm", "wait");
    let session = place.session();
    let copy = |name: &str| {
        let to = place.at(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        assert!(
            std::process::Command::new("cp")
                .arg("-a")
                .arg(&session)
                .arg(&to)
                .status()
                .unwrap()
                .success()
        );
        to
    };
    let same_name = Path::new("copies").join(session.file_name().unwrap());
    let of_living = [copy("of-living"), copy(same_name.to_str().unwrap())];
    running.kill();
    let of_killed = copy("of-killed");
    let renamed = place.at("renamed");
    std::fs::rename(&session, &renamed).unwrap();
    let said = |folder: &Path| {
        let folder = folder.to_str().unwrap();
        let (reported, inspected) =
            (place.run(&["report", folder]), place.ok(&["inspect", folder]));
        assert_whole(&reported.out);
        (reported.err, inspected.lines().next().unwrap().to_owned())
    };
    for folder in [&of_killed, &renamed] {
        let (reported, inspected) = said(folder);
        reported.has("app: last seen alive ").has(": killed\n");
        inspected.ends(": killed)");
    }
    for folder in &of_living {
        let (reported, inspected) = said(folder);
        let unknown = "these copied files do not show whether it had ended";
        reported.has("app: end unknown: of process ").has(unknown);
        inspected.has(unknown);
    }
    place.ok(&["list", of_living[1].to_str().unwrap()]).has("(copied ").has("end unknown: ");
}

#[test]
fn selections() {
    let place = killed();
    assert_eq!(place.ok(&["report", "app", "--last", "7"]).lines().count(), 7);
    let ticks = place.ok(&["report", "app", "-e", "test:tick"]);
    assert!(
        ticks.lines().count() > 100 && ticks.lines().all(|line| line.contains("test:tick")),
        "{ticks}"
    );
    for nothing in [["--cpu", "9999"], ["--until", "@1"]] {
        let ran = place.run(&[&["report", "app"], &nothing[..]].concat());
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{nothing:?}");
    }
    assert_eq!(
        place.ok(&["report", "app", "--since", "-1h"]).lines().count() as u64,
        THREADS * EVENTS
    );
    assert!(!place.ok(&["report", "app", "--since", "-0"]).is_empty());
    let ran = place.run(&["report", "app", "-s", "other"]);
    ran.has_status(1).says("no session is called other").says("app");
    let ran = place.run(&["report", "app", "--snapshot"]);
    ran.has_status(1);
    // A dead session takes none.
    ran.err.ends("session app has no snapshot; leave out --snapshot to read its rings\n");
}

/// The line of an output sums up what its accounts say of each ring.
#[test]
fn outputs_tell_what_was_overwritten() {
    let place = Place::new();
    small(&place, "one", 0);
    small(&place, "two", 1);
    let inputs = [place.at("one"), place.at("two")].map(|path| path.display().to_string());
    for (taken, format) in [(1, "json"), (2, "json"), (2, "text"), (2, "perfetto")] {
        let out = place.at(&format!("{taken}.{format}")).display().to_string();
        let mut args = vec!["convert", "--to", format, "-o", &out];
        args.extend(inputs.iter().take(taken).map(String::as_str));
        let ran = place.run(&args);
        let bytes = |line: &str| {
            line.split_once(": overwritten (")?.1.strip_suffix(" bytes)")?.parse::<u64>().ok()
        };
        let sum: u64 = ran.err.lines().filter_map(bytes).sum();
        let words = format!(", {sum} bytes overwritten, nothing else lost\n");
        assert!(sum > 0 && ran.out.ends_with(&words), "{args:?}: {}{}", ran.out, ran.err);
        ran.does_not_say("as they were recorded");
    }
    // The clock of one packet goes back, which CTF cannot hold.
    let ran = place.run(&["convert", "--to", "ctf", "-o", "ctf", "./one"]);
    let is_told = ran.err.contains("warning: ctf: some packets are not as they were recorded: ");
    assert!(ran.out.ends_with(", with losses\n") && is_told, "{}{}", ran.out, ran.err);
}

#[test]
fn every_style_has_every_event() {
    let place = killed();
    for style in ["ftrace", "babeltrace", "fields", "raw"] {
        let text = place.ok(&["report", "app", "--style", style]);
        assert_eq!(text.lines().count() as u64, THREADS * EVENTS, "{style}");
    }
}

#[test]
fn babeltrace_prints_what_report_prints() {
    let place = killed();
    let out = place.at("out");
    let text = place.ok(&["recover", "app", "-o", out.to_str().unwrap()]);
    text.has(&format!("{} events", THREADS * EVENTS)).has("nothing lost");
    let ran = tool("babeltrace2", &["--clock-gmt", out.to_str().unwrap()]);
    assert_eq!(ran.err, "");
    assert_eq!(ran.out.lines().count() as u64, THREADS * EVENTS);
    let ours = place.ok(&["report", "app", "--style", "babeltrace", "--utc"]);
    assert_eq!(ran.out, ours);
}

#[test]
fn every_format_is_written_once() {
    let place = killed();
    for (format, name) in [
        ("ctf", "app"),
        ("ctf2", "app"),
        ("json", "app.jsonl"),
        ("text", "app.txt"),
        ("perfetto", "app.perfetto-trace"),
    ] {
        let out = place.at(format);
        let report =
            place.json(&["recover", "app", "-o", out.to_str().unwrap(), "--to", format, "--json"]);
        assert_eq!(report["schema"], "lastwords.recover.v1");
        assert_eq!(report["sessions"][0]["events"], THREADS * EVENTS, "{format}");
        assert_eq!(report["sessions"][0]["losses"], false);
        assert!(out.join(name).exists(), "{format}");
        let again = place.run(&["recover", "app", "-o", out.to_str().unwrap(), "--to", format]);
        assert_eq!(again.status, 1, "{format} is written over");
        again.says("exists: choose another name or pass --force");
    }
    let lines = std::fs::read_to_string(place.at("json").join("app.jsonl")).unwrap();
    assert_eq!(lines.lines().count() as u64, THREADS * EVENTS + 1);
    for line in lines.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn a_session_is_converted() {
    let place = killed();
    let events = |to: &str, out: &str, more: &[&str]| {
        let path = place.at(out);
        let args =
            [&["convert", "app", "-o", path.to_str().unwrap(), "--to", to, "--json"][..], more]
                .concat();
        let report = place.json(&args);
        assert_eq!(report["sessions"][0]["path"], path.to_str().unwrap());
        assert!(path.exists());
        report["sessions"][0]["events"].as_u64().unwrap()
    };
    let all = events("perfetto", "app.perfetto-trace", &[]);
    assert!(all > 0);
    assert_eq!(events("json", "app.jsonl", &[]), all);
    assert_eq!(events("ctf2", "app.ctf", &[]), all);
    assert_eq!(events("trace-dat", "app.dat", &[]), all);
    assert_eq!(events("trace-dat", "last.dat", &["--last", "3"]), 3);
    assert_eq!(events("text", "last.txt", &["--last", "3"]), 3);
    let log = place.run(&["convert", "app", "-o", "x", "--to", "text", "--with-log"]);
    log.has_status(1).says("--with-log");
}

#[test]
fn several_inputs_are_one_timeline() {
    let (a, b) = (killed(), killed());
    let (a_dir, b_dir) = (a.sessions(), b.sessions());
    let text =
        a.ok(&["report", b_dir.to_str().unwrap(), a_dir.to_str().unwrap(), "--style", "fields"]);
    assert_eq!(text.lines().count() as u64, 2 * THREADS * EVENTS);
    let times: Vec<&str> = text.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert!(
        times.windows(2).all(|w| w[0] <= w[1]) || times.first() > times.last(),
        "not in order of time"
    );
}

/// Memory that was asked for, and what there is in its place.
#[test]
fn inspect_says_what_stands_in_for_huge_pages_and_dax() {
    let words: [(&str, &[&str]); 2] = [
        (
            "huge",
            &[
                "a plain file stands in: ",
                " in transparent huge pages: ",
                " KiB pages of hugetlbfs at ",
            ],
        ),
        (
            "dax",
            &[
                "no MAP_SYNC here: contents survive the process, not the loss of power",
                "MAP_SYNC; ",
            ],
        ),
    ];
    for (memory, expected) in words {
        let place = Place::new();
        let mut child = start(&place, memory, "wait");
        child.kill();
        let report = place.json(&["inspect", "app", "--json"]);
        let session = &report["sessions"][0];
        assert_eq!(session["back_end"], memory);
        let note = session["back_end_note"].as_str().expect("a note");
        assert!(expected.iter().any(|words| note.contains(words)), "{memory}: {note}");
        let text = place.ok(&["inspect", "app"]);
        assert!(text.contains(&format!("  memory     {note}\n")), "{note}\n{text}");
    }
}

#[test]
fn inspect_counts_and_describes() {
    let place = killed();
    let report = place.json(&["inspect", "app", "--json"]);
    let session = &report["sessions"][0];
    assert_eq!(session["name"], "app");
    assert_eq!(session["back_end"], "shm");
    assert_eq!(session["events"], THREADS * EVENTS);
    assert_eq!(session["evidence"]["losses"], false);
    assert_eq!(session["channels"][0]["name"], "main");
    let of_streams: u64 =
        session["streams"].as_array().unwrap().iter().map(|s| s["events"].as_u64().unwrap()).sum();
    assert_eq!(of_streams, THREADS * EVENTS);
    let text = place.ok(&["inspect", "app", "--verbose"]);
    for word in ["test:tick", "rseq", "main", "nothing lost", "clock"] {
        assert!(
            text.contains(word) || (word == "rseq" && text.contains("lockless")),
            "{word} is not in\n{text}"
        );
    }
}

#[test]
fn damage_is_told_and_strict_says_3() {
    let place = killed();
    cut_streams(&place.session());
    place.run(&["report", "app", "--strict"]).has_status(3).says("with losses").says("missing");
    place.run(&["report", "app"]).has_status(0);
    let ran = place.run(&["recover", "app", "-o", "out", "--strict"]);
    ran.has_status(3);
}

#[test]
fn the_demo_passes_and_leaves_ctf() {
    let place = Place::new();
    for (seed, how) in [("1", "rseq"), ("2", "lockless"), ("3", "locked"), ("4", "")] {
        let out = place.at(&format!("demo-{seed}"));
        let how = if how.is_empty() { vec![] } else { vec!["--reservation", how] };
        let args = ["demo", "--seed", seed, "--seconds", "0.7", "-o", out.to_str().unwrap()];
        let text = place.ok(&[&args[..], &how[..]].concat());
        text.has("nothing that was committed is missing, nothing is invented");
        text.has("last words of thread 0").has("babeltrace2 ");
        assert_eq!(tool("babeltrace2", &[out.to_str().unwrap()]).err, "");
    }
    place.ok(&["list"]).starts("no sessions");
}

/// `examples/run.sh` has the same for a signal.
#[test]
fn causes_of_death_are_told_with_modules() {
    let place = Place::new();
    start(&place, "shm", "last-panic").ended();
    let report = place.json(&["inspect", "app", "--json"]);
    let crashes = report["sessions"][0]["crashes"].as_array().unwrap();
    let [crash] = crashes.as_slice() else { panic!("{crashes:?}") };
    assert_eq!(crash["event"], "crash:panic");
    assert!(crash["fields"].to_string().contains("a thread gave up"), "{crash}");
    let frames = crash["backtrace"].as_array().unwrap();
    assert!(frames.iter().any(|f| f["module"].is_string() && f["offset"].is_string()), "{crash}");
    check_lines(frames);
    let bare = place.json(&["inspect", "app", "--json", "--no-symbols"]);
    bare["sessions"][0]["crashes"].to_string().lacks("functions");
    let ran = place.run(&["report", "app", "--last", "1"]);
    // The panic was caught. What ended the process later, nobody recorded.
    let unproven = "; nothing was recorded after it, but nothing proves that it was the end";
    let is_of_it = |line: &&str| line.contains("a thread gave up") && line.ends_with(unproven);
    let line = ran.err.lines().find(is_of_it).unwrap_or_else(|| panic!("{}", ran.err));
    line.starts("  panic in thread ");
    let last = ran.err.lines().last().unwrap_or_default();
    assert!(last.starts_with("  cause unknown: killed by SIGKILL or "), "{}", ran.err);
    ran.does_not_say("cause of death");
    assert_members(crash, &json!({ "is_cause_of_death": false, "later_events": 0 }));
}

/// Compares the source lines of all frames in this program with those that addr2line of the
/// binutils finds.
fn check_lines(frames: &[Value]) {
    let program = std::env::current_exe().unwrap().display().to_string();
    let own: Vec<&Value> =
        frames.iter().filter(|frame| frame["module"] == program.as_str()).collect();
    let address = |frame: &&Value| {
        let offset = frame["offset"].as_str().unwrap().trim_start_matches("0x").to_owned();
        format!("{:#x}", u64::from_str_radix(&offset, 16).unwrap() - 1)
    };
    let addresses: Vec<String> = own.iter().map(address).collect();
    let options = ["-a", "-i", "-e", &program];
    let out = tool(
        "addr2line",
        &[&options[..], &addresses.iter().map(String::as_str).collect::<Vec<_>>()].concat(),
    )
    .out;
    // An address, then a line for each function that is there.
    let mut theirs: Vec<Vec<String>> = Vec::new();
    for line in out.lines() {
        match line.starts_with("0x") {
            true => theirs.push(Vec::new()),
            false => theirs
                .last_mut()
                .unwrap()
                .push(line.split(" (discriminator").next().unwrap().to_owned()),
        }
    }
    assert_eq!(theirs.len(), own.len(), "{out}");
    let line = |function: &Value| match (function["file"].as_str(), function["line"].as_u64()) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => format!("{file}:?"),
        _ => "??:?".to_owned(),
    };
    // A function of which no line is known may have the name of its part of the program there.
    let has_line = |theirs: &[String]| !theirs[0].ends_with(":?") && theirs[0] != "??:0";
    for (frame, theirs) in own.iter().zip(&theirs).filter(|(_, theirs)| has_line(theirs)) {
        let ours: Vec<String> =
            frame["functions"].as_array().into_iter().flatten().map(line).collect();
        assert_eq!(&ours, theirs, "{frame}");
    }
    let names = frames
        .iter()
        .flat_map(|frame| frame["functions"].as_array())
        .flatten()
        .map(|f| f["name"].to_string());
    assert!(names.into_iter().any(|name| name.contains("child::")), "{frames:?}");
}

/// The thread of a panic closes its spans while it unwinds.
#[test]
fn spans_that_a_panic_closes_are_no_survival() {
    let place = Place::new();
    start(&place, "shm", "unwound").ended();
    let session = &place.json(&["inspect", "app", "--json"])["sessions"][0];
    let crash = &session["crashes"][0];
    assert_eq!(session["ended"]["how"], "panic");
    assert_members(crash, &json!({ "is_cause_of_death": true, "later_events": 0 }));
    let ran = place.run(&["report", "app"]);
    assert!(
        ran.out.lines().last().is_some_and(|line| line.contains("?:main{?}: span:close after ?")),
        "{}",
        ran.out
    );
    ran.says("backtrace of crash:panic").says("cause of death: panic in thread ");
}

#[test]
fn what_the_process_survived_is_no_cause_of_death() {
    let place = Place::new();
    start(&place, "shm", "panic").ended();
    let crash = &place.json(&["inspect", "app", "--json"])["sessions"][0]["crashes"][0];
    assert_members(crash, &json!({ "is_cause_of_death": false, "later_events": THREADS * EVENTS }));
    let ran = place.run(&["report", "app", "--last", "1"]);
    ran.does_not_say("cause of death");
    // It died of SIGABRT, which nobody handled: what is left says that it is gone, and since when.
    ran.err.lines().next().unwrap_or_default().starts("app: last seen alive ").ends(": killed");
    let session = &place.json(&["inspect", "app", "--json"])["sessions"][0];
    assert_eq!(session["ended"]["how"], "killed");
    place.ok(&["inspect", "app"]).lines().next().unwrap_or_default().has("(last seen alive ");
    ran.err
        .lines()
        .find(|line| line.starts_with("  panic in thread "))
        .unwrap_or_default()
        .has("a thread gave up")
        .ends(&format!("the process went on for {} events", THREADS * EVENTS));
}

#[test]
fn files_whose_heads_are_overwritten_are_carved() {
    let place = killed();
    let whole = place.at("whole");
    place.ok(&["recover", "app", "-o", whole.to_str().unwrap()]);
    let whole = fields(&tool("babeltrace2", &[whole.to_str().unwrap()]).out);
    let session = place.session();
    for file in entries(&session).into_iter().filter(|path| path.is_file()) {
        if file.file_name().unwrap() != "registry" {
            let mut bytes = std::fs::read(&file).unwrap();
            bytes.iter_mut().take(4096).enumerate().for_each(|(n, byte)| *byte = (n * n / 7) as u8);
            std::fs::write(&file, bytes).unwrap();
        }
    }
    let out = place.at("out");
    place
        .run(&["recover", "--carve", session.to_str().unwrap(), "-o", out.to_str().unwrap()])
        .has_status(0)
        .prints(&format!("{} events", THREADS * EVENTS))
        .says("no region describes it");
    let ran = tool("babeltrace2", &[out.to_str().unwrap()]);
    assert_eq!((ran.err.as_str(), fields(&ran.out)), ("", whole));
}

/// Returns the part of babeltrace2's lines from the fields on, sorted by text. Without the
/// session's region, the origin of the clock is unknown, and so is the name of a context of four
/// bytes.
fn fields(text: &str) -> Vec<String> {
    let of = |line: &str| line[line.find('{').unwrap()..].replace("vtid", "context0");
    let mut fields: Vec<String> = text.lines().map(of).collect();
    fields.sort();
    fields
}

/// The events of JSON lines, without what names the channel: a folder of CTF 1.8 calls it by its
/// number.
fn of_lines(path: &std::path::Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.starts("{\"schema\":\"lastwords.events.v1\"");
    let own = |mut event: serde_json::Value| {
        for member in ["channel", "level", "format", "stream"] {
            event.as_object_mut().unwrap().remove(member);
        }
        event
    };
    json_events(&text).into_iter().map(own).collect()
}

#[test]
fn ctf_as_json_has_what_the_session_has() {
    let place = killed();
    place.ok(&["convert", "app", "--to", "json", "-o", "own.jsonl"]);
    place.ok(&["recover", "app", "-o", "out"]);
    for version in ["ctf", "ctf2"] {
        let from = format!("out-{version}");
        place.ok(&["convert", "out", "--to", version, "-o", &from]);
        let to = format!("{version}.jsonl");
        place.ok(&["convert", &from, "--to", "json", "-o", &to]);
        let (own, ctf) = (of_lines(&place.at("own.jsonl")), of_lines(&place.at(&to)));
        assert_eq!(own.len() as u64, THREADS * EVENTS);
        own.iter().zip(&ctf).for_each(|(own, ctf)| assert_eq!(own, ctf));
        assert_eq!(own.len(), ctf.len());
    }
}

#[test]
fn selections_of_ctf() {
    let place = killed();
    place.ok(&["recover", "app", "-o", "out"]);
    let all = place.ok(&["report", "out", "--utc"]);
    let of_cpu = |line: &&str, cpu: &str| line.contains(&format!("{{ cpu_id = {cpu} }}"));
    let cpu = all.split("{ cpu_id = ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let one = place.ok(&["report", "out", "--utc", "--cpu", cpu]);
    assert_eq!(one.lines().count(), all.lines().filter(|line| of_cpu(line, cpu)).count());
    let ran = place.run(&["report", "out", "--cpu", "9999"]);
    ran.has_status(1).prints_nothing().says("no CPU 9999");
    let last = place.ok(&["report", "out", "--utc", "--last", "7"]);
    let expected: Vec<&str> = all.lines().skip(all.lines().count() - 7).collect();
    last.has("] (+?.?????????) ");
    assert_eq!(last.lines().skip(1).collect::<Vec<_>>(), expected[1..]);
    place.ok(&["convert", "out", "--to", "json", "-o", "some.jsonl", "--last", "3", "-e", "*tick"]);
    let some = of_lines(&place.at("some.jsonl"));
    assert!(some.len() == 3 && some.iter().all(|event| event["event"] == "test:tick"), "{some:?}");
}
