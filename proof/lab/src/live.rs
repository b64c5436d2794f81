//! The truth of a kernel that died tracing: what it printed itself by `ftrace_dump_on_oops`
//! (`ftrace_dump` in kernel/trace/trace.c): the latency format, `comm` cut to 8 characters, times
//! in microseconds, long lines cut.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::compare::{Ours, Rows};
use super::dump::Dump;

/// Characters of a line that both have for sure.
const KEPT: usize = 900;

/// An event, as far as both texts have it: task (8 characters), pid, CPU, time (µs), text.
type Event = (String, String, u32, u64, String);

/// Compares the events of each array that the kernel printed.
pub(super) fn compare(rows: &mut Rows, ours: &Ours<'_>, dump: &Dump, console: &str) -> Result<()> {
    let printed = printed(console);
    ensure!(
        printed.contains_key("top"),
        "the console has no `Dumping ftrace buffer`: nothing to compare with"
    );
    for (array, events) in printed {
        ensure!(
            array != "top" || events.len() > 100,
            "the kernel printed {} events of its rings",
            events.len()
        );
        let what = format!("{} {array} events", dump.format);
        let text = match ours.run("report", dump, &["--instance", &array]) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => {
                rows.row(false, &what, &format!("{error:#}"));
                continue;
            }
        };
        let got: Vec<Event> = text.lines().filter_map(reported).collect();
        let (missing, first) = without(&events, &got);
        let (invented, other) = without(&got, &events);
        let detail = format!(
            "{} events; the kernel printed {}, missing {missing}, invented {invented}",
            got.len(),
            events.len()
        );
        rows.row(missing == 0 && invented == 0, &what, &detail);
        for event in [first, other].into_iter().flatten() {
            println!("      {event:?}");
        }
    }
    Ok(())
}

/// How many of `these` are not among `those`, each counted as often as it is there, and the first
/// of them.
fn without<'a>(these: &'a [Event], those: &[Event]) -> (usize, Option<&'a Event>) {
    let mut left: BTreeMap<&Event, usize> = BTreeMap::new();
    for event in those {
        *left.entry(event).or_default() += 1;
    }
    let (mut count, mut first) = (0, None);
    for event in these {
        match left.get_mut(event) {
            Some(n) if *n > 0 => *n -= 1,
            _ => {
                count += 1;
                first = first.or(Some(event));
            }
        }
    }
    (count, first)
}

/// The events that the kernel printed, by array.
fn printed(console: &str) -> BTreeMap<String, Vec<Event>> {
    let mut arrays: BTreeMap<String, Vec<Event>> = BTreeMap::new();
    let mut array = None;
    for line in console.lines() {
        let Some((_, text)) = line.split_once("] ") else { continue };
        if let Some(rest) = text.strip_prefix("Dumping ftrace ") {
            let name = rest.strip_prefix("instance ").and_then(|r| r.split(' ').next());
            let name = name.unwrap_or("top").to_string();
            arrays.entry(name.clone()).or_default();
            array = Some(name);
        } else if let (Some(array), Some(event)) = (&array, dumped(text)) {
            arrays.entry(array.clone()).or_default().push(event);
        }
    }
    arrays
}

/// `    init-329       0..... 5190720us : text`; the character behind `us` marks how long it took.
fn dumped(line: &str) -> Option<Event> {
    // A task's name may have `us` in it too.
    let is_time = |at: usize| {
        line.get(at + 3..at + 5) == Some(": ") && line[..at].ends_with(|c: char| c.is_ascii_digit())
    };
    let at = line.match_indices("us").map(|(at, _)| at).find(|&at| is_time(at))?;
    let (left, text) = (line.get(..at)?, line.get(at + 5..)?);
    let (left, time) = left.rsplit_once(' ')?;
    let (task, cpu) = left.trim_end().rsplit_once(' ')?;
    let (comm, pid) = task.trim_end().rsplit_once('-')?;
    let digits = cpu.find(|c: char| !c.is_ascii_digit()).unwrap_or(cpu.len());
    Some((
        short(comm),
        pid.to_string(),
        cpu.get(..digits)?.parse().ok()?,
        time.parse().ok()?,
        kept(text),
    ))
}

/// `            init-329     [000] .....     5.190720: text`.
fn reported(line: &str) -> Option<Event> {
    if line.starts_with('#') {
        return None;
    }
    let (head, text) = line.split_once(": ")?;
    let (task, rest) = head.rsplit_once(" [")?;
    let (cpu, rest) = rest.split_once("] ")?;
    let (comm, pid) = task.trim_end().rsplit_once('-')?;
    let (seconds, parts) = rest.rsplit_once(' ')?.1.split_once('.')?;
    let time = seconds.parse::<u64>().ok()? * 1_000_000 + parts.parse::<u64>().ok()?;
    Some((short(comm), pid.to_string(), cpu.parse().ok()?, time, kept(text)))
}

fn short(comm: &str) -> String {
    comm.trim().chars().take(8).collect()
}

fn kept(text: &str) -> String {
    text.chars().take(KEPT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_one_event() {
        let event: Event =
            ("rcu_pree".into(), "17".into(), 1, 5_190_720, "timer_start: a: b".into());
        assert_eq!(
            dumped("rcu_pree-17        1d..2. 5190720us+: timer_start: a: b"),
            Some(event.clone())
        );
        assert_eq!(
            reported("     rcu_preempt-17      [001] d..2.     5.190720: timer_start: a: b"),
            Some(event)
        );
    }

    #[test]
    fn a_task_with_us_in_its_name() {
        let event = dumped(" busybox-17        1d..2.    12us : a: b").unwrap();
        assert_eq!((event.0.as_str(), event.3, event.4.as_str()), ("busybox", 12, "a: b"));
    }

    #[test]
    fn arrays_by_their_headings() {
        let console = "[    5.2] Dumping ftrace buffer:\n[    5.2] ------\n\
                       [    5.2]    a b-7        0..... 12us : x: y\r\n[    5.2] CPU:0 [LOST 4 EVENTS]\n\
                       [    5.3] Dumping ftrace instance errors buffer:\n[    5.3]       c-8        1..... 13us!: z\n";
        let arrays = printed(console);
        assert_eq!(arrays["top"], [("a b".into(), "7".into(), 0, 12, "x: y".into())]);
        assert_eq!(arrays["errors"].len(), 1);
    }

    #[test]
    fn each_is_counted_as_often_as_it_is_there() {
        let event: Event = ("a".into(), "1".into(), 0, 1, "x".into());
        let (one, two) = (vec![event.clone()], vec![event.clone(), event]);
        assert_eq!(without(&one, &two).0, 0);
        assert_eq!(without(&two, &one).0, 1);
    }
}
