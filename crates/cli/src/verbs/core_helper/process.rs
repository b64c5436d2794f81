//! Reads what is to be known of a dying process, before the helper becomes its user.

use anyhow::Context;
use lastwords::dead::Death;
use rustix::fs::{Gid, Uid};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt as _;

/// The user of a process, with the ids that the kernel uses for files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

/// The text of `/proc/PID/status`.
pub(super) struct Status(String);

impl Status {
    pub(super) fn read(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/status");
        std::fs::read_to_string(&path).map(Self).context(path)
    }

    fn line(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }

    fn numbers(&self, name: &str) -> Vec<u32> {
        self.line(name).unwrap_or_default().split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// Returns false if the kernel says that it is not dumping the process's core. Kernels before 4.15 do not say it.
    pub(super) fn is_dumping(&self) -> bool {
        self.numbers("CoreDumping") != [0]
    }

    pub(super) fn owner(&self) -> anyhow::Result<Owner> {
        // Real, effective, saved, and that of the file system.
        let of_files = |name| self.numbers(name).get(3).copied().with_context(|| format!("no {name} of the process"));
        Ok(Owner { uid: of_files("Uid")?, gid: of_files("Gid")?, groups: self.numbers("Groups") })
    }

    /// Returns the process's id in its own pid namespace.
    fn own_pid(&self) -> Option<u32> {
        self.numbers("NSpid").last().copied()
    }
}

impl Owner {
    /// Gives up this process's rights for those of the owner. This process has one thread.
    pub(super) fn become_owner(&self) -> anyhow::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&groups).context("the groups of the process's user")?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).context("the group of the process's user")?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).context("the process's user")
    }
}

/// The memory of a dying process.
pub(super) struct Memory {
    /// `/proc/PID/mem`, open for reading and writing.
    pub(super) file: File,
    /// The text of `/proc/PID/maps`, without the mappings of devices.
    pub(super) maps: String,
}

impl Memory {
    pub(super) fn open(pid: u32) -> anyhow::Result<Self> {
        let (memory, maps) = (format!("/proc/{pid}/mem"), format!("/proc/{pid}/maps"));
        let file = OpenOptions::new().read(true).write(true).open(&memory).context(memory)?;
        let text = std::fs::read_to_string(&maps).context(maps)?;
        let maps = text.lines().filter(|line| !is_device(line)).flat_map(|line| [line, "\n"]).collect();
        Ok(Self { file, maps })
    }

    /// Returns the path of the file that is mapped at the address, if this process finds the same file there, so that
    /// it stays when the process is gone.
    pub(super) fn lasting_file(&self, address: u64) -> Option<&str> {
        let line = self.maps.lines().find(|line| range(line).is_some_and(|range| range.contains(&address)))?;
        // START-END PERMISSIONS OFFSET MAJOR:MINOR INODE PATH
        let mut words = line.split_ascii_whitespace();
        let is_shared = words.nth(1)?.ends_with('s');
        let (major, minor) = words.nth(1)?.split_once(':')?;
        let inode: u64 = words.next()?.parse().ok()?;
        let path = &line[line.find('/')?..];
        let found = std::fs::symlink_metadata(path).ok().filter(|_| is_shared && inode != 0)?;
        let number = |digits| u32::from_str_radix(digits, 16).ok();
        let is_same = found.ino() == inode
            && Some(rustix::fs::major(found.dev())) == number(major)
            && Some(rustix::fs::minor(found.dev())) == number(minor);
        is_same.then_some(path)
    }
}

/// Returns true for a line of `maps` of which a device may notice that it is read. Sessions are in none of them, except in
/// DAX devices, which are memory.
fn is_device(line: &str) -> bool {
    const MEMORY: [&str; 4] = ["/dev/shm/", "/dev/hugepages", "/dev/zero", "/dev/dax"];
    const DEVICES: [&str; 4] = ["/dev/", "/sys/", "/proc/", "anon_inode:"];
    let path = line.split_ascii_whitespace().nth(5).unwrap_or_default();
    let begins = |prefix: &&str| path.starts_with(*prefix);
    DEVICES.iter().any(begins) && !MEMORY.iter().any(begins)
}

/// Returns the addresses of a line of `maps`.
fn range(line: &str) -> Option<std::ops::Range<u64>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(number(start)?..number(end)?)
}

/// Returns how the process dies, as its sessions note it.
pub(super) fn death(pid: u32, signal: u8, status: &Status) -> Death {
    let namespace = std::fs::metadata(format!("/proc/{pid}/ns/pid")).map_or(0, |meta| meta.ino());
    Death { pid: status.own_pid().unwrap_or(pid), pid_namespace: namespace, signal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_gives_the_ids_for_files() {
        let text = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nNSpid:\t77\t5\nCoreDumping:\t1\n";
        let status = Status(text.to_owned());
        assert_eq!(status.owner().unwrap(), Owner { uid: 4, gid: 8, groups: vec![9, 10] });
        assert!(status.own_pid() == Some(5) && status.is_dumping());
        assert!(!Status("CoreDumping:\t0\n".into()).is_dumping() && Status(String::new()).is_dumping());
        assert!(Status("Uid:\t1\t2\n".into()).owner().is_err());
    }

    #[test]
    fn devices_are_not_read() {
        let line = |path: &str| format!("1000-3000 rw-s 0 00:05 12                  {path}");
        for path in ["/dev/mem", "/dev/dri/card0", "/sys/bus/pci/devices/0/resource0", "anon_inode:[io_uring]"] {
            assert!(is_device(&line(path)), "{path}");
        }
        for path in
            ["", "[heap]", "/dev/shm/lastwords-0/a", "/dev/zero (deleted)", "/memfd:x (deleted)", "/dev/dax0.0", "/a"]
        {
            assert!(!is_device(&line(path)), "{path}");
        }
    }

    #[test]
    fn a_file_lasts_if_it_is_found_under_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a file");
        std::fs::write(&path, "x").unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        let device = format!("{:02x}:{:02x}", rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        let line = |permissions: &str, inode: u64| Memory {
            file: File::open(&path).unwrap(),
            maps: format!(
                "1000-3000 rw-p 0 00:00 0 [heap]\n4000-6000 {permissions} 0 {device} {inode}    {}\n",
                path.display()
            ),
        };
        assert_eq!(line("rw-s", meta.ino()).lasting_file(0x5000), path.to_str());
        for (permissions, inode, address) in [
            ("rw-p", meta.ino(), 0x5000),
            ("rw-s", meta.ino() + 1, 0x5000),
            ("rw-s", meta.ino(), 0x6000),
            ("rw-s", meta.ino(), 0x1000),
        ] {
            assert_eq!(line(permissions, inode).lasting_file(address), None);
        }
        let lasting = line("rw-s", meta.ino());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(lasting.lasting_file(0x5000), None);
    }
}
