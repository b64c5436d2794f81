//! Accesses the dying process by one handle: the helper opens `/proc/PID` first of all, and
//! everything else below it. If the process ends, the handle gives errors. It never leads to
//! another process that gets the number.
//!
//! After `/proc/PID` is open, the helper checks that the number still was the dying process's: by
//! the kernel's own handle of the process (a pidfd, `%F`, Linux 6.16 and some older ones), or else
//! by the times at which this helper and the process began.

use anyhow::{Context, bail};
use lastwords_control::dead::Death;
use rustix::fs::{AtFlags, CWD, Dir, Gid, Mode, OFlags, Uid, fstat, fstatfs, openat, statat};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use rustix::thread::{
    CapabilitySet, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};

/// Magic of pidfs, in which each process has a number of its own that is never used again (Linux
/// 6.9).
const PIDFS: u64 = 0x5049_4446;
/// Why a process is not the one that dies.
const NOT_IT: &str = "it is gone, and another process has its number";
/// Largest number of threads among which one is looked for that is still there.
const MOST_THREADS: usize = 1 << 16;

/// A process that the kernel is dumping.
pub(super) struct Process {
    /// `/proc/PID`, or the folder of one of its threads if the first thread has ended.
    folder: OwnedFd,
    status: Status,
    /// Its root and its working folder. They are only opened as paths: a file system of a user
    /// need not answer.
    pub(super) root: OwnedFd,
    pub(super) cwd: OwnedFd,
}

impl Process {
    /// Opens the process of this number, and makes sure that it is the one for which the kernel has
    /// started this helper. `handle` is the number of the pidfd that the kernel gave.
    ///
    /// # Errors
    /// The kernel is not dumping it, or it is another process than that of the handle, or, without
    /// a handle, younger than this helper.
    pub(super) fn open(pid: u32, handle: Option<i32>) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}");
        let first = open_folder(CWD, &path).context("it is gone")?;
        let mut status = Status::read(&first)?;
        match handle.and_then(number_of) {
            Some(number) if number == i64::from(pid) => {}
            Some(_) => bail!(NOT_IT),
            None => must_be_older(pid, &first, &status)?,
        }
        let mut folder = first;
        if status.is_zombie() {
            (folder, status) = living_thread(&folder)?;
        }
        if !status.is_dumping() {
            bail!("the kernel is not dumping it");
        }
        let root = open_folder(&folder, "root").context("its root")?;
        let cwd = open_folder(&folder, "cwd").context("its working folder")?;
        Ok(Self { folder, status, root, cwd })
    }

    /// Opens a file of `/proc/PID`.
    pub(super) fn file(&self, name: &str, flags: OFlags) -> anyhow::Result<OwnedFd> {
        openat(&self.folder, name, flags | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| format!("its `{name}`"))
    }

    /// Returns the inode of one of the process's namespaces; 0 if it is not known.
    fn namespace(&self, name: &str) -> u64 {
        statat(&self.folder, name, AtFlags::empty()).map_or(0, |stat| stat.st_ino)
    }

    /// Returns the user of the process.
    pub(super) fn owner(&self) -> anyhow::Result<Owner> {
        let mut owner = self.status.owner()?;
        let ours =
            statat(CWD, "/proc/self/ns/user", AtFlags::empty()).map_or(0, |stat| stat.st_ino);
        // In a user namespace of its own, a process has capabilities that are none outside of it.
        if ours == 0 || self.namespace("ns/user") != ours {
            owner.capabilities = 0;
        }
        Ok(owner)
    }

    /// Returns how the process dies, as its sessions note it.
    pub(super) fn death(&self, pid: u32, signal: u8) -> Death {
        Death {
            pid: self.status.own_pid().unwrap_or(pid),
            pid_namespace: self.namespace("ns/pid"),
            signal,
        }
    }
}

