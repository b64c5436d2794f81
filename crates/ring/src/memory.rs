//! Computes the address of an offset in a half.

/// Bytes of a page of a paged half.
pub(crate) const PAGE: usize = 4096;

/// The data of one half of a stream.
pub(crate) trait Memory: Copy {
    /// The memory of a half whose data, or page table, is at `base`.
    ///
    /// # Safety
    /// The table has an entry for each page of the half, and stays mapped. Its entries change only
    /// while the half is spare.
    unsafe fn at(base: *mut u8) -> Self;
    /// Returns the address of the byte at `offset`, and how many bytes follow it contiguously.
    /// Every caller masks the offset to the half.
    fn run(self, offset: u64) -> (*mut u8, usize);

    /// Returns the address and length of each contiguous run of the `len` bytes at `offset`.
    #[inline]
    fn runs(self, mut offset: u64, mut len: usize) -> impl Iterator<Item = (*mut u8, usize)> {
        core::iter::from_fn(move || {
            if len == 0 {
                return None;
            }
            let (at, run) = self.run(offset);
            let part = run.min(len);
            offset += part as u64;
            len -= part;
            Some((at, part))
        })
    }
}

/// One contiguous mapping: shared memory, memfd, huge pages, DAX, a physical range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contiguous(*mut u8);

impl Memory for Contiguous {
    #[inline]
    unsafe fn at(base: *mut u8) -> Self {
        Self(base)
    }
    #[inline]
    fn run(self, offset: u64) -> (*mut u8, usize) {
        (self.0.wrapping_add(offset as usize), usize::MAX)
    }
}

/// Pages at any addresses, which a table lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paged(*const u64);

impl Memory for Paged {
    #[inline]
    unsafe fn at(base: *mut u8) -> Self {
        Self(base.cast_const().cast())
    }
    #[inline]
    fn run(self, offset: u64) -> (*mut u8, usize) {
        let (page, within) = (offset as usize / PAGE, offset as usize % PAGE);
        // SAFETY: `at` was given a table with an entry for each page of the half, and `offset` is
        // inside the half.
        let address = unsafe { self.0.add(page).read() };
        ((address as usize as *mut u8).wrapping_add(within), PAGE - within)
    }
}
