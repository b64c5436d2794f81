//! Guests that run jobs one after the other, and say of each how it ended.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::compare::Rows;
use super::initramfs::Archive;
use super::packages::{Kernel, Store};
use super::qemu::{Config, Guest};
use super::{Arch, Setup, qemu};

/// Megabytes.
const MEMORY: u32 = 2048;

/// The machine that runs them.
pub(super) struct Machine<'a> {
    pub(super) arch: Arch,
    /// The kernel's command line but for the console.
    pub(super) arguments: &'a str,
    pub(super) cpus: u32,
    /// Each instruction takes a nanosecond of the guest's time, which has one CPU then.
    pub(super) counts_instructions: bool,
    /// Until all have ended, the boot included.
    pub(super) limit: Duration,
}

impl Machine<'_> {
    /// Boots in a folder, which goes when all jobs of the first file system have ended well, and
    /// judges what the guest says.
    pub(super) fn run(
        &self,
        store: &Store,
        kernel: &Kernel,
        archive: Archive,
        jobs: usize,
        folder: &Path,
    ) -> Result<()> {
        let begun = Instant::now();
        let mut rows = Rows::new(format!("{}, {} CPUs", kernel.release, self.cpus));
        self.judged(store, kernel, archive, jobs, folder, &mut rows)?;
        super::summarize(&[(rows, begun.elapsed())])?;
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())
    }

    /// Boots in a folder, and adds a row for each job.
    pub(super) fn judged(
        &self,
        store: &Store,
        kernel: &Kernel,
        archive: Archive,
        jobs: usize,
        folder: &Path,
        rows: &mut Rows,
    ) -> Result<()> {
        let initramfs = archive.write(folder)?;
        let program = qemu(store, self.arch)?;
        let config = Config {
            arguments: self.arguments,
            memory: MEMORY,
            cpus: self.cpus,
            counts_instructions: self.counts_instructions,
            ..Config::new(self.arch, &program, [&kernel.image, &initramfs, folder])
        };
        let mut guest = Guest::start(&config)?;
        guest.wait_for("RECORDER-DONE", self.limit)?;
        let console = guest.console().replace('\r', "");
        guest.quit()?;
        judge(&console, jobs, rows)
    }
}

/// Returns the archive that all guests with jobs have: busybox, the first program, the jobs' names
/// and commands.
pub(super) fn base(store: &Store, arch: Arch, jobs: &[(String, String)]) -> Result<Archive> {
    let mut archive = Archive::default();
    archive.folder("bin");
    archive.folder("lib");
    archive.copy("bin/busybox", &store.busybox(arch)?)?;
    archive.program("init", include_bytes!("guest/recorder.sh"));
    let lines = jobs.iter().map(|(name, command)| format!("{name} {command}\n"));
    archive.program("jobs", lines.collect::<String>().as_bytes());
    Ok(archive)
}

/// Jobs that are words of a script of the guest, in order, with the seconds that each may take. The
/// script is read when the guest is made.
pub(super) fn of_script(
    store: &Store,
    script: &str,
    words: &[(&str, u32)],
) -> Result<(Archive, usize)> {
    let job = |(word, seconds): &(&str, u32)| {
        ((*word).to_string(), format!("timeout {seconds} sh /script {word}"))
    };
    let jobs: Vec<(String, String)> = words.iter().map(job).collect();
    let mut archive = base(store, Arch::Amd64, &jobs)?;
    archive.copy("script", &rig::root().join("proof/lab/src/guest").join(script))?;
    Ok((archive, jobs.len()))
}

/// Boots a guest whose jobs are words of a script, and adds a row for each.
pub(super) fn judge_script(
    setup: &Setup<'_>,
    archive: Archive,
    jobs: usize,
    limit: Duration,
    rows: &mut Rows,
) -> Result<()> {
    let arguments = "loglevel=1 panic=0 no_timer_check";
    let machine =
        Machine { arch: Arch::Amd64, arguments, cpus: 2, counts_instructions: false, limit };
    machine.judged(setup.store, setup.kernel, archive, jobs, setup.folder, rows)
}

/// Adds the rows of a console.
pub(super) fn judge(console: &str, expected: usize, rows: &mut Rows) -> Result<()> {
    let mut ended = 0;
    let mut printed = Vec::new();
    for line in console.lines() {
        if line.starts_with("RECORDER-BEGIN ") {
            printed.clear();
        } else if let Some(end) = line.strip_prefix("RECORDER-END ") {
            let (job, status) =
                end.split_once(' ').with_context(|| format!("the guest says: {line}"))?;
            ended += 1;
            if status == "0" && printed.contains(&"running 0 tests") {
                // Models are tests elsewhere.
                continue;
            }
            rows.row(
                status == "0",
                job,
                &format!("status {status}\n      {}", printed.join("\n      ")),
            );
        } else {
            printed.push(line);
        }
    }
    ensure!(ended == expected, "{ended} of {expected} jobs ended in the guest");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_does_not_end_is_an_error() {
        let console = "RECORDER-BEGIN a\nfine\nRECORDER-END a 0\nRECORDER-BEGIN n\nrunning 0 tests\nRECORDER-END n 0\n\
                       RECORDER-BEGIN b\nbad\nRECORDER-END b 101\n";
        let mut rows = Rows::new("x".into());
        judge(console, 3, &mut rows).unwrap();
        assert_eq!((rows.passed, rows.failed), (1, 1));
        assert!(judge(console, 4, &mut rows).is_err());
    }
}
