//! Several inputs: some that cannot be had, some that are the same.

use crate::child::{EVENTS, THREADS, start};
use crate::matrix::made;
use crate::recovery::{assert_whole, killed};
use crate::support::{Place, cut_streams, small, tool, trace_dat};

const ALL: usize = (THREADS * EVENTS) as usize;

#[test]
fn one_that_is_bad_denies_no_other() {
    let place = killed();
    let bad = place.sessions().join("zzz-0123456789abcdef");
    std::fs::create_dir(&bad).unwrap();
    for garbage in [false, true] {
        if garbage {
            std::fs::write(bad.join("session"), [0xa5; 9000]).unwrap();
        }
        for (verb, strict) in
            [(&["report"][..], 3), (&["recover", "-o", "out"], 3), (&["inspect"], 0)]
        {
            place
                .run(&[verb, &["sessions"]].concat())
                .has_status(0)
                .says("error: sessions/zzz-0123456789abcdef: the folder has no session");
            let _ = std::fs::remove_dir_all(place.at("out"));
            if strict == 3 {
                place.run(&[verb, &["sessions", "--strict"]].concat()).has_status(3);
                let _ = std::fs::remove_dir_all(place.at("out"));
            }
        }
        assert_whole(&place.ok(&["report", "sessions"]));
    }
    place.run(&["report", "sessions/zzz-0123456789abcdef"]).has_status(1);
}

#[test]
fn what_has_nothing_to_recover_is_a_note() {
    let place = killed();
    std::fs::write(place.sessions().join("README"), "of mine").unwrap();
    let gone = place.sessions().join("gone-0123456789abcdef");
    std::fs::create_dir(&gone).unwrap();
    std::fs::write(gone.join("regions"), "session 0 4096 /proc/0/fd/3\n").unwrap();
    let ran = place.run(&["report", "sessions", "--strict"]);
    ran.has_status(0);
    assert_whole(&ran.out);
    for remark in [
        "note: skipped: sessions/README: it is not the folder of a session",
        "note: skipped: sessions/gone-",
    ] {
        ran.says(remark);
    }
    // Asked for by name, it is a loss; alone it is an error.
    for (args, status) in
        [(&["app", "gone"][..], 1), (&["gone", "app", "--strict"], 3), (&["sessions", "gone"], 1)]
    {
        let ran = place.run(&[&["report"], args].concat());
        ran.has_status(status);
        assert_whole(&ran.out);
        ran.says("error: ").says("which is gone");
    }
    place.run(&["report", "gone"]).has_status(1).says_times("which is gone", 1);
}

#[test]
fn a_session_goes_before_a_path_of_its_name_that_has_no_trace() {
    let place = killed();
    let note = "note: app: the session of this name is read";
    // A program, as the linker leaves it, a text, and the folder of a project.
    std::fs::copy(std::env::current_exe().unwrap(), place.at("app")).unwrap();
    for what in ["an ELF program", "text", "a folder without a trace"] {
        match what {
            "text" => std::fs::write(place.at("app"), "of mine").unwrap(),
            "a folder without a trace" => {
                std::fs::remove_file(place.at("app")).unwrap();
                std::fs::create_dir(place.at("app")).unwrap();
                std::fs::write(place.at("app/Cargo.toml"), "[package]").unwrap();
            }
            _ => {}
        }
        let ran = place.run(&["report", "app"]);
        ran.has_status(0).says(note).says(what);
        assert_whole(&ran.out);
        // With a slash, the path is meant.
        place.run(&["report", "./app"]).has_status(1).does_not_say(note);
    }
    // A path that may hold a trace is read.
    std::fs::remove_dir_all(place.at("app")).unwrap();
    std::fs::rename(place.session(), place.at("app")).unwrap();
    start(&place, "shm", "wait").kill();
    let ran = place.run(&["report", "app"]);
    ran.has_status(0).does_not_say(note);
    assert_whole(&ran.out);
}

#[test]
fn what_is_named_and_not_there_costs_nothing_else() {
    let place = killed();
    std::fs::write(
        place.at("core"),
        lastwords_testkit::elf::core(lastwords_testkit::put::Order::Little, &[]),
    )
    .unwrap();
    for words in [["app", "core"], ["core", "app"], ["app", "/no/such/core"]] {
        let ran = place.run(&[&["report"], &words[..]].concat());
        ran.has_status(1);
        assert_whole(&ran.out);
        ran.says("error: ");
    }
    place.run(&["inspect", "app", "core", "--json"]).has_status(1).prints("\"name\": \"app\"");
    let ran = place.run(&["report", "core", "/no/such/core"]);
    ran.has_status(1).prints_nothing().says_times("error: ", 2);
}

