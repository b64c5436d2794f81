//! Contexts that the application defines, as a channel's configuration holds them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::desc::FieldType;

/// Largest size of the contexts of a channel, in bytes.
pub(crate) const MAX_LEN: usize = 192;

/// A function that writes the current value to the room, which has the value's size.
pub(crate) type Read = dyn Fn(&mut [u8]) + Send + Sync;

/// A context that the application defines: a value of fixed size, read when an event is recorded.
#[derive(Clone)]
pub struct UserContext {
    pub(crate) name: Cow<'static, str>,
    /// Type of the value.
    pub(crate) ty: FieldType,
    /// Size of the value in bytes.
    pub(crate) size: usize,
    pub(crate) read: Arc<Read>,
}

impl UserContext {
    /// Makes a context whose type is only known at run time, for other languages. `read` writes the
    /// value to zeroed bytes, which have the type's size and are aligned for any type. Returns none
    /// if the type has no fixed size. The rules of [`UserContext::new`] apply to `read`.
    pub fn of_type(
        name: impl Into<Cow<'static, str>>,
        ty: FieldType,
        read: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Option<Self> {
        let write = move |room: &mut [u8]| {
            room.fill(0);
            read(room);
        };
        Some(Self { name: name.into(), ty, size: ty.fixed_size()?, read: Arc::new(write) })
    }
}

impl fmt::Debug for UserContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserContext")
            .field("name", &self.name)
            .field("ty", &self.ty)
            .finish_non_exhaustive()
    }
}
