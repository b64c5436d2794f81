//! Reads a file at any position within its bounds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use lastwords_bytes::ByteOrder;
use lastwords_bytes::{Budget, Error, Limits};

/// Most bytes of a name in a file.
const LONGEST_NAME: usize = 1 << 16;
/// Most bytes that are read into memory at once.
pub(super) const MOST: u64 = 1 << 30;

/// Limits for the bytes of descriptions that are read or uncompressed: for each byte of the file,
/// and for any file in addition. Descriptions may be in several positions, and are read more than
/// once.
const READS: u64 = 4;
const READS_OF_ANY: u64 = 1 << 26;
/// Limits for the bytes of uncompressed sub-buffers: for each byte of the file, and for any file in
/// addition. Compression of real traces saves nine of ten bytes.
const UNPACKED: u64 = 64;
const UNPACKED_OF_ANY: u64 = 1 << 26;
/// Bytes of a file for which one entry in tables of CPUs is allowed: each entry takes at least 16
/// bytes.
const ENTRY: u64 = 16;
const ENTRIES_OF_ANY: u64 = 1 << 16;

/// A file, its length and its integers' byte order.
#[derive(Clone)]
pub(super) struct Source {
    file: Arc<File>,
    pub(super) length: u64,
    pub(super) order: ByteOrder,
    /// The caller's limit on all work.
    budget: Arc<Budget>,
    /// The limit on the bytes and entries of descriptions.
    described: Arc<Budget>,
    /// The limit on the bytes of compressed sub-buffers.
    unpacked: Arc<Budget>,
}

/// A position in a [`Source`], which advances with each read.
#[derive(Clone)]
pub(super) struct SourceReader<'a> {
    pub(super) source: &'a Source,
    pub(super) offset: u64,
}

pub(super) const WHAT: &str = "trace.dat";

fn io(offset: u64, error: &std::io::Error) -> Error {
    Error::io(WHAT, offset, error)
}

impl Source {
    pub(super) fn open(path: &Path, budget: &Arc<Budget>) -> Result<Self, Error> {
        let file = File::open(path).map_err(|e| io(0, &e))?;
        let data = file.metadata().map_err(|e| io(0, &e))?;
        let (length, stored) = (data.len(), lastwords_bytes::stored(&data));
        budget.admit(stored);
        let described = budget.part(Limits {
            bytes: stored.saturating_mul(READS).saturating_add(READS_OF_ANY),
            steps: (stored / ENTRY).saturating_add(ENTRIES_OF_ANY),
            ..Limits::default()
        });
        let unpacked = budget.part(Limits {
            bytes: length.saturating_mul(UNPACKED).saturating_add(UNPACKED_OF_ANY),
            ..Limits::default()
        });
        let (budget, described, unpacked) =
            (Arc::clone(budget), Arc::new(described), Arc::new(unpacked));
        Ok(Self {
            file: Arc::new(file),
            length,
            order: ByteOrder::Little,
            budget,
            described,
            unpacked,
        })
    }

    /// Spends `n` bytes of the limit on descriptions.
    pub(super) fn described(&self, n: u64) -> Result<(), Error> {
        self.described.bytes(WHAT, n)?;
        self.budget.bytes(WHAT, n)
    }

    /// Spends `n` entries of tables of CPUs.
    pub(super) fn entries(&self, n: u64) -> Result<(), Error> {
        self.described.steps(WHAT, n)?;
        self.budget.steps(WHAT, n)
    }

    /// Spends `n` bytes of the limit on uncompressed sub-buffers.
    pub(super) fn unpacked(&self, n: u64) -> Result<(), Error> {
        self.unpacked.bytes(WHAT, n)?;
        self.budget.bytes(WHAT, n)
    }

    /// Returns a position in the file.
    pub(super) fn at(&self, offset: u64) -> SourceReader<'_> {
        SourceReader { source: self, offset }
    }

    /// Reads `size` bytes, or fewer at the end of the file.
    pub(super) fn read(&self, offset: u64, size: usize, into: &mut Vec<u8>) -> Result<(), Error> {
        into.clear();
        let there =
            usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX).min(size);
        into.resize(there, 0);
        self.file.read_exact_at(into, offset).map_err(|e| io(offset, &e))
    }
}

impl SourceReader<'_> {
    /// Returns an error at this position.
    pub(super) fn unexpected(&self, value: u64, expected: &str) -> Error {
        Error::value(WHAT, self.offset, value, expected)
    }

    /// Reads the next `size` bytes.
    pub(super) fn bytes(&mut self, size: u64) -> Result<Vec<u8>, Error> {
        let left = self.source.length.saturating_sub(self.offset);
        if size > left {
            return Err(Error::short(WHAT, self.offset, left, &format!("{size} bytes")));
        }
        let Some(length) = usize::try_from(size).ok().filter(|_| size <= MOST) else {
            return Err(Error::budget(WHAT, "bytes at once", size));
        };
        self.source.described(size)?;
        let mut out = Vec::new();
        self.source.read(self.offset, length, &mut out)?;
        self.offset = self.offset.saturating_add(size);
        Ok(out)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.bytes(N as u64)?;
        bytes.try_into().map_err(|_| self.unexpected(0, "bytes"))
    }

    /// Returns the bytes of a number in little endian.
    fn number<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.fixed().map(|raw| self.source.order.little(raw))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        self.fixed::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Error> {
        self.number().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.number().map(u32::from_le_bytes)
    }

    /// Reads two numbers at once.
    pub(super) fn two_u32(&mut self) -> Result<[u32; 2], Error> {
        let [a, b, c, d, e, f, g, h] = self.fixed()?;
        let order = self.source.order;
        Ok([[a, b, c, d], [e, f, g, h]].map(|raw| u32::from_le_bytes(order.little(raw))))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.number().map(u64::from_le_bytes)
    }

    /// Reads text up to a NUL and skips the NUL.
    pub(super) fn string(&mut self) -> Result<String, Error> {
        let mut buffer = Vec::new();
        self.source.read(self.offset, LONGEST_NAME, &mut buffer)?;
        let Some(end) = buffer.iter().position(|b| *b == 0) else {
            return Err(Error::short(
                WHAT,
                self.offset,
                buffer.len() as u64,
                "a text that ends with NUL",
            ));
        };
        self.offset = self.offset.saturating_add(end as u64).saturating_add(1);
        Ok(String::from_utf8_lossy(buffer.get(..end).unwrap_or_default()).into_owned())
    }
}
