//! Allocates huge pages, which cause fewer TLB misses for large rings. It uses hugetlbfs if that
//! has free pages, else transparent huge pages by advice.

use std::path::PathBuf;

use rustix::mm::{Advice, madvise, munmap};

use super::arena::{Arena, length};
use super::file::NamedFile;
use super::{Allocated, BackendError, Folder, Mapping, PAGE, Plan};

/// Size of the huge pages to request if the system does not report it, in bytes.
const HUGE: u64 = 2 << 20;
/// Name of the file in the session's folder.
pub const ARENA_FILE: &str = "arena";

pub(super) fn allocate(folder: Folder<'_>, unique: &str, plans: &[Plan]) -> Allocated {
    hugetlb(unique, plans).or_else(|why_not| transparent(folder, plans, &why_not))
}

/// Allocates in a file of a mounted hugetlbfs, or returns the reason why not.
fn hugetlb(unique: &str, plans: &[Plan]) -> Result<(Vec<Mapping>, String), String> {
    let mount = hugetlb_mount().ok_or("no hugetlbfs is mounted")?;
    let path = mount.join(unique);
    let file = NamedFile::create(Folder::here(), &path).map_err(|error| error.to_string())?;
    let (mappings, step) = reserve(file, plans).map_err(|error| {
        // The file is ours and no longer useful. If it cannot be removed, it is empty.
        drop(std::fs::remove_file(&path));
        error.to_string()
    })?;
    Ok((mappings, format!("{} KiB pages of hugetlbfs at {}", step >> 10, mount.display())))
}

/// Allocates the regions. Returns them with the size of a huge page, which a hugetlbfs reports as
/// the block size of its files.
fn reserve(file: NamedFile, plans: &[Plan]) -> Result<(Vec<Mapping>, u64), BackendError> {
    let block = file.look()?.st_blksize as u64;
    let step = if block.is_power_of_two() && block >= PAGE { block } else { HUGE };
    let len = length(plans, step);
    file.truncate(len)?;
    file.fallocate(0, len)?;
    // Huge pages are allocated and freed as a whole, so no part of the file is sparse.
    Ok((Arena { plans, file, base: 0, blocks: false }.allocate(len)?, step))
}

fn transparent(folder: Folder<'_>, plans: &[Plan], why_not: &str) -> Allocated {
    let file = NamedFile::create(folder, ARENA_FILE)?;
    let len = length(plans, HUGE);
    file.truncate(len)?;
    let start = file.map_aligned(len, HUGE)?;
    let arena = Arena { plans, file, base: 0, blocks: true };
    let (memory, size) = (start.as_ptr().cast(), len as usize);
    // SAFETY: this is advice on a mapping of our own; it changes no contents.
    if unsafe { madvise(memory, size, Advice::LinuxHugepage) }.is_ok() {
        // Writing to the pages after the advice allocates huge pages. If it fails, fallocate below
        // returns the reason. SAFETY: this populates a mapping of our own.
        let _ = unsafe { madvise(memory, size, Advice::LinuxPopulateWrite) };
    }
    // SAFETY: nobody uses the mapping, which would keep its memory after the file is removed.
    arena.back().inspect_err(|_| _ = unsafe { munmap(memory, size) })?;
    let note = match huge_kib(start.as_ptr() as usize) {
        0 => {
            let remedy = "mount the folder's tmpfs with huge=advise";
            format!(
                "a plain file stands in: {why_not}, and none of it is in transparent huge pages; {remedy}"
            )
        }
        huge => format!("{huge} of {} KiB in transparent huge pages: {why_not}", len >> 10),
    };
    Ok((arena.cut(start), note))
}

/// Returns the first hugetlbfs of /proc/self/mounts.
fn hugetlb_mount() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        (words.next()? == "hugetlbfs").then(|| PathBuf::from(place))
    })
}

/// Returns how much of the mapping at `start` is in huge pages according to /proc/self/smaps, in
/// KiB.
fn huge_kib(start: usize) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let first = format!("{start:x}-");
    let fields = smaps.lines().skip_while(|line| !line.starts_with(&first)).skip(1);
    let own =
        fields.take_while(|line| line.split(' ').next().is_some_and(|key| key.ends_with(':')));
    let kib = |line: &str| {
        line.strip_prefix("ShmemPmdMapped:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    own.filter_map(kib).sum()
}
