//! Decompresses pages.

use super::header::Descriptor;
use super::lzo;
use std::sync::{Mutex, PoisonError};

/// Compression in the `flags` of a page.
const ZLIB: u32 = 1;
const LZO: u32 = 2;
const SNAPPY: u32 = 4;
const ZSTD: u32 = 0x20;
/// Mask of the compression flags; other bits of `flags` do not affect the page's bytes.
const ALL: u32 = ZLIB | LZO | SNAPPY | ZSTD;

/// Decompressors for reuse: their state is larger than a page.
#[derive(Default)]
pub(super) struct Codecs(Mutex<Vec<Codec>>);

impl std::fmt::Debug for Codecs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Codecs")
    }
}

struct Codec {
    zlib: flate2::Decompress,
    snappy: snap::raw::Decoder,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Codecs {
    /// Decompresses `stored` into `page`; none if the result is not exactly a page.
    pub(super) fn decompress(
        &self,
        descriptor: &Descriptor,
        stored: &[u8],
        page: &mut [u8],
    ) -> Option<()> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = lock().pop();
        let mut codec = spare.unwrap_or_else(Codec::new);
        let done = codec.decompress(descriptor.flags & ALL, stored, page);
        lock().push(codec);
        done
    }
}

impl Codec {
    fn new() -> Self {
        Self {
            zlib: flate2::Decompress::new(true),
            snappy: snap::raw::Decoder::new(),
            zstd: zstd::bulk::Decompressor::new().ok(),
        }
    }

    fn decompress(&mut self, kind: u32, stored: &[u8], page: &mut [u8]) -> Option<()> {
        let done = match kind {
            0 => {
                page.copy_from_slice(stored.get(..page.len())?);
                page.len()
            }
            ZLIB => {
                self.zlib.reset(true);
                let status =
                    self.zlib.decompress(stored, page, flate2::FlushDecompress::Finish).ok()?;
                if status != flate2::Status::StreamEnd {
                    return None;
                }
                usize::try_from(self.zlib.total_out()).ok()?
            }
            LZO => return lzo::decompress(stored, page),
            SNAPPY => {
                if snap::raw::decompress_len(stored).ok()? != page.len() {
                    return None;
                }
                self.snappy.decompress(stored, page).ok()?
            }
            ZSTD => self.zstd.as_mut()?.decompress_to_buffer(stored, page).ok()?,
            _ => return None,
        };
        (done == page.len()).then_some(())
    }
}
