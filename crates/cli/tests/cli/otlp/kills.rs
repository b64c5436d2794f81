//! Kills programs in several ways, and compares OTLP with their accounts: each event and span that
//! was recorded is there, with its values, ids and times, and no other is.
//!
//! `LASTWORDS_KILLS` is their number, `LASTWORDS_SEED` the first seed.

use super::account::{Deed, Value, read};
use super::child::{THREADS, account, died};
use super::{Decoded, decode, number};
use crate::support::Place;
use lastwords_testkit::random::Random;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Kills in `cargo test`: two of each way.
const IN_CI: u64 = 12;
/// The ways, each with how a session says that it ended, and the severity of the verdict.
const WAYS: [(&str, &str, i128); 6] = [
    ("kill", "killed", 21),
    ("abort", "signal", 21),
    ("fpe", "signal", 21),
    ("exit", "exit", 21),
    ("panic", "panic", 21),
    ("closed", "closed", 9),
];
/// How far the clock of a session and that of its program may differ, in nanoseconds.
const SLACK: i128 = 2_000_000;

#[test]
fn what_died_is_in_otlp_as_it_was() {
    let variable = |name| std::env::var(name).ok().and_then(|value: String| value.parse().ok());
    let kills: u64 = variable("LASTWORDS_KILLS").unwrap_or(IN_CI);
    let seed: u64 = variable("LASTWORDS_SEED").unwrap_or(1);
    let mut totals = [0; 4];
    // One run of Python decodes many files.
    for seeds in (seed..seed + kills).collect::<Vec<_>>().chunks(24) {
        let places: Vec<(u64, Place, u32)> = seeds.iter().map(|seed| killed(*seed)).collect();
        let files: Vec<_> = places.iter().map(|(_, place, _)| place.at("orders.otlp")).collect();
        for ((seed, place, pid), found) in places.iter().zip(decode(&files)) {
            let counts = judge(*seed, place, *pid, &found);
            totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        }
    }
    let [events, closed, open, unknown] = totals;
    println!(
        "{kills} kills: {events} events, {closed} closed and {open} open spans, {unknown} in flight"
    );
    assert!(events > 20 * kills && closed > kills && open > kills / 4, "{totals:?}");
}

fn way(seed: u64) -> (&'static str, &'static str, i128) {
    WAYS[(seed % WAYS.len() as u64) as usize]
}

/// A program that has died, and its recording as OTLP.
fn killed(seed: u64) -> (u64, Place, u32) {
    let place = Place::new();
    let (end, ..) = way(seed);
    let mut running = died(&place, &format!("{end} {seed}"));
    let pid = running.pid();
    if end == "kill" {
        std::thread::sleep(Duration::from_micros(Random(seed).below(20_000)));
        running.kill();
    } else {
        running.wait();
    }
    place.ok(&["convert", "orders", "-o", "orders.otlp"]);
    (seed, place, pid)
}

/// All that is known of the run of a program.
struct Run<'a> {
    seed: u64,
    deeds: BTreeMap<u64, Deed>,
    /// The log records and spans by their numbers.
    records: BTreeMap<u64, Vec<&'a Decoded>>,
    spans: BTreeMap<u64, Vec<&'a Decoded>>,
}

/// Compares what was found with the accounts. The numbers of events, of closed and open spans, and
/// of what was in flight.
fn judge(seed: u64, place: &Place, pid: u32, found: &[Decoded]) -> [u64; 4] {
    let deeds: BTreeMap<u64, Deed> =
        (0..THREADS).flat_map(|thread| read(&account(place.path(), thread))).collect();
    let mut run = Run { seed, deeds, records: BTreeMap::new(), spans: BTreeMap::new() };
    let mut verdicts = Vec::new();
    for one in found {
        resource(one, pid);
        let n = one.attribute("n").and_then(number).and_then(|n| u64::try_from(n).ok());
        match n {
            None if one.is_verdict() => verdicts.push(one),
            // The handlers recorded it.
            None => assert!(one.text("name").starts_with("crash:"), "seed {seed}: {one:?}"),
            Some(n) if one.is_span() => run.spans.entry(n).or_default().push(one),
            Some(n) => run.records.entry(n).or_default().push(one),
        }
    }
    let counts = run.judge();
    let [verdict] = verdicts.as_slice() else { panic!("seed {seed}: {verdicts:?}") };
    judge_verdict(seed, verdict, counts);
    counts
}

fn resource(one: &Decoded, pid: u32) {
    let text = |name: &str| one.resource(name).and_then(Json::as_str).unwrap_or_default();
    assert_eq!((text("service.name"), text("os.type")), ("orders", "linux"));
    assert_eq!(one.resource("process.pid"), Some(&json!(pid)));
    assert_eq!(text("service.instance.id").len(), 36, "{one:?}");
    let program = std::env::current_exe().expect("this program's file");
    assert_eq!(Some(text("process.executable.path")), program.to_str());
    let host = rustix::system::uname();
    assert_eq!(Some(text("host.name")), host.nodename().to_str().ok());
}

