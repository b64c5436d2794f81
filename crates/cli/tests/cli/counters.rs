//! `counters`: what a program counted is printed after it was killed, from a core and from
//! persistent memory, as text, data and in the format of Prometheus.

use crate::child::{Running, start_test, task};
use crate::cores::core_of;
use crate::support::Place;
use lastwords::{Memory, Session, counter, histogram};
use std::path::Path;

/// Threads of the child, and rounds of each.
pub(crate) const THREADS: u64 = 4;
pub(crate) const ROUNDS: u64 = 1000;

/// The program that counts.
#[test]
fn counting() {
    let Some(how) = task() else { return };
    let words: Vec<&str> = how.split(' ').collect();
    let [memory, end, ready] = words.as_slice() else { panic!("{how}") };
    let memory = match *memory {
        "heap" => Memory::Heap,
        "memfd" => Memory::Memfd,
        "dax" => Memory::Dax { path: Path::new(ready).with_extension("dax"), reuse: true },
        _ => Memory::Shm,
    };
    let builder = Session::builder("app").backend(memory).counters(8).histograms(2);
    let _session = builder.start().expect("a session");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for n in 0..ROUNDS {
                    counter!("http.requests", method = "GET", path = "/a\\\"b\n");
                    counter!("bytes", n);
                    histogram!("latency_ns", n);
                }
            });
        }
    });
    std::fs::write(ready, "ready").expect("the ready file");
    match *end {
        "abort" => std::process::abort(),
        _ => std::thread::sleep(std::time::Duration::from_secs(60)),
    }
}

pub(crate) fn start(place: &Place, memory: &str, end: &str) -> Running {
    start_test(place, "counters::counting", &format!("{memory} {end}"))
}

/// Fails unless the input has all numbers, and nothing is lost.
pub(crate) fn assert_counted(place: &Place, input: &str) -> serde_json::Value {
    place.run(&["counters", input, "--strict"]).has_status(0);
    assert_numbers(place, input)
}

/// Fails unless the input has all numbers. Returns what is printed of its session.
pub(crate) fn assert_numbers(place: &Place, input: &str) -> serde_json::Value {
    let data = place.json(&["counters", input, "--json"]);
    assert_eq!(data["schema"], "lastwords.counters.v1");
    let session = &data["sessions"][0];
    let sum = THREADS * ROUNDS * (ROUNDS - 1) / 2;
    let counters = &session["counters"];
    assert_eq!((&counters[0]["name"], &counters[0]["value"]), (&"bytes".into(), &sum.into()));
    assert_eq!(counters[1]["value"], THREADS * ROUNDS);
    assert_eq!(counters[1]["labels"]["path"], "/a\\\"b\n");
    let latency = &session["histograms"][0];
    assert_eq!(latency["name"], "latency_ns");
    assert_eq!((&latency["count"], &latency["sum"]), (&(THREADS * ROUNDS).into(), &sum.into()));
    let number = |value: &serde_json::Value, key: &str| value[key].as_u64().expect("a number");
    for bucket in latency["buckets"].as_array().expect("buckets") {
        let (low, high) = (number(bucket, "low"), number(bucket, "high").min(ROUNDS - 1));
        assert_eq!(number(bucket, "count"), THREADS * (high + 1 - low), "{bucket}");
    }
    assert_eq!((&session["unknown"], &session["lost_additions"]), (&0.into(), &0.into()));
    session.clone()
}

