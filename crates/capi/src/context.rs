//! Contexts of the application's own: a callback gives the value at each event.

use std::ffi::c_void;

use lastwords::__private::library_of;
use lastwords::context::UserContext;

use crate::desc::{field_of, lw_field_desc};
use crate::error::Outcome;

/// A context of the application's own, as `LW_USER_CONTEXT` makes it.
#[repr(C)]
pub struct lw_context {
    /// Name and type, which has a fixed size.
    pub field: lw_field_desc,
    /// Writes the value of now to `to`, which is zeroed, aligned for every type, and has the type's size. It runs in the
    /// recording thread at each event of the channel, in any of them at the same time, perhaps inside a signal handler: it
    /// must not allocate, lock, block or record.
    pub read: Option<unsafe extern "C" fn(to: *mut c_void, data: *mut c_void)>,
    /// What `read` gets besides.
    pub data: *mut c_void,
}

/// The callback and what belongs to it.
struct Reader {
    read: unsafe extern "C" fn(to: *mut c_void, data: *mut c_void),
    data: *mut c_void,
}

// SAFETY: the header says that the callback runs in any thread, and what `data` leads to is the callback's alone.
unsafe impl Send for Reader {}
// SAFETY: as for Send.
unsafe impl Sync for Reader {}

impl Reader {
    fn read(&self, room: &mut [u8]) {
        // SAFETY: the room has the size of the type that the application gave with its callback.
        unsafe { (self.read)(room.as_mut_ptr().cast(), self.data) }
    }
}

/// The contexts in the library's own form.
///
/// # Safety
/// `contexts` has `count` of them; their names end with NULs, their labels live as long as the process.
pub(crate) unsafe fn all(contexts: *const lw_context, count: u32) -> Outcome<Vec<UserContext>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if contexts.is_null() {
        return Err(format!("the contexts are a null pointer, their count is {count}").into());
    }
    // SAFETY: the caller vouches for it.
    let contexts = unsafe { std::slice::from_raw_parts(contexts, count as usize) };
    // SAFETY: as above.
    (0..).zip(contexts).map(|(index, context)| unsafe { one(index, context) }).collect()
}

/// # Safety
/// As for `all`.
unsafe fn one(index: u32, context: &lw_context) -> Outcome<UserContext> {
    // SAFETY: the caller vouches for it.
    let field = unsafe { field_of(&context.field) };
    let field = field.ok_or_else(|| format!("context {index}: its name or type is none"))?;
    let read = context.read.ok_or_else(|| format!("context {:?}: its callback is a null pointer", field.name))?;
    // Events are recorded after a plug-in was closed.
    library_of(read as *const c_void);
    let reader = Reader { read, data: context.data };
    let made = UserContext::of_type(field.name.to_owned(), field.ty, move |room| reader.read(room));
    made.ok_or_else(|| format!("context {:?}: its type has no fixed size", field.name).into())
}
