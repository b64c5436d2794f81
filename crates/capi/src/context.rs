//! Contexts of the application's own. A callback returns the value at each event.

use std::ffi::c_void;

use lastwords::__private::library_of;
use lastwords::context::UserContext;

use crate::args::list;
use crate::desc::{field_of, lw_field_desc};
use crate::error::{Failure, Outcome};

#[repr(C)]
pub struct lw_context {
    pub field: lw_field_desc,
    pub read: Option<unsafe extern "C" fn(to: *mut c_void, data: *mut c_void)>,
    pub data: *mut c_void,
}

/// Converts the contexts to the library's own form.
///
/// # Safety
/// `contexts` has `count` of them. Their names end with NULs, and their labels live as long as the
/// process.
pub(crate) unsafe fn all(contexts: *const lw_context, count: u32) -> Outcome<Vec<UserContext>> {
    // SAFETY: the caller guarantees the contexts.
    let contexts = unsafe { list(contexts, count as usize, "the contexts") }?;
    // SAFETY: the caller guarantees names and labels.
    (0..).zip(contexts).map(|(index, context)| unsafe { one(index, context) }).collect()
}

/// # Safety
/// The conditions of `all` apply.
unsafe fn one(index: u32, context: &lw_context) -> Outcome<UserContext> {
    // SAFETY: the caller guarantees the field.
    let field = unsafe { field_of(&context.field) };
    let field = field
        .ok_or_else(|| Failure::argument(format!("context {index}: its name or type is none")))?;
    let read = context.read.ok_or_else(|| {
        Failure::argument(format!("context {:?}: its callback is a null pointer", field.name))
    })?;
    // Events may be recorded after the plug-in with the callback was closed.
    library_of(read as *const c_void);
    // The header states that the callback runs in any thread, and that only the callback uses the
    // memory at `data`. So the address may go from thread to thread.
    let data = context.data.expose_provenance();
    let made = UserContext::of_type(field.name.to_owned(), field.ty, move |room: &mut [u8]| {
        // SAFETY: the room has the size of the type that the application gave with its callback.
        unsafe { read(room.as_mut_ptr().cast(), std::ptr::with_exposed_provenance_mut(data)) }
    });
    made.ok_or_else(|| {
        Failure::argument(format!("context {:?}: its type has no fixed size", field.name))
    })
}
