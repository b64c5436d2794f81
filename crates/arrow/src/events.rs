//! The events of traces as record batches.
//!
//! Projection, names, CPUs, times and LIMIT are pushed down: the [`Selection`] of the events skips
//! what is not wanted before it is decoded, columns that are not wanted are not computed, and what
//! is behind the limit is not read.
//!
//! [`Selection`]: lastwords_render::select::Selection

use crate::fields::{Promoted, Scope, Taker};
use crate::keyed::Keyed;
use crate::rows::{Builder, Cell, Nulls, batch};
use crate::schema::{HEAD, PROMOTED, Table};
use crate::texts::Texts;
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use lastwords_ctf::Totals;
use lastwords_ctf::read::Error as Fault;
use lastwords_render::events::{Note, Take};
use lastwords_render::iter::{EventKind, EventRef, Events};
use lastwords_render::json::{Fields, Plan};
use lastwords_trace::class;
use std::sync::Arc;

/// Rows of a batch.
pub const BATCH_ROWS: usize = 16 << 10;
/// Bytes of the texts of a batch from which on it has no further row.
const MOST_BYTES: usize = 64 << 20;

/// The positions of columns in the table.
pub(crate) const CRASH_ID: usize = 0;
pub(crate) const TRACE: usize = 1;
pub(crate) const CHANNEL: usize = 2;
const TS: usize = 3;
const TIME: usize = 4;
const BEFORE_END: usize = 5;
const CPU: usize = 6;
const TID: usize = 7;
const PID: usize = 8;
const COMM: usize = 9;
pub(crate) const PROVIDER: usize = 10;
pub(crate) const NAME: usize = 11;
pub(crate) const LEVEL: usize = 12;
/// The positions of the columns behind the promoted ones.
const FIELDS: usize = HEAD.len() + PROMOTED.len();
const CONTEXT: usize = FIELDS + 1;

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
    row: Row<'t>,
    left: u64,
    batch: usize,
}

/// The row that is being made, and the rows before it.
struct Row<'t> {
    schema: SchemaRef,
    /// The positions in the table of the columns that are wanted.
    columns: Vec<usize>,
    /// The columns that are wanted, by their positions in the table. Those that [`Keyed`] makes are
    /// none here.
    builders: Vec<Option<Builder>>,
    nulls: Nulls,
    keyed: Keyed,
    /// The number of rows before this one.
    count: usize,
    /// The bytes of the texts in promoted columns.
    bytes: usize,
    /// Values of promoted fields that their columns cannot hold.
    unfit: u64,
    /// The ids, the fields and the contexts are wanted.
    has_ids: bool,
    has_fields: bool,
    has_promoted: bool,
    has_contexts: bool,
    /// The classes, by the numbers of their kinds.
    classes: Vec<Option<Prepared<'t>>>,
}

/// An event class.
struct Prepared<'t> {
    contexts: [Option<Plan<'t>>; 2],
    payload: Option<Scope<'t>>,
    /// A promoted column has a field of the class.
    has_columns: bool,
}

/// The position of the column of messages among the promoted ones.
pub(crate) const MESSAGE: usize = 3;

const CONTEXTS: [class::Scope; 2] = [class::Scope::CommonContext, class::Scope::SpecificContext];

impl<'t> Prepared<'t> {
    fn new(event: &EventRef<'_, 't>) -> Self {
        let payload = event.code(class::Scope::Payload).map(Scope::new);
        let context = |scope| event.code(scope).map(Plan::new);
        Self {
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
        let row = Row::new(schema, columns, Keyed::new(&facts));
        let left = wanted.limit.unwrap_or(u64::MAX);
        Ok(Self { events, facts, row, left, batch: wanted.batch.max(1) })
    }

    /// Returns the schema of the batches.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.row.schema)
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
        self.next_with(fault, None, None)
    }