#[test]
fn a_session_given_twice_is_read_once() {
    let place = killed();
    let folder = place.session().display().to_string();
    let name = folder.rsplit('/').next().unwrap();
    tool("cp", &["-r", &folder, place.at("copy").to_str().unwrap()]);
    for words in [
        ["app", "app"],
        ["app", &folder],
        ["sessions", &folder],
        [&format!("sessions/./{name}"), "sessions"],
    ] {
        let ran = place.run(&[&["report", "--strict"], &words[..]].concat());
        ran.has_status(0);
        assert_whole(&ran.out);
    }
    // A copy elsewhere, and one that has less; the better one is read, whichever comes first.
    for lossy in [false, true] {
        if lossy {
            cut_streams(&place.at("copy"));
        }
        for words in [["app", "copy"], ["copy", "app"]] {
            let ran = place.run(&[&["report", "--strict"], &words[..]].concat());
            ran.has_status(0);
            assert_whole(&ran.out);
            ran.says("note: session app is in ");
            let report = place.json(&["inspect", words[0], words[1], "--json"]);
            assert_eq!(report["sessions"].as_array().unwrap().len(), 1);
        }
    }
}

#[test]
fn copies_that_differ_are_both_kept_and_told() {
    let place = Place::new();
    // Of each another sub-buffer is gone.
    for (folder, at) in [("a", 1), ("b", 2)] {
        small(&place, folder, 0);
        let path = place.at(folder).join(format!("stream-{}", at - 1));
        std::fs::File::options().write(true).open(path).unwrap().set_len(4096).unwrap();
    }
    let count = |words: &[&str]| place.ok(&[&["report"], words].concat()).lines().count();
    assert_eq!(count(&["a", "b"]), count(&["a"]) + count(&["b"]));
    let ran = place.run(&["inspect", "a", "b"]);
    ran.says("session small is in a and in b, and each has events that the other does not have");
}

#[test]
fn a_snapshot_is_told_of_where_it_is_not_shown() {
    let place = Place::new();
    let mut child = start(&place, "shm", "tick");
    place.ok(&["snapshot", "enable"]);
    place.ok(&["snapshot", "take"]);
    child.kill();
    for args in [&["report", "app"][..], &["recover", "app", "-o", "out"]] {
        place.run(args).says("note: session app holds a snapshot").says("--snapshot");
    }
    place.run(&["report", "app", "--snapshot"]).does_not_say("holds a snapshot");
    // Of several sessions, those that hold one are shown.
    std::fs::remove_file(place.at("ready")).unwrap();
    start(&place, "shm", "wait").kill();
    let ran = place.run(&["report", "sessions", "--snapshot", "--strict"]);
    ran.has_status(0).says("note: skipped: sessions/app-");
    assert!(ran.out.lines().count() < ALL && ran.out.contains("test:tick"), "{}", ran.out);
}

#[test]
fn a_snapshot_that_could_not_be_written_is_not_taken() {
    let place = Place::new();
    let _child = start(&place, "shm", "tick");
    place.ok(&["snapshot", "enable"]);
    place.ok(&["snapshot", "take"]);
    let taken =
        || place.json(&["inspect", "app", "--json"])["sessions"][0]["snapshots_taken"].clone();
    std::fs::create_dir_all(place.at("out/app")).unwrap();
    std::fs::write(place.at("file"), "x").unwrap();
    for out in ["out", "file", "file/below"] {
        let ran = place.run(&["snapshot", "record", "-o", out]);
        assert_eq!(ran.status, 1, "{out}: {}", ran.err);
        assert_eq!(taken(), 1, "{out}: the snapshot before was thrown away");
    }
    place.ok(&["snapshot", "record", "-o", "deep/er/out"]);
    assert_eq!(taken(), 2);
}

/// Traces that are read together have an account each, and a loss is told in that of its own trace.
#[test]
fn each_trace_has_its_own_account() {
    let place = Place::new();
    made::write(&place.at("whole"), 1, 0);
    made::write(&place.at("lossy"), 1, 5);
    for args in [
        &["report", "whole", "lossy"][..],
        &["recover", "whole", "lossy", "-o", "copies"],
        &["recover", "whole", "lossy", "-o", "lines", "--to", "json"],
        &["convert", "whole", "lossy", "-o", "merged.json"],
        &["convert", "whole", "lossy", "-o", "merged.txt"],
    ] {
        let ran = place.run(&[args, &["--strict"]].concat());
        ran.has_status(3);
        let account = |name: &str| {
            let heading = format!("{name}: sub-buffers: 6 committed; ");
            ran.err
                .lines()
                .find_map(|line| line.strip_prefix(&heading))
                .unwrap_or_else(|| panic!("{args:?}: {}", ran.err))
        };
        assert_eq!(
            (account("whole"), account("lossy")),
            ("nothing lost", "with losses"),
            "{args:?}: {}",
            ran.err
        );
    }
    let report = place.json(&["inspect", "--json", "whole", "lossy"]);
    let evidence = |at: usize| &report["traces"][at]["evidence"];
    assert_eq!([&evidence(0)["lost_events"], &evidence(1)["lost_events"]], [0, 10], "{report}");
}

