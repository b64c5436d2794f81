//! Turns errors into the exceptions of `lastwords._errors`. Each has the file, the offset and the
//! value, as far as they are known.

use lastwords_ctf::read::Error as Fault;
use pyo3::prelude::*;

/// A part of an input that cannot be read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Damage {
    message: String,
    path: Option<String>,
    offset: Option<u64>,
    value: Option<u64>,
}

impl From<&Fault> for Damage {
    fn from(fault: &Fault) -> Self {
        let message = fault.to_string();
        let shown = |path: &std::path::Path| Some(path.display().to_string());
        match fault {
            Fault::Packet { path, offset, source } => Self {
                message,
                path: shown(path),
                offset: Some(offset.saturating_add(source.at / 8)),
                value: Some(source.value),
            },
            Fault::Io { path, .. } | Fault::Metadata { path, .. } | Fault::Schema { path, .. } => {
                Self { message, path: shown(path), ..Self::default() }
            }
            Fault::SubBuffer { defect, .. } => {
                Self { message, value: Some(defect.sequence), ..Self::default() }
            }
        }
    }
}

impl From<&lastwords_ctf::Error> for Damage {
    fn from(error: &lastwords_ctf::Error) -> Self {
        let message = error.to_string();
        match error {
            lastwords_ctf::Error::Io { path, .. } => {
                Self { message, path: Some(path.display().to_string()), ..Self::default() }
            }
            lastwords_ctf::Error::Input(own) => Self {
                message,
                path: Some(own.what.clone()),
                offset: Some(own.offset),
                value: own.value,
            },
            _ => Self { message, ..Self::default() },
        }
    }
}

impl Damage {
    /// Returns an error of which only a sentence is known.
    pub(crate) fn said(error: &impl ToString) -> Self {
        Self { message: error.to_string(), ..Self::default() }
    }

    /// Returns the sentence about the error.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the exception.
    pub(crate) fn exception(&self, py: Python<'_>) -> PyErr {
        let Self { message, path, offset, value } = self;
        made(py, "ReadError", (message, path, offset, value))
    }

    /// Returns the exception as an object.
    pub(crate) fn object(&self, py: Python<'_>) -> Py<PyAny> {
        self.exception(py).into_value(py).into_any()
    }
}

/// Returns the exception for an argument that cannot be.
pub(crate) fn argument(message: impl ToString) -> PyErr {
    Python::attach(|py| made(py, "ArgumentError", (message.to_string(),)))
}

/// Returns the exception for a name that no event has.
pub(crate) fn unknown(name: &str, near: Vec<String>) -> PyErr {
    Python::attach(|py| made(py, "UnknownEventError", (name, near)))
}

/// Returns the exception for an output that cannot be written.
pub(crate) fn output(error: &lastwords_arrow::Error) -> PyErr {
    let path = match error {
        lastwords_arrow::Error::File { path, .. } => Some(path.display().to_string()),
        _ => None,
    };
    Python::attach(|py| made(py, "WriteError", (error.to_string(), path)))
}

/// Makes an exception of the Python half.
fn made<'py, A: pyo3::call::PyCallArgs<'py>>(py: Python<'py>, class: &str, arguments: A) -> PyErr {
    let made = py
        .import("lastwords._errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}
