//! Finds session regions in an image by the magic in their headers.

use super::region::Region;
use super::{repair_header, single_bit};
use lastwords_abi::region::{self as abi, RegionHeader};
use lastwords_abi::{READABLE_MAJORS, VERSION_MAJOR, VERSION_MAJOR_ADDED};
use lastwords_bytes::{Budget, ByteOrder, Error, Reader};
use lastwords_image::process_pages::{PAGE_LEN, pieces};
use lastwords_image::{Image, Progress, Watch};
use std::mem::offset_of;
use std::sync::Arc;

/// Bytes read from the image at first, and most bytes read at a time, while it is scanned. Behind a
/// region there is often the next.
const CHUNKS: (u64, u64) = (16 << 10, 1 << 20);
/// Largest fixed part (the bytes after the header that the header's checksum covers) that is
/// accepted.
const MAX_FIXED: u32 = 1 << 16;
/// Most damaged headers that are repaired in one image; each attempt costs a millisecond.
const MAX_REPAIRS: usize = 4096;
const _: () = assert!(abi::REGION_ALIGN == PAGE_LEN as u64);
/// Number of header bytes that the header's checksum covers.
const COVERED: usize = offset_of!(RegionHeader, check);

/// A page that begins with the magic of a region, but whose header is invalid and could not be
/// repaired.
#[derive(Debug)]
pub(crate) struct Rejected {
    /// The 16 bytes at the place of the session's UUID, perhaps damaged; zeros if the image lacks
    /// them.
    session: [u8; 16],
    /// Error message for the user.
    pub(crate) why: String,
}

impl Rejected {
    /// True if at least half of the UUID bytes match `session`: the UUID itself may be damaged.
    pub(crate) fn is_of(&self, session: &[u8; 16]) -> bool {
        let same = self.session.iter().zip(session).filter(|(a, b)| a == b).count();
        same.saturating_mul(2) >= session.len()
    }
}

/// The regions of an image, ordered by address, and the candidates that were rejected.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) regions: Vec<Region>,
    pub(crate) rejected: Vec<Rejected>,
}

