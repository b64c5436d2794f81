//! Implements `lastwords diff`: prints how a run that ended well and one that did not differ.

use crate::account::LIMIT;
use crate::ended;
use crate::exit::{Facts, Outcome};
use crate::input::{Input, Search};
use crate::paint::bold;
use crate::say;
use crate::table::{Table, plain};
use crate::traces::{Arrays, Traces};
use crate::value::glob;
use lastwords_open::diff::{
    Diff, Divergence, DurationFinding, EventRow, Finding, How, Names, Range, Run, Side, SpanRow,
};
use lastwords_open::duration;
use lastwords_render::missing::count;
use std::io::{self, Write};

/// How a difference must be to be printed.
const RULES: &str = "\
An event is rarer or more frequent if its share of all events of its run changes at least twofold, and by more than four standard \
deviations of chance. Spans are slower if half of them took longer than nine of ten of the other run, 1.5 times its median and a \
microsecond more (10 spans of each run are needed), or if one of 20 took longer than all of the other run, and twice its 95th percentile (100 spans).

If both runs are recovered from their beginning, they are compared whole. Otherwise only the time before the end that both have is \
compared, and sequences of threads are not. What a run lacks is unknown if it has lost events. Threads are matched by their names; \
those of one name by equal sequences, then by the order of their first events.";

/// The arguments of `diff`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = RULES)]
pub(crate) struct Args {
    /// The run that ended well
    ///
    /// A session (its name or folder) or another input, as of `report`.
    #[arg(value_name = "GOOD")]
    good: String,

    /// The run that did not
    #[arg(value_name = "BAD")]
    bad: String,

    /// Only sessions or instances that match
    ///
    /// GLOB may have `*`, `?` and `[a-z]`, and the option may be repeated.
    #[arg(short = 's', long = "session", visible_alias = "instance", value_name = "GLOB", value_parser = glob)]
    sessions: Vec<String>,

    /// Only events whose name matches; may be repeated
    ///
    /// GLOB may have `*`, `?`, `[a-z]` and `[!a-z]`. It matches the whole `provider:name`, or the
    /// part after the last colon.
    #[arg(short = 'e', long = "event", value_name = "GLOB", value_parser = glob)]
    events: Vec<String>,

    /// Print data instead of text
    #[arg(long)]
    json: bool,

    /// Exit with status 3 if events were lost
    #[arg(long)]
    strict: bool,
}

/// Runs `diff`.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut names = Names::default();
    let mut read = |word: &String| {
        let mut input = Input::of_session(word, false);
        input.sessions.clone_from(&args.sessions);
        input.read(Search::Late, |mut traces| {
            traces.choose(Arrays::Top)?;
            let losses = lastwords_open::Losses::from_accounts(&traces.accounts());
            let run = Run::read(&traces.all, &args.events, &mut names)?;
            anyhow::Ok((run, facts(args, &traces, losses)))
        })
    };
    let ((good, of_good), (bad, of_bad)) = (read(&args.good)?, read(&args.bad)?);
    let diff = Diff::new(&names, &good, &bad);
    if args.json {
        say::json(&diff, false)?;
    } else {
        let mut text = Vec::new();
        write(args, &diff, &mut text)?;
        say::print(text);
    }
    let nothing = diff.good.all_events == 0 || diff.bad.all_events == 0;
    if nothing {
        say::note("a run without events cannot be compared");
    }
    let mut losses = of_good.losses;
    losses.add(&of_bad.losses);
    losses.any |= diff.good.losses || diff.bad.losses;
    let worst_failure = of_good.worst_failure.max(of_bad.worst_failure);
    Ok(Facts { nothing, losses, worst_failure, ..of_good }.outcome())
}

fn facts(args: &Args, traces: &Traces, losses: lastwords_open::Losses) -> Facts {
    let worst_failure = traces.worst_failure;
    Facts { strict: args.strict, losses, worst_failure, ..Facts::default() }
}

fn write(args: &Args, diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    write_side("good", &args.good, &diff.good, out)?;
    write_side("bad", &args.bad, &diff.bad, out)?;
    let range = match diff.range {
        Range::Whole => "both runs whole, from their beginning".to_owned(),
        Range::Nothing => "nothing: one run has no time that is recovered without a gap".to_owned(),
        Range::Last(time) => {
            format!("the last {} of both, which both have without a gap", long(time))
        }
    };
    writeln!(out, "compared  {range}")?;
    if diff.is_same() {
        writeln!(out, "nothing differs clearly")?;
    }
    write_events(&diff.events, out)?;
    write_threads(diff, out)?;
    write_spans(&diff.spans, out)
}

fn write_side(word: &str, name: &str, side: &Side, out: &mut dyn Write) -> io::Result<()> {
    let rate = side.compared_ns.filter(|time| *time > 0).map(|time| {
        let per_second = side.events as f64 * 1e9 / time as f64;
        format!(" in {}, {per_second:.0} events/s", long(time))
    });
    let of = match side.events == side.all_events {
        true => String::new(),
        false => format!(" of {}", side.all_events),
    };
    writeln!(
        out,
        "{}  {}: {}{of}{}, {}; {}",
        bold(format!("{word:<8}")),
        plain(name),
        count(side.events, "event"),
        rate.unwrap_or_default(),
        count(side.threads, "thread"),
        side.lost
    )
}

