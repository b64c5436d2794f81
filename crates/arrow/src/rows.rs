//! Builds record batches row by row.

use crate::schema::Kind;
use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Int32Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, SchemaRef};

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

enum Builder {
    Long(Int64Builder),
    Int(Int32Builder),
    Text(StringBuilder),
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

impl Builder {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Long => Self::Long(Int64Builder::new()),
            Kind::Int => Self::Int(Int32Builder::new()),
            Kind::Text => Self::Text(StringBuilder::new()),
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Time => Self::Time(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
        }
    }

    /// Returns the column of this number of rows, and begins anew.
    fn finish(&mut self, rows: usize) -> ArrayRef {
        match self {
            Self::Long(builder) => ArrayBuilder::finish(padded!(builder, rows)),
            Self::Int(builder) => ArrayBuilder::finish(padded!(builder, rows)),
            Self::Text(builder) => ArrayBuilder::finish(padded!(builder, rows)),
            Self::Bool(builder) => ArrayBuilder::finish(padded!(builder, rows)),
            Self::Time(builder) => ArrayBuilder::finish(padded!(builder, rows)),
        }
    }

    /// Sets the value of a row. Most columns have few values, so a null is not appended before a
    /// later row has a value.
    fn push(&mut self, row: usize, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Long(builder), Cell::Number(Some(value))) => {
                padded!(builder, row).append_value(value);
            }
            (Self::Int(builder), Cell::Number(Some(value))) => {
                if let Ok(value) = i32::try_from(value) {
                    padded!(builder, row).append_value(value);
                }
            }
            (Self::Text(builder), Cell::Text(Some(value))) => {
                padded!(builder, row).append_value(value);
            }
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
}

fn kind(of: &DataType) -> Kind {
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
    count: usize,
}

impl Rows {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        let columns =
            schema.fields().iter().map(|field| Builder::new(kind(field.data_type()))).collect();
        Self { schema, columns, count: 0 }
    }

    /// Returns the number of rows.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Sets the value of a column in the row that is being made. Without one it is null.
    pub(crate) fn cell(&mut self, column: usize, cell: Cell<'_>) {
        if let Some(builder) = self.columns.get_mut(column) {
            builder.push(self.count, cell);
        }
    }

    /// Ends a row.
    pub(crate) fn end_row(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// Appends a row with a value for each column.
    pub(crate) fn row(&mut self, cells: &[Cell<'_>]) {
        for (column, cell) in cells.iter().enumerate() {
            self.cell(column, *cell);
        }
        self.end_row();
    }

    /// Returns the rows, and begins anew.
    ///
    /// # Errors
    /// A column that must have values has none for a row.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let count = std::mem::take(&mut self.count);
        let columns = self.columns.iter_mut().map(|builder| builder.finish(count)).collect();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
    }
}
