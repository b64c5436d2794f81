//! Implements `lastwords view`: writes all traces as one HTML page, and opens it in a browser.

use crate::exit::{Facts, Outcome};
use crate::input::{Input, Search};
use crate::output::{self, Job};
use crate::say;
use crate::select::Events;
use crate::traces::Traces;
use anyhow::Context;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The arguments of `view`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lastwords view [OPTIONS] <INPUT>...\n       lastwords view [OPTIONS] --pid <PID>"
)]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    events: Events,

    /// The file to write (`-` is stdout)
    ///
    /// Without this option, the page is written into a temporary file, and xdg-open shows it.
    #[arg(short, long, value_name = "PAGE")]
    output: Option<PathBuf>,

    /// The most events of the page; it keeps the newest
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = crate::value::within(1..=100_000_000_u64))]
    limit: u64,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// Exit with status 3 if events were lost
    #[arg(long)]
    strict: bool,
}

/// Runs `view`.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if let Some(output) = &args.output {
        if let Some(extension) = output::foreign_extension(output, &["html", "htm"]) {
            anyhow::bail!(
                "{}: a page is HTML, not {extension}: name a file with .html",
                output.display()
            );
        }
        return args.input.read(Search::Checked, |mut traces| write(args, output, &mut traces));
    }
    args.input.read(Search::Checked, |mut traces| {
        // The folder is its user's alone, and stays for the browser.
        let mut builder = tempfile::Builder::new();
        builder.prefix("lastwords-view-").permissions(Permissions::from_mode(0o700));
        let folder = builder.tempdir().context("a temporary folder")?.keep();
        let output = folder.join("page.html");
        let done = write(args, &output, &mut traces);
        match output.is_file() {
            true => open(&output),
            false => drop(std::fs::remove_dir(&folder)),
        }
        done
    })
}

fn write(args: &Args, output: &Path, traces: &mut Traces) -> anyhow::Result<Outcome> {
    let job = Job {
        traces: &mut *traces,
        events: &args.events,
        to: None,
        output,
        with_log: false,
        json: false,
        force: args.force,
        carve: false,
    };
    let done = output::page(job, args.limit)?;
    let facts = Facts {
        strict: args.strict,
        losses: done.losses,
        worst_failure: traces.worst_failure,
        failed: done.failed,
        nothing: done.nothing,
    };
    Ok(facts.outcome())
}

/// Shows a page in the user's browser. Where that is not possible, a note says so: the page is
/// there all the same.
fn open(page: &Path) {
    let mut command = Command::new("xdg-open");
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(_) => {}
        Err(error) => say::note(format_args!(
            "xdg-open cannot be started ({error}): open {} in a browser, or name a file by --output",
            page.display()
        )),
    }
}
