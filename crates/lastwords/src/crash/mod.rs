//! Records the last words of a dying program: a panic hook, and handlers for the signals that kill.
//!
//! Both record an event to every channel whose rules take it, and then do what would have happened
//! without them: the process still dies of the same signal, with the same status and core.
//!
//! | event | fields |
//! | --- | --- |
//! | `crash:panic` | `message`, `location`, `thread` text; `backtrace` addresses |
//! | `crash:signal` | `signal` by name, `code` (si_code), `address` that faulted, `pid`, `tid`, `thread`, `pc`, `backtrace` addresses |
//!
//! A message that does not fit into a channel's sub-buffers is cut, and a note at its end says how
//! much was cut off.
//!
//! Readers find names for addresses with the modules in the session's registry. Modules are noted
//! when handlers are installed, when a session begins, and by [`refresh_modules`].

mod fault;
mod modules;
mod panic;
mod signal;
mod stack;
mod unwind;

pub(crate) use self::modules::note_modules;
pub use self::modules::refresh_modules;
pub use self::panic::install_panic_hook;
pub use self::signal::{
    FATAL, InstallError, install_default_signal_handlers, install_signal_handlers, prepare_thread,
};

use crate::record::encode::{Field, Out, copied, short};
use crate::session::desc::FieldType;

/// Largest number of addresses of a backtrace.
const MAX_FRAMES: usize = 64;

/// A thread's name, NUL-padded.
#[derive(Debug, Clone, Copy)]
struct ThreadName([u8; 16]);

copied!([] ThreadName, FieldType::Text { bytes: 16 }, Some(16), |value, out| out.raw(&value.0););
