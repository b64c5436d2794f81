//! CTF 1.8 metadata: TSDL. This follows CTF 1.8.3, sections 4 to 7 and appendices A to C. Where
//! babeltrace2 2.1.1 reads it differently, this follows babeltrace2.

mod block;
mod declarator;
mod declared;
mod group;
mod lex;
mod location;
mod parser;
mod resolve;
mod skip;
mod specifier;
mod timestamps;
mod types;
mod value;

use lastwords_bytes::Budget;
use lastwords_trace::class::TraceClass;

/// An error in the metadata, and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Line of the metadata, from 1.
    pub(crate) line: u32,
    /// Description of the error.
    pub(crate) what: String,
}

/// The faults of declarations that are left out.
#[derive(Debug, Default)]
struct Missing(super::Missing);

impl Missing {
    fn add(&mut self, wrong: Wrong) {
        let Wrong { line, what } = wrong;
        self.0.add(|| if line == 0 { what } else { format!("line {line}: {what}") });
    }
}

/// Reads metadata. A declaration that is wrong or incomplete is left out, with those that need it.
pub(crate) fn read(text: &str, budget: &Budget) -> Result<TraceClass, Wrong> {
    let words = lex::words(text);
    resolve::trace_class(declared::declarations(&words)?, budget)
}