fn open_folder(at: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    openat(at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Checks that the process began before this helper, which the kernel starts for it. A process that
/// has got the number of one that ended is younger. The handle has to be open before.
fn must_be_older(pid: u32, folder: &OwnedFd, status: &Status) -> anyhow::Result<()> {
    let is_older = match is_older_in_pidfs(pid) {
        Some(is_older) => is_older,
        // Kernels before 6.9 tell the start in ticks of 10 ms. Within one tick, only a process is
        // taken that has no other rights than its user.
        None => {
            let own = open_folder(CWD, "/proc/self").context("this process")?;
            let (began, helper) = (start_time(folder)?, start_time(&own)?);
            began < helper || (began == helper && status.has_one_user())
        }
    };
    if !is_older {
        bail!(NOT_IT);
    }
    Ok(())
}

/// Returns the number that the process of a pidfd has now; -1 if the process has been reaped, so
/// that another one may get its number; none if the file is no pidfd. The kernel keeps a process
/// that it dumps, and the handle is older than this helper. So if the process has the number now,
/// it had it all the time.
fn number_of(pidfd: i32) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{pidfd}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

/// Compares the numbers of the two processes in pidfs, which grow from process to process; none
/// where there is no pidfs.
fn is_older_in_pidfs(pid: u32) -> Option<bool> {
    let number = |pid: Pid| {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let is_pidfs = fstatfs(&handle).is_ok_and(|system| system.f_type as u64 == PIDFS);
        fstat(&handle).ok().filter(|_| is_pidfs).map(|stat| stat.st_ino)
    };
    let helper = number(getpid())?;
    // If there is no process of this number any more, it is not older.
    Some(Pid::from_raw(pid as i32).and_then(number).is_some_and(|dying| dying < helper))
}

/// Returns field 22 of `stat`: the start of the process, in ticks since boot.
fn start_time(folder: &OwnedFd) -> anyhow::Result<u64> {
    let text = read_below(folder, "stat")?;
    let words = text.rsplit_once(')').map_or("", |(_, words)| words);
    words
        .split_ascii_whitespace()
        .nth(19)
        .and_then(|word| word.parse().ok())
        .context("no start of the process")
}

/// Finds a thread that is still there, of a process whose first thread has ended.
fn living_thread(folder: &OwnedFd) -> anyhow::Result<(OwnedFd, Status)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let threads = openat(folder, "task", flags, Mode::empty()).context("its threads")?;
    for entry in Dir::read_from(&threads).context("its threads")?.take(MOST_THREADS).flatten() {
        let name = entry.file_name().to_string_lossy();
        if name.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(thread) = open_folder(&threads, &name)
            && let Ok(status) = Status::read(&thread)
            && !status.is_zombie()
        {
            return Ok((thread, status));
        }
    }
    bail!("all its threads have ended");
}

fn read_below(folder: &OwnedFd, name: &str) -> anyhow::Result<String> {
    let file = openat(folder, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let mut text = String::new();
    file.map_err(std::io::Error::from)
        .and_then(|file| File::from(file).read_to_string(&mut text))
        .with_context(|| format!("its `{name}`"))?;
    Ok(text)
}

/// The user of a process, with the ids that the kernel uses for files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// Effective capabilities, as a mask.
    capabilities: u64,
}

impl Owner {
    /// Gives up this process's rights for those of the owner, for good. This process has one
    /// thread.
    pub(super) fn become_owner(&self) -> anyhow::Result<()> {
        self.take_groups()?;
        let uid = Uid::from_raw(self.uid);
        set_thread_res_uid(uid, uid, uid).context("the process's user")
    }

    /// Takes the owner's rights for what this process does from here on. The process itself stays
    /// one of root, so that the user can neither stop it nor look into it.
    pub(super) fn take_rights(&self) -> anyhow::Result<()> {
        self.take_groups()?;
        set_thread_res_uid(Uid::ROOT, Uid::from_raw(self.uid), Uid::ROOT)
            .context("the process's user")?;
        let mut sets = capabilities(None).context("capabilities")?;
        sets.effective = sets.permitted & CapabilitySet::from_bits_retain(self.capabilities);
        set_capabilities(None, sets).context("the process's capabilities")
    }

    fn take_groups(&self) -> anyhow::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let gid = Gid::from_raw(self.gid);
        set_thread_groups(&groups).context("the groups of the process's user")?;
        set_thread_res_gid(gid, gid, gid).context("the group of the process's user")
    }
}

/// The text of `/proc/PID/status`.
struct Status(String);

impl Status {
    fn read(folder: &OwnedFd) -> anyhow::Result<Self> {
        read_below(folder, "status").map(Self)
    }

