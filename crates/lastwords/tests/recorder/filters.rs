//! Tests filters of rules: which events are recorded, by code that shares nothing with the
//! expressions' own.
#![allow(missing_docs, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::common;
use crate::common::{child_dir, folder, plain, spawn, wait_for};
use lastwords::rules::RuleSpec;
use lastwords::{ChannelConfig, Context, Reservation, Session, event, event_enabled};
use lastwords_control::Handle;
use lastwords_testkit::random::{Random, seed};

const PATHS: [&str; 6] = ["", "/", "/data/redis.rdb", "redis-server", "/data/ä/b", "a\0b"];

/// The values of an event.
#[derive(Debug, Clone)]
struct Shot {
    seq: u64,
    /// The event has only `seq` and `delta`.
    is_short: bool,
    bytes: u32,
    delta: i64,
    ratio: f32,
    ok: bool,
    path: String,
    list: Vec<u16>,
}

impl Shot {
    fn new(seq: u64) -> Self {
        let mut random = Random(seq);
        let path = (*random.pick(&PATHS)).to_owned();
        // Some payloads are longer than each of the buffers that a filter reads them from.
        // Long ones have no NUL: see `a_long_text_in_pieces_is_recorded`.
        let long = if path.contains('\0') { 300 } else { 3000 };
        let path = path + &"x".repeat(*random.pick(&[0, 0, 0, 0, 20, 300, long]));
        Self {
            seq,
            is_short: random.below(5) == 0,
            bytes: *random.pick(&[0, 1, 4095, 4096, 4097, u32::MAX]),
            delta: *random.pick(&[i64::MIN, -5, -1, 0, 1, 7, i64::MAX]),
            ratio: *random.pick(&[0.0, -0.5, 0.5, 1.5, f32::NAN]),
            ok: random.below(2) == 0,
            path,
            list: (0..random.below(4)).map(|_| *random.pick(&[0, 1, 2, 700])).collect(),
        }
    }

    fn record(&self) {
        let Self { seq, bytes, delta, ratio, ok, path, list, .. } = self;
        if self.is_short {
            event!(shop, "short", level: WARN, seq, delta);
        } else {
            event!(shop, "item", seq, bytes, list, delta, ratio, ok, path);
        }
    }

    /// Returns the text as it is recorded.
    fn recorded_path(&self) -> String {
        self.path.replace('\0', "\u{1a}")
    }
}

/// The thread that records.
#[derive(Debug, Clone, Default)]
struct Thread {
    pid: u32,
    tid: u32,
    name: String,
}

impl Thread {
    fn current() -> Self {
        // SAFETY: the call has no arguments.
        let tid = unsafe { libc::gettid() } as u32;
        let name =
            std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).expect("its name");
        Self { pid: std::process::id(), tid, name: name.trim_end().to_owned() }
    }
}

type Judge = Box<dyn Fn(&Shot) -> Option<bool>>;

/// An expression, and code of this test that says for which events it is true; none for unknown.
struct Expr {
    text: String,
    judge: Judge,
}

fn leaf(text: impl Into<String>, judge: impl Fn(&Shot) -> Option<bool> + 'static) -> Expr {
    Expr { text: text.into(), judge: Box::new(judge) }
}

/// A leaf on a field that short events lack.
fn field(text: impl Into<String>, judge: impl Fn(&Shot) -> bool + 'static) -> Expr {
    leaf(text, move |shot| (!shot.is_short).then(|| judge(shot)))
}

