//! `counters --prometheus`, judged by the parser of Prometheus's own client (`prometheus.py`).

use crate::counters::{ROUNDS, THREADS, start};
use crate::support::{Place, ran};
use lastwords_testkit::counters::{Metrics, lows};
use lastwords_testkit::put::Order;
use lastwords_testkit::random::Random;
use lastwords_testkit::samples;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// The version of the package `prometheus-client`, which `cargo xtask setup` installs.
const VERSION: &str = "0.26.0";

/// A sample. Prometheus has all values as floats.
#[derive(Debug)]
struct Sample {
    kind: String,
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Sample {
    fn bound(&self) -> f64 {
        let bound = self.labels["le"].as_str();
        if bound == "+Inf" { f64::INFINITY } else { bound.parse().expect("a number") }
    }
}

/// The samples of a text, no two of one name and labels.
fn parsed(place: &Place, text: &str) -> Vec<Sample> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = folder.join("../../target/tools/prometheus-client").join(VERSION);
    let mut python = Command::new("python3");
    python.arg(folder.join("tests/prometheus.py")).env("PYTHONPATH", &package);
    let file = place.at("prometheus.txt");
    std::fs::write(&file, text).expect("a file");
    python.stdin(File::open(file).expect("a file"));
    let ran = ran(python.output().expect("python3 is needed: cargo xtask setup"));
    assert_eq!(ran.status, 0, "{} (prometheus-client {VERSION}: cargo xtask setup)", ran.err);
    let sample = |line: &str| {
        let object: Value = serde_json::from_str(line).expect("JSON");
        let word = |name: &str| object[name].as_str().expect("a text").to_owned();
        let labels = object["labels"].as_object().expect("labels").iter();
        let label = |(key, value): (&String, &Value)| {
            (key.clone(), value.as_str().expect("a text").to_owned())
        };
        Sample {
            kind: word("kind"),
            name: word("name"),
            labels: labels.map(label).collect(),
            value: object["value"].as_f64().expect("a number"),
        }
    };
    let samples: Vec<Sample> = ran.out.lines().map(sample).collect();
    let mut seen = BTreeSet::new();
    assert!(samples.iter().all(|one| seen.insert((&one.name, &one.labels))), "{samples:?}");
    let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let names = types.iter().map(|line| line.split(' ').nth(2)).collect::<BTreeSet<_>>();
    assert_eq!(names.len(), types.len(), "{types:?}");
    samples
}

/// The time of the numbers of an input with one session, in seconds since the epoch.
pub(crate) fn as_of_for_prometheus(place: &Place, input: &str) -> Option<f64> {
    let samples = parsed(place, &place.ok(&["counters", input, "--prometheus"]));
    let name = "lastwords_as_of_timestamp_seconds";
    let one = samples.iter().find(|sample| sample.name == name)?;
    assert_eq!((one.kind.as_str(), one.labels.len()), ("gauge", 1), "{one:?}");
    assert_eq!(one.labels["session"], "app");
    Some(one.value)
}

#[test]
fn the_text_for_prometheus_is_valid() {
    let place = Place::new();
    start(&place, "shm", "wait").kill();
    let samples = parsed(&place, &place.ok(&["counters", "app", "--prometheus"]));
    let find = |name: &str| samples.iter().find(|sample| sample.name == name).expect("a sample");
    assert!(samples.iter().all(|sample| sample.labels["session"] == "app"));
    // The parser gives the series of a counter this end.
    let requests = find("http_requests_total");
    assert_eq!((&*requests.labels["path"], requests.value), ("/a\\\"b\n", 4000.0));
    assert_eq!(
        (find("latency_ns_sum").value, find("latency_ns_count").value),
        (1_998_000.0, 4000.0)
    );
    // Each bucket has the values up to its bound.
    for sample in samples.iter().filter(|one| one.name == "latency_ns_bucket") {
        assert_eq!(sample.kind, "histogram");
        let values = (sample.bound() + 1.0).min(ROUNDS as f64);
        assert_eq!(sample.value, THREADS as f64 * values, "{sample:?}");
    }
    assert_eq!(samples.last().map(|_| find("latency_ns_bucket").labels.len()), Some(2));
}

/// Parts of names and labels: what is special in the format, names that it or we use, and other
/// characters.
const PARTS: [&str; 28] = [
    "a",
    "b",
    "_",
    "9",
    ".",
    "é",
    "\"",
    "\\",
    "\n",
    "{",
    "}",
    " ",
    "le",
    "session",
    "uuid",
    "#",
    "=",
    ",",
    "\r",
    "\t",
    "_total",
    "_bucket",
    "_count",
    "_sum",
    ":",
    "\u{1f600}",
    "\u{7f}",
    "exported_",
];

fn word(random: &mut Random, least: u64) -> String {
    (0..least + random.below(5)).map(|_| *random.pick(&PARTS)).collect()
}

