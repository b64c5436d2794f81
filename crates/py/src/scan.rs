//! A selection of events, as a stream of record batches.
//!
//! Each call of `__arrow_c_stream__` starts a thread that reads the events, and returns a capsule
//! with the receiving end of a channel. The thread holds the traces; it waits while the channel is
//! full, and ends when its receiver is dropped. So a reader that stops early, such as `LIMIT`, ends
//! the scan, and several streams of one scan do not know of each other. The thread never waits for
//! the interpreter.
//!
//! A consumer may hold or have released the interpreter's lock while it waits for a batch. On the
//! main thread, the wait ends at an interrupt (Ctrl-C): the stream fails, and the interrupt is
//! raised again for the interpreter.

use crate::errors::{self, Damage};
use crate::recording::Input;
use crate::rows::dictionaries;
use crate::typed::View;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, SchemaRef};
use lastwords_arrow::{BATCH_ROWS, Batches, Format, Wanted, Writer};
use lastwords_filter::Filter;
use lastwords_open::{Order, Selected, Selection, Trace};
use lastwords_render::filter;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The columns that need the crash of a trace, or its end, which costs a reading of all events.
const OF_CRASH: [&str; 2] = ["crash_id", "before_end_ns"];
/// Batches that may wait for their reader.
const AHEAD: usize = 2;
/// How often a reader on the main thread looks for an interrupt.
const LOOK: Duration = Duration::from_millis(50);
/// The message of a stream that an interrupt has ended.
const INTERRUPTED: &str = "KeyboardInterrupt";
/// Most damages that a scan keeps.
const MOST_DAMAGES: usize = 1000;

/// The events and columns that are wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spec {
    pub(crate) events: Vec<String>,
    pub(crate) cpus: Vec<u32>,
    pub(crate) since: Option<i64>,
    pub(crate) until: Option<i64>,
    pub(crate) last: Option<u64>,
    pub(crate) filter: Option<Arc<Filter>>,
    pub(crate) ordered: bool,
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) limit: Option<u64>,
    /// The name of the event whose fields are columns; none for the table `events`.
    pub(crate) view: Option<String>,
    /// Damage ends the stream.
    pub(crate) strict: bool,
}

impl Spec {
    fn selected(&self, traces: &[Trace]) -> lastwords_ctf::Result<Selected> {
        let selection = Selection {
            cpus: self.cpus.clone(),
            events: self.events.clone(),
            filter: self.filter.clone(),
            since: self.since,
            until: self.until,
            last: self.last,
            ..Selection::default()
        };
        Selected::new(traces, selection)
    }

    /// Returns the names of the events that traces describe, without providers.
    pub(crate) fn event_names(&self, traces: &[Trace]) -> PyResult<Vec<String>> {
        let selected = self.selected(traces).map_err(|error| failed(&error))?;
        Ok(names(&selected).into_iter().collect())
    }
}

fn failed(error: &lastwords_ctf::Error) -> PyErr {
    Python::attach(|py| Damage::from(error).exception(py))
}

fn names(selected: &Selected) -> BTreeSet<String> {
    let streams = selected.packets().iter().flat_map(|trace| &trace.class().streams);
    let events = streams.flat_map(|stream| &stream.events);
    let name = |whole: &String| lastwords_render::iter::split_name(whole).1.to_owned();
    events.filter_map(|event| event.name.as_ref()).map(name).collect()
}

/// What the last scan that came to its end has found.
#[derive(Debug, Default)]
struct Found {
    damages: Vec<Damage>,
    /// Values that their columns cannot hold.
    unfit: u64,
}

/// A selection of events. It speaks the Arrow C stream interface.
#[pyclass(frozen, module = "lastwords._native")]
pub(crate) struct Scan {
    source: Arc<Source>,
    schema: SchemaRef,
    found: Arc<Mutex<Found>>,
}

/// What a thread needs to read events.
struct Source {
    input: Arc<Input>,
    spec: Spec,
    view: Option<View>,
}

