//! Tests of the paths of outputs, and of requests that are refused before any work is done.

use crate::recovery::{assert_whole, killed};
use crate::support::{Place, entries, event_lines, ran, small, trace_dat, words};
use lastwords_testkit::text::Text as _;
use std::process::Stdio;

#[test]
fn stdout_takes_what_is_one_stream() {
    let place = killed();
    let ran = place.run(&["convert", "app", "--to", "text", "-o", "-"]);
    ran.has_status(0);
    assert_whole(&ran.out);
    assert!(!place.at("-").exists());
    for (to, file) in [("json", "x.jsonl"), ("perfetto", "x.perfetto-trace")] {
        place.ok(&["convert", "app", "--to", to, "-o", file]);
        let out = place
            .command()
            .args(["convert", "app", "--to", to, "-o", "-"])
            .output()
            .unwrap()
            .stdout;
        assert!(out == std::fs::read(place.at(file)).unwrap(), "{to} differs on stdout");
    }
    for args in [
        &["--to", "ctf"][..],
        &["--to", "ctf2"],
        &["--to", "trace-dat"],
        &["--to", "text", "--json"],
    ] {
        let ran = place.run(&[&["convert", "app", "-o", "-"], args].concat());
        ran.has_status(1).prints_nothing().says("stdout");
    }
    place.run(&["recover", "app", "-o", "-"]).has_status(1).says("stdout");
    assert!(!place.at("-").exists());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let args = ["convert", "app", "--to", "json", "-o", "-"];
    let output = place.command().args(args).stdout(writer).stderr(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "nobody reads");
}

#[test]
fn folders_above_the_output_are_made() {
    let place = killed();
    place.ok(&["recover", "app", "-o", "a/b/c"]);
    assert!(place.at("a/b/c/app/metadata").is_file());
    std::fs::write(place.at("file"), "x").unwrap();
    for out in ["file", "file/below"] {
        let ran = place.run(&["recover", "app", "-o", out]);
        assert!(ran.status == 1 && ran.err.matches("os error").count() <= 1, "{}", ran.err);
    }
}

