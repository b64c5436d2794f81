//! The buffers of `perf record` out of the dump of a guest: one recording reads its buffers, stops,
//! and is there until the panic; another one overwrites its oldest records. A trace instance has the
//! same events of the scheduler.

mod judge;

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::compare::{Ours, Rows};
use super::dump::{self, Dump};
use super::pages::Pages;
use super::qemu::Config;
use super::{Arch, DISK_MODULES, QEMU_MODULES, Setup, guest_base};

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "perf";
pub(super) const WHAT: &str = "buffers of `perf record` until the panic, beside ftrace's own trace of the same events; the host's perf reads them";

const CPUS: u32 = 2;
/// The dumps: with all pages, and without those that makedumpfile leaves out.
const FORMATS: &[&str] = &["elf", "d31-zlib"];
/// The suite of the guest's perf.
const PERF: &str = "bookworm";

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    let modules = [DISK_MODULES, QEMU_MODULES].concat();
    let init = include_bytes!("../guest/perf.sh");
    let mut archive = guest_base(kernel, &store.busybox(Arch::Amd64)?, init, &modules)?;
    archive.folder("lib");
    archive.folder("lib64");
    for (name, file) in store.program("linux-perf", PERF, "usr/bin/perf")?.files()? {
        archive.copy(&name, &file)?;
    }
    let initramfs = archive.write(folder)?;
    let qemu = super::qemu(store, Arch::Amd64)?;
    let config = Config {
        arguments: "loglevel=4 panic=0 no_timer_check lab.scenario=perf",
        memory: 1024,
        cpus: CPUS,
        ..Config::new(Arch::Amd64, &qemu, [&kernel.image, &initramfs, folder])
    };
    let (dumps, console) = dump::of_panic(&config, store, FORMATS)?;
    let pids = pids(&console)?;
    let ours = Ours { program: lastwords };
    let [whole, cut] = dumps.as_slice() else { bail!("{} dumps", dumps.len()) };
    let pages = Pages::new(&whole.files[0], &cut.files[0])?;
    // Both dumps are of the same moment.
    let truth = ours.run("report", whole, &["-s", "truth", "--no-pager"])?;
    let truth = judge::truth(&String::from_utf8_lossy(&truth));
    ensure!(truth.len() == CPUS as usize, "ftrace has events of {} CPUs", truth.len());
    let buffers = |dump: &Dump| -> Result<Value> {
        let said = ours.output("report", dump, &["--perf", "--json"])?;
        Ok(serde_json::from_slice::<Value>(&said.stdout)?["kernels"][0].take())
    };
    let whole = buffers(whole)?;
    for dump in &dumps {
        rows.part(dump.format, |rows| {
            let cut = buffers(dump)?;
            // makedumpfile leaves out pages of a kernel that it does not know.
            if dump.is_cut && cut["evidence"]["losses"] == true {
                let losses = pages.judge(rows, dump.format, &cut["evidence"])?;
                return judge_cut(rows, &ours, dump, &truth, (&whole, &cut), &losses);
            }
            judge_dump(rows, &ours, dump, pids, &truth)
        });
    }
    Ok(())
}

/// Returns the numbers of the two recordings' processes: of the one that stopped reading, and of the
/// one in overwrite mode.
fn pids(console: &str) -> Result<[u32; 2]> {
    let line = console.lines().find_map(|line| line.strip_prefix("PERF kept "));
    let (kept, over) =
        line.and_then(|line| line.split_once(" over ")).context("no line of truth")?;
    Ok([kept.parse()?, over.parse()?])
}

/// Writes the buffers in a dump as files, and compares what perf prints of them.
fn judge_dump(
    rows: &mut Rows,
    ours: &Ours<'_>,
    dump: &Dump,
    pids: [u32; 2],
    truth: &judge::Switches,
) -> Result<()> {
    let format = dump.format;
    let seen = String::from_utf8(ours.run("inspect", dump, &[])?)?;
    for pid in pids {
        let has = |line: &str| {
            ["2 buffers of CPUs 0, 1 of perf", "sched:sched_switch", &format!("({pid}): ")]
                .iter()
                .all(|part| line.contains(part))
        };
        rows.row(seen.lines().any(has), &format!("{format} inspect"), &format!("process {pid}"));
    }
    let to = data(dump)?;
    // Nothing is lost, but what is overwritten.
    ours.run("recover", dump, &["--to", "perf-data", "--strict", "-o", &to])?;
    for (pid, mode) in pids.into_iter().zip(["kept", "overwritten"]) {
        let file = Path::new(&to).join(format!("perf-{pid}.data"));
        let printed = judge::Printed::by_perf(&file)?;
        judge::judge(rows, &format!("{format} {mode}"), truth, &printed, pid);
        if mode == "kept" {
            judge::judge_clock(rows, &format!("{format} {mode}"), &printed);
        }
    }
    Ok(())
}

/// Judges a dump that lacks pages of perf's buffers by what the whole dump has: each record of a
/// buffer is there, or counted among the losses; each buffer that is not there is named, or as many
/// events of its process as are missing; no event is wrong. Losses are the exit status.
fn judge_cut(
    rows: &mut Rows,
    ours: &Ours<'_>,
    dump: &Dump,
    truth: &judge::Switches,
    (whole, cut): (&Value, &Value),
    losses: &[String],
) -> Result<()> {
    let format = dump.format;
    judge::judge_buffers(rows, format, whole, cut, losses)?;
    let to = data(dump)?;
    let wrote = ours.output("recover", dump, &["--to", "perf-data", "-o", &to])?;
    let said = String::from_utf8_lossy(&wrote.stdout);
    for line in said.lines() {
        let file = line.split(": ").next().unwrap_or_default();
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        let what = format!("{format} {name}");
        judge::judge_some(rows, &what, truth, &judge::Printed::by_perf(Path::new(file))?);
        let pid = name.strip_prefix("perf-").context("the name of a file")?;
        let has_lost = losses.iter().any(|loss| loss.contains(&format!(" ({pid}): ")));
        let is_told = !line.contains("nothing lost");
        rows.row(is_told == has_lost, &format!("{what} losses"), line);
    }
    let is_undescribed = cut["evidence"]["gaps"].to_string().contains("undescribed");
    let strict = ours.output("report", dump, &["--perf", "--strict"])?;
    let statuses = [wrote.status.code(), strict.status.code()];
    // Records that nobody can describe are a failure without --strict, too; so is nothing at all.
    let expected = [i32::from(is_undescribed || said.is_empty()), 3].map(Some);
    rows.row(statuses == expected, &format!("{format} statuses"), &format!("{statuses:?}"));
    Ok(())
}

/// The folder for what is recovered of a dump.
fn data(dump: &Dump) -> Result<String> {
    let to = dump.files[0].with_file_name(format!("data-{}", dump.format));
    Ok(to.to_str().context("the path of a folder")?.to_owned())
}