/// Finds all regions. After a valid region the scan continues at its end: bytes inside a region are
/// not taken for another region.
pub(crate) fn regions(
    image: &dyn Image,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Scanned, Error> {
    let mut scan = Scan::new(image, budget);
    let total: u64 = image
        .ranges()
        .iter()
        .filter(|r| r.hole.is_none())
        .map(|r| r.len)
        .fold(0, u64::saturating_add);
    let mut done = 0u64;
    for range in image.ranges().iter().filter(|r| r.hole.is_none()) {
        let mut at = range.address.checked_next_multiple_of(abi::REGION_ALIGN).unwrap_or(u64::MAX);
        while at < range.end() {
            at = scan.chunk(at.max(scan.behind), range.end())?;
            let here = at.min(range.end()).saturating_sub(range.address);
            watch(Progress {
                what: "looking for sessions",
                done: done.saturating_add(here),
                total: Some(total),
            });
        }
        done = done.saturating_add(range.len);
    }
    scan.repair_headers();
    Ok(scan.found)
}

/// Finds region headers at any page of the image. In raw memory, the pages after a header need not
/// belong to the same region, so the scan does not skip them.
pub(crate) fn heads(
    image: &dyn Image,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<Region>, Error> {
    let scan = Scan::new(image, budget);
    let mut heads = Vec::new();
    pieces(image, "looking for sessions", budget, watch, |at, bytes| {
        for (n, page) in bytes.chunks(PAGE_LEN).enumerate() {
            if page.starts_with(&abi::MAGIC) {
                budget.steps(image.name(), 1)?;
                let address = at.saturating_add((n as u64).saturating_mul(abi::REGION_ALIGN));
                heads.extend(scan.parse(address).ok());
            }
        }
        Ok(())
    })?;
    Ok(heads)
}

struct Scan<'a> {
    image: &'a dyn Image,
    budget: &'a Budget,
    found: Scanned,
    /// Addresses of candidates whose header is invalid, each with the error.
    damaged: Vec<(u64, Error)>,
    chunk: Vec<u8>,
    /// Bytes to read next: twice as many after each chunk without a region.
    ahead: u64,
    /// Address of the first byte after the region found last.
    behind: u64,
}

impl<'a> Scan<'a> {
    fn new(image: &'a dyn Image, budget: &'a Budget) -> Self {
        let (found, damaged) = (Scanned::default(), Vec::new());
        Self { image, budget, found, damaged, chunk: Vec::new(), ahead: CHUNKS.0, behind: 0 }
    }

    /// Scans one chunk of pages from `at` on; returns the address where the scan continues.
    fn chunk(&mut self, at: u64, end: u64) -> Result<u64, Error> {
        let data = self.image.next_data(at, end) & !(abi::REGION_ALIGN.wrapping_sub(1));
        let at = at.max(data);
        let len = self.ahead.min(end.saturating_sub(at));
        if len == 0 {
            return Ok(end);
        }
        self.chunk.resize(usize::try_from(len).unwrap_or(0), 0);
        let got = match self.image.read(at, &mut self.chunk) {
            Ok(()) => len,
            Err(hole) => hole.address.saturating_sub(at),
        };
        self.budget.bytes(self.image.name(), got.max(abi::REGION_ALIGN))?;
        self.ahead = self.ahead.saturating_mul(2).min(CHUNKS.1);
        let mut page = 0u64;
        while page < got {
            let head = usize::try_from(page)
                .ok()
                .and_then(|p| self.chunk.get(p..)?.first_chunk::<16>().copied());
            if head.is_some_and(|h| looks_like_magic(&h)) {
                self.candidate(at.saturating_add(page))?;
            }
            let next = page.saturating_add(abi::REGION_ALIGN);
            page = next.max(self.behind.saturating_sub(at));
        }
        // Unreadable bytes are skipped page by page.
        Ok(at.saturating_add(page.max(abi::REGION_ALIGN)))
    }

    fn candidate(&mut self, address: u64) -> Result<(), Error> {
        self.budget.steps(self.image.name(), 1)?;
        match self.parse(address) {
            Ok(region) => {
                self.behind = region.address.saturating_add(region.size);
                self.ahead = CHUNKS.0;
                self.found.regions.push(region);
            }
            Err(error) => self.damaged.push((address, error)),
        }
        Ok(())
    }

    fn parse(&self, address: u64) -> Result<Region, Error> {
        let place = Location::new(self.image, address);
        let what = place.what();
        let mut head = vec![0u8; abi::HEADER_SIZE as usize];
        read(self.image, &what, address, &mut head)?;
        let header = self.checked(&what, address, &head)?;
        region(&what, &header, place)
    }

    /// Tries to repair each damaged header by flipping a single bit; the valid regions help to
    /// choose among the results.
    fn repair_headers(&mut self) {
        for (index, (address, error)) in std::mem::take(&mut self.damaged).into_iter().enumerate() {
            let tries = if index < MAX_REPAIRS { self.tries(address) } else { Vec::new() };
            match repair_header::choose(tries, &self.found.regions, self.image) {
                Some(mut region) => {
                    let how = region.mended.take().unwrap_or_default();
                    region.mended = Some(format!("{error}: {how}"));
                    self.found.regions.push(region);
                }
                None => self.reject(address, &error),
            }
        }
        self.found.regions.sort_by_key(|r| r.address);
    }

    fn reject(&mut self, address: u64, error: &Error) {
        let mut session = [0u8; 16];
        let at = address.saturating_add(offset_of!(RegionHeader, session) as u64);
        // If the UUID cannot be read, the zeros match no session.
        let _ = self.image.read(at, &mut session);
        self.found
            .rejected
            .push(Rejected { session, why: format!("{error}; the region is skipped") });
    }

    /// Regions that the damaged header at `address` may describe: the unchanged header, and each
    /// single-bit repair that fits the checksum. Empty if the header cannot be read.
    fn tries(&self, address: u64) -> Vec<Region> {
        let mut head = vec![0u8; abi::HEADER_SIZE as usize];
        if read(self.image, "", address, &mut head).is_err() {
            return Vec::new();
        }
        let reader = Reader::new("", &head, ByteOrder::Little);
        let said = reader.u32_at(offset_of!(RegionHeader, fixed_len)).unwrap_or(0);
        let lens = [
            size_of::<lastwords_abi::stream::StreamInfo>(),
            size_of::<lastwords_abi::session::SessionInfo>(),
            0,
        ];
        let known = lens.iter().filter_map(|l| u32::try_from(*l).ok());
        let mut lens: Vec<u32> =
            known.chain([said, said.swap_bytes()]).filter(|f| *f <= 1024).collect();
        lens.sort_unstable();
        lens.dedup();
        let mut tries = Vec::new();
        for fixed in lens {
            let Ok(bytes) = self.with_fixed("", address, &head, fixed) else { continue };
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let check = Reader::new("", &head, order).u64_at(COVERED).unwrap_or(0);
                for mended in single_bit::mended(&bytes, check) {
                    let region = region("", &mended, Location::new(self.image, address));
                    tries.extend(
                        region
                            .ok()
                            .filter(|r| r.order == order && r.fixed.len() == fixed as usize)
                            .map(|r| {
                                let how = if mended == bytes {
                                    repair_header::AS_IT_STANDS
                                } else {
                                    repair_header::FLIPPED
                                };
                                Region { mended: Some(how.into()), ..r }
                            }),
                    );
                }
            }
        }
        tries
    }

    /// Returns the bytes of the header and of its fixed part if their checksum is right.
    fn checked(&self, what: &str, address: u64, head: &[u8]) -> Result<Vec<u8>, Error> {
        let order = byte_order(what, head)?;
        let reader = Reader::new(what, head, order);
        if reader.array_at::<16>(0)? != abi::MAGIC {
            return Err(Error::value(
                what,
                0,
                u64::from(reader.u8_at(0)?),
                "the magic of a region",
            ));
        }
        let fixed_at = offset_of!(RegionHeader, fixed_len);
        let fixed = reader.u32_at(fixed_at)?;
        if fixed > MAX_FIXED {
            return Err(Error::value(
                what,
                fixed_at as u64,
                u64::from(fixed),
                "at most 65536 fixed bytes",
            ));
        }
        let bytes = self.with_fixed(what, address, head, fixed)?;
        let said = reader.u64_at(COVERED)?;
        let is = single_bit::sum(&bytes);
        if said != is {
            return Err(Error::value(what, COVERED as u64, said, &format!("checksum {is:#x}")));
        }
        Ok(bytes)
    }

    fn with_fixed(
        &self,
        what: &str,
        address: u64,
        head: &[u8],
        fixed: u32,
    ) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0u8; (fixed as usize).saturating_add(head.len())];
        read(self.image, what, address, &mut bytes)?;
        Ok(bytes)
    }
}

