//! The bounded reader.

use crate::error::Error;

/// Byte order of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The order of this machine.
    ///
    /// ```
    /// use lastwords_bytes::{ByteOrder, Reader};
    ///
    /// let bytes = 258_u16.to_ne_bytes();
    /// assert_eq!(Reader::new("a number", &bytes, ByteOrder::NATIVE).u16()?, 258);
    /// # Ok::<(), lastwords_bytes::Error>(())
    /// ```
    pub const NATIVE: Self = if cfg!(target_endian = "little") { Self::Little } else { Self::Big };

    /// Turns the bytes of a number that are in this order into little endian, or back.
    ///
    /// ```
    /// use lastwords_bytes::ByteOrder;
    ///
    /// assert_eq!(u16::from_le_bytes(ByteOrder::Big.little([1, 2])), 0x0102);
    /// assert_eq!(ByteOrder::Big.little(0x0102_u16.to_le_bytes()), [1, 2]);
    /// ```
    #[inline]
    #[must_use]
    pub fn little<const N: usize>(self, mut bytes: [u8; N]) -> [u8; N] {
        if self == Self::Big {
            bytes.reverse();
        }
        bytes
    }
}

/// Reads fields in order from untrusted bytes.
///
/// Offsets in errors count from the start of the outermost reader, so that the place can be found
/// in the file.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    what: &'a str,
    bytes: &'a [u8],
    base: u64,
    at: usize,
    order: ByteOrder,
}

