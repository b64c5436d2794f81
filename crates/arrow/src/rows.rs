//! Builds record batches row by row.

use crate::schema::Kind;
use crate::texts::Texts;
use arrow_array::builder::{
    ArrayBuilder as _, BooleanBuilder, Int32Builder, Int64Builder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{ArrowError, DataType, FieldRef, SchemaRef};
use std::sync::Arc;

/// A value of a row. None is null.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell<'a> {
    /// BIGINT or INTEGER. A value that the column cannot hold is null.
    Number(Option<i64>),
    /// VARCHAR.
    Text(Option<&'a str>),
    /// BOOLEAN.
    Bool(Option<bool>),
    /// Nanoseconds since the epoch for a TIMESTAMP.
    Time(Option<i64>),
}

/// A column under construction.
pub(crate) enum Builder {
    Long(Int64Builder),
    Int(Int32Builder),
    Text(Texts),
    Bool(BooleanBuilder),
    Time(TimestampMicrosecondBuilder),
}

/// Appends nulls for the rows before this one that have no value. Returns the builder.
macro_rules! padded {
    ($builder:expr, $row:expr) => {{
        let missing = $row.saturating_sub($builder.len());
        if missing > 0 {
            $builder.append_nulls(missing);
        }
        $builder
    }};
}

/// Returns the column of this number of rows, and begins anew with room for as many.
macro_rules! finished {
    ($builder:expr, $rows:expr, $new:expr) => {{
        let mut done = std::mem::replace($builder, $new);
        Arc::new(padded!(&mut done, $rows).finish())
    }};
}

impl Builder {
    pub(crate) fn new(kind: &DataType) -> Self {
        match kind_of(kind) {
            Kind::Long => Self::Long(Int64Builder::with_capacity(0)),
            Kind::Int => Self::Int(Int32Builder::with_capacity(0)),
            Kind::Text => Self::Text(Texts::default()),
            Kind::Bool => Self::Bool(BooleanBuilder::with_capacity(0)),
            Kind::Time => Self::Time(times(0)),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Long(builder) => builder.is_empty(),
            Self::Int(builder) => builder.is_empty(),
            Self::Text(builder) => builder.len() == 0,
            Self::Bool(builder) => builder.is_empty(),
            Self::Time(builder) => builder.is_empty(),
        }
    }

    /// Returns the column of this number of rows, and begins anew.
    ///
    /// # Errors
    /// The texts are too long for a column.
    fn finish(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        let column: ArrayRef = match self {
            Self::Long(builder) => finished!(builder, rows, Int64Builder::with_capacity(rows)),
            Self::Int(builder) => finished!(builder, rows, Int32Builder::with_capacity(rows)),
            Self::Text(builder) => Arc::new(builder.finish(rows)?),
            Self::Bool(builder) => finished!(builder, rows, BooleanBuilder::with_capacity(rows)),
            Self::Time(builder) => finished!(builder, rows, times(rows)),
        };
        Ok(column)
    }

    /// Sets the value of a row: the last row, or one after it. Most columns have few values, so a
    /// null is not appended before a later row has a value.
    #[inline]
    pub(crate) fn push(&mut self, row: usize, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Long(builder), Cell::Number(Some(value))) => {
                match builder.values_slice_mut().get_mut(row) {
                    Some(place) => *place = value,
                    None => padded!(builder, row).append_value(value),
                }
            }
            (Self::Int(builder), Cell::Number(Some(value))) => {
                if let Ok(value) = i32::try_from(value) {
                    padded!(builder, row).append_value(value);
                }
            }
            (Self::Text(builder), Cell::Text(Some(value))) => builder.push(row, value.as_bytes()),
            (Self::Bool(builder), Cell::Bool(Some(value))) => {
                padded!(builder, row).append_value(value);
            }
            (Self::Time(builder), Cell::Time(Some(nanoseconds))) => {
                padded!(builder, row).append_value(nanoseconds.div_euclid(1000));
            }
            // Null, or not of this column: rows are written with the cells of their schema.
            _ => {}
        }
    }

    /// Returns the texts, if it is a column of texts.
    pub(crate) fn texts(&mut self) -> Option<&mut Texts> {
        match self {
            Self::Text(texts) => Some(texts),
            _ => None,
        }
    }
}

fn times(rows: usize) -> TimestampMicrosecondBuilder {
    TimestampMicrosecondBuilder::with_capacity(rows).with_timezone("UTC")
}

/// Columns without values. One of each type serves all columns and batches.
#[derive(Default)]
pub(crate) struct Nulls(Vec<ArrayRef>);

impl Nulls {
    /// Returns the column without values of this type and number of rows.
    fn column(&mut self, kind: &DataType, rows: usize) -> ArrayRef {
        let is_known = |own: &&ArrayRef| own.data_type() == kind && own.len() >= rows;
        if let Some(known) = self.0.iter().find(is_known) {
            return known.slice(0, rows);
        }
        let new = new_null_array(kind, rows);
        self.0.retain(|own| own.data_type() != kind);
        self.0.push(Arc::clone(&new));
        new
    }

    /// Returns the column of this number of rows, and begins the builder anew.
    ///
    /// # Errors
    /// The texts are too long for a column.
    pub(crate) fn finish(
        &mut self,
        builder: &mut Builder,
        kind: &DataType,
        rows: usize,
    ) -> Result<ArrayRef, ArrowError> {
        if builder.is_empty() { Ok(self.column(kind, rows)) } else { builder.finish(rows) }
    }
}

fn kind_of(of: &DataType) -> Kind {
    match of {
        DataType::Int64 => Kind::Long,
        DataType::Int32 => Kind::Int,
        DataType::Boolean => Kind::Bool,
        DataType::Timestamp(..) => Kind::Time,
        _ => Kind::Text,
    }
}

/// Rows under construction.
pub(crate) struct Rows {
    schema: SchemaRef,
    columns: Vec<Builder>,
    nulls: Nulls,
    count: usize,
}

impl Rows {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        let columns = schema.fields().iter().map(|field| Builder::new(field.data_type())).collect();
        Self { schema, columns, nulls: Nulls::default(), count: 0 }
    }

    /// Returns the number of rows.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Appends a row with a value for each column.
    pub(crate) fn row(&mut self, cells: &[Cell<'_>]) {
        for (builder, cell) in self.columns.iter_mut().zip(cells) {
            builder.push(self.count, *cell);
        }
        self.count = self.count.saturating_add(1);
    }

    /// Returns the rows, and begins anew.
    ///
    /// # Errors
    /// A column that must have values has none for a row.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let count = std::mem::take(&mut self.count);
        let fields = self.schema.fields().iter().zip(&mut self.columns);
        let column = |(field, builder): (&FieldRef, &mut Builder)| {
            self.nulls.finish(builder, field.data_type(), count)
        };
        let columns = fields.map(column).collect::<Result<_, _>>()?;
        batch(&self.schema, columns, count)
    }
}

/// Returns a batch of this number of rows.
///
/// # Errors
/// A column that must have values has none for a row.
pub(crate) fn batch(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}
