//! What a session is asked to be.

use std::ffi::{c_char, c_int};

use lastwords::{Builder, ChannelConfig, ClockKind, Memory, Reservation, Scope, Session};

use crate::args::{chosen, given, path, text};
use crate::context::{self, lw_context};
use crate::error::{Outcome, boxed, status};
use crate::session::lw_session;
use crate::{
    LW_CLOCK_BOOTTIME, LW_CLOCK_MONOTONIC, LW_CLOCK_MONOTONIC_RAW, LW_CLOCK_REALTIME, LW_CONTEXT_NONE, LW_MEMORY_HEAP,
    LW_MEMORY_HUGE, LW_MEMORY_MEMFD, LW_MEMORY_SHM, LW_RESERVATION_LOCKED, LW_RESERVATION_LOCKLESS,
    LW_RESERVATION_RSEQ,
};

/// A session that is being configured.
#[derive(Debug)]
pub struct lw_builder {
    builder: Builder,
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
    /// `LW_CONTEXT_` bits: what is recorded with each event. Default: the thread id, and the process id in a session that
    /// processes share.
    pub contexts: u32,
    /// Takes events of this `LW_LEVEL_` and more severe ones only. Default: all.
    pub max_level: u32,
    /// Not 0: events that find no room are discarded and counted, where the newest overwrite the oldest otherwise.
    pub discard: u32,
    /// Not 0: every event header carries the size of its payload.
    pub payload_size: u32,
    /// How many contexts of the application's own there are.
    pub user_context_count: u32,
    /// They, behind those of `contexts`, in this order; each is made by `LW_USER_CONTEXT`.
    pub user_contexts: *const lw_context,
}

/// Changes the builder in place; it stays as it was where that fails.
///
/// # Safety
/// `builder` is null or came from `lw_builder_new` and was not started.
unsafe fn with(builder: *mut lw_builder, change: impl FnOnce(Builder) -> Outcome<Builder>) -> c_int {
    // SAFETY: the caller vouches for it.
    let holder = unsafe { builder.as_mut() }.ok_or_else(|| "the builder is a null pointer".into());
    status(holder.and_then(|holder| {
        holder.builder = change(holder.builder.clone())?;
        Outcome::Ok(())
    }))
}

/// Configures a session of that name. NULL if the name is not text.
///
/// # Safety
/// `name` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_new(name: *const c_char) -> *mut lw_builder {
    // SAFETY: the caller vouches for it.
    let name = unsafe { text(name, "the session's name") };
    boxed(name.map(|name| lw_builder { builder: Session::builder(name) }))
}

/// Frees a builder that is not to be started.
///
/// # Safety
/// `builder` is null, or came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_free(builder: *mut lw_builder) {
    if !builder.is_null() {
        // SAFETY: made by `Box::into_raw`, and given up by the caller.
        drop(unsafe { Box::from_raw(builder) });
    }
}

/// Adds a channel. Without any, the session has two: `main`, and `errors` as `lw_builder_errors_channel` adds it. 0, or -1 (see
/// `lw_error`).
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started; `channel` is readable, with as many contexts as it counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_channel(builder: *mut lw_builder, channel: *const lw_channel) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { with(builder, |builder| Ok(builder.channel(config(given(channel, "the channel")?)?))) }
}

/// # Safety
/// The name is null or ends with a NUL; the contexts are as many as are counted.
unsafe fn config(wish: &lw_channel) -> Outcome<ChannelConfig> {
    let size = if wish.sub_buffer_size == 0 { 128 << 10 } else { wish.sub_buffer_size };
    let count = if wish.sub_buffers == 0 { 8 } else { wish.sub_buffers };
    // SAFETY: the caller vouches for it.
    let name = unsafe { text(wish.name, "the channel's name") }?;
    let mut config = ChannelConfig::new(name).sub_buffers(count, size).payload_size(wish.payload_size != 0);
    if wish.contexts != 0 {
        config = config.contexts(wish.contexts & !LW_CONTEXT_NONE);
    }
    if wish.max_level != 0 {
        config = config.max_level(wish.max_level.min(5) as u8);
    }
    if wish.discard != 0 {
        config = config.discard();
    }
    // SAFETY: as above.
    let contexts = unsafe { context::all(wish.user_contexts, wish.user_context_count) }?;
    Ok(contexts.into_iter().fold(config, ChannelConfig::context))
}

