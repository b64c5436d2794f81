//! The numbers that lengths and selectors are taken from: each has a slot, in which decoding keeps
//! its value.

use super::fault::SchemaError;
use lastwords_bytes::Budget;
use lastwords_trace::class::{FieldClass, Path, Scope, Struct};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Slots of the numbers that others depend on. A path means a field of one class: two event record
/// classes may have fields of one path and of different signs. So each class has targets of its
/// own. The slots themselves are shared by path, because the number of slots is limited, and an
/// event saves its own numbers before it reads them.
#[derive(Debug)]
pub(super) struct Slots<'b> {
    by_path: HashMap<Path, Slot>,
    /// Pays for each field that is compiled.
    budget: &'b Budget,
}

#[derive(Debug)]
struct Slot {
    number: u16,
    /// For each class that has the number: true if it is signed there.
    signed: HashMap<Place, bool>,
}

/// The class of a scope: an event record class of a stream class. [`usize::MAX`] stands for none,
/// as in the scopes that all event record classes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Position of the stream class in the trace class.
    pub(super) stream: usize,
    /// Position of the event record class in the stream class.
    pub(super) event: usize,
}

impl Place {
    /// The trace class itself.
    pub(super) const TRACE: Self = Self { stream: usize::MAX, event: usize::MAX };

    /// Returns the scopes of a stream class that all its event record classes share.
    pub(super) fn stream(stream: usize) -> Self {
        Self { stream, event: usize::MAX }
    }

    /// Returns the class that has the fields which `scope` means here.
    fn of_scope(self, scope: Scope) -> Self {
        match scope {
            Scope::PacketHeader => Self::TRACE,
            Scope::PacketContext | Scope::EventHeader | Scope::CommonContext => {
                Self::stream(self.stream)
            }
            Scope::SpecificContext | Scope::Payload => self,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) slot: u16,
    pub(super) signed: bool,
}

impl<'b> Slots<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        Self { by_path: HashMap::new(), budget }
    }

    pub(super) fn len(&self) -> usize {
        self.by_path.len()
    }

    /// Adds every path that `root`, a scope of `class`, depends on; `find` gives the structure of a
    /// scope.
    pub(super) fn collect<'a>(
        &mut self,
        class: Place,
        root: &Struct,
        find: &dyn Fn(Scope) -> Option<&'a Struct>,
    ) -> Result<(), SchemaError> {
        let mut members = Members::default();
        for path in root.paths() {
            let class = class.of_scope(path.scope);
            if self.by_path.get(path).is_some_and(|slot| slot.signed.contains_key(&class)) {
                continue;
            }
            let root = find(path.scope).ok_or_else(|| SchemaError::NoScope(path.clone()))?;
            let target = members.target(root, &path.names);
            let signed = target.ok_or_else(|| SchemaError::NoTarget(path.clone()))?;
            let number = u16::try_from(self.by_path.len())
                .map_err(|_| SchemaError::TooMany("lengths and selectors"));
            let slot = match self.by_path.entry(path.clone()) {
                Entry::Occupied(slot) => slot.into_mut(),
                Entry::Vacant(place) => {
                    place.insert(Slot { number: number?, signed: HashMap::new() })
                }
            };
            slot.signed.insert(class, signed);
        }
        Ok(())
    }

    /// Returns the slots as the scopes of a class see them.
    pub(super) fn seen_by(&self, class: Place) -> ClassSlots<'_> {
        ClassSlots { slots: self, class }
    }
}

/// The slots as the scopes of one class see them.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassSlots<'a> {
    slots: &'a Slots<'a>,
    class: Place,
}

