//! Finds the kernel in an image of physical memory.
//!
//! The VMCOREINFO note describes the kernel. If there is no note, or the note is damaged, memory is
//! searched for the kernel's own copy of that text.

use crate::memory::Memory;
use crate::paging;
use crate::virtual_memory::VirtualMemory;
use crate::vmcoreinfo::{self, VmcoreInfo};
use lastwords_bytes::Budget;
use lastwords_image::vmcore::{Machine, Physical, RawRange, open_raw};
use lastwords_image::{Image, Progress, Watch};
use std::path::Path;
use std::sync::Arc;

/// First bytes of VMCOREINFO.
const START: &[u8] = b"OSRELEASE=";
/// Offsets in a page where VMCOREINFO can begin: at the start, or in a copy with the note's header
/// and name (12 bytes each).
const PLACES: [u64; 2] = [0, 24];
/// Number of bytes that a kernel reserves for VMCOREINFO.
const PLACE_LEN: usize = 4096;
/// Smallest page size.
const PAGE: u64 = 4096;
/// The same number as a length of memory.
const PAGE_LEN: usize = 4096;
/// Number of bytes searched at a time.
const BATCH: usize = 1 << 20;
/// Most invalid VMCOREINFO texts that are kept.
const MOST_REJECTED: usize = 64;
/// Most kernels that are kept.
const MOST_KERNELS: usize = 16;
/// Length of each name in struct new_utsname; the release is the third.
const NAME_LEN: usize = 65;
/// Offsets of new_utsname in struct uts_namespace before Linux 5.11, whose VMCOREINFO lacks the
/// offset; a kref may come first.
const NAMES_AT: [u64; 2] = [0, 4];
/// Notes are padded to a multiple of this.
const NOTE_ALIGN: usize = 4;

/// A kernel that was found.
#[derive(Debug)]
pub struct FoundKernel {
    /// The kernel's VMCOREINFO.
    pub info: VmcoreInfo,
    /// The kernel's memory.
    pub memory: VirtualMemory,
    /// Physical address of the VMCOREINFO text if it was found by searching memory; none if the
    /// note was used.
    pub scanned: Option<u64>,
    /// Notes for the user: the note is missing or damaged.
    pub notes: Vec<String>,
    /// The other kernels that the search saw, in the order of their addresses: of an earlier boot,
    /// or of a guest. Empty if the note was used.
    pub others: Vec<FoundKernel>,
}

impl FoundKernel {
    /// Words that tell this kernel from others in the same memory: release, build ID and the place
    /// of its VMCOREINFO.
    #[must_use]
    pub fn words(&self) -> String {
        let release = self.info.release().unwrap_or("of an unknown release").escape_debug();
        let build = self
            .info
            .build_id()
            .map_or(String::new(), |id| format!(", build {}", id.escape_debug()));
        match self.scanned {
            Some(place) => format!("Linux {release}{build}, with VMCOREINFO at {place:#x}"),
            None => format!("Linux {release}{build}"),
        }
    }

    /// Physical address of the kernel's own names. Copies of VMCOREINFO that lead to the same
    /// address are of one kernel.
    fn names_at(&self) -> Option<u64> {
        self.memory.translate(self.info.symbol("init_uts_ns")?).ok().map(|mapping| mapping.physical)
    }
}

