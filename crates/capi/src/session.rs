//! Sessions that record.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::catch_unwind;
use std::sync::OnceLock;

use lastwords::__private::start_without_tracing;
use lastwords::rules::RuleSpec;
use lastwords::{Level, Session};

use crate::args::{Growing, given, sized, text};
use crate::channel::{config, lw_channel};
use crate::error::{Failure, Outcome, end};

/// The session of `lw_start`, which C cannot end.
static STARTED: OnceLock<lw_session> = OnceLock::new();

#[derive(Debug)]
pub(crate) struct lw_session {
    session: Session,
    name: CString,
    folder: CString,
    note: CString,
    problem: CString,
}

impl lw_session {
    pub(crate) fn new(session: Session) -> Self {
        let text = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
        let folder =
            session.folder().map(|path| text(path.as_os_str().as_bytes())).unwrap_or_default();
        let problem =
            session.problem().map(|error| text(error.to_string().as_bytes())).unwrap_or_default();
        Self {
            name: text(session.name().as_bytes()),
            folder,
            note: text(session.note().as_bytes()),
            problem,
            session,
        }
    }
}

#[repr(C)]
struct lw_rule {
    glob: *const c_char,
    channel: *const c_char,
    max_level: u32,
    disable: u32,
    filter: *const c_char,
}

// SAFETY: the fields are pointers and numbers without padding, which may all be zero.
unsafe impl Growing for lw_rule {}

/// Returns the session, with a lifetime that the caller guarantees.
///
/// # Safety
/// `session` is null or came from `lw_builder_start` and was not ended.
pub(crate) unsafe fn from_handle<'a>(session: *const lw_session) -> Outcome<&'a Session> {
    // SAFETY: the caller guarantees the session.
    Ok(&unsafe { given(session, "the session") }?.session)
}

/// Defines functions of C that act on a session: `int NAME(const struct lw_session *session,
/// ARGUMENTS)`.
macro_rules! actions {
    ($(fn $name:ident($session:ident $(, $arg:ident: $type:ty)*) = $act:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(session: *const crate::session::lw_session $(, $arg: $type)*) -> std::ffi::c_int {
            // SAFETY: C passes a session that was not ended, or null; texts and structures are null or complete.
            crate::error::status(|| unsafe {
                let $session = crate::session::from_handle(session)?;
                $act;
                Ok(())
            })
        }
    )*};
}
pub(crate) use actions;

actions! {
    fn lw_session_uuid(session, uuid: *mut u8) = {
        given(uuid, "the place for the UUID")?;
        uuid.cast::<[u8; 16]>().write(session.uuid());
    };
    fn lw_session_enable(session, glob: *const c_char) = session.enable(text(glob, "the glob")?)?;
    fn lw_session_disable(session, glob: *const c_char) = session.disable(text(glob, "the glob")?)?;
    fn lw_session_rule_sized(session, rule: *const lw_rule, size: usize) =
        session.rule(&spec(session, &sized(rule, size, "the rule")?)?)?;
    fn lw_session_create_channel_sized(session, channel: *const lw_channel, filter: *const c_char, size: usize) = {
        let channel = config(&sized(channel, size, "the channel")?)?;
        let filter = if filter.is_null() { None } else { Some(text(filter, "the filter")?) };
        session.create_channel(&channel, filter)?
    };
    fn lw_session_recording(session, recording: c_int) =
        if recording == 0 { session.stop() } else { session.resume() };
    fn lw_session_clear(session) = session.clear()?;
}

/// # Safety
/// The rule's texts are null or end with a NUL.
unsafe fn spec(session: &Session, rule: &lw_rule) -> Outcome<RuleSpec> {
    // SAFETY: the caller guarantees the texts of the rule.
    let glob = unsafe { text(rule.glob, "the glob") }?;
    let mut spec = if rule.disable == 0 { RuleSpec::enable(glob) } else { RuleSpec::disable(glob) };
    if !rule.channel.is_null() {
        // SAFETY: the caller guarantees the texts of the rule.
        let name = unsafe { text(rule.channel, "the channel's name") }?;
        let none =
            || Failure::argument(format!("session {} has no channel {name:?}", session.name()));
        spec = spec.in_channel(session.channel(name).ok_or_else(none)?);
    }
    if !rule.filter.is_null() {
        // SAFETY: the caller guarantees the texts of the rule.
        spec = spec.with_filter(unsafe { text(rule.filter, "the filter") }?);
    }
    Ok(Level::from_number(rule.max_level).into_iter().fold(spec, RuleSpec::up_to))
}

/// Defines functions of C that return a text which is kept with the session. The text is empty if
/// there is no session.
macro_rules! texts {
    ($(fn $name:ident(session) = $field:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(session: *const lw_session) -> *const c_char {
            // SAFETY: C passes a session that was not ended, or null.
            unsafe { session.as_ref() }.map_or(c"", |session| session.$field.as_c_str()).as_ptr()
        }
    )*};
}

texts! {
    fn lw_session_name(session) = name;
    fn lw_session_folder(session) = folder;
    fn lw_session_note(session) = note;
    fn lw_session_problem(session) = problem;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_session_reservation(session: *const lw_session) -> u32 {
    // SAFETY: C passes a session that was not ended, or null.
    unsafe { session.as_ref() }.map_or(0, |held| held.session.reservation())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_start(name: *const c_char) -> *const lw_session {
    STARTED.get_or_init(|| {
        // SAFETY: C passes null or a text that ends with a NUL.
        let name = unsafe { text(name, "the session's name") }.unwrap_or_default();
        let made = catch_unwind(|| start_without_tracing(name.to_owned()));
        lw_session::new(made.unwrap_or_else(|_| Session::builder("").start_or_disabled()))
    })
}

/// Takes a session back from C and passes it to `how`. The session of `lw_start` stays.
///
/// # Safety
/// `session` is null or came from a function of this library, and C does not use it afterwards.
unsafe fn end_by(session: *mut lw_session, how: impl FnOnce(Session)) {
    if !STARTED.get().is_some_and(|started| std::ptr::eq(started, session)) {
        // SAFETY: the caller guarantees the pointer.
        unsafe { end(session, |held| how(held.session)) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_session_end(session: *mut lw_session) {
    // SAFETY: C does not use the session afterwards.
    unsafe { end_by(session, drop) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_session_finish(session: *mut lw_session, exit_status: c_int) -> c_int {
    let result = if exit_status == 0 { Ok(()) } else { Err(()) };
    // SAFETY: C does not use the session afterwards. `finish` returns the result that it received.
    unsafe { end_by(session, |held| _ = held.finish(result)) }
    exit_status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_session_remove(session: *mut lw_session) {
    // SAFETY: C does not use the session afterwards.
    unsafe { end_by(session, Session::remove) }
}
