//! Inputs of several kinds at once, in one folder, and in each format; what cannot be done is
//! refused before anything is written.

use crate::support::{Place, entries, event_lines, json_events, small, trace_dat};
use std::collections::BTreeMap;

/// A place with a session `a`, a folder of CTF `ctf` of another, and `k.dat`, a kernel's trace.
pub(crate) fn place() -> Place {
    let place = Place::new();
    small(&place, "a", 0);
    small(&place, "b", 1);
    place.ok(&["recover", "b", "-o", "made"]);
    std::fs::rename(place.at("made/small"), place.at("ctf")).unwrap();
    std::fs::remove_dir_all(place.at("b")).unwrap();
    std::fs::copy(trace_dat("small-7"), place.at("k.dat")).unwrap();
    place
}

/// The time of a line of a kernel's text.
fn time(line: &str) -> String {
    line.split(": ").next().and_then(|head| head.rsplit(' ').next()).unwrap().to_owned()
}

fn counted(lines: &str) -> BTreeMap<&str, usize> {
    let mut counted = BTreeMap::new();
    lines.lines().for_each(|line| *counted.entry(line).or_default() += 1);
    counted
}

/// Cuts off the time since the line before, which depends on that line.
fn without_delta(lines: &str) -> String {
    let cut = |line: &str| match line.split_once(" (+") {
        Some((time, rest)) => {
            format!("{time}{}", rest.split_once(')').map_or("", |(_, rest)| rest))
        }
        None => line.to_owned(),
    };
    lines.lines().map(|line| cut(line) + "\n").collect()
}

#[test]
fn a_session_and_ctf_are_merged_by_time() {
    let place = place();
    let all = place.ok(&["report", "a", "ctf", "--utc"]);
    let [own, ctf] =
        ["a", "ctf"].map(|input| place.ok(&["report", input, "--utc", "--style", "fields"]));
    assert_eq!(counted(&all), counted(&(own.clone() + &ctf)));
    // The sample ends with events of the next day.
    let first_day = all.lines().take_while(|line| line.starts_with("22:"));
    let times: Vec<&str> = first_day.map(|line| line.get(..18).unwrap()).collect();
    assert!(times.len() > 400 && times.is_sorted());
    for (input, alone) in [("a", &own), ("ctf", &ctf)] {
        let mut merged = all.lines();
        let is_in_order = alone.lines().all(|line| merged.by_ref().any(|other| other == line));
        assert!(is_in_order, "{input} in its own order");
    }
    // In another style, but for the time since the line before.
    let [all_ctf, alone] = [&["a", "ctf"][..], &["ctf"]]
        .map(|inputs| place.ok(&[&["report", "--utc", "--style", "babeltrace"], inputs].concat()));
    let (all_ctf, alone) = (without_delta(&all_ctf), without_delta(&alone));
    let own = without_delta(&place.ok(&["report", "--utc", "--style", "babeltrace", "a"]));
    assert_eq!(counted(&all_ctf), counted(&(own + &alone)));
    // The last ones are those of all, and so are those that are selected.
    let last = place.ok(&["report", "a", "ctf", "--utc", "--last", "9"]);
    let expected: Vec<&str> = all.lines().skip(all.lines().count() - 9).collect();
    assert_eq!(last.lines().collect::<Vec<_>>(), expected);
    let some = place.ok(&["report", "ctf", "a", "--utc", "-e", "wide"]);
    assert_eq!(
        some.lines().count(),
        all.lines().filter(|line| line.contains(" testkit:wide: ")).count()
    );
    // In the other order, those of one time change their places.
    let other = place.ok(&["report", "ctf", "a", "--utc"]);
    assert_eq!(counted(&without_delta(&other)), counted(&without_delta(&all)));
    place.ok(&["convert", "a", "ctf", "-o", "all.txt"]);
    assert_eq!(std::fs::read_to_string(place.at("all.txt")).unwrap(), all);
}

