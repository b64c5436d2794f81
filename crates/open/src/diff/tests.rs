//! Runs of generated programs, with and without a planted divergence. Each is found, and nothing
//! else is reported.

use super::run::Seen;
use super::*;
use lastwords_render::spans::Step;
use lastwords_testkit::random::Random;

const MILLISECOND: i64 = 1_000_000;
/// Seeds of each kind.
const SEEDS: u64 = 200;
const SPANS: [&str; 3] = ["app::charge", "app::load", "app::store"];

/// What a thread does.
#[derive(Clone)]
enum Act {
    Event(String),
    /// A span of this name with events inside, which takes these milliseconds.
    Span(usize, Vec<String>, i64),
    /// A span that is never closed.
    Open(usize),
}

/// A program: what each of its threads does.
type Program = Vec<(Option<&'static str>, Vec<Act>)>;

fn program(random: &mut Random) -> Program {
    let names = [Some("main"), Some("worker"), Some("worker"), None];
    let mut act = |thread: usize| match random.below(4) {
        0 => {
            let inside = (0..random.below(3)).map(|n| format!("app:inside{n}")).collect();
            Act::Span(random.below(3) as usize, inside, 2)
        }
        // Threads of one name do different things.
        _ => Act::Event(format!("app:e{}", random.below(8) + thread as u64 % 2)),
    };
    let mut thread = |at: usize| (names[at], (0..300).map(|_| act(at)).collect());
    (0..names.len()).map(&mut thread).collect()
}

/// Runs a program: the threads take turns as it comes, and each step takes some time.
fn run(program: &Program, names: &mut Names, random: &mut Random) -> Run {
    let mut run = Run::default();
    let (mut time, mut span) = (1_700_000_000_000 * MILLISECOND, 0);
    let mut left: Vec<(usize, std::slice::Iter<'_, Act>)> =
        program.iter().map(|(_, acts)| acts.iter()).enumerate().collect();
    while !left.is_empty() {
        let at = random.below(left.len() as u64) as usize;
        let thread = left[at].0;
        let Some(act) = left[at].1.next() else {
            drop(left.remove(at));
            continue;
        };
        let mut put =
            |names: &mut Names, time: i64, name: &str, span: Option<(Step, &str, u64)>| {
                let span = span.map(|(step, name, id)| (step, names.number(name), id));
                let (name, tid) = (names.number(name), Some(100 + thread as i64));
                let seen = Seen {
                    trace: 0,
                    time: Some(time),
                    pid: Some(100),
                    tid,
                    thread: program[thread].0,
                    name,
                    span,
                };
                run.record(&seen);
            };
        time += 1 + random.below(MILLISECOND as u64) as i64;
        match act {
            Act::Event(name) => put(names, time, name, None),
            Act::Span(which, inside, long) => {
                span += 1;
                let name = SPANS[*which];
                put(names, time, &format!("span:new {name}"), Some((Step::New, name, span)));
                inside.iter().for_each(|event| put(names, time, event, None));
                time += long * MILLISECOND + random.below(MILLISECOND as u64) as i64;
                put(names, time, &format!("span:close {name}"), Some((Step::Close, name, span)));
            }
            Act::Open(which) => {
                span += 1;
                let name = SPANS[*which];
                put(names, time, &format!("span:new {name}"), Some((Step::New, name, span)));
            }
        }
    }
    run
}

/// The divergences that are planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// An event that the good run does not have.
    Extra,
    /// All events of a name are gone.
    Gone,
    /// An event of a thread has another name.
    Changed,
    /// A thread stops.
    Stops,
    NeverEnds,
    Slow,
    /// An event comes many times more often.
    Often,
}

/// Plants a divergence into a copy of a program. Returns it with the thread that has it.
fn plant(planted: Planted, good: &Program, random: &mut Random) -> (Program, usize) {
    let (mut bad, thread) = (good.clone(), random.below(4) as usize);
    let acts = &mut bad[thread].1;
    let at = random.below(acts.len() as u64 - 1) as usize;
    let event = |name: &str| Act::Event(name.to_owned());
    let slow = |act: &mut Act| {
        if let Act::Span(1, _, long) = act {
            *long = 9;
        }
    };
    match planted {
        Planted::Nothing => {}
        Planted::Extra => acts.insert(at, event("app:planted")),
        Planted::Changed => acts[at] = event("app:e9999"),
        Planted::Stops => acts.truncate(at),
        Planted::NeverEnds => acts.insert(at, Act::Open(0)),
        Planted::Often => {
            (0..60).for_each(|_| acts.insert(at, event("app:rare")));
        }
        Planted::Slow => bad.iter_mut().flat_map(|(_, acts)| acts).for_each(slow),
        Planted::Gone => {
            let is_other = |act: &Act| !matches!(act, Act::Event(name) if name == "app:rare");
            bad.iter_mut().for_each(|(_, acts)| acts.retain(is_other));
        }
    }
    (bad, thread)
}

/// Returns the findings of a comparison in words.
fn findings(diff: &Diff) -> Vec<String> {
    let events =
        diff.events.iter().filter_map(|row| Some(format!("{:?} {}", row.finding?, row.name)));
    let threads =
        diff.threads.diverged.iter().map(|own| format!("{:?} {:?}", own.how, own.bad_tid));
    let open =
        diff.spans.iter().filter(|row| row.never_ended).map(|row| format!("open {}", row.name));
    let slow = diff.spans.iter().filter_map(|row| Some(format!("{:?} {}", row.slower?, row.name)));
    events.chain(threads).chain(open).chain(slow).collect()
}

fn compared(planted: Planted, seed: u64) -> (Vec<String>, usize) {
    let mut random = Random(seed);
    let mut good = program(&mut random);
    // An event that each thread has a few times.
    for (_, acts) in &mut good {
        (0..3).for_each(|_| acts.insert(random.below(200) as usize, Act::Event("app:rare".into())));
    }
    let (bad, thread) = plant(planted, &good, &mut random);
    let mut names = Names::default();
    let [good, bad] = [good, bad].map(|program| run(&program, &mut names, &mut random));
    let diff = Diff::new(&names, &good, &bad);
    assert_eq!(diff.range, Range::Whole);
    assert_eq!(diff.is_same(), findings(&diff).is_empty());
    (findings(&diff), thread)
}

#[test]
fn planted_divergences_are_found_and_nothing_else_is() {
    use Planted::{Changed, Extra, Gone, NeverEnds, Nothing, Often, Slow, Stops};
    let mut table = Vec::new();
    for planted in [Nothing, Extra, Gone, Changed, Stops, NeverEnds, Slow, Often] {
        let (mut found, mut false_alarms, mut examples) = (0, 0, Vec::new());
        for seed in 0..SEEDS {
            let (findings, thread) = compared(planted, seed);
            let of_thread = format!("Some({})", 100 + thread);
            let is_planted = |finding: &str| match planted {
                Nothing => false,
                Extra => finding == "OnlyBad app:planted" || finding.ends_with(&of_thread),
                Gone => finding == "OnlyGood app:rare" || finding.starts_with("Differs"),
                Changed => finding == "OnlyBad app:e9999" || finding.ends_with(&of_thread),
                Stops => finding == format!("BadEnds {of_thread}"),
                NeverEnds => finding == "open app::charge" || finding.ends_with(&of_thread),
                Slow => finding == "Slower app::load",
                Often => finding == "MoreFrequent app:rare" || finding.ends_with(&of_thread),
            };
            // The part that is not the divergence of a thread, if there is one.
            let wanted = match planted {
                Nothing => None,
                Extra => Some("OnlyBad app:planted".to_owned()),
                Gone => Some("OnlyGood app:rare".to_owned()),
                Changed => Some(format!("Differs {of_thread}")),
                Stops => Some(format!("BadEnds {of_thread}")),
                NeverEnds => Some("open app::charge".to_owned()),
                Slow => Some("Slower app::load".to_owned()),
                Often => Some("MoreFrequent app:rare".to_owned()),
            };
            let has = |wanted: &String| findings.contains(wanted);
            found += u64::from(wanted.as_ref().is_none_or(has));
            let other: Vec<&String> = findings.iter().filter(|own| !is_planted(own)).collect();
            false_alarms += other.len();
            if !other.is_empty() || !wanted.as_ref().is_none_or(has) {
                examples.push(format!("seed {seed}: {findings:?}"));
            }
        }
        let row = format!("{planted:?}: {found} of {SEEDS} found, {false_alarms} false alarms");
        println!("{row}");
        table.push((row, found, false_alarms, examples));
    }
    for (row, found, false_alarms, examples) in &table {
        assert_eq!((*found, *false_alarms), (SEEDS, 0), "{row}\n{examples:#?}");
    }
}

#[test]
fn where_a_ring_has_overwritten_the_beginning_only_the_end_is_compared() {
    let mut random = Random(7);
    let program = program(&mut random);
    let mut names = Names::default();
    let [good, mut bad] = [(); 2].map(|()| run(&program, &mut names, &mut random));
    let (begin, end) = (bad.begin.unwrap(), bad.end.unwrap());
    let from = begin + (end - begin) / 2;
    bad.complete_from = Some(from);
    // The bad run has lost its first half.
    for thread in &mut bad.threads {
        thread.events.retain(|event| event.time.unwrap() >= from);
    }
    let diff = Diff::new(&names, &good, &bad);
    assert_eq!(diff.range, Range::Last((end - from) as u64));
    assert_eq!(findings(&diff), [""; 0]);
    assert!(diff.threads.not_compared.as_deref().unwrap().contains("the bad run"));
    assert!(!diff.bad.from_beginning && diff.good.from_beginning);
    assert!(diff.good.events < diff.good.all_events, "{:?}", diff.good);
    // Nothing of the bad run is without a gap.
    bad.complete_from = Some(end);
    let diff = Diff::new(&names, &good, &bad);
    assert_eq!((diff.range, findings(&diff)), (Range::Nothing, Vec::new()));
}

#[test]
fn an_event_that_may_be_lost_is_unknown() {
    let mut random = Random(3);
    let good = program(&mut random);
    let (bad, _) = plant(Planted::Extra, &good, &mut random);
    let mut names = Names::default();
    let [mut good, bad] = [good, bad].map(|program| run(&program, &mut names, &mut random));
    good.has_losses = true;
    let diff = Diff::new(&names, &good, &bad);
    let row = diff.events.iter().find(|row| row.name == "app:planted").unwrap();
    assert_eq!(row.finding, Some(Finding::Unknown));
    assert!(diff.threads.diverged.iter().all(|own| own.is_unsure));
}

#[test]
fn a_thread_without_its_counterpart_is_named() {
    let mut random = Random(5);
    let good = program(&mut random);
    let mut bad = good.clone();
    bad.remove(2);
    let mut names = Names::default();
    let [good, bad] = [good, bad].map(|program| run(&program, &mut names, &mut random));
    let diff = Diff::new(&names, &good, &bad);
    let unmatched = Unmatched { thread: Some("worker".into()), good: 1, bad: 0 };
    assert_eq!(diff.threads.unmatched, [unmatched]);
    assert_eq!((diff.threads.matched, diff.threads.same), (3, 3));
    assert_eq!(diff.threads.by_order, 2, "the other worker, and the thread without a name");
}
