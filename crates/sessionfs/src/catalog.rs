//! What a session says of itself: its events, channels, CPUs and threads.

use std::collections::{BTreeMap, BTreeSet};

use lastwords_open::Trace;
use lastwords_trace::schema::Field;
use lastwords_trace::source::Source as _;

use crate::names;

/// The provider of the events that `trace_marker` records, as in the kernel. They are always enabled.
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
    /// A number that is unique in the session: the channel's id above 16 bits of the event's id in that channel.
    pub(crate) id: u64,
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
    /// Number of event classes, those of all channels together. An event has one in each channel that takes it.
    pub(crate) classes: u64,
}

impl Catalog {
    /// Returns the description of a session's trace.
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut catalog = Self::default();
        let Some(found) = trace.session() else { return catalog };
        let (schema, info) = (found.session.schema(), found.session.info());
        catalog.cpus = info.streams.iter().filter_map(|stream| stream.cpu).collect();
        catalog.threads = schema.thread_names().into_iter().map(|(id, name)| (id, name.to_owned())).collect();
        for channel in &schema.channels {
            for class in channel.classes() {
                catalog.classes += 1;
                let (provider, name) = names::split(&class.name).unwrap_or(("", &class.name));
                let events = catalog.providers.entry(names::folder(provider)).or_default();
                // Of several events of one name, the files describe the first.
                events.entry(names::folder(name)).or_insert_with(|| Event {
                    provider: provider.to_owned(),
                    name: name.to_owned(),
                    level: class.level,
                    id: u64::from(channel.id) << 16 | class.id,
                    format: class.format.clone(),
                    fields: class.fields.clone(),
                });
            }
        }
        catalog
    }

    /// Returns the events of a provider, or of all.
    pub(crate) fn events<'c>(&'c self, provider: Option<&'c str>) -> impl Iterator<Item = &'c Event> {
        let wanted = move |(folder, _): &(&'c String, _)| provider.is_none_or(|provider| provider == folder.as_str());
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
