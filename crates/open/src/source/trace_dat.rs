//! Opens trace.dat files.

use super::{FileKind, Opening, Opens, Place};
use crate::Machine;
use crate::SourceKind;
use crate::fired::Fired;
use crate::machine_traces::add;
use anyhow::Context as _;
use lastwords_ftrace::dat;

/// A trace.dat file of trace-cmd.
pub(super) static TRACE_DAT: Place = Place {
    inputs: &["a trace.dat file"],
    files: &[FileKind {
        words: "a trace.dat file",
        begins: |head, _| head.starts_with(b"\x17\x08\x44tracing"),
        opens: Opens::Place,
    }],
    is_folder: |_| false,
    open,
};

/// Opens a trace.dat file.
///
/// # Errors
/// The file cannot be read.
fn open(opening: &mut Opening<'_, '_>) -> anyhow::Result<()> {
    let Opening { location, options, budget, opened, .. } = opening;
    let path = location.path();
    let mut tracing = dat::open(path, budget).with_context(|| path.display().to_string())?;
    let notes = Fired::beside(path)?
        .map_or_else(Vec::new, |fired| fired.apply(&mut tracing, options.whole));
    add(
        path,
        SourceKind::TraceDat,
        Machine::new(None, tracing, notes),
        Vec::new(),
        options,
        opened,
    );
    Ok(())
}
