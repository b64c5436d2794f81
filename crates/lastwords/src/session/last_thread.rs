//! Ends the process when all threads of the program have ended.
//!
//! If the thread of `main` ends by `pthread_exit`, the process goes on until its last thread ends.
//! The listener's thread never ends and blocks all signals, so such a process would live for ever,
//! and SIGTERM would not end it. The C library calls [`ends`] when the thread of `main` ends. From
//! then on, the listener's thread looks for other threads in each of its rounds. If there are none
//! in two of them, it ends the process as the C library does after the last thread.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use super::ending;

/// The key whose destructor is [`ends`], plus one; 0 before it was made.
static KEY: AtomicU32 = AtomicU32::new(0);
/// True if the thread of `main` ends or has ended. That thread writes it, and a forked child. The
/// listener's thread reads it. The order matters for no other memory.
static MAIN_ENDS: AtomicBool = AtomicBool::new(false);
/// True if the listener's thread was the only one when it last looked. Only that thread uses it.
static WAS_ALONE: AtomicBool = AtomicBool::new(false);

/// Makes the C library tell when the thread of `main` ends, if this is that thread.
pub(crate) fn watch() {
    if !ending::is_main_thread() {
        return;
    }
    let mut key = KEY.load(Relaxed);
    if key == 0 {
        let mut new = 0;
        // SAFETY: `new` is valid memory for the key, and the destructor stays: libraries that
        // record are never unloaded.
        if unsafe { libc::pthread_key_create(&raw mut new, Some(ends)) } != 0 {
            return;
        }
        key = new + 1;
        KEY.store(key, Relaxed);
    }
    // SAFETY: the key exists, and the value is only compared with null.
    unsafe { libc::pthread_setspecific(key - 1, std::ptr::without_provenance(1)) };
}

extern "C" fn ends(_: *mut libc::c_void) {
    MAIN_ENDS.store(true, Relaxed);
}

/// Notes in a forked child that its thread of `main` is the one that forked. Async-signal-safe.
pub(crate) fn note_fork() {
    MAIN_ENDS.store(false, Relaxed);
    WAS_ALONE.store(false, Relaxed);
}

/// Ends the process if the listener's thread, which calls this, is the only one.
pub(crate) fn round() {
    if !MAIN_ENDS.load(Relaxed) {
        return;
    }
    let is_alone = is_alone();
    if is_alone && WAS_ALONE.load(Relaxed) {
        // SAFETY: no other thread is there to call it, too.
        unsafe { libc::exit(0) };
    }
    WAS_ALONE.store(is_alone, Relaxed);
}

/// Returns true if one thread of this process is left. The thread of `main` stays as a zombie.
fn is_alone() -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    let lives = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        // The name of the thread is in parentheses, and its state follows.
        let (_, rest) = stat.rsplit_once(") ")?;
        (!rest.starts_with(['Z', 'X'])).then_some(())
    };
    tasks.filter_map(lives).count() == 1
}
