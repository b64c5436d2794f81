//! Implements `lastwords counters`: prints the counters and histograms of sessions.

use crate::account::LIMIT;
use crate::exit::{Facts, Outcome};
use crate::input::Input;
use crate::metrics::{self, metrics_of};
use crate::paint::bold;
use crate::say;
use crate::table::plain;
use crate::traces::Traces;
use anyhow::{Context as _, ensure};
use lastwords_open::{Account, Losses, Trace};
use lastwords_render::metrics::{Origin, prometheus};
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use lastwords_trace::metrics::Metrics;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write};
use std::path::{Path, PathBuf};

/// The format of [`Sessions`].
const SCHEMA: &str = "lastwords.counters.v1";

/// Most bytes of a file of [`keep`].
const MOST: u64 = 256 << 20;

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
    metrics: Metrics,
    evidence: Value,
}

/// The file that [`keep`] wrote.
#[derive(Deserialize)]
struct Kept {
    schema: String,
    sessions: Vec<KeptSession>,
}

#[derive(Deserialize)]
struct KeptSession {
    name: String,
    #[serde(flatten)]
    metrics: Metrics,
    evidence: Value,
}

/// The counters and histograms of a session, and what was lost.
struct Found<'a> {
    from: PathBuf,
    metrics: Metrics,
    account: Account<'a>,
    /// The evidence as data.
    evidence: Value,
}

impl<'a> Found<'a> {
    /// Returns those of a trace; none if it is no session.
    fn from_trace(trace: &'a Trace) -> anyhow::Result<Option<Self>> {
        let Some(metrics) = metrics_of(trace).cloned() else { return Ok(None) };
        let account = trace.account();
        let evidence = serde_json::to_value(account.report())?;
        Ok(Some(Self { from: trace.origin.path.clone(), metrics, account, evidence }))
    }

    fn uuid(&self) -> &str {
        self.evidence["uuid"].as_str().unwrap_or_default()
    }

    fn data(&self) -> OfSession {
        OfSession {
            name: self.account.name.clone(),
            from: self.from.clone(),
            metrics: self.metrics.clone(),
            evidence: self.evidence.clone(),
        }
    }
}

/// Prints the counters and histograms on stdout, and an account of each session on stderr.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.input.find(|traces| print(args, &traces))
}

fn print(args: &Args, traces: &Traces) -> anyhow::Result<Outcome> {
    let mut found = Vec::new();
    for trace in &traces.all {
        found.extend(Found::from_trace(trace)?);
        if let Some(ctf) = trace.ctf() {
            found.extend(kept(&kept_at(&ctf.path))?);
        }
    }
    if args.json {
        let sessions = found.iter().map(Found::data).collect();
        let faults = traces.faults.iter().map(|failure| failure.why.clone()).collect();
        say::json(&Sessions { schema: SCHEMA, sessions, faults }, false)?;
    } else if args.prometheus {
        let sessions = found
            .iter()
            .map(|one| (Origin { session: &one.account.name, uuid: one.uuid() }, &one.metrics));
        let sessions: Vec<_> = sessions.collect();
        let mut text = Vec::new();
        prometheus(&sessions, &mut text)?;
        say::print(text);
    } else {
        let mut text = Vec::new();
        for one in &found {
            writeln!(text, "{} {}", bold("session"), bold(plain(&one.account.name)))?;
            text.extend(metrics::text(&one.metrics, 2).bytes());
        }
        say::print(text);
    }
    if !args.json {
        for one in &found {
            let mut text = Vec::new();
            one.account.write(LIMIT, &mut text)?;
            say::remark(text);
        }
    }
    let nothing = found.iter().all(|one| one.metrics.is_empty());
    if nothing {
        say::note("no session has counters or histograms");
    }
    let facts = Facts {
        strict: args.strict,
        losses: Losses::from_accounts(found.iter().map(|one| &one.account)),
        worst_failure: traces.worst_failure,
        nothing,
        ..Facts::default()
    };
    Ok(facts.outcome())
}

/// Returns where the counters of a session are kept that was recovered as this folder of CTF.
pub(crate) fn kept_at(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".counters.json");
    name.into()
}

/// Writes the counters and histograms of a session as `counters --json` prints them.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn keep(
    trace: &Trace,
    account: &Account<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(mut found) = Found::from_trace(trace)? else { return Ok(()) };
    found.evidence = serde_json::to_value(account.report())?;
    let sessions = Sessions { schema: SCHEMA, sessions: vec![found.data()], faults: Vec::new() };
    serde_json::to_writer_pretty(&mut *out, &sessions)?;
    Ok(out.write_all(b"\n")?)
}

/// Reads what [`keep`] wrote, if the file is there.
fn kept(path: &Path) -> anyhow::Result<Vec<Found<'static>>> {
    let shown = || path.display().to_string();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(shown),
    };
    let mut text = Vec::new();
    file.take(MOST + 1).read_to_end(&mut text).with_context(shown)?;
    ensure!(text.len() as u64 <= MOST, "{}: more than {MOST} bytes", shown());
    let kept: Kept = serde_json::from_slice(&text).with_context(shown)?;
    ensure!(kept.schema == SCHEMA, "{}: {}, expected {SCHEMA}", shown(), plain(&kept.schema));
    let found = |one: KeptSession| Found {
        from: path.to_owned(),
        account: account_of(&one),
        metrics: one.metrics,
        evidence: one.evidence,
    };
    Ok(kept.sessions.into_iter().map(found).collect())
}

/// Returns an account of what the counters of a recovered session lack.
fn account_of(one: &KeptSession) -> Account<'static> {
    let Metrics { unknown, lost_additions, lost_values, .. } = one.metrics;
    let lost = [
        (unknown, "damaged entry", Cause::Damaged),
        (lost_additions, "addition to counters without room", Cause::Refused),
        (lost_values, "value of histograms without room", Cause::Refused),
    ];
    let lost = lost.into_iter().filter(|(number, ..)| *number > 0);
    let gap = |(number, what, cause): (u64, &str, Cause)| {
        Gap::new(None, cause, format!("{what}: {number}"))
    };
    let evidence = Evidence { gaps: lost.map(gap).collect(), ..Evidence::default() };
    Account { name: one.name.clone(), evidence: Cow::Owned(evidence), ..Account::default() }
}
