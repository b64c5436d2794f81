//! The kinds of events of a session, with the numbers and names by which the kernel's tools know
//! them.
//!
//! An event's id in a session is a number in its channel, and several kinds can share a name:
//! callsites with different fields. A record of ftrace begins with a number of 16 bits that tells
//! its fields. So the mount numbers the kinds itself, in the order in which it learns of them. A
//! kind keeps its number and its folder as long as the mount is there.

use std::collections::{HashMap, HashSet};

use lastwords_ftrace::identifier;
use lastwords_trace::schema::Field;

use crate::names;

/// The first number. The kernel's own kinds of records (`enum trace_type` of
/// `kernel/trace/trace.h`) have those below, and its tools know some of them by their numbers.
const FIRST: u16 = 32;

/// The kinds that are known.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    known: HashMap<(String, Vec<Field>), EventKind>,
    /// The folders that are taken, each with the folder of its provider.
    folders: HashSet<(String, String)>,
    /// The identifiers that are taken.
    identifiers: HashSet<(String, String)>,
}

/// A kind of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventKind {
    /// The number (`common_type`); none if 16 bits have no more.
    pub(crate) id: Option<u16>,
    /// The folders of the provider and of the event. Of several kinds of one name, the second has
    /// `~2` after the name, and so on.
    pub(crate) folders: (String, String),
    /// The name as an identifier of C, which is unique in the provider.
    pub(crate) identifier: String,
}

impl Kinds {
    /// Returns the kind of an event class with this full name and these fields, and numbers it if
    /// it is new.
    pub(crate) fn kind(&mut self, name: &str, fields: &[Field]) -> EventKind {
        let key = (name.to_owned(), fields.to_vec());
        if let Some(kind) = self.known.get(&key) {
            return kind.clone();
        }
        let (provider, event) = names::split(name).unwrap_or(("", name));
        let provider = names::folder(provider);
        let folder = unique(&mut self.folders, &provider, &names::folder(event), '~');
        let identifier = unique(&mut self.identifiers, &provider, &identifier(event), '_');
        let id = u16::try_from(self.known.len()).ok().and_then(|number| FIRST.checked_add(number));
        let kind = EventKind { id, folders: (provider, folder), identifier };
        self.known.insert(key, kind.clone());
        kind
    }
}

/// Takes a name that nobody in the provider has: the name itself, else with a number after a
/// separator.
fn unique(
    taken: &mut HashSet<(String, String)>,
    provider: &str,
    name: &str,
    separator: char,
) -> String {
    let numbered = (2u32..).map(|number| names::with_suffix(name, &format!("{separator}{number}")));
    let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
    let free = candidates.find(|candidate| taken.insert((provider.to_owned(), candidate.clone())));
    free.expect("there are more numbers than names")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_trace::schema::FieldClass;

    #[test]
    fn a_kind_keeps_its_number_and_its_names() {
        let mut kinds = Kinds::default();
        let fields = vec![Field { name: "a".into(), class: FieldClass::Bool }];
        let first = kinds.kind("shop:sale", &[]);
        let second = kinds.kind("shop:sale", &fields);
        let marker = kinds.kind("marker:a {x}", &[]);
        let other = kinds.kind("marker:a_{x}", &[]);
        assert_eq!((first.id, second.id, marker.id), (Some(32), Some(33), Some(34)));
        assert_eq!((first.folders.1.as_str(), second.folders.1.as_str()), ("sale", "sale~2"));
        assert_eq!((marker.identifier.as_str(), other.identifier.as_str()), ("a__x_", "a__x__2"));
        assert_eq!(kinds.kind("shop:sale", &fields), second);
        let cut = (
            kinds.kind(&format!("p:{}", "x".repeat(300)), &[]),
            kinds.kind(&format!("p:{}", "x".repeat(301)), &[]),
        );
        assert_ne!(cut.0.folders, cut.1.folders);
        assert!(cut.1.folders.1.len() <= 255 && cut.1.folders.1.ends_with("~2"));
    }

    #[test]
    fn numbers_end_with_16_bits() {
        let mut kinds = Kinds::default();
        let ids: Vec<Option<u16>> =
            (0..65_600).map(|number| kinds.kind(&format!("p:{number}"), &[]).id).collect();
        assert_eq!((ids[65_503], ids[65_504], ids[65_599]), (Some(u16::MAX), None, None));
    }
}
