//! Waits for memory of the kernel.

use std::time::{Duration, Instant};

/// How long memory may be short.
const LONGEST: Duration = Duration::from_secs(10);

/// A wait for memory. For each read of `trace_pipe_raw`, the kernel asks for a page once and frees
/// nothing for it (`__GFP_NORETRY`), so that the read may fail with ENOMEM on a machine whose
/// memory is full of cached files. Nothing has left the ring then.
#[derive(Debug, Default)]
pub struct Shortage(Option<Instant>);

impl Shortage {
    /// Waits a moment after a read that found no memory. Returns false if that goes on for ten
    /// seconds.
    pub fn wait(&mut self) -> bool {
        let since = *self.0.get_or_insert_with(Instant::now);
        std::thread::sleep(Duration::from_millis(2));
        since.elapsed() < LONGEST
    }

    /// Notes a read that found memory.
    pub fn end(&mut self) {
        self.0 = None;
    }
}
