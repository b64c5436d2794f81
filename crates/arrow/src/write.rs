//! Writes record batches as Parquet files and as Arrow's files and streams.

use crate::Error;
use crate::schema::{VERSION, VERSION_KEY};
use arrow_array::RecordBatch;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of a row group. Readers leave out groups by their statistics, and a writer holds one in
/// memory.
const GROUP_ROWS: usize = 256 << 10;
/// The level of zstd.
const LEVEL: i32 = 3;
/// Columns whose values grow or shrink slowly: differences take least.
const DELTA: [&str; 3] = ["ts", "time", "before_end_ns"];

/// A format of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Parquet.
    Parquet,
    /// A file of Arrow.
    ArrowFile,
    /// A stream of Arrow.
    ArrowStream,
}

/// Writes record batches of one schema.
pub struct Writer {
    format: Encoder,
    buffer: Buffer,
    bytes: u64,
}

enum Encoder {
    Parquet(Box<ArrowWriter<Buffer>>),
    File(Box<FileWriter<Buffer>>),
    Stream(Box<StreamWriter<Buffer>>),
}

/// Encoded bytes that are not yet written: at most a row group. Encoders want to send their output
/// between threads, which the lock of stdout cannot be.
#[derive(Debug, Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    /// Writes the bytes to `out`, and begins anew in the same memory. Returns their number.
    fn drain(&self, out: &mut dyn Write) -> io::Result<u64> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(&bytes)?;
        let count = bytes.len() as u64;
        bytes.clear();
        Ok(count)
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Writer {
    /// Prepares to write.
    ///
    /// # Errors
    /// The format cannot hold the schema.
    pub fn new(format: Format, schema: &SchemaRef) -> Result<Self, Error> {
        let buffer = Buffer::default();
        let out = buffer.clone();
        let format = match format {
            Format::Parquet => {
                let schema = SchemaRef::clone(schema);
                let writer = ArrowWriter::try_new(out, schema, Some(properties()?))?;
                Encoder::Parquet(Box::new(writer))
            }
            Format::ArrowFile => Encoder::File(Box::new(FileWriter::try_new(out, schema)?)),
            Format::ArrowStream => Encoder::Stream(Box::new(StreamWriter::try_new(out, schema)?)),
        };
        Ok(Self { format, buffer, bytes: 0 })
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// `out` cannot be written ([`Error::Output`]); the batch has another schema.
    pub fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), Error> {
        match &mut self.format {
            Encoder::Parquet(writer) => writer.write(batch)?,
            Encoder::File(writer) => writer.write(batch)?,
            Encoder::Stream(writer) => writer.write(batch)?,
        }
        self.drain(out)
    }

    /// Writes what is left. Returns the number of bytes that were written.
    ///
    /// # Errors
    /// `out` cannot be written ([`Error::Output`]).
    pub fn finish(mut self, out: &mut dyn Write) -> Result<u64, Error> {
        match &mut self.format {
            Encoder::Parquet(writer) => writer.finish().map(drop)?,
            Encoder::File(writer) => writer.finish()?,
            Encoder::Stream(writer) => writer.finish()?,
        }
        // A Parquet writer buffers what it writes.
        if let Encoder::Parquet(writer) = &mut self.format {
            writer.sync().map_err(Error::Output)?;
        }
        self.drain(out)?;
        Ok(self.bytes)
    }

    fn drain(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        let count = self.buffer.drain(out).map_err(Error::Output)?;
        self.bytes = self.bytes.saturating_add(count);
        Ok(())
    }
}

fn properties() -> Result<WriterProperties, Error> {
    let version = KeyValue::new(VERSION_KEY.to_owned(), VERSION.to_string());
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("lastwords ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_key_value_metadata(Some(vec![version]));
    for column in DELTA {
        let path = ColumnPath::from(column);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties.build())
}
