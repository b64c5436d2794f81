//! Where payload bytes go: into words that stay in registers, into a byte buffer, or into a list of pieces.

/// What replaces a NUL inside text, so that the text still ends at its own NUL.
pub(crate) const INNER_NUL: u8 = 0x1a;

/// Takes the bytes of a payload in order.
pub trait Out {
    /// The low `size` bytes (1 to 8) of `value`, in the machine's byte order; the other bytes of `value` are zero.
    fn scalar(&mut self, value: u64, size: usize);
    /// Bytes as they are.
    fn raw(&mut self, bytes: &[u8]);
    /// Text and its NUL; a NUL inside becomes 0x1a.
    fn text(&mut self, bytes: &[u8]);
}

/// Collects a payload in whole words. With sizes known at compile time every index and shift is a constant after inlining
/// and the words never touch memory before the ring does. The array is apart from the counters, so that these stay in
/// registers even where the index is only known at run time.
pub(crate) struct Words<'a, const W: usize> {
    words: &'a mut [u64; W],
    index: usize,
    /// The word in progress; `used` bytes of it are filled.
    acc: u64,
    used: usize,
}

impl<'a, const W: usize> Words<'a, W> {
    /// Writes to `words`, which are zero: what is put lies in them in memory order.
    #[inline(always)]
    pub(crate) fn new(words: &'a mut [u64; W]) -> Self {
        Self { words, index: 0, acc: 0, used: 0 }
    }

    /// Writes the word in progress.
    #[inline(always)]
    pub(crate) fn finish(self) {
        if self.used > 0 && self.index < W {
            self.words[self.index] = self.acc;
        }
    }

    /// Puts the `size` bytes of `value`, which come first in memory order.
    #[cfg(target_endian = "little")]
    #[inline(always)]
    fn push(&mut self, value: u64, size: usize) {
        self.acc |= value << (self.used * 8);
        let total = self.used + size;
        if total < 8 {
            self.used = total;
            return;
        }
        self.flush();
        // Two shifts: one by 64 has no value.
        self.acc = (value >> 1) >> (63 - self.used * 8);
        self.used = total - 8;
    }

    /// Puts the `size` bytes of `value`, which are its low ones, most significant first.
    #[cfg(target_endian = "big")]
    #[inline(always)]
    fn push(&mut self, value: u64, size: usize) {
        let top = value << (64 - size * 8);
        self.acc |= top >> (self.used * 8);
        let total = self.used + size;
        if total < 8 {
            self.used = total;
            return;
        }
        self.flush();
        self.acc = (top << 1) << (63 - self.used * 8);
        self.used = total - 8;
    }

    #[inline(always)]
    fn flush(&mut self) {
        if self.index < W {
            self.words[self.index] = self.acc;
        }
        self.index += 1;
    }
}

/// Up to seven bytes as a number that [`Words::push`] takes.
#[inline(always)]
fn tail_word(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    if n >= 4 {
        let first = u64::from(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let last = u64::from(u32::from_ne_bytes([bytes[n - 4], bytes[n - 3], bytes[n - 2], bytes[n - 1]]));
        if cfg!(target_endian = "little") { first | last << ((n - 4) * 8) } else { first << ((n - 4) * 8) | last }
    } else if n > 0 {
        let (a, b, c) = (u64::from(bytes[0]), u64::from(bytes[n / 2]), u64::from(bytes[n - 1]));
        if cfg!(target_endian = "little") {
            a | b << (n / 2 * 8) | c << ((n - 1) * 8)
        } else {
            a << ((n - 1) * 8) | b << ((n - 1 - n / 2) * 8) | c
        }
    } else {
        0
    }
}

/// The last `n` (0 to 7) bytes of `bytes`, read in one load where `bytes` has eight.
#[inline(always)]
fn last_bytes(bytes: &[u8], n: usize) -> u64 {
    if n == 0 {
        return 0;
    }
    let Some(word) = bytes.last_chunk::<8>() else { return tail_word(&bytes[bytes.len() - n..]) };
    let word = u64::from_ne_bytes(*word);
    if cfg!(target_endian = "little") { word >> ((8 - n) * 8) } else { word & ((1 << (n * 8)) - 1) }
}

/// Whether a byte of `word` is zero.
#[inline(always)]
pub(crate) fn has_zero(word: u64) -> bool {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080 != 0
}

/// Whether `bytes`, 8 at least, have no NUL among them.
#[inline(always)]
pub(crate) fn has_no_nul(bytes: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return !zero_in_16(first, last) && (bytes.len() <= 32 || middle_has_no_nul(bytes));
    }
    let (chunks, rest) = bytes.as_chunks::<8>();
    let last = if rest.is_empty() { None } else { bytes.last_chunk::<8>() };
    !chunks.iter().chain(last).any(|chunk| has_zero(u64::from_ne_bytes(*chunk)))
}

/// Whether one of the bytes is zero.
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

/// Whether no byte is zero from the 17th on to the last before the last 16.
#[cfg(target_arch = "x86_64")]
#[inline]
fn middle_has_no_nul(bytes: &[u8]) -> bool {
    bytes[16..].as_chunks().0.iter().all(|chunk| !zero_in_16(chunk, chunk))
}

/// `word` with each of its zero bytes replaced by [`INNER_NUL`].
#[cold]
fn without_zeros(word: u64) -> u64 {
    u64::from_ne_bytes(word.to_ne_bytes().map(|byte| if byte == 0 { INNER_NUL } else { byte }))
}