fn condition(random: &mut Random, thread: &Thread) -> Expr {
    let number = *random.pick(&[0u32, 1, 4095, 4096]);
    let (delta, element) = (*random.pick(&[-1i64, 0, 7, i64::MAX]), *random.pick(&[0u16, 2, 700]));
    let (at, prefix) = (random.below(4) as usize, *random.pick(&["", "/", "/data", "redis", "ä"]));
    let me = thread.clone();
    match random.below(20) {
        0 => field(format!("bytes > {number}"), move |shot| shot.bytes > number),
        1 => field(format!("bytes <= {number:#x}"), move |shot| shot.bytes <= number),
        2 => field("(bytes & 3) == 1", |shot| shot.bytes & 3 == 1),
        3 => leaf(format!("delta < {delta}"), move |shot| Some(shot.delta < delta)),
        4 => leaf(format!("delta == {delta}"), move |shot| Some(shot.delta == delta)),
        5 => field("ratio > 0.25", |shot| shot.ratio > 0.25),
        6 => field("ratio != 0.5", |shot| shot.ratio != 0.5),
        7 => field("ok", |shot| shot.ok),
        8 => field("path == \"/data/redis.rdb\"", |shot| shot.path == "/data/redis.rdb"),
        9 => field(format!("path ~ \"{prefix}*\""), move |shot| shot.path.starts_with(prefix)),
        10 => field("path !~ \"*x\"", |shot| !shot.path.ends_with('x')),
        11 => field("path == \"a\\x1ab\"", |shot| shot.recorded_path() == "a\u{1a}b"),
        12 => leaf(format!("list[{at}] == {element}"), move |shot| {
            shot.list.get(at).filter(|_| !shot.is_short).map(|found| *found == element)
        }),
        13 => leaf(format!("tid == {}", me.tid), |_| Some(true)),
        14 => leaf(format!("$ctx.vpid != {}", me.pid), |_| Some(false)),
        15 => leaf(format!("comm == \"{}\"", me.name), |_| Some(true)),
        16 => leaf("level <= 4", |shot| Some(shot.is_short)),
        17 => leaf("level == \"warn\" || event == \"shop:short\"", |shot| Some(shot.is_short)),
        18 => leaf("channel == \"main\" && cpu < 100000", |_| Some(true)),
        _ => leaf("missing == 1", |_| None),
    }
}

/// Returns an expression of some depth. The judge has the three values of Kleene's logic.
fn expression(random: &mut Random, thread: &Thread, depth: u64) -> Expr {
    if depth == 0 {
        return condition(random, thread);
    }
    let left = expression(random, thread, depth - 1);
    match random.below(4) {
        0 => Expr {
            text: format!("!({})", left.text),
            judge: Box::new(move |shot| (left.judge)(shot).map(|is| !is)),
        },
        1 => left,
        which => {
            let right = expression(random, thread, depth - 1);
            let (is_or, operator) = if which == 2 { (true, "||") } else { (false, "&&") };
            let text = format!("({}) {operator} ({})", left.text, right.text);
            let judge = move |shot: &Shot| match ((left.judge)(shot), (right.judge)(shot)) {
                (Some(a), _) | (_, Some(a)) if a == is_or => Some(is_or),
                (Some(_), Some(_)) => Some(!is_or),
                _ => None,
            };
            Expr { text, judge: Box::new(judge) }
        }
    }
}

/// Returns the payloads of each channel by their `seq`.
fn recorded(folder: &Path) -> [BTreeMap<u64, Vec<u8>>; 2] {
    let session = common::read(folder);
    let mut channels = [BTreeMap::new(), BTreeMap::new()];
    for (stream, event) in session.events() {
        let channel = session.streams[stream as usize].channel as usize;
        let seq = event
            .body
            .first_chunk::<8>()
            .map(|bytes| u64::from_ne_bytes(*bytes))
            .expect("a number in front");
        assert_eq!(channels[channel].insert(seq, event.body), None, "{seq} is there twice");
    }
    channels
}

/// Makes a session with two channels: a filter is for the first.
fn begin(dir: &Path, reservation: Option<Reservation>) -> Session {
    let channel = |name| plain(name).sub_buffers(16, 1 << 20);
    let mut builder =
        Session::builder("filters").dir(dir).channel(channel("main")).channel(channel("all"));
    builder = reservation.into_iter().fold(builder, lastwords::Builder::reservation);
    builder.start().expect("it starts")
}

fn filtered(filter: &str) -> RuleSpec {
    RuleSpec::enable("shop:*").in_channel(0).with_filter(filter)
}