    fn line(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }

    fn numbers(&self, name: &str) -> Vec<u32> {
        self.line(name)
            .unwrap_or_default()
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    }

    fn is_zombie(&self) -> bool {
        self.line("State").is_some_and(|state| state.trim_start().starts_with(['Z', 'X']))
    }

    /// Returns false if the kernel says that it is not dumping the process's core. Kernels before
    /// 4.15 do not say it.
    fn is_dumping(&self) -> bool {
        self.numbers("CoreDumping") != [0]
    }

    /// Returns true if the process has no other rights than its user, as a setuid program has.
    fn has_one_user(&self) -> bool {
        let ids = self.numbers("Uid");
        ids.len() == 4 && ids.iter().all(|id| *id == ids[0])
    }

    fn owner(&self) -> anyhow::Result<Owner> {
        // Real, effective, saved, and that of the file system.
        let of_files = |name| {
            self.numbers(name).get(3).copied().with_context(|| format!("no {name} of the process"))
        };
        let capabilities = self
            .line("CapEff")
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0);
        Ok(Owner {
            uid: of_files("Uid")?,
            gid: of_files("Gid")?,
            groups: self.numbers("Groups"),
            capabilities,
        })
    }

    /// Returns the process's id in its own pid namespace.
    fn own_pid(&self) -> Option<u32> {
        self.numbers("NStgid").last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_status_gives_the_ids_for_files() {
        let text = "State:\tD\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nNStgid:\t77\t5\nCoreDumping:\t1\nCapEff:\t0000000000000021\n";
        let status = Status(text.to_owned());
        assert_eq!(
            status.owner().unwrap(),
            Owner { uid: 4, gid: 8, groups: vec![9, 10], capabilities: 0x21 }
        );
        assert!(
            status.own_pid() == Some(5)
                && status.is_dumping()
                && !status.is_zombie()
                && !status.has_one_user()
        );
        assert!(
            !Status("CoreDumping:\t0\n".into()).is_dumping() && Status(String::new()).is_dumping()
        );
        assert!(Status("Uid:\t1\t2\n".into()).owner().is_err());
        assert!(Status("Uid:\t7\t7\t7\t7\n".into()).has_one_user());
        assert!(Status("State:\tZ (zombie)\n".into()).is_zombie());
    }

    /// The parent of this process is older than it, and a child is not.
    #[test]
    fn a_younger_process_is_not_the_one_that_dies() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let is_older = |pid: u32| {
            let folder = open_folder(CWD, &format!("/proc/{pid}")).unwrap();
            must_be_older(pid, &folder, &Status::read(&folder).unwrap()).is_ok()
        };
        let (parent, young) = (is_older(std::os::unix::process::parent_id()), is_older(child.id()));
        let started = [child.id(), std::process::id()].map(|pid| {
            let folder = open_folder(CWD, &format!("/proc/{pid}")).unwrap();
            start_time(&folder).unwrap()
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(parent && started[0] >= started[1]);
        if is_older_in_pidfs(std::process::id()).is_some() {
            assert!(!young, "a child is younger");
        }
    }

    /// A pidfd is the handle of its process alone, until that is reaped.
    #[test]
    fn a_pidfd_says_which_process_it_is() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        let open =
            |pid| Process::open(pid, Some(handle.as_raw_fd())).err().map(|error| error.to_string());
        let (own, others) = (open(child.id()), open(std::os::unix::process::parent_id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(own.as_deref(), Some("the kernel is not dumping it"));
        assert_eq!(others.as_deref(), Some(NOT_IT));
        assert_eq!((number_of(handle.as_raw_fd()), number_of(0)), (Some(-1), None));
    }

    #[test]
    fn a_handle_leads_to_no_other_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let folder = open_folder(CWD, &format!("/proc/{}", child.id())).unwrap();
        assert!(Status::read(&folder).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Status::read(&folder).is_err() && open_folder(&folder, "cwd").is_err());
    }

    #[test]
    fn a_process_that_is_not_dumped_is_refused() {
        let error = Process::open(std::process::id(), None).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("another process has its number")
            || error.contains("not dumping")));
        let error = Process::open(1, None).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("the kernel is not dumping it"));
    }
}
