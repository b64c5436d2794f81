//! The way and the time of a session's end. Each process of the session may write the words in its
//! control area, and a reader interprets them. A killed process writes nothing; the process table
//! shows that it is gone.

#[cfg(target_env = "gnu")]
use core::ffi::c_int;
use core::ffi::c_void;
use std::ffi::CString;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, Once, PoisonError};

use lastwords_abi::session as abi;
use lastwords_abi::session::SCOPE_USER;
pub use lastwords_folders::{Ended, Ending};
use lastwords_ring::{ClockKind, os};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::liveness::Identity;
use super::region_names::SESSION;
use super::session_region::SessionRegion;
use super::shared::{self, SessionShared};
use crate::process::{identity, keep_loaded};

/// Writes how the session ends. Async-signal-safe.
pub(crate) fn mark(view: &SessionRegion, how: Ending) {
    let control = view.control();
    control.ended.store(ClockKind::Realtime.now(), Relaxed);
    control.ended_by.store(std::process::id(), Relaxed);
    control.ending.store(how.word(), Release);
    view.keep_control();
}

/// Writes the end of this process into its sessions. Async-signal-safe.
pub(crate) fn mark_all(how: Ending) {
    shared::all()
        .map(SessionShared::view)
        .filter(|view| is_ours(view))
        .for_each(|view| mark(view, how));
}

/// Returns true if the end of this process may be that of the session. The end of a forked child is
/// not, while its parent records. Async-signal-safe.
pub(crate) fn is_ours(view: &SessionRegion) -> bool {
    let info = &view.info;
    let here = info.creator_pidns == Identity::current().pidns;
    if info.scope == SCOPE_USER || (here && info.creator_pid == std::process::id()) {
        return true;
    }
    let has_joined = |process: &abi::Process| process.pid.load(Acquire) == info.creator_pid;
    here && !(view.processes().iter().any(has_joined)
        && os::is_process_alive(info.creator_pid, info.creator_start as u32))
}

/// True if the newest panic was one of the main thread. [`note_panic`] writes it, and [`at_exit`]
/// reads it, mostly in the same thread. It orders no other memory.
static MAIN_PANICKED: AtomicBool = AtomicBool::new(false);
/// The status with which Rust's runtime ends a process whose `main` panicked.
const MAIN_PANICKED_STATUS: u8 = 101;

/// Notes a panic, which the process survives unless it `aborts`.
pub(crate) fn note_panic(aborts: bool) {
    MAIN_PANICKED.store(is_main_thread(), Relaxed);
    if aborts {
        mark_all(Ending::Panic);
    }
    for view in shared::all().map(SessionShared::view) {
        view.control().panicked.store(ClockKind::Realtime.now(), Relaxed);
        view.control().panics.fetch_add(1, Release);
        view.keep_control();
    }
}

/// Largest time from a mark to a later clock sample, in nanoseconds, for which the process still
/// counts as ended by the mark.
const ON_THE_WAY: u64 = 2_000_000_000;

/// Returns the end of a session that no process has any more, or that is `finished`.
pub fn read(view: &SessionRegion) -> Ended {
    let (control, clock) = (view.control(), view.clock());
    let marked = Ending::from_word(control.ending.load(Acquire));
    let at = control.ended.load(Relaxed);
    let newest =
        clock.samples.get(clock.newest.load(Acquire) as usize).unwrap_or(&clock.samples[0]);
    let seen = newest.realtime.load(Relaxed);
    // If a process closed the session but did not finish it, others still had the session, and none
    // of them has marked an end.
    let is_left_to_others = matches!(marked, Some(Ending::Closed(_)));
    let seen_after = seen > at.saturating_add(ON_THE_WAY);
    let lived_on = control.finished.load(Acquire) == 0 && (is_left_to_others || seen_after);
    if let Some(how) = marked.filter(|_| !lived_on) {
        return Ended { how, at, pid: control.ended_by.load(Relaxed) };
    }
    Ended { how: Ending::Killed, at: seen.max(at).max(control.panicked.load(Relaxed)), pid: 0 }
}

/// Largest number of closed sessions of a process that wait for its exit status.
const MOST_CLOSED: usize = 8;

