//! Restartable sections on kernels of Debian, with the C library's area and with our own: tests of
//! the ring, a demonstration, and how many sections are aborted. QEMU translates the code of the
//! guest, so its counts are not those of a machine. A second guest counts instructions in place of
//! time: so it shows what each length of an area costs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::compare::Rows;
use super::jobs::{self, Machine};
use super::{Arch, Setup, add_programs};

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "sections";
pub(super) const WHAT: &str = "restartable sections with the C library's area and with our own: tests of the ring, and tables of aborts and costs";

/// Tests that a guest runs: names, or parts of names.
const TESTS: &str = "end_of_thread record:: concurrent:: swap::";
/// The C library registers no area: the recorder does.
const OWN: &str = "export GLIBC_TUNABLES=glibc.pthread.rseq=0;";
/// Until all jobs have ended, the boot included.
const LIMIT: Duration = Duration::from_secs(2400);

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let bench = rig::programs::build("lastwords-bench")?.join("lastwords-bench");
    let bench = ("bench", bench);
    let length = "set -o pipefail; ring own_area --nocapture | grep bytes";
    let mut jobs = vec![("length".to_owned(), length.to_owned())];
    for (way, set) in [("", ""), ("-own", OWN)] {
        let mut job = |name: &str, command: &str| {
            jobs.push((format!("{name}{way}"), format!("{set} {command}")))
        };
        job("ring", &format!("ring {TESTS}"));
        job("demo", "lastwords demo --reservation rseq --seconds 1");
    }
    jobs.push(table("aborts", 1_000_000));
    let ring = ("ring", rig::programs::test("ring")?);
    let programs = [ring, ("lastwords", setup.lastwords.to_owned()), bench.clone()];
    guest(setup, &[table("costs", 1_000_000)], &[bench], true, rows)?;
    guest(setup, &jobs, &programs, false, rows)
}

/// The job that prints the table.
fn table(name: &str, events: u32) -> (String, String) {
    // The kernel is busy after its boot. Of what a job prints, only the end would be shown.
    (name.to_owned(), format!("sleep 10; bench aborts {events} > /dev/console"))
}

/// Boots a guest that runs the jobs.
fn guest(
    setup: &Setup<'_>,
    jobs: &[(String, String)],
    programs: &[(&str, PathBuf)],
    counts_instructions: bool,
    rows: &mut Rows,
) -> Result<()> {
    let mut archive = jobs::base(setup.store, Arch::Amd64, jobs)?;
    add_programs(&mut archive, setup.folder, programs)?;
    let arguments = "loglevel=1 panic=0 no_timer_check";
    let cpus = if counts_instructions { 1 } else { 2 };
    let machine = Machine { arch: Arch::Amd64, arguments, cpus, counts_instructions, limit: LIMIT };
    machine.judged(setup.store, setup.kernel, archive, jobs.len(), setup.folder, rows)
}