/// Compares what is in both channels with what the judges say. `rounds` has the first number of
/// each round.
fn check(folder: &Path, expressions: &[Expr], events: u64) {
    let [main, all] = recorded(folder);
    let (mut taken, mut refused, mut unknown) = (0, 0, 0);
    for (round, expression) in expressions.iter().enumerate() {
        for seq in round as u64 * events..(round as u64 + 1) * events {
            let shot = Shot::new(seq);
            let result = (expression.judge)(&shot);
            let is_there = main.get(&seq);
            assert_eq!(
                is_there.is_some(),
                result == Some(true),
                "{:?} of {shot:?} is {result:?}",
                expression.text
            );
            assert!(all.contains_key(&seq), "the channel without a filter has {seq}");
            assert!(
                is_there.is_none_or(|body| all[&seq] == *body),
                "{seq} has the same values in both"
            );
            match result {
                Some(true) => taken += 1,
                Some(false) => refused += 1,
                None => unknown += 1,
            }
        }
    }
    assert_eq!(all.len() as u64, expressions.len() as u64 * events);
    assert!(taken > 50 && refused > 50 && unknown > 20, "{taken} {refused} {unknown}");
    assert_eq!(common::lost(folder), 0, "events that a filter refuses are not lost");
}

const EVENTS: u64 = 60;

