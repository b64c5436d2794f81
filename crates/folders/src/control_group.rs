//! The control group of a process, and the counter of its OOM kills. A session has both from its
//! start. After its end, the counter shows whether the OOM killer has killed processes of the group
//! since.
//!
//! The files are those of cgroup v2 (Documentation/admin-guide/cgroup-v2.rst of the kernel) and of
//! the memory controller of v1 (Documentation/admin-guide/cgroup-v1/memory.rst). A group is known
//! again by its id, the inode of its folder, which is the same in all namespaces.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
pub const CONTROL_GROUPS: &str = "/sys/fs/cgroup";
/// The folder of the memory controller of version 1, below [`CONTROL_GROUPS`].
const MEMORY: &str = "memory";
/// The files that have the counter: of version 2, and of version 1.
const COUNTERS: [&str; 2] = ["memory.events", "memory.oom_control"];
/// The id of the root of all groups, which is no group of its own.
const ROOT_ID: u64 = 1;
/// The inode of the initial namespace of control groups (`PROC_CGROUP_INIT_INO`,
/// `include/linux/proc_ns.h`). Paths there are those of the kernel's log.
const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFB;

/// The control group of a process when its session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlGroup {
    /// The inode of its folder.
    pub id: u64,
    /// The inode of the namespace to which the path belongs.
    pub namespace: u64,
    /// Number of processes that the OOM killer had killed in it.
    pub oom_kills: u64,
    /// Its path.
    pub path: String,
}

impl ControlGroup {
    /// The key of the property of a session that has [`fmt::Display`]'s text.
    pub const PROPERTY: &str = lastwords_abi::registry::ENV_CONTROL_GROUP;

    /// Reads that of this process; none if the kernel counts no OOM kills for it.
    #[must_use]
    pub fn own() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let namespace = fs::metadata("/proc/self/ns/cgroup").ok()?.ino();
        Self::from_groups(Path::new(CONTROL_GROUPS), &groups, namespace)
    }

    /// Finds the group that has a counter. `groups` is the text of `/proc/self/cgroup`, `root` where
    /// control groups are mounted.
    fn from_groups(root: &Path, groups: &str, namespace: u64) -> Option<Self> {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let mount = match controllers {
                "" => root.to_owned(),
                _ if controllers.split(',').any(|one| one == MEMORY) => root.join(MEMORY),
                _ => return None,
            };
            places(&mount, path).find_map(|folder| {
                let id = fs::metadata(&folder).ok()?.ino();
                let oom_kills = oom_kills(&folder).filter(|_| id != ROOT_ID)?;
                Some(Self { id, namespace, oom_kills, path: path.to_owned() })
            })
        })
    }

    /// Parses what [`fmt::Display`] has written.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (numbers, path) = text.split_once(" path=")?;
        let number = |name: &str| {
            let of_name = |pair: &str| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
            numbers.split(' ').find_map(of_name)
        };
        let (id, namespace, oom_kills) = (number("id")?, number("ns")?, number("oom_kill")?);
        Some(Self { id, namespace, oom_kills, path: path.to_owned() })
    }

    /// Reads the counter of the group again; none if the group is gone or not visible from here.
    #[must_use]
    pub fn oom_kills_now(&self, root: &Path) -> Option<u64> {
        let mounts = [root.to_owned(), root.join(MEMORY)];
        let is_own =
            |folder: &PathBuf| fs::metadata(folder).is_ok_and(|data| data.ino() == self.id);
        let folder = mounts.iter().flat_map(|mount| places(mount, &self.path)).find(is_own)?;
        oom_kills(&folder)
    }

    /// Returns true if the group is the one that the kernel's log names by this path, or is below
    /// it.
    #[must_use]
    pub fn is_in(&self, path: &str) -> bool {
        let rest = self.path.strip_prefix(path.trim_end_matches('/'));
        self.namespace == INITIAL_NAMESPACE
            && path.starts_with('/')
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for ControlGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, namespace, oom_kills, path } = self;
        write!(f, "id={id} ns={namespace} oom_kill={oom_kills} path={path}")
    }
}

/// Returns where the folder of a group can be: in a container, the mount may begin at the process's
/// own group, whose path is that of the host.
fn places(mount: &Path, path: &str) -> impl Iterator<Item = PathBuf> {
    let is_plain = !path.split('/').any(|part| part == "..");
    let folder = is_plain.then(|| mount.join(path.trim_start_matches('/')));
    folder.into_iter().chain([mount.to_owned()])
}

/// Reads the number of processes of a control group that the OOM killer has killed. `folder` is the
/// group's, of either version.
#[must_use]
pub fn oom_kills(folder: &Path) -> Option<u64> {
    let texts = COUNTERS.iter().filter_map(|file| fs::read_to_string(folder.join(file)).ok());
    texts.into_iter().find_map(|text| {
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        kills.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(folder: &Path, file: &str, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }

    #[test]
    fn the_counter_of_either_version_is_read_again() {
        let root = std::env::temp_dir().join(format!("lastwords-groups-{}", std::process::id()));
        let of_v1 = root.join("memory/docker/1");
        group(&of_v1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        group(&root.join("pod/app"), "memory.events", "low 0\noom 3\noom_kill 5\n");
        let own = |text: &str| ControlGroup::from_groups(&root, text, INITIAL_NAMESPACE);
        let both = "12:cpu,cpuacct:/x\n9:memory:/docker/1\n0::/nowhere\n";
        let (first, second) = (own(both).unwrap(), own("0::/pod/app\n").unwrap());
        assert_eq!((first.oom_kills, first.path.as_str()), (2, "/docker/1"));
        assert_eq!((second.oom_kills, second.path.as_str()), (5, "/pod/app"));
        assert_eq!(own("0::/nowhere\n1:cpu:/docker/1\nnonsense\n"), None);
        group(&of_v1, "memory.oom_control", "oom_kill 3\n");
        assert_eq!(first.oom_kills_now(&root), Some(3));
        // Another group has the path now.
        let other = ControlGroup { id: first.id ^ 1 << 40, ..first };
        assert_eq!(other.oom_kills_now(&root), None);
        // In its container, the mount begins at the group.
        let inside = ControlGroup { path: "/kubepods/x".into(), ..second };
        assert_eq!(inside.oom_kills_now(&root.join("pod/app")), Some(5));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_group_is_written_and_parsed() {
        let group =
            ControlGroup { id: 7, namespace: 9, oom_kills: 2, path: "/a path=b oom_kill=3".into() };
        assert_eq!(ControlGroup::parse(&group.to_string()), Some(group));
        for text in ["", "id=7 ns=9 oom_kill=x path=/", "id=7 ns=9 path=/", "id=7 ns=9 oom_kill=2"]
        {
            assert_eq!(ControlGroup::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_path_of_the_log_is_that_of_the_group_or_above_it() {
        let group = |namespace, path: &str| ControlGroup {
            id: 7,
            namespace,
            oom_kills: 0,
            path: path.to_owned(),
        };
        let of_host = group(INITIAL_NAMESPACE, "/pods/a/b");
        assert!(of_host.is_in("/pods/a/b") && of_host.is_in("/pods/a") && of_host.is_in("/"));
        assert!(of_host.is_in("/pods/a/") && !of_host.is_in("/pods/a/b/c"));
        assert!(!of_host.is_in("/pod") && !of_host.is_in("") && !of_host.is_in("pods"));
        assert!(!group(4_026_531_999, "/pods/a/b").is_in("/pods/a/b"), "a path of a container");
    }
}
