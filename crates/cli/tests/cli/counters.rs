//! `counters`: what a program counted is printed after it was killed, from a core and from
//! persistent memory, as text, data and in the format of Prometheus.

use crate::child::{Running, run, wait_for};
use crate::cores::core_of;
use crate::support::Place;
use lastwords::{Memory, Session, counter, histogram};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The variable that has the child's task.
const HOW: &str = "LASTWORDS_TEST_COUNTING";
/// Threads of the child, and rounds of each.
const THREADS: u64 = 4;
const ROUNDS: u64 = 1000;

/// Started again with [`HOW`] set, this is the program that counts; else it is nothing.
#[test]
fn counting() {
    let Ok(how) = std::env::var(HOW) else { return };
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

fn start(place: &Place, memory: &str, end: &str) -> Running {
    let ready = place.at("ready");
    let what = format!("{memory} {end} {}", ready.display());
    let running = run(place, "counters::counting", HOW, &what);
    wait_for(&ready);
    running
}

/// Fails unless the input has all numbers.
fn assert_counted(place: &Place, input: &str) {
    let data = place.json(&["counters", input, "--json", "--strict"]);
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
    reported.says("app: counters and histograms:").says(" 1998000\n").says(" 4000 ");
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

/// Name, labels and value of a sample.
type Sample = (String, BTreeMap<String, String>, String);

/// Parses a sample as the page on Prometheus's exposition formats has it.
fn sample(line: &str) -> Sample {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    let (name, rest) = line.split_once('{').expect("labels");
    assert!(name.starts_with(is_first), "{line}");
    assert!(name.chars().all(|c| is_first(c) || c.is_ascii_digit()), "{line}");
    let (mut labels, mut rest) = (BTreeMap::new(), rest);
    while !rest.starts_with('}') {
        let (key, behind) = rest.split_once("=\"").expect("a label");
        let is_key = |c: char| c != ':' && (is_first(c) || c.is_ascii_digit());
        assert!(!key.is_empty() && key.chars().all(is_key), "{line}");
        let (mut value, mut chars) = (String::new(), behind.char_indices());
        let end = loop {
            match chars.next().expect("the end of a value") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().expect("an escape").1 {
                    'n' => '\n',
                    other @ ('\\' | '"') => other,
                    other => panic!("\\{other} in {line}"),
                }),
                (_, other) => value.push(other),
            }
        };
        assert!(labels.insert(key.to_owned(), value).is_none(), "{line}");
        rest = behind[end + 1..].trim_start_matches(',');
    }
    (name.to_owned(), labels, rest.strip_prefix("} ").expect("a value").to_owned())
}

#[test]
fn the_text_for_prometheus_is_valid() {
    let place = Place::new();
    start(&place, "shm", "wait").kill();
    let text = place.ok(&["counters", "app", "--prometheus"]);
    let (mut family, mut kinds) = (String::new(), BTreeMap::new());
    let (mut samples, mut seen) = (Vec::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# TYPE ") {
            let (name, kind) = words.split_once(' ').expect("a type");
            name.clone_into(&mut family);
            assert!(kinds.insert(family.clone(), kind.to_owned()).is_none(), "{line}");
            continue;
        }
        let (name, labels, value) = sample(line);
        let ends: &[&str] = match kinds[&family].as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(ends.iter().any(|end| name == format!("{family}{end}")), "{line}");
        assert!(seen.insert((name.clone(), labels.clone())), "twice: {line}");
        assert_eq!(labels["session"], "app");
        samples.push((name, labels, value));
    }
    let find = |name: &str| samples.iter().find(|sample| sample.0 == name).expect("a sample");
    assert_eq!(find("http_requests").1["path"], "/a\\\"b\n");
    assert_eq!(find("http_requests").2, "4000");
    assert_eq!((&*find("latency_ns_sum").2, &*find("latency_ns_count").2), ("1998000", "4000"));
    // Each bucket has the values up to its bound.
    let buckets: Vec<_> = samples.iter().filter(|one| one.0 == "latency_ns_bucket").collect();
    let (last, others) = buckets.split_last().expect("buckets");
    assert_eq!((&*last.1["le"], &*last.2), ("+Inf", "4000"));
    for (_, labels, value) in others {
        let bound: u64 = labels["le"].parse().expect("a number");
        assert_eq!(value, &(THREADS * (bound + 1).min(ROUNDS)).to_string());
    }
}