#[test]
fn a_kernel_whose_time_is_not_known_stands_behind_the_others() {
    let place = place();
    let ran = place.run(&["report", "k.dat", "a", "--utc"]);
    ran.has_status(0);
    let [own, kernel] = ["a", "k.dat"].map(|input| place.ok(&["report", input, "--utc"]));
    assert_eq!(ran.out, own + &kernel);
    ran.says("note: instance top follows the others");
    for account in ["small: sub-buffers: ", "top: with losses\n"] {
        ran.says_times(account, 1);
    }
}

#[test]
fn a_folder_is_searched_for_every_kind() {
    let place = place();
    std::fs::write(place.at("notes.txt"), "of mine").unwrap();
    std::fs::remove_dir_all(place.at("made")).unwrap();
    let ran = place.run(&["inspect", ".", "--json"]);
    ran.has_status(0).says("note: skipped: ./notes.txt");
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let schemas: Vec<_> =
        report["reports"].as_array().unwrap().iter().map(|report| &report["schema"]).collect();
    assert_eq!(
        schemas,
        ["lastwords.inspect-kernel.v2", "lastwords.inspect-ctf.v1", "lastwords.inspect.v1"]
    );
    place.ok(&["recover", ".", "-o", "out"]);
    for made in ["out/small/metadata", "out/ctf/metadata", "out/trace.dat"] {
        assert!(place.at(made).is_file(), "{made}");
    }
    let of = |input: &str| place.ok(&["report", input, "--utc"]);
    assert_eq!(of("out/ctf"), of("ctf"));
    assert_eq!(of("out/trace.dat"), of("k.dat"));
    // A folder below is searched as well; what has nothing in it names what could have been.
    std::fs::create_dir_all(place.at("deep/er/empty")).unwrap();
    std::fs::rename(place.at("k.dat"), place.at("deep/er/k.dat")).unwrap();
    assert_eq!(of("deep"), of("out/trace.dat"));
    place.run(&["report", "deep/er/empty"]).has_status(1).says("a kernel crash dump");
}

#[test]
fn what_a_format_does_not_hold_is_named_or_refused_before_it_is_written() {
    let place = place();
    let ran = place.run(&["convert", "a", "ctf", "k.dat", "-o", "some.dat"]);
    assert_eq!(ran.status, 1, "only some of what was named is in it: {}", ran.err);
    for name in ["session small", "ctf"] {
        ran.says(&format!("error: {name} is not in it: a trace.dat file has a kernel's trace, or"));
    }
    place.ok(&["recover", "a", "ctf", "k.dat", "--to", "trace-dat", "-o", "some"]);
    assert_eq!(
        entries(&place.at("some")).len(),
        3,
        "a session, a folder of CTF, and the file with all instances"
    );
    place.ok(&["recover", "a", "ctf", "k.dat", "--to", "perfetto", "-o", "all"]);
    assert_eq!(entries(&place.at("all")).len(), 4, "a session, a folder of CTF, and two instances");
    for (args, why) in [
        (
            &["convert", "a", "k.dat", "-o", "no.perfetto-trace"][..],
            "its clock's relation to real time is not known",
        ),
        (&["convert", "a", "-o", "no.json", "--with-log"], "--with-log is for a kernel's memory"),
        (&["recover", "a", "-o", "no", "--last", "3"], "CTF is copied packet by packet"),
        (&["recover", "a", "k.dat", "-o", "no", "--cpu", "99"], "packet by packet"),
        (&["convert", "k.dat", "-o", "no", "--last", "3"], "CTF is written packet by packet"),
    ] {
        place.run(args).has_status(1).says(why);
        assert!(!place.at("no").exists() && !place.at(args.last().unwrap()).exists(), "{args:?}");
    }
}

