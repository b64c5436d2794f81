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

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Long(builder) => ArrayBuilder::finish(builder),
            Self::Int(builder) => ArrayBuilder::finish(builder),
            Self::Text(builder) => ArrayBuilder::finish(builder),
            Self::Bool(builder) => ArrayBuilder::finish(builder),
            Self::Time(builder) => ArrayBuilder::finish(builder),
        }
    }

    fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Long(builder), Cell::Number(value)) => builder.append_option(value),
            (Self::Int(builder), Cell::Number(value)) => {
                builder.append_option(value.and_then(|value| i32::try_from(value).ok()));
            }
            (Self::Text(builder), Cell::Text(value)) => builder.append_option(value),
            (Self::Bool(builder), Cell::Bool(value)) => builder.append_option(value),
            (Self::Time(builder), Cell::Time(value)) => {
                builder.append_option(value.map(|nanoseconds| nanoseconds.div_euclid(1000)));
            }
            // The columns are written with the cells of their schema.
            (Self::Long(builder), _) => builder.append_null(),
            (Self::Int(builder), _) => builder.append_null(),
            (Self::Text(builder), _) => builder.append_null(),
            (Self::Bool(builder), _) => builder.append_null(),
            (Self::Time(builder), _) => builder.append_null(),
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

    /// Appends a value to a column.
    pub(crate) fn cell(&mut self, column: usize, cell: Cell<'_>) {
        self.columns.get_mut(column).into_iter().for_each(|builder| builder.push(cell));
    }

    /// Ends a row, each column of which has its value.
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
    /// A column has no value for a row, or a row that must have a value has none.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let columns = self.columns.iter_mut().map(Builder::finish).collect();
        let options = arrow_array::RecordBatchOptions::new()
            .with_row_count(Some(std::mem::take(&mut self.count)));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
    }
}
