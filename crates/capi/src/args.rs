//! Arguments as C gives them: pointers that may be null, texts that may be none, numbers that stand for a choice.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::Outcome;

/// The text; `what` is what an error calls it.
///
/// # Safety
/// `text` is null or ends with a NUL.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Outcome<&'a str> {
    // SAFETY: the caller vouches for it.
    let text = unsafe { c_str(text, what) }?.to_str();
    text.map_err(|error| format!("{what}: {error}; give UTF-8").into())
}

/// The path, which may be any bytes.
///
/// # Safety
/// `path` is null or ends with a NUL.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Outcome<&'a Path> {
    // SAFETY: the caller vouches for it.
    let path = unsafe { c_str(path, "the path") }?;
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// # Safety
/// `text` is null or ends with a NUL.
unsafe fn c_str<'a>(text: *const c_char, what: &str) -> Outcome<&'a CStr> {
    if text.is_null() {
        return Err(format!("{what} is a null pointer; give a text").into());
    }
    // SAFETY: it is not null, and the caller vouches for the rest.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// What the pointer leads to.
///
/// # Safety
/// `pointer` is null or leads to a value that nobody changes meanwhile.
pub(crate) unsafe fn given<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: the caller vouches for it.
    unsafe { pointer.as_ref() }.ok_or_else(|| format!("{what} is a null pointer").into())
}

/// The choice that the number stands for, of those that there are: number, name, choice.
pub(crate) fn chosen<T: Clone>(what: &str, number: u32, choices: &[(u32, &str, T)]) -> Outcome<T> {
    if let Some((_, _, choice)) = choices.iter().find(|(code, _, _)| *code == number) {
        return Ok(choice.clone());
    }
    let names: Vec<&str> = choices.iter().map(|(_, name, _)| *name).collect();
    Err(format!("{what} {number} is none of {}", names.join(", ")).into())
}