#[test]
fn the_ending_of_the_output_names_the_format() {
    let place = place();
    for verb in ["convert", "recover"] {
        for (out, begin) in [
            ("x.json", "{\"schema\""),
            ("x.jsonl", "{\"schema\""),
            ("x.txt", "22:13:"),
            ("x.pftrace", ""),
        ] {
            place.ok(&[verb, "a", "-o", out]);
            let made = std::fs::read(place.at(out)).unwrap();
            assert!(made.starts_with(begin.as_bytes()), "{verb} {out}");
            let ran = place.run(&[verb, "a", "-o", out]);
            let told = format!("{out} exists: choose another name or pass --force");
            ran.has_status(1).says(&told);
            place.ok(&[verb, "a", "-o", out, "--force"]);
            assert!(std::fs::read(place.at(out)).unwrap() == made, "{verb} {out}");
            std::fs::remove_file(place.at(out)).unwrap();
        }
        place.ok(&[verb, "k.dat", "-o", "y.dat"]);
        assert!(std::fs::read(place.at("y.dat")).unwrap().starts_with(b"\x17\x08\x44tracing"));
        std::fs::remove_file(place.at("y.dat")).unwrap();
    }
    place.ok(&["convert", "a", "-o", "z.json", "--to", "text"]);
    assert!(std::fs::read(place.at("z.json")).unwrap().starts_with(b"22:13:"));
    place.ok(&["convert", "a", "-o", "folder"]);
    assert!(place.at("folder/metadata").is_file());
    // Only what this program writes is replaced.
    std::fs::create_dir(place.at("mine")).unwrap();
    std::fs::write(place.at("mine/file"), "mine").unwrap();
    place.run(&["convert", "a", "-o", "mine", "--force"]).has_status(1);
    assert!(place.at("mine/file").is_file());
    place.ok(&["convert", "a", "-o", "folder", "--force"]);
}

#[test]
fn force_replaces_neither_inputs_nor_what_is_not_ours() {
    let place = place();
    std::fs::create_dir(place.at("in")).unwrap();
    place.ok(&["convert", "a", "-o", "in/ctf"]);
    let all = |folder: &str| {
        let contents = |path| (std::fs::read(&path).unwrap_or_default(), path);
        entries(&place.at(folder)).into_iter().map(contents).collect::<Vec<_>>()
    };
    let before = all("in/ctf");
    std::os::unix::fs::symlink(place.at("in/ctf"), place.at("link")).unwrap();
    // The input itself, through a link, and a folder that it lies in.
    for args in [
        ["convert", "in/ctf", "-o", "in/ctf"],
        ["convert", "in/ctf", "-o", "link"],
        ["convert", "link", "-o", "in/ctf"],
        ["recover", "in/ctf", "-o", "in"],
        ["convert", "k.dat", "-o", "k.dat"],
    ] {
        let ran = place.run(&[&args[..], &["--force"]].concat());
        ran.has_status(1).says("does not replace the input");
        assert!(all("in/ctf") == before && place.at("k.dat").is_file(), "{args:?}");
    }
    // A command that is refused for another reason leaves the file that is in the way.
    std::fs::copy(place.at("k.dat"), place.at("k2.dat")).unwrap();
    std::fs::write(place.at("old.dat"), "old").unwrap();
    place.run(&["convert", "k.dat", "k2.dat", "-o", "old.dat", "--force"]).has_status(1);
    assert_eq!(std::fs::read(place.at("old.dat")).unwrap(), b"old");
    // A folder with something else beside metadata and streams.
    place.ok(&["convert", "a", "-o", "home"]);
    std::fs::write(place.at("home/thesis"), "mine").unwrap();
    let ran = place.run(&["convert", "a", "-o", "home", "--force"]);
    ran.has_status(1).says("thesis in it is no part of a CTF trace");
    assert!(place.at("home/thesis").is_file() && place.at("home/metadata").is_file());
    // A FIFO is written into, and stays one.
    let fifo = place.at("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::read(fifo).unwrap()
    });
    place.ok(&["convert", "a", "-o", "fifo", "--to", "json", "--force"]);
    assert!(reader.join().unwrap().starts_with(b"{\"schema\""));
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&fifo.symlink_metadata().unwrap().file_type()));
    place
        .run(&["convert", "k.dat", "-o", "fifo", "--force"])
        .has_status(1)
        .says("a device or a FIFO takes text, json, perfetto, otlp, parquet and arrow");
}

