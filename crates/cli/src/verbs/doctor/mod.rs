//! Implements `lastwords doctor`: checks what this machine and this shell would keep, and prints
//! how to fix what is missing.

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
    /// Something that one may have is not in use.
    Off,
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
    /// The command or change that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, status: Status::Good, found: found.into(), fix: None }
    }

    fn off(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, status: Status::Off, found: found.into(), fix: Some(fix.into()) }
    }

    fn partial(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, status: Status::Partial, found: found.into(), fix: Some(fix.into()) }
    }

    fn bad(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, status: Status::Bad, found: found.into(), fix: Some(fix.into()) }
    }

    fn without_fix(mut self) -> Self {
        self.fix = None;
        self
    }
}

/// A finding as data.
#[derive(Serialize)]
struct Check<'a> {
    section: &'static str,
    #[serde(flatten)]
    finding: &'a Finding,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    good: bool,
    checks: Vec<Check<'a>>,
}

/// A title and the checks under it.
type Section = (&'static str, Vec<Finding>);

/// Runs all checks and prints their results.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.kernel_args {
        let (line, remark) = persistent::kernel_args();
        crate::say::print(line + "\n");
        crate::say::note(remark);
        return Ok(Outcome::Done);
    }
    let sections: [Section; 4] = [
        ("Sessions of applications", room::check()),
        ("Recording", machine::check()),
        ("Cores, for sessions outside of shared memory", cores::check()),
        ("Traces and sessions that outlive a reboot", persistent::check()),
    ];
    let good = sections.iter().flat_map(|(_, findings)| findings).all(|f| f.status != Status::Bad);
    if args.json {
        let check = |section| move |finding| Check { section, finding };
        let checks = sections.iter().flat_map(|(title, found)| found.iter().map(check(*title)));
        let checks = checks.collect();
        crate::say::json(&Report { schema: "lastwords.doctor.v2", good, checks }, false)?;
    } else {
        crate::say::print(render(&sections));
    }
    Ok(if good { Outcome::Done } else { Outcome::Negative })
}

fn render(sections: &[Section]) -> String {
    let mut text = String::new();
    for (title, findings) in sections {
        let gap = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!("{gap}{}\n", paint::bold(title)));
        findings.iter().for_each(|finding| text.push_str(&lines(finding)));
    }
    text
}

fn lines(finding: &Finding) -> String {
    let word = match finding.status {
        Status::Good => paint::good("good   "),
        Status::Off => "off    ".to_owned(),
        Status::Partial => paint::warning("partial"),
        Status::Bad => paint::bad("bad    "),
    };
    let advice = if finding.status == Status::Off { "to use it" } else { "fix" };
    let line = format!("{word}  {}: {}\n", finding.check, plain(&finding.found));
    match &finding.fix {
        Some(fix) => format!("{line}         {advice}: {}\n", plain(fix)),
        None => line,
    }
}

/// Reads a file of /proc or /sys and trims its end. Returns none if the file cannot be read.
fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}
