//! Guests that save the trace of the last boot as the units in `hooks/systemd` do.
//!
//! One QEMU boots several times, with a reset of the machine between: the memory stays, as it does
//! over a warm reboot. Each boot prints what the kernel itself kept of its instance, runs what the
//! units run, and then records until it is reset. What was saved is read by trace-cmd here, and the
//! whole memory of the machine by our program.

mod judge;
mod unit;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::compare::Rows;
use super::packages::{Kernel, Store};
use super::qemu::{Config, Guest};
use super::texts::read;
use super::{Arch, DISK_MODULES, Setup, add_programs, guest_base, qemu, unpack};
use rig::{make_empty, run_quietly};
use unit::Unit;

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "reboot";
pub(super) const WHAT: &str = "the units of hooks/systemd over resets: the trace of the last boot is saved, and as the kernel has it (6.12)";

/// Megabytes of the guest's memory.
const MEMORY: u32 = 512;
/// CPUs of the guest.
const CPUS: u32 = 2;
/// Bytes of the disk that keeps the state, and of one that takes what a boot found; sparse.
const STATE: u64 = 256 << 20;
const FOUND: u64 = 1 << 30;
/// Until a boot has come as far as it is waited for.
const BOOT: Duration = Duration::from_secs(600);
/// Rounds of work of a boot.
const ROUNDS: u32 = 20;
/// Fewest events of a truth.
const LEAST: usize = 1000;

/// A way to start the kernel.
struct Variant {
    name: &'static str,
    /// For the kernel's command line.
    arguments: String,
    boots: u32,
    /// Bytes of the instance for each CPU, if there is one.
    each: Option<u64>,
}

/// Runs all of it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    unit::judge(rows, folder)?;
    let lab = Lab { store, kernel, lastwords, units: unit::all()?, folder };
    let initramfs = lab.initramfs()?;
    let none = Variant { name: "no instance", arguments: String::new(), boots: 1, each: None };
    lab.run(&none, &initramfs, rows)?;
    // What this very guest is told to be started with.
    let arguments = read(&lab.found(&none, 1).join("kernel-args"))?.trim().to_string();
    let of = |name, arguments, boots| Variant { name, arguments, boots, each: Some(6 << 20) };
    let fixed = "memmap=12M$0x10000000 trace_instance=boot_map@0x10000000:12M";
    for variant in [of("memmap", fixed.into(), 3), of("kernel-args", arguments, 2)] {
        lab.run(&variant, &initramfs, rows)?;
    }
    Ok(())
}

struct Lab<'a> {
    store: &'a Store,
    kernel: &'a Kernel,
    lastwords: &'a Path,
    units: Vec<Unit>,
    folder: &'a Path,
}

