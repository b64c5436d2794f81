//! Limits on memory. Sessions in memory count for the limit of those who record them.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::bench::{APP, Bench, PLAIN};

/// Applications that run one after another under a limit.
const RUNS: usize = 9;
/// KB that a limit leaves after it was lowered.
const SPARE: u64 = 100;

/// Where a limit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// The group's own: at it, the kernel kills.
    Max,
    /// The group's own, above which the kernel takes memory back and slows down (`memory.high`;
    /// version 2 only).
    High,
    /// The group above it, which the application's own group does not show.
    Above,
}

/// A cgroup of ours, which goes with this, as does the one above it.
struct Cgroup {
    /// The application's.
    group: PathBuf,
    /// The one that has the limit.
    limited: PathBuf,
    above: Option<PathBuf>,
}

const VERSION_2: &str = "/sys/fs/cgroup";

/// Returns true where control groups of version 2 limit memory.
pub(crate) fn is_version_2() -> bool {
    std::fs::read_to_string(Path::new(VERSION_2).join("cgroup.controllers"))
        .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "memory"))
}

impl Cgroup {
    /// Makes a cgroup with a limit of so many MB: of version 2 where that limits memory, otherwise
    /// of version 1.
    fn new(at: At, limit: u64) -> Result<Self> {
        let name = format!("lastwords-proof.{}.{limit}", std::process::id());
        let version_2 = is_version_2();
        let parent = Path::new(if version_2 { VERSION_2 } else { "/sys/fs/cgroup/memory" });
        let (max, swap) = if version_2 {
            ("memory.max", "memory.swap.max")
        } else {
            ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        };
        ensure!(version_2 || at != At::High, "control groups of version 1 have no such limit");
        let delegate = |folder: &Path| -> Result<()> {
            if version_2 {
                std::fs::write(folder.join("cgroup.subtree_control"), "+memory")
                    .context("memory is not delegated")?;
            }
            Ok(())
        };
        delegate(parent)?;
        let limited = parent.join(name);
        std::fs::create_dir(&limited)
            .with_context(|| format!("{}: as root only", limited.display()))?;
        let mut made = Self { group: limited.clone(), limited: limited.clone(), above: None };
        std::fs::write(
            limited.join(if at == At::High { "memory.high" } else { max }),
            (limit << 20).to_string(),
        )?;
        // Without it, memory goes to a swap where there is one; not every kernel can limit that.
        let _ =
            std::fs::write(limited.join(swap), if version_2 { 0 } else { limit << 20 }.to_string());
        if at == At::Above {
            delegate(&limited)?;
            std::fs::create_dir(limited.join("inner"))?;
            made.group = limited.join("inner");
            made.above = Some(limited);
        }
        Ok(made)
    }

    /// Lowers the limit to so many KB above what the group uses and cannot free.
    fn lower(&self, spare: u64) -> Result<()> {
        let (max, usage, caches) = if is_version_2() {
            ("memory.max", "memory.current", ["inactive_file ", "active_file "])
        } else {
            let caches = ["total_inactive_file ", "total_active_file "];
            ("memory.limit_in_bytes", "memory.usage_in_bytes", caches)
        };
        let read = |name: &str| std::fs::read_to_string(self.limited.join(name)).context("read");
        let stat = read("memory.stat")?;
        let cache = |line: &str| {
            caches.iter().find_map(|name| line.strip_prefix(name)?.parse::<u64>().ok())
        };
        let caches: u64 = stat.lines().filter_map(cache).sum();
        let used = read(usage)?.trim().parse::<u64>()?.saturating_sub(caches);
        let limit = (used + (spare << 10)).to_string();
        std::fs::write(self.limited.join(max), &limit).with_context(|| format!("{max}: {limit}"))
    }

    /// The words that put a program there.
    fn wrapper(&self) -> [String; 5] {
        let script = "echo $$ > \"$1/cgroup.procs\" && shift && exec \"$@\"".to_owned();
        ["sh".into(), "-c".into(), script, "sh".into(), self.group.display().to_string()]
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.group);
        self.above.iter().for_each(|above| remove(above));
    }
}