/// A session that was closed in good order while its process continues.
struct Closed {
    pid: u32,
    uuid: [u8; 16],
    /// The file of its session region.
    file: CString,
    /// Offset of [`abi::Control::ending`] in the file.
    word: u64,
}

static CLOSED: Mutex<Vec<Closed>> = Mutex::new(Vec::new());

/// Remembers a closed session, so that the exit status of its process can be added.
pub(crate) fn remember(session: &SessionShared) {
    let view = session.view();
    let Some(file) = session.folder.as_ref().map(|folder| folder.path.join(SESSION)) else {
        return;
    };
    let Ok(file) = CString::new(file.into_os_string().into_encoded_bytes()) else { return };
    let word =
        u64::from(view.info.control_off) + core::mem::offset_of!(abi::Control, ending) as u64;
    let mut closed = CLOSED.lock().unwrap_or_else(PoisonError::into_inner);
    if closed.len() == MOST_CLOSED {
        closed.remove(0);
    }
    closed.push(Closed { pid: std::process::id(), uuid: view.uuid, file, word });
}

impl Closed {
    /// Adds the exit status, if the file still belongs to the session and nothing else was marked.
    /// Allocates nothing, and writes through memory, because a write call beyond the limit of file
    /// sizes would end the process (SIGXFSZ).
    fn add_status(&self, status: Option<u8>) {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::open(self.file.as_c_str(), flags, Mode::empty()) else { return };
        let len = self.word as usize + size_of::<u32>();
        if !rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_size as u64 >= len as u64) {
            return;
        }
        let uuid_at = core::mem::offset_of!(lastwords_abi::region::RegionHeader, session);
        // SAFETY: the mapping is new and has `len` bytes, all of which the file has. It is unmapped
        // after its last use. The word is aligned, and every process that writes it writes it as an
        // atomic.
        unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let Ok(map) = mmap(core::ptr::null_mut(), len, access, MapFlags::SHARED, &file, 0)
            else {
                return;
            };
            if map.byte_add(uuid_at).cast::<[u8; 16]>().read_unaligned() == self.uuid {
                let word = AtomicU32::from_ptr(map.byte_add(self.word as usize).cast());
                let (old, new) = (Ending::Closed(None).word(), Ending::Closed(status).word());
                // If something else was marked meanwhile, that stays.
                let _ = word.compare_exchange(old, new, AcqRel, Relaxed);
            }
            let _ = munmap(map, len);
        }
    }
}

pub(crate) fn is_main_thread() -> bool {
    identity::tid() == std::process::id()
}

/// Marks the end when the process exits, by `exit` or because `main` returns or panics.
fn at_exit(status: Option<u8>) {
    // If a closed session has another pid, this process is a forked child of the one that closed
    // it.
    let pid = std::process::id();
    let panicked = status == Some(MAIN_PANICKED_STATUS) && MAIN_PANICKED.load(Relaxed);
    mark_all(if panicked && is_main_thread() { Ending::Panic } else { Ending::Exit(status) });
    // If a signal handler called `exit`, the interrupted code may hold the lock.
    if let Ok(closed) = CLOSED.try_lock() {
        closed
            .iter()
            .filter(|closed| closed.pid == pid)
            .for_each(|closed| closed.add_status(status));
    }
}

#[cfg(target_env = "gnu")]
extern "C" fn on_exit(status: c_int, _: *mut c_void) {
    at_exit(Some(status as u8));
}

#[cfg(not(target_env = "gnu"))]
extern "C" fn on_exit() {
    at_exit(None);
}

/// Registers, once for each process, the function that marks its exit.
pub(crate) fn watch_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The C library calls the function even after the program has closed this library, so the
        // library must stay loaded.
        keep_loaded::library_of(on_exit as *const c_void);
        // SAFETY: the function has the required type and stays mapped.
        #[cfg(target_env = "gnu")]
        unsafe {
            unsafe extern "C" {
                fn on_exit(
                    function: extern "C" fn(c_int, *mut c_void),
                    argument: *mut c_void,
                ) -> c_int;
            }
            on_exit(self::on_exit, core::ptr::null_mut());
        }
        // SAFETY: the function has the required type and stays mapped.
        #[cfg(not(target_env = "gnu"))]
        unsafe {
            libc::atexit(on_exit);
        }
    });
}