/// The reason why no kernel was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The image has no note, and its memory has no valid VMCOREINFO.
    #[error("{image}: {}", no_info(.rejected))]
    Nothing {
        /// Name of the image.
        image: String,
        /// Number of invalid texts that were found: from an earlier boot, or copies.
        rejected: usize,
    },
    /// Neither the container nor VMCOREINFO names a known machine.
    #[error("{image}: a machine that is neither x86_64 nor aarch64")]
    Machine {
        /// Name of the image.
        image: String,
    },
    /// The container is of a machine whose kernels are not supported.
    // The name comes from the file and may contain any character.
    #[error(
        "{image}: a dump of a machine of architecture {}: only x86_64 and aarch64 are read",
        .machine.escape_debug()
    )]
    Foreign {
        /// Name of the image.
        image: String,
        /// Name of the machine.
        machine: String,
    },
    /// VMCOREINFO does not lead to page tables.
    #[error(transparent)]
    Paging(#[from] paging::Error),
    /// The budget is spent.
    #[error(transparent)]
    Bytes(#[from] lastwords_bytes::Error),
}

fn no_info(rejected: &usize) -> String {
    match rejected {
        0 => "no VMCOREINFO, neither as a note nor anywhere in memory: no Linux kernel is found"
            .into(),
        _ => format!(
            "no VMCOREINFO note, and none of {rejected} found in memory holds of that memory"
        ),
    }
}

/// Finds the kernel in `physical`. Memory is searched only if the image has no note or a damaged
/// note: its text is cut, or does not lead to the kernel that it names. A damaged note is still
/// used if memory has no better copy.
///
/// # Errors
/// There is no kernel, its machine or its page tables are unknown, or the budget is spent.
pub fn kernel(
    physical: &Physical,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<FoundKernel, Error> {
    if let Some(machine) = &physical.foreign {
        return Err(Error::Foreign {
            image: physical.image.name().into(),
            machine: machine.clone(),
        });
    }
    let note = physical.vmcoreinfo.as_deref().filter(|note| !VmcoreInfo::parse(note).is_empty());
    let noted = note.map(|note| by_note(physical, note));
    let doubt = match &noted {
        None => "there is no VMCOREINFO note",
        Some(_) if !note.is_some_and(|note| vmcoreinfo::is_whole(unpadded(note))) => {
            "the VMCOREINFO note is damaged"
        }
        Some(Ok(found)) if holds(&found.info, &found.memory) => {
            return noted.unwrap_or_else(|| Err(nothing(physical, &[])));
        }
        Some(_) => "the VMCOREINFO note does not lead to the kernel that it names",
    };
    match (scan(physical, budget, watch)?, noted) {
        (Scanned::Found(mut found), _) => {
            let place = found.scanned.unwrap_or_default();
            found.notes.push(format!("{doubt}; a copy was found in memory, at {place:#x}"));
            Ok(*found)
        }
        (Scanned::Rejected(_), Some(noted)) => noted.map(|mut found| {
            found
                .notes
                .push(format!("{doubt}, and memory has no better copy; the note is used as it is"));
            found
        }),
        (Scanned::Rejected(rejected), None) => Err(nothing(physical, &rejected)),
    }
}

/// The text of a note without the zeros that pad it.
fn unpadded(note: &[u8]) -> &[u8] {
    let zeroes =
        note.iter().rev().take(NOTE_ALIGN.saturating_sub(1)).take_while(|byte| **byte == 0).count();
    note.get(..note.len().saturating_sub(zeroes)).unwrap_or(note)
}

/// The kernel that the note's text leads to.
fn by_note(physical: &Physical, note: &[u8]) -> Result<FoundKernel, Error> {
    let info = VmcoreInfo::parse(note);
    let machine = physical.machine.or_else(|| info.machine());
    let machine = machine.ok_or_else(|| Error::Machine { image: physical.image.name().into() })?;
    let memory = VirtualMemory::new(physical.image.clone(), &info, machine)?;
    Ok(FoundKernel { info, memory, scanned: None, notes: Vec::new(), others: Vec::new() })
}

/// Finds the kernel in a file of raw memory, and the physical addresses of the file's bytes. `map`
/// gives the addresses. If `map` is empty, the usual RAM layouts of machines are tried, until the
/// kernel's own page tables are valid in one.
///
/// # Errors
/// Same as [`kernel`]; or the path cannot be read.
pub fn raw(
    path: &Path,
    map: &[RawRange],
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<(Physical, FoundKernel), Error> {
    let physical = open_raw(path, map, budget)?;
    let rejected = match scan(&physical, budget, watch)? {
        Scanned::Found(found) => return Ok((physical, *found)),
        Scanned::Rejected(rejected) => rejected,
    };
    let len = physical.image.ranges().iter().map(|r| r.len).fold(0, u64::saturating_add);
    for info in rejected.iter().filter(|_| map.is_empty()) {
        for map in maps(info, len) {
            let physical = open_raw(path, &map, budget)?;
            if let Some(memory) = memory(&physical.image, None, info).filter(|m| holds(info, m)) {
                let found = match scan(&physical, budget, watch)? {
                    Scanned::Found(found) => *found,
                    Scanned::Rejected(_) => {
                        let (scanned, notes, others) = (None, Vec::new(), Vec::new());
                        FoundKernel { info: info.clone(), memory, scanned, notes, others }
                    }
                };
                return Ok((physical, found));
            }
        }
    }
    Err(nothing(&physical, &rejected))
}

/// Possible layouts of RAM in a file of `len` bytes without gaps.
fn maps(info: &VmcoreInfo, len: u64) -> Vec<Vec<RawRange>> {
    /// x86 machines have RAM up to one of these addresses, and the rest from 4 GiB on; the third is
    /// of Firecracker, whose snapshots of memory are such files.
    const LOW_ENDS: [u64; 5] = [0xc000_0000, 0x8000_0000, 0xd000_0000, 0xe000_0000, 0xb000_0000];
    const HIGH: u64 = 1 << 32;
    let start = info.number("PHYS_OFFSET").map(i64::cast_unsigned);
    let one = start.map(|address| vec![RawRange { address, len, offset: 0 }]);
    let two = LOW_ENDS.into_iter().filter(|low| *low < len).map(|low| {
        let high = RawRange { address: HIGH, len: len.saturating_sub(low), offset: low };
        vec![RawRange { address: 0, len: low, offset: 0 }, high]
    });
    one.into_iter().chain(two).collect()
}

/// The result of searching memory.
enum Scanned {
    Found(Box<FoundKernel>),
    /// The texts that were found are invalid for this memory.
    Rejected(Vec<VmcoreInfo>),
}

fn nothing(physical: &Physical, rejected: &[VmcoreInfo]) -> Error {
    Error::Nothing { image: physical.image.name().into(), rejected: rejected.len() }
}

fn scan(physical: &Physical, budget: &Budget, watch: Watch<'_>) -> Result<Scanned, Error> {
    let image = &physical.image;
    let total = image
        .ranges()
        .iter()
        .filter(|r| r.hole.is_none())
        .map(|r| r.len)
        .fold(0, u64::saturating_add);
    let (mut done, mut rejected) = (0u64, Vec::new());
    let (mut whole, mut damaged): (Vec<FoundKernel>, Vec<FoundKernel>) = (Vec::new(), Vec::new());
    let mut batch = vec![0u8; BATCH];
    for range in image.ranges().iter().filter(|r| r.hole.is_none()) {
        let mut at = image.next_data(range.address, range.end());
        while at < range.end() {
            let len = (BATCH as u64).min(range.end().saturating_sub(at));
            let bytes = batch.get_mut(..usize::try_from(len).unwrap_or(0)).unwrap_or_default();
            // The bytes before a hole are searched too; the next step begins after the page with
            // the hole.
            let (held, step) = match image.read(at, bytes) {
                Ok(()) => (len, len),
                Err(hole) => {
                    let held = hole.address.saturating_sub(at).min(len);
                    (held, held.saturating_add(PAGE))
                }
            };
            budget.bytes(image.name(), step)?;
            let held = bytes.get(..usize::try_from(held).unwrap_or(0)).unwrap_or_default();
            for place in places(held, at) {
                match candidate(image, physical.machine, place) {
                    Some(Ok((found, true))) => add(&mut whole, found),
                    // The text leads to the kernel but lacks lines; another copy may be complete.
                    Some(Ok((found, false))) => add(&mut damaged, found),
                    Some(Err(info)) if rejected.len() < MOST_REJECTED => rejected.push(info),
                    Some(Err(_)) | None => {}
                }
            }
            done = done.saturating_add(step);
            watch(Progress { what: "looking for the kernel", done, total: Some(total) });
            at = image.next_data(at.saturating_add(step), range.end());
        }
    }
    damaged.into_iter().for_each(|found| add(&mut whole, found));
    let mut kernels = whole.into_iter();
    let Some(first) = kernels.next() else { return Ok(Scanned::Rejected(rejected)) };
    Ok(Scanned::Found(Box::new(FoundKernel { others: kernels.collect(), ..first })))
}

/// Adds a kernel, unless it is another copy of one that is there. All memory is searched, because
/// an earlier boot may have left a whole kernel before the running one.
fn add(kernels: &mut Vec<FoundKernel>, found: FoundKernel) {
    let place = found.names_at();
    if kernels.len() < MOST_KERNELS && kernels.iter().all(|known| known.names_at() != place) {
        kernels.push(found);
    }
}

/// Physical addresses in `bytes`, which start at address `at`, where a VMCOREINFO may begin.
fn places(bytes: &[u8], at: u64) -> impl Iterator<Item = u64> {
    let first = at.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    let end = at.saturating_add(bytes.len() as u64);
    let pages = (first..end).step_by(PAGE_LEN);
    let places = pages.flat_map(|page| PLACES.map(|place| page.saturating_add(place)));
    places.filter(move |place| {
        let from = usize::try_from(place.saturating_sub(at)).unwrap_or(usize::MAX);
        bytes.get(from..).is_some_and(|rest| rest.starts_with(START))
    })
}

/// The kernel whose VMCOREINFO is at `place`, and true if the text is complete. None if there is no
/// such text; the text alone if it is invalid for the memory.
fn candidate(
    image: &Arc<dyn Image>,
    machine: Option<Machine>,
    place: u64,
) -> Option<Result<(FoundKernel, bool), VmcoreInfo>> {
    let mut text = vec![0u8; PLACE_LEN];
    if let Err(hole) = image.read(place, &mut text) {
        text.truncate(usize::try_from(hole.address.saturating_sub(place)).unwrap_or(0));
    }
    let info = VmcoreInfo::parse(&text);
    let memory = memory(image, machine, &info)?;
    if !holds(&info, &memory) {
        return Some(Err(info));
    }
    let is_whole = vmcoreinfo::is_whole(text.split(|byte| *byte == 0).next().unwrap_or_default());
    Some(Ok((
        FoundKernel { info, memory, scanned: Some(place), notes: Vec::new(), others: Vec::new() },
        is_whole,
    )))
}

/// The memory that `info` describes, if it has enough facts.
fn memory(
    image: &Arc<dyn Image>,
    machine: Option<Machine>,
    info: &VmcoreInfo,
) -> Option<VirtualMemory> {
    VirtualMemory::new(image.clone(), info, machine.or_else(|| info.machine())?).ok()
}

/// True if the kernel's own release, read through the page tables that `info` leads to, is the
/// release in `info`.
fn holds(info: &VmcoreInfo, memory: &VirtualMemory) -> bool {
    let (Some(namespace), Some(release)) = (info.symbol("init_uts_ns"), info.release()) else {
        return false;
    };
    let told = info.offset("uts_namespace.name");
    let mut offsets = told.into_iter().chain(NAMES_AT.into_iter().filter(|_| told.is_none()));
    offsets.any(|offset| {
        let at = namespace.wrapping_add(offset).wrapping_add((NAME_LEN as u64).saturating_mul(2));
        memory.text(at, NAME_LEN).is_ok_and(|text| text == release)
    })
}
