//! Shows progress on stderr if that is a terminal and the work takes long.

use crate::table::plain;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Work shorter than this shows no progress.
const SHORT: Duration = Duration::from_millis(500);

/// A progress bar over bytes.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    total: u64,
    begun: Instant,
    terminal: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Makes a bar. The bar appears after half a second of work.
    pub(crate) fn new(what: impl Into<String>, total: u64) -> Self {
        Self {
            what: what.into(),
            total,
            begun: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// Sets how many bytes are done since the beginning.
    pub(crate) fn set(&mut self, done: u64) {
        if !self.terminal || (self.bar.is_none() && self.begun.elapsed() < SHORT) {
            return;
        }
        let (what, total) = (&self.what, self.total);
        let bar = self.bar.get_or_insert_with(|| bar(what, total, done));
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

/// A progress bar that several threads share.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<(Progress, u64)>);

impl Shared {
    /// Makes a shared bar that begins now.
    pub(crate) fn new(what: impl Into<String>, total: u64) -> Self {
        Self(Mutex::new((Progress::new(what, total), 0)))
    }

    /// Adds bytes that are done.
    pub(crate) fn add(&self, bytes: u64) {
        let (progress, done) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *done = done.saturating_add(bytes);
        progress.set(*done);
    }
}

/// Shows the progress of work that need not end at its total, such as searches of images. It
/// appears after half a second of work.
pub(crate) struct Spinner {
    bar: ProgressBar,
    begun: Instant,
    terminal: bool,
}

impl Spinner {
    /// Makes a spinner that begins now.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {spinner}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self { bar, begun: Instant::now(), terminal: std::io::stderr().is_terminal() }
    }

    /// Shows how far the work is.
    pub(crate) fn show(&self, progress: lastwords_image::Progress<'_>) {
        if self.terminal && self.begun.elapsed() > SHORT {
            self.bar.set_message(progress.what.to_owned());
            self.bar.set_length(progress.total.unwrap_or(progress.done));
            self.bar.set_position(progress.done);
        }
    }

    /// Removes the spinner from the terminal.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Returns a bar that begins at `done`, so that earlier work does not count for its speed.
fn bar(what: &str, total: u64, done: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template(
        "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_message(plain(what));
    bar.set_position(done);
    bar.reset_eta();
    bar
}

/// Formats a number of bytes: `512 B`, `1.50 MiB`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}