impl Scan {
    pub(crate) fn new(input: Arc<Input>, mut spec: Spec) -> PyResult<Self> {
        let selected = spec.selected(&input.opened.traces).map_err(|error| failed(&error))?;
        if let Some(expression) = &spec.filter {
            filter::check(expression, selected.packets(), &[]).map_err(errors::argument)?;
        }
        let view = match &spec.view {
            None => None,
            Some(name) => {
                let view = View::new(&selected, name, spec.columns.as_deref());
                let view = view.map_err(errors::argument)?;
                let near = || filter::nearest_names(name, &names(&selected));
                let view = view.ok_or_else(|| errors::unknown(name, near()))?;
                spec.events = view.globs();
                Some(view)
            }
        };
        let schema = match &view {
            Some(view) => view.schema(),
            None => {
                let wanted = Wanted { columns: spec.columns.clone(), ..Wanted::default() };
                Batches::new(selected.events(Order::Stream), Vec::new(), &wanted)
                    .map_err(errors::argument)?
                    .schema()
            }
        };
        let source = Arc::new(Source { input, spec, view });
        Ok(Self { source, schema, found: Arc::default() })
    }

    /// Starts to read.
    fn start(&self) -> Stream {
        let (sender, receiver) = sync_channel(AHEAD);
        let stop = Arc::new(AtomicBool::new(false));
        let (source, found) = (Arc::clone(&self.source), Arc::clone(&self.found));
        let is_stopped = Arc::clone(&stop);
        let name = "lastwords-scan".to_owned();
        let started = thread::Builder::new().name(name).spawn(move || {
            if let Err(why) = source.read(&is_stopped, &sender, &found) {
                // A reader that is gone does not want to know.
                let _ = sender.send(Err(why));
            }
        });
        // Without a thread, the channel has no sender, and the stream says so.
        let is_started = started.is_ok();
        Stream { schema: Arc::clone(&self.schema), receiver, stop, is_started, is_over: false }
    }
}

/// A batch, or the reason why there is none.
type Sent = Result<Option<RecordBatch>, String>;

impl Source {
    /// Returns the names of the columns of `events` that are computed; none for all of them.
    fn columns(&self) -> Option<Vec<String>> {
        self.view.as_ref().map_or_else(|| self.spec.columns.clone(), View::columns)
    }

    /// Reads all events, and sends them as batches, and none after the last one.
    fn read(
        &self,
        stop: &AtomicBool,
        sender: &SyncSender<Sent>,
        found: &Mutex<Found>,
    ) -> Result<(), String> {
        let spec = &self.spec;
        let traces = &self.input.opened.traces;
        let selected = spec.selected(traces).map_err(|error| error.to_string())?;
        let is_of_crash = |name: &String| OF_CRASH.contains(&name.as_str());
        let all = self.input.facts(self.columns().is_none_or(|own| own.iter().any(is_of_crash)));
        let positions = (0..traces.len()).map_while(|at| selected.position(at));
        let facts = positions.filter_map(|at| all.get(at).cloned()).collect();
        let wanted = Wanted { columns: self.columns(), limit: spec.limit, batch: BATCH_ROWS };
        let order = if spec.ordered { Order::Time } else { Order::Stream };
        let events = selected.events(order).until_set(stop);
        let mut batches = Batches::new(events, facts, &wanted).map_err(|e| e.to_string())?;
        let (mut now, mut unfit) = (Found::default(), 0_u64);
        loop {
            let mut take = |fault| {
                if now.damages.len() < MOST_DAMAGES {
                    now.damages.push(Damage::from(&fault));
                }
            };
            let batch = batches.next_batch(&mut take).map_err(|error| error.to_string())?;
            if let Some(first) = now.damages.first().filter(|_| spec.strict) {
                let message = first.message().to_owned();
                *found.lock().unwrap_or_else(PoisonError::into_inner) = now;
                return Err(message);
            }
            let Some(batch) = batch else { break };
            let batch = match &self.view {
                Some(view) => view.batch(&batch, &mut unfit).map_err(|error| error.to_string())?,
                None => batch,
            };
            if sender.send(Ok(Some(batch))).is_err() {
                return Ok(());
            }
        }
        now.unfit = unfit.saturating_add(if self.view.is_some() { 0 } else { batches.unfit() });
        *found.lock().unwrap_or_else(PoisonError::into_inner) = now;
        let _ = sender.send(Ok(None));
        Ok(())
    }
}

