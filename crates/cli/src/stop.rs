//! Notices signals that end programs, so that a verb that goes on until it is ended can end in good
//! order.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Set by a signal that ends the program.
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Makes signals that end programs set the flag. A second one ends the program at once.
    pub(crate) fn on_signals() -> anyhow::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let again = signal_hook::flag::register_conditional_default(signal, Arc::clone(&came));
            again
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&came)))
                .context("signals cannot be handled")?;
        }
        Ok(Self(came))
    }

    /// Returns true if a signal came. The flag carries no other data, so it needs no order.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits; returns false if a signal came.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        if !self.came() {
            std::thread::sleep(time);
        }
        !self.came()
    }
}
