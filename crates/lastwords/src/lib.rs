//! The library that an application links to record its last words. Events go into ring buffers in
//! shared memory, which outlive the process: after a crash or a `kill -9`, the program `lastwords`
//! recovers them.
//!
//! # Quick start
//!
//! Start, and record until the process ends:
//!
//! ```no_run
//! use lastwords::{event, mark};
//!
//! lastwords::start("shop");
//! event!(shop, "order", id = 7u64, items = 3u32, customer = "Ada");
//! event!(shop, "slow_payment", level: WARN, id = 7u64, millis = 740u32);
//! mark!("the cache has {} entries", 12u32);
//! ```
//!
//! [`start`](fn@start) records panics and fatal signals too, and never stops the program.
//! [`Session::builder`] has sessions with settings of their own.
//!
//! Nothing has to be flushed, and no daemon has to run. However the program ends, its events are
//! there:
//!
//! ```text
//! lastwords list                   sessions, and how and when each ended
//! lastwords report shop            the events as text, and what was lost
//! lastwords view shop              a timeline in the browser
//! lastwords report shop --follow   events of a running program as they are recorded
//! ```
//!
//! A program that uses `tracing`, such as a server with tokio, adds the layer to its subscriber. All
//! its spans and events are recorded from then on:
//!
//! ```no_run
//! # #[cfg(feature = "tracing")] {
//! use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};
//!
//! lastwords::start("server");
//! let log = tracing_subscriber::fmt::layer();
//! tracing_subscriber::registry().with(log).with(lastwords::layer()).init();
//! # }
//! ```
//!
//! | you want | see |
//! | --- | --- |
//! | events, and fields of all types | [`event!`], [`mark!`], [`Field`] |
//! | size, channels, kind of memory | [`Builder`], [`ChannelConfig`], [`Memory`] |
//! | spans and events of `tracing`, records of `log` | [`layer()`](fn@layer), module `layer` |
//! | counters and histograms | [`counter!`], [`histogram!`], [`Counter`], [`Histogram`] |
//! | panics and signals with a backtrace | [`crash`] |
//! | to keep the moments before an error while the program goes on | [`trigger()`], [`condition`] |
//! | values that each event has, such as a request id | [`context`] |
//! | to keep values out of the session | [`secret()`], [`hashed()`], [`Builder::secret`] |
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `tracing` | yes | module `layer`: the subscriber for `tracing`, the layer for `tracing-subscriber`, and records of `log` |
//!
//! # What an application can rely on
//!
//! - *Errors.* [`Builder::start`] returns an error if the session cannot start. With
//!   [`Builder::start_or_disabled`] the application continues without a session, and events cost
//!   what disabled ones do. Recording an event reports no error; an event that finds no room is
//!   counted.
//! - *Threads.* Every function may be called from every thread. After its first use on a thread, an
//!   enabled event takes no lock, allocates nothing and makes no system call.
//!   [`Reservation::Locked`] takes a lock, which a dead owner never keeps.
//! - *Signals.* Events may be recorded in signal handlers, and leave `errno` as it was. The
//!   session's own thread blocks all signals. [`crash::install_signal_handlers`] calls the previous
//!   handler, or lets the signal kill the process as it would have.
//! - *fork.* A forked child records in the session of its parent. The end of the child is not the
//!   end of the session while the parent records in it.
//! - *Threads that outlive `main`.* If `main` ends by `pthread_exit`, the process ends within about
//!   two seconds after its last thread, with status 0. The session's own thread does not keep it
//!   alive, if the thread of `main` started the session and `/proc` is there.
//! - *dlopen.* A library that records stays in memory when it is closed, because its memory
//!   contains the descriptions of its events.
//! - *The end.* A session stays when it ends, with how and when it ended ([`Ended`]), until
//!   [`Retention`] or [`Session::remove`] removes it. Memory of a heap or memfd session goes with
//!   its process, unless the core helper copies it when a signal kills the process (`lastwords
//!   core-helper`).
//! - *Containers.* Sessions are in `$LASTWORDS_DIR`, else `$XDG_RUNTIME_DIR/lastwords`, else
//!   `/dev/shm/lastwords-UID`. A container's own `/dev/shm` is removed with the container: mount a
//!   folder of the host, on a tmpfs, and set `LASTWORDS_DIR` to it. The session shows whether its
//!   process lives, because the kernel marks it when the process dies. So readers and retention
//!   need not see the processes of another container.
//!
//! # The variable `LASTWORDS`
//!
//! Like `RUST_LOG` for logs, the variable selects what is recorded, for all sessions of the
//! process. It is applied after the program's own settings:
//! `LASTWORDS=shop=debug,net::tx,size=64M,retain=10`.
//!
//! | directive | meaning |
//! | --- | --- |
//! | `info` | events of all targets, of this level (`off`, `error`, `warn`, `info`, `debug`, `trace`) and more severe ones |
//! | `shop`, `shop=debug` | events of the target `shop` and of those below it, of all levels or up to one; all others are off |
//! | `shop:order=off` | a glob over `provider:name` |
//! | `size=64M` | the rings of the first channel take at most so many bytes, all CPUs together ([`Builder::size`]) |
//! | `persist=event` | when events are written back to persistent memory: `none`, `sub-buffer` or `event` ([`Builder::persist`]) |
//! | `retain=10`, `retain_size=2G` | ended sessions of each name that stay; bytes of all that stay ([`Retention`]) |
//!
//! The last directive that matches an event decides. A wrong directive is ignored, and
//! [`Session::note`] reports it. The variable is ignored in secure execution (set-user-ID
//! programs).
//!
//! `LASTWORDS_SECRET` and `LASTWORDS_HASHED` have globs over the names of fields whose values are
//! hidden, such as `password,*.token`: see [`Builder::secret`], [`Builder::hashed`], and
//! [`secret()`] and [`hashed()`] for single values.