    /// Returns the next batch as [`Batches::next_batch`] does, and passes each of its events to
    /// `seen`, and to `to` with what surrounds them.
    pub(crate) fn next_with(
        &mut self,
        fault: &mut dyn FnMut(Fault),
        mut seen: Option<&mut dyn FnMut(&Seen<'_>)>,
        mut to: Option<&mut (dyn Take + '_)>,
    ) -> Result<Option<RecordBatch>, ArrowError> {
        while self.left > 0 && self.row.count < self.batch && !self.row.is_large() {
            match self.events.advance_with(to.as_deref_mut()) {
                Some(mut event) => {
                    self.left = self.left.saturating_sub(1);
                    let facts = self.facts.get(event.trace());
                    let ids = self.row.put(&mut event, facts);
                    if let Some(seen) = seen.as_deref_mut() {
                        seen(&self.row.seen(&event, ids));
                    }
                    self.row.count = self.row.count.saturating_add(1);
                }
                None => match self.events.fault() {
                    Some(error) => fault(error),
                    None => break,
                },
            }
        }
        match self.row.count {
            0 => Ok(None),
            _ => self.row.finish().map(Some),
        }
    }

    /// Returns the number of values of promoted fields that their columns cannot hold: they are
    /// null there, and exact in the column `fields`.
    #[must_use]
    pub fn unfit(&self) -> u64 {
        self.row.unfit
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
    /// Prepares to make rows with the columns at some positions of the table.
    fn new(schema: SchemaRef, columns: Vec<usize>, keyed: Keyed) -> Self {
        let mut builders: Vec<Option<Builder>> =
            std::iter::repeat_with(|| None).take(CONTEXT.saturating_add(1)).collect();
        for (at, field) in columns.iter().zip(schema.fields()) {
            if let Some(place) = builders.get_mut(*at).filter(|_| !Keyed::has(*at)) {
                *place = Some(Builder::new(field.data_type()));
            }
        }
        let has = |from: usize, to: usize| columns.iter().any(|at| (from..to).contains(at));
        Self {
            has_ids: has(TID, PROVIDER),
            has_fields: has(FIELDS, CONTEXT),
            has_promoted: has(HEAD.len(), FIELDS),
            has_contexts: has(CONTEXT, usize::MAX),
            schema,
            columns,
            builders,
            nulls: Nulls::default(),
            keyed,
            count: 0,
            bytes: 0,
            unfit: 0,
            classes: Vec::new(),
        }
    }

    /// Returns true if the texts of the rows are so long that the batch is to end.
    fn is_large(&self) -> bool {
        let size = |at: usize| match self.builders.get(at) {
            Some(Some(Builder::Text(texts))) => texts.size(),
            _ => 0,
        };
        self.bytes.max(size(FIELDS)).max(size(CONTEXT)) >= MOST_BYTES
    }

    /// Sets the value of a column, if it is wanted.
    #[inline]
    fn set(&mut self, column: usize, cell: Cell<'_>) {
        if let Some(Some(builder)) = self.builders.get_mut(column) {
            builder.push(self.count, cell);
        }
    }

    /// Returns the text of a column in the row that is made.
    fn text(&self, column: usize) -> Option<&str> {
        match self.builders.get(column) {
            Some(Some(Builder::Text(texts))) => texts.get(self.count),
            _ => None,
        }
    }

    /// Makes the row of an event. Returns its thread and its process.
    fn put(
        &mut self,
        event: &mut EventRef<'_, 't>,
        facts: Option<&TraceFacts>,
    ) -> (Option<i64>, Option<i64>) {
        let (mut tid, mut pid) = (None, None);
        if self.has_ids {
            let ids = event.ids();
            (tid, pid) = (ids.tid, ids.pid);
            self.set(TID, Cell::Number(tid));
            self.set(PID, Cell::Number(pid));
            let comm = ids.comm.and_then(|comm| std::str::from_utf8(comm).ok());
            self.set(COMM, Cell::Text(comm.filter(|comm| !comm.is_empty())));
        }
        let number = event.kind_number();
        if self.classes.len() <= number {
            self.classes.resize_with(number.saturating_add(1), || None);
        }
        if let Some(place @ None) = self.classes.get_mut(number) {
            *place = Some(Prepared::new(event));
            self.keyed.describe(number, event.kind());
        }
        self.take(number, event);
        self.keyed.put(event.trace(), number);
        let time = event.time();
        self.set(TS, Cell::Number(time));
        self.set(TIME, Cell::Time(time.filter(|_| facts.is_some_and(|facts| facts.is_dated))));
        let end = facts.and_then(|facts| facts.end);
        self.set(BEFORE_END, Cell::Number(end.zip(time).and_then(|(end, at)| end.checked_sub(at))));
        self.set(CPU, Cell::Number(event.cpu().map(i64::from)));
        (tid, pid)
    }

    /// Returns the parts of an event from which the other tables are made. `ids` is what
    /// [`Row::put`] has returned of it.
    fn seen<'e>(
        &'e self,
        event: &'e EventRef<'_, 't>,
        (tid, pid): (Option<i64>, Option<i64>),
    ) -> Seen<'e> {
        Seen {
            trace: event.trace(),
            time: event.time(),
            tid,
            pid,
            comm: self.text(COMM),
            kind: event.kind(),
            message: self.text(HEAD.len().saturating_add(MESSAGE)),
        }
    }

    /// Takes the fields and contexts of an event, as far as they are wanted. `number` is that of its
    /// kind.
    fn take(&mut self, number: usize, event: &mut EventRef<'_, 't>) {
        let Some(Some(class)) = self.classes.get(number) else { return };
        let row = self.count;
        let Some((head, tail)) = self.builders.split_at_mut_checked(FIELDS) else { return };
        let promoted = head.get_mut(HEAD.len()..).unwrap_or_default();
        let (unfit, bytes) = (&mut self.unfit, &mut self.bytes);
        let [fields, contexts] = tail else { return };
        if self.has_contexts
            && class.contexts.iter().any(Option::is_some)
            && let Some(contexts) = contexts.as_mut().and_then(Builder::texts)
        {
            let json = contexts.begin(row);
            let begin = json.len();
            json.push(b'{');
            for (scope, context) in CONTEXTS.into_iter().zip(&class.contexts) {
                let Some(context) = context else { continue };
                event.visit(scope, &mut Fields::exact(json, context));
            }
            json.push(b'}');
            match json.len().saturating_sub(begin) {
                2 => contexts.cancel(),
                _ => contexts.end(),
            }
        }
        let mut fields = fields.as_mut().and_then(Builder::texts);
        let mut json = fields.as_mut().map(|fields| fields.begin(row));
        json.iter_mut().for_each(|json| json.push(b'{'));
        if let Some(payload) = &class.payload
            && (self.has_fields || self.has_promoted && class.has_columns)
        {
            let to = Promoted { columns: promoted, row, unfit, bytes };
            let out = json.as_deref_mut();
            event.visit(class::Scope::Payload, &mut Taker::new(payload, out, to));
        }
        json.into_iter().for_each(|json| json.push(b'}'));
        fields.into_iter().for_each(Texts::end);
    }

    /// Returns the rows, and begins anew.
    ///
    /// # Errors
    /// The texts of a column are too long.
    fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let count = std::mem::take(&mut self.count);
        self.bytes = 0;
        let keys = self.keyed.keys();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (at, field) in self.columns.iter().zip(self.schema.fields()) {
            arrays.push(match self.builders.get_mut(*at) {
                Some(Some(builder)) => self.nulls.finish(builder, field.data_type(), count)?,
                _ => self.keyed.column(*at, &keys)?,
            });
        }
        batch(&self.schema, arrays, count)
    }
}
