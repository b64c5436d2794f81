//! Writes CTF folders: a metadata file, and a data file with an index file for each stream.
//!
//! Data files are the same for both versions. A committed packet is copied as it was in memory,
//! except that its header and context are rewritten from [`PacketInfo`] and its padding is removed.
//! Packets with another verdict are checked first, so that readers always get a trace without
//! errors.
//!
//! [`PacketInfo`]: lastwords_trace::source::PacketInfo

mod index;
pub mod lttng;
pub mod packets;

use crate::error::{Error, Result};
use crate::metadata::{Version, emit};
use crate::output::empty_folder;
use crate::read::Watch;
use crate::session::class::class;
use crate::{Totals, create_file};
use lastwords_trace::evidence::Evidence;
use lastwords_trace::parallel;
use lastwords_trace::schema::{EnvValue, Schema};
use lastwords_trace::source::Source;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Writes `source` as a CTF folder of this version. The folder must not exist or must be empty. As
/// many data files as there are CPUs are written at a time. `watch` receives the number of bytes of
/// each packet.
///
/// # Errors
/// The folder is not empty, a file cannot be written, or CTF cannot express a field class.
pub fn write(
    source: &dyn Source,
    folder: &Path,
    version: Version,
    watch: Watch<'_>,
) -> Result<Totals> {
    let metadata = metadata(source.schema(), source.evidence(), version)?;
    empty_folder(folder)?;
    let mut totals = Totals::default();
    let streams: Vec<usize> = (0..source.streams().len()).collect();
    let copy = |_: usize, stream: &usize| packets::stream(source, *stream, folder, watch);
    for stream in parallel::map(&streams, parallel::cpus(), copy) {
        totals.add(&stream?);
    }
    let path = folder.join("metadata");
    let mut file = create_file(&path)?;
    file.write_all(metadata.as_bytes()).map_err(Error::io(&path, "write"))?;
    totals.bytes = totals.bytes.saturating_add(metadata.len() as u64);
    Ok(totals)
}

/// Returns the text of the metadata file.
///
/// # Errors
/// CTF cannot express a field class.
pub fn metadata(schema: &Schema, evidence: &Evidence, version: Version) -> Result<String> {
    emit(&class(schema, environment(schema, evidence), version)?, version)
}

/// Returns the schema's properties. The tracer's name and the losses are added if the schema does
/// not have them.
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
        // The number of lost events may not be known; the number above counts only those that are
        // known.
        env.entry("losses".to_owned()).or_insert(EnvValue::Integer(1));
    }
    env
}
