//! The mappings of a dying process, as the kernel lists them in `/proc/PID/maps`.

use anyhow::Context;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

/// The text of `/proc/PID/maps`.
pub(super) struct Maps(String);

impl Maps {
    /// Reads the open file.
    pub(super) fn read(file: OwnedFd) -> anyhow::Result<Self> {
        let mut text = String::new();
        File::from(file).read_to_string(&mut text).context("the process's mappings")?;
        Ok(Self(text))
    }

    /// Returns the lines of the mappings in which sessions can be.
    pub(super) fn of_sessions(&self) -> String {
        self.0
            .lines()
            .filter(|line| !is_device(line) && !is_private_file(line))
            .flat_map(|line| [line, "\n"])
            .collect()
    }

    /// Returns the path of the file that is mapped at the address, if this process finds the same
    /// file there, so that it stays when the process is gone.
    pub(super) fn lasting_file(&self, address: u64) -> Option<&str> {
        let line = self
            .0
            .lines()
            .find(|line| range(line).is_some_and(|range| range.contains(&address)))?;
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

/// Returns true for a line of `maps` of which a device may notice that it is read. Sessions are in
/// none of them, except in DAX devices, which are memory.
fn is_device(line: &str) -> bool {
    const MEMORY: [&str; 4] = ["/dev/shm/", "/dev/hugepages", "/dev/zero", "/dev/dax"];
    const DEVICES: [&str; 4] = ["/dev/", "/sys/", "/proc/", "anon_inode:"];
    let path = line.split_ascii_whitespace().nth(5).unwrap_or_default();
    let begins = |prefix: &&str| path.starts_with(*prefix);
    DEVICES.iter().any(begins) && !MEMORY.iter().any(begins)
}

/// Returns true for a private mapping of a file: the data of a program or of a library. Sessions
/// are in shared mappings and in memory without a file. Reading such a mapping could have to wait
/// for the file system of a user.
fn is_private_file(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.nth(1).is_some_and(|permissions| permissions.ends_with('p'))
        && words.nth(2).is_some_and(|inode| inode != "0")
}

/// Returns the addresses of a line of `maps`.
fn range(line: &str) -> Option<std::ops::Range<u64>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_not_read() {
        let line = |path: &str| format!("1000-3000 rw-s 0 00:05 12                  {path}");
        for path in [
            "/dev/mem",
            "/dev/dri/card0",
            "/sys/bus/pci/devices/0/resource0",
            "anon_inode:[io_uring]",
        ] {
            assert!(is_device(&line(path)), "{path}");
        }
        for path in [
            "",
            "[heap]",
            "/dev/shm/lastwords-0/a",
            "/dev/zero (deleted)",
            "/memfd:x (deleted)",
            "/dev/dax0.0",
            "/a",
        ] {
            assert!(!is_device(&line(path)), "{path}");
        }
    }

    #[test]
    fn private_mappings_of_files_are_not_read() {
        let text = "1000-2000 rw-p 0 08:01 12  /bin/x\n2000-3000 rw-p 0 00:00 0 \n3000-4000 rw-s 0 00:01 9 /memfd:a (deleted)\n";
        let kept = "2000-3000 rw-p 0 00:00 0 \n3000-4000 rw-s 0 00:01 9 /memfd:a (deleted)\n";
        assert_eq!(Maps(text.to_owned()).of_sessions(), kept);
    }

    #[test]
    fn a_file_lasts_if_it_is_found_under_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a file");
        std::fs::write(&path, "x").unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        let device =
            format!("{:02x}:{:02x}", rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        let line = |permissions: &str, inode: u64| {
            Maps(format!(
                "1000-3000 rw-p 0 00:00 0 [heap]\n4000-6000 {permissions} 0 {device} {inode}    {}\n",
                path.display()
            ))
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