/// A name with labels, as an entry has them, and as a key.
fn text(random: &mut Random) -> (String, (String, BTreeMap<String, String>)) {
    let name = word(random, 1);
    let labels: BTreeMap<_, _> =
        (0..random.below(4)).map(|_| (word(random, 1), word(random, 0))).collect();
    let text = labels.iter().fold(name.clone(), |text, (k, v)| format!("{text}\x1f{k}\x1f{v}"));
    (text, (name, labels))
}

/// Characters that are not allowed in a name become `_`.
fn is_name_of(shown: &str, name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let valid: String = name.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
    shown.trim_start_matches('_').starts_with(valid.trim_matches('_'))
        && shown.chars().all(is_allowed)
        && !shown.starts_with(|c: char| c.is_ascii_digit())
}

/// The series has the labels of the metric and the session, whatever their keys are.
fn has_labels(sample: &Sample, labels: &BTreeMap<String, String>) -> bool {
    let shown = sample.labels.iter().filter(|(key, _)| *key != "le");
    let mut shown: Vec<&str> = shown.map(|(_, value)| value.as_str()).collect();
    let mut expected: Vec<&str> = labels.values().map(String::as_str).chain(["small"]).collect();
    shown.sort_unstable();
    expected.sort_unstable();
    shown == expected
}

#[test]
fn generated_names_and_values_are_as_they_were_recorded() {
    let mut random = Random(20_261_130);
    let mut seen = BTreeSet::new();
    let mut texts = |n: usize| -> Vec<_> {
        let new = std::iter::repeat_with(|| text(&mut random));
        // The parser cuts `_total` off, and must have a name left.
        let new = new.filter(|(text, (name, _))| text.len() <= 176 && name != "_total");
        new.filter(|(_, key)| seen.insert(key.clone())).take(n).collect()
    };
    let (counters, histograms) = (texts(200), texts(40));
    // Each value is there once.
    let value = |n: usize| match n {
        0 => u64::MAX,
        1 => (1 << 53) - 1,
        _ => n as u64,
    };
    let values = |n: usize| -> Vec<u64> {
        let mut random = Random(n as u64);
        (0..=n).map(|_| random.bits() >> (12 + random.below(52))).chain([lows()[n * 12]]).collect()
    };
    let mut sample = samples::small(Order::Little);
    let named = |(n, (text, _)): (usize, &(String, _))| (text.clone(), value(n));
    let filled = |(n, (text, _)): (usize, &(String, _))| (text.clone(), values(n));
    sample.metrics = Some(Metrics {
        room: [256, 64],
        counters: counters.iter().enumerate().map(named).collect(),
        histograms: histograms.iter().enumerate().map(filled).collect(),
        lost: [0, 0],
    });
    let place = Place::new();
    sample.image().write_folder(&place.at("made")).expect("a folder");

    let data = place.json(&["counters", "made", "--json"]);
    let shown = data["sessions"][0]["counters"].as_array().expect("counters");
    let mut expected: Vec<Value> = counters
        .iter()
        .enumerate()
        .map(|(n, (_, (name, labels)))| json!({"name": name, "labels": labels, "value": value(n)}))
        .collect();
    let key = |one: &Value| one["value"].as_u64();
    expected.sort_by_key(key);
    let mut shown = shown.clone();
    shown.sort_by_key(key);
    assert_eq!(shown, expected);

    let text = place.ok(&["counters", "made", "--prometheus"]);
    assert!(text.lines().any(|line| line.ends_with(" 18446744073709551615")));
    let samples = parsed(&place, &text);
    for (n, (_, (name, labels))) in counters.iter().enumerate() {
        let is_it = |one: &&Sample| one.kind == "counter" && one.value == value(n) as f64;
        let found: Vec<_> = samples.iter().filter(is_it).collect();
        let [one] = found.as_slice() else { panic!("{name:?}: {found:?}") };
        assert!(is_name_of(&one.name, name) && has_labels(one, labels), "{name:?}: {one:?}");
    }
    let counts =
        samples.iter().filter(|one| one.kind == "histogram" && !one.labels.contains_key("le"));
    let counts: Vec<&Sample> = counts.filter(|one| !one.name.ends_with("_sum")).collect();
    assert_eq!(counts.len(), histograms.len());
    for (n, (_, (name, labels))) in histograms.iter().enumerate() {
        let values = values(n);
        let is_it = |one: &&&Sample| one.value == values.len() as f64;
        let one = counts.iter().find(is_it).expect("a count");
        assert!(is_name_of(&one.name, name) && has_labels(one, labels), "{name:?}: {one:?}");
        let family = one.name.strip_suffix("_count").expect("a count");
        let of = |end: &str| -> Vec<&Sample> {
            let is_it = |s: &&Sample| s.name == format!("{family}{end}") && has_labels(s, labels);
            samples.iter().filter(is_it).collect()
        };
        let buckets = of("_bucket");
        for bucket in &buckets {
            let below = values.iter().filter(|value| **value as f64 <= bucket.bound()).count();
            assert_eq!(bucket.value, below as f64, "{bucket:?}");
        }
        assert!(buckets.iter().any(|bucket| bucket.bound().is_infinite()), "{family}");
        assert!(buckets.is_sorted_by_key(|bucket| bucket.bound()), "{family}");
    }
}