#[test]
fn the_demo_looks_at_its_output_first() {
    let place = Place::new();
    std::fs::write(place.at("file"), "x").unwrap();
    for out in ["/nonexist/x", "file", "file/below"] {
        let ran = place.run(&["demo", "-o", out]);
        assert!(ran.status == 1 && ran.out.is_empty(), "{out}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(out) && ran.err.matches("os error").count() <= 1, "{}", ran.err);
    }
    assert_eq!(entries(&place.sessions()).len(), 0, "it recorded first");
}

#[test]
fn options_of_other_inputs_are_refused() {
    let place = killed();
    let file = place.at("file");
    std::fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    let verbs = [&["report", "app"][..], &["recover", "app", "-o", "out"], &["inspect", "app"]];
    for verb in verbs.iter().chain(&[&["convert", "app", "--to", "json", "-o", "out"][..]]) {
        for option in ["--vmlinux", "--system-map", "--btf", "--module"] {
            let ran = place.run(&[verb, &[option, file][..]].concat());
            ran.has_status(1).says(&format!("{option} is for a kernel's memory"));
        }
        let ran = place.run(&[verb, &["--raw"][..]].concat());
        ran.has_status(1).says("--raw is for a kernel's memory");
    }
    for verb in &verbs[..2] {
        let ran = place.run(&[verb, &["--metadata", file][..]].concat());
        ran.has_status(1).says("this is text, no metadata of CTF");
        let ran = place.run(&[verb, &["--bundle", file][..]].concat());
        ran.has_status(1).says("--bundle is for ftrace's persistent ring buffers");
    }
    assert!(!place.at("out").exists());
}

#[test]
fn a_pipe_is_no_input() {
    let place = Place::new();
    for verb in [
        &["report"][..],
        &["inspect"],
        &["recover", "-o", "x"],
        &["convert", "--to", "json", "-o", "x"],
    ] {
        let output =
            place.command().args(verb).arg("/dev/stdin").stdin(Stdio::piped()).output().unwrap();
        ran(output).has_status(1).says("/dev/stdin: a pipe");
    }
}

#[test]
fn a_selection_that_leaves_nothing_is_told() {
    let place = killed();
    let convert = ["convert", "app", "--to", "json", "-o"];
    for verb in [&["report", "app"][..], &[&convert[..], &["1"]].concat()] {
        let ran = place.run(&[verb, &["-e", "test:tick", "-e", "tset:*"]].concat());
        ran.says("no event is called tset:*").does_not_say("test:tick;");
        let _ = std::fs::remove_file(place.at("1"));
        let ran = place.run(&[verb, &["--cpu", "9999"]].concat());
        ran.has_status(1).says("there is no CPU 9999, only CPU");
        assert!(!place.at("1").exists(), "it was written before it was refused");
        let ran = place.run(&[verb, &["--until", "10"]].concat());
        ran.has_status(1).says("no event is left by --until\n");
        let _ = std::fs::remove_file(place.at("1"));
        place.run(&[verb, &["-e", "*:t[!e]ck"]].concat()).does_not_say("no event");
    }
    let count = |glob: &str| place.ok(&["report", "app", "-e", glob]).lines().count();
    assert!(count("test:t[a-j]*") > 0);
    assert_eq!(count("test:t[a-j]*"), count("test:tick") + count("test:text"));
    place.ok(&["recover", "app", "-o", "out"]);
    let ran = place.run(&["report", "out/app", "-e", "none"]);
    ran.says("no event is called none; `lastwords inspect` lists");
}

#[test]
fn a_line_of_several_names_all_and_streams_are_those_of_every_format() {
    let place = killed();
    small(&place, "small-0001020304050607", 0);
    let report = place.json(&words("convert app small-0001020304050607/ --to json -o x --json"));
    let line = &report["sessions"][0];
    assert_eq!((&line["session"], &line["merged"][0]["session"]), (&"app".into(), &"small".into()));
    assert_eq!(line["merged"].as_array().unwrap().len(), 1);
    let streams = |to: &str, input: &str| {
        let args = ["recover", input, "--to", to, "--json", "-o", &format!("{to}-{}", input.len())];
        place.json(&args)["sessions"][0]["streams"].as_u64().unwrap()
    };
    for input in ["app", "small-0001020304050607/"] {
        let of_ctf = streams("ctf", input);
        let files = place.at(&format!("ctf-{}", input.len()));
        let is_stream = |path: &std::path::Path| path.is_file() && !path.ends_with("metadata");
        let files = entries(&entries(&files)[0]).iter().filter(|path| is_stream(path)).count();
        assert_eq!(of_ctf, files as u64, "{input}");
        for to in ["ctf2", "json", "text", "perfetto"] {
            assert_eq!(streams(to, input), of_ctf, "{input} as {to}");
        }
    }
}

#[test]
fn moments_that_are_too_far_are_told_so() {
    let place = Place::new();
    small(&place, "a", 0);
    // The clock of the input decides whether a whole number counts seconds, so that the input is
    // opened first.
    for (moment, status) in
        [("@99999999999.5", 2), ("-9999999999h", 2), ("@99999999999", 1), ("99999999999", 1)]
    {
        let ran = place.run(&["report", "./a", "--since", moment]);
        ran.has_status(status).says("out of range").does_not_say("not a moment");
    }
}

#[test]
fn a_session_that_cannot_be_written_costs_the_others_nothing() {
    let place = Place::new();
    small(&place, "a", 0);
    small(&place, "b", 1);
    std::fs::create_dir_all(place.at("out/small")).unwrap();
    std::fs::write(place.at("out/small/mine"), "in the way").unwrap();
    let ran = place.run(&["recover", "a", "b", "-o", "out"]);
    ran.has_status(1).says("out/small").prints("out/small-2");
    assert!(place.at("out/small-2/metadata").is_file());
    place.run(&["recover", "a", "-o", "out"]).has_status(1);
}

#[test]
fn channels_are_selected_by_name() {
    let place = Place::new();
    small(&place, "copy", 0);
    let count = |args: &[&str]| place.ok(&[&["report", "copy"], args].concat()).lines().count();
    let (all, main, errors) =
        (count(&[]), count(&["--channel", "main"]), count(&["--channel", "err*"]));
    assert!(main > 0 && errors > 0 && main + errors == all, "{main} + {errors}, {all}");
    assert_eq!(count(&["--channel", "main", "--channel", "errors"]), all);
    let ran = place.run(&["report", "copy", "--channel", "none"]);
    ran.prints_nothing().says("no channel is called none");
    place.ok(&["convert", "copy", "--to", "json", "-o", "j", "--channel", "errors"]);
    let lines = std::fs::read_to_string(place.at("j")).unwrap();
    assert_eq!(
        lines.lines().filter(|line| line.contains("\"stream\":1,\"channel\":\"errors\"")).count(),
        errors,
        "{lines}"
    );
    place.run(&["convert", "copy", "--to", "ctf", "-o", "c", "--channel", "errors"]).has_status(1);
}

#[test]
fn threads_have_the_names_that_the_registry_has() {
    let place = Place::new();
    let task = std::fs::read_link("/proc/thread-self").expect("this thread");
    let thread = task.file_name().expect("its id").to_string_lossy();
    let key = format!("thread_{thread}");
    let named = |name: &str, names: &[&str]| {
        let builder = lastwords::Session::builder(name).dir(place.sessions()).events("names:*");
        let session = names
            .iter()
            .fold(builder, |builder, name| builder.env(&key, *name))
            .start()
            .expect("a session");
        lastwords::event!(names, "it");
        session
    };
    let one = named("one", &["worker 1"]);
    let _reused = named("reused", &["first", "second", "first"]);
    let shown = |session: &str, style: &str| place.ok(&["report", session, "--style", style]);
    shown("one", "fields").has(&format!("] worker 1-{thread} names:it"));
    let line = shown("one", "ftrace");
    assert!(line.trim_start().starts_with(&format!("worker 1-{thread} ")), "{line}");
    shown("reused", "fields").has(&format!("] first|second-{thread} names:it"));
    place.ok(&["convert", "one", "--to", "perfetto", "-o", "perfetto"]);
    let perfetto = std::fs::read(place.at("perfetto")).expect("a trace");
    assert!(perfetto.windows(8).any(|bytes| bytes == b"worker 1"), "a track has the name");
    // The count of names that were left out, of the registry's control words.
    let registry = one.folder().expect("a folder").join("registry");
    let file = std::fs::OpenOptions::new().write(true).open(registry).expect("the registry");
    std::os::unix::fs::FileExt::write_all_at(&file, &3u64.to_ne_bytes(), 128 + 24)
        .expect("written");
    place
        .run(&["report", "one", "--style", "fields"])
        .prints(&format!("] worker 1|...-{thread} names:it"))
        .says("3 threads found no room for their names");
}

#[test]
fn every_instance_of_a_trace_dat_is_counted_and_told() {
    let place = Place::new();
    let events = |text: &str| event_lines(text).count();
    for name in ["small-6", "small-7", "whole-7"] {
        let file = format!("{name}.dat");
        std::fs::copy(trace_dat(name), place.at(&file)).unwrap();
        let told = place.json(&["inspect", &file, "--json"]);
        for (instance, name) in
            told["kernels"][0]["instances"].as_array().unwrap().iter().zip(["top", "extra"])
        {
            let entries = instance["live"]
                .as_array()
                .unwrap()
                .iter()
                .map(|cpu| cpu["entries"].as_u64().unwrap());
            let shown = events(&place.ok(&["report", &file, "--instance", name]));
            assert_eq!((shown > 0, entries.sum::<u64>()), (true, shown as u64), "{file}, {name}");
        }
        let ran = place.run(&["report", &file]);
        ran.says("also has the instance extra, which is not shown; `--instance extra` shows it");
        // A file with nothing at the top level, as `trace-cmd record -B extra` writes.
        let only = format!("only-{file}");
        place.ok(&["convert", &file, "--instance", "extra", "--to", "trace-dat", "-o", &only]);
        let extra = place.ok(&["report", &file, "--instance", "extra"]);
        assert_eq!(place.ok(&["report", &only]), extra);
        let theirs = std::process::Command::new("trace-cmd")
            .args(["report", "-i"])
            .arg(place.at(&only))
            .output();
        let theirs = String::from_utf8(theirs.expect("trace-cmd").stdout).unwrap();
        assert_eq!(
            theirs.lines().filter(|line| line.starts_with("extra:")).count(),
            events(&extra),
            "{theirs}"
        );
    }
}

#[test]
fn an_empty_folder_is_written_into() {
    let place = Place::new();
    small(&place, "a", 0);
    for (verb, trace) in [("convert", "empty"), ("recover", "empty/small")] {
        for to in ["ctf", "ctf2"] {
            std::fs::create_dir_all(place.at(trace)).unwrap();
            place.ok(&[verb, "a", "--to", to, "-o", "empty"]);
            let new = format!("new-{verb}-{to}");
            place.ok(&["convert", "a", "--to", to, "-o", &new]);
            assert!(place.ok(&["report", trace]) == place.ok(&["report", &new]), "{verb} {to}");
            // A folder that is not empty stays as it is.
            place.run(&["convert", "a", "--to", to, "-o", trace]).has_status(1).says("exists");
            std::fs::remove_dir_all(place.at("empty")).unwrap();
        }
    }
    // A link to an empty folder is none.
    std::fs::create_dir(place.at("other")).unwrap();
    std::os::unix::fs::symlink("other", place.at("link")).unwrap();
    place.run(&["convert", "a", "-o", "link"]).has_status(1);
}

#[test]
fn the_line_of_an_output_says_what_was_overwritten() {
    let place = Place::new();
    small(&place, "a", 0);
    for args in [&["convert", "./a", "-o", "a.json"][..], &["view", "./a", "-o", "a.html"]] {
        let line = place.run(args).out;
        assert!(
            line.contains(" bytes overwritten, nothing else lost")
                && !line.contains("nothing lost"),
            "{args:?}: {line}"
        );
    }
}

#[test]
fn extensions_in_capitals_are_extensions() {
    let place = Place::new();
    small(&place, "a", 0);
    place.ok(&["convert", "./a", "-o", "a.JSON"]);
    assert!(std::fs::read(place.at("a.JSON")).unwrap().starts_with(b"{\"schema\""));
    place.ok(&["view", "./a", "-o", "a.HTML"]);
    place.ok(&["convert", "./a", "-o", "a.DAT"]);
    assert!(std::fs::read(place.at("a.DAT")).unwrap().starts_with(b"\x17\x08\x44tracing"));
}
