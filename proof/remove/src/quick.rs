//! The part of CI: traces that are made here, of a program that is killed and of the dumps that are
//! kept beside the repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rig::programs;
use rig::scratch::Scratch;

use super::{Args, read};

/// The dump of which trace.dat files are made.
const DUMP: &str = "ftrace-6.12-basic/memory.elf.zst";

/// Copies of traces without some of their parts: a session of a program that was killed, and the
/// folder of CTF that is recovered of it; and, where the dumps are, trace.dat files of a dump, ours
/// and trace-cmd's, LTTng's shared memory, the folder of CTF of a kernel's LTTng, and a kernel's
/// persistent ring with the bundle that describes it, without the bundle's compression and with it.
pub(super) fn run(args: &Args) -> Result<()> {
    let room = Scratch::create(&programs::target()?, "proof-remove")?;
    let program = programs::tested()?;
    let take = |trace: &Path, images: u64| {
        let args = Args { program: program.clone(), images, ..args.clone() };
        let right = super::all(&args, trace)?;
        ensure!(right, "{}: what is left was not read as it must be", trace.display());
        Ok(())
    };
    let recover = |trace: &Path, to: &Path| {
        rig::run_quietly(Command::new(&program).arg("recover").arg(trace).arg("-o").arg(to))
            .map(drop)
    };
    let session = killed_session(room.path())?;
    take(&session, 100)?;
    let folder = room.path().join("ctf");
    recover(&session, &folder)?;
    take(&folder, 100)?;
    let cases = rig::beside().join("cases");
    if !cases.is_dir() {
        println!("no crash cases beside the repository: no trace.dat file is made of one");
        return Ok(());
    }
    let (ours, other) = (room.path().join("ours.dat"), room.path().join("other.dat"));
    recover(&cases.join(DUMP), &ours)?;
    take(&ours, 50)?;
    let mut convert = Command::new("trace-cmd");
    convert
        .args(["convert", "--file-version", "7", "--compression", "none"])
        .arg("-i")
        .arg(&ours)
        .arg("-o")
        .arg(&other);
    rig::run_quietly(&mut convert)?;
    take(&other, 50)?;
    let (memory, lttng) = (room.path().join("memory"), room.path().join("lttng"));
    std::fs::create_dir(&memory)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(cases.join(MEMORY)).arg("-C").arg(&memory);
    rig::run_quietly(&mut unpack)?;
    take(&memory, 100)?;
    recover(&cases.join(LTTNG), &lttng)?;
    take(&lttng, 50)?;
    let (plain, packed) = (room.path().join("plain"), room.path().join("packed"));
    bundles(&program, &cases.join(PERSISTENT), &plain, &packed)?;
    take(&plain, 60)?;
    take(&packed, 20)
}

/// Makes two folders of a persistent ring with the bundle of its kernel: an archive, and one that is
/// compressed.
fn bundles(program: &Path, case: &Path, plain: &Path, packed: &Path) -> Result<()> {
    let unpack = |from: &Path, to: &Path| {
        let mut unpack = Command::new("zstd");
        unpack.args(["-q", "-d"]).arg(from).arg("-o").arg(to);
        rig::run_quietly(&mut unpack).map(drop)
    };
    for folder in [plain, packed] {
        std::fs::create_dir(folder)?;
        unpack(&case.join("region-before-second-boot.bin.zst"), &folder.join(read::REGION))?;
    }
    let files = plain.with_extension("files");
    rig::copied::files(&case.join("truth/first-boot/system"), &files)?;
    let bundle = packed.join(read::BUNDLE);
    let mut pack = Command::new(program);
    rig::run_quietly(pack.args(["bundle", "pack"]).arg(&files).arg("-o").arg(&bundle))?;
    unpack(&bundle, &plain.join(read::BUNDLE))
}

/// LTTng's shared memory of a program that was killed, and the dump of a kernel that LTTng traced.
const MEMORY: &str = "ust-shm-crash/shm.tar";
const LTTNG: &str = "lttng-6.12-live/vmcore.elf.zst";
/// A persistent ring of a kernel.
const PERSISTENT: &str = "ftrace-6.12-persistent";

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
    let mut folders = std::fs::read_dir(&sessions)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir());
    folders.find(|path| path.join("session").exists()).context("the program made no session")
}
