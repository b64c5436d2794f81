//! Computes the memory that sessions may take, from the memory limits of the process's control
//! groups and from the room that the file system of the folder of sessions has left. Both are read
//! at the start of a session, never when an event is recorded.
//!
//! A limit may be lowered while a session records, and the application may come near to it. So a
//! session of at most [`AT_START`] bytes in a limited group gets all its memory at the start. The
//! rings of a larger one grow, and the listener's thread reads the limits again in each of its
//! rounds ([`look_again`]). The files stay open from the start on, because the application may
//! forbid `open` later, or change its root.
//!
//! Memory of sessions in a tmpfs counts for the control group of the process that wrote it first,
//! and stays there after the process has ended. An allocation above the limit does not fail: the
//! kernel kills a process of the group. So all sessions of a folder together take at most one part
//! in [`PART`] of the limit, the session that starts has half of that, and no more than a quarter
//! of what is left.
//!
//! The limits are files of cgroup v1 and v2 (Documentation/admin-guide/cgroup-v1/memory.rst and
//! cgroup-v2.rst of the kernel). A limit that cannot be read is no limit.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lastwords_ring::backend::free;
use lastwords_ring::grow;

use super::builder::USUAL;
use super::layout::Layout;
use super::{Builder, Error, Retention};
/// All sessions of a folder take at most one part in so many of the memory limit.
const PART: u64 = 8;
/// The rings take at most one part in so many of the memory that is left.
const PART_LEFT: u64 = 4;
/// A session in a limited group that takes no more bytes gets its memory at the start.
const AT_START: u64 = 2 << 20;
/// Below this many bytes for a session, its tables are smaller.
const SMALL: u64 = 2 << 20;
/// Sizes of the tables then: bytes for descriptions of events, open spans, counters, histograms.
const SMALL_TABLES: (u64, u32, u32, u32) = (64 << 10, 32, 16, 2);

/// The tightest memory limit of a process's control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    /// The limit, in bytes.
    limit: u64,
    /// Bytes in use that the kernel cannot free by dropping caches of files.
    used: u64,
}

/// The memory that sessions may take. `None` is no limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    limit: Option<Limit>,
    /// The groups that have a limit.
    groups: Vec<(PathBuf, Files)>,
    /// Free bytes and all bytes of the file system.
    disk: Option<(u64, u64)>,
}

/// Reads the memory limits of this process, and the space of the file system at `path`, if there is
/// one.
pub(crate) fn look(path: Option<&Path>) -> Room {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let disk =
        path.and_then(|path| rustix::fs::statvfs(path).ok()).filter(|stat| stat.f_blocks > 0);
    let disk = disk.map(|stat| (free(&stat), stat.f_blocks.saturating_mul(stat.f_frsize)));
    Room { disk, ..limits(Path::new("/sys/fs/cgroup"), &own) }
}

/// Returns the limits of the control groups that `own`, the text of `/proc/self/cgroup`, names. The
/// tightest is that which leaves least. `root` is where the file systems of control groups are
/// mounted.
fn limits(root: &Path, own: &str) -> Room {
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        match controllers {
            "" => Some((root.to_owned(), path.to_owned(), V2)),
            _ if controllers.split(',').any(|one| one == "memory") => {
                Some((root.join("memory"), path.to_owned(), V1))
            }
            _ => None,
        }
    };
    let found = own.lines().filter_map(group).flat_map(|(mount, path, files)| {
        // In a container, the mount may begin at the process's own group, whose path is that of the
        // host.
        let groups =
            Path::new(&path).ancestors().map(|part| mount.join(part)).collect::<Vec<PathBuf>>();
        groups.into_iter().filter_map(move |group| Some((files.limit(&group)?, (group, files))))
    });
    let (limits, groups): (Vec<Limit>, Vec<_>) = found.unzip();
    Room { limit: limits.into_iter().min_by_key(Limit::left), groups, disk: None }
}

/// The limit that is assumed where one cannot be read, in bytes.
const UNREADABLE: u64 = 64 << 20;

