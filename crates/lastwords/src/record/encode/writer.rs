//! Destinations of payload bytes: words that stay in registers, a byte buffer, or a list of pieces.

use std::mem::MaybeUninit;

use lastwords_ring::{Padded, copy};

/// Replaces a NUL inside text, so that the text still ends at its own NUL.
pub(crate) const INNER_NUL: u8 = 0x1a;

/// Takes the bytes of a payload in order.
pub trait Out {
    /// Writes the low `size` bytes (1 to 8) of `value`, in the machine's byte order. The other
    /// bytes of `value` are zero.
    #[inline]
    fn scalar(&mut self, value: u64, size: usize) {
        self.raw(in_memory(&value.to_ne_bytes(), size));
    }
    /// Writes bytes without changes.
    fn raw(&mut self, bytes: &[u8]);
    /// Writes text and its NUL. A NUL inside becomes 0x1a.
    fn text(&mut self, bytes: &[u8]) {
        self.part_of_text(bytes);
        self.raw(&[0]);
    }
    /// Writes text without its NUL. A NUL inside becomes 0x1a.
    fn part_of_text(&mut self, bytes: &[u8]) {
        for run in runs(bytes) {
            self.raw(run);
        }
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

/// Collects a payload in whole words. If the sizes are known at compile time, every index and shift
/// is a constant after inlining and the words never touch memory before the ring does. The array is
/// separate from the counters, so that these stay in registers even if the index is only known at
/// run time.
pub(crate) struct Words<'a, const W: usize> {
    words: &'a mut [u64; W],
    index: usize,
    /// The word in progress. Its lowest `used` bytes are filled, and the lowest is the first in
    /// memory.
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

    /// Appends the low `size` bytes of `bytes`, of which the lowest comes first in memory. The
    /// other bytes of `bytes` are zero.
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
        let last =
            u64::from(u32::from_le_bytes([bytes[n - 4], bytes[n - 3], bytes[n - 2], bytes[n - 1]]));
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

/// Returns a word whose lowest bit that is set is in the lowest byte of `word` that is zero; 0 if
/// no byte is.
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
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_setzero_si128,
    };
    // SAFETY: every x86_64 has SSE2; 16 bytes are read of each, at any alignment.
    unsafe {
        let least =
            _mm_min_epu8(_mm_loadu_si128(a.as_ptr().cast()), _mm_loadu_si128(b.as_ptr().cast()));
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
        self.push(
            if cfg!(target_endian = "little") {
                value
            } else {
                value.swap_bytes() >> (64 - size * 8)
            },
            size,
        );
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

/// Returns the low `size` bytes of a number of which `bytes` is the memory.
#[inline(always)]
fn in_memory(bytes: &[u8; 8], size: usize) -> &[u8] {
    if cfg!(target_endian = "little") { &bytes[..size] } else { &bytes[8 - size..] }
}

/// Collects a payload on the stack, in memory that need not be zero before. A number is stored as a
/// whole word, whose upper bytes the next value overwrites. There is no call and nearly no branch,
/// so that all state stays in registers.
pub(crate) struct Image<'a, const N: usize> {
    buffer: &'a mut [MaybeUninit<u8>; N],
    /// Number of collected bytes, which are initialised; [`OVERFLOW`] once a value did not fit.
    len: usize,
    /// A text contained a NUL, which was copied.
    has_nul: bool,
}

/// Value of [`Image::len`] if a value did not fit. The sum of this and of a length is not over
/// `usize::MAX`.
const OVERFLOW: usize = usize::MAX / 2;

impl<'a, const N: usize> Image<'a, N> {
    #[inline(always)]
    pub(crate) fn new(buffer: &'a mut [MaybeUninit<u8>; N]) -> Self {
        Self { buffer, len: 0, has_nul: false }
    }

    /// Returns the payload with zeros after it. Returns none if the payload and the zeros do not
    /// fit, or a text contains a NUL.
    #[inline(always)]
    pub(crate) fn finish(self) -> Option<Padded<'a>> {
        const { assert!(N > Padded::PADDING) };
        if self.len > N - Padded::PADDING || self.has_nul {
            return None;
        }
        let at = self.buffer.as_mut_ptr().cast::<u8>();
        // SAFETY: the zeros fit after the collected bytes, and all these are initialised then.
        // Nobody else uses the buffer while it is borrowed.
        let bytes = unsafe {
            at.add(self.len).cast::<[u8; Padded::PADDING]>().write([0; Padded::PADDING]);
            std::slice::from_raw_parts(at, self.len + Padded::PADDING)
        };
        Padded::new(bytes)
    }

