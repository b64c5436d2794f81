//! The rigs of `proof/`: each is a program of its own. CI runs a small count of each.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use rig::programs;
use rig::scratch::Scratch;

/// 60 programs that record by `tracing`. The seed is always the same, so that a change is judged by what it changes; the program itself takes new
/// ones.
pub(crate) fn tracing() -> Result<()> {
    let babeltrace = rig::bin().join("babeltrace2.1").display().to_string();
    run("lastwords-proof-tracing", &["--shapes", "60", "--seed", "1", "--babeltrace", &babeltrace])
}

/// The rows of the table of surroundings that take least time.
pub(crate) fn surroundings() -> Result<()> {
    ensure!(rig::is_root(), "namespaces and limits of memory need root");
    run("lastwords-proof-surroundings", &["--quick"])
}

/// Dumps of which pages are taken out: a new kernel's instances, an aarch64's, one that is compressed.
const DUMPS: &[(&str, &str)] = &[
    ("ftrace-6.12-basic/memory.elf.zst", "100"),
    ("ftrace-6.12-arm64/memory.elf.zst", "60"),
    ("ftrace-6.12-live-crash/makedumpfile-1.7.2-d31.kdump", "40"),
];

/// 200 images of dumps without some of their pages, where the dumps are.
pub(crate) fn exclude() -> Result<()> {
    let cases = rig::beside().join("cases");
    if !cases.is_dir() {
        println!("no crash cases beside the repository: nothing is taken out");
        return Ok(());
    }
    DUMPS.iter().try_for_each(|(dump, images)| {
        run("lastwords-proof-exclude", &[&cases.join(dump).display().to_string(), "--images", images])
    })
}

/// Copies of traces without some of their parts: a session of a program that was killed, and the folder of CTF that is recovered of it; and,
/// where the dumps are, trace.dat files of a dump, ours and trace-cmd's, LTTng's shared memory, and the folder of CTF of a kernel's LTTng.
pub(crate) fn remove() -> Result<()> {
    let room = Scratch::create(&programs::target()?, "proof-remove")?;
    let program = programs::debug()?.join("lastwords").display().to_string();
    let take = |trace: &Path, images: &str| {
        run("lastwords-proof-remove", &[&trace.display().to_string(), "--program", &program, "--images", images])
    };
    let recover = |trace: &Path, to: &Path| {
        run("lastwords", &["recover", &trace.display().to_string(), "-o", &to.display().to_string()])
    };
    let session = killed_session(room.path())?;
    take(&session, "100")?;
    let folder = room.path().join("ctf");
    recover(&session, &folder)?;
    take(&folder, "100")?;
    let cases = rig::beside().join("cases");
    if !cases.is_dir() {
        println!("no crash cases beside the repository: no trace.dat file is made of one");
        return Ok(());
    }
    let (ours, other) = (room.path().join("ours.dat"), room.path().join("other.dat"));
    recover(&cases.join(DUMPS[0].0), &ours)?;
    take(&ours, "50")?;
    let mut convert = Command::new("trace-cmd");
    convert
        .args(["convert", "--file-version", "7", "--compression", "none"])
        .arg("-i")
        .arg(&ours)
        .arg("-o")
        .arg(&other);
    rig::run_quietly(&mut convert)?;
    take(&other, "50")?;
    let (memory, lttng) = (room.path().join("memory"), room.path().join("lttng"));
    std::fs::create_dir(&memory)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(cases.join(MEMORY)).arg("-C").arg(&memory);
    rig::run_quietly(&mut unpack)?;
    take(&memory, "100")?;
    recover(&cases.join(LTTNG), &lttng)?;
    take(&lttng, "50")
}

/// LTTng's shared memory of a program that was killed, and the dump of a kernel that LTTng traced.
const MEMORY: &str = "ust-shm-crash/shm.tar";
const LTTNG: &str = "lttng-6.12-live/vmcore.elf.zst";

/// Runs a program that records, and kills it. Returns the folder of its session.
fn killed_session(room: &Path) -> Result<PathBuf> {
    let sessions = room.join("sessions");
    let mut child = Command::new(programs::debug()?.join("shop"))
        .env("LASTWORDS_DIR", &sessions)
        .stdout(Stdio::null())
        .spawn()
        .context("shop")?;
    std::thread::sleep(Duration::from_millis(1500));
    child.kill()?;
    child.wait()?;
    let mut folders =
        std::fs::read_dir(&sessions)?.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir());
    folders.find(|path| path.join("session").exists()).context("the program made no session")
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let path = programs::debug()?.join(program);
    let status = Command::new(&path).args(arguments).status().with_context(|| path.display().to_string())?;
    ensure!(status.success(), "{program} {}: {status}", arguments.join(" "));
    Ok(())
}