/// Adds the channel `errors`, which takes events of level warn and error only, besides, so that no flood of others evicts them.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_errors_channel(builder: *mut lw_builder) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.errors_channel())) }
}

/// Where the memory comes from: one of `LW_MEMORY_`. Default: shared-memory files.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_memory(builder: *mut lw_builder, memory: u32) -> c_int {
    let choices = [
        (LW_MEMORY_HEAP, "LW_MEMORY_HEAP", Memory::Heap),
        (LW_MEMORY_SHM, "LW_MEMORY_SHM", Memory::Shm),
        (LW_MEMORY_MEMFD, "LW_MEMORY_MEMFD", Memory::Memfd),
        (LW_MEMORY_HUGE, "LW_MEMORY_HUGE", Memory::Huge),
    ];
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.backend(chosen("memory", memory, &choices)?))) }
}

/// The memory is a DAX file or device. If `reuse` is 0, a session that is recorded there is not overwritten: the start fails.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started; `file` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_dax(builder: *mut lw_builder, file: *const c_char, reuse: c_int) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        with(builder, |builder| Ok(builder.backend(Memory::Dax { path: path(file)?.to_owned(), reuse: reuse != 0 })))
    }
}

/// The memory is a physical range through a device file, or a range of a plain file: `len` bytes at `offset`, a multiple of
/// 4096. `reuse` as in `lw_builder_dax`.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started; `file` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_physical(
    builder: *mut lw_builder,
    file: *const c_char,
    offset: u64,
    len: u64,
    reuse: c_int,
) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        with(builder, |builder| {
            let (path, reuse) = (path(file)?.to_owned(), reuse != 0);
            Ok(builder.backend(Memory::Physical { path, offset, len, reuse }))
        })
    }
}

/// How space in the rings is reserved: one of `LW_RESERVATION_`. Default: the fastest that works.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_reservation(builder: *mut lw_builder, reservation: u32) -> c_int {
    let choices = [
        (LW_RESERVATION_RSEQ, "LW_RESERVATION_RSEQ", Reservation::Rseq),
        (LW_RESERVATION_LOCKLESS, "LW_RESERVATION_LOCKLESS", Reservation::Lockless),
        (LW_RESERVATION_LOCKED, "LW_RESERVATION_LOCKED", Reservation::Locked),
    ];
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.reservation(chosen("reservation", reservation, &choices)?))) }
}

/// The clock: one of `LW_CLOCK_`. Default: the CPU's counter where it is sound, else `CLOCK_MONOTONIC`.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_clock(builder: *mut lw_builder, clock: u32) -> c_int {
    let choices = [
        (LW_CLOCK_MONOTONIC, "LW_CLOCK_MONOTONIC", ClockKind::Monotonic),
        (LW_CLOCK_MONOTONIC_RAW, "LW_CLOCK_MONOTONIC_RAW", ClockKind::MonotonicRaw),
        (LW_CLOCK_BOOTTIME, "LW_CLOCK_BOOTTIME", ClockKind::Boottime),
        (LW_CLOCK_REALTIME, "LW_CLOCK_REALTIME", ClockKind::Realtime),
    ];
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.clock(chosen("clock", clock, &choices)?))) }
}

/// Most memory that the session may take, bytes. More is an error at the start.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_size_limit(builder: *mut lw_builder, bytes: u64) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.size_limit(bytes))) }
}

/// Bytes for descriptions of events. Default: 512 KiB.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_registry_size(builder: *mut lw_builder, bytes: u64) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.registry_size(bytes))) }
}

/// Most spans that can be listed as open at a time; 0 for no table. Spans are what Rust code in the process opens.
/// Default: 512.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_spans(builder: *mut lw_builder, most: u32) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.spans(most))) }
}

/// Lets all processes of the user that begin a session of this name share it.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_shared(builder: *mut lw_builder) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.scope(Scope::User))) }
}

