//! The events of all that was opened, one at a time.

use crate::{Opened, Trace};
use lastwords_ctf::{Error, read};
use lastwords_render::iter::{Events, Order};
use lastwords_render::select::Selection;

/// The selected events of some traces.
///
/// ```no_run
/// use lastwords_render::{iter::Order, select::Selection};
/// use lastwords_open::{Options, open};
///
/// let opened = open(&["vmcore"], &Options::default())?;
/// let sched = Selection { events: vec!["sched:*".into()], ..Selection::default() };
/// for event in opened.select(sched)?.events(Order::Time) {
///     let event = event?;
///     println!("{:?} {:?} {} {:?}", event.time, event.cpu, event.kind.name, event.fields);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Selected {
    selection: Selection,
    traces: Vec<read::Trace>,
    /// The position of each trace among those that were given.
    positions: Vec<usize>,
    /// The positions of traces without a description of their events.
    undescribed: Vec<usize>,
}

impl Selected {
    /// Selects events of some traces.
    ///
    /// # Errors
    /// The description of a trace does not decode its events; a time is selected, and nothing
    /// relates the clock of a kernel's trace to real time.
    pub fn new(traces: &[Trace], selection: Selection) -> Result<Self, Error> {
        let (mut found, mut positions, mut undescribed) = (Vec::new(), Vec::new(), Vec::new());
        for (position, trace) in traces.iter().enumerate() {
            match trace.selected(&selection)? {
                Some(trace) => {
                    found.push(trace);
                    positions.push(position);
                }
                None => undescribed.push(position),
            }
        }
        Ok(Self { selection, traces: found, positions, undescribed })
    }

    /// Begins to read the events. Each call begins anew.
    #[must_use]
    pub fn events(&self, order: Order) -> Events<'_> {
        Events::new(&self.traces, &self.selection, order, &read::unwatched)
    }

    /// Returns the traces as packets.
    #[must_use]
    pub fn packets(&self) -> &[read::Trace] {
        &self.traces
    }

    /// Returns the position of a trace, given by the number that its events have, among those that
    /// were opened.
    #[must_use]
    pub fn position(&self, trace: usize) -> Option<usize> {
        self.positions.get(trace).copied()
    }

    /// Returns the positions of the traces whose events cannot be read, because nothing describes
    /// them.
    #[must_use]
    pub fn undescribed(&self) -> &[usize] {
        &self.undescribed
    }
}

impl Opened {
    /// Selects events of all traces.
    ///
    /// # Errors
    /// The same as for [`Selected::new`].
    pub fn select(&self, selection: Selection) -> Result<Selected, Error> {
        Selected::new(&self.traces, selection)
    }
}
