//! What was opened: its traces, its crashes, its losses.

use crate::errors;
use crate::rows::dictionaries;
use crate::scan::{Scan, Spec};
use arrow_array::RecordBatch;
use lastwords_arrow::{Crash, DataSet, add, loss_rows, trace_facts, trace_rows};
use lastwords_open::why::{self, Outside, Verdict};
use lastwords_open::{Losses, Opened, Options, Severity, Symbolizer, Trace, accounts};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::path::PathBuf;
use std::sync::Arc;

/// An input that was opened. Scans share it.
#[pyclass(frozen, module = "lastwords._native")]
pub(crate) struct Recording {
    opened: Arc<Opened>,
    crashes: Arc<[Crash]>,
    verdicts: Vec<Option<Verdict>>,
}

/// Opens files and folders. Returns what is there; what cannot be opened is among the failures.
#[pyfunction]
pub(crate) fn open(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    names: Vec<String>,
    metadata: Option<PathBuf>,
    bundle: Vec<PathBuf>,
) -> PyResult<Recording> {
    py.detach(|| {
        let options = Options {
            names,
            metadata,
            bundle,
            state: &lastwords_live::state,
            ..Options::default()
        };
        let opened = lastwords_open::open(&paths, &options).map_err(errors::argument)?;
        let symbolizer = Symbolizer::new(Vec::new(), None);
        let judge = |trace: &Trace| {
            let mut verdict = why::session(trace, &Outside::default())?;
            // What cannot be named stays an address.
            let _ = symbolizer.name_frames(verdict.crashes_mut());
            Some(verdict)
        };
        let verdicts = opened.traces.iter().map(judge).collect();
        let crashes = Crash::all(&opened.origins, &opened.traces, &judge).into();
        Ok(Recording { opened: Arc::new(opened), crashes, verdicts })
    })
}

impl Recording {
    /// Returns a list with the rows of all crashes.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        row: impl Fn(&Crash) -> Result<RecordBatch, arrow_schema::ArrowError>,
    ) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        for crash in self.crashes.iter() {
            let batch = row(crash).map_err(errors::argument)?;
            for row in dictionaries(py, &batch)? {
                rows.append(row)?;
            }
        }
        Ok(rows)
    }
}

#[pymethods]
impl Recording {
    /// The rows of the table `crashes`.
    fn crashes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let traces = &self.opened.traces;
        let accounts = accounts(traces);
        self.rows(py, |crash| {
            let own = crash.traces.iter().filter_map(|at| accounts.get(*at));
            crash.row(&Losses::from_accounts(own))
        })
    }

    /// The rows of the table `traces`.
    fn traces<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let traces = &self.opened.traces;
        let accounts = accounts(traces);
        self.rows(py, |crash| trace_rows(crash, traces, &accounts))
    }

    /// The rows of the table `losses`.
    fn losses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let traces = &self.opened.traces;
        let accounts = accounts(traces);
        self.rows(py, |crash| loss_rows(crash, traces, &accounts))
    }

    /// For each crash, its verdict as JSON; `None` if it has none beside its row.
    fn verdicts(&self) -> Vec<Option<String>> {
        let verdict = |crash: &Crash| {
            let at = crash.traces.first()?;
            serde_json::to_string(self.verdicts.get(*at)?.as_ref()?).ok()
        };
        self.crashes.iter().map(verdict).collect()
    }

    /// What could not be opened: how grave it is, and why.
    fn failures(&self) -> Vec<(&'static str, &str)> {
        let word = |severity| match severity {
            Severity::Note => "note",
            Severity::Loss => "loss",
            Severity::Error => "error",
        };
        let failures = self.opened.failures.iter();
        failures.map(|failure| (word(failure.severity), failure.why.as_str())).collect()
    }

    /// Remarks on the input.
    fn notes(&self) -> Vec<String> {
        self.opened.notes.clone()
    }

    /// The time of the newest event of all traces, in nanoseconds since the epoch.
    fn newest(&self, py: Python<'_>) -> Option<i64> {
        py.detach(|| self.opened.traces.iter().filter_map(Trace::newest).max())
    }

    /// The names of the events that the traces describe, without providers.
    fn event_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| Spec::default().event_names(&self.opened.traces))
    }

    /// Selects events.
    #[pyo3(signature = (*, events, cpus, since, until, last, filter, ordered, columns, limit, view, strict))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn scan(
        &self,
        py: Python<'_>,
        events: Vec<String>,
        cpus: Vec<u32>,
        since: Option<i64>,
        until: Option<i64>,
        last: Option<u64>,
        filter: Option<&str>,
        ordered: bool,
        columns: Option<Vec<String>>,
        limit: Option<u64>,
        view: Option<String>,
        strict: bool,
    ) -> PyResult<Scan> {
        let filter = filter.map(lastwords_filter::Filter::parse).transpose();
        let spec = Spec {
            events,
            cpus,
            since,
            until,
            last,
            filter: filter.map_err(errors::argument)?.map(Arc::new),
            ordered,
            columns,
            limit,
            view,
            strict,
        };
        let facts = trace_facts(&self.crashes, &self.opened.traces);
        let opened = Arc::clone(&self.opened);
        py.detach(|| Scan::new(opened, facts, spec))
    }

    /// Adds all crashes to a data set. Returns the numbers of crashes and of events.
    fn add_to(&self, py: Python<'_>, folder: PathBuf) -> PyResult<(u64, u64)> {
        py.detach(|| {
            let set = DataSet::open(&folder)?;
            set.clean()?;
            let (mut crashes, mut events) = (0_u64, 0_u64);
            for crash in self.crashes.iter() {
                let added = add(&set, crash, &self.opened.traces)?;
                crashes = crashes.saturating_add(1);
                events = events.saturating_add(added.events);
            }
            Ok((crashes, events))
        })
        .map_err(|error: lastwords_arrow::Error| errors::output(&error))
    }
}
