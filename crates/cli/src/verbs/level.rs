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

    /// Returns the word, as the command line and filters take it.
    pub(crate) fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the word of a level of the library, as the command line takes it.
    pub(crate) fn word(level: lastwords::Level) -> String {
        let own = Self::value_variants().iter().find(|own| own.of_library() == Some(level));
        own.map_or_else(String::new, |own| own.name())
    }
}
