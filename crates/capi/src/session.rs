//! Sessions that record.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;

use lastwords::Session;
use lastwords::rules::RuleSpec;

use crate::args::{given, text};
use crate::builder::{lw_builder_new, lw_builder_start};
use crate::error::{Outcome, status};

/// A session that records.
#[derive(Debug)]
pub struct lw_session {
    pub(crate) session: Session,
    name: CString,
    folder: CString,
    note: CString,
}

impl lw_session {
    pub(crate) fn of(session: Session) -> Self {
        let text = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
        let folder = session.folder().map(|path| text(path.as_os_str().as_bytes())).unwrap_or_default();
        Self { name: text(session.name().as_bytes()), folder, note: text(session.note().as_bytes()), session }
    }
}

/// A rule of which events are recorded; the last that matches an event decides. 0 stands for the default everywhere.
#[repr(C)]
pub struct lw_rule {
    /// Glob over `provider:name`.
    pub glob: *const c_char,
    /// Name of the one channel that it is for. Default: all.
    pub channel: *const c_char,
    /// Matches events of this `LW_LEVEL_` and more severe ones only. Default: all.
    pub max_level: u32,
    /// Not 0: events that match are disabled, where they are enabled otherwise.
    pub disable: u32,
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

/// The session, with a life that the caller vouches for.
///
/// # Safety
/// `session` is null or came from `lw_builder_start` or `lw_session_begin` and was not ended.
pub(crate) unsafe fn of<'a>(session: *const lw_session) -> Outcome<&'a Session> {
    // SAFETY: the caller vouches for it.
    Ok(&unsafe { given(session, "the session") }?.session)
}

/// Calls `act` with the session.
///
/// # Safety
/// As for `of`.
pub(crate) unsafe fn on(session: *const lw_session, act: impl FnOnce(&Session) -> Outcome) -> c_int {
    // SAFETY: the caller vouches for it.
    status(unsafe { of(session) }.and_then(act))
}

/// One of the texts that are kept with the session; empty where there is no session.
///
/// # Safety
/// As for `of`.
unsafe fn kept(session: *const lw_session, text: impl FnOnce(&lw_session) -> &CString) -> *const c_char {
    // SAFETY: the caller vouches for it.
    unsafe { session.as_ref() }.map_or(c"".as_ptr(), |session| text(session).as_ptr())
}

/// The session's folder, what `lastwords recover` takes; empty for a session without one. Holds until the session ends.
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_folder(session: *const lw_session) -> *const c_char {
    // SAFETY: the caller vouches for it.
    unsafe { kept(session, |session| &session.folder) }
}

/// The session's name. Holds until the session ends.
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_name(session: *const lw_session) -> *const c_char {
    // SAFETY: the caller vouches for it.
    unsafe { kept(session, |session| &session.name) }
}

/// What the memory is, or how a session that was joined differs from what was asked for: for people. Holds until the session
/// ends.
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_note(session: *const lw_session) -> *const c_char {
    // SAFETY: the caller vouches for it.
    unsafe { kept(session, |session| &session.note) }
}

/// Writes the session's UUID, which is that of its traces. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended; `uuid` has room for 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_uuid(session: *const lw_session, uuid: *mut u8) -> c_int {
    // SAFETY: the caller vouches for both; arrays of bytes have no alignment.
    unsafe {
        on(session, |session| {
            uuid.cast::<[u8; 16]>().write(session.uuid());
            Ok(())
        })
    }
}

/// How space is reserved, one of `LW_RESERVATION_`: what was chosen where nothing was asked for. 0 where there is no session.
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_reservation(session: *const lw_session) -> u32 {
    // SAFETY: the caller vouches for it.
    unsafe { of(session) }.map_or(0, Session::reservation)
}

/// Leaves the folder behind when the session ends.
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_keep(session: *const lw_session) -> c_int {
    let keep = |session: &Session| {
        session.keep();
        Ok(())
    };
    // SAFETY: the caller vouches for it.
    unsafe { on(session, keep) }
}

/// Enables the events that a glob over `provider:name` matches. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended; `glob` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_enable(session: *const lw_session, glob: *const c_char) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { on(session, |session| Ok(session.enable(text(glob, "the glob")?)?)) }
}

/// Disables the events that a glob over `provider:name` matches. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended; `glob` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_disable(session: *const lw_session, glob: *const c_char) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { on(session, |session| Ok(session.disable(text(glob, "the glob")?)?)) }
}

/// Adds a rule. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended; `rule` is readable, its texts end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_rule(session: *const lw_session, rule: *const lw_rule) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { on(session, |session| Ok(session.rule(&spec(session, given(rule, "the rule")?)?)?)) }
}

/// # Safety
/// The rule's texts are null or end with a NUL.
unsafe fn spec(session: &Session, rule: &lw_rule) -> Outcome<RuleSpec> {
    // SAFETY: the caller vouches for it.
    let glob = unsafe { text(rule.glob, "the glob") }?;
    let mut spec = if rule.disable == 0 { RuleSpec::enable(glob) } else { RuleSpec::disable(glob) };
    if !rule.channel.is_null() {
        // SAFETY: as above.
        let name = unsafe { text(rule.channel, "the channel's name") }?;
        let none = || format!("session {} has no channel {name:?}", session.name());
        spec = spec.in_channel(session.channel(name).ok_or_else(none)?);
    }
    Ok(if rule.max_level == 0 { spec } else { spec.up_to(rule.max_level.min(5) as u8) })
}

/// Stops (0) or continues (not 0) recording, in all processes of the session.
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_recording(session: *const lw_session, recording: c_int) -> c_int {
    let change = |session: &Session| {
        if recording == 0 {
            session.stop();
        } else {
            session.resume();
        }
        Ok(())
    };
    // SAFETY: the caller vouches for it.
    unsafe { on(session, change) }
}

/// Makes readers pass over all that was recorded until now. 0, or -1 (see `lw_error`).
///
/// # Safety
/// `session` is a session that was not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_session_clear(session: *const lw_session) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { on(session, |session| Ok(session.clear()?)) }
}

/// Ends the session and frees it; its folder goes, unless it is to be kept.
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

/// Keeps the folders of all sessions of this process whatever is ended: for handlers of crashes. Async-signal-safe.
#[unsafe(no_mangle)]
pub extern "C" fn lw_keep_all() {
    lastwords::session::keep_all();
}
