//! Texts of events as the kernel's `trace` file has them. It shares no code with the program that
//! is judged.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

/// Events, and how often each is there.
#[derive(Default)]
pub struct Events {
    counts: BTreeMap<String, usize>,
    /// All events.
    pub total: usize,
}

impl FromIterator<String> for Events {
    fn from_iter<T: IntoIterator<Item = String>>(all: T) -> Self {
        let mut events = Self::default();
        for event in all {
            *events.counts.entry(event).or_default() += 1;
            events.total += 1;
        }
        events
    }
}

impl Events {
    /// How often an event is there.
    pub fn count(&self, event: &str) -> usize {
        self.counts.get(event).copied().unwrap_or(0)
    }

    /// Counts the events that are not among `others`, each as often as it is there; with examples.
    pub fn without(&self, others: &Self) -> (usize, Vec<&str>) {
        let extra = |(event, count): (&String, &usize)| count.saturating_sub(others.count(event));
        let examples =
            self.counts.iter().filter(|entry| extra(*entry) > 0).map(|(event, _)| event.as_str());
        (self.counts.iter().map(extra).sum(), examples.take(3).collect())
    }
}

/// The line of an event without the name of its task: `PID [CPU] …`.
pub fn without_task(line: &str) -> Option<String> {
    if line.starts_with('#') || line.starts_with("CPU:") {
        return None;
    }
    let at = line
        .match_indices(" [")
        .map(|(at, _)| at)
        .find(|at| line.get(at + 5..at + 7) == Some("] "))?;
    let pid = line.get(..at)?.trim_end().rsplit_once('-')?.1;
    Some(format!("{pid}{}", line.get(at..)?))
}

/// Reads a text, in which task names need not be UTF-8.
pub fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
