//! What an application links to keep its last words: sessions and channels, events and markers, contexts, clock,
//! snapshots, the `tracing` layer and the crash handlers.
//!
//! # What an application can rely on
//!
//! - *Errors.* A session that cannot start is an error of [`Builder::start`]; with [`Builder::start_or_disabled`] the application
//!   goes on, and events cost what disabled ones do. Recording an event reports no error: what finds no room is counted.
//! - *Threads.* Every function may be called from every thread. After its first use on a thread, an enabled event takes no lock,
//!   allocates nothing and makes no system call; [`Reservation::Locked`] takes a lock that is never held by the dead.
//! - *Signals.* Events may be recorded in signal handlers, and leave `errno` as it was. The session's own thread blocks all signals.
//!   [`crash::install_signal_handlers`] calls the handler that was there before, or lets the signal kill as it would have.
//! - *fork.* A forked child records in the session of its parent. The end of the child is not the end of the session while the
//!   parent records in it.
//! - *dlopen.* A library that records stays in memory when it is closed, as its events are described there.
//! - *The end.* A session stays when it ends, with how and when it ended ([`Ended`]), until [`Retention`] or [`Session::remove`]
//!   removes it. Memory of a heap or memfd session goes with its process.
//! - *Containers.* Sessions are in `$LASTWORDS_DIR`, else `$XDG_RUNTIME_DIR/lastwords`, else `/dev/shm/lastwords-UID`. A container's
//!   own `/dev/shm` goes with the container: mount a folder of the host, on a tmpfs, and set `LASTWORDS_DIR` to it. Processes of
//!   another pid namespace are not seen from inside, so that retention leaves their sessions alone unless they were closed.
//!
//! # The variable `LASTWORDS`
//!
//! As `RUST_LOG` does for logs, it says what is recorded, for all sessions of the process, after what the program asked for:
//! `LASTWORDS=shop=debug,net::tx,size=64M,retain=10`.
//!
//! | directive | meaning |
//! | --- | --- |
//! | `info` | events of all targets, of this level (`off`, `error`, `warn`, `info`, `debug`, `trace`) and more severe ones |
//! | `shop`, `shop=debug` | events of the target `shop` and of those below it, of all levels or up to one; all others are off |
//! | `shop:order=off` | a glob over `provider:name` |
//! | `size=64M` | the rings of the first channel take so many bytes at most, all CPUs together ([`Builder::size`]) |
//! | `retain=10`, `retain_size=2G` | ended sessions of each name that stay; bytes of all that stay ([`Retention`]) |
//!
//! The last directive that matches an event decides. A wrong directive is passed over, and [`Session::note`] says so. The variable is
//! not honoured in secure execution (set-user-ID programs).

pub mod crash;
mod handle;
#[cfg(feature = "tracing")]
pub mod layer;
mod macros;
mod process;
mod record;
pub mod session;
mod start;

pub use lastwords_ring::{ClockKind, rseq_available};
pub use process::clock;
pub use record::context;
pub use record::encode::{Element, Field, Hex, Integer, Labeled, Out, hex};
pub use session::registry::{EventDesc, FieldDesc, FieldType};
pub use session::{
    Builder, ChannelConfig, Context, Ended, Ending, Error, Level, Memory, Reservation, Retention, Scope, Session,
};
pub use session::{consume, dirs, processes, remote_control, rules, snapshot};

/// What the macros expand to; not for other use.
#[doc(hidden)]
pub mod __private {
    pub use crate::process::keep_loaded::library_of;
    pub use crate::process::kept_memory::{keep, keep_all};
    pub use crate::record::callsite::{Callsite, is_enabled, record};
    pub use crate::record::encode::{Debugged, Displayed, Formatted, Out, Site, plain_name};
    pub use crate::record::from_c::{Part, record_parts, record_short, record_short_text, record_text, would_record};
    pub use lastwords_abi::registry::level;
    pub use lastwords_ring::ShortText;
}