#[test]
fn generated_filters_take_the_events_for_which_they_are_true() {
    alone!();
    let seed = seed();
    let mut random = Random(seed);
    for reservation in [Reservation::Rseq, Reservation::Lockless, Reservation::Locked] {
        if reservation == Reservation::Rseq && !lastwords::rseq_available() {
            continue;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let session = begin(dir.path(), Some(reservation));
        let expressions: Vec<Expr> = (0..30)
            .map(|_| {
                let depth = random.below(4);
                expression(&mut random, &Thread::current(), depth)
            })
            .collect();
        for (round, expression) in expressions.iter().enumerate() {
            session.rule(&filtered(&expression.text)).expect("a rule");
            (0..EVENTS)
                .map(|at| Shot::new(round as u64 * EVENTS + at))
                .for_each(|shot| shot.record());
        }
        check(&folder(&session), &expressions, EVENTS);
        session.remove();
    }
}

const ROUNDS: u64 = 12;

/// Records a round each time that the rule for `probe:turn` changes.
#[test]
fn child_that_records_by_rounds() {
    let Some(dir) = child_dir() else { return };
    // A change of rules reaches callsites newest first, so that this one, the oldest, is the last.
    let is_on = || event_enabled!("probe", "turn");
    is_on();
    let session = begin(&dir, None);
    std::fs::write(dir.join("ready"), folder(&session).to_str().expect("a path")).expect("written");
    for round in 0..ROUNDS {
        wait_for("the next round", || is_on() != round.is_multiple_of(2));
        (0..EVENTS).map(|at| Shot::new(round * EVENTS + at)).for_each(|shot| shot.record());
        std::fs::write(dir.join(format!("done-{round}")), "").expect("written");
    }
    // The session stays for the parent.
    session.close();
}

#[test]
fn another_process_changes_the_filter_at_run_time() {
    alone!(in dir);
    let mut child = spawn("child_that_records_by_rounds", dir.path(), &[]);
    wait_for("the child", || {
        std::fs::read(dir.path().join("ready")).is_ok_and(|path| !path.is_empty())
    });
    let session = std::fs::read_to_string(dir.path().join("ready")).expect("a path");
    let handle = Handle::open(Path::new(&session)).expect("it opens");
    let seed = seed();
    let mut random = Random(seed);
    let mut expressions = Vec::new();
    for round in 0..ROUNDS {
        // Ids and names are the child's; the other tests have them.
        let expression = loop {
            let depth = random.below(3);
            let new = expression(&mut random, &Thread::default(), depth);
            if !["tid", "vpid", "comm"].iter().any(|name| new.text.contains(name)) {
                break new;
            }
        };
        handle.rule(&filtered(&expression.text)).expect("a rule");
        std::thread::sleep(Duration::from_millis(20));
        let probe = "probe:turn";
        let rule = if round.is_multiple_of(2) {
            RuleSpec::disable(probe)
        } else {
            RuleSpec::enable(probe)
        };
        handle.rule(&rule).expect("a rule");
        wait_for("the child's round", || dir.path().join(format!("done-{round}")).exists());
        expressions.push(expression);
    }
    assert!(child.wait().expect("it ends").success());
    check(Path::new(&session), &expressions, EVENTS);
}

#[test]
fn rules_without_a_filter_replace_those_with_one() {
    alone!(in dir);
    let session = begin(dir.path(), None);
    let number = |number: u64| event!(shop, "number", seq = number);
    session.rule(&RuleSpec::enable("shop:*").with_filter("seq >= 100")).expect("a rule");
    (98..102).for_each(number);
    session
        .rule(&RuleSpec::enable("shop:*").in_channel(0).with_filter("seq == 200 || nothing"))
        .expect("a rule");
    (199..202).for_each(number);
    let handle = Handle::open(&folder(&session)).expect("it opens");
    let rules = handle.summary().details.expect("details").rules;
    let filters: Vec<_> = rules.iter().map(|rule| rule.filter.as_deref()).collect();
    assert_eq!(filters, [Some("seq >= 100"), Some("seq == 200 || nothing")]);
    session.enable("*").expect("a rule");
    (300..302).for_each(number);
    let numbers =
        |channel: &BTreeMap<u64, Vec<u8>>| channel.keys().copied().collect::<BTreeSet<_>>();
    let [main, all] = recorded(&folder(&session));
    assert_eq!(numbers(&main), [100, 101, 200, 300, 301].into());
    assert_eq!(numbers(&all), [100, 101, 199, 200, 201, 300, 301].into());
    assert!(session.rule(&RuleSpec::enable("*").with_filter("a = 1")).is_err(), "no operator");
    assert!(
        session.rule(&RuleSpec::disable("*").with_filter("a == 1")).is_err(),
        "a disabling rule"
    );
    session.remove();
}

/// A payload of more than 2048 bytes is not copied for its filter. A text with a NUL is in pieces
/// there, because each NUL is replaced, and cannot be compared without memory for all of it.
#[test]
fn a_long_text_in_pieces_is_recorded() {
    alone!(in dir);
    let session = begin(dir.path(), None);
    session.rule(&filtered("path == \"other\" && seq < 10")).expect("a rule");
    for (seq, path) in
        [(0u64, "x".repeat(3000)), (1, format!("{}\0y", "x".repeat(3000))), (2, "x\0y".to_owned())]
    {
        event!(shop, "long", seq, path);
    }
    let [main, all] = recorded(&folder(&session));
    assert_eq!((main.into_keys().collect::<Vec<_>>(), all.len()), (vec![1], 3));
    session.remove();
}

#[test]
fn a_session_begins_with_filters_and_reads_contexts_of_the_application() {
    alone!(in dir);
    static SHARD: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    let shard = || SHARD.load(std::sync::atomic::Ordering::Relaxed);
    let context =
        |name, add: u16| lastwords::context::UserContext::new(name, move || shard() + add);
    let channel = ChannelConfig::new("main").contexts(Context::TID).context(context("other", 7));
    let builder =
        Session::builder("contexts").dir(dir.path()).channel(channel.context(context("shard", 0)));
    let session = builder
        .rule(RuleSpec::enable("shop:*").with_filter("$ctx.shard == 3 && other == 10"))
        .start();
    let session = session.expect("it starts");
    for number in 0..6u16 {
        SHARD.store(number, std::sync::atomic::Ordering::Relaxed);
        event!(shop, "sharded", seq = u64::from(number));
    }
    assert_eq!(common::events(&folder(&session)).len(), 1);
    session.remove();
    let wrong = Session::builder("wrong")
        .dir(dir.path())
        .rule(RuleSpec::enable("*").with_filter("("))
        .start();
    assert!(wrong.expect_err("no expression").to_string().contains("filter"));
}
