//! Names of threads. At its first event through the layer a thread writes its name into the registry of each session, so that no
//! event carries the name. From then on an event compares two numbers.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use lastwords_ring::os;

use crate::process::identity::{Identity, NAME_LEN, identity};
use crate::session::shared::{self, MAX_SESSIONS};

/// Counts changes of the set of sessions. [`sessions_changed`] writes it.
static CHANGES: AtomicU32 = AtomicU32::new(1);

/// A thread's own note of the sessions that have its name.
struct Written {
    /// [`state`] at the time.
    state: Cell<u32>,
    /// The thread's id at the time: that of a forked child is another.
    tid: Cell<u32>,
    /// By place in the process's list: the address of the session that has the name. Sessions are never freed.
    sessions: [Cell<usize>; MAX_SESSIONS],
}

thread_local! {
    static WRITTEN: Written =
        const { Written { state: Cell::new(0), tid: Cell::new(0), sessions: [const { Cell::new(0) }; MAX_SESSIONS] } };
}

/// A number that changes with the set of sessions and with each fork. Both parts only grow.
#[inline]
fn state() -> u32 {
    CHANGES.load(Relaxed).wrapping_add(os::forks())
}

/// Has each thread look for new sessions at its next event. Async-signal-safe.
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
        let address = std::ptr::from_ref(session).addr();
        if known.replace(address) != address || !is_same_thread {
            session.regions.registry.append_thread_name(me.tid, &name);
        }
    }
}

/// The name that this thread has in the kernel. Where the kernel may have cut it, Rust's longer one, if that begins so; the main
/// thread, whose name is the program's, is `main`.
///
/// Rust's name is not asked for otherwise: `std::thread::current` panics late in a thread's end, when destructors still run.
fn name_of(me: &Identity) -> String {
    if me.tid == me.pid {
        return "main".to_owned();
    }
    let comm = me.name.split(|byte| *byte == 0).next().unwrap_or_default();
    let whole = (comm.len() == NAME_LEN - 1).then(std::thread::current);
    let whole = whole.as_ref().and_then(|thread| thread.name()).filter(|name| name.as_bytes().starts_with(comm));
    whole.map_or_else(|| String::from_utf8_lossy(comm).into_owned(), str::to_owned)
}