fn write_events(rows: &[EventRow], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(["GOOD", "BAD", "", "EVENT"]).indent(2);
    let mut more = 0;
    for (at, row) in rows.iter().filter(|row| row.finding.is_some()).enumerate() {
        let finding = match row.finding {
            Some(Finding::OnlyGood) => "only in good",
            Some(Finding::OnlyBad) => "only in bad",
            Some(Finding::Rarer) => "rarer in bad",
            Some(Finding::MoreFrequent) => "more frequent in bad",
            Some(Finding::Unknown) => "unknown: the other run has lost events",
            None => continue,
        };
        if at >= LIMIT {
            more += 1;
            continue;
        }
        let cells = [row.good.to_string(), row.bad.to_string(), finding.to_owned()];
        table.row(cells.into_iter().chain([row.name.clone()]));
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", bold("events that differ"))?;
    out.write_all(table.render().as_bytes())?;
    write_more(more, out)
}

fn write_threads(diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    let threads = &diff.threads;
    writeln!(out, "{}", bold("threads"))?;
    if let Some(why) = &threads.not_compared {
        return writeln!(out, "  not compared: {why}");
    }
    let by_order = match threads.by_order {
        0 => String::new(),
        by_order => format!(
            ", {by_order} of them by sequence and order, as their names do not tell them apart"
        ),
    };
    writeln!(
        out,
        "  {} of {} that were matched have the same sequence{by_order}",
        threads.same, threads.matched
    )?;
    for own in &threads.unmatched {
        let name = thread_name(own.thread.as_deref());
        let [good, bad] = [own.good, own.bad].map(|threads| count(threads, "thread"));
        let which = if own.good > 0 {
            format!("{good} only in good")
        } else {
            format!("{bad} only in bad")
        };
        writeln!(out, "  {name}: {which}, not matched")?;
    }
    for own in threads.diverged.iter().take(LIMIT) {
        write_divergence(own, out)?;
    }
    write_more(threads.diverged.len().saturating_sub(LIMIT), out)
}

fn thread_name(name: Option<&str>) -> String {
    name.map_or_else(
        || "a thread without a name".to_owned(),
        |name| format!("thread {}", plain(name)),
    )
}

fn write_divergence(own: &Divergence, out: &mut dyn Write) -> io::Result<()> {
    let tid = |tid: Option<i64>| tid.map_or_else(|| "-".to_owned(), |tid| tid.to_string());
    let (good, bad) = (tid(own.good_tid), tid(own.bad_tid));
    let what = match own.how {
        How::Differs => "diverges",
        How::BadEnds => "ends in bad",
        How::GoodEnds => "ends in good",
    };
    let after = match &own.after {
        Some(event) => {
            format!(" after {}, the last one {}", count(own.same, "equal event"), plain(event))
        }
        None => " at its first event".to_owned(),
    };
    let time = own.bad_time_ns.as_ref().and_then(|time| time.parse().ok());
    let time =
        time.map_or_else(String::new, |time| format!(", at {} of bad", ended::precise_time(time)));
    let unsure = if own.is_unsure { "; a lost event may be the difference" } else { "" };
    let name = thread_name(own.thread.as_deref());
    writeln!(out, "  {name} ({good} in good, {bad} in bad) {what}{after}{time}{unsure}")?;
    for (word, events) in [("good", &own.good), ("bad", &own.bad)] {
        let events: Vec<String> = events.iter().map(|event| plain(event)).collect();
        let events = if events.is_empty() { "nothing".to_owned() } else { events.join(", ") };
        writeln!(out, "    {word:<5} {events}")?;
    }
    Ok(())
}

fn write_spans(rows: &[SpanRow], out: &mut dyn Write) -> io::Result<()> {
    let open: Vec<&SpanRow> = rows.iter().filter(|row| row.never_ended).collect();
    if !open.is_empty() {
        writeln!(out, "{}", bold("spans that never ended"))?;
    }
    for row in open.iter().take(LIMIT) {
        let unsure = if row.is_unsure { "; the end may be lost" } else { "" };
        let name = plain(&row.name);
        writeln!(out, "  {name}: {} in good, {} in bad{unsure}", row.good.open, row.bad.open)?;
    }
    write_more(open.len().saturating_sub(LIMIT), out)?;
    let heads = ["SPANS", "SPANS", "MEDIAN", "MEDIAN", "P95", "P95", "", "SPAN"];
    let mut table = Table::new(heads).indent(2);
    let slower: Vec<&SpanRow> = rows.iter().filter(|row| row.slower.is_some()).collect();
    for row in slower.iter().take(LIMIT) {
        let finding = match row.slower {
            Some(DurationFinding::Slower) => "slower",
            Some(DurationFinding::Faster) => "faster",
            Some(DurationFinding::SlowestSlower) => "slowest are slower",
            Some(DurationFinding::SlowestFaster) => "slowest are faster",
            None => continue,
        };
        let (good, bad) = (&row.good, &row.bad);
        let times = [good.median_ns, bad.median_ns, good.p95_ns, bad.p95_ns];
        let times = times.map(|time| time.map_or_else(|| "-".to_owned(), long));
        let counts = [good.ended, bad.ended].map(|count| count.to_string());
        let cells = counts.into_iter().chain(times).chain([finding.to_owned(), row.name.clone()]);
        table.row(cells);
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", bold("spans that take another time (good, bad)"))?;
    out.write_all(table.render().as_bytes())?;
    write_more(slower.len().saturating_sub(LIMIT), out)
}

fn write_more(more: usize, out: &mut dyn Write) -> io::Result<()> {
    match more {
        0 => Ok(()),
        more => writeln!(out, "  ... and {more} more; --json lists all"),
    }
}

/// Formats nanoseconds with their unit.
fn long(nanoseconds: u64) -> String {
    duration(nanoseconds as f64 / 1e9)
}
