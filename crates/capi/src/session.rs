//! Sessions and channels.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;

use lastwords::{Builder, ChannelConfig, ClockKind, Memory, Reservation, Scope, Session};

use crate::error::{note, status};

/// A session that is being configured.
#[allow(missing_debug_implementations, reason = "an opaque handle of C")]
pub struct lw_builder {
    builder: Option<Builder>,
}

/// A session that records.
#[allow(missing_debug_implementations, reason = "an opaque handle of C")]
pub struct lw_session {
    session: Session,
    folder: CString,
}

/// What a channel is asked to be; 0 stands for the default everywhere.
#[repr(C)]
pub struct lw_channel {
    /// Its name.
    pub name: *const c_char,
    /// Bytes of a sub-buffer, a power of two. Default: 131072.
    pub sub_buffer_size: u64,
    /// Sub-buffers for each CPU, a power of two. Default: 8.
    pub sub_buffers: u32,
    /// `LW_CONTEXT_` bits: what is recorded with each event. Default: the thread id.
    pub contexts: u32,
    /// Takes events of this `LW_LEVEL_` and more severe ones only. Default: all.
    pub max_level: u32,
    /// Not 0: events that find no room are discarded and counted, where the newest overwrite the oldest otherwise.
    pub discard: u32,
}

/// The text, or none with the error noted.
///
/// # Safety
/// `text` is null or ends with a NUL.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Option<&'a str> {
    if text.is_null() {
        note(&format_args!("{what} is a null pointer; give a text"));
        return None;
    }
    // SAFETY: the caller vouches for it.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.inspect_err(|error| note(&format_args!("{what}: {error}; give UTF-8"))).ok()
}

/// Changes the builder in place.
///
/// # Safety
/// `builder` is null or came from `lw_builder_new` and was not started.
unsafe fn with(builder: *mut lw_builder, change: impl FnOnce(Builder) -> Option<Builder>) -> c_int {
    // SAFETY: the caller vouches for it.
    let Some(holder) = (unsafe { builder.as_mut() }) else {
        note(&"the builder is a null pointer");
        return -1;
    };
    let Some(before) = holder.builder.take() else { return -1 };
    let after = change(before.clone());
    let done = after.is_some();
    holder.builder = Some(after.unwrap_or(before));
    if done { 0 } else { -1 }
}

/// Configures a session of that name. NULL if the name is not text.
///
/// # Safety
/// `name` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_new(name: *const c_char) -> *mut lw_builder {
    // SAFETY: the caller vouches for it.
    let Some(name) = (unsafe { text(name, "the session's name") }) else { return std::ptr::null_mut() };
    Box::into_raw(Box::new(lw_builder { builder: Some(Session::builder(name)) }))
}

/// Adds a channel. Without any, the session has one, `main`. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started; `channel` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_channel(builder: *mut lw_builder, channel: *const lw_channel) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        let Some(wish) = channel.as_ref() else {
            note(&"the channel is a null pointer");
            return -1;
        };
        let Some(name) = text(wish.name, "the channel's name") else { return -1 };
        with(builder, |builder| Some(builder.channel(config(name, wish))))
    }
}

fn config(name: &str, wish: &lw_channel) -> ChannelConfig {
    let size = if wish.sub_buffer_size == 0 { 128 << 10 } else { wish.sub_buffer_size };
    let count = if wish.sub_buffers == 0 { 8 } else { wish.sub_buffers };
    let mut config = ChannelConfig::new(name).sub_buffers(count, size);
    if wish.contexts != 0 {
        config = config.contexts(wish.contexts & !crate::LW_CONTEXT_NONE);
    }
    if wish.max_level != 0 {
        config = config.max_level(wish.max_level.min(5) as u8);
    }
    if wish.discard != 0 { config.discard() } else { config }
}

/// Adds the channel `errors`, which takes events of level warn and error only, so that no flood of others evicts them.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_errors_channel(builder: *mut lw_builder) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Some(builder.errors_channel())) }
}

