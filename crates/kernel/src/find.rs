//! The kernel in an image of physical memory: by the note, or where there is none by looking for what the note would say.

use crate::memory::Memory;
use crate::paging;
use crate::virtual_memory::VirtualMemory;
use crate::vmcoreinfo::VmcoreInfo;
use lastwords_bytes::Budget;
use lastwords_image::vmcore::{Machine, Physical, RawRange, open_raw};
use lastwords_image::{Image, Progress, Watch};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// How VMCOREINFO begins.
const START: &[u8] = b"OSRELEASE=";
/// Kernels have it at the start of a page, and a copy behind the note's header and name (12 bytes each).
const PLACES: [u64; 2] = [0, 24];
/// The size of the place that a kernel has for it.
const PLACE_LEN: usize = 4096;
/// Smallest page.
const PAGE: u64 = 4096;
/// Bytes searched at a time.
const BATCH: u64 = 1 << 20;
/// Most VMCOREINFO texts that are kept which do not hold.
const MOST_REJECTED: usize = 64;
/// Bytes of each name in struct new_utsname; the release is the third.
const NAME_LEN: u64 = 65;

/// A kernel that was found.
#[derive(Debug)]
pub struct Found {
    /// What it says of itself.
    pub info: VmcoreInfo,
    /// Its memory.
    pub memory: VirtualMemory,
    /// There was no note: the physical address at which VMCOREINFO was found.
    pub scanned: Option<u64>,
}

