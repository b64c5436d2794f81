//! Destinations of payload bytes: words that stay in registers, a byte buffer, or a list of pieces.

/// Replaces a NUL inside text, so that the text still ends at its own NUL.
pub(crate) const INNER_NUL: u8 = 0x1a;

/// Takes the bytes of a payload in order.
pub trait Out {
    /// Writes the low `size` bytes (1 to 8) of `value`, in the machine's byte order. The other bytes of `value` are
    /// zero.
    #[inline]
    fn scalar(&mut self, value: u64, size: usize) {
        let bytes = value.to_ne_bytes();
        self.raw(if cfg!(target_endian = "little") { &bytes[..size] } else { &bytes[8 - size..] });
    }
    /// Writes bytes without changes.
    fn raw(&mut self, bytes: &[u8]);
    /// Writes text and its NUL. A NUL inside becomes 0x1a.
    fn text(&mut self, bytes: &[u8]) {
        for run in runs(bytes) {
            self.raw(run);
        }
        self.raw(&[0]);
    }
}

/// Splits the text into runs, with [`INNER_NUL`] in place of each NUL inside.
pub(super) fn runs(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == 0).flat_map(|run| match run {
        [before @ .., 0] => [before, &[INNER_NUL]],
        _ => [run, &[]],
    })
}

/// Counts the bytes of a payload.
pub(super) struct Count(pub(super) usize);

impl Out for Count {
    #[inline(always)]
    fn scalar(&mut self, _: u64, size: usize) {
        self.0 += size;
    }

    #[inline(always)]
    fn raw(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    #[inline(always)]
    fn text(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() + 1;
    }
}

/// Collects a payload in whole words. If the sizes are known at compile time, every index and shift is a constant after
/// inlining and the words never touch memory before the ring does. The array is separate from the counters, so that
/// these stay in registers even if the index is only known at run time.
pub(crate) struct Words<'a, const W: usize> {
    words: &'a mut [u64; W],
    index: usize,
    /// The word in progress. Its lowest `used` bytes are filled, and the lowest is the first in memory.
    acc: u64,
    used: usize,
}

impl<'a, const W: usize> Words<'a, W> {
    /// Writes to `words`, which must be zero. The values are in them in memory order.
    #[inline(always)]
    pub(crate) fn new(words: &'a mut [u64; W]) -> Self {
        Self { words, index: 0, acc: 0, used: 0 }
    }

    /// Writes the word in progress.
    #[inline(always)]
    pub(crate) fn finish(mut self) {
        if self.used > 0 {
            self.flush();
        }
    }

    /// Appends the low `size` bytes of `bytes`, of which the lowest comes first in memory. The other bytes of `bytes`
    /// are zero.
    #[inline(always)]
    fn push(&mut self, bytes: u64, size: usize) {
        self.acc |= bytes << (self.used * 8);
        let total = self.used + size;
        if total < 8 {
            self.used = total;
            return;
        }
        self.flush();
        // There are two shifts, because a shift by 64 is not defined.
        self.acc = (bytes >> 1) >> (63 - self.used * 8);
        self.used = total - 8;
    }

    #[inline(always)]
    fn flush(&mut self) {
        if self.index < W {
            self.words[self.index] = self.acc.to_le();
        }
        self.index += 1;
    }
}

/// Returns up to seven bytes as a word for [`Words::push`].
#[inline(always)]
fn tail_word(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    if n >= 4 {
        let first = u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let last = u64::from(u32::from_le_bytes([bytes[n - 4], bytes[n - 3], bytes[n - 2], bytes[n - 1]]));
        first | last << ((n - 4) * 8)
    } else if n > 0 {
        let (a, b, c) = (u64::from(bytes[0]), u64::from(bytes[n / 2]), u64::from(bytes[n - 1]));
        a | b << (n / 2 * 8) | c << ((n - 1) * 8)
    } else {
        0
    }
}

/// Returns the last `n` (0 to 7) bytes of `bytes`, read in one load if `bytes` has at least eight.
#[inline(always)]
fn last_bytes(bytes: &[u8], n: usize) -> u64 {
    match bytes.last_chunk::<8>() {
        _ if n == 0 => 0,
        Some(word) => u64::from_le_bytes(*word) >> ((8 - n) * 8),
        None => tail_word(&bytes[bytes.len() - n..]),
    }
}

/// Returns true if a byte of `word` is zero.
#[inline(always)]
fn has_zero(word: u64) -> bool {
    zero_bytes(word) != 0
}

/// Returns a word whose lowest bit that is set is in the lowest byte of `word` that is zero; 0 if no byte is.
#[inline(always)]
pub(crate) fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

