//! The inputs: stored cases of real kernels and of LTTng, and traces that are made here.

use crate::Lab;
use anyhow::{Context as _, Result, ensure};
use lastwords_testkit::ctf::Stream;
use lastwords_testkit::put::{Order, Packed};
use lastwords_testkit::random::Random;
use lastwords_testkit::{samples, scheduling};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The stored cases: a kernel's ftrace on two machines and in two kinds of dumps, LTTng's kernel
/// tracer, its user-space tracer in a core.
pub(crate) const CASES: [&str; 5] = [
    "ftrace-6.12-basic/memory.elf.zst",
    "ftrace-6.12-arm64/memory.elf.zst",
    "ftrace-6.12-live-crash/makedumpfile-1.7.2-d31.kdump",
    "lttng-6.12-live/vmcore.elf.zst",
    "lttng-6.12-snapshot-stopped/vmcore.elf.zst",
];
/// The folder of shared memory of LTTng's user-space tracer.
const SHARED_MEMORY: &str = "ust-shm-crash/shm.tar";

/// Makes the inputs in a folder. Returns their paths.
pub(crate) fn make(lab: &Lab, folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let mut inputs = small(lab, folder)?;
    let cases = rig::beside().join("cases");
    if !cases.is_dir() {
        println!("no crash cases beside the repository: only made traces are judged");
        return Ok(inputs);
    }
    for (number, case) in CASES.iter().enumerate() {
        let path = folder.join(format!("case-{number}"));
        std::os::unix::fs::symlink(cases.join(case), &path)?;
        inputs.push(path);
    }
    let memory = folder.join("shared-memory");
    std::fs::create_dir(&memory)?;
    let mut unpack = Command::new("tar");
    rig::run_quietly(unpack.arg("-xf").arg(cases.join(SHARED_MEMORY)).arg("-C").arg(&memory))?;
    inputs.push(memory);
    for (number, to) in [(0, "of-dump.dat"), (3, "lttng-ctf")] {
        let path = folder.join(to);
        let mut recover = lab.lastwords();
        recover.arg("recover").arg(cases.join(CASES[number])).arg("-o").arg(&path);
        rig::run_quietly(&mut recover)?;
        inputs.push(path);
    }
    Ok(inputs)
}

/// Makes the inputs that take no time to read: sessions, CTF of a kernel's scheduler with and
/// without losses, a program that was killed.
pub(crate) fn small(lab: &Lab, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut inputs = Vec::new();
    for number in 0..3 {
        let path = folder.join(format!("session-{number}"));
        samples::numbered(Order::Little, number).image().write_folder(&path)?;
        inputs.push(path);
    }
    for number in 0..6 {
        let path = folder.join(format!("scheduler-{number}"));
        std::fs::create_dir(&path)?;
        scheduling::write(&path, &mut Random(lab.seed ^ number), number % 2 == 1);
        inputs.push(path);
    }
    inputs.push(recorded(folder, "killed", 3000)?);
    Ok(inputs)
}

/// Runs a program that records into a session and dies. Returns the folder of the session.
fn recorded(folder: &Path, name: &str, events: u64) -> Result<PathBuf> {
    let sessions = folder.join(name);
    rig::scratch::private(&sessions)?;
    let mut child = Command::new(rig::own_program());
    child.arg("--record").arg(&sessions).arg(events.to_string());
    // The program aborts, and no core is wanted.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -c 0; \"$@\"", "sh"]).arg(child.get_program());
    let ran = limited.args(child.get_args()).output()?;
    ensure!(!ran.status.success(), "the program that records did not die");
    let folders = std::fs::read_dir(&sessions)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found = folders.filter(|path| path.join("session").exists());
    found.next().context("the program made no session")
}

/// Makes the traces that are measured: a session, the CTF that is recovered of it, the CTF of a
/// kernel's scheduler, and the trace.dat file and the dump of a kernel, if there is one.
pub(crate) fn large(lab: &Lab, folder: &Path, events: u64) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let session = recorded(folder, "recorded", events)?;
    let recover = |from: &Path, to: &Path| {
        let mut recover = lab.lastwords();
        rig::run_quietly(recover.arg("recover").arg(from).arg("-o").arg(to)).map(drop)
    };
    let [named, ctf, kernel] = ["session", "ctf", "kernel-ctf"].map(|name| folder.join(name));
    std::fs::rename(&session, &named)?;
    recover(&named, &ctf)?;
    scheduler(&kernel, events)?;
    let mut inputs = vec![named, ctf, kernel];
    let dump = rig::beside().join("cases").join(CASES[0]);
    if dump.exists() {
        let (plain, dat) = (folder.join("dump"), folder.join("trace.dat"));
        let mut unpack = Command::new("zstd");
        rig::run_quietly(unpack.args(["-q", "-d", "--long=27"]).arg(&dump).arg("-o").arg(&plain))?;
        recover(&plain, &dat)?;
        inputs.extend([plain, dat]);
    }
    Ok(inputs)
}

/// Writes a trace of a kernel's scheduler: on each of four CPUs, system calls and switches.
pub(crate) fn scheduler(folder: &Path, events: u64) -> Result<()> {
    const CPUS: u64 = 4;
    std::fs::create_dir(folder)?;
    let metadata = scheduling::metadata("kernel", scheduling::EVENTS);
    std::fs::write(folder.join("metadata"), metadata)?;
    for cpu in 0..CPUS {
        let mut stream = Stream::default();
        for number in 0..events / CPUS {
            let time = 1000 + number * 700 + cpu;
            let thread = 100 + (cpu + number / 6 * CPUS) as u32 % 4000;
            let event = |id: u16| Packed::new(Order::Little).u16(id).u64(time).u32(thread);
            let event = match number % 6 {
                0 | 2 => event(3).u32(number as u32 % 64),
                1 | 3 => event(4).u32(4096),
                4 => event(1).u32(4),
                _ => event(0).u32(thread).u32(100 + (cpu + (number / 6 + 1) * CPUS) as u32 % 4000),
            };
            stream.put(time, &event.done());
            if number % 4096 == 4095 {
                stream.close(cpu as u32);
            }
        }
        stream.close(cpu as u32);
        std::fs::write(folder.join(format!("stream-{cpu}")), &stream.file)?;
    }
    Ok(())
}
