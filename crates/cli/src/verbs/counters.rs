//! Implements `lastwords counters`: prints the counters and histograms of sessions.

use crate::account::LIMIT;
use crate::exit::{Facts, Outcome};
use crate::input::Input;
use crate::paint::bold;
use crate::say;
use crate::table::{Table, plain};
use crate::traces::Traces;
use lastwords_open::{Account, Losses, Trace};
use lastwords_render::evidence::Report as Evidence;
use lastwords_render::metrics::{Origin, Report, prometheus};
use lastwords_render::missing::count;
use lastwords_trace::metrics::{Bucket, Labels, Metrics};
use serde::Serialize;
use std::io::Write as _;
use std::path::PathBuf;

/// The format of [`Sessions`].
const SCHEMA: &str = "lastwords.counters.v1";

/// The arguments of `counters`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lastwords counters [OPTIONS] <INPUT>...\n       lastwords counters [OPTIONS] --pid <PID>"
)]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Print the text format of Prometheus
    ///
    /// Names are made valid. Each series has the label `session`, and `uuid` if there are several
    /// sessions.
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,

    /// Print data instead of text
    #[arg(long)]
    json: bool,

    /// Exit with status 3 if something was lost
    #[arg(long)]
    strict: bool,
}

/// The counters and histograms of sessions; docs/JSON.md describes them.
#[derive(Serialize)]
struct Sessions {
    schema: &'static str,
    sessions: Vec<OfSession>,
    /// Inputs that cannot be read.
    faults: Vec<String>,
}

#[derive(Serialize)]
struct OfSession {
    name: String,
    from: PathBuf,
    #[serde(flatten)]
    report: Report,
    evidence: Evidence,
}

/// Prints the counters and histograms on stdout, and an account of each session on stderr.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.input.find(|traces| print(args, &traces))
}

fn print(args: &Args, traces: &Traces) -> anyhow::Result<Outcome> {
    let found: Vec<_> =
        traces.all.iter().filter_map(|trace| Some((trace, metrics_of(trace)?))).collect();
    let accounts: Vec<Account<'_>> = found.iter().map(|(trace, _)| trace.account()).collect();
    if args.json {
        let session =
            |((trace, metrics), account): (&(&Trace, &Metrics), &Account<'_>)| OfSession {
                name: account.name.clone(),
                from: trace.origin.path.clone(),
                report: Report::new(metrics),
                evidence: account.report(),
            };
        let sessions = found.iter().zip(&accounts).map(session).collect();
        let faults = traces.faults.iter().map(|failure| failure.why.clone()).collect();
        say::json(&Sessions { schema: SCHEMA, sessions, faults }, false)?;
    } else if args.prometheus {
        let uuids: Vec<String> = accounts.iter().map(|one| one.report().uuid).collect();
        let named = found.iter().zip(&accounts).zip(&uuids);
        let sessions = named.map(|(((_, metrics), account), uuid)| {
            (Origin { session: &account.name, uuid }, *metrics)
        });
        let mut text = Vec::new();
        prometheus(&sessions.collect::<Vec<_>>(), &mut text)?;
        say::print(text);
    } else {
        let mut text = Vec::new();
        for ((_, metrics), account) in found.iter().zip(&accounts) {
            writeln!(text, "{} {}", bold("session"), bold(plain(&account.name)))?;
            text.extend(self::text(metrics, 2).bytes());
        }
        say::print(text);
    }
    if !args.json {
        for account in &accounts {
            let mut text = Vec::new();
            account.write(LIMIT, &mut text)?;
            say::remark(text);
        }
    }
    let nothing = found.iter().all(|(_, metrics)| metrics.is_empty());
    if nothing {
        say::note("no session has counters or histograms");
    }
    let facts = Facts {
        strict: args.strict,
        losses: Losses::from_accounts(&accounts),
        worst_failure: traces.worst_failure,
        nothing,
        ..Facts::default()
    };
    Ok(facts.outcome())
}

fn metrics_of(trace: &Trace) -> Option<&Metrics> {
    Some(&trace.session()?.session.info().metrics)
}

/// Returns the counters and histograms of a session as tables, which are empty if there are none.
pub(crate) fn text(metrics: &Metrics, indent: usize) -> String {
    let mut counters = Table::new(["COUNTER", "VALUE"]).indent(indent);
    for one in &metrics.counters {
        counters.row([named(&one.name, &one.labels), one.value.to_string()]);
    }
    let head = ["HISTOGRAM", "VALUES", "SUM", "50%", "90%", "99%", "LARGEST"];
    let mut histograms = Table::new(head).indent(indent);
    let mut in_flight = String::new();
    for one in &metrics.histograms {
        let name = named(&one.name, &one.labels);
        if one.in_flight > 0 {
            let (blanks, values) = (" ".repeat(indent), count(one.in_flight, "value"));
            in_flight += &format!("{blanks}{name}: {values} in flight, which the sum may lack\n");
        }
        let bucket = |bucket: Option<Bucket>| bucket.map_or_else(|| "-".to_owned(), range);
        let part = |thousandths| bucket(one.quantile(thousandths));
        histograms.row([
            name,
            one.count().to_string(),
            one.sum.map_or_else(|| "unknown".to_owned(), |sum| sum.to_string()),
            part(500),
            part(900),
            part(990),
            bucket(one.buckets.last().copied()),
        ]);
    }
    let tables = [counters, histograms];
    let shown = tables.iter().filter(|table| !table.is_empty()).map(Table::render);
    shown.chain([in_flight]).collect()
}

fn range(bucket: Bucket) -> String {
    match bucket {
        Bucket { low, high, .. } if low == high => low.to_string(),
        Bucket { low, high, .. } => format!("{low}..{high}"),
    }
}

fn named(name: &str, labels: &Labels) -> String {
    let labels: Vec<String> =
        labels.iter().map(|(key, value)| format!("{}={:?}", plain(key), plain(value))).collect();
    let name = plain(name);
    if labels.is_empty() { name } else { format!("{name}{{{}}}", labels.join(",")) }
}
