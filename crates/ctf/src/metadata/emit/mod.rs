//! Writes the text of metadata, from a trace class.

mod declare;
mod spec2;
mod tokens;
mod tsdl;

use super::Version;
use crate::error::Result;
use lastwords_trace::class::TraceClass;

/// Returns the text of the metadata file of any trace class, in either version.
///
/// # Errors
/// CTF 1.8 cannot express a field class.
pub fn emit(class: &TraceClass, version: Version) -> Result<String> {
    match version {
        Version::V1_8 => tsdl::metadata(class),
        Version::V2 => Ok(spec2::metadata(class)),
    }
}