struct Location<'a> {
    address: u64,
    name: Arc<str>,
    offset: u64,
    image: &'a dyn Image,
}

impl<'a> Location<'a> {
    fn new(image: &'a dyn Image, address: u64) -> Self {
        let (name, offset) = locate(image, address);
        Self { address, name, offset, image }
    }

    fn what(&self) -> String {
        format!("{}+{:#x}", self.name, self.offset)
    }
}

/// Builds the region from a header whose checksum was verified.
fn region(what: &str, bytes: &[u8], place: Location<'_>) -> Result<Region, Error> {
    let order = byte_order(what, bytes)?;
    let reader = Reader::new(what, bytes, order);
    if reader.array_at::<16>(0)? != abi::MAGIC {
        return Err(Error::value(what, 0, u64::from(reader.u8_at(0)?), "the magic of a region"));
    }
    let fixed_at = offset_of!(RegionHeader, fixed_len);
    let fixed = reader.u32_at(fixed_at)?;
    if bytes.len() != (abi::HEADER_SIZE as usize).saturating_add(fixed as usize) {
        return Err(Error::value(
            what,
            fixed_at as u64,
            u64::from(fixed),
            "the length of what follows the header",
        ));
    }
    let major = reader.u16_at(offset_of!(RegionHeader, major))?;
    let kind = reader.u32_at(offset_of!(RegionHeader, kind))?;
    let is_added = major == VERSION_MAJOR_ADDED;
    if !READABLE_MAJORS.contains(&major) || (is_added && kind != abi::KIND_STREAM) {
        let expected = format!(
            "major version {VERSION_MAJOR} (this program is too old or too new for the region)"
        );
        return Err(Error::value(
            what,
            offset_of!(RegionHeader, major) as u64,
            u64::from(major),
            &expected,
        ));
    }
    let size = reader.u64_at(offset_of!(RegionHeader, size))?;
    if size < abi::REGION_ALIGN
        || size % abi::REGION_ALIGN != 0
        || place.address.checked_add(size).is_none()
    {
        return Err(Error::value(
            what,
            offset_of!(RegionHeader, size) as u64,
            size,
            "a multiple of 4096",
        ));
    }
    Ok(Region {
        address: place.address,
        size,
        held: held(place.image, place.address, size),
        kind,
        index: reader.u32_at(offset_of!(RegionHeader, index))?,
        session: reader.array_at(offset_of!(RegionHeader, session))?,
        order,
        minor: reader.u16_at(offset_of!(RegionHeader, minor))?,
        is_added,
        word_size: reader.u32_at(offset_of!(RegionHeader, word_size))?,
        fixed: bytes.get(abi::HEADER_SIZE as usize..).unwrap_or_default().to_vec(),
        name: place.name,
        offset: place.offset,
        mended: None,
        reserved_is_zero: reader
            .bytes_at(offset_of!(RegionHeader, reserved), size_of::<[u64; 6]>())
            .is_ok_and(|r| r.iter().all(|b| *b == 0)),
    })
}

