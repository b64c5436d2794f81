//! Images that note which pages are read, and images that lack some.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use lastwords_image::{Hole, HoleCause, Image, Range};

/// Bytes of what is taken out at a time. Machines with larger pages lose parts of one.
pub(crate) const PAGE: u64 = 4096;

/// An image that notes which of its pages are read.
pub(crate) struct Noting {
    pub(crate) inner: Arc<dyn Image>,
    read: Mutex<BTreeSet<u64>>,
}

impl Noting {
    pub(crate) fn new(inner: Arc<dyn Image>) -> Self {
        Self { inner, read: Mutex::default() }
    }

    /// Returns the numbers of the pages that were read.
    pub(crate) fn pages(&self) -> BTreeSet<u64> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Image for Noting {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn ranges(&self) -> &[Range] {
        self.inner.ranges()
    }

    fn is_virtual(&self) -> bool {
        self.inner.is_virtual()
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        // A search of the whole memory reads in large pieces. It says nothing of single pages.
        if buf.len() <= 1 << 16 {
            let last = address.saturating_add(buf.len() as u64).saturating_sub(1);
            self.read
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(address / PAGE..=last / PAGE);
        }
        self.inner.read(address, buf)
    }

    fn next_data(&self, address: u64, end: u64) -> u64 {
        self.inner.next_data(address, end)
    }
}

/// How pages are taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The image says that it lacks them.
    Excluded,
    /// They read as zero.
    Zero,
    /// All from the first of them on are missing.
    Truncated,
}

/// An image without some pages.
pub(crate) struct Without {
    inner: Arc<dyn Image>,
    pages: BTreeSet<u64>,
    loss: Loss,
    ranges: Vec<Range>,
}

impl Without {
    pub(crate) fn new(inner: Arc<dyn Image>, pages: BTreeSet<u64>, loss: Loss) -> Self {
        let ranges = match loss {
            Loss::Zero => inner.ranges().to_vec(),
            Loss::Excluded | Loss::Truncated => {
                inner.ranges().iter().flat_map(|range| split(range, &pages, loss)).collect()
            }
        };
        Self { inner, pages, loss, ranges }
    }

    /// Returns the first missing page of a range of addresses.
    fn missing(&self, address: u64, end: u64) -> Option<u64> {
        let page = match self.loss {
            Loss::Truncated => self.pages.first().copied().filter(|first| first * PAGE < end),
            _ => {
                self.pages.range(address / PAGE..).next().copied().filter(|page| page * PAGE < end)
            }
        };
        page.map(|page| (page * PAGE).max(address))
    }

    fn cause(&self) -> HoleCause {
        if self.loss == Loss::Truncated { HoleCause::Truncated } else { HoleCause::Excluded }
    }
}

/// Cuts a range into what is there and what is not.
fn split(range: &Range, pages: &BTreeSet<u64>, loss: Loss) -> Vec<Range> {
    let part = |begin: u64, end: u64, hole| Range {
        address: begin,
        len: end - begin,
        offset: range.offset + (begin - range.address),
        hole,
        ..range.clone()
    };
    if range.hole.is_some() {
        return vec![range.clone()];
    }
    let (mut at, end, mut parts) = (range.address, range.end(), Vec::new());
    let cut = pages.first().map_or(u64::MAX, |first| first * PAGE).max(at);
    if loss == Loss::Truncated {
        if cut >= end {
            return vec![range.clone()];
        }
        parts.extend((cut > at).then(|| part(at, cut, None)));
        parts.push(part(cut, end, Some(HoleCause::Truncated)));
        return parts;
    }
    for page in pages.range(at / PAGE..end.div_ceil(PAGE)) {
        let (begin, after) = ((page * PAGE).max(at), ((page + 1) * PAGE).min(end));
        parts.extend((begin > at).then(|| part(at, begin, None)));
        parts.push(part(begin, after, Some(HoleCause::Excluded)));
        at = after;
    }
    parts.extend((end > at).then(|| part(at, end, None)));
    parts
}

impl Image for Without {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn is_virtual(&self) -> bool {
        self.inner.is_virtual()
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let end = address.saturating_add(buf.len() as u64);
        let Some(hole) = self.missing(address, end) else { return self.inner.read(address, buf) };
        if self.loss == Loss::Zero {
            self.inner.read(address, buf)?;
            let pages = self.pages.range(address / PAGE..end.div_ceil(PAGE));
            for page in pages {
                let (begin, after) = ((page * PAGE).max(address), ((page + 1) * PAGE).min(end));
                buf[(begin - address) as usize..(after - address) as usize].fill(0);
            }
            return Ok(());
        }
        self.inner.read(address, &mut buf[..(hole - address) as usize])?;
        Err(Hole { address: hole, cause: self.cause() })
    }

    fn next_data(&self, address: u64, end: u64) -> u64 {
        self.inner.next_data(address, end)
    }
}
