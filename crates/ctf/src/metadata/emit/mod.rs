//! The text of metadata, made from a trace class.

mod declare;
mod spec2;
mod tsdl;

use super::Version;
use crate::error::Result;
use lastwords_trace::class::TraceClass;

/// The text of the metadata file of any trace class, in either version.
///
/// # Errors
/// A field class that CTF 1.8 cannot express.
pub fn emit(class: &TraceClass, version: Version) -> Result<String> {
    match version {
        Version::V1_8 => tsdl::metadata(class),
        Version::V2 => Ok(spec2::metadata(class)),
    }
}