fn judge_verdict(seed: u64, verdict: &Decoded, [_, closed, open, _]: [u64; 4]) {
    let (_, ended, severity) = way(seed);
    let text = |name: &str| verdict.attribute(name).and_then(Json::as_str).unwrap_or_default();
    assert_eq!(text("lastwords.ended"), ended, "seed {seed}: {verdict:?}");
    assert_eq!(verdict.number("severity"), severity, "seed {seed}: {verdict:?}");
    assert_eq!(verdict.attribute("lastwords.losses"), Some(&json!(false)), "seed {seed}");
    let count = |name: &str| verdict.attribute(name).and_then(number);
    let expected = [closed, open].map(|count| Some(i128::from(count)));
    let found = ["closed", "open"].map(|name| count(&format!("lastwords.spans.{name}")));
    assert_eq!(found, expected, "seed {seed}: {verdict:?}");
    assert_eq!(count("lastwords.spans.without_begin"), Some(0), "seed {seed}");
    let body = verdict.text("body");
    let cause = match way(seed).0 {
        "abort" => "SIGABRT",
        "fpe" => "SIGFPE",
        "panic" => "the order has no items",
        "exit" => "exited with status 3",
        other => {
            if other == "kill" {
                "killed"
            } else {
                "exited with status 0"
            }
        }
    };
    assert!(body.starts_with("orders: ") && body.contains(cause), "seed {seed}: {body}");
}

/// Returns true if the attribute `share` has these digits. As a number it may be the neighbour of
/// what was written: the parser of JSON rounds.
fn is_shared(one: &Decoded, share: f64) -> bool {
    let attribute = format!("\"share\": {share:?}");
    [",", "}"].iter().any(|end| one.line.contains(&format!("{attribute}{end}")))
}

