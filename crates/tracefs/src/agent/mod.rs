//! Records a guest from its host, with clocks that are related.
//!
//! In the guest, an [`Agent`] listens. On the host, a [`Guest`] connects to it and says what to
//! record ([`Wanted`]). The agent records in an instance of its own, and its events go to the host
//! while it records, so that they outlive the guest. Two connections carry a recording, and the host
//! makes both: one for questions and answers (`wire`), and one for the stream of events
//! ([`lastwords_stream::wire`]).
//!
//! Each second, the host asks for the reading of the guest's clock (`clocks`). It takes the reading
//! for that of the middle between question and answer, and keeps the answer that came soonest. The
//! difference of the clocks is wrong by half of that time at most, or by less if a better measurement
//! is near. The files have the options
//! TRACEID, GUEST and TIME_SHIFT, by which trace-cmd, KernelShark and `lastwords report` show the
//! events of both by the clock of the host.
//!
//! The agent runs as root and does not know who asks. It takes no path, no command and no name of
//! an instance, trigger or probe from a host: only events with filters, a tracer, functions, threads,
//! CPUs, options of the tracer and sizes, all of which are checked and limited. One host records at
//! a time. Connections that say nothing keep no host out (`newcomers`). A host that asks nothing for
//! 30 seconds is taken for gone: the recording ends, and the tracer is left as it was found.
//!
//! This is no agent of trace-cmd: that takes the words of a command line from its peer, and needs
//! trace-cmd at both ends.

mod clocks;
mod guest;
mod newcomers;
mod serve;
mod wire;

pub use clocks::{ClockShift, Measured};
pub use guest::{Guest, GuestPlan, Related, SavedGuest};
pub use serve::{Agent, AgentNews};
pub use wire::{Wanted, WantedEvents};

use std::time::Duration;

/// How long a host may ask nothing while the agent records for it.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a peer may take for its first words, and a host for its second connection.
const HEAD: Duration = Duration::from_secs(10);
/// How long a host waits for an answer about the clock.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a host waits until the agent has begun or ended a recording.
const WORK: Duration = Duration::from_secs(60);
/// How often a host asks for the guest's clock, and how long it goes on asking.
const EACH: Duration = Duration::from_secs(1);
/// How long an agent may go on to send after a host has stopped the recording. Its rings have 64 MiB
/// for each CPU at most.
const REST: Duration = Duration::from_secs(600);
/// Why a peer is not waited for.
const ENDED: &str = "it was not waited for, because a signal ended that";