#[test]
fn data_of_inputs_some_of_which_cannot_be_had_keep_their_layout() {
    let place = Place::new();
    small(&place, "a", 0);
    place.ok(&["convert", "a", "-o", "ctf"]);
    let report = |inputs: &[&str]| -> serde_json::Value {
        let ran = place.run(&[&["inspect", "--json"], inputs].concat());
        ran.says("nosuch: no such file");
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
    };
    let schemas = |report: &serde_json::Value| -> Vec<String> {
        report["reports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["schema"].as_str().unwrap().to_owned())
            .collect()
    };
    for inputs in [["a", "nosuch"], ["nosuch", "a"]] {
        let report = report(&inputs);
        assert_eq!(schemas(&report), ["lastwords.inspect.v1"], "{inputs:?}");
        assert!(report["faults"][0].as_str().unwrap().starts_with("nosuch: "), "{report}");
    }
    let report_of_ctf = report(&["ctf", "nosuch"]);
    assert_eq!(report_of_ctf["schema"], "lastwords.inspect-ctf.v1");
    assert!(
        report_of_ctf["faults"][0].as_str().unwrap().starts_with("nosuch: "),
        "{report_of_ctf}"
    );
    let all = report(&["ctf", "a", "nosuch"]);
    assert_eq!(schemas(&all), ["lastwords.inspect-ctf.v1", "lastwords.inspect.v1"]);
    assert_eq!(all["faults"].as_array().unwrap().len(), 1, "{all}");
}

#[test]
fn every_name_that_there_is_can_be_given() {
    let place = Place::new();
    for name in ["one", "two"] {
        std::fs::create_dir_all(place.at("all").join(name)).unwrap();
        let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
            event { name = e; fields := struct { integer { size = 8; } x; }; };";
        std::fs::write(place.at("all").join(name).join("metadata"), metadata).unwrap();
        std::fs::write(place.at("all").join(name).join("stream"), [1, 2, 3]).unwrap();
    }
    for inputs in [&["all"][..], &["all/one", "all/two/."]] {
        let ran = place.run(&[&["report", "-s", "zzz"], inputs].concat());
        ran.has_status(1).says("no session is called zzz; there are: one, two\n");
        assert_eq!(
            place.ok(&[&["report", "-s", "two"], inputs].concat()).lines().count(),
            3,
            "{inputs:?}"
        );
    }
}

#[test]
fn the_accounts_of_several_kernels_say_whose_they_are() {
    let place = Place::new();
    for name in ["one.dat", "two.dat"] {
        std::fs::copy(trace_dat("small-7"), place.at(name)).unwrap();
    }
    let ran = place.run(&["report", "one.dat", "two.dat"]);
    for account in ["\none.dat: top: with losses\n", "\ntwo.dat: top: with losses\n"] {
        ran.says_times(account, 1);
    }
    place.run(&["report", "one.dat"]).says("\ntop: with losses\n");
}

#[test]
fn a_sub_buffer_that_cannot_be_decoded_is_of_its_own_instance() {
    let place = Place::new();
    let mut file = std::fs::read(trace_dat("small-7")).unwrap();
    // The top level's second sub-buffer of CPU 0 tells of lost events no more, the first event of
    // the instance has no length.
    let (commit, event) = (12_296, 24_592);
    assert_eq!(
        (&file[commit..commit + 4], file[event]),
        (&[0x1c, 0, 0, 0xc0][..], 0),
        "the corpus is another"
    );
    file[commit + 3] = 0;
    file[event] ^= 0xff;
    std::fs::write(place.at("k.dat"), file).unwrap();
    for args in [
        &["report", "k.dat", "-s", "top", "-s", "extra"][..],
        &["convert", "k.dat", "-o", "-", "--to", "json"],
    ] {
        let ran = place.run(args);
        for account in ["top: nothing lost", "extra: sub-buffers: 1 invalid; with losses"] {
            ran.says(account);
        }
    }
}

/// A name stands for the newest session; the note says how to read all of that name, and that
/// works.
#[test]
fn all_sessions_of_a_name_are_read_from_their_folder() {
    let place = Place::new();
    small(&place, "sessions/small-0", 0);
    small(&place, "sessions/small-1", 1);
    let one = place.run(&["report", "small"]);
    let folder = place.sessions().display().to_string();
    let way = format!("(all that are there: {folder} --session small)");
    one.has_status(0).says("2 sessions are called small").says(&way);
    let all = place.ok(&["report", &folder, "--session", "small"]);
    assert_eq!(all.lines().count(), 2 * one.out.lines().count());
}
