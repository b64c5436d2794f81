//! Records of the crate `log`, for programs that have a logger of their own. A logger cannot be
//! replaced or wrapped once it is installed, so the program installs it in ours.
//!
//! A record takes no way through a dispatcher of `tracing`: a program with a subscriber for
//! `tracing` no longer passes the events of `tracing` to its logger.

use tracing_core::field::Value;
use tracing_core::{Event, Metadata};
use tracing_log::AsTrace as _;
use tracing_log::log::{self, LevelFilter, Log, Record, SetLoggerError};

use super::{program, recording};
use crate::session::shared;

/// A logger that records each record into the sessions of this process, and then passes it to
/// another logger. See [`init_logger`].
#[derive(Debug)]
pub struct Logger<L>(L);

/// Returns a logger that records, and passes each record to `next`. [`init_logger`] installs it
/// too.
#[must_use]
pub fn logger<L: Log>(next: L) -> Logger<L> {
    program::is_used();
    Logger(next)
}

/// Installs a logger of the crate `log` as the program's, so that its records are recorded, too.
/// The logger gets the records as before, and decides which of them it shows:
///
/// ```
/// # struct Shown;
/// # impl log::Log for Shown {
/// #     fn enabled(&self, _: &log::Metadata<'_>) -> bool { true }
/// #     fn log(&self, _: &log::Record<'_>) {}
/// #     fn flush(&self) {}
/// # }
/// # #[cfg(feature = "tracing")] {
/// // In a program with `env_logger`: its logger, which `env_logger::init()` installs otherwise.
/// # let logger = Shown;
/// // let logger = env_logger::Builder::from_default_env().build();
/// lastwords::layer::init_logger(logger)?;
/// log::info!("listening");
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The maximum level becomes `TRACE`, so that all records can be recorded. For a logger that has no
/// filter of its own, call `log::set_max_level` afterwards.
///
/// # Errors
/// The program has a logger already. Then nothing is changed.
pub fn init_logger(next: impl Log + 'static) -> Result<(), SetLoggerError> {
    log::set_boxed_logger(Box::new(logger(next)))?;
    log::set_max_level(LevelFilter::Trace);
    Ok(())
}

impl<L: Log> Log for Logger<L> {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        shared::all().next().is_some() || self.0.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        record_it(record);
        self.0.log(record);
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// Records a record as the event that the crate tracing-log makes of it.
fn record_it(record: &Record<'_>) {
    // The level's callsite in tracing-log, from which an event is recognised as a record. The
    // macros of `tracing` rely on the field of `Identifier`, too.
    let callsite = record.metadata().as_trace().callsite().0;
    let metadata: &'static Metadata<'static> = callsite.metadata();
    let mut fields = metadata.fields().iter();
    let [Some(message), Some(target), Some(module), Some(file), Some(line)] =
        [(); 5].map(|()| fields.next())
    else {
        return;
    };
    let (in_module, in_file, at_line) = (record.module_path(), record.file(), record.line());
    let values = [
        (&message, Some(record.args() as &dyn Value)),
        (&target, Some(&record.target() as &dyn Value)),
        (&module, in_module.as_ref().map(|module| module as &dyn Value)),
        (&file, in_file.as_ref().map(|file| file as &dyn Value)),
        (&line, at_line.as_ref().map(|line| line as &dyn Value)),
    ];
    recording::event_of_thread(&Event::new(metadata, &metadata.fields().value_set(&values)));
}
