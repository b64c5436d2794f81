//! What a recording is to do.

use crate::choice::Choice;
use crate::definitions::DefinitionKind;
use crate::rule::Rule;
use lastwords_stream::Address;
use std::path::PathBuf;
use std::time::Duration;

/// One more instance of a recording, beside the main one. Its events go into the same file.
#[derive(Debug, Clone, Default)]
pub struct Buffer {
    /// The name of the instance. One that exists is used as [`Plan::instance`] says.
    pub name: String,
    /// The events to record.
    pub events: Vec<Rule>,
    /// The tracer; none for no tracer.
    pub tracer: Option<String>,
    /// The functions, processes, CPUs and options.
    pub choice: Choice,
    /// Bytes of the ring of each CPU, as that of a [`Plan`].
    pub size: Option<u64>,
    /// The clock, as that of a [`Plan`].
    pub clock: Option<String>,
}

/// The settings of a recording.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The name of the instance; none for `lastwords-PID`. One that exists keeps its settings but
    /// for those that are given here, and is left as it was found.
    pub instance: Option<String>,
    /// The events to record.
    pub events: Vec<Rule>,
    /// The tracer, such as `function`; none for no tracer.
    pub tracer: Option<String>,
    /// The functions, processes, CPUs and options.
    pub choice: Choice,
    /// Events to define and record, with their kinds and the user's texts.
    pub definitions: Vec<(DefinitionKind, String)>,
    /// More instances. A receiver takes none of them.
    pub buffers: Vec<Buffer>,
    /// Bytes of the ring of each CPU; none for 8 MiB, or the rings of an instance that exists.
    pub size: Option<u64>,
    /// The clock; none for `mono`, or the clock of an instance that exists. Only `mono`,
    /// `mono_raw`, `boot` and `tai` can be related to clocks of user space.
    pub clock: Option<String>,
    /// A full ring refuses new events. By default, it overwrites the oldest.
    pub discard: bool,
    /// Events are moved to files while recording goes on. By default, the rings keep the newest.
    pub stream: bool,
    /// The receiver to send events to while recording goes on; none to save the trace in a file.
    pub receiver: Option<Address>,
    /// How often a receiver gets the events of sub-buffers that are not full; zero: when they are
    /// full, or at the end.
    pub flush: Duration,
    /// Which events the snapshots of triggers have, and how many there may be.
    pub snapshots: Snapshots,
    /// The file to save the trace as. With a receiver, it is written only if the stream breaks,
    /// and gets what could not be sent.
    pub output: PathBuf,
    /// The recording goes on when this program has ended ([`crate::Recording::leave`]). It has no
    /// file until it is extracted, and its instance is named `lastwords` by default.
    pub stays: bool,
    /// An existing file is replaced.
    pub force: bool,
    /// The folder for the journal, which must exist and belong to the user alone.
    pub journals: PathBuf,
}

impl Plan {
    /// Returns a plan for one of [`Plan::buffers`] alone.
    pub(crate) fn of_buffer(&self, buffer: &Buffer) -> Self {
        Self {
            instance: Some(buffer.name.clone()),
            events: buffer.events.clone(),
            tracer: buffer.tracer.clone(),
            choice: buffer.choice.clone(),
            size: buffer.size,
            clock: buffer.clock.clone(),
            definitions: Vec::new(),
            buffers: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the clock of an instance that the recording makes.
    pub(crate) fn clock(&self) -> &str {
        self.clock.as_deref().unwrap_or("mono")
    }
}

/// Returns the text of `buffer_size_kb` for a ring of so many bytes.
pub(crate) fn kib(bytes: u64) -> String {
    bytes.div_ceil(1024).max(1).to_string()
}

/// Which events the snapshots have, and how many there may be.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// The time before the trigger; none for all that the rings have.
    pub before: Option<Duration>,
    /// The time behind the trigger; zero: nothing is cut at the end.
    pub after: Duration,
    /// At most so many snapshots in any such time; none: no limit.
    pub limit: Option<(u32, Duration)>,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self { before: None, after: Duration::ZERO, limit: Some((4, Duration::from_secs(60))) }
    }
}

impl Snapshots {
    /// Returns true if the snapshots are cut.
    pub(crate) fn has_window(&self) -> bool {
        self.before.is_some() || !self.after.is_zero()
    }
}
