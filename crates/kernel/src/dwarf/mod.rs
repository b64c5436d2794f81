//! Reads types from DWARF debug information, for when neither the image nor a file has BTF.
//!
//! The types are converted to a BTF blob, so that all other code knows one form of types. One unit
//! is in memory at a time. A type that many units repeat is converted once. Functions are left out:
//! only kernels with BTF record function arguments by type.

mod entries;
mod sections;
mod types;

pub(crate) use sections::Index;

use crate::btf::Btf;
use entries::{Failure, Unit};
use lastwords_bytes::{Budget, ByteOrder, Error};
use object::Endianness;
use sections::{Sections, problem};
use std::io::{Read, Seek};
use std::sync::Arc;
use types::Converter;

/// Name of the debug information in errors.
const WHAT: &str = "debug information";

/// A blob, and the first error.
pub(crate) struct Made {
    pub(crate) blob: Vec<u8>,
    /// Error of the first damaged unit.
    pub(crate) missing: Option<Error>,
}

/// Converts the types of the debug information in `file` to BTF that continues `base`.
///
/// # Errors
/// A section or a unit extends past the file, there is no type, or the budget is spent.
pub(crate) fn read<F: Read + Seek>(
    file: F,
    index: &Index,
    base: Option<&Arc<Btf>>,
    budget: &Budget,
) -> Result<Made, Error> {
    let mut sections = Sections::read(file, index, budget)?;
    let order = match sections.endian {
        Endianness::Little => ByteOrder::Little,
        Endianness::Big => ByteOrder::Big,
    };
    let mut converter = Converter::new(base, order);
    let (mut at, mut missing) = (0, None);
    while let Some((bytes, next)) = sections.unit(at, budget)? {
        match Unit::read(&bytes, &sections, budget) {
            Ok(Some(unit)) => converter.add(&unit, budget)?,
            Ok(None) => {}
            Err(Failure::Spent(error)) => return Err(error),
            Err(Failure::Damaged(error)) => {
                missing =
                    missing.or_else(|| Some(Error { offset: at, ..problem(&error.to_string()) }));
            }
        }
        at = next;
    }
    if converter.is_empty() {
        return Err(missing.unwrap_or_else(|| problem("types of C")));
    }
    Ok(Made { blob: converter.finish(), missing })
}