/// The folder of sessions.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started; `folder` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_dir(builder: *mut lw_builder, folder: *const c_char) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { with(builder, |builder| Ok(builder.dir(path(folder)?))) }
}

/// Enables events by a glob over `provider:name`; those of no glob are disabled. Without any, all are enabled.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started; `glob` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_events(builder: *mut lw_builder, glob: *const c_char) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { with(builder, |builder| Ok(builder.events(text(glob, "the glob")?))) }
}

/// Adds a property of the trace, such as a version.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started; `key` and `value` are null or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_env(builder: *mut lw_builder, key: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: the caller vouches for all of them.
    unsafe { with(builder, |builder| Ok(builder.env(text(key, "the property's name")?, text(value, "its value")?))) }
}

/// Allocates the spare for snapshots from the start.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_snapshot(builder: *mut lw_builder) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.snapshot(true))) }
}

/// Leaves the session's folder behind when the session ends, as `lw_session_keep` does.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_keep(builder: *mut lw_builder) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.keep(true))) }
}

/// Whether a thread waits for changes by other processes, and once a second keeps the clock's calibration fresh: not if `on`
/// is 0. Default: yes.
///
/// # Safety
/// `builder` came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_listen(builder: *mut lw_builder, on: c_int) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { with(builder, |builder| Ok(builder.listen(on != 0))) }
}

/// Begins the session and frees the builder. NULL on failure (see `lw_error`).
///
/// # Safety
/// `builder` is null, or came from `lw_builder_new` and was not started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_builder_start(builder: *mut lw_builder) -> *mut lw_session {
    if builder.is_null() {
        // What `lw_builder_new` noted is why.
        return std::ptr::null_mut();
    }
    // SAFETY: made by `Box::into_raw`, and given up by the caller.
    let builder = unsafe { Box::from_raw(builder) }.builder;
    boxed(builder.start().map(lw_session::of).map_err(Into::into))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::error::lw_error;

    fn why() -> String {
        // SAFETY: the text of an error holds until the next.
        unsafe { CStr::from_ptr(lw_error()) }.to_string_lossy().into_owned()
    }

    /// What `change` gives, and the session that is started then, or why there is none.
    fn started(change: impl Fn(*mut lw_builder) -> c_int) -> (c_int, Result<Session, String>) {
        let dir = tempfile::tempdir().expect("a folder");
        // SAFETY: the text ends with a NUL; the builder is started once, and what comes of it is a box of ours.
        unsafe {
            let builder = lw_builder_new(c"chosen".as_ptr());
            with(builder, |builder| Ok(builder.dir(dir.path())));
            let changed = change(builder);
            let session = lw_builder_start(builder);
            (changed, if session.is_null() { Err(why()) } else { Ok(Box::from_raw(session).session) })
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
            // SAFETY: the builder is not started yet.
            let (changed, session) = started(|builder| unsafe {
                let changed = call(builder, 9);
                assert!(why().contains(named));
                changed
            });
            assert!(changed == -1 && session.is_ok(), "the builder is as it was");
        }
    }

    #[test]
    fn null_is_refused() {
        let null = std::ptr::null();
        // SAFETY: null pointers are none; the builder is started once by `started`.
        unsafe {
            assert_eq!((lw_builder_keep(std::ptr::null_mut()), why().as_str()), (-1, "the builder is a null pointer"));
            let calls: [(&dyn Fn(*mut lw_builder) -> c_int, &str); 4] = [
                (&|builder| lw_builder_channel(builder, std::ptr::null()), "the channel is a null pointer"),
                (&|builder| lw_builder_dax(builder, null, 0), "the path is a null pointer"),
                (&|builder| lw_builder_physical(builder, null, 0, 4096, 0), "the path is a null pointer"),
                (&|builder| lw_builder_env(builder, c"key".as_ptr(), null), "its value is a null pointer"),
            ];
            for (call, named) in calls {
                let (changed, session) = started(call);
                assert!(changed == -1 && session.is_ok() && why().contains(named), "{}", why());
            }
        }
    }
}
