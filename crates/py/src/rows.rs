//! Rows of record batches as objects of Python: a dictionary for each row. Null is `None`.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt64Type};
use arrow_array::{Array as _, RecordBatch};
use arrow_schema::DataType;
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Returns a list with a dictionary for each row. A timestamp is an integer of microseconds since
/// the epoch.
pub(crate) fn dictionaries<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<Bound<'py, PyList>> {
    let rows: Vec<Bound<'py, PyDict>> =
        std::iter::repeat_with(|| PyDict::new(py)).take(batch.num_rows()).collect();
    let schema = batch.schema();
    for (at, field) in schema.fields().iter().enumerate() {
        let name = pyo3::types::PyString::new(py, field.name());
        for (row, dictionary) in rows.iter().enumerate() {
            dictionary.set_item(&name, value(py, batch, at, row)?)?;
        }
    }
    PyList::new(py, rows)
}

fn value(py: Python<'_>, batch: &RecordBatch, column: usize, row: usize) -> PyResult<Py<PyAny>> {
    let array = batch.column(column);
    if array.is_null(row) {
        return Ok(py.None());
    }
    match array.data_type() {
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into_py_any(py),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into_py_any(py),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into_py_any(py),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).into_py_any(py),
        DataType::Boolean => array.as_boolean().value(row).into_py_any(py),
        DataType::Timestamp(..) => {
            array.as_primitive::<TimestampMicrosecondType>().value(row).into_py_any(py)
        }
        _ => array.as_string::<i32>().value(row).into_py_any(py),
    }
}
