//! Tells whether files in a folder are lost when the container of this process ends.

use std::path::Path;

/// The inode of the first PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Returns true if this process runs in a container and no folder of the host is mounted at the
/// path: files there end with the container.
#[must_use]
pub fn ends_with_container(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    is_container() && mounted_root(&mounts, path).is_none_or(|root| root == "/")
}

fn is_container() -> bool {
    let namespace = std::fs::read_link("/proc/self/ns/pid");
    std::env::var_os("container").is_some()
        || ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists())
        || namespace.is_ok_and(|namespace| namespace != Path::new(FIRST_PID_NAMESPACE))
}

/// Returns the folder of the mounted file system that appears at the mount point of `path`. It is
/// not `/` if a folder of the host is mounted there. If several file systems are mounted at one
/// place, the last of them is visible (proc_pid_mountinfo(5)).
fn mounted_root<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mut found: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(3);
        let (Some(root), Some(point)) = (words.next(), words.next()) else { continue };
        if path.starts_with(point) && found.is_none_or(|(len, _)| len <= point.len()) {
            found = Some((point.len(), root));
        }
    }
    found.map(|(_, root)| root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_and_last_mount_counts() {
        let mounts = "22 1 0:5 / / rw - overlay overlay rw\n25 22 0:23 / /dev/shm rw - tmpfs shm rw,size=65536k\n\
                      26 25 0:24 /lastwords /dev/shm/lastwords rw - tmpfs tmpfs rw\n27 22 0:9 /x /late rw - tmpfs t rw\n\
                      28 22 0:9 / /late rw - tmpfs t rw\n";
        let of = |path: &str| mounted_root(mounts, Path::new(path));
        assert_eq!(of("/dev/shm"), Some("/"));
        assert_eq!(of("/dev/shm/lastwords/app-1"), Some("/lastwords"));
        assert_eq!(of("/dev/shm/lastwords-0"), Some("/"));
        assert_eq!(of("/late/x"), Some("/"));
    }
}
