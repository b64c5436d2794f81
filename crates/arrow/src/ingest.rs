//! Adds crashes to a data set.

use crate::Error;
use crate::crash::{Crash, loss_rows, trace_facts, trace_rows};
use crate::dataset::DataSet;
use crate::events::{Batches, Wanted};
use crate::schema::Table;

use lastwords_open::{Losses, Order, Selected, Selection, Trace, accounts_after_reading};
use lastwords_render::events::Note;
use std::path::PathBuf;

/// The files and rows that were written of a crash, and its losses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Added {
    /// The file with its events.
    pub path: PathBuf,
    /// Rows of `events`.
    pub events: u64,
    /// Streams that were read.
    pub streams: u64,
    /// Packets that were read.
    pub packets: u64,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Parts that cannot be read.
    pub faults: u64,
    /// The losses in the accounts of its traces.
    pub losses: Losses,
    /// Values of promoted fields that their columns cannot hold.
    pub unfit: u64,
    /// Traces whose events nothing describes.
    pub undescribed: usize,
}

/// Writes all tables of a crash. `traces` are those that were opened, among which
/// [`Crash::traces`] has positions.
///
/// # Errors
/// The events of a trace cannot be read; a file cannot be written. The data set then has what it
/// had before, or tables of the crash without a row in `crashes`.
pub fn add(set: &DataSet, crash: &Crash, traces: &[Trace]) -> Result<Added, Error> {
    let own: Vec<Trace> = crash.traces.iter().filter_map(|at| traces.get(*at).cloned()).collect();
    let mut crash = crash.clone();
    crash.traces = (0..own.len()).collect();
    let crash = &crash;
    let selected = Selected::new(&own, Selection::default())?;
    let all = trace_facts(std::slice::from_ref(crash), &own);
    let positions = (0..own.len()).map_while(|at| selected.position(at));
    let facts = positions.filter_map(|at| all.get(at).cloned()).collect();
    let mut batches = Batches::new(selected.events(Order::Time), facts, &Wanted::default())?;
    let day = crash.day();
    let part = |table| set.part(table, &crash.id, day.as_deref());
    let mut events = part(Table::Events)?;
    let mut faults = 0_u64;
    while let Some(batch) = batches.next_batch(&mut |_| faults = faults.saturating_add(1))? {
        events.write(&batch)?;
    }
    let unfit = batches.unfit();
    let mut read = Vec::new();
    let mut totals = batches.finish(0, &mut |note| {
        if let Note::Read(at, totals) = note {
            read.extend(selected.position(at).map(|at| (at, totals)));
        }
    })?;
    totals.faults = totals.faults.max(faults);
    let accounts = accounts_after_reading(&own, &totals, &read);
    let losses = Losses::from_accounts(&accounts);
    let mut rows_of_losses = part(Table::Losses)?;
    rows_of_losses.write(&loss_rows(crash, &own, &accounts)?)?;
    let mut rows_of_traces = part(Table::Traces)?;
    rows_of_traces.write(&trace_rows(crash, &own, &accounts)?)?;
    let mut row = part(Table::Crashes)?;
    row.write(&crash.row(&losses)?)?;
    let mut added = Added {
        events: totals.events,
        streams: totals.streams,
        packets: totals.packets,
        faults,
        losses,
        unfit,
        undescribed: selected.undescribed().len(),
        ..Added::default()
    };
    // In the order of `Table::ALL`.
    for part in [events, rows_of_losses, rows_of_traces, row] {
        let (path, bytes) = part.finish()?;
        added.bytes = added.bytes.saturating_add(bytes);
        if added.path.as_os_str().is_empty() {
            added.path = path;
        }
    }
    Ok(added)
}