    /// Returns the place after the collected bytes if `len` bytes fit there.
    #[inline(always)]
    fn room(&mut self, len: usize) -> Option<*mut u8> {
        if self.len + len > N {
            self.len = OVERFLOW;
            return None;
        }
        // SAFETY: the place is in the buffer, or is its end.
        Some(unsafe { self.buffer.as_mut_ptr().cast::<u8>().add(self.len) })
    }
}

impl<const N: usize> Out for Image<'_, N> {
    #[inline(always)]
    fn scalar(&mut self, value: u64, size: usize) {
        let Some(to) = self.room(8) else { return };
        let value =
            opaque(if cfg!(target_endian = "little") { value } else { value << (64 - size * 8) });
        // SAFETY: there is room for 8 bytes.
        unsafe { to.cast::<u64>().write_unaligned(value) };
        self.len += size.min(8);
    }

    #[inline(always)]
    fn raw(&mut self, bytes: &[u8]) {
        let Some(to) = self.room(bytes.len()) else { return };
        // SAFETY: there is room for the bytes, and the buffer is not what is copied.
        unsafe { copy(bytes.as_ptr(), to, bytes.len()) };
        self.len += bytes.len();
    }

    #[inline(always)]
    fn text(&mut self, bytes: &[u8]) {
        let Some(to) = self.room(bytes.len() + 8) else { return };
        // SAFETY: there is room for the text and 8 bytes.
        self.has_nul |= unsafe { copy_text(bytes, to) };
        self.len += bytes.len() + 1;
    }

    #[inline]
    fn part_of_text(&mut self, bytes: &[u8]) {
        self.has_nul |= bytes.contains(&0);
        self.raw(bytes);
    }
}

/// Returns the same value, in a register of its own. Otherwise the compiler loads two neighbouring
/// values together, which the caller has just stored one by one: the processor cannot forward such
/// a load, and waits until the stores before it are in the cache.
#[inline(always)]
fn opaque(value: u64) -> u64 {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let mut value = value;
        // SAFETY: the template is empty.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
        }
        value
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    value
}

/// Returns a text of at most seven bytes as a word that ends with its NUL and with zeros; none if
/// the text is longer or contains a NUL.
#[inline(always)]
pub(crate) fn short_text(text: &[u8]) -> Option<u64> {
    if text.len() > 7 {
        return None;
    }
    let word = tail_word(text);
    (!has_zero(word | u64::MAX << (text.len() * 8))).then_some(word)
}

/// Copies a text, and writes a NUL after it. Returns true if the text contains a NUL, which is
/// copied too.
///
/// # Safety
/// `text` and 8 bytes more are writable at `to`, and are not part of the text.
#[inline(always)]
unsafe fn copy_text(text: &[u8], to: *mut u8) -> bool {
    let len = text.len();
    // SAFETY: what is written ends at the end of the text, or is the word at its beginning, or the
    // NUL.
    unsafe {
        if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            to.add(len).write(0);
            copy_blocks(text, first, last, to)
        } else if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            to.add(len).write(0);
            to.cast::<[u8; 8]>().write(*first);
            to.add(len - 8).cast::<[u8; 8]>().write(*last);
            has_zero(u64::from_ne_bytes(*first)) | has_zero(u64::from_ne_bytes(*last))
        } else {
            // The bytes of the word after the text are zero.
            let word = tail_word(text);
            to.cast::<[u8; 8]>().write(word.to_le_bytes());
            has_zero(word | u64::MAX << (len * 8))
        }
    }
}

/// Copies a text in blocks, of which the last may overlap the one before. Returns true if the text
/// contains a NUL.
///
/// # Safety
/// `text`, which begins with `first` and ends with `last`, is writable at `to`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_blocks(text: &[u8], first: &[u8; 16], last: &[u8; 16], to: *mut u8) -> bool {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_setzero_si128,
        _mm_storeu_si128,
    };
    // SAFETY: every x86_64 has SSE2. 16 bytes are read of the text, and written at the same place
    // in `to`.
    unsafe {
        let (a, b) =
            (_mm_loadu_si128(first.as_ptr().cast()), _mm_loadu_si128(last.as_ptr().cast()));
        let mut least = _mm_min_epu8(a, b);
        _mm_storeu_si128(to.cast(), a);
        let mut at = 16;
        while at + 16 < text.len() {
            let block = _mm_loadu_si128(text.as_ptr().add(at).cast());
            least = _mm_min_epu8(least, block);
            _mm_storeu_si128(to.add(at).cast(), block);
            at += 16;
        }
        _mm_storeu_si128(to.add(text.len() - 16).cast(), b);
        _mm_movemask_epi8(_mm_cmpeq_epi8(least, _mm_setzero_si128())) != 0
    }
}

