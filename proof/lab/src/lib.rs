//! `cargo xtask lab`: kernels of Debian under QEMU, crashed and dumped; what we make of the dump
//! beside what they printed.
//!
//! No KVM is needed. A guest runs a scenario, sends what its own kernel prints of the trace to a
//! disk, and panics; its memory is dumped in each format and every text is compared to the byte. A
//! truth without events is an error.
#![forbid(unsafe_code)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use compare::{Ours, Rows};
use dump::{Dump, Format};
use initramfs::{Archive, add_programs};
use packages::{Kernel, Program, Store, package_of_debian};
use qemu::{Config, Guest};
use rig::{make_empty, run_quietly};
use scenario::{End, SCENARIOS, Scenario};

mod attacks;
mod bpf;
mod choice;
mod command;
mod compare;
mod confined;
mod coredumpd;
mod cost;
mod dump;
mod guests;
mod hist;
mod hist_dump;
mod hotplug;
mod initramfs;
mod installed;
mod jobs;
mod kdump;
mod kernel_log;
mod live;
mod lttng;
mod nvdimm;
mod packages;
mod pages;
mod perf;
mod pstore;
mod qemu;
pub mod reboot;
mod record;
mod recorder;
mod scenario;
mod sections;
pub mod static_build;
pub mod texts;
mod units;
mod user_events;
mod watch_guest;
mod why;
mod wide;

pub use command::run as run_command;

#[derive(clap::Args)]
struct Args {
    /// A kernel: the beginning of a version (`6.12`), a Debian package, or a .deb (may be given
    /// several times)
    #[arg(long, value_name = "KERNEL")]
    kernel: Vec<String>,
    /// A scenario (may be given several times); all of them where none is named
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// A form of dump (may be given several times), in place of the scenario's own
    #[arg(long, value_name = "NAME")]
    format: Vec<String>,
    /// The guest's architecture
    #[arg(long, value_enum, default_value_t = Arch::Amd64)]
    arch: Arch,
    /// The kernel's flavour, for example arm64-16k; without it, the cloud kernel
    #[arg(long)]
    flavour: Option<String>,
    /// The program to judge, in place of the one that is built here; for the scenarios kcore and
    /// kdump it must be static
    #[arg(long, value_name = "FILE")]
    lastwords: Option<PathBuf>,
    /// Source of LTTng's modules, a folder or an archive, in place of the package of the kernel's
    /// suite
    #[arg(long, value_name = "SOURCE")]
    lttng_modules: Option<PathBuf>,
    /// Resets for each cause, in the scenario why
    #[arg(long, value_name = "N", default_value_t = 20)]
    count: u32,
    /// Keep dumps and truth
    #[arg(long)]
    keep: bool,
    /// The part of CI: one kernel and one scenario where none is named, and the program that the
    /// tests have built
    #[arg(long)]
    quick: bool,
    /// List scenarios and formats
    #[arg(long)]
    list: bool,
}

/// The architecture of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arch {
    /// x86_64.
    Amd64,
    /// aarch64.
    Arm64,
}

impl Arch {
    fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    fn flavour(self) -> &'static str {
        match self {
            Self::Amd64 => "cloud-amd64",
            Self::Arm64 => "cloud-arm64",
        }
    }

    /// The program in it.
    fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "usr/bin/qemu-system-x86_64",
            Self::Arm64 => "usr/bin/qemu-system-aarch64",
        }
    }

    /// The package of its QEMU.
    fn package(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86",
            Self::Arm64 => "qemu-system-arm",
        }
    }

    fn machine(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &[],
            Self::Arm64 => &["-machine", "virt,gic-version=3"],
        }
    }

    fn cpu(self) -> &'static str {
        match self {
            Self::Amd64 => "max",
            Self::Arm64 => "max,pauth-impdef=on",
        }
    }

    fn console(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS0",
            Self::Arm64 => "ttyAMA0",
        }
    }
}

/// A scenario with guests of its own, which runs where it is named.
struct Other {
    name: &'static str,
    what: &'static str,
    run: fn(&Setup<'_>, &mut Rows) -> Result<()>,
}

/// The resources of such a scenario.
#[derive(Clone, Copy)]
struct Setup<'a> {
    store: &'a Store,
    kernel: &'a Kernel,
    /// The program to judge.
    lastwords: &'a Path,
    /// Empty when the scenario begins.
    folder: &'a Path,
    /// How often each case is repeated.
    count: u32,
}

