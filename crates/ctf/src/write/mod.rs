//! CTF folders: a metadata file and a data file for each stream.
//!
//! Data files are the same for both versions. A packet whose verdict is committed is copied as it stood in memory, its
//! header and context rewritten from [`PacketInfo`] and its padding cut; other packets are looked through first, so that
//! what a reader meets is always a trace without errors.
//!
//! [`PacketInfo`]: lastwords_trace::source::PacketInfo

pub mod lttng;
pub mod packets;

use crate::error::{Error, Result};
use crate::metadata::{Version, emit};
use crate::read::Watch;
use crate::session::class::class;
use crate::{Totals, create_file, create_folder};
use lastwords_trace::evidence::Evidence;
use lastwords_trace::parallel;
use lastwords_trace::schema::{EnvValue, Schema};
use lastwords_trace::source::Source;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// How to write.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Which CTF.
    pub version: Version,
    /// Count events: decodes committed packets too.
    pub count_events: bool,
}

/// Writes `source` as a CTF folder, which must not exist, the data files as many at a time as there are CPUs. `watch` is told
/// of the bytes of each packet.
///
/// # Errors
/// The folder exists; a file cannot be written; a field class that CTF cannot express.
pub fn write(source: &dyn Source, folder: &Path, options: Options, watch: Watch<'_>) -> Result<Totals> {
    let metadata = metadata(source.schema(), source.evidence(), options.version)?;
    create_folder(folder)?;
    let mut totals = Totals::default();
    let streams: Vec<usize> = (0..source.streams().len()).collect();
    let copy = |_: usize, stream: &usize| packets::stream(source, *stream, folder, options, watch);
    for stream in parallel::map(&streams, parallel::cpus(), copy) {
        totals.add(&stream?);
    }
    let path = folder.join("metadata");
    let mut file = create_file(&path)?;
    file.write_all(metadata.as_bytes()).map_err(Error::io(&path, "write"))?;
    totals.bytes = totals.bytes.saturating_add(metadata.len() as u64);
    Ok(totals)
}

/// The text of the metadata file.
///
/// # Errors
/// A field class that CTF cannot express.
pub fn metadata(schema: &Schema, evidence: &Evidence, version: Version) -> Result<String> {
    emit(&class(schema, environment(schema, evidence), version)?, version)
}

/// The schema's properties, with the tracer's name and the losses where it has not its own.
fn environment(schema: &Schema, evidence: &Evidence) -> BTreeMap<String, EnvValue> {
    let number = |text: &str| EnvValue::Integer(text.parse().unwrap_or(0));
    let lost = evidence.lost_events();
    let mut env = schema.env.clone();
    for (key, value) in [
        ("tracer_name", EnvValue::Text("lastwords".to_owned())),
        ("tracer_major", number(env!("CARGO_PKG_VERSION_MAJOR"))),
        ("tracer_minor", number(env!("CARGO_PKG_VERSION_MINOR"))),
        ("tracer_patchlevel", number(env!("CARGO_PKG_VERSION_PATCH"))),
        ("trace_name", EnvValue::Text(schema.name.clone())),
        ("lost_events", EnvValue::Integer(i64::try_from(lost).unwrap_or(i64::MAX))),
    ] {
        env.entry(key.to_owned()).or_insert(value);
    }
    if evidence.has_losses() {
        // How many events they are may not be known: the number above tells of those that are.
        env.entry("losses".to_owned()).or_insert(EnvValue::Integer(1));
    }
    env
}
