//! The columns of `events` whose texts are the same for all events of a trace or of a kind. A row
//! has only the numbers of its trace and its kind; a column is made of them for a whole batch.

use crate::events::{CHANNEL, CRASH_ID, LEVEL, NAME, PROVIDER, TRACE, TraceFacts};
use arrow_array::{Array as _, ArrayRef, StringArray, UInt32Array};
use arrow_schema::ArrowError;
use arrow_select::take::take;
use lastwords_render::iter::EventKind;
use lastwords_trace::class::LogLevel;
use std::sync::Arc;

/// The texts, and the rows so far.
pub(crate) struct Keyed {
    /// The ids of the crashes and the names of the traces, with those of an unknown trace behind
    /// them.
    traces: [StringArray; 2],
    /// The kinds, by their numbers.
    kinds: Vec<Option<Arc<EventKind>>>,
    /// The trace and the kind of each row.
    rows: (Vec<u32>, Vec<u32>),
    /// The columns of `traces` that were made last for rows of one trace.
    constants: [Option<(u32, ArrayRef)>; 2],
}

/// The traces and the kinds of the rows of a batch.
pub(crate) struct Keys {
    traces: UInt32Array,
    kinds: UInt32Array,
    /// The only trace of all rows, if there is only one.
    trace: Option<u32>,
}

impl Keyed {
    pub(crate) fn new(facts: &[TraceFacts]) -> Self {
        let texts = |of: fn(&TraceFacts) -> &str| {
            StringArray::from_iter_values(facts.iter().map(of).chain([""]))
        };
        Self {
            traces: [texts(|facts| &facts.crash_id), texts(|facts| &facts.name)],
            kinds: Vec::new(),
            rows: (Vec::new(), Vec::new()),
            constants: [None, None],
        }
    }

    /// Returns true if the column at a position of the table is made here.
    pub(crate) fn has(column: usize) -> bool {
        [CRASH_ID, TRACE, CHANNEL, PROVIDER, NAME, LEVEL].contains(&column)
    }

    /// Takes the kind of a number.
    pub(crate) fn describe(&mut self, number: usize, kind: &Arc<EventKind>) {
        self.kinds.resize(self.kinds.len().max(number.saturating_add(1)), None);
        if let Some(place) = self.kinds.get_mut(number) {
            *place = Some(Arc::clone(kind));
        }
    }

    /// Appends a row: an event of a trace and of a kind.
    #[inline]
    pub(crate) fn put(&mut self, trace: usize, kind: usize) {
        let trace = trace.min(self.traces[0].len().saturating_sub(1));
        self.rows.0.push(u32::try_from(trace).unwrap_or(u32::MAX));
        self.rows.1.push(u32::try_from(kind).unwrap_or(u32::MAX));
    }

    /// Returns the keys of the rows, and begins anew.
    pub(crate) fn keys(&mut self) -> Keys {
        let count = self.rows.0.len();
        let new = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (traces, kinds) = std::mem::replace(&mut self.rows, new);
        let first = traces.first().copied();
        let trace = first.filter(|first| traces.iter().all(|own| own == first));
        Keys { traces: traces.into(), kinds: kinds.into(), trace }
    }

    /// Returns the column at a position of the table.
    ///
    /// # Errors
    /// The texts are too long for a column.
    pub(crate) fn column(&mut self, column: usize, keys: &Keys) -> Result<ArrayRef, ArrowError> {
        let of_kind: fn(&EventKind) -> Option<&str> = match column {
            CRASH_ID => return self.of_traces(0, keys),
            TRACE => return self.of_traces(1, keys),
            CHANNEL => |kind| Some(&kind.channel),
            PROVIDER => |kind| kind.provider.as_deref(),
            NAME => |kind| Some(&kind.name),
            _ => |kind| kind.level.map(LogLevel::word),
        };
        let texts: StringArray = self.kinds.iter().map(|kind| of_kind(kind.as_ref()?)).collect();
        take(&texts, &keys.kinds, None)
    }

    fn of_traces(&mut self, which: usize, keys: &Keys) -> Result<ArrayRef, ArrowError> {
        let (Some(texts), Some(constant)) = (self.traces.get(which), self.constants.get_mut(which))
        else {
            return Err(ArrowError::InvalidArgumentError("no such column".to_owned()));
        };
        let rows = keys.traces.len();
        let Some(trace) = keys.trace else { return take(texts, &keys.traces, None) };
        if let Some((own, made)) = constant
            && *own == trace
            && made.len() >= rows
        {
            return Ok(made.slice(0, rows));
        }
        let made = take(texts, &keys.traces, None)?;
        *constant = Some((trace, Arc::clone(&made)));
        Ok(made)
    }
}