/// The names of the files of a version of control groups.
#[derive(Debug, Clone, Copy)]
struct Files {
    limits: &'static [&'static str],
    usage: &'static str,
    /// Lines of `memory.stat`: caches of files, which the kernel frees before it kills.
    caches: [&'static str; 2],
}

const STAT: &str = "memory.stat";
const V1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    caches: ["total_inactive_file", "total_active_file"],
};
const V2: Files = Files {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    caches: ["inactive_file", "active_file"],
};

impl Files {
    /// Reads the limit of one group; none if it has none. A file that is there and cannot be read,
    /// as under SELinux, may have any limit: a small one is assumed.
    fn limit(self, group: &Path) -> Option<Limit> {
        let read = |name: &str| std::fs::read_to_string(group.join(name));
        let number = |name: &str| read(name).ok()?.trim().parse::<u64>().ok();
        let is_hidden = |name: &&str| {
            read(name).is_err_and(|error| {
                !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
            })
        };
        if self.limits.iter().any(is_hidden) {
            return Some(Limit { limit: UNREADABLE, used: 0 });
        }
        // The largest number of v1 is a multiple of a page below 2^63; `max` of v2 is not a number.
        let limit = self
            .limits
            .iter()
            .filter_map(|name| number(name))
            .min()
            .filter(|limit| *limit < 1 << 62)?;
        let stat = std::fs::read_to_string(group.join(STAT)).unwrap_or_default();
        Some(Limit { limit, used: number(self.usage)?.saturating_sub(self.cached(&stat)) })
    }

    /// Returns the bytes of the caches of files, of the text of `memory.stat`.
    fn cached(self, stat: &str) -> u64 {
        let cache = |line: &str| {
            let (name, bytes) = line.split_once(' ')?;
            self.caches.contains(&name).then(|| bytes.trim().parse::<u64>().ok())?
        };
        stat.lines().filter_map(cache).fold(0, u64::saturating_add)
    }
}

impl Limit {
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

impl Room {
    /// Returns the bytes that one session may take; none if nothing limits it.
    fn own(&self) -> Option<u64> {
        let by_limit =
            self.limit.map(|limit| (limit.limit / PART / 2).min(limit.left() / PART_LEFT));
        let by_disk = self.disk.map(|(free, _)| free / 4);
        by_limit.into_iter().chain(by_disk).min()
    }

    /// Returns the limits of ended sessions under which those of the session that starts has room.
    pub(crate) fn retention(&self, asked: Retention) -> Retention {
        let by_limit = self.limit.map_or(u64::MAX, |limit| limit.limit / PART / 2);
        let by_disk = self.disk.map_or(u64::MAX, |(_, all)| all / 4);
        if asked == Retention::ALL {
            asked
        } else {
            Retention { bytes: asked.bytes.min(by_limit).min(by_disk), ..asked }
        }
    }

    /// Limits what the rings of a session take that another process has created.
    pub(crate) fn join(&self) {
        if let Some(own) = self.own() {
            grow::allow(own);
            watch(&self.groups);
        }
    }

    /// Returns true if the smallest session that `builder` can be has no room.
    pub(crate) fn is_short(&self, builder: &Builder) -> bool {
        self.own().is_some_and(|own| smallest(builder).is_ok_and(|least| own < least))
    }

