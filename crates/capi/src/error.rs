//! Failures of calls: a code and a text, kept for the thread until its next failure.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use lastwords::Error;
use lastwords::crash::InstallError;

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
        let code = if matches!(error, InstallError::NotFatal(_)) { LW_ERROR_ARGUMENT } else { LW_ERROR_SYSTEM };
        Self::new(code, error.to_string())
    }
}

/// The text of a thread's last failure, or null. The text is on the heap, because a library that is loaded late gets the
/// storage of its threads from a small reserve, which it shares with others.
struct Text(Cell<*mut c_char>);

impl Text {
    /// Replaces the text.
    fn set(&self, text: CString) {
        self.free(self.0.replace(text.into_raw()));
    }

    fn free(&self, text: *mut c_char) {
        if !text.is_null() {
            // SAFETY: the pointer came from `into_raw`, and nothing refers to it any more: C may read a text only until the
            // next failure.
            drop(unsafe { CString::from_raw(text) });
        }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        self.free(self.0.replace(std::ptr::null_mut()));
    }
}

thread_local! {
    static CODE: Cell<c_int> = const { Cell::new(LW_OK) };
    static TEXT: Text = const { Text(Cell::new(std::ptr::null_mut())) };
}

/// Stores the failure as the thread's last, and returns its code.
fn note(failure: Failure) -> c_int {
    let mut text = failure.text.into_bytes();
    text.retain(|byte| *byte != 0);
    // While the thread ends, its text may be gone. The code remains.
    let _ = TEXT.try_with(|last| last.set(CString::new(text).unwrap_or_default()));
    CODE.set(failure.code);
    failure.code
}

/// Runs a call of C. A panic becomes an error of the library, and does not end the application.
fn run<T>(call: impl FnOnce() -> Outcome<T>) -> Result<T, c_int> {
    let fault = |_| Err(Failure::new(LW_ERROR_OTHER, "the library has a fault: it panicked; please report it"));
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(fault).map_err(note)
}

/// Runs a call and returns `LW_OK`, or the code of the failure, which is stored.
pub(crate) fn status(call: impl FnOnce() -> Outcome) -> c_int {
    run(call).err().unwrap_or(LW_OK)
}

/// Runs a call and gives its value to C, which must give the value back later. If the call fails, stores the failure
/// and returns null.
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
    let text = TEXT.try_with(|text| text.0.get().cast_const()).unwrap_or(std::ptr::null());
    if text.is_null() { c"".as_ptr() } else { text }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn lw_error_code() -> c_int {
    CODE.get()
}

#[unsafe(no_mangle)]
extern "C" fn lw_strerror(code: c_int) -> *const c_char {
    CODES.iter().find(|(known, _)| *known == code).map_or(c"an unknown code", |(_, text)| text).as_ptr()
}
