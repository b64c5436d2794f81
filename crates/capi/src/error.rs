//! Failures of calls: a code and a text, kept for the thread until its next failure.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use lastwords::__private::library_of;
use lastwords::Error;
use lastwords::crash::InstallError;
use libc::{pthread_getspecific, pthread_key_create, pthread_key_t, pthread_setspecific};

/// Defines `enum lw_code`: the constants, and the text of `lw_strerror` for each.
macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        $(pub(crate) const $name: c_int = $code;)*
        const CODES: &[(c_int, &CStr)] = &[$(($name, $text)),*];
    };
}

codes! {
    LW_OK = 0, c"no error";
    LW_ERROR_OTHER = -1, c"the call failed";
    LW_ERROR_ARGUMENT = -2, c"an argument is not valid";
    LW_ERROR_SYSTEM = -3, c"the system refused a call";
    LW_ERROR_MEMORY = -4, c"not enough memory, or more than the session's limit";
    LW_ERROR_FULL = -5, c"a table has no room";
    LW_ERROR_UNSUPPORTED = -6, c"not supported by this machine, memory, session or version of the library";
    LW_ERROR_BUSY = -7, c"held by another process or thread; try again";
    LW_ERROR_NO_SNAPSHOT = -8, c"no spare memory for a snapshot, or no snapshot";
    LW_ERROR_UNTRUSTED = -9, c"a folder is not safe from other users";
    LW_ERROR_FORMAT = -10, c"a file is damaged, or of another version";
    LW_ERROR_EXISTS = -11, c"the name exists already";
}

/// A code and the reason in words.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    text: String,
}

/// The result of a call, before it becomes a number or a pointer for C.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(LW_ERROR_ARGUMENT, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Io { .. } => LW_ERROR_SYSTEM,
            Error::Untrusted { .. } => LW_ERROR_UNTRUSTED,
            Error::Name { .. } | Error::Geometry { .. } => LW_ERROR_ARGUMENT,
            Error::TooLarge { .. } | Error::Backend(_) => LW_ERROR_MEMORY,
            Error::Full { .. } => LW_ERROR_FULL,
            Error::Unsupported { .. } => LW_ERROR_UNSUPPORTED,
            Error::Region { .. } => LW_ERROR_FORMAT,
            Error::Busy { .. } => LW_ERROR_BUSY,
            Error::Exists { .. } => LW_ERROR_EXISTS,
            Error::Snapshot { .. } => LW_ERROR_NO_SNAPSHOT,
            _ => LW_ERROR_OTHER,
        };
        Self::new(code, error.to_string())
    }
}

impl From<InstallError> for Failure {
    fn from(error: InstallError) -> Self {
        let code = if matches!(error, InstallError::NotFatal(_)) {
            LW_ERROR_ARGUMENT
        } else {
            LW_ERROR_SYSTEM
        };
        Self::new(code, error.to_string())
    }
}

thread_local! {
    static CODE: Cell<c_int> = const { Cell::new(LW_OK) };
}

/// The key of the texts of the threads' last failures, which are on the heap. In thread-local
/// storage they would take from the small reserve that the C library has for libraries that are
/// loaded late. None if the process has no more keys.
static TEXT: LazyLock<Option<pthread_key_t>> = LazyLock::new(|| {
    // The destructor must stay when the library is closed.
    library_of(free_text as *const c_void);
    let mut key = 0;
    // SAFETY: `key` is valid memory for the result, and the destructor stays.
    (unsafe { pthread_key_create(&raw mut key, Some(free_text)) } == 0).then_some(key)
});

/// Frees a text. The C library calls this at the end of a thread.
unsafe extern "C" fn free_text(text: *mut c_void) {
    if !text.is_null() {
        // SAFETY: the pointer came from `into_raw`, and nothing refers to it any more: C may read a
        // text only until the thread's next failure or end.
        drop(unsafe { CString::from_raw(text.cast()) });
    }
}

/// Stores the failure as the thread's last, and returns its code.
fn note(failure: Failure) -> c_int {
    let mut text = failure.text.into_bytes();
    text.retain(|byte| *byte != 0);
    if let Some(key) = *TEXT {
        let text = CString::new(text).unwrap_or_default().into_raw();
        // SAFETY: the key exists, and its values are null or came from `into_raw`. If the new one
        // is not stored, it is freed.
        unsafe {
            let before = pthread_getspecific(key);
            let unused =
                if pthread_setspecific(key, text.cast()) == 0 { before } else { text.cast() };
            free_text(unused);
        }
    }
    CODE.set(failure.code);
    failure.code
}

/// Runs a call of C. A panic becomes an error of the library, and does not end the application.
fn run<T>(call: impl FnOnce() -> Outcome<T>) -> Result<T, c_int> {
    let fault = |_| {
        Err(Failure::new(LW_ERROR_OTHER, "the library has a fault: it panicked; please report it"))
    };
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(fault).map_err(note)
}

/// Runs a call and returns `LW_OK`, or the code of the failure, which is stored.
pub(crate) fn status(call: impl FnOnce() -> Outcome) -> c_int {
    run(call).err().unwrap_or(LW_OK)
}

/// Runs a call and gives its value to C, which must give the value back later. If the call fails,
/// stores the failure and returns null.
pub(crate) fn boxed<T>(call: impl FnOnce() -> Outcome<T>) -> *mut T {
    run(call).map_or(std::ptr::null_mut(), |made| Box::into_raw(Box::new(made)))
}

/// Takes a value back from C, to drop it. Returns `None` for a null pointer.
///
/// # Safety
/// `made` is null or came from `boxed`, and nobody uses it any more.
pub(crate) unsafe fn unboxed<T>(made: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller guarantees the pointer.
    (!made.is_null()).then(|| unsafe { Box::from_raw(made) })
}

/// Takes a value back from C and passes it to `how`. Does nothing with a null pointer.
///
/// # Safety
/// The conditions of [`unboxed`] apply.
pub(crate) unsafe fn end<T>(made: *mut T, how: impl FnOnce(T)) {
    status(|| {
        // SAFETY: the caller guarantees the pointer.
        if let Some(made) = unsafe { unboxed(made) } {
            how(*made);
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn lw_error() -> *const c_char {
    // SAFETY: the key exists.
    let text = TEXT.map_or(std::ptr::null_mut(), |key| unsafe { pthread_getspecific(key) });
    if text.is_null() { c"".as_ptr() } else { text.cast_const().cast() }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn lw_error_code() -> c_int {
    CODE.get()
}

#[unsafe(no_mangle)]
extern "C" fn lw_strerror(code: c_int) -> *const c_char {
    CODES
        .iter()
        .find(|(known, _)| *known == code)
        .map_or(c"an unknown code", |(_, text)| text)
        .as_ptr()
}
