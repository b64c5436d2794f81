//! Writes index files as LTTng has them: the folder `index` has a file for each stream's. They show
//! which streams and packets a folder had.

use crate::error::{Error, Result};
use crate::{create_file, create_folder};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The magic of an index file (lttng-tools, `ctf-index.h`). All numbers of the file are big-endian.
const MAGIC: u32 = 0xc1f1_dcc1;
/// The version of the index file.
const MAJOR: u32 = 1;
const MINOR: u32 = 1;
/// Size of an entry of the index file, in bytes.
const ENTRY: u32 = 72;

/// The facts about one packet that the index file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// Length of the packet, in bits.
    pub packet_bits: u64,
    /// Length of the packet's header, context and events, in bits.
    pub content_bits: u64,
    /// Clock at its beginning, ticks.
    pub begin: u64,
    /// Clock at its end, ticks.
    pub end: u64,
    /// Number of events that the stream has lost until the packet's end.
    pub discarded: u64,
    /// Id of the stream class.
    pub stream_id: u64,
    /// Id of the stream in its class.
    pub instance: u64,
    /// Number of the packet in its stream.
    pub sequence: u64,
}

/// Writes the index of one stream's file.
#[derive(Debug)]
pub(super) struct IndexWriter {
    file: BufWriter<File>,
    path: PathBuf,
    offset: u64,
}

impl IndexWriter {
    /// Creates the index of the stream's file of this name in a trace's folder. Fails if the file
    /// exists already or cannot be created.
    pub(super) fn new(folder: &Path, name: &str) -> Result<Self> {
        let indexes = folder.join("index");
        // Another thread may make the folder, too.
        if let Err(error) = create_folder(&indexes)
            && !indexes.is_dir()
        {
            return Err(error);
        }
        let path = indexes.join(format!("{name}.idx"));
        let mut file = BufWriter::new(create_file(&path)?);
        for word in [MAGIC, MAJOR, MINOR, ENTRY] {
            file.write_all(&word.to_be_bytes()).map_err(Error::io(&path, "write"))?;
        }
        Ok(Self { file, path, offset: 0 })
    }

    /// Appends a packet that has this many bytes in the stream's file.
    pub(super) fn packet(&mut self, bytes: u64, entry: &Entry) -> Result<()> {
        for word in [
            self.offset,
            entry.packet_bits,
            entry.content_bits,
            entry.begin,
            entry.end,
            entry.discarded,
            entry.stream_id,
            entry.instance,
            entry.sequence,
        ] {
            self.file.write_all(&word.to_be_bytes()).map_err(Error::io(&self.path, "write"))?;
        }
        self.offset = self.offset.saturating_add(bytes);
        Ok(())
    }

    /// Completes the file and returns the bytes of all packets.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.file.flush().map_err(Error::io(&self.path, "write"))?;
        Ok(self.offset)
    }
}