/// Copies a text. Returns true if it contains a NUL.
///
/// # Safety
/// `text`, which begins with `first` and ends with `last`, is writable at `to`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn copy_blocks(text: &[u8], _first: &[u8; 16], _last: &[u8; 16], to: *mut u8) -> bool {
    // SAFETY: the caller guarantees the room.
    unsafe { copy(text.as_ptr(), to, text.len()) };
    !has_no_nul(text)
}

/// Collects a payload in a byte buffer. Bytes that do not fit are left out and noted.
pub(crate) struct Bytes<'a> {
    buffer: &'a mut [u8],
    len: usize,
    full: bool,
    /// Number of texts in which NULs were replaced.
    changed: u32,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0, full: false, changed: 0 }
    }

    /// Returns the number of texts in which NULs were replaced.
    pub(crate) fn changed(&self) -> u32 {
        self.changed
    }

    /// Returns the collected bytes, or none if some did not fit.
    pub(crate) fn finish(mut self) -> Option<&'a [u8]> {
        if self.full { None } else { Some(self.take()) }
    }

    /// Returns the collected bytes. Later bytes are collected after them.
    fn take(&mut self) -> &'a [u8] {
        let (taken, rest) =
            std::mem::take(&mut self.buffer).split_at_mut(std::mem::take(&mut self.len));
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

    fn part_of_text(&mut self, bytes: &[u8]) {
        self.changed += u32::from(bytes.contains(&0));
        for run in runs(bytes) {
            self.raw(run);
        }
    }
}

/// Largest number of pieces of a payload.
const MAX_PIECES: usize = 64;

/// Collects references to the long values of a payload, so that they are copied once, into the
/// ring. The values between them are collected in a buffer.
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

    /// Returns the number of texts in which NULs were replaced.
    pub(crate) fn changed(&self) -> u32 {
        self.between.changed
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

    /// Adds text that outlives the call, without its NUL. If the text contains more NULs than there
    /// can be pieces, the payload is too big.
    pub(crate) fn source_text(&mut self, bytes: &'a [u8]) {
        self.between.changed += u32::from(bytes.contains(&0));
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

    fn part_of_text(&mut self, bytes: &[u8]) {
        self.between.part_of_text(bytes);
    }
}

/// Bytes of the stack in which a payload is collected before it is copied into the ring.
pub(crate) const ON_STACK: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of every length, with a NUL at each place and without, between numbers.
    #[test]
    fn an_image_has_the_bytes_of_the_general_way() {
        // Miri interprets some lengths and places.
        let (lengths, places) = if cfg!(miri) { (45, 17) } else { (1, 1) };
        for len in (0..100).step_by(lengths) {
            for nul in (0..len).step_by(places).map(Some).chain([None]) {
                let text: Vec<u8> = (0..len)
                    .map(|n| if Some(n) == nul { 0 } else { b'a' + (n % 26) as u8 })
                    .collect();
                let write = |out: &mut dyn FnMut(&[u8], bool)| {
                    out(&[1, 2, 3], false);
                    out(&text, true);
                    out(&[4, 5], false);
                    out(&text[..len / 2], true);
                };
                let (mut buffer, mut bytes) = ([MaybeUninit::uninit(); 512], [0; 512]);
                let (mut image, mut expected) = (Image::new(&mut buffer), Bytes::new(&mut bytes));
                write(&mut |part, is_text| {
                    if is_text { image.text(part) } else { image.raw(part) }
                });
                write(&mut |part, is_text| {
                    if is_text { expected.text(part) } else { expected.raw(part) }
                });
                image.scalar(0x1234, 2);
                expected.scalar(0x1234, 2);
                let image = image.finish();
                assert_eq!(image.is_some(), nul.is_none(), "{len} bytes, NUL at {nul:?}");
                assert!(
                    image.is_none_or(|image| Some(image.payload()) == expected.finish()),
                    "{len} bytes"
                );
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_no_image() {
        for len in 0..100 {
            let mut buffer = [MaybeUninit::uninit(); 64];
            let mut image = Image::new(&mut buffer);
            image.raw(&vec![7; len]);
            image.scalar(1, 1);
            assert_eq!(image.finish().is_some(), len < 64 - Padded::PADDING, "{len} bytes");
        }
    }
}