/// Why no kernel was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The image has no note, and nowhere in its memory is a VMCOREINFO that holds of that memory.
    Nothing {
        /// The image.
        image: String,
        /// How many were found that do not hold: of an earlier boot, or copies.
        rejected: usize,
    },
    /// Neither the container nor VMCOREINFO tells a machine that is known.
    Machine {
        /// The image.
        image: String,
    },
    /// The container names a machine whose kernels are not read.
    Foreign {
        /// The image.
        image: String,
        /// The machine's name.
        machine: String,
    },
    /// VMCOREINFO does not lead to page tables.
    Paging(paging::Error),
    /// The Budget is spent.
    Bytes(lastwords_bytes::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing { image, rejected: 0 } => {
                write!(f, "{image}: no VMCOREINFO, neither as a note nor anywhere in memory: no Linux kernel is found")
            }
            Self::Nothing { image, rejected } => {
                write!(f, "{image}: no VMCOREINFO note, and none of {rejected} found in memory holds of that memory")
            }
            Self::Machine { image } => write!(f, "{image}: a machine that is neither x86_64 nor aarch64"),
            Self::Foreign { image, machine } => {
                // The name is what the file says.
                let machine = machine.escape_debug();
                write!(f, "{image}: a dump of a machine of architecture {machine}: only x86_64 and aarch64 are read")
            }
            Self::Paging(error) => error.fmt(f),
            Self::Bytes(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<paging::Error> for Error {
    fn from(error: paging::Error) -> Self {
        Self::Paging(error)
    }
}

impl From<lastwords_bytes::Error> for Error {
    fn from(error: lastwords_bytes::Error) -> Self {
        Self::Bytes(error)
    }
}

/// Finds the kernel whose memory `physical` is. Memory is searched only where the image has no note.
///
/// # Errors
/// There is none, its machine or its page tables are not known, or the budget is spent.
pub fn kernel(physical: &Physical, budget: &Budget, watch: Watch<'_>) -> Result<Found, Error> {
    if let Some(machine) = &physical.foreign {
        return Err(Error::Foreign { image: physical.image.name().into(), machine: machine.clone() });
    }
    let noted = physical.vmcoreinfo.as_deref().map(VmcoreInfo::parse).filter(|info| !info.is_empty());
    match noted {
        Some(info) => {
            let machine = physical.machine.or_else(|| info.machine());
            let machine = machine.ok_or_else(|| Error::Machine { image: physical.image.name().into() })?;
            let memory = VirtualMemory::new(physical.image.clone(), &info, machine)?;
            Ok(Found { info, memory, scanned: None })
        }
        None => match scan(physical, budget, watch)? {
            Scanned::Found(found) => Ok(*found),
            Scanned::Rejected(rejected) => Err(nothing(physical, &rejected)),
        },
    }
}

/// Finds the kernel in a file of raw memory, and where in physical memory the file's bytes were: as `map` says, or where that is
/// empty the places that machines have RAM at, of which the one is taken where a kernel's own page tables hold.
///
/// # Errors
/// As [`kernel`]; or the path cannot be read.
pub fn raw(path: &Path, map: &[RawRange], budget: &Budget, watch: Watch<'_>) -> Result<(Physical, Found), Error> {
    let physical = open_raw(path, map)?;
    let rejected = match scan(&physical, budget, watch)? {
        Scanned::Found(found) => return Ok((physical, *found)),
        Scanned::Rejected(rejected) => rejected,
    };
    let len = physical.image.ranges().iter().map(|r| r.len).fold(0, u64::saturating_add);
    for info in rejected.iter().filter(|_| map.is_empty()) {
        for map in maps(info, len) {
            let physical = open_raw(path, &map)?;
            if let Some(memory) = memory(&physical.image, None, info).filter(|m| holds(info, m)) {
                let place = scan(&physical, budget, watch)?;
                let scanned = if let Scanned::Found(found) = place { found.scanned } else { None };
                return Ok((physical, Found { info: info.clone(), memory, scanned }));
            }
        }
    }
    Err(nothing(&physical, &rejected))
}

/// Where RAM may be that stands in a file of `len` bytes without gaps.
fn maps(info: &VmcoreInfo, len: u64) -> Vec<Vec<RawRange>> {
    /// Machines of x86 have RAM up to one of these addresses, and the rest from 4 GiB on.
    const LOW_ENDS: [u64; 4] = [0xc000_0000, 0x8000_0000, 0xe000_0000, 0xb000_0000];
    const HIGH: u64 = 1 << 32;
    let start = info.number("PHYS_OFFSET").map(i64::cast_unsigned);
    let one = start.map(|address| vec![RawRange { address, len, offset: 0 }]);
    let two = LOW_ENDS.into_iter().filter(|low| *low < len).map(|low| {
        let high = RawRange { address: HIGH, len: len.saturating_sub(low), offset: low };
        vec![RawRange { address: 0, len: low, offset: 0 }, high]
    });
    one.into_iter().chain(two).collect()
}

/// What came of searching memory.
enum Scanned {
    Found(Box<Found>),
    /// What there was does not hold of this memory.
    Rejected(Vec<VmcoreInfo>),
}

fn nothing(physical: &Physical, rejected: &[VmcoreInfo]) -> Error {
    Error::Nothing { image: physical.image.name().into(), rejected: rejected.len() }
}

fn scan(physical: &Physical, budget: &Budget, watch: Watch<'_>) -> Result<Scanned, Error> {
    let image = &physical.image;
    let total = image.ranges().iter().filter(|r| r.hole.is_none()).map(|r| r.len).fold(0, u64::saturating_add);
    let (mut done, mut rejected) = (0u64, Vec::new());
    let mut batch = vec![0u8; BATCH as usize];
    for range in image.ranges().iter().filter(|r| r.hole.is_none()) {
        let mut at = image.next_data(range.address, range.end());
        while at < range.end() {
            let len = BATCH.min(range.end().saturating_sub(at));
            let bytes = batch.get_mut(..usize::try_from(len).unwrap_or(0)).unwrap_or_default();
            budget.bytes(image.name(), len)?;
            // What is read before a hole is searched as well; the next step begins behind the hole's page.
            let (held, step) = match image.read(at, bytes) {
                Ok(()) => (len, len),
                Err(hole) => {
                    let held = hole.address.saturating_sub(at).min(len);
                    (held, held.saturating_add(PAGE))
                }
            };
            let held = bytes.get(..usize::try_from(held).unwrap_or(0)).unwrap_or_default();
            for place in places(held, at) {
                match candidate(image, physical.machine, place) {
                    Some(Ok(found)) => return Ok(Scanned::Found(Box::new(found))),
                    Some(Err(info)) if rejected.len() < MOST_REJECTED => rejected.push(info),
                    Some(Err(_)) | None => {}
                }
            }
            done = done.saturating_add(step);
            watch(Progress { what: "looking for the kernel", done, total: Some(total) });
            at = image.next_data(at.saturating_add(step), range.end());
        }
    }
    Ok(Scanned::Rejected(rejected))
}

/// Physical addresses in `bytes`, which are those from `at` on, where a VMCOREINFO may begin.
fn places(bytes: &[u8], at: u64) -> impl Iterator<Item = u64> {
    let first = at.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    let end = at.saturating_add(bytes.len() as u64);
    let pages = (first..end).step_by(PAGE as usize);
    let places = pages.flat_map(|page| PLACES.map(|place| page.saturating_add(place)));
    places.filter(move |place| {
        let from = usize::try_from(place.saturating_sub(at)).unwrap_or(usize::MAX);
        bytes.get(from..).is_some_and(|rest| rest.starts_with(START))
    })
}

/// The kernel whose VMCOREINFO is at `place`: none where it is no such text, the text alone where it does not hold of the memory.
fn candidate(image: &Arc<dyn Image>, machine: Option<Machine>, place: u64) -> Option<Result<Found, VmcoreInfo>> {
    let mut text = vec![0u8; PLACE_LEN];
    if let Err(hole) = image.read(place, &mut text) {
        text.truncate(usize::try_from(hole.address.saturating_sub(place)).unwrap_or(0));
    }
    let info = VmcoreInfo::parse(&text);
    let memory = memory(image, machine, &info)?;
    Some(if holds(&info, &memory) { Ok(Found { info, memory, scanned: Some(place) }) } else { Err(info) })
}

/// The memory that `info` tells of, if it says enough.
fn memory(image: &Arc<dyn Image>, machine: Option<Machine>, info: &VmcoreInfo) -> Option<VirtualMemory> {
    VirtualMemory::new(image.clone(), info, machine.or_else(|| info.machine())?).ok()
}

/// The kernel's own version, found through the page tables that `info` leads to, is the one that `info` names.
fn holds(info: &VmcoreInfo, memory: &VirtualMemory) -> bool {
    let (Some(names), Some(release)) = (info.symbol("init_uts_ns"), info.release()) else { return false };
    let at =
        names.wrapping_add(info.offset("uts_namespace.name").unwrap_or(0)).wrapping_add(NAME_LEN.saturating_mul(2));
    memory.text(at, NAME_LEN as usize).is_ok_and(|text| text == release)
}