#[test]
fn other_files_are_told_by_what_they_look_like() {
    let place = Place::new();
    for (bytes, words) in [
        (&b"\x1f\x8b\x08\0\0\0"[..], "gzip data: decompress it first"),
        (b"some text", "text"),
        (b"", "empty"),
    ] {
        std::fs::write(place.at("file"), bytes).unwrap();
        for verb in
            [&["report"][..], &["inspect"], &["recover", "-o", "no"], &["convert", "-o", "no"]]
        {
            let ran = place.run(&[verb, &["file"]].concat());
            ran.has_status(1).says(&format!("file: this is {words}"));
            assert!(ran.err.contains("a folder of CTF") && !place.at("no").exists(), "{}", ran.err);
        }
    }
    let program = env!("CARGO_BIN_EXE_lastwords");
    place.run(&["report", program]).has_status(1).says("this is an ELF program");
}

#[test]
fn one_selection_for_all_kinds() {
    let place = place();
    let count = |args: &[&str]| {
        place.ok(&[&["report"], args].concat()).lines().filter(|l| !l.starts_with('#')).count()
    };
    for input in ["a", "ctf"] {
        assert!(count(&[input, "-e", "wide"]) > 0, "{input}");
        assert_eq!(count(&[input, "-e", "wide"]), count(&[input, "-e", "testkit:wide"]), "{input}");
    }
    assert_eq!(count(&["a", "--cpu", "0"]), count(&["a", "--cpu", "0-3"]));
    for input in ["a", "ctf", "k.dat"] {
        let ran = place.run(&["report", input, "--cpu", "99"]);
        ran.has_status(1).prints_nothing().says("there is no CPU 99, only CPU");
        place.run(&["report", input, "-e", "nothing"]).has_status(1).says("note: no event ");
        for wrong in [["-e", "[a"], ["--session", "x["], ["--cpu", "3-1"]] {
            place.run(&[&["report", input], &wrong[..]].concat()).has_status(2);
        }
    }
    // A time as it is printed.
    let all = place.ok(&["report", "k.dat"]);
    let events: Vec<&str> = all.lines().filter(|line| !line.starts_with('#')).collect();
    let since = time(events[events.len() / 2]);
    let from = place.ok(&["report", "k.dat", "--since", &since]);
    let from: Vec<&str> = from.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(
        from.len() < events.len() && events.ends_with(&from) && time(from[0]) == since,
        "{since}: {from:?}"
    );
    place.run(&["report", "k.dat", "--since", "99999999"]).has_status(1).says("no event is left");
}

#[test]
fn an_instance_without_a_snapshot_says_so() {
    let place = place();
    for verb in [&["report"][..], &["recover", "-o", "no"], &["convert", "-o", "no.txt"]] {
        let ran = place.run(&[verb, &["k.dat", "--snapshot", "--instance", "top"]].concat());
        ran.has_status(1).prints_nothing().says("instance top has no snapshot");
    }
    // The events of the rings are printed nevertheless.
    place
        .run(&["inspect", "k.dat", "--snapshot"])
        .has_status(1)
        .says("instance top has no snapshot");
    assert!(!place.at("no").exists() && !place.at("no.txt").exists());
    place.run(&["report", "k.dat", "--raw", "--split"]).has_status(2);
}

