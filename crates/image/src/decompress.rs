//! Decompresses small files as they are read: kernel images, packages, bundles. The budget pays for
//! the output.

use lastwords_bytes::Budget;
use std::io::{self, BufReader, Read};

/// The largest window of an xz or zstd stream. Kernels and packages are compressed with windows of
/// up to 128 MiB.
const WINDOW_LOG_MAX: u32 = 27;
/// The largest block of the lz4 format that the kernel uses.
const LZ4_BLOCK_MAX: usize = 8 << 20;
/// The first bytes of the lz4 format that the kernel uses (`lz4 -l`).
const LZ4: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];

/// The compression formats, with the first bytes of each.
const FORMATS: [(&[u8], Format); 4] = [
    (&[0x1f, 0x8b], Format::Gzip),
    (b"\xfd7zXZ\0", Format::Xz),
    (&super::compressed::MAGIC, Format::Zstd),
    (&LZ4, Format::Lz4),
];

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Gzip,
    Xz,
    Zstd,
    Lz4,
}

fn format(head: &[u8]) -> Option<Format> {
    FORMATS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, format)| *format)
}

/// Returns a reader of the decompressed bytes of `input`, whose first bytes tell the format: gzip,
/// xz, zstd or lz4. Other bytes are returned as they are. Each byte that is read costs a byte of
/// the budget.
///
/// # Errors
/// The input cannot be read, or its header is damaged.
pub fn reader<'a>(
    what: &'a str,
    input: impl Read + 'a,
    budget: &'a Budget,
) -> io::Result<Box<dyn Read + 'a>> {
    let mut input = BufReader::new(input);
    let mut head = Vec::new();
    input.by_ref().take(6).read_to_end(&mut head)?;
    let format = format(&head);
    let input = io::Cursor::new(head).chain(input);
    Ok(match format {
        None => Box::new(Metered { inner: input, what, budget }),
        Some(Format::Gzip) => {
            Box::new(Metered { inner: flate2::read::GzDecoder::new(input), what, budget })
        }
        Some(Format::Xz) => {
            let inner = lzma_rust2::XzReader::new_mem_limit(
                input,
                false,
                (1 << (WINDOW_LOG_MAX - 10)) + 1024,
            );
            Box::new(Metered { inner, what, budget })
        }
        Some(Format::Zstd) => {
            let mut inner = zstd::Decoder::with_buffer(BufReader::new(input))?.single_frame();
            inner.window_log_max(WINDOW_LOG_MAX)?;
            Box::new(Metered { inner, what, budget })
        }
        Some(Format::Lz4) => {
            let inner = Lz4 { input, block: Vec::new(), at: 0, is_begun: false };
            Box::new(Metered { inner, what, budget })
        }
    })
}

/// A reader whose bytes cost a budget.
struct Metered<'a, R> {
    inner: R,
    what: &'a str,
    budget: &'a Budget,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buf)?;
        self.budget.bytes(self.what, got as u64).map_err(io::Error::other)?;
        Ok(got)
    }
}

/// Decompresses the lz4 format of the kernel: a magic word, then blocks. Each block has its
/// compressed length before it and decompresses to 8 MiB; the last may be shorter. The kernel's
/// build appends the decompressed length of the whole.
struct Lz4<R> {
    input: R,
    /// The decompressed bytes of the current block, and how many of them were returned.
    block: Vec<u8>,
    at: usize,
    is_begun: bool,
}

impl<R: Read> Lz4<R> {
    /// Decompresses the next block. Returns false after the last.
    fn next(&mut self) -> io::Result<bool> {
        let mut word = [0; 4];
        if !self.is_begun {
            self.input.read_exact(&mut word)?;
            self.is_begun = true;
        }
        // A block that is not full is the last: the appended length follows it.
        if !self.block.is_empty() && self.block.len() < LZ4_BLOCK_MAX {
            return Ok(false);
        }
        let mut head = Vec::new();
        self.input.by_ref().take(4).read_to_end(&mut head)?;
        let Some(len) = head.first_chunk::<4>().map(|word| u32::from_le_bytes(*word) as usize)
        else {
            return Ok(false);
        };
        let mut packed = Vec::new();
        self.input.by_ref().take(len as u64).read_to_end(&mut packed)?;
        if packed.len() < len {
            // The appended length after a last block that is full.
            return if packed.is_empty() {
                Ok(false)
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        self.block.resize(LZ4_BLOCK_MAX, 0);
        let got =
            lz4_flex::block::decompress_into(&packed, &mut self.block).map_err(io::Error::other)?;
        self.block.truncate(got);
        self.at = 0;
        Ok(got > 0)
    }
}

impl<R: Read> Read for Lz4<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.block.len() && !self.next()? {
            return Ok(0);
        }
        let mut rest = self.block.get(self.at..).unwrap_or_default();
        let got = rest.read(buf)?;
        self.at = self.at.saturating_add(got);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_bytes::Limits;
    use std::io::Write as _;

    fn unpacked(bytes: &[u8], budget: &Budget) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        reader("test", bytes, budget)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn lz4(plain: &[u8]) -> Vec<u8> {
        let mut packed = LZ4.to_vec();
        for block in plain.chunks(LZ4_BLOCK_MAX) {
            // Only literals: a token of length 15 and more, the rest of the length, the bytes.
            let mut bytes = vec![0xf0];
            let rest = block.len() - 15;
            bytes.extend(std::iter::repeat_n(255, rest / 255));
            bytes.push((rest % 255) as u8);
            bytes.extend_from_slice(block);
            packed.extend((bytes.len() as u32).to_le_bytes());
            packed.extend(bytes);
        }
        packed.extend((plain.len() as u32).to_le_bytes());
        packed
    }

    #[test]
    fn each_format_gives_the_same_bytes() {
        let plain: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        let zstd = zstd::encode_all(plain.as_slice(), 3).unwrap();
        let appended: Vec<u8> =
            zstd.iter().copied().chain((plain.len() as u32).to_le_bytes()).collect();
        for packed in [plain.clone(), gzip.finish().unwrap(), zstd, appended, lz4(&plain)] {
            assert_eq!(unpacked(&packed, &Budget::default()).unwrap(), plain);
        }
        let two_blocks: Vec<u8> = plain.iter().copied().cycle().take(LZ4_BLOCK_MAX + 77).collect();
        assert!(unpacked(&lz4(&two_blocks), &Budget::default()).unwrap() == two_blocks);
    }

    #[test]
    fn the_output_costs_the_budget() {
        let packed = zstd::encode_all(vec![0; 1 << 20].as_slice(), 3).unwrap();
        let small = Budget::new(Limits { bytes: 1 << 16, ..Limits::default() });
        assert!(unpacked(&packed, &small).unwrap_err().to_string().contains("exceed the limit"));
    }
}