const OTHERS: &[Other] = &[
    Other { name: units::NAME, what: units::WHAT, run: units::run },
    Other { name: installed::NAME, what: installed::WHAT, run: installed::run },
    Other { name: record::NAME, what: record::WHAT, run: record::run },
    Other { name: guests::NAME, what: guests::WHAT, run: guests::run },
    Other { name: user_events::NAME, what: user_events::WHAT, run: user_events::run },
    Other { name: choice::NAME, what: choice::WHAT, run: choice::run },
    Other { name: cost::NAME, what: cost::WHAT, run: cost::run },
    Other { name: hist::NAME, what: hist::WHAT, run: hist::run },
    Other { name: hist_dump::NAME, what: hist_dump::WHAT, run: hist_dump::run },
    Other { name: attacks::NAME, what: attacks::WHAT, run: attacks::run },
    Other { name: bpf::NAME, what: bpf::WHAT, run: bpf::run },
    Other { name: sections::NAME, what: sections::WHAT, run: sections::run },
    Other { name: pstore::NAME, what: pstore::WHAT, run: pstore::run },
    Other { name: perf::NAME, what: perf::WHAT, run: perf::run },
    Other { name: coredumpd::NAME, what: coredumpd::WHAT, run: coredumpd::run },
    Other { name: confined::SYSTEMD, what: confined::OF_SYSTEMD, run: confined::systemd },
    Other { name: watch_guest::NAME, what: watch_guest::WHAT, run: watch_guest::run },
    Other { name: why::NAME, what: why::WHAT, run: why::run },
    Other { name: confined::SELINUX, what: confined::OF_SELINUX, run: confined::selinux },
];

/// Kernels that are tried where none is named: the suites' own.
const KERNELS: &[&str] = &["5.10", "6.1", "6.12", "6.18", "7.2"];
/// Kernel and scenario of CI.
const QUICK: (&str, &str) = ("6.1", "snapshot");
/// Modules for the disks, each behind those that it needs. Some kernels have some of them built in.
const DISK_MODULES: &[&str] = &[
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
];
/// Modules by which QEMU learns of the kernel: VMCOREINFO, and the panic.
const QEMU_MODULES: &[&str] = &["qemu_fw_cfg", "pvpanic", "pvpanic-pci"];
/// The suite of the QEMU for all: that of bookworm, 7.2, spoils a register of its guests now and
/// then.
const QEMU: &str = "trixie";
/// How often a guest is started that panics by itself.
const BOOTS: u32 = 3;
/// Until the truth is there, and until the panic has been printed.
const TRUTH: Duration = Duration::from_secs(1200);
const PANIC: Duration = Duration::from_secs(300);
/// Size of a disk that takes what the guest sends, bytes; sparse.
const DISK: u64 = 1 << 30;

/// What is to run, by its kind.
struct Chosen {
    scenarios: Vec<&'static Scenario>,
    of_lttng: Vec<&'static lttng::Scenario>,
    others: Vec<&'static Other>,
}

