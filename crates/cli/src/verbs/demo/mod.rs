//! Implements `lastwords demo`: records in a child, kills the child with SIGKILL, recovers its
//! session, and compares.

mod check;
pub(crate) mod child;
mod parent;
mod show;

use crate::exit::Outcome;
use crate::input::Input;
use crate::{account, output, paint, say};
use anyhow::{Context, bail};
use lastwords_ctf::{Version, write as ctf};
use lastwords_session::Session;
use std::path::PathBuf;

/// The arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder for the recovered CTF trace; it must not exist
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// The number of threads that record
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = crate::value::within(1_u64..=64))]
    threads: u64,

    /// Kill the child at a random moment within this time
    #[arg(long, default_value_t = 2.0, value_name = "S", value_parser = seconds)]
    seconds: f64,

    /// How to reserve space
    ///
    /// By default, the fastest way that works is used.
    #[arg(long, value_enum, value_name = "HOW")]
    reservation: Option<child::ReservationChoice>,

    /// The seed of the random moment; by default, from the clock
    #[arg(long, value_name = "N", value_parser = crate::value::number::<u64>)]
    seed: Option<u64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("not between 0 and 3600".to_owned())
    }
}

/// Records, kills, recovers, compares, and shows the last events.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.output.as_deref().map_or(Ok(()), output::check_new)?;
    let killed = parent::record_and_kill(args)?;
    say::own(format_args!(
        "{} of {} threads recorded for {:.3} s, then got SIGKILL (--seed {})",
        paint::bold(format!("process {}", killed.pid)),
        args.threads,
        killed.after.as_secs_f64(),
        killed.seed
    ));
    let traces = Input::of_session(&killed.session, false).find(Ok)?;
    let ([input], Some(found)) = (traces.all.as_slice(), traces.sessions().next()) else {
        bail!("{}: {} sessions found, one expected", killed.session, traces.all.len());
    };
    let packets = input.packets(Version::V2).context("a session is no packets")??;
    let recovered = check::read(&*found.session, &packets);
    let passed = judge(&recovered, &killed);
    show::last_events(&recovered, &packets)?;
    say::own(format_args!("\n{}", paint::bold("evidence")));
    let mut text = Vec::new();
    account::write_with_end(&traces, input, &input.account(), &mut text)?;
    say::print(text);
    keep(args, &found.session, killed.pid)?;
    if passed {
        parent::remove(&input.origin.path)?;
        return Ok(Outcome::Done);
    }
    say::own(format_args!("\nthe session is kept: {}", input.origin.path.display()));
    Ok(Outcome::Negative)
}

/// Compares, and prints the outcome. Returns true if there is no fault.
fn judge(recovered: &check::Recovered, killed: &parent::Killed) -> bool {
    let check::Verdict { committed, unreported, overwritten, faults } =
        check::compare(recovered, &killed.reports);
    say::own(format_args!(
        "recovered {} events: {committed} that had been reported as committed, {unreported} behind the last report; \
         {overwritten} older ones had been overwritten",
        recovered.events
    ));
    if recovered.events == 0 && killed.reports.is_empty() {
        say::own("the child was killed before its first event: try a larger --seconds");
    }
    for fault in faults.iter().take(20) {
        say::own(format_args!("{} {fault}", paint::bad("FAULT")));
    }
    let passed = faults.is_empty();
    say::own(if passed {
        paint::good("nothing that was committed is missing, nothing is invented")
    } else {
        paint::bad(&format!("{} faults", faults.len()))
    });
    passed
}

/// Writes a CTF folder, and prints how to open it.
fn keep(args: &Args, session: &Session, pid: u32) -> anyhow::Result<()> {
    let default = || std::env::temp_dir().join(format!("lastwords-demo-{pid}.ctf"));
    let folder = args.output.clone().unwrap_or_else(default);
    let totals = ctf::write(session, &folder, Version::V1_8, &lastwords_ctf::read::unwatched)
        .context("writing the CTF folder")?;
    let shown = folder.display();
    say::own(format_args!(
        "\n{} events in {} streams as CTF 1.8 in {shown}",
        totals.events, totals.streams
    ));
    say::own(format_args!("  babeltrace2 {shown}"));
    say::own(format_args!("  Trace Compass: File, Open Trace, {shown}/metadata"));
    Ok(())
}
