//! A guest's black box read from outside: the guest records until it panics, `watch-guest` recovers
//! the trace from its memory alone, and the dump that QEMU makes afterwards has the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rig::{make_empty, shown};

use super::compare::{Ours, Rows};
use super::qemu::{Config, Guest};
use super::{Arch, DISK_MODULES, QEMU_MODULES, Setup, TRUTH, dump, guest_base, live};

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "watch-guest";
pub(super) const WHAT: &str = "watch-guest reads the memory of guests that panic, in a file and in QEMU; the dump made afterwards has the same";

/// A place of a guest's memory: its name, megabytes, and QEMU's options.
type Place = (&'static str, u32, fn(&Path) -> Vec<String>);

const PLACES: [Place; 3] =
    [("file", 512, of_file), ("anonymous", 512, |_| Vec::new()), ("large", 5120, of_descriptor)];
/// Until the traces are written, after the panic.
const WRITTEN: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(50);

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let modules = [DISK_MODULES, QEMU_MODULES].concat();
    let busybox = setup.store.busybox(Arch::Amd64)?;
    let archive = guest_base(setup.kernel, &busybox, include_bytes!("guest/init.sh"), &modules)?;
    let initramfs = archive.write(setup.folder)?;
    for place in PLACES {
        let folder = setup.folder.join(place.0);
        make_empty(&folder)?;
        one(setup, place, &initramfs, &folder, rows).with_context(|| place.0)?;
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// Kills a guest in one place, and judges what was recovered of it.
fn one(
    setup: &Setup<'_>,
    (place, memory, options): Place,
    initramfs: &Path,
    folder: &Path,
    rows: &mut Rows,
) -> Result<()> {
    let qemu = super::qemu(setup.store, Arch::Amd64)?;
    let socket = folder.join("watched");
    let mut more = options(folder);
    more.extend(["-qmp".into(), format!("unix:{},server=on,wait=off", socket.display())]);
    let config = Config {
        arguments: "loglevel=4 panic=0 no_timer_check lab.scenario=live-crash lab.end=live",
        cpus: 2,
        memory,
        pause_at_panic: true,
        more: &more,
        ..Config::new(Arch::Amd64, &qemu, [&setup.kernel.image, initramfs, folder])
    };
    let mut guest = Guest::start(&config)?;
    let watch = Watch::start(setup.lastwords, &socket, folder)?;
    guest.wait_paused(TRUTH)?;
    let said = watch.end()?;
    let seconds = said.lines().find_map(|line| line.strip_prefix("read in "));
    rows.row(
        said.contains("the guest panicked"),
        &format!("{place}: recovered"),
        &format!("in {}", seconds.context("no time")?),
    );
    let dumps = dump::make(&mut guest, setup.store, &[dump::find("elf")?], folder)?;
    let ours = Ours { program: setup.lastwords };
    for (instance, text) in recovered(&folder.join("out"))? {
        for dump in &dumps {
            let whole = ours.run("report", dump, &["--instance", &instance])?;
            let what = format!("{place}: {instance} is equal to the dump");
            rows.same_text(&what, &whole, &Ok(text.clone()));
        }
    }
    // What the kernel prints as it dies comes after the pause.
    guest.qmp("cont", serde_json::json!({}))?;
    guest.wait_until("the end of the panic", super::PANIC, true, |console| {
        console.contains("end Kernel panic")
    })?;
    let console = guest.console().replace('\r', "");
    guest.quit()?;
    dumps.iter().try_for_each(|dump| live::compare(rows, &ours, dump, &console))
}

/// The instances and their texts, among them the top level.
fn recovered(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut texts = BTreeMap::new();
    for file in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = file?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).context("a name")?;
        let instance = name.strip_prefix("trace-").unwrap_or("top").to_owned();
        texts.insert(instance, std::fs::read(&path)?);
    }
    ensure!(texts.contains_key("top"), "{}: the top level is missing", folder.display());
    Ok(texts)
}

/// A running `watch-guest`.
struct Watch(Child);

impl Watch {
    fn start(program: &Path, socket: &Path, folder: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("watch-guest").arg(socket).arg("-o").arg(folder.join("out"));
        command.args(["--to", "text"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self(command.spawn().with_context(|| shown(&command))?))
    }

    /// Waits until it ends, and returns what it printed.
    fn end(mut self) -> Result<String> {
        let begun = Instant::now();
        while self.0.try_wait()?.is_none() {
            ensure!(begun.elapsed() < WRITTEN, "watch-guest does not end");
            std::thread::sleep(LOOK);
        }
        let read = |from: Option<&mut dyn std::io::Read>| {
            let mut text = String::new();
            from.map(|from| from.read_to_string(&mut text)).transpose().map(|_| text)
        };
        let said = read(self.0.stdout.as_mut().map(|out| out as _))?;
        let errors = read(self.0.stderr.as_mut().map(|errors| errors as _))?;
        let status = self.0.wait()?;
        ensure!(status.success(), "watch-guest: {status}\n{said}{errors}");
        Ok(said)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn of_file(folder: &Path) -> Vec<String> {
    let file = folder.join("ram");
    let object =
        format!("memory-backend-file,id=ram0,size=512M,share=on,mem-path={}", file.display());
    of_object(object)
}

/// Memory without a path, part of it above 4 GB.
fn of_descriptor(_: &Path) -> Vec<String> {
    of_object("memory-backend-memfd,id=ram0,size=5120M".into())
}

fn of_object(object: String) -> Vec<String> {
    ["-machine".into(), "q35,memory-backend=ram0".into(), "-object".into(), object].into()
}