impl<const W: usize> Out for Words<'_, W> {
    #[inline(always)]
    fn scalar(&mut self, value: u64, size: usize) {
        self.push(value, size);
    }

    #[inline(always)]
    fn raw(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.push(u64::from_ne_bytes(*chunk), 8);
        }
        if !rest.is_empty() {
            self.push(last_bytes(bytes, rest.len()), rest.len());
        }
    }

    #[inline(always)]
    fn text(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            let mut word = u64::from_ne_bytes(*chunk);
            if has_zero(word) {
                word = without_zeros(word);
            }
            self.push(word, 8);
        }
        let n = rest.len();
        let mut tail = last_bytes(bytes, n);
        // Bytes past the tail are made non-zero for the test.
        let unused = if cfg!(target_endian = "little") { u64::MAX << (n * 8) } else { !((1 << (n * 8)) - 1) };
        if has_zero(tail | unused) {
            tail = without_zeros(tail | unused) & !unused;
        }
        let with_nul = if cfg!(target_endian = "little") { tail } else { tail << 8 };
        self.push(with_nul, n + 1);
    }
}

/// Collects a payload in a byte buffer. What does not fit is left out and noted.
pub(crate) struct Bytes<'a> {
    buffer: &'a mut [u8],
    len: usize,
    full: bool,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0, full: false }
    }

    /// The bytes collected, unless some found no room.
    pub(crate) fn finish(self) -> Option<&'a [u8]> {
        let Self { buffer, len, full } = self;
        if full { None } else { buffer.get(..len) }
    }

    /// Bytes collected so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn room(&mut self, n: usize) -> Option<&mut [u8]> {
        let end = self.len.checked_add(n).filter(|end| *end <= self.buffer.len());
        let Some(end) = end else {
            self.full = true;
            return None;
        };
        let at = self.len;
        self.len = end;
        self.buffer.get_mut(at..end)
    }
}

impl Out for Bytes<'_> {
    #[inline]
    fn scalar(&mut self, value: u64, size: usize) {
        let bytes = value.to_ne_bytes();
        self.raw(if cfg!(target_endian = "little") { &bytes[..size] } else { &bytes[8 - size..] });
    }

    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        if let Some(room) = self.room(bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        let Some(room) = self.room(bytes.len() + 1) else { return };
        let (nul, text) = room.split_last_mut().map_or((None, [].as_mut_slice()), |(nul, text)| (Some(nul), text));
        text.copy_from_slice(bytes);
        if let Some(nul) = nul {
            *nul = 0;
        }
        for byte in text {
            if *byte == 0 {
                *byte = INNER_NUL;
            }
        }
    }
}

/// Most pieces of a payload that is recorded piece by piece.
const MAX_PIECES: usize = 64;
/// Bytes of scalars among them.
const SCRATCH: usize = 1024;

#[derive(Clone, Copy)]
enum Piece<'a> {
    Scratch(usize, usize),
    Source(&'a [u8]),
}

/// Collects references to the long values of a payload, so that they are copied once, into the ring.
pub(crate) struct Pieces<'a> {
    pieces: [Piece<'a>; MAX_PIECES],
    len: usize,
    scratch: [u8; SCRATCH],
    scratch_len: usize,
    full: bool,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new() -> Self {
        Self { pieces: [Piece::Scratch(0, 0); MAX_PIECES], len: 0, scratch: [0; SCRATCH], scratch_len: 0, full: false }
    }

    /// Calls `then` with the pieces in order, unless there were too many.
    pub(crate) fn finish<R>(&self, then: impl FnOnce(&[&[u8]]) -> R) -> Option<R> {
        if self.full {
            return None;
        }
        let mut parts: [&[u8]; MAX_PIECES] = [&[]; MAX_PIECES];
        for (part, piece) in parts.iter_mut().zip(&self.pieces[..self.len]) {
            *part = match *piece {
                Piece::Scratch(from, to) => &self.scratch[from..to],
                Piece::Source(bytes) => bytes,
            };
        }
        Some(then(&parts[..self.len]))
    }

    fn push(&mut self, piece: Piece<'a>) {
        if self.len == MAX_PIECES {
            self.full = true;
            return;
        }
        self.pieces[self.len] = piece;
        self.len += 1;
    }

    /// Bytes that do not outlive the call.
    pub(crate) fn copied(&mut self, bytes: &[u8]) {
        let (from, to) = (self.scratch_len, self.scratch_len + bytes.len());
        if to > SCRATCH {
            self.full = true;
            return;
        }
        self.scratch[from..to].copy_from_slice(bytes);
        self.scratch_len = to;
        match self.len.checked_sub(1).map(|last| &mut self.pieces[last]) {
            Some(Piece::Scratch(_, end)) if *end == from => *end = to,
            _ => self.push(Piece::Scratch(from, to)),
        }
    }

    /// Bytes that outlive the call.
    pub(crate) fn source(&mut self, bytes: &'a [u8]) {
        if !bytes.is_empty() {
            self.push(Piece::Source(bytes));
        }
    }

    /// Text that outlives the call. Text with more NULs inside than there are pieces makes the payload too big.
    pub(crate) fn source_text(&mut self, bytes: &'a [u8]) {
        for (i, run) in bytes.split(|byte| *byte == 0).enumerate() {
            if i > 0 {
                self.copied(&[INNER_NUL]);
            }
            self.source(run);
            if self.full {
                return;
            }
        }
        self.copied(&[0]);
    }
}
