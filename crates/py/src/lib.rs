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

use pyo3::prelude::*;

/// The native half of the package.
#[pymodule(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("TABLES_VERSION", lastwords_arrow::VERSION)?;
    module.add_class::<recording::Recording>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<scan::Rows>()?;
    module.add_function(wrap_pyfunction!(recording::open, module)?)
}
