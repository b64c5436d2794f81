//! Checks arguments from C: pointers that may be null, texts that may not be UTF-8, numbers that
//! stand for a choice, and structures of a caller that was compiled with another version of the
//! header.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::error::{Failure, LW_ERROR_UNSUPPORTED, Outcome};

/// Returns the text; `what` names it in errors.
///
/// # Safety
/// `text` is null or ends with a NUL.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Outcome<&'a str> {
    // SAFETY: the caller guarantees the text.
    let text = unsafe { c_str(text, what) }?.to_str();
    text.map_err(|error| Failure::argument(format!("{what}: {error}; give UTF-8")))
}

/// Returns the path, which may be any bytes.
///
/// # Safety
/// `path` is null or ends with a NUL.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Outcome<&'a Path> {
    // SAFETY: the caller guarantees the path.
    let path = unsafe { c_str(path, "the path") }?;
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// # Safety
/// `text` is null or ends with a NUL.
unsafe fn c_str<'a>(text: *const c_char, what: &str) -> Outcome<&'a CStr> {
    // SAFETY: the text is not null when it is read, and the caller guarantees the rest.
    unsafe { given(text, what).map(|text| CStr::from_ptr(text)) }
}

/// Returns the value to which the pointer leads.
///
/// # Safety
/// `pointer` is null or leads to a value that nobody changes meanwhile.
pub(crate) unsafe fn given<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: the caller guarantees the pointer.
    unsafe { pointer.as_ref() }
        .ok_or_else(|| Failure::argument(format!("{what} is a null pointer")))
}

/// Returns the values to which the pointer leads. The pointer may be null if there are none.
///
/// # Safety
/// `first` is null or leads to `count` values that nobody changes meanwhile.
pub(crate) unsafe fn list<'a, T>(first: *const T, count: usize, what: &str) -> Outcome<&'a [T]> {
    // SAFETY: the caller guarantees the values.
    let values = unsafe { slice(first, count) };
    values.ok_or_else(|| {
        Failure::argument(format!("{what} are a null pointer, their count is {count}"))
    })
}

/// Returns the values like [`list`], or `None` if the pointer is null although `count` is not 0.
/// Uses no memory of the heap.
///
/// # Safety
/// The conditions of `list` apply.
pub(crate) unsafe fn slice<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    // SAFETY: the pointer is not null, and the caller guarantees the values.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, count) })
}

/// A structure in which zero bytes mean the default of a field.
///
/// # Safety
/// All-zero bytes are a value of the type. The type has no padding, because a newer version could
/// take padding for a field.
pub(crate) unsafe trait Growing {}

/// Returns the structure of a caller that was compiled when it had `size` bytes. Fields that the
/// caller does not know get their defaults. Fields that this library does not know must have their
/// defaults.
///
/// # Safety
/// `pointer` is null or leads to `size` bytes.
pub(crate) unsafe fn sized<T: Growing>(pointer: *const T, size: usize, what: &str) -> Outcome<T> {
    // SAFETY: the caller guarantees the bytes. All-zero bytes are a value of the type, and so are
    // the caller's bytes followed by zeros.
    unsafe {
        given(pointer.cast::<u8>(), what)?;
        let bytes = std::slice::from_raw_parts(pointer.cast::<u8>(), size);
        let (known, unknown) = bytes.split_at(size.min(size_of::<T>()));
        if unknown.iter().any(|byte| *byte != 0) {
            let why = format!(
                "{what} has a field that this version of the library does not know; update the library"
            );
            return Err(Failure::new(LW_ERROR_UNSUPPORTED, why));
        }
        let mut value = std::mem::zeroed::<T>();
        std::ptr::copy_nonoverlapping(known.as_ptr(), (&raw mut value).cast(), known.len());
        Ok(value)
    }
}

/// Fills a structure of a caller that was compiled when it had `size` bytes. Does nothing if `to`
/// is null.
///
/// # Safety
/// `to` is null or has room for `size` bytes.
pub(crate) unsafe fn fill<T: Growing>(to: *mut T, size: usize, value: &T) {
    if !to.is_null() {
        // SAFETY: the value has no padding, and the caller guarantees the room.
        unsafe {
            let known = size.min(size_of::<T>());
            std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), to.cast(), known);
            to.cast::<u8>().add(known).write_bytes(0, size - known);
        }
    }
}

/// Returns the choice that the number stands for. `choices` has number, name and choice of each.
pub(crate) fn chosen<T: Clone>(what: &str, number: u32, choices: &[(u32, &str, T)]) -> Outcome<T> {
    if let Some((_, _, choice)) = choices.iter().find(|(code, _, _)| *code == number) {
        return Ok(choice.clone());
    }
    let names: Vec<&str> = choices.iter().map(|(_, name, _)| *name).collect();
    Err(Failure::argument(format!("{what} {number} is none of {}", names.join(", "))))
}

/// Lists choices of the header with their constants: `choices![LW_CLOCK_REALTIME = 4 =>
/// ClockKind::Realtime]`.
macro_rules! choices {
    ($($name:ident = $number:literal => $choice:expr),* $(,)?) => { [$(($number, stringify!($name), $choice)),*] };
}
pub(crate) use choices;
