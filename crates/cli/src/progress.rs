//! A progress bar on stderr, where that is a terminal and the work is long.

use crate::table::plain;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
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

/// The same for work that several threads do, or several places.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<(Progress, u64)>);

impl Shared {
    /// Begins.
    pub(crate) fn new(what: impl Into<String>, total: u64) -> Self {
        Self(Mutex::new((Progress::new(what, total), 0)))
    }

    /// So many bytes more are done.
    pub(crate) fn add(&self, bytes: u64) {
        let (progress, done) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *done = done.saturating_add(bytes);
        progress.set(*done);
    }
}

/// Shows work that says how far it is, as searches of images do, which need not end at their totals; nothing is shown before it has
/// taken half a second.
pub(crate) struct Spinner {
    bar: ProgressBar,
    begun: Instant,
    terminal: bool,
}

impl Spinner {
    /// Begins.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {spinner}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self { bar, begun: Instant::now(), terminal: std::io::stderr().is_terminal() }
    }

    /// Tells how far it is.
    pub(crate) fn tell(&self, progress: lastwords_image::Progress<'_>) {
        if self.terminal && self.begun.elapsed() > SHORT {
            self.bar.set_message(progress.what.to_owned());
            self.bar.set_length(progress.total.unwrap_or(progress.done));
            self.bar.set_position(progress.done);
        }
    }

    /// Ends.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// A bar, and where it begins: what was done before is not in its speed.
fn bar(what: &str, total: u64, done: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_message(plain(what));
    bar.set_position(done);
    bar.reset_eta();
    bar
}

/// `512 B`, `1.50 MiB`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}
