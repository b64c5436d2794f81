//! The file `error_log`: why the last writes were refused, in the kernel's layout.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};

/// Number of errors that are kept, as in the kernel.
const KEPT: usize = 8;

/// The last errors of a buffer.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog(Mutex<VecDeque<String>>);

/// A command that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The file or the parser that refuses it.
    pub(crate) place: String,
    /// The reason and the way that works.
    pub(crate) why: String,
    /// The offset in the command where the reason is, in characters.
    pub(crate) offset: usize,
}

impl Refusal {
    /// Makes a refusal of a whole command.
    pub(crate) fn new(place: impl Into<String>, why: impl Into<String>) -> Self {
        Self { place: place.into(), why: why.into(), offset: 0 }
    }
}

impl ErrorLog {
    /// Adds a command that was refused.
    pub(crate) fn add(&self, command: &str, refusal: &Refusal) {
        let now = clock_gettime(ClockId::Monotonic);
        let Refusal { place, why, offset } = refusal;
        let command: String =
            command.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let text = format!(
            "[{:5}.{:06}] {place}: error: {why}\n  Command: {command}\n           {:offset$}^\n",
            now.tv_sec,
            now.tv_nsec / 1000,
            ""
        );
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        errors.push_back(text);
        while errors.len() > KEPT {
            errors.pop_front();
        }
    }

    /// Forgets all errors.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the errors, the oldest first.
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ftracetest's `ftrace_errlog_check` counts the caret's column like this.
    #[test]
    fn the_caret_stands_below_the_offset() {
        let log = ErrorLog::default();
        log.add("a == = 1\n", &Refusal { place: "p".into(), why: "w".into(), offset: 5 });
        let text = log.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("] p: error: w"), "{text}");
        assert_eq!(lines[1], "  Command: a == = 1");
        assert_eq!(lines[2].len() + 1, 13 + 5, "{text}");
    }

    #[test]
    fn the_last_errors_are_kept() {
        let log = ErrorLog::default();
        (0..20).for_each(|n| log.add(&format!("command {n}"), &Refusal::new("p", "w")));
        let text = log.text();
        assert!(
            !text.contains("command 11\n")
                && text.contains("command 12\n")
                && text.contains("command 19\n")
        );
        log.clear();
        assert_eq!(log.text(), "");
    }
}
