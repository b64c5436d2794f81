//! CTF 1.8 metadata: TSDL. CTF 1.8.3, sections 4 to 7 and appendices A to C; where babeltrace2 2.1.1 reads it otherwise, as
//! that does.

mod block;
mod lex;
mod parse;
mod resolve;
mod specifier;
mod types;

use lastwords_bytes::Budget;
use lastwords_trace::class::TraceClass;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Line of the metadata, from 1.
    pub(crate) line: u32,
    /// What.
    pub(crate) what: String,
}

/// Reads metadata.
pub(crate) fn read(text: &str, budget: &Budget) -> Result<TraceClass, Wrong> {
    let words = lex::words(text)?;
    resolve::trace_class(parse::declarations(&words)?, budget)
}
