//! A session of LTTng that was recovered, as LTTng itself would have written it: packets as they
//! are, metadata in packets, index files.

use super::index::IndexWriter;
use crate::error::{Error, Result};
use crate::{create_file, create_folder};
use lastwords_bytes::ByteOrder;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The magic of every packet of metadata (CTF 1.8.3, 7.1).
const METADATA_MAGIC: u32 = 0x75d1_1d57;
/// Size of a packet of metadata as LTTng makes them, in bytes.
const METADATA_PACKET: usize = 4096;
/// Size of the header of a packet of metadata, in bytes.
const METADATA_HEADER: usize = 37;

pub use super::index::Entry;

/// Creates a trace's folder and its missing parents below `base`, which must exist.
///
/// # Errors
/// The folder exists already, or cannot be created.
pub fn folder(base: &Path, below: &str) -> Result<PathBuf> {
    let mut path = base.to_path_buf();
    let parts: Vec<&str> =
        below.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let last = parts.len().saturating_sub(1);
    for (n, part) in parts.iter().enumerate() {
        path.push(part);
        if n == last || !path.is_dir() {
            create_folder(&path)?;
        }
    }
    Ok(path)
}

/// Writes the metadata file and returns its size in bytes. A text of CTF 1.8 is put into packets; a
/// JSON text sequence is written without packets.
///
/// # Errors
/// The file cannot be written.
pub fn metadata(folder: &Path, text: &[u8], uuid: &[u8; 16], order: ByteOrder) -> Result<u64> {
    let path = folder.join("metadata");
    let mut file = BufWriter::new(create_file(&path)?);
    let packets = match text.first() {
        Some(0x1e) => text.to_vec(),
        _ => metadata_packets(text, uuid, order),
    };
    file.write_all(&packets).map_err(Error::io(&path, "write"))?;
    file.flush().map_err(Error::io(&path, "write"))?;
    Ok(packets.len() as u64)
}

fn metadata_packets(text: &[u8], uuid: &[u8; 16], order: ByteOrder) -> Vec<u8> {
    let mut out = Vec::new();
    let number = |value: u32| order.little(value.to_le_bytes());
    // A packet of metadata is much smaller than 512 MiB.
    let bits = |bytes: usize| number(u32::try_from(bytes.saturating_mul(8)).unwrap_or(u32::MAX));
    for part in text.chunks(METADATA_PACKET - METADATA_HEADER) {
        let end = out.len().saturating_add(METADATA_PACKET);
        out.extend(number(METADATA_MAGIC));
        out.extend(uuid);
        // The checksum is 0: there is none.
        out.extend(number(0));
        out.extend(bits(METADATA_HEADER.saturating_add(part.len())));
        out.extend(bits(METADATA_PACKET));
        // The text is neither compressed nor encrypted nor checksummed; the version is 1.8.
        out.extend([0, 0, 0, 1, 8]);
        out.extend(part);
        out.resize(end, 0);
    }
    out
}

/// Writes one stream's file and its index.
#[derive(Debug)]
pub struct StreamWriter {
    data: BufWriter<File>,
    path: PathBuf,
    index: IndexWriter,
}

impl StreamWriter {
    /// Creates both files in a trace's folder.
    ///
    /// # Errors
    /// The files exist already or cannot be created.
    pub fn new(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(name);
        Ok(Self {
            data: BufWriter::new(create_file(&path)?),
            path,
            index: IndexWriter::new(folder, name)?,
        })
    }

    /// Appends a packet with all its bytes, padding included.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn packet(&mut self, bytes: &[u8], entry: &Entry) -> Result<()> {
        self.data.write_all(bytes).map_err(Error::io(&self.path, "write"))?;
        self.index.packet(bytes.len() as u64, entry)
    }

    /// Completes both files and returns the size of the stream's file in bytes.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn finish(mut self) -> Result<u64> {
        self.data.flush().map_err(Error::io(&self.path, "write"))?;
        self.index.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_in_packets() {
        let text = vec![b'x'; 4059 + 3];
        let packets = metadata_packets(&text, &[9; 16], ByteOrder::Little);
        assert_eq!(packets.len(), 2 * 4096);
        assert_eq!(packets[..4], [0x57, 0x1d, 0xd1, 0x75]);
        assert_eq!(packets[24..37], [0, 0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 1, 8]);
        let second = &packets[4096..];
        assert_eq!(second[24..28], (40u32 * 8).to_le_bytes());
        assert_eq!(second[37..42], *b"xxx\0\0");
    }

    #[test]
    fn folders_stay_below() {
        let base = std::env::temp_dir().join(format!("lastwords-lttng-{}", std::process::id()));
        std::fs::create_dir_all(&base).expect("a folder");
        let made = folder(&base, "../a/./b").expect("made");
        assert_eq!(made, base.join("a/b"));
        assert!(folder(&base, "a/b").is_err());
        let mut stream = StreamWriter::new(&made, "channel0_0").expect("files");
        stream.packet(&[1, 2, 3], &Entry { packet_bits: 24, ..Entry::default() }).expect("written");
        assert_eq!(stream.finish().expect("written"), 3);
        let index = std::fs::read(made.join("index/channel0_0.idx")).expect("the index");
        assert_eq!(index.len(), 16 + 72);
        assert_eq!(index[..4], [0xc1, 0xf1, 0xdc, 0xc1]);
        assert_eq!(index[31], 24);
        std::fs::remove_dir_all(&base).expect("removed");
    }
}
