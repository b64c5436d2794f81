//! A session as a trace whose packets are in memory.

use super::class::class_in_memory;
use crate::error::{Error, Result};
use crate::metadata::Version;
use crate::read::{Memory, Stream, Trace};
use lastwords_trace::source::Source;
use std::path::Path;
use std::sync::Arc;

/// Returns the trace of a session that was found at `path`. Names are those that metadata of
/// `version` have.
///
/// # Errors
/// CTF cannot express a field class.
pub fn session<S: Source + 'static>(
    source: &Arc<S>,
    path: &Path,
    version: Version,
) -> Result<Trace> {
    let class = class_in_memory(source.schema(), version)?;
    let streams = source.streams().iter().zip(source.contents()).enumerate();
    let streams = streams.map(|(stream, (facts, bytes))| Stream {
        class: facts.channel,
        id: Some(facts.instance),
        files: Vec::new(),
        packets: Vec::new(),
        memory: Some(Memory {
            source: Arc::<S>::clone(source),
            stream,
            name: format!("stream {stream}"),
            cpu: facts.cpu,
            bytes,
        }),
    });
    let streams = streams.collect();
    let account = Arc::<S>::clone(source);
    Trace::in_memory(path.to_path_buf(), class, streams, account)
        .map_err(|error| Error::Schema(error.to_string()))
}
