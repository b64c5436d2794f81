//! The description of a session: its events, channels, CPUs and threads.

use std::collections::{BTreeMap, BTreeSet};

use lastwords_open::Trace;
use lastwords_trace::schema::{EventClass, Field, FieldClass};
use lastwords_trace::source::Source as _;

use crate::kinds::{EventKind, Kinds};
use crate::names;

/// The provider of the events that `trace_marker` records, as in the kernel. They are always
/// enabled.
pub(crate) const MARKER: &str = "ftrace";

/// An event of a session.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// The owner of the event.
    pub(crate) provider: String,
    /// Name within the provider.
    pub(crate) name: String,
    /// Severity, 1 (error) to 5 (trace).
    pub(crate) level: u8,
    /// The number and the names of the event in the files.
    pub(crate) kind: EventKind,
    /// Format string of a marker; empty for other events.
    pub(crate) format: String,
    /// The payload.
    pub(crate) fields: Vec<Field>,
}

/// The description of a session.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// The events by the folder names of their providers and of themselves.
    pub(crate) providers: BTreeMap<String, BTreeMap<String, Event>>,
    /// The CPUs that have a stream.
    pub(crate) cpus: BTreeSet<u32>,
    /// Names of threads by id.
    pub(crate) threads: BTreeMap<i64, String>,
    /// Number of event classes, those of all channels together. An event has one in each channel
    /// that takes it.
    pub(crate) classes: u64,
}

#[cfg(test)]
impl Event {
    /// Makes an event of a severity of 3.
    pub(crate) fn made(provider: &str, name: &str, fields: Vec<Field>) -> Self {
        let kind = Kinds::default().kind(&format!("{provider}:{name}"), &fields);
        Self {
            provider: provider.into(),
            name: name.into(),
            level: 3,
            kind,
            format: String::new(),
            fields,
        }
    }
}

/// Returns the events that writes into `trace_marker` and `trace_marker_raw` are recorded as
/// ([`crate::recorder`]).
fn markers() -> [EventClass; 2] {
    let number = || FieldClass::Integer { size: 4, signed: false, base: 10 };
    let class = |name: &str, fields: &[(&str, FieldClass)]| EventClass {
        id: 0,
        name: format!("{MARKER}:{name}"),
        level: 3,
        format: String::new(),
        location: String::new(),
        fields: fields
            .iter()
            .map(|(name, class)| Field { name: (*name).to_owned(), class: class.clone() })
            .collect(),
    };
    let writer = || [("pid", number()), ("comm", FieldClass::String)];
    let [pid, comm] = writer();
    let print = class("print", &[("buf", FieldClass::String), pid, comm]);
    let [pid, comm] = writer();
    [print, class("raw_data", &[("id", number()), ("buf", FieldClass::Bytes), pid, comm])]
}

impl Catalog {
    /// Returns the description of a session's trace. Its events get their numbers and folders from
    /// `kinds`.
    pub(crate) fn new(trace: &Trace, kinds: &mut Kinds) -> Self {
        let mut catalog = Self::default();
        let Some(found) = trace.session() else { return catalog };
        let (schema, info) = (found.session.schema(), found.session.info());
        catalog.cpus = info.streams.iter().filter_map(|stream| stream.cpu).collect();
        catalog.threads =
            schema.thread_names().into_iter().map(|(id, name)| (id, name.to_owned())).collect();
        // The kernel's tools expect these before anything is written into the files.
        markers().iter().for_each(|class| catalog.add(class, kinds));
        for channel in &schema.channels {
            for class in channel.classes() {
                catalog.classes += 1;
                catalog.add(class, kinds);
            }
        }
        catalog
    }

    /// Adds an event. One that several channels take is one kind.
    fn add(&mut self, class: &EventClass, kinds: &mut Kinds) {
        let (provider, name) = names::split(&class.name).unwrap_or(("", &class.name));
        let kind = kinds.kind(&class.name, &class.fields);
        let (folder, folder_of_event) = kind.folders.clone();
        self.providers.entry(folder).or_default().entry(folder_of_event).or_insert_with(|| Event {
            provider: provider.to_owned(),
            name: name.to_owned(),
            level: class.level,
            kind,
            format: class.format.clone(),
            fields: class.fields.clone(),
        });
    }

    /// Returns the events of a provider, or of all.
    pub(crate) fn events<'c>(
        &'c self,
        provider: Option<&'c str>,
    ) -> impl Iterator<Item = &'c Event> {
        let wanted = move |(folder, _): &(&'c String, _)| {
            provider.is_none_or(|provider| provider == folder.as_str())
        };
        self.providers.iter().filter(wanted).flat_map(|(_, events)| events.values())
    }

    /// Returns the events that can be enabled and disabled: those of applications.
    pub(crate) fn of_applications(&self) -> impl Iterator<Item = &Event> {
        self.events(None).filter(|event| event.provider != MARKER)
    }

    /// Returns the event of these folders.
    pub(crate) fn event(&self, provider: &str, name: &str) -> Option<&Event> {
        self.providers.get(provider)?.get(name)
    }
}
