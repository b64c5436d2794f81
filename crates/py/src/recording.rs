//! What was opened: its traces, its crashes, its losses.

use crate::errors;
use crate::rows::dictionaries;
use crate::scan::{Scan, Spec};
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use lastwords_arrow::{Crash, DataSet, TraceFacts, add, loss_rows, trace_facts, trace_rows};
use lastwords_open::why::{self, Outside, Verdict};
use lastwords_open::{
    Account, Losses, Opened, Options, Redaction, Severity, Symbolizer, Trace, accounts,
};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// An input that was opened.
#[pyclass(frozen, module = "lastwords._native")]
pub(crate) struct Recording {
    input: Arc<Input>,
}

/// What was opened, with the facts about it that cost a reading of all events: they are found when
/// they are first asked for. Scans share it.
pub(crate) struct Input {
    pub(crate) opened: Opened,
    crashes: OnceLock<Vec<Crash>>,
    verdicts: OnceLock<Vec<Option<Verdict>>>,
    facts: OnceLock<Vec<TraceFacts>>,
}

impl Input {
    fn new(opened: Opened) -> Self {
        let (crashes, verdicts) = (OnceLock::new(), OnceLock::new());
        Self { opened, crashes, verdicts, facts: OnceLock::new() }
    }

    /// Returns the verdict on each trace that is a session.
    fn verdicts(&self) -> &[Option<Verdict>] {
        self.verdicts.get_or_init(|| {
            let symbolizer = Symbolizer::new(Vec::new(), None);
            let judge = |trace: &Trace| {
                let mut verdict = why::session(trace, &Outside::default())?;
                // What cannot be named stays an address.
                let _ = symbolizer.name_frames(verdict.crashes_mut());
                Some(verdict)
            };
            self.opened.traces.iter().map(judge).collect()
        })
    }

    fn crashes(&self) -> &[Crash] {
        self.crashes.get_or_init(|| {
            let Opened { origins, traces, .. } = &self.opened;
            let verdicts = self.verdicts();
            let judge = |trace: &Trace| {
                let at = traces.iter().position(|own| std::ptr::eq(own, trace))?;
                verdicts.get(at)?.clone()
            };
            Crash::all(origins, traces, &judge)
        })
    }

    /// Returns what the rows of each trace have besides its events. Without `is_whole`, they lack
    /// the crash and its end, which is fast.
    pub(crate) fn facts(&self, is_whole: bool) -> Vec<TraceFacts> {
        let traces = &self.opened.traces;
        if is_whole {
            return self.facts.get_or_init(|| trace_facts(self.crashes(), traces)).clone();
        }
        let facts = |trace: &Trace| TraceFacts {
            name: trace.name.clone(),
            is_dated: trace.unrelated_clock().is_none(),
            ..TraceFacts::default()
        };
        traces.iter().map(facts).collect()
    }
}

/// Opens files and folders. Returns what is there; what cannot be opened is among the failures.
#[pyfunction]
pub(crate) fn open(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    names: Vec<String>,
    metadata: Option<PathBuf>,
    bundle: Vec<PathBuf>,
    redact: Vec<String>,
    redact_hash: Vec<String>,
) -> PyResult<Recording> {
    py.detach(|| {
        let state = &lastwords_live::state;
        let redaction = Arc::new(Redaction::new(&redact, &redact_hash));
        let options = Options { names, metadata, bundle, redaction, state, ..Options::default() };
        let opened = lastwords_open::open(&paths, &options).map_err(errors::argument)?;
        Ok(Recording { input: Arc::new(Input::new(opened)) })
    })
}

impl Recording {
    /// Returns a list with the rows of all crashes.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        row: impl Fn(&Crash, &[Account<'_>]) -> Result<RecordBatch, ArrowError> + Send + Sync,
    ) -> PyResult<Bound<'py, PyList>> {
        let batches = py.detach(|| {
            let accounts = accounts(&self.input.opened.traces);
            let crashes = self.input.crashes().iter();
            crashes.map(|crash| row(crash, &accounts)).collect::<Result<Vec<_>, _>>()
        });
        let rows = PyList::empty(py);
        for batch in batches.map_err(errors::argument)? {
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
        self.rows(py, |crash, accounts| {
            let own = crash.traces.iter().filter_map(|at| accounts.get(*at));
            crash.row(&Losses::from_accounts(own))
        })
    }

    /// The rows of the table `traces`.
    fn traces<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let traces = &self.input.opened.traces;
        self.rows(py, |crash, accounts| trace_rows(crash, traces, accounts))
    }

    /// The rows of the table `losses`.
    fn losses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let traces = &self.input.opened.traces;
        self.rows(py, |crash, accounts| loss_rows(crash, traces, accounts))
    }

    /// The names of the traces.
    fn trace_names(&self) -> Vec<&str> {
        self.input.opened.traces.iter().map(|trace| trace.name.as_str()).collect()
    }

    /// True if nothing was opened.
    fn is_empty(&self) -> bool {
        self.input.opened.origins.is_empty()
    }

    /// For each crash, its verdict as JSON; `None` if it has none beside its row.
    fn verdicts(&self, py: Python<'_>) -> Vec<Option<String>> {
        let verdict = |crash: &Crash| {
            let at = crash.traces.first()?;
            serde_json::to_string(self.input.verdicts().get(*at)?.as_ref()?).ok()
        };
        py.detach(|| self.input.crashes().iter().map(verdict).collect())
    }

    /// What could not be opened: how grave it is, and why.
    fn failures(&self) -> Vec<(&'static str, &str)> {
        let word = |severity| match severity {
            Severity::Note => "note",
            Severity::Loss => "loss",
            Severity::Error => "error",
        };
        let failures = self.input.opened.failures.iter();
        failures.map(|failure| (word(failure.severity), failure.why.as_str())).collect()
    }

    /// Remarks on the input.
    fn notes(&self) -> Vec<String> {
        self.input.opened.notes.clone()
    }

    /// The time of the newest event of all traces, in nanoseconds since the epoch.
    fn newest(&self, py: Python<'_>) -> Option<i64> {
        py.detach(|| self.input.opened.traces.iter().filter_map(Trace::newest).max())
    }

    /// The names of the events that the traces describe, without providers.
    fn event_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| Spec::default().event_names(&self.input.opened.traces))
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
        let input = Arc::clone(&self.input);
        py.detach(|| Scan::new(input, spec))
    }

    /// Adds all crashes to a data set. Returns the numbers of crashes and of events.
    fn add_to(&self, py: Python<'_>, folder: PathBuf) -> PyResult<(u64, u64)> {
        py.detach(|| {
            let set = DataSet::open(&folder)?;
            set.clean()?;
            let (mut crashes, mut events) = (0_u64, 0_u64);
            for crash in self.input.crashes() {
                let added = add(&set, crash, &self.input.opened.traces)?;
                crashes = crashes.saturating_add(1);
                events = events.saturating_add(added.events);
            }
            Ok((crashes, events))
        })
        .map_err(|error: lastwords_arrow::Error| errors::output(&error))
    }
}