/// Returns what was asked for by name; without names, CI's scenario or all.
fn choose(args: &Args) -> Result<Chosen> {
    let (mut scenarios, mut of_lttng, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for name in &args.scenario {
        if let Some(other) = OTHERS.iter().find(|other| other.name == name) {
            others.push(other);
            continue;
        }
        if let Some(found) = lttng::find(name) {
            of_lttng.push(found);
            continue;
        }
        let found = scenario::find(name);
        scenarios.push(found.with_context(|| {
            format!("no scenario `{name}`: `cargo xtask lab --list` lists them")
        })?);
    }
    let is_named = !(scenarios.is_empty() && of_lttng.is_empty() && others.is_empty());
    if !is_named && args.quick {
        scenarios.push(scenario::find(QUICK.1).context("CI's scenario")?);
    } else if !is_named {
        scenarios
            .extend(SCENARIOS.iter().filter(|s| args.arch == Arch::Amd64 || s.end != End::Kdump));
    }
    Ok(Chosen { scenarios, of_lttng, others })
}

/// Runs it.
fn run(args: &Args) -> Result<()> {
    if args.list {
        list();
        return Ok(());
    }
    let formats = args.format.iter().map(|f| dump::find(f)).collect::<Result<Vec<_>>>()?;
    let Chosen { scenarios, of_lttng, others } = choose(args)?;
    let store = Store::open()?;
    let program = match &args.lastwords {
        Some(program) => program.clone(),
        None if args.quick => rig::programs::tested()?,
        None => rig::programs::lastwords()?,
    };
    let wanted: Vec<&str> = match args.kernel.as_slice() {
        [] if args.quick => vec![QUICK.0],
        [] => KERNELS.to_vec(),
        named => words(named),
    };
    let mut summary = Vec::new();
    for want in wanted {
        let kernel = store.kernel(want, args.arch, args.flavour.as_deref())?;
        let mut judge = |name: &str, run: &dyn Fn(&Path, &mut Rows) -> Result<()>| {
            let begin = Instant::now();
            let mut rows = Rows::new(format!("{} {name}", kernel.release));
            let folder = store.runs().join(rows.name.replace(' ', "-"));
            let ran = make_empty(&folder).and_then(|()| run(&folder, &mut rows));
            let ran = ran.and_then(|()| match args.keep || rows.failed > 0 {
                true => Ok(()),
                false => Ok(std::fs::remove_dir_all(&folder)?),
            });
            if let Err(error) = ran {
                rows.row(false, "run", &format!("{error:#}"));
            }
            summary.push((rows, begin.elapsed()));
        };
        let given = args.lastwords.is_some();
        let lab = Lab { store: &store, kernel: &kernel, arch: args.arch, program: &program, given };
        for scenario in &scenarios {
            judge(scenario.name, &|folder, rows| lab.run(scenario, &formats, folder, rows));
        }
        for scenario in &of_lttng {
            let guest = (&store, &kernel, args.lttng_modules.as_deref());
            judge(scenario.name, &|folder, rows| {
                lttng::run(guest, scenario, &program, &formats, folder, rows)
            });
        }
        for other in &others {
            judge(other.name, &|folder, rows| {
                let (store, kernel, lastwords) = (&store, &kernel, program.as_path());
                let setup = Setup { store, kernel, lastwords, folder, count: args.count };
                (other.run)(&setup, rows)
            });
        }
    }
    summarize(&summary)
}

/// The kernels of CI's steps.
const QUICK_KERNELS: [&str; 2] = [QUICK.0, reboot::QUICK];

/// Fetches what CI's steps with guests need.
fn prepare_quick() -> Result<()> {
    let store = Store::open()?;
    for want in QUICK_KERNELS {
        store.kernel(want, Arch::Amd64, None)?;
    }
    qemu(&store, Arch::Amd64)?;
    store.busybox(Arch::Amd64).map(drop)
}

/// The kernels of CI's steps, if they and their QEMU have been fetched.
fn quick_kernels() -> Option<String> {
    let store = Store::open().ok()?;
    let kernels = QUICK_KERNELS
        .map(|want| store.kept(want, Arch::Amd64).ok().flatten().map(|kernel| kernel.release));
    let is_ready = store.has(Arch::Amd64.package(), QEMU, Arch::Amd64.qemu());
    kernels
        .into_iter()
        .collect::<Option<Vec<_>>>()
        .filter(|_| is_ready)
        .map(|kernels| kernels.join(", "))
}

/// The machine of all guests.
fn qemu(store: &Store, arch: Arch) -> Result<Program> {
    store.program(arch.package(), QEMU, arch.qemu())
}

fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn list() {
    println!("scenarios:");
    for s in SCENARIOS {
        println!("  {:<16} {} [{}]", s.name, s.what, s.formats.join(" "));
    }
    println!("scenarios that are run where they are named:");
    let others = OTHERS.iter().map(|other| (other.name, other.what));
    for (name, what) in lttng::SCENARIOS.iter().map(|s| (s.name, s.what)).chain(others) {
        println!("  {name:<16} {what}");
    }
    println!("formats:");
    for f in dump::FORMATS {
        println!("  {:<16} {}", f.name, f.what);
    }
    println!("kernels where none is named: {}", KERNELS.join(", "));
}

fn summarize(runs: &[(Rows, Duration)]) -> Result<()> {
    println!();
    for (rows, took) in runs {
        println!(
            "{:<44} {:>4} ok {:>4} short {:>7.1} s",
            rows.name,
            rows.passed,
            rows.failed,
            took.as_secs_f64()
        );
    }
    let (passed, failed) =
        runs.iter().fold((0, 0), |(p, f), (rows, _)| (p + rows.passed, f + rows.failed));
    println!("{passed} passed, {failed} failed");
    if failed > 0 || passed == 0 {
        bail!("{failed} of {} comparisons fell short", passed + failed);
    }
    Ok(())
}

/// Starts a guest and waits until it says `ready`, right before it is to crash. One that panics by
/// itself is started once more.
fn boot(config: &Config<'_>, ready: &str) -> Result<Guest> {
    let mut left = BOOTS;
    loop {
        left -= 1;
        let mut guest = Guest::start(config)?;
        match guest.wait_for(ready, TRUTH) {
            Ok(()) => return Ok(guest),
            Err(error) if left > 0 && guest.console().contains("end Kernel panic") => {
                eprintln!("the guest panicked by itself, again: {error:#}");
            }
            Err(error) => return Err(error),
        }
    }
}

/// Unpacks what a guest has written to a disk, and removes the disk.
fn unpack(disk: &Path, folder: &Path) -> Result<()> {
    run_quietly(Command::new("tar").arg("-C").arg(folder).arg("-xf").arg(disk))?;
    std::fs::remove_file(disk).with_context(|| disk.display().to_string())
}

/// busybox, the first program, and modules.
fn guest_base(kernel: &Kernel, busybox: &Path, init: &[u8], modules: &[&str]) -> Result<Archive> {
    let mut archive = Archive::default();
    archive.folder("bin");
    archive.folder("mod");
    archive.copy("bin/busybox", busybox)?;
    archive.program("init", init);
    archive.program("prelude", include_bytes!("guest/prelude.sh"));
    let mut names = Vec::new();
    for name in modules {
        if let Some(module) = kernel.module(name)? {
            archive.program(&format!("mod/{name}.ko"), &module);
            names.push(*name);
        }
    }
    archive.program("modules", names.join("\n").as_bytes());
    Ok(archive)
}

/// The resources of one run.
struct Lab<'a> {
    store: &'a Store,
    kernel: &'a Kernel,
    arch: Arch,
    program: &'a Path,
    /// The program is the user's choice.
    given: bool,
}