fn byte_order(what: &str, head: &[u8]) -> Result<ByteOrder, Error> {
    let at = offset_of!(RegionHeader, byte_order);
    let mark = Reader::new(what, head, ByteOrder::Little).u32_at(at)?;
    if mark == abi::BYTE_ORDER_MARK {
        Ok(ByteOrder::Little)
    } else if mark.swap_bytes() == abi::BYTE_ORDER_MARK {
        Ok(ByteOrder::Big)
    } else {
        Err(Error::value(what, at as u64, u64::from(mark), "the byte order mark 0x1020304"))
    }
}

/// True if `head` differs from the magic in at most one bit.
fn looks_like_magic(head: &[u8; 16]) -> bool {
    (u128::from_le_bytes(*head) ^ u128::from_le_bytes(abi::MAGIC)).count_ones() <= 1
}

fn locate(image: &dyn Image, address: u64) -> (Arc<str>, u64) {
    let ranges = image.ranges();
    let behind = ranges.partition_point(|r| r.address <= address);
    match behind.checked_sub(1).and_then(|i| ranges.get(i)) {
        Some(range) => {
            (range.name.clone(), range.offset.saturating_add(address.saturating_sub(range.address)))
        }
        None => (image.name().into(), address),
    }
}

/// Number of bytes from `address` to the end of the last byte that the image has of the next `size`
/// bytes.
fn held(image: &dyn Image, address: u64, size: u64) -> u64 {
    let end = address.saturating_add(size);
    let ranges = image.ranges();
    let first = ranges.partition_point(|r| r.end() <= address);
    let mut held = 0;
    let mut joined = address;
    for range in ranges.iter().skip(first) {
        if range.address > joined || range.address >= end {
            break;
        }
        joined = range.end();
        if range.hole.is_none() {
            held = joined.min(end).saturating_sub(address);
        }
    }
    held
}

fn read(image: &dyn Image, what: &str, address: u64, buf: &mut [u8]) -> Result<(), Error> {
    let len = buf.len();
    image.read(address, buf).map_err(|hole| {
        let got = hole.address.saturating_sub(address);
        Error::short(what, got, 0, &format!("{len} bytes of a region ({})", hole.cause.word()))
    })
}