#[test]
fn a_killed_program_leaves_its_counters() {
    let place = Place::new();
    let mut child = start(&place, "shm", "wait");
    assert_counted(&place, "app");
    child.kill();
    assert_counted(&place, "app");
    let text = place.ok(&["counters", "app"]);
    let line = |begin: &str| text.lines().find(|line| line.trim().starts_with(begin));
    assert!(line("bytes").expect("a counter").ends_with(" 1998000"), "{text}");
    assert!(line("http.requests{method=").expect("a counter").ends_with(" 4000"), "{text}");
    // Half of the values are below 500, which is in the bucket of 480 to 511.
    let latency = line("latency_ns").expect("a histogram");
    assert!(latency.contains(" 4000 ") && latency.contains(" 480..511 "), "{latency}");
    assert!(latency.ends_with(" 960..1023"), "{latency}");
    let reported = place.run(&["report", "app"]);
    reported
        .says("app: 2 counters and 1 histogram: lastwords counters ")
        .says(" 1998000\n")
        .says(" 4000 ");
    let inspected = place.ok(&["inspect", "app"]);
    assert!(inspected.contains("latency_ns") && inspected.contains("http.requests{"));
    let data = place.json(&["inspect", "app", "--json"]);
    assert_eq!(data["sessions"][0]["metrics"]["counters"][0]["value"], 1_998_000);
}

#[test]
fn cores_and_persistent_memory_have_the_counters() {
    for memory in ["memfd", "heap"] {
        let place = Place::new();
        start(&place, memory, "abort").ended();
        assert_counted(&place, core_of(&place).to_str().expect("a name"));
    }
    let place = Place::new();
    start(&place, "dax", "wait").kill();
    assert_counted(&place, place.at("ready.dax").to_str().expect("a name"));
}

#[test]
fn an_input_without_counters_says_so() {
    let place = Place::new();
    crate::support::small(&place, "a", 0);
    place.run(&["counters", "a"]).has_status(1).says("no session has counters or histograms");
}

/// A user who looks elsewhere finds them: reports name the command, outputs without them say so, and
/// a folder of CTF keeps them.
#[test]
fn reports_name_the_counters_and_recovered_folders_keep_them() {
    let place = Place::new();
    start(&place, "shm", "wait").kill();
    let data = place.json(&["why", "app", "--json"]);
    let why = &data["inputs"][0];
    assert_eq!(why["metrics"]["counters"][0]["value"], 1_998_000);
    let next = why["next"].as_array().expect("commands");
    assert!(next.iter().any(|next| {
        next["command"].as_str().is_some_and(|command| command.starts_with("lastwords counters /"))
    }));
    place
        .run(&["report", "app"])
        .has_status(0)
        .says("2 counters and 1 histogram: lastwords counters ");

    let out = place.at("app.jsonl");
    let out = out.to_str().expect("a name");
    place
        .run(&["convert", "app", "-o", out])
        .has_status(0)
        .says("are not in it: `lastwords counters`");
    let sessions = place.sessions().display().to_string();
    place
        .run(&["ingest", &sessions, "--into", "set"])
        .has_status(0)
        .says("counters and histograms of 1 session are not in the data set");
    place
        .run(&["convert", "app", "--to", "parquet", "-o", "other/"])
        .has_status(0)
        .says("2 counters and 1 histogram of session app are not in it");

    for (args, folder) in [
        (&["recover", "app", "-o"][..], "recovered"),
        (&["convert", "app", "--to", "ctf2", "-o"][..], "converted"),
    ] {
        let path = place.at(folder);
        let path = path.to_str().expect("a name");
        place.ok(&[args, &[path]].concat());
        assert_counted(&place, path);
        // The session is not needed, and the folder is still one of CTF that others read.
        place.ok(&["report", path]);
        assert!(place.run(&[args, &[path]].concat()).status != 0, "it is there already");
        place.ok(&[args, &[path, "--force"]].concat());
        assert_counted(&place, path);
    }
    let session = place.ok(&["counters", "app", "--prometheus"]);
    let recovered = place.at("recovered");
    let recovered = recovered.to_str().expect("a name");
    assert_eq!(place.ok(&["counters", recovered, "--prometheus"]), session);
    // A file that is not whole is an error.
    let kept = place.at("recovered/app.counters.json");
    let whole = std::fs::read(&kept).expect("a file");
    std::fs::write(&kept, &whole[..whole.len() / 2]).expect("a file");
    place.run(&["counters", recovered]).has_status(1).says("app.counters.json");
}
