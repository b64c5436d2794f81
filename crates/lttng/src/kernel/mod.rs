//! Walks the buffers of LTTng's kernel tracer in a kernel's memory: every session, stopped or
//! recording.
//!
//! The list of sessions is a variable of the module `lttng_tracer`. Everything else is found by the
//! names of members, with the module's own types. The members show the release: lists are called
//! `chan` and `list` in 2.13, `chan_head` and `node` from 2.14 on.

mod check;
pub mod layouts;
mod metadata;
mod ring;
mod session;

use crate::Session;
use lastwords_kernel::btf::Types;
use lastwords_kernel::{Error, Kernel, Object};
use layouts::RELEASES;
use std::sync::Arc;

/// Name of the module that has the list of sessions.
pub const MODULE: &str = "lttng_tracer";

/// Name of the structure of a session.
const SESSION: &str = "lttng_kernel_session_private";

/// The LTTng sessions of a kernel.
#[derive(Debug, Default)]
pub struct Sessions {
    /// Sessions, in order of creation.
    pub sessions: Vec<Session>,
    /// Notes about sessions that could not be read.
    pub notes: Vec<String>,
}

/// Source of the types of the tracer's modules.
#[derive(Debug, Clone, Default)]
pub enum ModuleTypes {
    /// The image, or the known releases if the image has no types.
    #[default]
    Image,
    /// Only the known releases.
    Releases,
    /// These types, from the modules' own files.
    Given(Arc<Types>),
}

/// Reads all LTTng sessions of a kernel; none if the tracer is not loaded.
///
/// # Errors
/// The tracer is loaded but matches no known layout, the list of sessions cannot be read, or the
/// budget is spent.
pub fn read(kernel: &Arc<Kernel>, source: &ModuleTypes) -> Result<Sessions, Error> {
    let Some(head) = kernel.symbols.find_in(MODULE, "sessions") else {
        return Ok(Sessions::default());
    };
    let own = match source {
        ModuleTypes::Given(types) => Some(Arc::clone(types)),
        ModuleTypes::Image => kernel.module_types(MODULE),
        ModuleTypes::Releases => None,
    };
    if let Some(types) = own {
        return sessions(&Memory { kernel, types }, head);
    }
    let mut why = None;
    for release in &RELEASES {
        let memory = Memory { kernel, types: release.types(kernel)? };
        match check::fits(&memory, head) {
            Ok(()) => {
                let mut found = sessions(&memory, head)?;
                let name = release.name;
                found.notes.push(format!(
                    "the modules have no types of their own: read by the layouts of {name}"
                ));
                return Ok(found);
            }
            Err(error @ Error::Bytes(_)) => return Err(error),
            Err(error) => why = Some(error),
        }
    }
    Err(why.unwrap_or_else(|| Error::NoType("struct lttng_kernel_session_private".to_owned())))
}

fn sessions(memory: &Memory<'_>, head: u64) -> Result<Sessions, Error> {
    let mut found = Sessions::default();
    let link = memory.first_member(SESSION, &["node", "list"])?;
    for entry in memory.list(head, SESSION, link)? {
        let read = entry.and_then(|object| session::read(memory, &object));
        match read {
            Ok(session) => found.sessions.push(session),
            Err(error @ Error::Bytes(_)) => return Err(error),
            Err(error) => found.notes.push(format!("a session of LTTng is not known: {error}")),
        }
    }
    // The newest session is first in the list.
    found.sessions.reverse();
    Ok(found)
}

/// The kernel's memory, with the types of the tracer's modules.
struct Memory<'k> {
    kernel: &'k Arc<Kernel>,
    types: Arc<Types>,
}

impl Memory<'_> {
    /// The object at an address with the structure of this name.
    fn object(&self, name: &str, address: u64) -> Result<Object<'_>, Error> {
        Ok(Object::new(&*self.kernel.memory, &self.types, self.types.id(name)?, address))
    }

    /// The first of these members that the structure has.
    fn first_member<'n>(&self, name: &str, members: &[&'n str]) -> Result<&'n str, Error> {
        let found = members.iter().find(|member| self.types.has_member(name, member));
        found.copied().ok_or_else(|| Error::NoMember {
            structure: name.to_owned(),
            member: members.join(" or "),
            part: members.join(" or "),
        })
    }

    /// The entries of the list at `head`: structures that are linked by `member`.
    fn list(
        &self,
        head: u64,
        name: &str,
        member: &str,
    ) -> Result<impl Iterator<Item = Result<Object<'_>, Error>> + '_, Error> {
        let id = self.types.id(name)?;
        let offset = self.types.member_of(id, member)?.offset;
        let object = move |at| Object::new(&*self.kernel.memory, &self.types, id, at);
        Ok(self.kernel.list_at(head, offset).map(move |entry| entry.map(object)))
    }
}