/// Returns true if `bytes`, at least 8, contain no NUL.
#[inline(always)]
pub(crate) fn has_no_nul(bytes: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return !zero_in_16(first, last) && (bytes.len() <= 32 || middle_has_no_nul(bytes));
    }
    let words = bytes.as_chunks().0.iter().chain(bytes.last_chunk());
    !words.copied().any(|word| has_zero(u64::from_ne_bytes(word)))
}

/// Returns true if one of the bytes is zero.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn zero_in_16(a: &[u8; 16], b: &[u8; 16]) -> bool {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_setzero_si128};
    // SAFETY: every x86_64 has SSE2; 16 bytes are read of each, at any alignment.
    unsafe {
        let least = _mm_min_epu8(_mm_loadu_si128(a.as_ptr().cast()), _mm_loadu_si128(b.as_ptr().cast()));
        _mm_movemask_epi8(_mm_cmpeq_epi8(least, _mm_setzero_si128())) != 0
    }
}

/// Returns true if no byte in whole blocks of 16 from the 17th byte on is zero.
#[cfg(target_arch = "x86_64")]
#[inline]
fn middle_has_no_nul(bytes: &[u8]) -> bool {
    bytes[16..].as_chunks().0.iter().all(|chunk| !zero_in_16(chunk, chunk))
}

/// Returns `word` with each of its zero bytes replaced by [`INNER_NUL`].
#[inline(always)]
fn without_zeros(word: u64) -> u64 {
    if has_zero(word) { replaced(word) } else { word }
}

#[cold]
fn replaced(word: u64) -> u64 {
    u64::from_ne_bytes(word.to_ne_bytes().map(|byte| if byte == 0 { INNER_NUL } else { byte }))
}

impl<const W: usize> Out for Words<'_, W> {
    #[inline(always)]
    fn scalar(&mut self, value: u64, size: usize) {
        self.push(if cfg!(target_endian = "little") { value } else { value.swap_bytes() >> (64 - size * 8) }, size);
    }

    #[inline(always)]
    fn raw(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks();
        for chunk in chunks {
            self.push(u64::from_le_bytes(*chunk), 8);
        }
        if !rest.is_empty() {
            self.push(last_bytes(bytes, rest.len()), rest.len());
        }
    }

    #[inline(always)]
    fn text(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks();
        for chunk in chunks {
            self.push(without_zeros(u64::from_le_bytes(*chunk)), 8);
        }
        // Bytes past the tail are made non-zero for the test.
        let unused = u64::MAX << (rest.len() * 8);
        let tail = without_zeros(last_bytes(bytes, rest.len()) | unused) & !unused;
        self.push(tail, rest.len() + 1);
    }
}

/// Collects a payload in a byte buffer. Bytes that do not fit are left out and noted.
pub(crate) struct Bytes<'a> {
    buffer: &'a mut [u8],
    len: usize,
    full: bool,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0, full: false }
    }

    /// Returns the collected bytes, or none if some did not fit.
    pub(crate) fn finish(mut self) -> Option<&'a [u8]> {
        if self.full { None } else { Some(self.take()) }
    }

    /// Returns the collected bytes. Later bytes are collected after them.
    fn take(&mut self) -> &'a [u8] {
        let (taken, rest) = std::mem::take(&mut self.buffer).split_at_mut(std::mem::take(&mut self.len));
        self.buffer = rest;
        taken
    }
}

impl Out for Bytes<'_> {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        match self.buffer.get_mut(self.len..self.len + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.full = true,
        }
    }
}

/// Largest number of pieces of a payload.
const MAX_PIECES: usize = 64;

/// Collects references to the long values of a payload, so that they are copied once, into the ring. The values between them
/// are collected in a buffer.
pub struct Pieces<'a> {
    between: Bytes<'a>,
    pieces: [&'a [u8]; MAX_PIECES],
    len: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { between: Bytes::new(buffer), pieces: [&[]; MAX_PIECES], len: 0 }
    }

    /// Returns the pieces in order, or none if there were too many.
    pub(crate) fn finish(&mut self) -> Option<&[&'a [u8]]> {
        self.source(&[]);
        if self.between.full { None } else { self.pieces.get(..self.len) }
    }

    /// Adds bytes that outlive the call.
    pub(crate) fn source(&mut self, bytes: &'a [u8]) {
        for piece in [self.between.take(), bytes] {
            match self.pieces.get_mut(self.len) {
                _ if piece.is_empty() => (),
                Some(place) => {
                    *place = piece;
                    self.len += 1;
                }
                None => self.between.full = true,
            }
        }
    }

    /// Adds text that outlives the call, without its NUL. If the text contains more NULs than there can be pieces, the
    /// payload is too big.
    pub(crate) fn source_text(&mut self, bytes: &'a [u8]) {
        for run in runs(bytes) {
            if self.between.full {
                return;
            }
            self.source(run);
        }
    }
}

impl Out for Pieces<'_> {
    fn raw(&mut self, bytes: &[u8]) {
        self.between.raw(bytes);
    }
}