impl Lab<'_> {
    fn run(
        &self,
        scenario: &'static Scenario,
        formats: &[&'static Format],
        folder: &Path,
        rows: &mut Rows,
    ) -> Result<()> {
        rows.unlike = if scenario.is_wide { wide::UNLIKE } else { &[] };
        let own = scenario.formats.iter().map(|f| dump::find(f)).collect::<Result<Vec<_>>>()?;
        let formats = if formats.is_empty() || scenario.end == End::Kdump { &own } else { formats };
        let initramfs = self.initramfs(scenario, folder)?;
        let disks = [folder.join("truth.tar"), folder.join("saved.tar")];
        for disk in &disks {
            File::create(disk)?.set_len(DISK)?;
        }
        let end = scenario.end.name();
        let mut arguments =
            format!("loglevel=4 panic=0 lab.scenario={} lab.end={end}", scenario.name);
        if self.arch == Arch::Amd64 {
            // On a host that has much to do, a guest finds its timer too slow to work.
            arguments += " no_timer_check";
        }
        if !scenario.arguments.is_empty() {
            arguments += &format!(" {}", scenario.arguments);
        }
        if scenario.end == End::Kdump {
            arguments += &format!(" crashkernel={}", kdump::CRASH_MEMORY);
        }
        let qemu = qemu(self.store, self.arch)?;
        let more = if scenario.is_wide { wide::devices(self.store, folder)? } else { Vec::new() };
        let config = Config {
            arguments: &arguments,
            more: &more,
            memory: scenario.memory,
            cpus: scenario.cpus,
            more_cpu: scenario.more_cpu,
            pause_at_panic: scenario.end == End::Live,
            disks: &disks,
            ..Config::new(self.arch, &qemu, [&self.kernel.image, &initramfs, folder])
        };
        let ready = if scenario.end == End::Live { "LAB-CRASHES" } else { "LAB-TRUTH-DONE" };
        let mut guest = boot(&config, ready)?;
        let (dumps, console) = self.crash(&mut guest, scenario, formats, folder)?;
        guest.quit()?;
        std::fs::remove_file(&initramfs)?;
        for disk in &disks {
            if scenario.end != End::Live && (scenario.end == End::Kdump || disk == &disks[0]) {
                unpack(disk, folder)?;
            } else {
                std::fs::remove_file(disk)?;
            }
        }
        self.judge(scenario, &dumps, &console, folder, rows)
    }

    fn initramfs(&self, scenario: &Scenario, folder: &Path) -> Result<PathBuf> {
        let busybox = self.store.busybox(self.arch)?;
        let modules = [DISK_MODULES, QEMU_MODULES].concat();
        let mut archive =
            guest_base(self.kernel, &busybox, include_bytes!("guest/init.sh"), &modules)?;
        archive.modules("scenario-modules", scenario.modules, self.kernel)?;
        if matches!(scenario.end, End::Kcore | End::Kdump) {
            let ours = if self.given {
                self.program.to_path_buf()
            } else {
                static_build::build(None, static_build::Symbols::Removed)?
            };
            static_build::prove(&ours)?;
            match scenario.end {
                End::Kdump => kdump::add(&mut archive, self.kernel, &busybox, self.store, &ours)?,
                _ => archive.copy("bin/lastwords", &ours)?,
            }
        }
        archive.write(folder)
    }

    /// Waits for the crash and dumps the memory; the dumps, and the console at the end.
    fn crash(
        &self,
        guest: &mut Guest,
        scenario: &Scenario,
        formats: &[&'static Format],
        folder: &Path,
    ) -> Result<(Vec<Dump>, String)> {
        match scenario.end {
            End::Stopped | End::Kcore => {
                guest.wait_for("end Kernel panic", PANIC)?;
                guest.qmp("stop", json!({}))?;
                Ok((dump::make(guest, self.store, formats, folder)?, guest.console()))
            }
            End::Live => {
                // The rings are as the panic left them; then the kernel prints and consumes them.
                guest.wait_paused(PANIC)?;
                let dumps = dump::make(guest, self.store, formats, folder)?;
                guest.qmp("cont", json!({}))?;
                guest.wait_for("end Kernel panic", PANIC)?;
                Ok((dumps, guest.console()))
            }
            End::Kdump => {
                guest.wait_for("LAB-CRASH-SAVED", PANIC)?;
                Ok((Vec::new(), guest.console()))
            }
        }
    }

    fn judge(
        &self,
        scenario: &Scenario,
        dumps: &[Dump],
        console: &str,
        folder: &Path,
        rows: &mut Rows,
    ) -> Result<()> {
        let (truth, ours) = (folder.join("truth"), Ours { program: self.program });
        if scenario.end == End::Live {
            for dump in dumps {
                live::compare(rows, &ours, dump, console)?;
                compare::markers(rows, &ours, dump, None);
            }
            return Ok(());
        }
        compare::check_truth(&truth, scenario)?;
        if scenario.end == End::Kdump {
            return kdump::judge(rows, &folder.join("saved"), &truth);
        }
        if scenario.end == End::Kcore {
            kdump::judge_running(rows, &truth)?;
        }
        // Function tracers overwrite the markers.
        let told = std::fs::read_to_string(truth.join("system/last_marker"))?;
        let last = std::fs::read_to_string(truth.join("top/trace"))?
            .contains(&format!(": marker {}", told.trim()));
        let last = last.then(|| told.trim().parse()).transpose()?;
        for dump in dumps {
            compare::texts(rows, &ours, dump, &truth)?;
            compare::counts(rows, &ours, dump, &truth)?;
            if last.is_some() {
                compare::markers(rows, &ours, dump, last);
            }
        }
        let Some(dump) = dumps.first() else { return Ok(()) };
        kernel_log::compare(rows, &ours, dump, &truth)?;
        compare::trace_dat(rows, &ours, dump, &truth)
    }
}