impl Lab<'_> {
    fn initramfs(&self) -> Result<PathBuf> {
        let busybox = self.store.busybox(Arch::Amd64)?;
        let mut archive =
            guest_base(self.kernel, &busybox, include_bytes!("../guest/units.sh"), DISK_MODULES)?;
        add_programs(&mut archive, self.folder, &[("lastwords", self.lastwords.to_path_buf())])?;
        ["usr", "usr/lib", "usr/lib/lastwords"].iter().for_each(|folder| archive.folder(folder));
        for script in unit::SCRIPTS {
            let path = rig::root().join("hooks/systemd").join(script);
            archive.copy(&format!("usr/lib/lastwords/{script}"), &path)?;
        }
        archive.program("units", unit::script(&self.units).as_bytes());
        archive.write(self.folder)
    }

    /// The folder of what a boot found.
    fn found(&self, variant: &Variant, boot: u32) -> PathBuf {
        self.folder.join(format!("{}-{boot}", variant.name)).join("out")
    }

    /// Boots as often as the variant says, and judges each boot.
    fn run(&self, variant: &Variant, initramfs: &Path, rows: &mut Rows) -> Result<()> {
        let memory = self.folder.join("memory");
        File::create(&memory)?.set_len(u64::from(MEMORY) << 20)?;
        let mut disks = vec![self.state()?];
        for boot in 1..=variant.boots {
            let disk = self.folder.join(format!("found-{boot}.tar"));
            File::create(&disk)?.set_len(FOUND)?;
            disks.push(disk);
        }
        let arguments =
            format!("loglevel=4 panic=0 no_timer_check lab.rounds={ROUNDS} {}", variant.arguments);
        let backend = format!(
            "memory-backend-file,id=ram,share=on,mem-path={},size={MEMORY}M",
            memory.display()
        );
        let more = ["-object", &backend, "-machine", "memory-backend=ram"].map(str::to_string);
        let program = qemu(self.store, Arch::Amd64)?;
        let config = Config {
            arguments: &arguments,
            memory: MEMORY,
            cpus: CPUS,
            reboots: true,
            more: &more,
            disks: &disks,
            ..Config::new(Arch::Amd64, &program, [&self.kernel.image, initramfs, self.folder])
        };
        let mut guest = Guest::start(&config)?;
        let mut texts = Vec::new();
        for boot in 1..=variant.boots {
            guest.wait_for(&format!("LAB-SAVED {boot}."), BOOT)?;
            guest.qmp("stop", json!({}))?;
            texts.push(if variant.each.is_some() && boot > 1 {
                Some(self.memory(&memory)?)
            } else {
                None
            });
            guest.qmp("cont", json!({}))?;
            guest.wait_for(&format!("LAB-RECORDS {boot}."), BOOT)?;
            if boot < variant.boots {
                guest.qmp("system_reset", json!({}))?;
            }
        }
        guest.quit()?;
        std::fs::remove_file(&memory).with_context(|| memory.display().to_string())?;
        for ((boot, disk), text) in (1..).zip(&disks[1..]).zip(texts) {
            let found = self.found(variant, boot);
            let parent = found.parent().context("a folder of a boot")?;
            make_empty(parent)?;
            unpack(disk, parent)?;
            Boot { variant, number: boot, found }.judge(text, rows)?;
        }
        std::fs::remove_file(&disks[0]).with_context(|| disks[0].display().to_string())
    }

    /// The disk with the state, in which as many traces are as are kept, but for one.
    fn state(&self) -> Result<PathBuf> {
        let (disk, tree) = (self.folder.join("state.img"), self.folder.join("tree"));
        make_empty(&tree)?;
        for name in older(kept()? - 1) {
            let folder = tree.join("state/last-boot").join(name);
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join("trace.dat"), "older")?;
        }
        File::create(&disk)?.set_len(STATE)?;
        run_quietly(Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).arg(&tree).arg(&disk))?;
        std::fs::remove_dir_all(&tree)?;
        Ok(disk)
    }

    /// Returns the text that our program prints for the machine's memory, without a given address.
    fn memory(&self, memory: &Path) -> Result<String> {
        let mut command = Command::new(self.lastwords);
        let output = command
            .args(["report", "--raw", "--style", "fields", "--instance", "boot_map"])
            .arg(memory)
            .output()?;
        ensure!(
            output.status.success(),
            "report --raw: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// How many traces the script keeps.
fn kept() -> Result<usize> {
    let path = rig::root().join("hooks/systemd/save-last-boot");
    let script = read(&path)?;
    let number = script.split_once("LASTWORDS_KEEP:-").and_then(|(_, rest)| rest.split_once('}'));
    Ok(number
        .with_context(|| format!("{}: no default of LASTWORDS_KEEP", path.display()))?
        .0
        .parse()?)
}

/// Names of traces of older boots, the oldest first.
fn older(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("20200101T00{number:04}Z-boot_map"))
}

/// A boot, and what it found.
struct Boot<'a> {
    variant: &'a Variant,
    number: u32,
    found: PathBuf,
}

