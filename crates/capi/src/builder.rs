//! A session that is being configured.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use lastwords::{
    Builder, ClockKind, Memory, Persist, Reservation, Retention, Scope, Session, Window,
};

use crate::args::{choices, chosen, given, path, sized, text};
use crate::channel::{config, lw_channel};
use crate::error::{Failure, LW_OK, boxed, lw_error_code, status, unboxed};
use crate::session::lw_session;

/// C code holds a pointer to this type and never looks into it.
type lw_builder = Builder;

/// Defines functions of C that change a builder in place: `int NAME(struct lw_builder *builder,
/// ARGUMENTS)`. If a call fails, the builder does not change.
macro_rules! options {
    ($(fn $name:ident($builder:ident $(, $arg:ident: $type:ty)*) = $change:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(builder: *mut lw_builder $(, $arg: $type)*) -> c_int {
            // SAFETY: C passes a builder that was not started, or null; texts and structures are null or complete.
            status(|| unsafe {
                let $builder = given(builder, "the builder")?.clone();
                *builder = $change;
                Ok(())
            })
        }
    )*};
}

options! {
    fn lw_builder_channel_sized(builder, channel: *const lw_channel, size: usize) =
        builder.channel(config(&sized(channel, size, "the channel")?)?);
    fn lw_builder_errors_channel(builder) = builder.errors_channel();
    fn lw_builder_memory(builder, memory: u32) = builder.backend(chosen("memory", memory, &choices![
        LW_MEMORY_HEAP = 1 => Memory::Heap,
        LW_MEMORY_SHM = 2 => Memory::Shm,
        LW_MEMORY_MEMFD = 3 => Memory::Memfd,
        LW_MEMORY_HUGE = 4 => Memory::Huge,
    ])?);
    fn lw_builder_dax(builder, file: *const c_char, reuse: c_int) =
        builder.backend(Memory::Dax { path: path(file)?.to_owned(), reuse: reuse != 0 });
    fn lw_builder_physical(builder, file: *const c_char, offset: u64, len: u64, reuse: c_int) =
        builder.backend(Memory::Physical { path: path(file)?.to_owned(), offset, len, reuse: reuse != 0 });
    fn lw_builder_reservation(builder, reservation: u32) =
        builder.reservation(chosen("reservation", reservation, &choices![
            LW_RESERVATION_RSEQ = 1 => Reservation::Rseq,
            LW_RESERVATION_LOCKLESS = 2 => Reservation::Lockless,
            LW_RESERVATION_LOCKED = 3 => Reservation::Locked,
        ])?);
    fn lw_builder_persist(builder, policy: u32) = builder.persist(chosen("policy of persistence", policy, &choices![
        LW_PERSIST_NONE = 0 => Persist::None,
        LW_PERSIST_SUB_BUFFER = 1 => Persist::SubBuffer,
        LW_PERSIST_EVENT = 2 => Persist::Event,
    ])?);
    fn lw_builder_clock(builder, clock: u32) = builder.clock(chosen("clock", clock, &choices![
        LW_CLOCK_MONOTONIC = 1 => ClockKind::Monotonic,
        LW_CLOCK_MONOTONIC_RAW = 2 => ClockKind::MonotonicRaw,
        LW_CLOCK_BOOTTIME = 3 => ClockKind::Boottime,
        LW_CLOCK_REALTIME = 4 => ClockKind::Realtime,
    ])?);
    fn lw_builder_size(builder, bytes: u64) = builder.size(bytes);
    fn lw_builder_preallocate(builder) = builder.preallocate(true);
    fn lw_builder_size_limit(builder, bytes: u64) = builder.size_limit(bytes);
    fn lw_builder_seconds(builder, seconds: u32, bytes_per_second: u64) = match bytes_per_second {
        0 => builder.seconds(seconds),
        rate => builder.seconds(seconds).rate(rate),
    };
    fn lw_builder_registry_size(builder, bytes: u64) = builder.registry_size(bytes);
    fn lw_builder_spans(builder, most: u32) = builder.spans(most);
    fn lw_builder_counters(builder, most: u32) = builder.counters(most);
    fn lw_builder_histograms(builder, most: u32) = builder.histograms(most);
    fn lw_builder_shared(builder) = builder.scope(Scope::User);
    fn lw_builder_dir(builder, folder: *const c_char) = builder.dir(path(folder)?);
    fn lw_builder_events(builder, glob: *const c_char) = builder.events(text(glob, "the glob")?);
    fn lw_builder_secret(builder, glob: *const c_char) = builder.secret(text(glob, "the glob")?);
    fn lw_builder_hashed(builder, glob: *const c_char) = builder.hashed(text(glob, "the glob")?);
    fn lw_builder_env(builder, key: *const c_char, value: *const c_char) =
        builder.env(text(key, "the property's name")?, text(value, "its value")?);
    fn lw_builder_snapshot(builder) = builder.snapshot(true);
    fn lw_builder_remove_at_end(builder) = builder.remove_at_end(true);
    fn lw_builder_retention(builder, sessions: u32, bytes: u64) = builder.retention(Retention {
        sessions: if sessions == u32::MAX { usize::MAX } else { sessions as usize },
        bytes,
    });
    fn lw_builder_trigger_limit(builder, most: u32, milliseconds: u64) =
        builder.trigger_limit(most, Duration::from_millis(milliseconds));
    fn lw_builder_trigger_window(builder, before: u64, after: u64) = {
        let before = if before == u64::MAX { None } else { Some(Duration::from_millis(before)) };
        builder.trigger_window(Window { before, after: Duration::from_millis(after) })
    };
    fn lw_builder_save_snapshots(builder, on: c_int) = builder.save_snapshots(on != 0);
    fn lw_builder_listen(builder, on: c_int) = builder.listen(on != 0);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_builder_new(name: *const c_char) -> *mut lw_builder {
    // SAFETY: C passes null or a text that ends with a NUL.
    boxed(|| Ok(Session::builder(unsafe { text(name, "the session's name") }?)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_builder_free(builder: *mut lw_builder) {
    // SAFETY: C does not use the builder afterwards.
    drop(unsafe { unboxed(builder) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_builder_start(builder: *mut lw_builder) -> *mut lw_session {
    // SAFETY: C does not use the builder afterwards.
    let builder = unsafe { unboxed(builder) };
    if builder.is_none() && lw_error_code() != LW_OK {
        // The failure of the call that returned no builder stays noted, because it says more than a
        // new one could.
        return std::ptr::null_mut();
    }
    boxed(|| {
        let builder = builder.ok_or_else(|| Failure::argument("the builder is a null pointer"))?;
        Ok(lw_session::new(builder.start()?))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_builder_start_or_disabled(builder: *mut lw_builder) -> *mut lw_session {
    // SAFETY: C does not use the builder afterwards.
    let builder = unsafe { unboxed(builder) };
    // A session with an empty name cannot start, so without a builder the session is disabled.
    let builder = builder.map_or_else(|| Session::builder(""), |builder| *builder);
    boxed(|| Ok(lw_session::new(builder.start_or_disabled())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_session_begin(name: *const c_char) -> *mut lw_session {
    // SAFETY: C guarantees the name; the builder is new, or null.
    unsafe { lw_builder_start(lw_builder_new(name)) }
}
