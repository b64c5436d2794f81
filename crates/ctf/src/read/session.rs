//! A session as a trace whose packets are in memory.

use super::folder::{Memory, Stream, Trace};
use crate::error::{Error, Result};
use crate::metadata::Version;
use crate::write::session::class_in_memory;
use lastwords_trace::source::Source;
use std::path::Path;
use std::sync::Arc;

/// The trace of a session that was found at `path`. Names are those that metadata of `version` have.
///
/// # Errors
/// A field class that CTF cannot express.
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
