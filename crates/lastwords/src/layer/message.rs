//! The message of an event, as far as it belongs to the callsite. Only constant text of a format
//! string does: a value that happens to be constant, such as the name of an enum's variant, must
//! never become the name of the event.

use std::fmt;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use tracing_core::field::{Field, Value, Visit};

/// Largest size of a name, in bytes.
const MOST: usize = 120;

/// The table of functions by which `tracing` passes [`fmt::Arguments`] to visitors; null before
/// [`learn`]. The order matters for no other memory.
static ARGUMENTS: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

const _: () = assert!(size_of::<&dyn fmt::Debug>() == size_of::<[*const (); 2]>());

/// Returns the table of functions of a value.
#[inline]
fn table_of(value: &dyn fmt::Debug) -> *const () {
    // SAFETY: a reference to a trait object has two pointers, to the value and to the table of its
    // functions. Both are valid as bare pointers, whatever their order.
    let [_, table] = unsafe { std::mem::transmute::<&dyn fmt::Debug, [*const (); 2]>(value) };
    table
}

/// Learns how `tracing` passes format strings and their values. The field is any field.
fn learn(field: &Field) {
    struct Table;
    impl Visit for Table {
        fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
            ARGUMENTS.store(table_of(value).cast_mut(), Relaxed);
        }
    }
    (&format_args!("") as &dyn Value).record(field, &mut Table);
}

/// Returns the text of a message that is constant: a format string without values.
#[inline]
pub(super) fn constant(value: &dyn fmt::Debug) -> Option<&'static str> {
    let known = ARGUMENTS.load(Relaxed);
    if known.is_null() || !ptr::eq(table_of(value), known) {
        return None;
    }
    // SAFETY: the value is formatted by the function that formats `fmt::Arguments` and has its
    // size, because both are in the table that `learn` found for such a value. So the reference
    // leads to `fmt::Arguments`.
    let arguments = unsafe { &*ptr::from_ref(value).cast::<fmt::Arguments<'_>>() };
    arguments.as_str()
}

/// Returns the name of a place in the source, such as `main.rs:71`.
pub(super) fn place(file: &'static str, line: u32) -> &'static str {
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    if file.is_empty() { "event" } else { String::leak(format!("{file}:{line}")) }
}

/// Returns the constant message of an event, if the text can be a name.
pub(super) fn name(event: &tracing_core::Event<'_>, field: &Field) -> Option<&'static str> {
    struct Message<'a>(&'a Field, Option<&'static str>);
    impl Visit for Message<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field == self.0 {
                self.1 = constant(value);
            }
        }
    }
    learn(field);
    let mut message = Message(field, None);
    event.record(&mut message);
    message
        .1
        .filter(|text| !text.is_empty() && text.len() <= MOST && !text.contains(char::is_control))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_place_without_a_file() {
        assert_eq!(super::place("", 0), "event");
    }
}
