//! The native half of the Python package `lastwords`: opens inputs, and hands their events over as
//! streams of Arrow.
//!
//! The Python half (`python/lastwords`) has the interface that users see. This half gives it
//! [`Recording`](recording::Recording), what was opened, and [`Scan`](scan::Scan), a selection of
//! events. A scan has the method `__arrow_c_stream__` of the Arrow PyCapsule interface: each call
//! starts a thread that reads the events anew, and returns the receiving end as a capsule. So the
//! interpreter runs while events are read, and at most a few batches are in memory.
#![deny(unsafe_code)]

mod errors;
mod recording;
mod rows;
mod scan;
mod typed;

use arrow_schema::DataType;
use lastwords_arrow::Table;
use pyo3::prelude::*;

/// The native half of the package.
#[pymodule(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("TABLES_VERSION", lastwords_arrow::VERSION)?;
    module.add_class::<recording::Recording>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<scan::Rows>()?;
    module.add_function(wrap_pyfunction!(table_columns, module)?)?;
    module.add_function(wrap_pyfunction!(recording::open, module)?)
}

/// The columns of a table of data sets: the name of each, and its type in words of SQL. None if
/// there is no such table.
#[pyfunction]
fn table_columns(name: &str) -> Option<Vec<(String, &'static str)>> {
    let table = Table::ALL.into_iter().find(|table| table.name() == name)?;
    let kind = |kind: &DataType| match kind {
        DataType::Int64 => "BIGINT",
        DataType::Int32 => "INTEGER",
        DataType::Boolean => "BOOLEAN",
        DataType::Timestamp(..) => "TIMESTAMP",
        _ => "VARCHAR",
    };
    let schema = table.schema();
    let fields = schema.fields().iter();
    Some(fields.map(|field| (field.name().clone(), kind(field.data_type()))).collect())
}
