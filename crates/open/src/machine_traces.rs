//! Adds the traces of a machine.

use crate::{Body, Machine, Opened, Options, Origin, SourceKind, lttng};
use lastwords_ftrace::{Array, Tracing};
use lastwords_lttng::Session;
use std::path::Path;

/// Returns the name of an array on the command line.
fn name(array: &Array) -> String {
    if array.name.is_empty() { "top".to_owned() } else { array.name.clone() }
}

/// Adds a machine and its traces.
pub(super) fn add(
    path: &Path,
    kind: SourceKind,
    machine: Machine,
    sessions: Vec<Session>,
    options: &Options<'_>,
    opened: &mut Opened,
) {
    let sessions = lttng::bodies(sessions, options.watch);
    let origin = Origin { machine: Some(machine), ..Origin::new(path, kind) };
    let arrays = arrays(&origin, options);
    opened.add(options, origin, arrays.into_iter().chain(sessions).collect());
}

/// Returns the trace arrays of a machine with their names.
fn arrays(origin: &Origin, options: &Options<'_>) -> Vec<(String, Body)> {
    let snapshot = options.snapshot;
    let arrays =
        origin.machine.iter().flat_map(|machine| machine.tracing.arrays.iter().enumerate());
    arrays.map(|(index, array)| (name(array), Body::Ftrace { array: index, snapshot })).collect()
}

impl Opened {
    /// Adds the trace of an instance of the running kernel, whose events were read from its files.
    pub fn add_instance(
        &mut self,
        folder: &Path,
        tracing: Tracing,
        notes: Vec<String>,
        options: &Options<'_>,
    ) {
        let machine = Machine::new(None, tracing, notes);
        add(folder, SourceKind::Instance, machine, Vec::new(), options, self);
    }
}

/// Adds the traces that carving found.
pub(super) fn add_carved(
    origin: Origin,
    bodies: Vec<(String, Body)>,
    options: &Options<'_>,
    opened: &mut Opened,
) {
    let arrays = arrays(&origin, options);
    opened.add(options, origin, bodies.into_iter().chain(arrays).collect());
}