/// The receiving end of a scan.
struct Stream {
    schema: SchemaRef,
    receiver: Receiver<Sent>,
    stop: Arc<AtomicBool>,
    is_started: bool,
    is_over: bool,
}

impl Stream {
    /// Waits for the next batch. On the main thread, an interrupt ends the wait.
    fn wait(&self) -> Result<Option<RecordBatch>, String> {
        loop {
            match self.receiver.recv_timeout(LOOK) {
                Ok(sent) => return sent,
                Err(RecvTimeoutError::Timeout) if is_interrupted() => {
                    return Err(INTERRUPTED.to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if !self.is_started => {
                    return Err("no thread can be started to read the events".to_owned());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the thread that reads the events has failed".to_owned());
                }
            }
        }
    }
}

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let batch = self.wait();
        self.is_over = !matches!(batch, Ok(Some(_)));
        batch.map_err(|why| ArrowError::ExternalError(why.into())).transpose()
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Returns true if the main thread was interrupted, which only that thread can say. The interrupt
/// is raised again: who called sees a stream that failed, and Python raises `KeyboardInterrupt`.
fn is_interrupted() -> bool {
    if rustix::thread::gettid() != rustix::process::getpid() {
        return false;
    }
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                let again = py.import("_thread").and_then(|own| own.call_method0("interrupt_main"));
                drop(again);
            }
            true
        }
    })
}

#[pymethods]
impl Scan {
    /// A capsule of the name `arrow_array_stream`: a new scan at each call. A requested schema is
    /// not honoured, which the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(self.start()));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// A capsule of the name `arrow_schema`.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(errors::argument)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The names of the columns, and their types in words of Arrow.
    fn columns(&self) -> Vec<(String, String)> {
        let fields = self.schema.fields().iter();
        fields.map(|field| (field.name().clone(), field.data_type().to_string())).collect()
    }

    /// Starts a scan that gives rows as dictionaries.
    fn rows(&self) -> Rows {
        Rows { stream: Mutex::new(self.start()), found: Arc::clone(&self.found) }
    }

    /// The damages that the last whole scan has met.
    fn damages(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.damages.iter().map(|damage| damage.object(py)).collect()
    }

    /// The number of values of the last whole scan that their columns cannot hold.
    fn unfit(&self) -> u64 {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).unfit
    }

    /// Writes a file of Parquet. Returns the number of rows.
    fn to_parquet(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        py.detach(|| self.write(&path)).map_err(|error| errors::output(&error))
    }
}

impl Scan {
    /// Writes a file beside its place, and renames it.
    fn write(&self, path: &Path) -> Result<u64, lastwords_arrow::Error> {
        let of = |error| lastwords_arrow::Error::File { path: path.to_owned(), error };
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.partial", std::process::id()));
        let partial = Partial(path.with_file_name(name));
        let mut out = BufWriter::new(File::create(&partial.0).map_err(of)?);
        let mut writer = Writer::new(Format::Parquet, &self.schema)?;
        let mut rows = 0_u64;
        for batch in self.start() {
            let batch = batch?;
            rows = rows.saturating_add(batch.num_rows() as u64);
            writer.write(&batch, &mut out)?;
        }
        writer.finish(&mut out)?;
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(of)?;
        std::fs::rename(&partial.0, path).map_err(of)?;
        Ok(rows)
    }
}

/// A file that is removed unless it was renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // After the rename there is no such file.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The batches of a scan, each as a list of dictionaries.
#[pyclass(frozen, module = "lastwords._native")]
pub(crate) struct Rows {
    stream: Mutex<Stream>,
    found: Arc<Mutex<Found>>,
}

#[pymethods]
impl Rows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let next = py.detach(|| self.stream.lock().unwrap_or_else(PoisonError::into_inner).next());
        match next {
            None => Ok(None),
            Some(Ok(batch)) => dictionaries(py, &batch).map(Some),
            Some(Err(error)) => {
                // The interrupt that was raised again comes first.
                py.check_signals()?;
                let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                let known = found.damages.first().map(|damage| damage.exception(py));
                Err(known.unwrap_or_else(|| Damage::said(&error).exception(py)))
            }
        }
    }
}