impl Run<'_> {
    fn judge(&self) -> [u64; 4] {
        let mut counts = [0; 4];
        let mut stacks: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut closes: BTreeMap<u64, &Deed> = BTreeMap::new();
        // What encloses each deed: the spans that its thread was in.
        let mut inside: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (n, deed) in &self.deeds {
            let stack = stacks.entry(n >> 32).or_default();
            if deed.what == "close" {
                closes.insert(stack.pop().expect("an open span"), deed);
                continue;
            }
            inside.insert(*n, stack.clone());
            if matches!(deed.what.as_str(), "order" | "charge") {
                stack.push(*n);
            }
        }
        let seed = self.seed;
        for (n, around) in &inside {
            let deed = &self.deeds[n];
            if matches!(deed.what.as_str(), "order" | "charge") {
                match self.judge_span(*n, deed, closes.get(n).copied(), around) {
                    Some(is_open) => counts[if is_open { 2 } else { 1 }] += 1,
                    None => counts[3] += 1,
                }
                continue;
            }
            let records = self.records.get(n).map_or(&[][..], Vec::as_slice);
            match records {
                [record] => {
                    self.judge_record(*n, deed, record, around);
                    counts[0] += 1;
                }
                [] if deed.done.is_none() => counts[3] += 1,
                _ => panic!("seed {seed}: {n} {deed:?} is {records:?}"),
            }
        }
        for n in self.records.keys().chain(self.spans.keys()) {
            assert!(inside.contains_key(n), "seed {seed}: {n} was never begun");
        }
        self.judge_traces(&inside);
        counts
    }

    /// The time is that of the deed.
    fn is_at(&self, deed: &Deed, time: i128) {
        let until = deed.done.map_or(i128::MAX, |(done, _)| done + SLACK);
        let seed = self.seed;
        assert!((deed.begun - SLACK..=until).contains(&time), "seed {seed}: {deed:?} at {time}");
    }

    /// The id of a span, in hexadecimal digits, if the program noted it.
    fn id(&self, n: u64) -> Option<String> {
        self.deeds[&n].done.map(|(_, id)| format!("{id:016x}"))
    }

    fn judge_record(&self, n: u64, deed: &Deed, record: &Decoded, around: &[u64]) {
        let seed = self.seed;
        let Value { big, cents, share, yes, user, .. } = Value::new(n);
        let (name, body, severity) = match deed.what.as_str() {
            "ready" => ("cli::otlp::child:ready", "ready".to_owned(), 9),
            "step" => ("cli::otlp::child:", format!("step {n} of {user}"), 13),
            _ => ("", format!("mark {n} of {user}"), 0),
        };
        assert!(record.text("name").starts_with(name), "seed {seed}: {record:?}");
        assert_eq!(record.text("body"), body, "seed {seed}");
        if severity > 0 {
            assert_eq!(record.number("severity"), severity, "seed {seed}: {record:?}");
        }
        let expected = match deed.what.as_str() {
            "ready" => vec![
                ("n", json!(n)),
                ("big", json!(big.to_string())),
                ("cents", json!(cents)),
                ("yes", json!(yes)),
                ("user", json!(user)),
            ],
            "step" => vec![("n", json!(n))],
            _ => vec![("n", json!(n)), ("user", json!(user))],
        };
        let has_share = deed.what == "ready";
        assert_eq!(is_shared(record, share), has_share, "seed {seed}: {share:?} in {record:?}");
        for (name, value) in expected {
            assert_eq!(record.attribute(name), Some(&value), "seed {seed}: {name} in {record:?}");
        }
        assert!(record.attribute("message").is_none(), "seed {seed}: {record:?}");
        self.is_at(deed, record.number("time"));
        // A mark is not an event of `tracing`.
        if deed.what != "mark" {
            let own = around.last().map_or(Some(String::new()), |span| self.id(*span));
            assert_eq!(Some(record.text("span").to_owned()), own, "seed {seed}: {record:?}");
            assert_eq!(record.text("trace").is_empty(), around.is_empty(), "seed {seed}");
        }
    }

    /// Compares a span. True if it was open at the end; none if it was in flight.
    fn judge_span(
        &self,
        n: u64,
        deed: &Deed,
        close: Option<&Deed>,
        around: &[u64],
    ) -> Option<bool> {
        let seed = self.seed;
        let found = self.spans.get(&n).map_or(&[][..], Vec::as_slice);
        let opening = self.records.get(&n).map_or(0, Vec::len);
        let [span] = found else {
            assert!(found.is_empty() && deed.done.is_none(), "seed {seed}: {deed:?}: {found:?}");
            assert!(opening <= 1, "seed {seed}: {deed:?}");
            return None;
        };
        assert_eq!(opening, 0, "seed {seed}: the opening of {span:?} is a record, too");
        let Value { cents, share, yes, user, trace, .. } = Value::new(n);
        assert_eq!(span.text("name"), format!("cli::otlp::child::{}", deed.what), "seed {seed}");
        let expected = match deed.what.as_str() {
            "order" => vec![
                ("n", Some(json!(n))),
                ("user", Some(json!(user))),
                ("trace_id", trace.map(|trace| json!(trace))),
            ],
            _ => vec![
                ("n", Some(json!(n))),
                ("cents", Some(json!(cents))),
                ("yes", Some(json!(yes))),
            ],
        };
        let has_share = deed.what == "order";
        assert_eq!(is_shared(span, share), has_share, "seed {seed}: {share:?} in {span:?}");
        for (name, value) in expected {
            assert_eq!(span.attribute(name), value.as_ref(), "seed {seed}: {name} in {span:?}");
        }
        assert_eq!(span.number("span_kind"), 1);
        if let Some(id) = self.id(n) {
            assert_eq!(span.text("span"), id, "seed {seed}: {span:?}");
        }
        let parent = around.last().map_or(Some(String::new()), |parent| self.id(*parent));
        assert_eq!(Some(span.text("parent").to_owned()), parent, "seed {seed}: {span:?}");
        let (begin, end) = (span.number("time"), span.number("end"));
        self.is_at(deed, begin);
        assert!(begin <= end, "seed {seed}: {span:?}");
        let is_open = span.attribute("lastwords.open") == Some(&json!(true));
        match close {
            Some(close) if !is_open => self.is_at(close, end),
            None => assert!(is_open, "seed {seed}: {span:?} was not closed"),
            Some(close) => assert!(close.done.is_none(), "seed {seed}: {span:?} was closed"),
        }
        let status = if is_open { 2 } else { 0 };
        assert_eq!(span.number("status"), status, "seed {seed}: {span:?}");
        Some(is_open)
    }

    /// What is in the same outermost span has the same trace, and nothing else has.
    fn judge_traces(&self, inside: &BTreeMap<u64, Vec<u64>>) {
        let seed = self.seed;
        let mut roots: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
        for (n, around) in inside {
            let own = [&self.records, &self.spans].map(|of| of.get(n)).into_iter().flatten();
            for one in own.flatten().filter(|one| !one.text("trace").is_empty()) {
                let root = around.first().copied().unwrap_or(*n);
                roots.entry(root).or_default().insert(one.text("trace"));
            }
        }
        let mut all = BTreeSet::new();
        for (root, traces) in &roots {
            assert_eq!(traces.len(), 1, "seed {seed}: {root} has {traces:?}");
            let trace = *traces.first().expect("one");
            assert!(all.insert(trace), "seed {seed}: {trace} has several roots");
            if let Some(recorded) = Value::new(*root).trace {
                assert_eq!(trace, recorded, "seed {seed}");
            }
        }
    }
}
