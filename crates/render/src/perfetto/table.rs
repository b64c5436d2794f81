//! The table of Perfetto's numbers for the kernel's events.

use std::collections::HashMap;

/// The type of a field in Perfetto's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Signed,
    Unsigned,
    Bytes,
}

/// A field that Perfetto's message for an event has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownField {
    /// Name of the field in the event's format.
    pub(super) name: &'static str,
    /// Number of the field in Perfetto's message.
    pub(super) number: u32,
    pub(super) kind: Kind,
}

/// An event for which Perfetto has a message: the number of the message in `FtraceEvent`, and the
/// fields.
pub(super) type Event = (u32, Vec<KnownField>);

const TABLE: &str = include_str!("events.txt");

/// The events for which Perfetto has messages, by system and name.
#[derive(Debug)]
pub(super) struct Table(HashMap<(&'static str, &'static str), &'static str>);

impl Table {
    pub(super) fn new() -> Self {
        let line = |line: &'static str| {
            let (system, rest) = line.split_once(' ')?;
            let (name, rest) = rest.split_once(' ')?;
            Some(((system, name), rest))
        };
        Self(TABLE.lines().filter(|text| !text.starts_with('#')).filter_map(line).collect())
    }

    /// Finds an event by system and name.
    pub(super) fn find(&self, system: &str, name: &str) -> Option<Event> {
        let mut words = self.0.get(&(system, name))?.split(' ');
        Some((
            words.next()?.parse().ok()?,
            words.map(known_field).collect::<Option<Vec<KnownField>>>()?,
        ))
    }
}

/// Parses a field such as `prev_pid:2i`: name, number and type.
fn known_field(word: &'static str) -> Option<KnownField> {
    let (name, rest) = word.split_once(':')?;
    let kind = match rest.chars().next_back()? {
        's' => Kind::Text,
        'i' => Kind::Signed,
        'u' => Kind::Unsigned,
        'b' => Kind::Bytes,
        _ => return None,
    };
    Some(KnownField { name, number: rest.get(..rest.len().saturating_sub(1))?.parse().ok()?, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_can_be_parsed() {
        let table = Table::new();
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        let mut count = 0;
        for line in lines {
            let (system, rest) = line.split_once(' ').unwrap();
            let name = rest.split(' ').next().unwrap();
            let (number, fields) = table.find(system, name).unwrap_or_else(|| panic!("{line}"));
            assert!(number > 2 && fields.iter().all(|f| f.number > 0), "{line}");
            count += 1;
        }
        assert!(count > 500);
        let (number, fields) = table.find("sched", "sched_switch").unwrap();
        assert_eq!((number, fields.len()), (4, 7));
        assert_eq!(fields[3], KnownField { name: "prev_state", number: 4, kind: Kind::Signed });
        assert_eq!(table.find("sched", "sched_nothing"), None);
    }
}