/// Removes a cgroup. Its last process may still be going.
fn remove(group: &Path) {
    for _ in 0..100 {
        if std::fs::remove_dir(group).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    eprintln!("{} stays", group.display());
}

/// Applications that die, end and record much, one after another.
fn run_all(bench: &Bench, dir: &Path, group: &Cgroup, inner: &[&str]) -> Result<()> {
    let wrapper = group.wrapper();
    let wrapper: Vec<&str> =
        wrapper.iter().map(String::as_str).chain(inner.iter().copied()).collect();
    for run in 0..RUNS {
        let words = [["", "abort"], ["many", "exit"], ["many", "kill"]][run % 3];
        bench.run(dir, &wrapper, &words).with_context(|| format!("run {run}"))?;
    }
    Ok(())
}

/// Ends as without a recorder, and no more is kept than the limit allows.
pub(crate) fn limit(bench: &Bench, dir: &Path, at: At, megabytes: u64) -> Result<()> {
    let group = Cgroup::new(at, megabytes)?;
    let done = run_all(bench, dir, &group, &[]);
    let sessions = bench.sessions(dir, &[]);
    // The pages go before their group does.
    let used = bytes(dir)?;
    std::fs::remove_dir_all(dir)?;
    done?;
    let sessions = sessions?;
    ensure!(used <= (megabytes << 20) / 2, "sessions keep {used} bytes of {megabytes} MB");
    ensure!(megabytes < 24 || !sessions.is_empty(), "nothing was recorded");
    Ok(())
}

/// The application waits while its limit is lowered until almost nothing is left, and records much
/// then. `wait` is the time after which its recorder must have seen that.
pub(crate) fn lowered(
    bench: &Bench,
    dir: &Path,
    at: At,
    megabytes: u64,
    wait: Duration,
) -> Result<()> {
    let run = |name: &str| -> Result<ExitStatus> {
        let group = Cgroup::new(at, megabytes)?;
        let wrapper = group.wrapper();
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let mut staying = bench.stay_as(name, dir, &wrapper, &["later", "exit"])?;
        group.lower(SPARE)?;
        std::thread::sleep(wait);
        let status = staying.go_on();
        // The pages go before their group does.
        std::fs::remove_dir_all(dir)?;
        rig::scratch::private(dir)?;
        status
    };
    let (expected, status) = (run(PLAIN)?, run(APP)?);
    ensure!(expected.code() == Some(7), "without a recorder, it ended with {expected}");
    ensure!(status == expected, "it ended with {status}, without a recorder {expected}");
    Ok(())
}

/// Sessions of another that are there already count for nobody here.
pub(crate) fn limit_inside(bench: &Bench, dir: &Path) -> Result<()> {
    for _ in 0..4 {
        bench.run(dir, &[], &["many", "kill"])?;
    }
    limit(bench, dir, At::Max, 24)
}

/// A machine of 128 CPUs, as far as programs look.
const MANY_CPUS: &[&str] = &[
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount --bind \"$LASTWORDS_DIR/../present\" /sys/devices/system/cpu/present && exec \"$@\"",
    "sh",
];
/// Most bytes that a session takes there, before and after many events on few CPUs.
const IDLE: u64 = 4 << 20;
const BUSY: u64 = 16 << 20;

/// A session takes memory for the CPUs that record, not for those that are there.
pub(crate) fn many_cpus(bench: &Bench, dir: &Path) -> Result<()> {
    let present = dir.parent().context("a folder")?.join("present");
    std::fs::write(&present, "0-127\n")?;
    let mut staying = bench.stay(dir, MANY_CPUS, &["", "sleep"])?;
    ensure!(bench.only(dir, &[])?.is_live(), "it lives");
    let idle = bytes(dir)?;
    staying.kill()?;
    ensure!(idle <= IDLE, "an idle session takes {idle} bytes");
    std::fs::remove_dir_all(bench.only(dir, &[])?.folder)?;
    bench.run(dir, MANY_CPUS, &["many", "kill"])?;
    let busy = bytes(dir)?;
    ensure!(busy <= BUSY, "a session takes {busy} bytes");
    std::fs::remove_dir_all(bench.only(dir, &[])?.folder)?;
    let group = Cgroup::new(At::Max, 24)?;
    let done = run_all(bench, dir, &group, MANY_CPUS);
    std::fs::remove_dir_all(dir)?;
    done.context("with a limit of 24 MB")
}

/// The memory that files of a folder take.
fn bytes(folder: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let data = entry.metadata()?;
        sum += if data.is_dir() { bytes(&entry.path())? } else { data.blocks() * 512 };
    }
    Ok(sum)
}
