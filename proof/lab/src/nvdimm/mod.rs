//! `cargo xtask nvdimm`: an application records in the persistent memory of a guest, which is reset
//! or panics at a random moment. The session in the memory is recovered, and every event whose call
//! had returned must be there.
//!
//! The memory is a file of the host: QEMU's NVDIMM, or a part of the machine's memory. After each
//! end it is read by the same commands on the host, and in the next boot of the guest, of the
//! device and of the application's file. What they print and recover must be equal. A guest under
//! QEMU has no cache whose contents a reset could lose: the order in which stores become persistent
//! is tested by `cargo xtask persistence`.

mod ack;
pub(crate) mod here;
pub(crate) mod memory;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::initramfs::Archive;
use super::packages::{Kernel, Store};
use super::qemu::{Config, Guest};
use super::{Arch, add_programs, guest_base, qemu};
use ack::Ack;
use lastwords_testkit::random::Random;
use memory::{Files, Memory};
use rig::{make_empty, run_quietly};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kernel: the beginning of a version (`6.12`), a Debian package, or a .deb
    #[arg(long, value_name = "KERNEL", default_value = "6.12")]
    kernel: String,
    /// Ends of the guest, by a reset or a panic
    #[arg(long, default_value_t = 200)]
    resets: u64,
    /// The kind of memory
    #[arg(long, value_enum, default_value_t = Memory::Dax)]
    memory: Memory,
    /// Begin from this seed; by default the clock's
    #[arg(long)]
    seed: Option<u64>,
    /// The program `lastwords` that recovers, here and in the guest, in place of the one that is
    /// built
    #[arg(long, value_name = "FILE")]
    lastwords: Option<PathBuf>,
    /// The part of CI: one reset of its kernel, with the program that the tests have built
    #[arg(long, conflicts_with_all = ["kernel", "resets", "lastwords"])]
    quick: bool,
}

/// Bytes of the persistent memory.
const SIZE: u64 = 64 << 20;
/// Megabytes of the guest's other memory.
pub(crate) const MEMORY: u32 = 512;
/// Until a boot has come as far as it is waited for.
const BOOT: Duration = Duration::from_secs(600);
/// Events that a ring which came round holds at least: all sub-buffers but two, each of its size
/// less 160 bytes, of events of at most 96 bytes.
const KEPT: usize = (here::SUB_BUFFERS.0 as usize - 2) * (here::SUB_BUFFERS.1 as usize - 160) / 96;

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let seed = args.seed.unwrap_or_else(rig::clock_seed);
    let store = Store::open()?;
    let (want, resets) =
        if args.quick { (super::QUICK.0, 1) } else { (args.kernel.as_str(), args.resets) };
    let kernel = store.kernel(want, Arch::Amd64, None)?;
    let built = if args.quick { rig::programs::tested } else { rig::programs::lastwords };
    let lastwords = args.lastwords.clone().map_or_else(built, Ok)?;
    let folder = store.runs().join(format!("{}-nvdimm-{}", kernel.release, args.memory.name()));
    make_empty(&folder)?;
    let files = Files::make(args.memory, &folder)?;
    let initramfs = initramfs(&store, &kernel, args.memory, &lastwords, &folder)?;
    println!("kernel {}, memory {}, seed {seed}", kernel.release, args.memory.name());
    let place =
        Place { lastwords, files, text: folder.join("text"), recovered: folder.join("recovered") };
    let done =
        Lab { store: &store, kernel: &kernel, initramfs: &initramfs, folder: &folder, place }
            .run(resets, seed);
    done.with_context(|| {
        format!("--seed {seed}; the memory and the console are in {}", folder.display())
    })?;
    std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())
}

/// The guest's first file system.
fn initramfs(
    store: &Store,
    kernel: &Kernel,
    memory: Memory,
    lastwords: &Path,
    folder: &Path,
) -> Result<PathBuf> {
    let init = include_bytes!("../guest/nvdimm.sh");
    let archive = archive(store, kernel, init, memory.modules(), lastwords, folder)?;
    archive.write(folder)
}

/// The first file system of a guest with persistent memory: modules, and the names of those that
/// are loaded first in their order; the lab itself and `lastwords`.
pub(crate) fn archive(
    store: &Store,
    kernel: &Kernel,
    init: &[u8],
    names: &[&str],
    lastwords: &Path,
    folder: &Path,
) -> Result<Archive> {
    let mut archive = guest_base(kernel, &store.busybox(Arch::Amd64)?, init, &[])?;
    archive.program("persistent", include_bytes!("../guest/persistent.sh"));
    archive.modules("modules", names, kernel)?;
    let programs = [("lab", rig::own_program()), ("lastwords", lastwords.to_path_buf())];
    add_programs(&mut archive, folder, &programs)?;
    Ok(archive)
}

/// The persistent memory, and the program that reads it.
struct Place {
    lastwords: PathBuf,
    files: Files,
    text: PathBuf,
    recovered: PathBuf,
}

/// A text of events: its lines, and their checksum as `md5sum` prints it; and a checksum of the
/// files that are recovered.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    lines: usize,
    sum: String,
    recovered: String,
}

/// Prints one checksum of the files in a folder.
const SUM_OF_FILES: &str = "find . -type f | sort | xargs md5sum | md5sum";