    /// Fits the sizes that were not chosen into the room. Returns a note for people, if anything is
    /// smaller than usual.
    ///
    /// # Errors
    /// The memory limit has no room for a session.
    pub(crate) fn fit(&self, builder: &mut Builder) -> Result<Option<String>, Error> {
        let Some(own) = self.own() else {
            grow::allow(u64::MAX);
            return Ok(None);
        };
        if let Some(limit) = self.limit.filter(|_| self.is_short(builder)) {
            let (all, left) = (limit.limit, limit.left());
            let why = format!(
                "the memory limit of the control group is {all} bytes, of which {left} are left"
            );
            return Err(Error::unsupported(
                "a session",
                why,
                "raise the limit, or remove ended sessions",
            ));
        }
        if own < SMALL {
            *builder = with_small_tables(builder);
        }
        let all_rings = own.saturating_sub(fixed(builder)?);
        let rings = all_rings / if builder.snapshot { 2 } else { 1 };
        builder.budget = rings.min(USUAL);
        let layout = Layout::new(builder, [0; 16])?;
        if self.limit.is_some() && layout.needs(builder.snapshot) <= own.min(AT_START) {
            builder.preallocate = true;
        }
        let first = if builder.preallocate { layout.rings() } else { layout.first_backed() };
        grow::allow(self.limit.map_or(u64::MAX, |_| all_rings.saturating_sub(first)));
        if !builder.preallocate {
            watch(&self.groups);
        }
        let is_small = builder.budget < USUAL;
        Ok(is_small.then(|| match self.limit {
            Some(limit) => format!(
                "rings of {rings} bytes in all, for a memory limit of {} bytes",
                limit.limit
            ),
            None => format!("rings of {rings} bytes in all, because the file system is small"),
        }))
    }
}

/// A control group whose limit the listener's thread reads again. Its descriptors are never closed:
/// the application may have closed them, and got their numbers for files of its own.
struct Watched {
    limits: Vec<File>,
    usage: File,
    stat: File,
    files: Files,
}

/// The groups whose limits are read again: those of the process's first session that grows in a
/// limited group.
static WATCHED: OnceLock<Vec<Watched>> = OnceLock::new();
/// Groups that are watched at most.
const GROUPS: usize = 4;

/// Opens the files of the groups for [`look_again`]. A group whose files cannot be opened is not
/// watched.
fn watch(groups: &[(PathBuf, Files)]) {
    if !groups.is_empty() {
        WATCHED.get_or_init(|| {
            groups.iter().filter_map(|(group, files)| files.open(group)).take(GROUPS).collect()
        });
    }
}

/// Reads the limits of the watched groups again, if rings may still grow, and sets how much they
/// may take until the next call. Allocates no memory, and calls the kernel by `pread64` alone.
pub(crate) fn look_again() {
    let allowed = grow::allowed();
    if allowed == 0 || allowed == u64::MAX {
        return;
    }
    let left = WATCHED.get().into_iter().flatten().filter_map(|group| group.left(allowed)).min();
    if let Some(left) = left {
        grow::leave(left / PART_LEFT);
    }
}

impl Files {
    fn open(self, group: &Path) -> Option<Watched> {
        let open = |name: &str| File::open(group.join(name)).ok();
        let limits = self.limits.iter().filter_map(|name| open(name)).collect();
        Some(Watched { limits, usage: open(self.usage)?, stat: open(STAT)?, files: self })
    }
}

impl Watched {
    /// Returns the bytes that the limit leaves; none if there is no limit now, or if what is read
    /// is no number: then the descriptor is another file's. Caches are only subtracted where less
    /// than `enough` would be left.
    fn left(&self, enough: u64) -> Option<u64> {
        let limit = self.limits.iter().filter_map(number).min().filter(|limit| *limit < 1 << 62)?;
        let used = number(&self.usage)?;
        let is_enough = limit.saturating_sub(used) / PART_LEFT >= enough;
        let mut stat = [0; 8192];
        let caches = if is_enough { 0 } else { self.files.cached(text(&self.stat, &mut stat)?) };
        Some(Limit { limit, used: used.saturating_sub(caches) }.left())
    }
}

/// Reads the number that a file has.
fn number(file: &File) -> Option<u64> {
    text(file, &mut [0; 32])?.trim().parse().ok()
}

/// Reads the text of a file, as far as `buffer` has room.
fn text<'a>(file: &File, buffer: &'a mut [u8]) -> Option<&'a str> {
    let read = rustix::io::pread(file, &mut *buffer, 0).ok()?;
    str::from_utf8(buffer.get(..read)?).ok()
}

/// Returns the bytes that the session takes besides the rings.
fn fixed(builder: &Builder) -> Result<u64, Error> {
    let layout = Layout::new(builder, [0; 16])?;
    Ok(layout.needs(false) - layout.rings())
}

