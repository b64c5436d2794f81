//! Compares the sequences of events of threads.

use super::Range;
use super::run::{Names, Run, Thread};
use serde::Serialize;
use std::collections::BTreeMap;

/// Number of events of each run that are shown where sequences diverge.
const SHOWN: usize = 3;

/// How two sequences diverge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The runs have different events there.
    Differs,
    /// The bad run has no more events of the thread, the good run goes on.
    BadEnds,
    /// The good run has no more events of the thread, the bad run goes on.
    GoodEnds,
}

/// The place where the sequences of two threads diverge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The name of the thread; none if it is not known.
    pub thread: Option<String>,
    /// Its id in the good run.
    pub good_tid: Option<i64>,
    /// Its id in the bad run.
    pub bad_tid: Option<i64>,
    /// Number of events that are the same before.
    pub same: u64,
    /// How they diverge.
    pub how: How,
    /// Name of the last event that is the same; none if none is.
    pub after: Option<String>,
    /// Names of the next events of the good run.
    pub good: Vec<String>,
    /// Names of the next events of the bad run.
    pub bad: Vec<String>,
    /// Time of the next event of the bad run, or of its last, nanoseconds since the epoch as text.
    pub bad_time_ns: Option<String>,
    /// A run has lost events, so that a lost event may be the difference.
    pub is_unsure: bool,
}

/// Threads of one run that have no counterpart in the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmatched {
    /// The name of the threads; none if it is not known.
    pub thread: Option<String>,
    /// Number of such threads in the good run.
    pub good: u64,
    /// Number of such threads in the bad run.
    pub bad: u64,
}

/// The threads of two runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Threads {
    /// Why sequences are not compared; none if they are.
    pub not_compared: Option<String>,
    /// Number of threads that were matched.
    pub matched: u64,
    /// Number of them whose sequences are the same.
    pub same: u64,
    /// The first divergence of each of the others.
    pub diverged: Vec<Divergence>,
    /// Threads of which one run has more than the other.
    pub unmatched: Vec<Unmatched>,
    /// Number of matched threads whose names are not known, or that share their name with others.
    /// They are matched by their sequences, or else by the order of their first events.
    pub by_order: u64,
}

/// Compares the threads of two runs. They are matched by name; those of one name by equal
/// sequences first, and then in the order of their first events.
pub(super) fn compare(names: &Names, good: &Run, bad: &Run, range: Range) -> Threads {
    if range != Range::Whole {
        let which = match (good.complete_from, bad.complete_from) {
            (Some(_), Some(_)) => "both runs",
            (Some(_), None) => "the good run",
            _ => "the bad run",
        };
        let why = format!("the beginning of {which} is overwritten: sequences cannot be aligned");
        return Threads { not_compared: Some(why), ..Threads::default() };
    }
    let (good_groups, bad_groups) = (groups(good), groups(bad));
    let mut threads = Threads::default();
    let all: std::collections::BTreeSet<&Option<&str>> =
        good_groups.keys().chain(bad_groups.keys()).collect();
    for name in all {
        let empty = Vec::new();
        let in_good = good_groups.get(name).unwrap_or(&empty);
        let in_bad = bad_groups.get(name).unwrap_or(&empty);
        let pairs = matched(in_good, in_bad);
        let count = pairs.len();
        if name.is_none() || in_good.len() > 1 || in_bad.len() > 1 {
            threads.by_order = threads.by_order.saturating_add(count as u64);
        }
        threads.matched = threads.matched.saturating_add(count as u64);
        let is_unsure = good.has_losses || bad.has_losses;
        for (one, other) in pairs {
            match divergence(names, one, other, is_unsure) {
                Some(divergence) => threads.diverged.push(divergence),
                None => threads.same = threads.same.saturating_add(1),
            }
        }
        let rest = |own: &[&Thread]| own.len().saturating_sub(count) as u64;
        let (good, bad) = (rest(in_good), rest(in_bad));
        if good > 0 || bad > 0 {
            let thread = name.map(str::to_owned);
            threads.unmatched.push(Unmatched { thread, good, bad });
        }
    }
    // Where the runs have different events says more than where one ends.
    threads.diverged.sort_by_key(|own| own.how != How::Differs);
    threads
}

/// Returns the threads by name, each in the order of their first events. Events of no known thread
/// are left out.
fn groups(run: &Run) -> BTreeMap<Option<&str>, Vec<&Thread>> {
    let mut groups: BTreeMap<Option<&str>, Vec<&Thread>> = BTreeMap::new();
    for thread in run.threads.iter().filter(|thread| thread.tid.is_some()) {
        groups.entry(thread.name.as_deref()).or_default().push(thread);
    }
    groups
}

/// Says whether two threads match.
type Rule<'r> = &'r dyn Fn(&Thread, &Thread) -> bool;

/// Matches threads of one name: first those whose sequences are the same, then those of which one
/// sequence begins with the other, then the others in order.
fn matched<'t>(good: &[&'t Thread], bad: &[&'t Thread]) -> Vec<(&'t Thread, &'t Thread)> {
    let (mut good, mut bad, mut pairs) = (good.to_vec(), bad.to_vec(), Vec::new());
    let is_same = |one: &Thread, other: &Thread| {
        one.events.len() == other.events.len() && common(one, other) == one.events.len()
    };
    let is_begin = |one: &Thread, other: &Thread| {
        common(one, other) == one.events.len().min(other.events.len())
    };
    let rules: [Rule<'_>; 3] = [&is_same, &is_begin, &|_, _| true];
    for rule in rules {
        good.retain(|one| match bad.iter().position(|other| rule(one, other)) {
            Some(at) => {
                pairs.push((*one, bad.remove(at)));
                false
            }
            None => true,
        });
    }
    pairs
}

/// Returns the number of events that are the same at the beginning of two sequences.
fn common(one: &Thread, other: &Thread) -> usize {
    let pairs = one.events.iter().zip(&other.events);
    pairs.take_while(|(one, other)| one.name == other.name).count()
}

fn divergence(names: &Names, good: &Thread, bad: &Thread, is_unsure: bool) -> Option<Divergence> {
    let same = common(good, bad);
    let next = |thread: &Thread| -> Vec<String> {
        let next = thread.events.iter().skip(same).take(SHOWN);
        next.map(|event| names.text(event.name).to_owned()).collect()
    };
    let (in_good, in_bad) = (next(good), next(bad));
    let how = match (in_good.is_empty(), in_bad.is_empty()) {
        (true, true) => return None,
        (false, false) => How::Differs,
        (false, true) => How::BadEnds,
        (true, false) => How::GoodEnds,
    };
    let before = same.checked_sub(1).and_then(|at| good.events.get(at));
    let time = bad.events.get(same).or(bad.events.last()).and_then(|event| event.time);
    Some(Divergence {
        thread: good.name.clone(),
        good_tid: good.tid,
        bad_tid: bad.tid,
        same: same as u64,
        how,
        after: before.map(|event| names.text(event.name).to_owned()),
        good: in_good,
        bad: in_bad,
        bad_time_ns: time.map(|time| time.to_string()),
        is_unsure,
    })
}
