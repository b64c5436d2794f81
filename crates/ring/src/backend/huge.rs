//! Huge pages: fewer TLB misses for large rings. hugetlbfs where it has free pages, else transparent ones by advice.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use lastwords_abi::session::BACKEND_HUGE;

use super::arena::{Arena, length};
use super::{Backend, BackendError, Mapping, Plan, file};

/// Bytes of the huge pages that are asked for when the system does not say.
const HUGE: u64 = 2 << 20;
/// Name of the file in the session's folder.
pub const ARENA_FILE: &str = "arena";

/// One file in huge pages: in hugetlbfs when one is mounted, writable and has free pages, else in the session's folder
/// with advice to the kernel. Pages of a hugetlbfs are given back when the process ends, not when its session does: they
/// can be unmapped whole only, and late recorders may be in them.
#[derive(Debug)]
pub struct HugeBackend {
    folder: OwnedFd,
    path: String,
    unique: String,
    note: String,
    in_folder: bool,
}

impl HugeBackend {
    /// `folder` is the session's folder, open; `path` names it; `unique` names the session's file in a hugetlbfs.
    #[must_use]
    pub fn new(folder: OwnedFd, path: impl Into<String>, unique: impl Into<String>) -> Self {
        let note = "not allocated yet".to_owned();
        Self { folder, path: path.into(), unique: unique.into(), note, in_folder: true }
    }

    /// A file in a mounted hugetlbfs, or why not.
    fn hugetlb(&mut self, plans: &[Plan]) -> Result<Vec<Mapping>, String> {
        let mount = hugetlb_mount().ok_or("no hugetlbfs is mounted")?;
        let step = page_bytes(&mount).unwrap_or(HUGE);
        let path = mount.join(&self.unique).display().to_string();
        let fd = file::create_at(libc::AT_FDCWD, &path, &path).map_err(|error| error.to_string())?;
        let made = reserve(fd, &path, plans, step);
        match made {
            Ok(mappings) => {
                self.note = format!("{} KiB pages of hugetlbfs at {}", step >> 10, mount.display());
                self.in_folder = false;
                Ok(mappings)
            }
            Err(error) => {
                // The file is ours and of no use; if it cannot be removed it is empty.
                drop(std::fs::remove_file(&path));
                Err(error.to_string())
            }
        }
    }

    fn transparent(&mut self, plans: &[Plan], why_not: &str) -> Result<Vec<Mapping>, BackendError> {
        let path = format!("{}/{ARENA_FILE}", self.path);
        let fd = file::create_at(self.folder.as_raw_fd(), ARENA_FILE, &path)?;
        let len = length(plans, HUGE);
        file::truncate(&fd, &path, len)?;
        let arena = Arena { fd, path, base: 0, blocks: true, step: HUGE, flags: libc::MAP_SHARED };
        let start = file::map_aligned(&arena.fd, &arena.path, len, HUGE)?;
        // SAFETY: advice on a mapping of our own; it changes no contents.
        let advised = unsafe { libc::madvise(start.as_ptr().cast(), len as usize, libc::MADV_HUGEPAGE) } == 0;
        if advised {
            // Touching under the advice is what takes huge pages; where it fails, fallocate below gives the reason.
            // SAFETY: populates a mapping of our own.
            unsafe { libc::madvise(start.as_ptr().cast(), len as usize, libc::MADV_POPULATE_WRITE) };
        }
        if let Err(error) = arena.back(plans) {
            // SAFETY: nobody uses the mapping, which would keep its memory after the file is removed.
            unsafe { libc::munmap(start.as_ptr().cast(), len as usize) };
            return Err(error);
        }
        let huge = huge_kib(start.as_ptr() as usize);
        self.note = match huge {
            0 => {
                let remedy = "mount the folder's tmpfs with huge=advise";
                format!("a plain file stands in: {why_not}, and none of it is in transparent huge pages; {remedy}")
            }
            _ => format!("{huge} of {} KiB in transparent huge pages: {why_not}", len >> 10),
        };
        arena.cut(start, plans)
    }
}

impl Backend for HugeBackend {
    fn kind(&self) -> u32 {
        BACKEND_HUGE
    }

    fn allocate(&mut self, plans: &[Plan]) -> Result<Vec<Mapping>, BackendError> {
        match self.hugetlb(plans) {
            Ok(mappings) => Ok(mappings),
            Err(why_not) => self.transparent(plans, &why_not),
        }
    }

    fn note(&self) -> String {
        self.note.clone()
    }
}

fn reserve(fd: OwnedFd, path: &str, plans: &[Plan], step: u64) -> Result<Vec<Mapping>, BackendError> {
    let len = length(plans, step);
    file::truncate(&fd, path, len)?;
    file::fallocate(&fd, path, 0, len)?;
    // Huge pages are taken and given back whole: no part of the file is sparse.
    let path = path.to_owned();
    Arena { fd, path, base: 0, blocks: false, step, flags: libc::MAP_SHARED }.allocate(plans)
}

/// The first hugetlbfs of /proc/self/mounts.
fn hugetlb_mount() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        (words.next()? == "hugetlbfs").then(|| PathBuf::from(place))
    })
}

/// Page size of a hugetlbfs, which it reports as its block size.
fn page_bytes(mount: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let bytes = std::fs::metadata(mount).ok()?.blksize();
    bytes.is_power_of_two().then_some(bytes).filter(|bytes| *bytes >= 4096)
}

/// How much of the mapping at `start` is in huge pages, as /proc/self/smaps says, KiB.
fn huge_kib(start: usize) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let first = format!("{start:x}-");
    let fields = smaps.lines().skip_while(|line| !line.starts_with(&first)).skip(1);
    let own = fields.take_while(|line| line.split(' ').next().is_some_and(|key| key.ends_with(':')));
    let kib = |line: &str| line.strip_prefix("ShmemPmdMapped:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
    own.filter_map(kib).sum()
}