impl<'a> ClassSlots<'a> {
    /// Returns the budget that pays for each field that is compiled.
    pub(super) fn budget(&self) -> &'a Budget {
        self.slots.budget
    }

    pub(super) fn need(&self, path: &Path) -> Result<Target, SchemaError> {
        self.find(path).ok_or_else(|| SchemaError::NoTarget(path.clone()))
    }

    /// The slot of a number that others depend on; none where none do.
    pub(super) fn find(&self, path: &Path) -> Option<Target> {
        let slot = self.slots.by_path.get(path)?;
        let signed = *slot.signed.get(&self.class.of_scope(path.scope))?;
        Some(Target { slot: slot.number, signed })
    }
}

/// The members of structures by name, of each structure in which a path was looked for: a structure
/// of many members may have as many paths that lead into it.
#[derive(Default)]
struct Members<'a>(HashMap<*const Struct, HashMap<&'a str, Vec<&'a FieldClass>>>);

impl<'a> Members<'a> {
    /// Returns whether the number at a path is signed; none if there is no number at the path.
    fn target(&mut self, root: &'a Struct, names: &[String]) -> Option<bool> {
        let (first, rest) = names.split_first()?;
        let by_name = self.0.entry(std::ptr::from_ref(root)).or_insert_with(|| {
            let mut by_name: HashMap<&str, Vec<&FieldClass>> = HashMap::new();
            root.fields
                .iter()
                .for_each(|field| by_name.entry(&field.name).or_default().push(&field.class));
            by_name
        });
        let found = by_name.get(first.as_str())?.clone();
        found.into_iter().find_map(|class| self.target_in(class, rest))
    }

    fn target_in(&mut self, class: &'a FieldClass, names: &[String]) -> Option<bool> {
        match class {
            FieldClass::Integer(integer) | FieldClass::Variable(integer) if names.is_empty() => {
                Some(integer.signed)
            }
            FieldClass::Bool(_) if names.is_empty() => Some(false),
            FieldClass::Struct(of) => self.target(of, names),
            FieldClass::Array(array) => self.target_in(&array.element, names),
            FieldClass::Optional(optional) => self.target_in(&optional.class, names),
            FieldClass::Variant(variant) => {
                variant.options.iter().find_map(|option| self.target_in(&option.class, names))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_bytes::ByteOrder;
    use lastwords_trace::class::{Attributes, Bits, Blob, Field, Integer, Length};
    use std::time::{Duration, Instant};

    /// Time that this thread has run, or where the kernel does not tell it, since `begin`.
    fn used(begin: Instant) -> Duration {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let told = told.and_then(|text| text.split(' ').next()?.parse().ok());
        told.map_or_else(|| begin.elapsed(), Duration::from_nanos)
    }

    /// Each of many lengths is a member of its own.
    #[test]
    fn many_lengths_among_many_members() {
        let bits = Bits { length: 8, alignment: 8, order: ByteOrder::Little, reversed: false };
        let field = |name: String, class| Field { name, class, attributes: Attributes::default() };
        let number = |n: u32| {
            field(format!("length {n}"), FieldClass::Integer(Integer::new(bits, n % 2 == 1, 10)))
        };
        let blob = |n: u32| {
            let length =
                Length::Of(Path { scope: Scope::Payload, names: vec![format!("length {n}")] });
            field(
                format!("blob {n}"),
                FieldClass::Blob(Blob {
                    length,
                    is_uuid: false,
                    media_type: String::new(),
                    attributes: Attributes::default(),
                }),
            )
        };
        let fields = (0..60_000).map(number).chain((0..60_000).map(blob)).collect();
        let root = Struct { fields, ..Struct::default() };
        let budget = Budget::default();
        let mut slots = Slots::new(&budget);
        let begin = Instant::now();
        let before = used(begin);
        let class = Place { stream: 0, event: 0 };
        slots.collect(class, &root, &|_| Some(&root)).unwrap();
        let took = used(begin) - before;
        assert_eq!(slots.len(), 60_000);
        let path = Path { scope: Scope::Payload, names: vec!["length 7".into()] };
        assert!(slots.seen_by(class).need(&path).unwrap().signed);
        assert!(took < Duration::from_millis(1500), "{took:?}");
    }
}
