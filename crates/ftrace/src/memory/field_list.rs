//! Finds the list of an event's own fields.
//!
//! Most classes of events have the list. A class with a function `get_fields` has no list of its
//! own; the function takes the list from `trace_event_call.data`:
//!
//! - `syscall_get_enter_fields` (kernel/trace/trace_syscalls.c) takes `enter_fields` of a `struct
//!   syscall_metadata`, whose member `enter_event` points back to the call.
//! - `user_event_get_fields` (kernel/trace/trace_events_user.c) takes `fields` of a `struct
//!   user_event`, which contains both the call and the class.
//!
//! These ways back show which structure it is, without the name of the function. A structure without
//! either is of an unknown function: then the fields are not known.

use lastwords_bytes::Error as BytesError;
use lastwords_kernel::{Error, Kernel, Object};

/// The structure that has the list of a call's fields.
pub(super) enum FieldList<'k> {
    /// The class.
    Class(Object<'k>),
    /// The metadata of a system call, for its entry.
    Syscall(Object<'k>),
    /// An event that a program has registered.
    UserEvent(Object<'k>),
}

impl<'k> FieldList<'k> {
    /// Finds the list of a call of this class.
    ///
    /// # Errors
    /// The image lacks a structure, or the class has an unknown function for the list.
    pub(super) fn find(
        kernel: &'k Kernel,
        call: &Object<'k>,
        class: &Object<'k>,
    ) -> Result<Self, Error> {
        let function = class.address("get_fields")?;
        if function == 0 {
            return Ok(Self::Class(*class));
        }
        let data = call.address("data")?;
        // Kernels without CONFIG_USER_EVENTS do not have the type.
        if let Ok(user_event) = kernel.object("user_event", data)
            && user_event.at("call")?.place() == call.place()
            && user_event.at("class")?.place() == class.place()
        {
            return Ok(Self::UserEvent(user_event));
        }
        // Nor do kernels without CONFIG_FTRACE_SYSCALLS have this one.
        if let Ok(metadata) = kernel.object("syscall_metadata", data)
            && metadata.address("enter_event")? == call.place()
        {
            return Ok(Self::Syscall(metadata));
        }
        let expected = "the function of system calls or of user events as get_fields";
        Err(BytesError::value(&class.type_name(), class.place(), function, expected).into())
    }

    /// Address of the list.
    ///
    /// # Errors
    /// The structure has no such member.
    pub(super) fn head(&self) -> Result<u64, Error> {
        let (owner, member) = match self {
            Self::Class(class) => (class, "fields"),
            Self::Syscall(metadata) => (metadata, "enter_fields"),
            Self::UserEvent(event) => (event, "fields"),
        };
        Ok(owner.at(member)?.place())
    }

    /// The metadata of the system call whose entry this is; none for other events.
    pub(super) fn syscall(&self) -> Option<&Object<'k>> {
        if let Self::Syscall(metadata) = self { Some(metadata) } else { None }
    }
}

#[cfg(test)]
mod tests;