impl Place {
    /// Recovers from the host's file and judges. Returns the page of the application, the events,
    /// and the text.
    fn judge(&self) -> Result<(Ack, usize, Said)> {
        let ack = Ack::find(&self.files.acks()?)
            .context("no page of the application is in the memory")?;
        ensure!(ack.ready, "the session of boot {} has not begun", ack.boot);
        let session = self.files.session()?;
        let mut command = Command::new(&self.lastwords);
        command
            .args(["report", "--utc"])
            .arg(session)
            .stdout(File::create(&self.text)?)
            .stderr(Stdio::piped());
        let output = command.output().context("lastwords report")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "lastwords report: {}\n{errors}", output.status);
        let text = std::fs::read_to_string(&self.text)?;
        let count = ack::judge(&ack, &text, KEPT)
            .with_context(|| format!("boot {}: {ack:?}\n{errors}", ack.boot))?;
        let sum = sum(Command::new("md5sum").arg(&self.text))?;
        if self.recovered.exists() {
            std::fs::remove_dir_all(&self.recovered)?;
        }
        run_quietly(
            Command::new(&self.lastwords)
                .arg("recover")
                .arg(session)
                .arg("-o")
                .arg(&self.recovered),
        )?;
        let recovered = sum_of_files(&self.recovered)?;
        Ok((ack, count, Said { lines: text.lines().count(), sum, recovered }))
    }
}

fn sum_of_files(folder: &Path) -> Result<String> {
    sum(Command::new("sh").args(["-c", SUM_OF_FILES]).env("LC_ALL", "C").current_dir(folder))
}

/// The checksum that a command prints first.
fn sum(command: &mut Command) -> Result<String> {
    Ok(run_quietly(command)?.split_whitespace().next().unwrap_or_default().to_string())
}

/// The inputs of a run.
struct Lab<'a> {
    store: &'a Store,
    kernel: &'a Kernel,
    initramfs: &'a Path,
    folder: &'a Path,
    place: Place,
}

impl Lab<'_> {
    fn run(&self, resets: u64, seed: u64) -> Result<()> {
        let begun = Instant::now();
        let kind = self.place.files.kind;
        let more = self.place.files.of_qemu();
        let arguments = format!("loglevel=3 panic=1 no_timer_check {}", kind.arguments());
        let program = qemu(self.store, Arch::Amd64)?;
        let config = Config {
            arguments: &arguments,
            memory: MEMORY,
            cpus: 1,
            reboots: true,
            more: &more,
            ..Config::new(Arch::Amd64, &program, [&self.kernel.image, self.initramfs, self.folder])
        };
        let mut guest = Guest::start(&config)?;
        let mut rng = Random(seed);
        let (mut events, mut returned, mut panics) = (0, 0, 0);
        for boot in 0..resets {
            let records = format!("NVDIMM-RECORDS {boot}.");
            guest.wait_until(&records, BOOT, true, |console| console.contains(&records))?;
            let before = guest.console().len();
            if ack::panics(boot) {
                panics += 1;
                guest.wait_until("the reports of a boot", BOOT, true, |console| {
                    reports(&console[before..], kind.inputs()).is_some()
                })?;
            } else {
                std::thread::sleep(Duration::from_micros(rng.below(1_500_000)));
            }
            guest.qmp("stop", json!({}))?;
            let (ack, count, ours) = self.place.judge()?;
            ensure!(ack.boot == boot, "the memory is of boot {}, not {boot}", ack.boot);
            events += count;
            returned += ack.writers.iter().map(|writer| writer.returned).sum::<u64>();
            if !ack::panics(boot) {
                guest.qmp("system_reset", json!({}))?;
            }
            guest.qmp("cont", json!({}))?;
            guest.wait_until("the reports of a boot", BOOT, true, |console| {
                reports(&console[before..], kind.inputs()).is_some()
            })?;
            let console = guest.console();
            for (input, said) in reports(&console[before..], kind.inputs()).unwrap_or_default() {
                ensure!(
                    said == ours,
                    "boot {boot}: {input} has {said:?} in the guest, the host's file {ours:?}"
                );
            }
            if boot % 10 == 9 {
                println!(
                    "{} ends, {events} events, {:.0} s",
                    boot + 1,
                    begun.elapsed().as_secs_f64()
                );
            }
        }
        guest.quit()?;
        println!(
            "{}: {resets} ends ({panics} panics) in {:.0} s: {returned} events recorded, {events} were in the rings; none lost, torn \
             or invented; what guest and host report and recover is equal",
            kind.name(),
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

/// Returns the reports of a boot on its inputs; none until it has reported on all of them.
fn reports(console: &str, inputs: usize) -> Option<Vec<(String, Said)>> {
    let (told, _) = console.split_once("NVDIMM-REPORTED")?;
    let report = |line: &str| {
        let words: Vec<&str> = line.trim().strip_prefix("NVDIMM-REPORT ")?.split(' ').collect();
        let &[input, "0", lines, sum, recovered] = words.as_slice() else {
            return Some((
                line.to_string(),
                Said { lines: 0, sum: String::new(), recovered: String::new() },
            ));
        };
        let (sum, recovered) = (sum.to_string(), recovered.to_string());
        Some((input.to_string(), Said { lines: lines.parse().ok()?, sum, recovered }))
    };
    let all: Vec<_> = told.lines().filter_map(report).collect();
    (all.len() == inputs).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_failed_is_no_text() {
        let console =
            "NVDIMM-REPORT /pmem/session 0 12 abc def\r\nNVDIMM-REPORT /dev/pmem0 1 0 d41 d42\r\n";
        assert_eq!(reports(console, 2), None, "the boot is not done");
        let all = reports(&format!("{console}NVDIMM-REPORTED\r\n"), 2).unwrap();
        assert_eq!(
            all[0],
            (
                "/pmem/session".into(),
                Said { lines: 12, sum: "abc".into(), recovered: "def".into() }
            )
        );
        assert_eq!(all[1].1.lines, 0);
    }
}