#[test]
fn one_json_file_of_a_kernels_trace_and_others_is_in_order_of_time() {
    let place = place();
    // The same events half a millisecond later: between those of the kernel's trace.
    place.ok(&["convert", "k.dat", "--instance", "top", "-o", "later"]);
    let metadata = std::fs::read_to_string(place.at("later/metadata")).unwrap();
    assert_eq!(metadata.matches("offset = 0;").count(), 1, "{metadata}");
    std::fs::write(place.at("later/metadata"), metadata.replace("offset = 0;", "offset = 500000;"))
        .unwrap();
    let events = |inputs: &[&str]| -> Vec<serde_json::Value> {
        json_events(&place.run(&[&["convert", "--to", "json", "-o", "-"], inputs].concat()).out)
    };
    let all = events(&["a", "k.dat", "later"]);
    let time = |event: &serde_json::Value| event["time"].as_str().unwrap().to_owned();
    // The clock of one stream of the session goes back.
    assert!(all.iter().filter(|event| event["channel"] != "errors").is_sorted_by_key(time));
    let traces = all.iter().map(|event| event["trace"].as_u64().unwrap());
    let changes = traces.clone().zip(traces.skip(1)).filter(|(trace, next)| trace != next).count();
    assert!(changes > 4, "events of the traces alternate");
    let without_trace = |mut event: serde_json::Value| {
        event.as_object_mut().unwrap().remove("trace");
        event.to_string()
    };
    let mut found: Vec<String> = all.into_iter().map(without_trace).collect();
    let alone = ["a", "k.dat", "later"].map(|input| events(&[input]));
    assert!(alone.iter().all(|events| events.len() > 3));
    let mut expected: Vec<String> = alone.into_iter().flatten().map(without_trace).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    // One selection for all: names, and the last of them.
    let wake = events(&["a", "k.dat", "later", "-e", "sched:wake", "-e", "wide"]);
    assert!(
        wake.iter().all(|event| ["sched:wake", "testkit:wide"]
            .map(Some)
            .contains(&event["event"].as_str()))
    );
    assert_eq!(
        events(&["a", "k.dat", "later", "-e", "sched:wake", "-e", "wide", "--last", "5"]),
        wake[wake.len() - 5..]
    );
}

#[test]
fn the_last_events_of_several_instances_are_those_of_all() {
    let place = place();
    let lines = |args: &[&str]| -> Vec<String> {
        event_lines(&place.ok(&[&["report"], args].concat())).map(str::to_owned).collect()
    };
    let both = ["k.dat", "--instance", "top", "--instance", "extra"];
    let mut all = lines(&both);
    all.sort_by_key(|line| time(line));
    for last in 1..=all.len() {
        let mut found = lines(&[&both[..], &["--last", &last.to_string()]].concat());
        found.sort_by_key(|line| time(line));
        assert_eq!(found, all[all.len() - last..], "--last {last}");
    }
    // Each is named; where there is one, the text is the kernel's.
    let text = place.ok(&[&["report"], &both[..]].concat());
    let [top, extra] =
        ["top", "extra"].map(|name| place.ok(&["report", "k.dat", "--instance", name]));
    assert_eq!(text, format!("# instance: top\n{top}# instance: extra\n{extra}"));
    // Nothing relates the clocks of two machines.
    std::fs::copy(place.at("k.dat"), place.at("other.dat")).unwrap();
    let ran = place.run(&["report", "k.dat", "other.dat", "--last", "1"]);
    assert_eq!(ran.out.lines().filter(|line| line.contains(" wake: ")).count(), 2, "{}", ran.out);
    ran.prints("# instance: other.dat: top\n").says("--last 1 applies to each of them");
}

#[test]
fn several_instances_in_fields_are_merged_by_time() {
    let place = place();
    let lines = |args: &[&str]| -> Vec<String> {
        let text = place.ok(&[&["report", "k.dat", "--style", "fields"], args].concat());
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    let both = lines(&["--instance", "top", "--instance", "extra"]);
    for name in ["top", "extra"] {
        let of = |line: &String| line.strip_prefix(&format!("{name}: ")).map(str::to_owned);
        assert_eq!(
            both.iter().filter_map(of).collect::<Vec<_>>(),
            lines(&["--instance", name]),
            "{both:?}"
        );
    }
    // The name of the instance comes first.
    let time = |line: &&String| time(line.split_once(": ").unwrap().1);
    let timed: Vec<&String> = both.iter().filter(|line| !line.contains(" [LOST ")).collect();
    assert!(timed.len() > 2 && timed.is_sorted_by_key(time), "{both:?}");
    assert!(!timed.is_sorted_by_key(|line| line.starts_with("extra: ")), "the instances alternate");
    let last = lines(&["--instance", "top", "--instance", "extra", "--last", "2"]);
    assert!(
        both.ends_with(&last) && last.iter().filter(|line| !line.contains(" [LOST ")).count() == 2,
        "{last:?}"
    );
}
