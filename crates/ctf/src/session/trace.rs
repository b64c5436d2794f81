//! A session as a trace whose packets are in memory.

use super::class::class_in_memory;
use crate::error::{Error, Result};
use crate::metadata::Version;
use crate::read::{Memory, Stream, Trace};
use lastwords_trace::source::Source;
use std::path::Path;
use std::sync::Arc;

/// Returns the trace of a session that was found at `path`. Names are those that metadata of `version` have.
///
/// # Errors
/// CTF cannot express a field class.
pub fn session<S: Source + 'static>(source: &Arc<S>, path: &Path, version: Version) -> Result<Trace> {
    let (schema, account) = (source.schema(), source.evidence().clone());
    let mut bytes = vec![0u64; source.streams().len()];
    for row in &account.sub_buffers {
        if let Some(bytes) = bytes.get_mut(row.stream) {
            *bytes = bytes.saturating_add(row.content);
        }
    }
    let class = class_in_memory(schema, version)?;
    let streams = source.streams().iter().zip(bytes).enumerate().map(|(stream, (facts, bytes))| Stream {
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
    Trace::in_memory(path.to_path_buf(), class, streams, account).map_err(|error| Error::Schema(error.to_string()))
}
