//! A progress bar on stderr, where that is a terminal and the work is long.

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Shorter work shows nothing.
const SHORT: Duration = Duration::from_millis(500);

/// Bytes done of bytes to do.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    total: u64,
    begun: Instant,
    terminal: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins; nothing is shown before the work has taken half a second.
    pub(crate) fn new(what: impl Into<String>, total: u64) -> Self {
        Self { what: what.into(), total, begun: Instant::now(), terminal: std::io::stderr().is_terminal(), bar: None }
    }

    /// That many bytes are done, counted from the begin.
    pub(crate) fn set(&mut self, done: u64) {
        if !self.terminal || (self.bar.is_none() && self.begun.elapsed() < SHORT) {
            return;
        }
        let (what, total) = (&self.what, self.total);
        let bar = self.bar.get_or_insert_with(|| bar(what, total));
        if done > self.total {
            bar.set_length(done);
        }
        bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_message(what.to_owned());
    bar
}

/// `512 B`, `1.50 MiB`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}
