//! Names of threads. At its first event through the layer a thread writes its name into the
//! registry of each session, so that no event carries the name. From then on an event compares two
//! numbers.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use lastwords_ring::forks;

use crate::process::identity::{Identity, NAME_LEN, identity};
use crate::session::shared::{self, MAX_SESSIONS};

/// Counts changes of the set of sessions. [`sessions_changed`] writes it.
static CHANGES: AtomicU32 = AtomicU32::new(1);

/// The sessions that have this thread's name, as the thread remembers them.
struct Written {
    /// Value of [`state`] at the time of writing.
    state: Cell<u32>,
    /// The thread's id at the time of writing. In a forked child it is another one.
    tid: Cell<u32>,
    /// By position in the process's list: the number of the session that has the name.
    sessions: [Cell<u64>; MAX_SESSIONS],
}

thread_local! {
    static WRITTEN: Written =
        const { Written { state: Cell::new(0), tid: Cell::new(0), sessions: [const { Cell::new(0) }; MAX_SESSIONS] } };
}

/// Returns a number that changes with the set of sessions and with each fork. Both parts only grow.
#[inline]
fn state() -> u32 {
    CHANGES.load(Relaxed).wrapping_add(forks::forks())
}

/// Makes each thread look for new sessions at its next event. Async-signal-safe.
pub(super) fn sessions_changed() {
    CHANGES.fetch_add(1, Relaxed);
}

/// Writes this thread's name into the registries that do not have it.
#[inline]
pub(super) fn write_name() {
    WRITTEN.with(|written| {
        if written.state.get() != state() {
            write_to_new_sessions(written);
        }
    });
}

#[cold]
#[inline(never)]
fn write_to_new_sessions(written: &Written) {
    written.state.set(state());
    let me = identity();
    let is_same_thread = written.tid.replace(me.tid) == me.tid;
    let name = name_of(&me);
    for (place, known) in written.sessions.iter().enumerate() {
        let Some(session) = shared::at(place) else { continue };
        if known.replace(session.number) != session.number || !is_same_thread {
            session.regions.registry.append_thread_name(me.tid, &name);
        }
    }
}

/// Returns the name that this thread has in the kernel. If the kernel may have cut the name, it
/// returns Rust's longer name if that begins with the kernel's. The main thread, whose name is the
/// program's, is `main`.
///
/// Rust's name is not used otherwise: `std::thread::current` panics late in a thread's end, when
/// destructors still run.
fn name_of(me: &Identity) -> String {
    if me.tid == me.pid {
        return "main".to_owned();
    }
    let comm = me.name.split(|byte| *byte == 0).next().unwrap_or_default();
    let whole = (comm.len() == NAME_LEN - 1).then(std::thread::current);
    let whole = whole
        .as_ref()
        .and_then(|thread| thread.name())
        .filter(|name| name.as_bytes().starts_with(comm));
    whole.map_or_else(|| String::from_utf8_lossy(comm).into_owned(), str::to_owned)
}