/// Where the memory comes from: one of `LW_MEMORY_`. Default: shared-memory files.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_memory(builder: *mut lw_builder, memory: u32) -> c_int {
    let memory = match memory {
        crate::LW_MEMORY_HEAP => Memory::Heap,
        crate::LW_MEMORY_SHM => Memory::Shm,
        crate::LW_MEMORY_MEMFD => Memory::Memfd,
        crate::LW_MEMORY_HUGE => Memory::Huge,
        other => {
            note(&format_args!("memory {other} is none of LW_MEMORY_HEAP, _SHM, _MEMFD, _HUGE"));
            return -1;
        }
    };
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Some(builder.backend(memory))) }
}

/// How space in the rings is reserved: one of `LW_RESERVATION_`. Default: the fastest that works.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_reservation(builder: *mut lw_builder, reservation: u32) -> c_int {
    let reservation = match reservation {
        crate::LW_RESERVATION_RSEQ => Reservation::Rseq,
        crate::LW_RESERVATION_LOCKLESS => Reservation::Lockless,
        crate::LW_RESERVATION_LOCKED => Reservation::Locked,
        other => {
            note(&format_args!("reservation {other} is none of LW_RESERVATION_RSEQ, _LOCKLESS, _LOCKED"));
            return -1;
        }
    };
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Some(builder.reservation(reservation))) }
}

/// The clock: one of `LW_CLOCK_`. Default: the CPU's counter where it is sound, else `CLOCK_MONOTONIC`.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_clock(builder: *mut lw_builder, clock: u32) -> c_int {
    let clock = match clock {
        crate::LW_CLOCK_MONOTONIC => ClockKind::Monotonic,
        crate::LW_CLOCK_MONOTONIC_RAW => ClockKind::MonotonicRaw,
        crate::LW_CLOCK_BOOTTIME => ClockKind::Boottime,
        crate::LW_CLOCK_REALTIME => ClockKind::Realtime,
        other => {
            note(&format_args!("clock {other} is none of LW_CLOCK_MONOTONIC, _MONOTONIC_RAW, _BOOTTIME, _REALTIME"));
            return -1;
        }
    };
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Some(builder.clock(clock))) }
}

/// Most memory that the session may take, bytes. More is an error at the start.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_size_limit(builder: *mut lw_builder, bytes: u64) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Some(builder.size_limit(bytes))) }
}

/// Lets all processes of the user that begin a session of this name share it.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_shared(builder: *mut lw_builder) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Some(builder.scope(Scope::User))) }
}

/// The folder of sessions.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started; `path` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_dir(builder: *mut lw_builder, path: *const c_char) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { with(builder, |builder| text(path, "the path").map(|path| builder.dir(path))) }
}

/// Enables events by a glob over `provider:name`; those of no glob are disabled. Without any, all are enabled.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started; `glob` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_events(builder: *mut lw_builder, glob: *const c_char) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { with(builder, |builder| text(glob, "the glob").map(|glob| builder.events(glob))) }
}

/// Allocates the spare for snapshots from the start.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_snapshot(builder: *mut lw_builder) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Some(builder.snapshot(true))) }
}

/// Begins the session and frees the builder. NULL on failure (see `lw_error`).
///
/// # Safety
/// `builder` is null, or came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_start(builder: *mut lw_builder) -> *mut lw_session {
    if builder.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: made by `Box::into_raw`, and given up by the caller.
    let Some(builder) = (unsafe { Box::from_raw(builder) }).builder else { return std::ptr::null_mut() };
    match builder.start() {
        Ok(session) => {
            let folder = session.folder().map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default();
            Box::into_raw(Box::new(lw_session { session, folder: CString::new(folder).unwrap_or_default() }))
        }
        Err(error) => {
            note(&error);
            std::ptr::null_mut()
        }
    }
}

/// Begins a session of that name with all defaults. NULL on failure (see `lw_error`).
///
/// # Safety
/// `name` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_begin(name: *const c_char) -> *mut lw_session {
    // SAFETY: the caller vouches for the name; the builder is fresh.
    unsafe { lw_builder_start(lw_builder_new(name)) }
}

/// Calls `act` with the session.
///
/// # Safety
/// `session` is null or came from `lw_builder_start` or `lw_session_begin` and was not ended.
unsafe fn on(session: *const lw_session, act: impl FnOnce(&lw_session) -> c_int) -> c_int {
    // SAFETY: the caller vouches for it.
    match unsafe { session.as_ref() } {
        Some(session) => act(session),
        None => {
            note(&"the session is a null pointer");
            -1
        }
    }
}

