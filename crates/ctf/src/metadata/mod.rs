//! Reads metadata of both versions from a file (text, or packets of text), and writes them.

pub(crate) mod emit;
mod packets;
mod spec2;
mod tsdl;

use crate::read::Error;
use lastwords_bytes::{Budget, Limits};
use lastwords_trace::class::{Clock, Identity, TraceClass};
use std::borrow::Cow;
use std::path::Path;

pub use emit::emit;
pub use packets::{Unpacked, unpack};

/// The version of CTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// CTF 1.8.3: metadata in TSDL.
    V1_8,
    /// CTF 2: metadata as a JSON text sequence (CTF2-SPEC-2.0).
    V2,
}

/// Largest metadata file that is read, in bytes.
const MAX_METADATA: u64 = 1 << 28;
/// Stands in a text of metadata where a part is missing. Neither TSDL nor JSON has it outside of
/// text.
pub const HOLE: u8 = 0x1a;
/// Most sentences about missing parts.
const MAX_MISSING: usize = 100;

/// Sentences about missing parts, up to a number.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    told: Vec<String>,
    more: u64,
}

impl Missing {
    /// Adds a sentence.
    pub(crate) fn add(&mut self, what: impl FnOnce() -> String) {
        if self.told.len() < MAX_MISSING {
            self.told.push(what());
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Returns the sentences. The last one has the number of those that were left out.
    pub(crate) fn told(mut self) -> Vec<String> {
        if self.more > 0 {
            self.told.push(format!("{} more parts are missing or wrong", self.more));
        }
        self.told
    }
}

/// Reads the metadata file of a trace. A part that is wrong or missing costs itself and what needs
/// it: see [`TraceClass::missing`].
///
/// # Errors
/// The file cannot be read, or lacks what packets cannot be read without.
pub fn metadata(path: &Path) -> Result<TraceClass, Error> {
    let length = std::fs::metadata(path).map_err(Error::io(path))?.len();
    if length > MAX_METADATA {
        return Err(Error::metadata(
            path,
            0,
            format!("{length} bytes, expected at most {MAX_METADATA}"),
        ));
    }
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    parse(path, &bytes)
}

/// Limit for each byte of the metadata: bytes of the model, and name comparisons. Types and aliases
/// are written once and used many times.
const COST: u64 = 32;
/// Limit for any metadata, in addition to [`COST`] for each byte.
const COST_OF_ANY: u64 = 1 << 26;

/// Returns the budget for a model that is made of `length` bytes of metadata: bytes of memory, and
/// steps of looking up names.
fn budget(length: usize) -> Budget {
    let cost = (length as u64).saturating_mul(COST).saturating_add(COST_OF_ANY);
    Budget::new(Limits { bytes: cost, steps: cost, ..Limits::default() })
}

/// Parses metadata. `path` is only used in errors. A part that is wrong or missing costs itself and
/// what needs it: see [`TraceClass::missing`].
///
/// ```
/// let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
///     event { name = torn; fields := struct { \x1a } x; }; };
///     event { name = whole; fields := struct { integer { size = 8; } x; }; };";
/// let class = lastwords_ctf::metadata::parse("metadata".as_ref(), text.as_bytes())?;
/// assert_eq!((class.streams[0].events.len(), class.missing.len()), (1, 1));
/// # Ok::<(), lastwords_ctf::read::Error>(())
/// ```
///
/// # Errors
/// The metadata lack what packets cannot be read without, or ask for far more fields than they have
/// bytes.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<TraceClass, Error> {
    let Some(Unpacked { text, uuid, missing }) = unpack(bytes) else {
        return parse_text(path, bytes);
    };
    let first = missing.first().map(|first| format!("; {first}")).unwrap_or_default();
    let mut class = parse_text(path, &text).map_err(|error| match error {
        Error::Metadata { path, line, what } => {
            Error::Metadata { path, line, what: format!("{what}{first}") }
        }
        error => error,
    })?;
    // The UUID of CTF 2 has a fragment of its own.
    if class.version == 1 && class.uuid.is_some_and(|own| own != uuid) {
        return Err(Error::metadata(path, 0, "its packets have another UUID than its trace block"));
    }
    class.missing.splice(0..0, missing);
    Ok(class)
}

fn parse_text(path: &Path, bytes: &[u8]) -> Result<TraceClass, Error> {
    if bytes.trim_ascii_start().first() == Some(&0x1e) {
        return spec2::read(path, bytes, &budget(bytes.len()));
    }
    if !bytes.iter().any(u8::is_ascii_alphabetic) {
        return Err(Error::metadata(path, 0, "offset 0x0: expected text of CTF 1.8 or CTF 2"));
    }
    let text = text(bytes);
    tsdl::read(&text, &budget(text.len()))
        .map_err(|wrong| Error::metadata(path, wrong.line, wrong.what))
}

/// Returns bytes as text. Each run of bytes that are no text becomes a hole.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() && !text.ends_with(char::from(HOLE)) {
            text.push(char::from(HOLE));
        }
    }
    Cow::Owned(text)
}

/// Returns a clock of nanoseconds from an unknown origin.
pub(crate) fn unknown_clock(name: &str) -> Clock {
    Clock {
        id: name.to_owned(),
        identity: Identity { name: Some(name.to_owned()), ..Identity::default() },
        frequency: 1_000_000_000,
        ..Clock::default()
    }
}