macro_rules! integers {
    ($($name:ident, $at:ident, $type:ty, $size:literal, $text:literal;)*) => {$(
        #[doc = concat!("The next ", $text, ".")]
        ///
        /// # Errors
        /// Fewer bytes are left; the reader does not move.
        #[inline]
        pub fn $name(&mut self) -> Result<$type, Error> {
            let value = self.$at(self.at)?;
            self.at = self.at.saturating_add($size);
            Ok(value)
        }

        #[doc = concat!("The ", $text, " at an offset of this reader; it does not move.")]
        ///
        /// # Errors
        /// The bytes end before the end of the number.
        #[inline]
        pub fn $at(&self, offset: usize) -> Result<$type, Error> {
            match self.bytes.get(offset..).and_then(|b| b.first_chunk::<$size>()) {
                Some(raw) => Ok(<$type>::from_le_bytes(self.order.little(*raw))),
                None => Err(self.short(offset, $text)),
            }
        }
    )*};
}

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes`, which are called `what` in errors.
    #[must_use]
    pub fn new(what: &'a str, bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { what, bytes, base: 0, at: 0, order }
    }

    /// Sets the offset of the first byte in the file or structure, for errors.
    #[must_use]
    pub fn based(mut self, base: u64) -> Self {
        self.base = base;
        self
    }

    integers! {
        u8, u8_at, u8, 1, "u8";
        u16, u16_at, u16, 2, "u16";
        u32, u32_at, u32, 4, "u32";
        u64, u64_at, u64, 8, "u64";
        i16, i16_at, i16, 2, "i16";
        i32, i32_at, i32, 4, "i32";
        i64, i64_at, i64, 8, "i64";
    }

    /// Returns the next `len` bytes.
    ///
    /// # Errors
    /// Fewer bytes are left; the reader does not move.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let taken = self.bytes_at(self.at, len)?;
        self.at = self.at.saturating_add(len);
        Ok(taken)
    }

    /// Returns `len` bytes at an offset in this reader, which does not move.
    ///
    /// # Errors
    /// The bytes end too early.
    pub fn bytes_at(&self, offset: usize, len: usize) -> Result<&'a [u8], Error> {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        rest.get(..len).ok_or_else(|| self.short(offset, &format!("{len} bytes")))
    }

    /// Returns `N` bytes at an offset in this reader, which does not move.
    ///
    /// # Errors
    /// The bytes end too early.
    pub fn array_at<const N: usize>(&self, offset: usize) -> Result<[u8; N], Error> {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        rest.first_chunk::<N>().copied().ok_or_else(|| self.short(offset, &format!("{N} bytes")))
    }

    /// Splits off a reader of the next `len` bytes and skips them here.
    ///
    /// # Errors
    /// Fewer bytes are left.
    pub fn sub(&mut self, len: usize) -> Result<Reader<'a>, Error> {
        let base = self.offset();
        let bytes = self.take(len)?;
        Ok(Reader { what: self.what, bytes, base, at: 0, order: self.order })
    }

    /// Text in a field of fixed size, up to the first NUL or the end; invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// The bytes end too early.
    pub fn text_at(&self, offset: usize, len: usize) -> Result<String, Error> {
        let raw = self.bytes_at(offset, len)?;
        let text = raw.split(|b| *b == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Skips `len` bytes.
    ///
    /// # Errors
    /// Fewer bytes are left.
    pub fn skip(&mut self, len: usize) -> Result<(), Error> {
        self.take(len).map(drop)
    }

    /// Skips to a multiple of `align`, counted in this reader, or to the end.
    pub fn align(&mut self, align: usize) {
        let next = self.at.checked_next_multiple_of(align).unwrap_or(self.bytes.len());
        self.at = next.min(self.bytes.len());
    }

    /// Error at the reader's offset: `value` was found there.
    #[must_use]
    pub fn unexpected(&self, value: u64, expected: &str) -> Error {
        Error::value(self.what, self.offset(), value, expected)
    }

    /// Current offset, counted from the start of the outermost reader.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.base.saturating_add(u64::try_from(self.at).unwrap_or(u64::MAX))
    }

    /// Current offset, counted from the start of this reader.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Number of bytes left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Number of bytes in total.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if the reader has no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Name of the bytes in errors.
    #[must_use]
    pub fn what(&self) -> &'a str {
        self.what
    }

    /// Byte order of integers.
    #[must_use]
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    #[cold]
    fn short(&self, offset: usize, expected: &str) -> Error {
        let to_u64 = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let left = to_u64(self.bytes.len().saturating_sub(offset));
        Error::short(self.what, self.base.saturating_add(to_u64(offset)), left, expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_are_located_in_the_outermost() {
        let bytes = [1u8, 2, 3, 4, 5, 6];
        let mut reader = Reader::new("f", &bytes, ByteOrder::Big).based(0x100);
        assert_eq!(reader.u16().unwrap(), 0x0102);
        let mut sub = reader.sub(3).unwrap();
        assert_eq!(sub.u16().unwrap(), 0x0304);
        let error = sub.u16().unwrap_err();
        assert_eq!(error.to_string(), "f: offset 0x104: 1 bytes are left, expected u16");
        assert_eq!(sub.left(), 1);
        assert_eq!(reader.left(), 1);
        assert_eq!(reader.sub(2).unwrap_err().kind, crate::ErrorKind::Short);
    }

    proptest! {
        #[test]
        fn never_leaves_the_parent(bytes in proptest::collection::vec(any::<u8>(), 0..64), ops in proptest::collection::vec((0u8..6, 0usize..80), 0..32)) {
            let mut reader = Reader::new("p", &bytes, ByteOrder::Little);
            for (op, n) in ops {
                let before = reader.left();
                let outcome = match op {
                    0 => reader.take(n).map(|t| { assert_eq!(t.len(), n); n }),
                    1 => reader.sub(n).map(|s| { assert_eq!(s.len(), n); n }),
                    2 => reader.u64().map(|_| 8),
                    3 => reader.u8().map(|_| 1),
                    4 => { reader.align(n); Ok(before - reader.left()) }
                    _ => reader.u64_at(n).map(|_| 0),
                };
                match outcome {
                    Ok(taken) => prop_assert_eq!(reader.left(), before - taken),
                    Err(error) => {
                        prop_assert_eq!(reader.left(), before);
                        prop_assert!(error.offset <= 160);
                    }
                }
            }
        }
    }
}
