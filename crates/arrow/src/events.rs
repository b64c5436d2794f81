//! The events of traces as record batches.
//!
//! Projection, names, CPUs, times and LIMIT are pushed down: the [`Selection`] of the events skips
//! what is not wanted before it is decoded, columns that are not wanted are not computed, and what
//! is behind the limit is not read.
//!
//! [`Selection`]: lastwords_render::select::Selection

use crate::fields::{Scope, Slot, Taken, Taker};
use crate::rows::{Cell, Rows};
use crate::schema::{HEAD, PROMOTED, Table};
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use lastwords_ctf::Totals;
use lastwords_ctf::read::Error as Fault;
use lastwords_render::events::Note;
use lastwords_render::iter::{EventKind, EventRef, Events};
use lastwords_trace::class;
use std::collections::HashMap;
use std::sync::Arc;

/// Rows of a batch.
pub const BATCH_ROWS: usize = 16 << 10;

/// The facts of a trace that its rows have besides the events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceFacts {
    /// The id of its crash.
    pub crash_id: String,
    /// Its name.
    pub name: String,
    /// The time of the newest event of the crash by the clock of the trace; none if it is not
    /// known.
    pub end: Option<i64>,
    /// Times are related to real time.
    pub is_dated: bool,
}

/// The columns and rows that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The names of columns, in the order of the table; none for all of them.
    pub columns: Option<Vec<String>>,
    /// The greatest number of rows.
    pub limit: Option<u64>,
    /// Rows of a batch.
    pub batch: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { columns: None, limit: None, batch: BATCH_ROWS }
    }
}

/// The parts of an event from which the other tables are made.
pub(crate) struct Seen<'e> {
    /// The position of its trace among those that are read.
    pub(crate) trace: usize,
    pub(crate) time: Option<i64>,
    pub(crate) tid: Option<i64>,
    pub(crate) pid: Option<i64>,
    pub(crate) comm: Option<&'e str>,
    pub(crate) kind: &'e EventKind,
    /// The field `message`, if the event has one that is text.
    pub(crate) message: Option<&'e str>,
}

/// Reads events as record batches.
pub struct Batches<'t> {
    events: Events<'t>,
    facts: Vec<TraceFacts>,
    schema: SchemaRef,
    row: Row<'t>,
    left: u64,
    batch: usize,
}

/// The row that is being made, and the rows before it.
struct Row<'t> {
    rows: Rows,
    /// The positions in the table of the columns that are wanted.
    columns: Vec<usize>,
    /// The ids, the fields and the contexts are wanted.
    has_ids: bool,
    has_fields: bool,
    has_promoted: bool,
    has_contexts: bool,
    /// The classes, by the addresses of their kinds.
    classes: HashMap<usize, Prepared<'t>>,
    taken: Taken,
    comm: Vec<u8>,
    fields: Vec<u8>,
    contexts: Vec<u8>,
}

/// An event class.
struct Prepared<'t> {
    /// Keeps the address of the kind, by which the class is found.
    _kind: Arc<EventKind>,
    contexts: [Option<Scope<'t>>; 2],
    payload: Option<Scope<'t>>,
    /// A promoted column has a field of the class.
    has_columns: bool,
}

/// The position of the column of messages among the promoted ones.
pub(crate) const MESSAGE: usize = 3;

const CONTEXTS: [class::Scope; 2] = [class::Scope::CommonContext, class::Scope::SpecificContext];

impl<'t> Prepared<'t> {
    fn new(event: &EventRef<'_, 't>) -> Self {
        let payload = event.code(class::Scope::Payload).map(|code| Scope::new(code, true));
        let context = |scope| event.code(scope).map(|code| Scope::new(code, false));
        Self {
            _kind: Arc::clone(event.kind()),
            contexts: CONTEXTS.map(context),
            has_columns: payload.as_ref().is_some_and(Scope::has_columns),
            payload,
        }
    }
}