pub mod crash;
mod handle;
#[cfg(feature = "tracing")]
pub mod layer;
mod macros;
mod process;
mod record;
mod session;
mod start;
mod trigger;

pub use handle::Session;
#[doc(inline)]
pub use lastwords_abi::context::Context;
pub use lastwords_ring::{ClockKind, Persist, rseq_available};
#[cfg(feature = "tracing")]
pub use layer::layer;
pub use process::clock;
pub use record::context;
pub use record::encode::{
    Element, Field, Hashed, Hex, Integer, Labeled, Out, Secret, hashed, hex, secret,
};
pub use record::metrics::{Counter, Histogram};
pub use session::desc::{EventDesc, FieldDesc, FieldType};
pub use session::trigger::Triggered;
pub use session::{
    Builder, ChannelConfig, Ended, Ending, Error, Level, Memory, Reservation, Retention, Scope,
    Window,
};
pub use start::start;
pub use trigger::trigger;

/// Conditions on events, which fire triggers.
pub mod condition {
    pub use crate::session::action::Action;
    pub use crate::session::condition::{Condition, Latency, MOST};
}

/// Rules: which events a channel takes.
pub mod rules {
    pub use crate::session::rules::RuleSpec;
}

/// Snapshots: what rings had when it was taken, while recording goes on.
pub mod snapshot {
    pub use crate::session::snapshot::{Rings, SnapshotReader, Taken};
}

/// The memory of sessions, for the crate `lastwords-control`. Applications must not use it
/// directly.
#[doc(hidden)]
pub mod internals {
    pub use crate::process::cut;
    pub use crate::session::{
        backends, config, create, dirs, ending, environment, liveness, processes, region_names,
        regions, registry, retention, rules, save, session_region, shared, snapshot, streams, text,
        trigger, window, wipe,
    };
}

/// The items that the macros expand to. Applications must not use them directly.
#[doc(hidden)]
pub mod __private {
    pub use crate::process::keep_loaded::library_of;
    pub use crate::process::kept_memory::{keep, keep_all};
    pub use crate::record::callsite::{Callsite, is_enabled};
    pub use crate::record::encode::{Debugged, Displayed, Formatted, Out, Site, plain_name};
    pub use crate::record::from_c::{
        Part, record_parts, record_short, record_short_text, record_text, would_record,
    };
    pub use crate::record::in_span::record;
    pub use crate::record::metrics::{add_named, record_named};
    pub use crate::start::start_without_tracing;
    pub use lastwords_abi::registry::level;
    pub use lastwords_ring::ShortText;
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
