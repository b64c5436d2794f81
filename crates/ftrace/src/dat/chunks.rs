//! Compressed data, in chunks of a few pages each.

use std::io::Read;

use lastwords_bytes::Error;

use super::reader::Source;

/// Most chunks of a CPU's data.
const MOST: u32 = 1 << 24;
/// Limits for the uncompressed size of one chunk: this many sub-buffers, or this many bytes if that
/// is more. trace-cmd makes chunks of ten sub-buffers.
const LARGEST: u32 = 16;
const LARGEST_OF_ANY: u32 = 1 << 20;

/// The compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    None,
    Zstd,
    Zlib,
}

impl Algorithm {
    /// Returns the algorithm with this name in the file, or `None` for an unknown name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "none" | "" => Some(Self::None),
            "zstd" => Some(Self::Zstd),
            "zlib" => Some(Self::Zlib),
            _ => None,
        }
    }

    /// Returns the largest number of bytes that one compressed byte can expand to.
    fn most(self) -> u64 {
        match self {
            Self::None => 1,
            // A block of 128 KiB takes four bytes if all its bytes are equal.
            Self::Zstd => 1 << 15,
            Self::Zlib => 1040,
        }
    }
}

/// The state of decompression, which is reused for every chunk.
#[derive(Default)]
pub(super) struct Unpacker {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Unpacker {
    /// Uncompresses `raw` and replaces the content of `out` by the result. Returns `None` if `raw`
    /// is damaged or does not expand to exactly `size` bytes.
    pub(super) fn unpack(
        &mut self,
        algorithm: Algorithm,
        raw: &[u8],
        size: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        out.clear();
        match algorithm {
            Algorithm::None => out.extend_from_slice(raw),
            Algorithm::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    None => self.zstd.insert(zstd::bulk::Decompressor::new().ok()?),
                };
                out.reserve(size);
                zstd.decompress_to_buffer(raw, out).ok()?;
            }
            Algorithm::Zlib => {
                flate2::read::ZlibDecoder::new(raw)
                    .take((size as u64).saturating_add(1))
                    .read_to_end(out)
                    .ok()?;
            }
        }
        (out.len() == size).then_some(())
    }
}

/// A chunk: its position in the file, and the range of the data that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) offset: u64,
    pub(super) compressed: u32,
    pub(super) start: u64,
    pub(super) size: u32,
}

/// The chunks of a CPU's data, in order.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    all: Vec<Chunk>,
}

impl Chunks {
    /// Reads the list of chunks at `offset .. offset + size`. Returns the chunks before the first
    /// invalid one, and the error of that one. `trace-cmd extract` does not include the four bytes
    /// of the chunk count in `size`.
    pub(super) fn read(
        source: &Source,
        algorithm: Algorithm,
        page_size: u32,
        (offset, size): (u64, u64),
    ) -> (Self, Option<Error>) {
        let mut chunks = Self::default();
        let largest = page_size.saturating_mul(LARGEST).max(LARGEST_OF_ANY);
        let wrong =
            if size < 4 { Ok(()) } else { chunks.list(source, algorithm, largest, (offset, size)) };
        (chunks, wrong.err())
    }

    fn list(
        &mut self,
        source: &Source,
        algorithm: Algorithm,
        largest: u32,
        (offset, size): (u64, u64),
    ) -> Result<(), Error> {
        let mut at = source.at(offset);
        let end = offset.saturating_add(size).saturating_add(4).min(source.length);
        let count = at.u32()?;
        if count > MOST {
            return Err(at.unexpected(u64::from(count), "a count of compressed pieces"));
        }
        let mut start = 0u64;
        for _ in 0..count {
            let [compressed, size] = at.two_u32()?;
            if size > largest || at.offset.saturating_add(u64::from(compressed)) > end {
                return Err(at.unexpected(
                    u64::from(compressed),
                    "a compressed piece that ends within its data",
                ));
            }
            if u64::from(size) > u64::from(compressed).saturating_mul(algorithm.most()) {
                let expected = format!("at most what {compressed} compressed bytes can be");
                return Err(at.unexpected(u64::from(size), &expected));
            }
            source.unpacked(u64::from(size))?;
            self.all.push(Chunk { offset: at.offset, compressed, start, size });
            at.offset = at.offset.saturating_add(u64::from(compressed));
            start = start.saturating_add(u64::from(size));
        }
        Ok(())
    }

    /// Returns the size of the uncompressed data in bytes.
    pub(super) fn size(&self) -> u64 {
        self.all.last().map_or(0, |c| c.start.saturating_add(u64::from(c.size)))
    }

    /// Returns the chunk that holds a byte of the data.
    pub(super) fn holding(&self, place: u64) -> Option<Chunk> {
        let behind = self.all.partition_point(|c| c.start <= place);
        let chunk = self.all.get(behind.checked_sub(1)?)?;
        (place < chunk.start.saturating_add(u64::from(chunk.size))).then_some(*chunk)
    }
}
