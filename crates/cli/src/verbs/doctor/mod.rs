//! Implements `lastwords doctor`: checks what this machine and this shell would keep, and prints
//! how to mend what is missing.

mod cores;
mod machine;
mod persistent;
mod room;

use crate::exit::Outcome;
use crate::paint;
use crate::table::plain;
use serde::Serialize;
use std::path::Path;

/// The arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print data instead of text
    #[arg(long)]
    json: bool,

    /// Print kernel arguments for a trace that outlives a reboot
    ///
    /// They give this machine a trace instance in memory that a reboot does not clear.
    #[arg(long, conflicts_with = "json")]
    kernel_args: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// Nothing is missing.
    Good,
    /// Something is missing for some back-ends or some ways of recovery.
    Partial,
    /// Nothing can be recorded.
    Bad,
}

/// The result of one check, with its message.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    status: Status,
    /// The state of the machine, and its consequence.
    found: String,
    /// The command or change that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

impl Finding {
    fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, status: Status::Good, found: found.into(), mend: None }
    }

    fn partial(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, status: Status::Partial, found: found.into(), mend: Some(mend.into()) }
    }

    fn bad(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, status: Status::Bad, found: found.into(), mend: Some(mend.into()) }
    }

    fn without_mend(mut self) -> Self {
        self.mend = None;
        self
    }
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    good: bool,
    checks: &'a [Finding],
}

/// Runs all checks and prints their results.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.kernel_args {
        let (line, remark) = persistent::kernel_args();
        crate::say::print(line + "\n");
        crate::say::note(remark);
        return Ok(Outcome::Done);
    }
    let mut findings = room::check();
    findings.extend(machine::check());
    findings.extend(cores::check());
    findings.extend(persistent::check());
    let good = findings.iter().all(|f| f.status != Status::Bad);
    if args.json {
        crate::say::json(
            &Report { schema: "lastwords.doctor.v1", good, checks: &findings },
            false,
        )?;
    } else {
        crate::say::print(render(&findings));
    }
    Ok(if good { Outcome::Done } else { Outcome::Negative })
}

fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let word = match finding.status {
            Status::Good => paint::good("good   "),
            Status::Partial => paint::warning("partial"),
            Status::Bad => paint::bad("bad    "),
        };
        text.push_str(&format!(
            "{word}  {}: {}\n",
            paint::bold(finding.check),
            plain(&finding.found)
        ));
        if let Some(mend) = &finding.mend {
            text.push_str(&format!("         mend: {}\n", plain(mend)));
        }
    }
    text
}

/// Reads a file of /proc or /sys and trims its end. Returns none if the file cannot be read.
fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}
