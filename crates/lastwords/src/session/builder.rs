//! What a session is asked to be.

use std::path::PathBuf;

use lastwords_abi::session::RESERVATION_LOCKED;
use lastwords_ring::{ClockKind, rseq_available};

use super::config::{ChannelConfig, Memory, Reservation, Scope};
use super::error::Error;
use super::layout::cpus;
use super::retention::Retention;
use super::rules::RuleSpec;

/// Configures a session. [`Builder::start`] begins it.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    pub(crate) name: String,
    /// What was asked for by name; [`Builder::channels`] has the default.
    pub(crate) channels: Vec<ChannelConfig>,
    pub(crate) memory: Memory,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) clock: Option<ClockKind>,
    pub(crate) scope: Scope,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) size_limit: u64,
    pub(crate) snapshot: bool,
    pub(crate) listen: bool,
    pub(crate) events: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) registry_len: u64,
    pub(crate) spans: u32,
    pub(crate) size: Option<u64>,
    /// Rules of the environment, which come after all others.
    pub(crate) rules: Vec<RuleSpec>,
    pub(crate) remove_at_end: bool,
    pub(crate) retention: Retention,
}

impl Builder {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            channels: Vec::new(),
            memory: Memory::default(),
            reservation: None,
            clock: None,
            scope: Scope::default(),
            dir: None,
            size_limit: u64::MAX,
            snapshot: false,
            listen: true,
            events: Vec::new(),
            env: Vec::new(),
            registry_len: 512 << 10,
            spans: 512,
            size: None,
            rules: Vec::new(),
            remove_at_end: false,
            retention: Retention::default(),
        }
    }

    /// Adds a channel. Without any, the session has two: `main`, and [`ChannelConfig::errors`] for warnings and errors besides.
    pub fn channel(mut self, channel: ChannelConfig) -> Self {
        self.channels.push(channel);
        self
    }

    /// Adds the channel [`ChannelConfig::errors`] to those that were added, or keeps it in the default.
    pub fn errors_channel(mut self) -> Self {
        if self.channels.is_empty() {
            self.channels = self.channels();
        }
        if self.channels.iter().any(|channel| channel.name == "errors") {
            return self;
        }
        self.channel(ChannelConfig::errors())
    }

    /// Where the memory comes from. Default: shared-memory files.
    pub fn backend(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// How space is reserved. Default: the fastest that works; the lock in persistent memory.
    pub fn reservation(mut self, reservation: Reservation) -> Self {
        self.reservation = Some(reservation);
        self
    }

    /// The clock. Default: the CPU's counter where it is sound, else CLOCK_MONOTONIC.
    pub fn clock(mut self, clock: ClockKind) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Who records in it.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The folder of sessions. Default: [`crate::dirs::base_path`].
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sizes the rings of the first channel so that those of all CPUs together take this many bytes at most; a sub-buffer has 4096
    /// bytes at least, and its size is a power of two. The environment can ask for the same (see the crate's first page).
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Most memory that the session may take, bytes. More is an error at the start.
    pub fn size_limit(mut self, bytes: u64) -> Self {
        self.size_limit = bytes;
        self
    }

    /// Allocates the spare for snapshots from the start.
    pub fn snapshot(mut self, on: bool) -> Self {
        self.snapshot = on;
        self
    }

    /// Whether a thread waits for changes by other processes, and once a second keeps the clock's calibration fresh. Default: yes.
    pub fn listen(mut self, on: bool) -> Self {
        self.listen = on;
        self
    }

    /// Enables events by a glob over `provider:name`; those of no glob are disabled. Without any, all are enabled.
    pub fn events(mut self, glob: impl Into<String>) -> Self {
        self.events.push(glob.into());
        self
    }

    /// A property of the trace, such as a version.
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Bytes for descriptions of events. Default: 512 KiB.
    pub fn registry_size(mut self, bytes: u64) -> Self {
        self.registry_len = bytes.clamp(4096, 1 << 30);
        self
    }

    /// Most spans that can be listed as open at a time; 0 for no table. Default: 512.
    pub fn spans(mut self, most: u32) -> Self {
        self.spans = most.min(1 << 20);
        self
    }

    /// Removes the session when it ends in good order: for tests, and for programs whose recordings nobody wants afterwards.
    /// What ended by a panic, an error or a death stays. Default: it stays whatever its end is, as long as retention keeps it.
    pub fn remove_at_end(mut self, on: bool) -> Self {
        self.remove_at_end = on;
        self
    }

    /// Which ended sessions stay when this one begins. Default: [`Retention::default`].
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    pub(crate) fn channels(&self) -> Vec<ChannelConfig> {
        let mut channels = match self.channels.is_empty() {
            true => vec![ChannelConfig::new("main"), ChannelConfig::errors()],
            false => self.channels.clone(),
        };
        if let (Some(bytes), Some(first)) = (self.size, channels.first_mut()) {
            // A ring for each CPU, and one for threads without restartable sequences.
            let each = bytes / (u64::from(cpus()) + 1) / u64::from(first.sub_buffers.max(1));
            first.sub_buffer_size = (1 << each.max(1).ilog2()).clamp(4096, 1 << 30);
        }
        channels
    }

    /// The reservation's code; the default where none was asked for.
    pub(crate) fn reservation_code(&self, persistent: bool) -> Result<u32, Error> {
        match self.reservation {
            Some(Reservation::Rseq) if !rseq_available() => Err(Error::Unsupported {
                what: "reservation rseq",
                why: "restartable sequences are not registered for this thread".to_owned(),
                remedy: "use glibc 2.35 or newer without GLIBC_TUNABLES=glibc.pthread.rseq=0, or choose lockless",
            }),
            Some(Reservation::Rseq) if persistent => Err(Error::Unsupported {
                what: "reservation rseq",
                why: "it does not flush persistent memory".to_owned(),
                remedy: "choose locked or lockless",
            }),
            Some(chosen) => Ok(chosen.code()),
            None if persistent => Ok(RESERVATION_LOCKED),
            None if rseq_available() => Ok(Reservation::Rseq.code()),
            None => Ok(Reservation::Lockless.code()),
        }
    }
}