impl Boot<'_> {
    fn judge(&self, memory: Option<String>, rows: &mut Rows) -> Result<()> {
        self.judge_doctor(rows)?;
        self.judge_bundle(rows)?;
        if self.variant.each.is_none() {
            return self.judge_without_instance(rows);
        }
        self.judge_saved(rows)?;
        let Some(memory) = memory else { return self.judge_empty(rows) };
        self.judge_texts(&memory, rows)
    }

    fn row(&self, rows: &mut Rows, ok: bool, what: &str, detail: &str) {
        rows.row(ok, &format!("{}, boot {}: {what}", self.variant.name, self.number), detail);
    }

    fn text(&self, name: &str) -> Result<String> {
        read(&self.found.join(name))
    }

    /// The status of a command or unit, and what it said.
    fn status(&self, name: &str) -> Result<(String, String)> {
        let said = self.text(&format!("{name}.errors")).unwrap_or_default();
        Ok((
            self.text(&format!("{name}.status"))?.trim().to_string(),
            said.trim().replace('\n', "; "),
        ))
    }

    /// Returns the result of one check of `doctor`: its status and its words.
    fn finding(&self, name: &str, check: &str) -> Result<(String, String)> {
        let said: Value =
            serde_json::from_str(&self.text(name)?).with_context(|| name.to_string())?;
        let all = said["checks"].as_array().context("checks of doctor")?;
        let found = all
            .iter()
            .find(|found| found["check"] == check)
            .with_context(|| format!("no check {check}"))?;
        let word = |key: &str| found[key].as_str().unwrap_or_default().to_string();
        Ok((word("status"), format!("{} {}", word("found"), word("mend"))))
    }

    fn judge_doctor(&self, rows: &mut Rows) -> Result<()> {
        let (status, words) = self.finding("doctor", "persistent trace")?;
        let arguments = self.text("kernel-args")?.trim().to_string();
        let ok = match self.variant.each {
            None => {
                status == "off"
                    && words.contains("no trace instance")
                    && words.ends_with(&arguments)
            }
            Some(each) => {
                let expected = format!(
                    "boot_map has {} KiB for each of {CPUS} CPUs, at a stable address",
                    each >> 10
                );
                status == "good" && words.contains(&expected)
            }
        };
        self.row(rows, ok, "doctor on the instance", &format!("{status}: {words}"));
        let is_made =
            self.status("kernel-args")?.0 == "0" && arguments.contains(" trace_instance=boot_map@");
        self.row(rows, is_made, "doctor --kernel-args", &arguments);
        let (before, after) =
            (self.finding("doctor", "bundle")?, self.finding("doctor-after", "bundle")?);
        let expected = if self.number == 1 { "partial" } else { "good" };
        let detail = format!("{} before the units, {} after them", before.0, after.0);
        self.row(rows, before.0 == expected && after.0 == "good", "doctor on the bundle", &detail);
        Ok(())
    }

    /// There is one bundle, of this kernel, and it is the one that the next boot uses.
    fn judge_bundle(&self, rows: &mut Rows) -> Result<()> {
        let (status, said) = self.status("lastwords-bundle.service")?;
        let name = format!("{}.bundle", self.text("release")?.trim());
        let folder = self.found.join("state/bundles");
        let last = std::fs::read_link(folder.join("last.bundle"))?;
        let names = names(&folder)?;
        let ok =
            status == "0" && last == Path::new(&name) && names == [name.as_str(), "last.bundle"];
        self.row(
            rows,
            ok,
            "the bundle is saved once",
            &format!("status {status} {said} {names:?}"),
        );
        Ok(())
    }

    fn judge_without_instance(&self, rows: &mut Rows) -> Result<()> {
        let (status, _) = self.status("lastwords-last-boot.service")?;
        self.row(rows, status.starts_with("not met: "), "no unit without an instance", &status);
        let (status, said) = self.status("by-hand")?;
        let ok = status == "0"
            && said.contains("no persistent trace instance")
            && said.contains("doctor --kernel-args");
        self.row(rows, ok, "the script without an instance", &format!("status {status}: {said}"));
        Ok(())
    }

    fn judge_empty(&self, rows: &mut Rows) -> Result<()> {
        let (status, said) = self.status("lastwords-last-boot.service")?;
        let kernel = judge::events(&self.text("kernel")?).len();
        let ok = status == "0" && kernel == 0 && said.contains("no events");
        self.row(
            rows,
            ok,
            "an empty instance",
            &format!("status {status}: {said}; {kernel} events by the kernel"),
        );
        Ok(())
    }

    /// One trace is saved of each boot but the first. When there are more than are kept, the oldest
    /// is removed.
    fn judge_saved(&self, rows: &mut Rows) -> Result<()> {
        let kept = kept()?;
        let own = self.number as usize - 1;
        let found = names(&self.found.join("state/last-boot"))?;
        let (new, old): (Vec<&String>, Vec<&String>) =
            found.iter().partition(|name| !name.starts_with("20200101T"));
        let expected: Vec<String> = older(kept - 1).skip(own.saturating_sub(1)).collect();
        let ok = new.len() == own && old.iter().copied().eq(&expected);
        let detail = format!("{} new, {} older traces, {kept} are kept", new.len(), old.len());
        self.row(rows, ok, "traces are saved, and the oldest removed", &detail);
        Ok(())
    }

    /// The kernel's own text is the truth for the saved file, for the running instance and for the
    /// memory of the machine.
    fn judge_texts(&self, memory: &str, rows: &mut Rows) -> Result<()> {
        let (text, live) = (self.text("kernel")?, self.text("live")?);
        let truth = judge::events(&text);
        let of_boot = |boot: u32| text.matches(&format!("boot {boot} marker ")).count();
        let (last, others) =
            (of_boot(self.number - 1), (1..self.number - 1).map(of_boot).sum::<usize>());
        let ok = truth.len() >= LEAST && last >= ROUNDS as usize && others == 0;
        let detail =
            format!("{} events, {last} markers of the last boot, {others} of others", truth.len());
        self.row(rows, ok, "what the kernel kept", &detail);
        let (status, said) = self.status("lastwords-last-boot.service")?;
        self.row(rows, status == "0", "the unit", &format!("status {status}: {said}"));
        let folder = self.found.join("state/last-boot");
        let newest = names(&folder)?.pop().context("no trace was saved")?;
        let saved = saved(&folder.join(newest).join("trace.dat"))?;
        let of_ours = [("live", &live), ("memory of the machine", &memory.into())];
        let ours = of_ours.map(|(what, text)| (what, judge::differ(&truth, &judge::events(text))));
        let named = judge::with_named_markers(&truth);
        let by_trace_cmd =
            judge::differ(&judge::without_functions(&named), &judge::without_functions(&saved));
        for (what, (missing, invented, examples)) in
            ours.into_iter().chain([("saved, by trace-cmd", by_trace_cmd)])
        {
            let ok = missing == 0 && invented == 0;
            self.row(
                rows,
                ok,
                what,
                &format!("{missing} events missing, {invented} invented {}", examples.join("; ")),
            );
        }
        let same = live == memory;
        self.row(
            rows,
            same,
            "live and memory are the same text",
            &format!("{} and {} bytes", live.len(), memory.len()),
        );
        Ok(())
    }
}

/// The events of a saved file, as trace-cmd prints their fields.
fn saved(file: &Path) -> Result<Vec<String>> {
    let report =
        |how: &str| run_quietly(Command::new("trace-cmd").args(["report", how, "-i"]).arg(file));
    // Of a marker, the kernel prints no fields.
    let is_marker = |line: &&str| line.contains(": print: ");
    let (fields, markers) = (report("-R")?, report("-N")?);
    let lines =
        fields.lines().filter(|line| !is_marker(line)).chain(markers.lines().filter(is_marker));
    Ok(judge::events(&lines.collect::<Vec<_>>().join("\n")))
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut names: Vec<String> = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_says_how_many_are_kept() {
        let kept = kept().unwrap();
        let names: Vec<String> = older(kept - 1).collect();
        assert!(names.len() > 2 && names.is_sorted(), "{names:?}");
    }
}