impl<'t> Batches<'t> {
    /// Prepares to read events. `facts` has an entry for each trace of `events`.
    ///
    /// # Errors
    /// The table has no column of a name.
    pub fn new(
        events: Events<'t>,
        facts: Vec<TraceFacts>,
        wanted: &Wanted,
    ) -> Result<Self, ArrowError> {
        let table = Table::Events.schema();
        let (schema, columns) = projected(&table, wanted.columns.as_deref())?;
        let has = |from: usize, to: usize| columns.iter().any(|at| (from..to).contains(at));
        let tail = HEAD.len().saturating_add(PROMOTED.len());
        let row = Row {
            rows: Rows::new(Arc::clone(&schema)),
            has_ids: has(7, 10),
            has_fields: has(tail, tail.saturating_add(1)),
            has_promoted: has(HEAD.len(), tail),
            has_contexts: has(tail.saturating_add(1), usize::MAX),
            columns,
            classes: HashMap::new(),
            taken: Taken::default(),
            comm: Vec::new(),
            fields: Vec::new(),
            contexts: Vec::new(),
        };
        let left = wanted.limit.unwrap_or(u64::MAX);
        Ok(Self { events, facts, schema, row, left, batch: wanted.batch.max(1) })
    }

    /// Returns the schema of the batches.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Returns the next batch, or none after the last one. `fault` receives what cannot be read;
    /// reading goes on behind it.
    ///
    /// # Errors
    /// A batch cannot be built.
    pub fn next_batch(
        &mut self,
        fault: &mut dyn FnMut(Fault),
    ) -> Result<Option<RecordBatch>, ArrowError> {
        self.next_with(fault, &mut |_| {})
    }

