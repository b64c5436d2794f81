//! Severities of events, as the command line takes them.

use clap::ValueEnum;

/// A severity.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    /// Returns the level of the library.
    pub(crate) fn of_library(self) -> Option<lastwords::Level> {
        lastwords::Level::from_number(self as u32 + 1)
    }

    /// Returns the word of a level of the library, as the command line takes it.
    pub(crate) fn word(level: lastwords::Level) -> String {
        let own = Self::value_variants().iter().find(|own| own.of_library() == Some(level));
        let value = own.and_then(clap::ValueEnum::to_possible_value);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
