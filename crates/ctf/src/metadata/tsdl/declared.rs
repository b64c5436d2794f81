//! Parses whole metadata: the declarations and blocks, one after the other.

use super::block::{self, Clock, Event, Stream, Trace};
use super::lex::Word;
use super::parser::Parser;
use super::{Missing, Wrong};
use lastwords_bytes::ByteOrder;
use lastwords_trace::schema::EnvValue;

/// All declarations of the metadata.
#[derive(Debug, Default)]
pub(super) struct Declared {
    pub(super) trace: Option<Trace>,
    pub(super) env: Vec<(String, EnvValue)>,
    pub(super) clocks: Vec<Clock>,
    pub(super) streams: Vec<Stream>,
    pub(super) events: Vec<Event>,
    /// The faults of declarations that are left out.
    pub(super) missing: Missing,
}

/// Parses the words of a whole metadata stream. A declaration that is wrong is left out.
///
/// # Errors
/// The trace block is wrong, or there are two: nothing can be read without it.
pub(super) fn declarations(words: &[(Word<'_>, u32)]) -> Result<Declared, Wrong> {
    let order = native_order(words);
    let mut parser = Parser::new(words, order);
    let mut declared = Declared::default();
    while *parser.peek() != Word::End {
        let begin = parser.next;
        parser.fresh.clear();
        if let Err(wrong) = parser.declaration(&mut declared) {
            if parser.is_block(begin) && matches!(words.get(begin), Some((Word::Name("trace"), _)))
            {
                return Err(wrong);
            }
            declared.missing.add(wrong);
            parser.forget();
            parser.skip(begin);
        }
    }
    Ok(declared)
}

/// Returns the byte order that the trace block names. The block may follow types that use it.
fn native_order(words: &[(Word<'_>, u32)]) -> ByteOrder {
    let is = |i: usize, name: &str| matches!(words.get(i), Some((Word::Name(n), _)) if *n == name);
    let begin = (0..words.len()).find(|i| {
        is(*i, "trace") && matches!(words.get(i.saturating_add(1)), Some((Word::Mark("{"), _)))
    });
    let at = begin.and_then(|begin| (begin..words.len()).find(|i| is(*i, "byte_order")));
    match at.and_then(|at| words.get(at.saturating_add(2))) {
        Some((Word::Name("be" | "network"), _)) => ByteOrder::Big,
        _ => ByteOrder::Little,
    }
}

impl Parser<'_> {
    fn declaration(&mut self, declared: &mut Declared) -> Result<(), Wrong> {
        if self.accept(";") || self.type_declaration()? {
            return Ok(());
        }
        let line = self.line();
        let name = self.name()?;
        match name {
            "trace" => {
                let trace = block::trace(self)?;
                if declared.trace.replace(trace).is_some() {
                    return Err(Wrong { line, what: "a second trace block".into() });
                }
            }
            "env" => declared.env.extend(block::env(self)?),
            "clock" => declared.clocks.push(block::clock(self, line)?),
            "stream" => declared.streams.push(block::stream(self, line)?),
            "event" => declared.events.push(block::event(self, line)?),
            "callsite" => block::ignored(self)?,
            other => {
                return Err(Wrong {
                    line,
                    what: format!("found `{other}`, expected a declaration or a block"),
                });
            }
        }
        self.expect(";")
    }
}
