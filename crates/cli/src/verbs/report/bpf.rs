//! Prints BPF programs and maps out of the memory of kernels.

use super::Args;
use crate::account::LIMIT;
use crate::exit::{Facts, Outcome};
use crate::pager::Pager;
use crate::say;
use crate::table::plain;
use lastwords_bpf::{Bpf, Report};
use lastwords_open::{Account, DumpedKernel, Losses};
use lastwords_render::evidence::Report as Evidence;
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write as _;
use std::path::PathBuf;

/// The format of [`Kernels`].
const SCHEMA: &str = "lastwords.bpf.v1";

/// The BPF programs and maps of kernels; docs/JSON.md describes them.
#[derive(Serialize)]
struct Kernels {
    schema: &'static str,
    kernels: Vec<Kernel>,
    /// Inputs that cannot be read.
    faults: Vec<String>,
}

#[derive(Serialize)]
struct Kernel {
    from: PathBuf,
    /// Release of the kernel, or null.
    release: Option<String>,
    #[serde(flatten)]
    report: Report,
    evidence: Evidence,
}

/// Prints the programs and maps of all kernels on stdout, and an account of each on stderr.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (kernels, failures) = args.input.kernels()?;
    let mut all = Kernels {
        schema: SCHEMA,
        kernels: Vec::new(),
        faults: failures.iter().map(|failure| failure.why.clone()).collect(),
    };
    let (mut accounts, mut found) = (Vec::new(), false);
    let mut out = (!args.json).then(|| Pager::open(!args.no_pager));
    let mut is_closed = false;
    for dump in &kernels {
        dump.notes.iter().for_each(|note| say::note(plain(note)));
        let mut bpf = Bpf::read(&dump.kernel);
        found |= !bpf.programs.is_empty() || !bpf.maps.is_empty();
        let report = match &mut out {
            Some(out) => {
                let written = write(dump, &mut bpf, out);
                is_closed |= written.is_err();
                say::failure(written).map_or(Ok(()), Err)?;
                None
            }
            None => Some(bpf.report()),
        };
        let account = account(dump, bpf);
        all.kernels.extend(report.map(|report| Kernel {
            from: dump.path.clone(),
            release: release(dump),
            report,
            evidence: account.report(),
        }));
        accounts.push(account);
        if is_closed {
            break;
        }
    }
    match out {
        Some(out) => is_closed |= !out.finish()?,
        None => say::json(&all, false)?,
    }
    for account in &accounts {
        let mut text = Vec::new();
        account.write(LIMIT, &mut text)?;
        say::remark(text);
    }
    let facts = Facts {
        strict: args.strict,
        losses: Losses::from_accounts(&accounts),
        worst_failure: failures.iter().map(|failure| failure.severity).max(),
        nothing: !is_closed && !found,
        ..Facts::default()
    };
    Ok(facts.outcome())
}

/// Returns the release of a kernel, if the dump has it.
fn release(dump: &DumpedKernel) -> Option<String> {
    dump.kernel.uname().ok().map(|uname| uname.release)
}

fn write(dump: &DumpedKernel, bpf: &mut Bpf<'_>, out: &mut Pager) -> std::io::Result<()> {
    let release = release(dump).map_or_else(|| "?".to_owned(), |release| plain(&release));
    writeln!(out, "# {}: Linux {release}", plain(&dump.path.display().to_string()))?;
    bpf.write(&plain, out)
}

fn account(dump: &DumpedKernel, bpf: Bpf<'_>) -> Account<'static> {
    Account {
        name: format!("{}: BPF", dump.path.display()),
        uuid: [0; 16],
        streams: Vec::new(),
        evidence: Cow::Owned(bpf.evidence),
        spans: Vec::new(),
        faults: 0,
    }
}