/// The session's folder, what `lastwords recover` takes; empty for a session without one. Holds until the session ends.
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_folder(session: *const lw_session) -> *const c_char {
    // SAFETY: the caller vouches for it.
    unsafe { session.as_ref() }.map_or(c"".as_ptr(), |session| session.folder.as_ptr())
}

/// Leaves the folder behind when the session ends.
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_keep(session: *const lw_session) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe {
        on(session, |session| {
            session.session.keep();
            0
        })
    }
}

/// Enables the events that a glob over `provider:name` matches. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended; `glob` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_enable(session: *const lw_session, glob: *const c_char) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        let Some(glob) = text(glob, "the glob") else { return -1 };
        on(session, |session| status(session.session.enable(glob)))
    }
}

/// Disables the events that a glob over `provider:name` matches. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended; `glob` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_disable(session: *const lw_session, glob: *const c_char) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        let Some(glob) = text(glob, "the glob") else { return -1 };
        on(session, |session| status(session.session.disable(glob)))
    }
}

/// Stops (0) or continues (not 0) recording, in all processes of the session.
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_recording(session: *const lw_session, recording: c_int) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe {
        on(session, |session| {
            if recording == 0 {
                session.session.stop()
            } else {
                session.session.resume()
            }
            0
        })
    }
}

/// Takes a snapshot: what was recorded until now is kept aside while recording goes on. Needs `lw_builder_snapshot`. 0, or
/// -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_snapshot(session: *const lw_session) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { on(session, |session| status(session.session.take_snapshot(None).map(drop))) }
}

/// Ends the session and frees it; its folder goes, unless `lw_session_keep` was called.
///
/// # Safety
/// `session` is null, or a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_end(session: *mut lw_session) {
    if !session.is_null() {
        // SAFETY: made by `Box::into_raw`, and given up by the caller.
        drop(unsafe { Box::from_raw(session) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::lw_error;
    use crate::{LW_CLOCK_REALTIME, LW_RESERVATION_LOCKED, LW_RESERVATION_LOCKLESS};

    /// What `change` gives, and the session that is started then, or why there is none.
    fn started(change: impl Fn(*mut lw_builder) -> c_int) -> (c_int, Result<Session, String>) {
        let dir = tempfile::tempdir().expect("a folder");
        // SAFETY: the texts end with a NUL; the builder is started once, and what comes of it is a box of ours.
        unsafe {
            let builder = lw_builder_new(c"chosen".as_ptr());
            with(builder, |builder| Some(builder.dir(dir.path())));
            let changed = change(builder);
            let session = lw_builder_start(builder);
            if session.is_null() {
                return (changed, Err(CStr::from_ptr(lw_error()).to_string_lossy().into_owned()));
            }
            (changed, Ok(Box::from_raw(session).session))
        }
    }

    #[test]
    fn what_is_chosen_is_taken() {
        for wish in [LW_RESERVATION_LOCKLESS, LW_RESERVATION_LOCKED] {
            // SAFETY: the builder is not started yet.
            let (changed, session) = started(|builder| unsafe { lw_builder_reservation(builder, wish) });
            assert_eq!((changed, session.expect("it starts").reservation()), (0, wish));
        }
        // SAFETY: as above.
        let (changed, session) = started(|builder| unsafe { lw_builder_clock(builder, LW_CLOCK_REALTIME) });
        assert!(changed == 0 && session.is_ok());
        // SAFETY: as above.
        let (changed, session) = started(|builder| unsafe { lw_builder_size_limit(builder, 1 << 16) });
        assert!(changed == 0 && session.is_err_and(|why| why.contains("its limit is 65536")));
    }

    #[test]
    fn what_is_none_of_the_choices_is_refused() {
        let calls = [lw_builder_reservation, lw_builder_clock, lw_builder_memory];
        for (call, named) in calls.into_iter().zip(["reservation 9", "clock 9", "memory 9"]) {
            // SAFETY: the builder is not started yet; the text of an error holds until the next.
            let (changed, _) = started(|builder| unsafe {
                let changed = call(builder, 9);
                assert!(CStr::from_ptr(lw_error()).to_string_lossy().contains(named));
                changed
            });
            assert_eq!(changed, -1);
        }
    }
}