    /// Returns the next batch as [`Batches::next_batch`] does, and passes each of its events to
    /// `seen`.
    pub(crate) fn next_with(
        &mut self,
        fault: &mut dyn FnMut(Fault),
        seen: &mut dyn FnMut(&Seen<'_>),
    ) -> Result<Option<RecordBatch>, ArrowError> {
        while self.left > 0 && self.row.rows.count() < self.batch {
            match self.events.advance() {
                Some(mut event) => {
                    self.left = self.left.saturating_sub(1);
                    let facts = self.facts.get(event.trace());
                    self.row.put(&mut event, facts.unwrap_or(&TraceFacts::default()), seen);
                }
                None => match self.events.fault() {
                    Some(error) => fault(error),
                    None => break,
                },
            }
        }
        match self.row.rows.count() {
            0 => Ok(None),
            _ => self.row.rows.finish().map(Some),
        }
    }

    /// Returns the number of values of promoted fields that their columns cannot hold: they are
    /// null there, and exact in the column `fields`.
    #[must_use]
    pub fn unfit(&self) -> u64 {
        self.row.taken.unfit
    }

    /// Reports the losses and faults of each trace to `notes`, and returns the counts of all
    /// traces. `bytes` is the number of bytes written.
    ///
    /// # Errors
    /// None is expected: they are those of a writer that failed.
    pub fn finish(self, bytes: u64, notes: &mut dyn FnMut(Note)) -> lastwords_ctf::Result<Totals> {
        self.events.finish(None, bytes, notes)
    }
}

/// Returns the schema of some columns of a table, and their positions.
fn projected(
    table: &Schema,
    columns: Option<&[String]>,
) -> Result<(SchemaRef, Vec<usize>), ArrowError> {
    let positions: Vec<usize> = match columns {
        None => (0..table.fields().len()).collect(),
        Some(names) => {
            let mut positions =
                names.iter().map(|name| table.index_of(name)).collect::<Result<Vec<_>, _>>()?;
            positions.sort_unstable();
            positions.dedup();
            positions
        }
    };
    Ok((Arc::new(table.project(&positions)?), positions))
}

impl<'t> Row<'t> {
    /// Appends the row of an event.
    fn put(
        &mut self,
        event: &mut EventRef<'_, 't>,
        facts: &TraceFacts,
        seen: &mut dyn FnMut(&Seen<'_>),
    ) {
        let mut ids = (None, None);
        self.comm.clear();
        if self.has_ids {
            let found = event.ids();
            ids = (found.tid, found.pid);
            self.comm.extend_from_slice(found.comm.unwrap_or_default());
        }
        self.take(event);
        let time = event.time();
        let kind = event.kind();
        let comm = std::str::from_utf8(&self.comm).ok().filter(|comm| !comm.is_empty());
        let tail = HEAD.len().saturating_add(PROMOTED.len());
        for (at, column) in self.columns.iter().enumerate() {
            let cell = match *column {
                0 => Cell::Text(Some(&facts.crash_id)),
                1 => Cell::Text(Some(&facts.name)),
                2 => Cell::Text(Some(&kind.channel)),
                3 => Cell::Number(time),
                4 => Cell::Time(time.filter(|_| facts.is_dated)),
                5 => Cell::Number(facts.end.zip(time).and_then(|(end, at)| end.checked_sub(at))),
                6 => Cell::Number(event.cpu().map(i64::from)),
                7 => Cell::Number(ids.0),
                8 => Cell::Number(ids.1),
                9 => Cell::Text(comm),
                10 => Cell::Text(kind.provider.as_deref()),
                11 => Cell::Text(Some(&kind.name)),
                12 => Cell::Text(kind.level.map(class::LogLevel::word)),
                promoted if promoted < tail => self.taken.cell(promoted.saturating_sub(HEAD.len())),
                fields if fields == tail => Cell::Text(std::str::from_utf8(&self.fields).ok()),
                _ => Cell::Text(
                    std::str::from_utf8(&self.contexts).ok().filter(|text| *text != "{}"),
                ),
            };
            self.rows.cell(at, cell);
        }
        self.rows.end_row();
        let message = match self.taken.cell(MESSAGE) {
            Cell::Text(message) => message,
            _ => None,
        };
        let (tid, pid) = ids;
        seen(&Seen { trace: event.trace(), time, tid, pid, comm, kind, message });
    }

    /// Takes the fields and contexts of an event, as far as they are wanted.
    fn take(&mut self, event: &mut EventRef<'_, 't>) {
        self.taken.clear();
        if !(self.has_fields || self.has_promoted || self.has_contexts) {
            return;
        }
        let key = Arc::as_ptr(event.kind()).addr();
        let class = self.classes.entry(key).or_insert_with(|| Prepared::new(event));
        self.fields.clear();
        self.fields.push(b'{');
        if let Some(payload) = &class.payload
            && (self.has_fields || self.has_promoted && class.has_columns)
        {
            let json = self.has_fields.then_some(&mut self.fields);
            event.visit(class::Scope::Payload, &mut Taker::new(payload, json, &mut self.taken));
        }
        self.fields.push(b'}');
        self.contexts.clear();
        self.contexts.push(b'{');
        if self.has_contexts {
            for (scope, context) in CONTEXTS.into_iter().zip(&class.contexts) {
                let Some(context) = context else { continue };
                let json = Some(&mut self.contexts);
                event.visit(scope, &mut Taker::new(context, json, &mut self.taken));
            }
        }
        self.contexts.push(b'}');
    }
}

impl Taken {
    /// Returns the value of a promoted column.
    fn cell(&self, column: usize) -> Cell<'_> {
        let kind = PROMOTED.get(column).map(|(_, kind)| *kind);
        match self.slots.get(column) {
            Some(Slot::Long(value)) => Cell::Number(Some(*value)),
            Some(Slot::Text(range)) => Cell::Text(
                self.texts.get(range.clone()).and_then(|text| std::str::from_utf8(text).ok()),
            ),
            _ if kind == Some(crate::schema::Kind::Text) => Cell::Text(None),
            _ => Cell::Number(None),
        }
    }
}
