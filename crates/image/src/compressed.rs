//! Decompresses cores that systemd-coredump compressed with zstd, to an unlinked temporary file
//! without zero pages.

use crate::file::Backing;
use crate::{Progress, Watch};
use lastwords_bytes::{Budget, Error};
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The first bytes of a zstd frame (RFC 8878, 3.1.1).
pub(crate) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

const CHUNK: usize = 1 << 20;
const PAGE: usize = 4096;
/// Largest window of a frame: 128 MiB, the default of the zstd tool.
const WINDOW_LOG_MAX: u32 = 27;

/// Weights of output bytes for the budget. Zero pages cost little and compress to almost nothing;
/// other pages compress to about a tenth.
const ZEROES: u64 = 64;
const DATA: u64 = 2;

/// Decompresses `source`, and admits the bytes that are not zero to the budget. If the data are
/// damaged or end early, the part before is kept and `notes` has the error.
pub(crate) fn decompress(
    source: &Backing,
    budget: &Budget,
    watch: Watch<'_>,
    notes: &mut Vec<String>,
) -> Result<Backing, Error> {
    let name = source.name.to_string();
    let io = |e: std::io::Error| Error::io(&name, 0, &e);
    let (out, folder) = temporary_file()?;
    let counted = Counted { file: &source.file, at: 0, done: std::cell::Cell::new(0) };
    let mut decoder = zstd::Decoder::new(BufReader::with_capacity(CHUNK, &counted)).map_err(io)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(io)?;
    let mut chunk = vec![0u8; CHUNK];
    let (mut len, mut data) = (0u64, 0u64);
    loop {
        let got = match decoder.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) => {
                notes.push(format!(
                    "{name}: decompression stops after {len} bytes: {e}; the rest is missing"
                ));
                break;
            }
        };
        let bytes = chunk.get(..got).unwrap_or_default();
        let written = write_sparse(&out, bytes, len)
            .map_err(|e| Error::io(&folder.display().to_string(), len, &e))?;
        budget.bytes(
            &name,
            written.saturating_mul(DATA).saturating_add((got as u64).div_ceil(ZEROES)),
        )?;
        data = data.saturating_add(written);
        len = len.saturating_add(got as u64);
        watch(Progress {
            what: "decompressing",
            done: counted.done.get(),
            total: Some(source.len),
        });
    }
    out.set_len(len).map_err(io)?;
    budget.admit(data);
    Backing::from_file(out, &name)
}

/// Decompresses the first bytes of `source`, at most `most`, to a file; damage ends the output.
pub(crate) fn head(source: &Backing, most: usize) -> Result<Backing, Error> {
    let name = source.name.to_string();
    let io = |e: std::io::Error| Error::io(&name, 0, &e);
    let counted = Counted { file: &source.file, at: 0, done: std::cell::Cell::new(0) };
    let mut decoder = zstd::Decoder::new(BufReader::with_capacity(CHUNK, &counted)).map_err(io)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(io)?;
    let mut bytes = Vec::new();
    let _ = decoder.take(most as u64).read_to_end(&mut bytes);
    let (out, _) = temporary_file()?;
    out.write_all_at(&bytes, 0).map_err(io)?;
    Backing::from_file(out, &name)
}

/// Writes all pages except zero pages; returns the number of bytes written.
fn write_sparse(out: &File, bytes: &[u8], at: u64) -> std::io::Result<u64> {
    let (mut offset, mut written) = (at, 0u64);
    for page in bytes.chunks(PAGE) {
        if page.iter().any(|b| *b != 0) {
            out.write_all_at(page, offset)?;
            written = written.saturating_add(page.len() as u64);
        }
        offset = offset.saturating_add(page.len() as u64);
    }
    Ok(written)
}

/// A large temporary file, and its folder.
fn temporary_file() -> Result<(File, PathBuf), Error> {
    let folder = temporary_folder();
    match tempfile::tempfile_in(&folder) {
        Ok(file) => Ok((file, folder)),
        Err(error) => Err(Error::io(&folder.display().to_string(), 0, &error)),
    }
}

/// Folder for large temporary files: `$TMPDIR`, else `/var/tmp`, which unlike `/tmp` is not in
/// memory.
fn temporary_folder() -> PathBuf {
    match std::env::var_os("TMPDIR") {
        Some(folder) => folder.into(),
        None if Path::new("/var/tmp").is_dir() => "/var/tmp".into(),
        None => std::env::temp_dir(),
    }
}

/// Reads a file sequentially by offset and counts the bytes.
struct Counted<'a> {
    file: &'a File,
    at: u64,
    done: std::cell::Cell<u64>,
}

impl Read for &Counted<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let done = self.done.get();
        let got = self.file.read_at(buf, self.at.saturating_add(done))?;
        self.done.set(done.saturating_add(got as u64));
        Ok(got)
    }
}