/// Returns the bytes of the smallest session that `builder` can be.
fn smallest(builder: &Builder) -> Result<u64, Error> {
    let small = Builder { budget: 0, size_limit: u64::MAX, ..with_small_tables(builder) };
    Ok(Layout::new(&small, [0; 16])?.first_needs())
}

/// Returns the builder with tables of at most [`SMALL_TABLES`].
fn with_small_tables(builder: &Builder) -> Builder {
    let (registry, spans, counters, histograms) = SMALL_TABLES;
    Builder {
        registry_len: registry.min(builder.registry_len),
        spans: spans.min(builder.spans),
        counters: counters.min(builder.counters),
        histograms: histograms.min(builder.histograms),
        ..builder.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the files of a group.
    fn group(dir: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(dir).expect("a folder");
        files
            .iter()
            .for_each(|(name, text)| std::fs::write(dir.join(name), text).expect("written"));
    }

    const MIB: u64 = 1 << 20;

    fn limit(root: &Path, own: &str) -> Option<Limit> {
        limits(root, own).limit
    }

    #[test]
    fn a_limit_is_read_again() {
        let root = tempfile::tempdir().expect("a folder");
        let bytes = |bytes: u64| format!("{bytes}\n");
        for (files, caches) in [(V1, "total_inactive_file"), (V2, "inactive_file")] {
            let dir = root.path().join(caches);
            let max = files.limits[0];
            let stat = format!("{caches} {}\n", 2 * MIB);
            group(&dir, &[(max, &bytes(64 * MIB)), (files.usage, &bytes(20 * MIB)), (STAT, &stat)]);
            let watched = files.open(&dir).expect("the files are there");
            let set =
                |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("written");
            assert_eq!(watched.left(4 * MIB), Some(44 * MIB), "enough without the caches");
            set(max, &bytes(24 * MIB));
            assert_eq!(watched.left(4 * MIB), Some(6 * MIB), "caches are not in use");
            set(files.usage, &bytes(30 * MIB));
            assert_eq!(watched.left(4 * MIB), Some(0));
            // Another limit of the group is lower, where it has two.
            set(files.usage, &bytes(4 * MIB));
            let last = files.limits.last().expect("a limit");
            set(last, &bytes(8 * MIB));
            assert_eq!(files.open(&dir).and_then(|now| now.left(4 * MIB)), Some(6 * MIB));
            set(max, "max\n");
            set(last, "max\n");
            assert_eq!(watched.left(4 * MIB), None, "no limit any more");
            set(files.usage, "what another file has");
            assert_eq!(watched.left(4 * MIB), None);
        }
    }

    #[test]
    fn the_tightest_limit_of_all_groups_holds() {
        let root = tempfile::tempdir().expect("a folder");
        let own = root.path().join("pod/app");
        group(
            &own,
            &[("memory.max", "max\n"), ("memory.high", "max\n"), ("memory.current", "4096\n")],
        );
        let used = format!("{}\n", 60 * MIB);
        let stat =
            format!("anon 1\ninactive_file {}\nactive_file {}\nfile 7\n", 10 * MIB, 20 * MIB);
        let max = format!("{}\n", 64 * MIB);
        group(
            &root.path().join("pod"),
            &[("memory.max", &max), ("memory.current", &used), ("memory.stat", &stat)],
        );
        group(
            root.path(),
            &[("memory.max", &format!("{}\n", 1024 * MIB)), ("memory.current", "0\n")],
        );
        let found = limit(root.path(), "0::/pod/app\n");
        assert_eq!(
            found,
            Some(Limit { limit: 64 * MIB, used: 30 * MIB }),
            "caches of files are not in use"
        );
        // A limit that throttles counts as well.
        std::fs::write(own.join("memory.high"), format!("{}\n", 8 * MIB)).expect("written");
        assert_eq!(limit(root.path(), "0::/pod/app\n"), Some(Limit { limit: 8 * MIB, used: 4096 }));
        // The path of the host leads nowhere here: the mount begins at the group.
        assert_eq!(
            limit(root.path(), "0::/kubepods/x/y\n"),
            Some(Limit { limit: 1024 * MIB, used: 0 })
        );
        assert_eq!(limit(root.path(), "1:cpu:/pod\nnonsense\n"), None);
    }

    #[test]
    fn a_limit_that_cannot_be_read_is_small() {
        let root = tempfile::tempdir().expect("a folder");
        // Root may read all files, but no folder as a file.
        std::fs::create_dir_all(root.path().join("app/memory.max")).expect("a folder");
        assert_eq!(limit(root.path(), "0::/app\n"), Some(Limit { limit: UNREADABLE, used: 0 }));
    }

    #[test]
    fn limits_of_the_first_version_are_read() {
        let root = tempfile::tempdir().expect("a folder");
        let limit_of = |bytes: u64| format!("{bytes}\n");
        let files = [
            ("memory.limit_in_bytes", limit_of(24 * MIB)),
            ("memory.usage_in_bytes", limit_of(8 * MIB)),
        ];
        let stat =
            format!("inactive_file 1\ntotal_inactive_file {}\ntotal_active_file 0\n", 2 * MIB);
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        group(&root.path().join("memory/app"), &files);
        group(&root.path().join("memory/app"), &[("memory.stat", &stat)]);
        let all = 9_223_372_036_854_771_712u64.to_string();
        group(
            &root.path().join("memory"),
            &[("memory.limit_in_bytes", &all), ("memory.usage_in_bytes", "1\n")],
        );
        let found = limit(root.path(), "5:cpu,memory:/app\n0::/\n");
        assert_eq!(found, Some(Limit { limit: 24 * MIB, used: 6 * MIB }));
        assert_eq!(limit(root.path(), "5:memory:/\n"), None, "the root has no limit");
    }

    #[test]
    fn rings_of_many_cpus_keep_to_their_budget() {
        for (cpus, least_ring) in [(2, 1 << 20), (64, 128 << 10), (128, 64 << 10), (256, 32 << 10)]
        {
            let builder = Builder::new("many".into()).for_cpus(cpus);
            let layout = Layout::new(&builder, [0; 16]).expect("it fits");
            assert!(layout.rings() <= USUAL, "{cpus} CPUs: {} bytes", layout.rings());
            assert!(
                layout.channels[0].ring_size() >= least_ring,
                "{cpus} CPUs: {:?}",
                layout.channels[0]
            );
            assert!(
                layout.first_needs() <= 2 << 20 || cpus > 64,
                "{cpus} CPUs: {} bytes",
                layout.first_needs()
            );
        }
    }

    #[test]
    fn chosen_sizes_are_kept() {
        let channel = crate::ChannelConfig::new("main").sub_buffers(8, 128 << 10);
        let builder = Builder::new("chosen".into()).for_cpus(128).channel(channel);
        let layout = Layout::new(&builder, [0; 16]).expect("it fits");
        assert_eq!(layout.channels[0].ring_size(), 1 << 20);
    }

    #[test]
    fn a_session_and_the_ended_ones_share_a_part_of_the_limit() {
        let room =
            |limit: u64, used: u64| Room { limit: Some(Limit { limit, used }), ..Room::default() };
        for mib in [8, 16, 24, 64, 512] {
            let limit = mib * MIB;
            let mut builder = Builder::new("limited".into()).for_cpus(2);
            let ended = room(limit, MIB).retention(Retention::default()).bytes;
            let note = room(limit, MIB).fit(&mut builder).expect("it fits");
            let layout = Layout::new(&builder, [0; 16]).expect("a layout");
            assert!(
                layout.needs(false) + ended <= limit / 8,
                "{mib} MiB: {} and {ended}",
                layout.needs(false)
            );
            assert_eq!(note.is_some(), builder.budget < USUAL);
            assert_eq!(builder.preallocate, mib < 64, "{mib} MiB: memory at the start");
        }
        let mut builder = Builder::new("limited".into()).for_cpus(2);
        let error = room(8 * MIB, 8 * MIB - 4096)
            .fit(&mut builder)
            .expect_err("nothing is left")
            .to_string();
        assert!(error.contains("8388608") && error.contains("4096"), "{error}");
        grow::allow(u64::MAX);
    }
}
