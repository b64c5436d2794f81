//! Layer 3: how an offset in a half becomes an address.

/// Bytes of a page of a paged half.
pub const PAGE: usize = 4096;

/// The data of one half of a stream.
pub trait Memory: Copy {
    /// The memory of a half whose data, or page table, is at `base`.
    fn at(base: *mut u8) -> Self;
    /// Address of the byte at `offset`, and how many bytes follow it without a break.
    fn run(self, offset: u64) -> (*mut u8, usize);
}

/// One mapping: shared memory, memfd, huge pages, DAX, a physical range.
#[derive(Debug, Clone, Copy)]
pub struct Contiguous(*mut u8);

impl Memory for Contiguous {
    #[inline]
    fn at(base: *mut u8) -> Self {
        Self(base)
    }
    #[inline]
    fn run(self, offset: u64) -> (*mut u8, usize) {
        (self.0.wrapping_add(offset as usize), usize::MAX)
    }
}

/// Pages anywhere, found through a table of their addresses.
#[derive(Debug, Clone, Copy)]
pub struct Paged(*const u64);

impl Memory for Paged {
    #[inline]
    fn at(base: *mut u8) -> Self {
        Self(base.cast_const().cast())
    }
    #[inline]
    fn run(self, offset: u64) -> (*mut u8, usize) {
        let (page, within) = (offset as usize / PAGE, offset as usize % PAGE);
        // SAFETY: `at` was given the page table of a half, which has an entry for each page of its data, and `offset` is
        // masked to the half by every caller; entries change only while the half is spare.
        let address = unsafe { self.0.add(page).read() };
        ((address as usize as *mut u8).wrapping_add(within), PAGE - within)
    }
}
