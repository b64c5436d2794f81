//! The program of the book that logs with the crate `log`, until it is killed.
#![forbid(unsafe_code)]

use log::{Log, Metadata, Record, info, warn};
use std::time::Duration;

/// The logger. A program has that of `env_logger`, `fern` or another crate here.
struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("{} {}: {}", record.level(), record.target(), record.args());
        }
    }

    fn flush(&self) {}
}

fn main() -> Result<(), log::SetLoggerError> {
    lastwords::start("logging");
    lastwords::layer::init_logger(Logger)?;

    for id in 1u64.. {
        info!("order {id} of {}", "Ada");
        if id % 50 == 0 {
            warn!("the payment of order {id} was slow");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
