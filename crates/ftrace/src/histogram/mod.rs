//! Histograms of the kernel's tracer, as the file `hist` of an event prints them
//! (`Documentation/trace/histogram.rst`).
//!
//! A trigger `hist:keys=…` counts the occurrences of its event by key. The file has the text of
//! each of its event's histograms, with the trigger, one row for each key, and totals. [`parse`]
//! reads such a text back; a [`Histogram`] is displayed as the kernel's text.
//!
//! The text is not unambiguous: a key that is a text of another program is printed as it is, and
//! may look like more keys or like a row. The keys are therefore divided by the names that the
//! trigger has, and [`Histogram::is_whole`] compares what was read with the kernel's totals.

mod row;
mod write;

pub(crate) use write::PERCENT;

use crate::UNKNOWN;
use std::fmt;

/// Before the names that a file of several histograms has. The kernel's text does not say which
/// event it is of.
const INSTANCE: &str = "# instance: ";
const EVENT: &str = "# event: ";
/// The line of a trigger.
const TRIGGER: &str = "# trigger info: ";

/// Returns the lines that name the event of the texts that follow.
///
/// ```
/// let text = lastwords_ftrace::histogram::heading("own", "sched:sched_switch");
/// assert_eq!(text, "# instance: own\n# event: sched:sched_switch\n");
/// ```
#[must_use]
pub fn heading(instance: &str, event: &str) -> String {
    format!("{INSTANCE}{instance}\n{EVENT}{event}\n")
}

/// A histogram.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The instance of the tracer; empty if no [`heading`] names it.
    pub instance: String,
    /// The event as `SYSTEM:EVENT`; empty if no [`heading`] names it.
    pub event: String,
    /// The trigger, as the kernel prints it.
    pub trigger: String,
    /// `active` or `paused`.
    pub state: String,
    /// The rows, in the kernel's order.
    pub rows: Vec<Row>,
    /// Occurrences of the event that were counted in a row. The actions of histograms count here
    /// too.
    pub hits: u64,
    /// Rows, by the kernel's count.
    pub entries: u64,
    /// Occurrences for whose key the histogram had no room.
    pub dropped: u64,
}

/// A row: a key, and what was counted for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// The parts of the key by name.
    pub keys: Vec<(String, Key)>,
    /// The values by name. The first is `hitcount`, unless the trigger has `nohitcount`.
    pub values: Vec<(String, Value)>,
    /// What the actions of the trigger print of this row, by line.
    pub more: Vec<String>,
}

/// A part of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// A number. The kernel prints negative ones as numbers of 64 bits without a sign.
    Number(u64),
    /// A text.
    Text(String),
    /// A number with the name that the kernel has for it: a symbol with or without offset, a
    /// system call, a thread.
    Named {
        /// The name.
        name: String,
        /// The number; the address of a symbol.
        number: u64,
    },
    /// Numbers above 2 to the power of `N - 1` and up to 2 to the power of `N` (`.log2`).
    Power(u64),
    /// Numbers of an interval (`.buckets=SIZE`).
    Range {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// A stack, the innermost function first.
    Stack(Vec<String>),
    /// A dump lacks it.
    Unknown,
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A sum.
    Number(u64),
    /// What the kernel makes of a sum: a part of the total (`.percent`), or a bar (`.graph`).
    Text(String),
    /// A dump lacks it.
    Unknown,
}

/// Why a text is none of histograms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The line, from 1.
    pub line: usize,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for Error {}

impl Histogram {
    /// Returns true if the rows are as many as the kernel counted. They are not if a text in a key
    /// looks like a row.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.rows.len() as u64 == self.entries
    }
}

/// Reads the text of a file `hist`, or several such texts, each after its [`heading`].
///
/// # Errors
/// A line is none of a histogram's, or totals are missing.
///
/// ```
/// use lastwords_ftrace::histogram::{Key, Value, parse};
///
/// let text = "# event histogram\n#\n# trigger info: hist:keys=pid.hex:vals=hitcount:sort=hitcount:size=2048 [active]\n#\n\n\
///             { pid: 1f } hitcount:          3\n\nTotals:\n    Hits: 3\n    Entries: 1\n    Dropped: 0\n";
/// let histogram = &parse(text)?[0];
/// assert_eq!(histogram.rows[0].keys, [("pid".to_owned(), Key::Number(31))]);
/// assert_eq!(histogram.rows[0].values, [("hitcount".to_owned(), Value::Number(3))]);
/// # Ok::<(), lastwords_ftrace::histogram::Error>(())
/// ```
pub fn parse(text: &str) -> Result<Vec<Histogram>, Error> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut instance, mut event) = (String::new(), String::new());
    let mut histograms = Vec::new();
    let mut at = 0_usize;
    while let Some(line) = lines.get(at) {
        if let Some(name) = line.strip_prefix(INSTANCE) {
            name.clone_into(&mut instance);
        } else if let Some(name) = line.strip_prefix(EVENT) {
            name.clone_into(&mut event);
        } else if let Some(trigger) = line.strip_prefix(TRIGGER) {
            let (histogram, end) = one(&lines, at, trigger)?;
            let (instance, event) = (instance.clone(), event.clone());
            histograms.push(Histogram { instance, event, ..histogram });
            at = end;
        } else if !(line.is_empty() || line.starts_with('#')) {
            let why = "it is no line of a histogram, which begins with its trigger".to_owned();
            return Err(Error { line: at.saturating_add(1), why });
        }
        at = at.saturating_add(1);
    }
    Ok(histograms)
}

/// Reads the histogram whose trigger is in the line `at`, and returns its last line.
fn one(lines: &[&str], at: usize, trigger: &str) -> Result<(Histogram, usize), Error> {
    let (trigger, state) = trigger
        .trim_end()
        .rsplit_once(" [")
        .and_then(|(trigger, state)| Some((trigger, state.strip_suffix(']')?)))
        .unwrap_or((trigger, ""));
    let form = row::Form::parse(trigger);
    let begin = at.saturating_add(1);
    let rest = lines.get(begin..).unwrap_or_default();
    // A text in a key may have a line of this kind too, but hardly with totals after it.
    let is_total = |at: &usize| {
        let words = ["Totals:", "    Hits: ", "    Entries: ", "    Dropped: "];
        let own = rest.get(*at..).unwrap_or_default();
        own.len() >= words.len() && own.iter().zip(words).all(|(line, word)| line.starts_with(word))
    };
    let totals = (0..rest.len()).find(is_total).ok_or_else(|| Error {
        line: begin,
        why: format!("the totals of the histogram {trigger} are missing"),
    })?;
    let number = |after: usize| {
        let at = totals.saturating_add(after);
        let number = rest.get(at).and_then(|line| line.rsplit(' ').next()?.parse().ok());
        number.ok_or_else(|| Error {
            line: begin.saturating_add(at).saturating_add(1),
            why: "a total is no number".to_owned(),
        })
    };
    let rows = form.rows(rest.get(..totals).unwrap_or_default()).map_err(|(at, why)| {
        let line = begin.saturating_add(at).saturating_add(1);
        Error { line, why }
    })?;
    let histogram = Histogram {
        trigger: trigger.to_owned(),
        state: state.to_owned(),
        rows,
        hits: number(1)?,
        entries: number(2)?,
        dropped: number(3)?,
        ..Histogram::default()
    };
    Ok((histogram, begin.saturating_add(totals).saturating_add(3)))
}

#[cfg(test)]
mod tests;
