//! Which sessions, streams and events: the options that `report` and `recover` share.

use crate::moment::Moment;
use crate::say;
use crate::table::plain;
use anyhow::bail;
use lastwords_formats::select::Selection;
use lastwords_trace::clock::{Converter, Rounding};
use lastwords_trace::source::Source;

/// What [`Events`] are chosen by.
const OPTIONS: &str = "--cpu, --channel, --event, --since, --until and --last";

/// Which sessions of what was given.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Which {
    /// Only sessions whose name matches (`*`, `?`, `[a-z]`); may be given several times. Of a kernel: these instances (`top`: the top
    /// level, which is the default)
    #[arg(short = 's', long = "session", visible_alias = "instance", value_name = "GLOB")]
    pub(crate) sessions: Vec<String>,

    /// The snapshot in place of the live ring
    #[arg(long)]
    pub(crate) snapshot: bool,

    /// The process that holds the buffers, or is looked at: its sessions in memfds, or else on its heap, are read through /proc
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

impl Which {
    /// A session of that name is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.sessions.is_empty() || self.sessions.iter().any(|glob| lastwords_formats::select::matches(glob, name))
    }
}

/// Which events.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Events {
    /// Only events of these CPUs
    #[arg(long = "cpu", value_name = "N", value_delimiter = ',')]
    cpus: Vec<u32>,

    /// Only events of these channels of sessions (`*`, `?`, `[a-z]`), each channel's own copy of what several have; may be given
    /// several times
    #[arg(long = "channel", value_name = "GLOB")]
    channels: Vec<String>,

    /// Only events whose `provider:name` matches (`*`, `?`, `[a-z]`, `[!a-z]`); may be given several times
    #[arg(short = 'e', long = "event", value_name = "GLOB")]
    events: Vec<String>,

    /// Not before this moment: a date and time, a time of day, @SECONDS, or -2s before the newest event
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    since: Option<Moment>,

    /// Not after this moment
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    until: Option<Moment>,

    /// Only the last N of them
    #[arg(long, value_name = "N")]
    last: Option<u64>,
}

impl Events {
    /// Nothing was asked for: all events are wanted.
    pub(crate) fn is_default(&self) -> bool {
        let (moments, streams) =
            (self.since.is_some() || self.until.is_some(), !self.cpus.is_empty() || !self.channels.is_empty());
        !moments && !streams && self.events.is_empty() && self.last.is_none()
    }

    /// Refuses any selection where all is written: `why`.
    pub(crate) fn refuse(&self, why: &str) -> anyhow::Result<()> {
        if self.is_default() {
            return Ok(());
        }
        bail!("{why}; {OPTIONS} are for other formats")
    }

    /// Refuses channels where the input is no session.
    pub(crate) fn refuse_channels(&self) -> anyhow::Result<()> {
        if self.channels.is_empty() {
            return Ok(());
        }
        bail!("--channel is for sessions; of a kernel's trace --instance selects, of a CTF trace --event")
    }

    /// Each CPU that is wanted; one `None` where all are.
    pub(crate) fn cpus(&self) -> Vec<Option<u32>> {
        if self.cpus.is_empty() { vec![None] } else { self.cpus.iter().copied().map(Some).collect() }
    }

    /// The globs of events.
    pub(crate) fn globs(&self) -> &[String] {
        &self.events
    }

    /// `--since` and `--until`.
    pub(crate) fn moments(&self) -> (Option<Moment>, Option<Moment>) {
        (self.since, self.until)
    }

    /// `--last`.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last
    }

    /// The selection over these sources, moments resolved.
    pub(crate) fn selection(&self, sources: &[&dyn Source]) -> Selection {
        let relative = [self.since, self.until].iter().flatten().any(|m| m.needs_end());
        let end = if relative { newest(sources) } else { 0 };
        Selection {
            cpus: self.cpus.clone(),
            channels: self.channels.clone(),
            events: self.events.clone(),
            since: self.since.map(|m| m.resolve(end)),
            until: self.until.map(|m| m.resolve(end)),
            last: self.last,
            once: false,
        }
    }
}

/// As what people look at has it: an event that several channels of a session have stands once, unless channels were asked for.
pub(crate) fn once(selection: Selection) -> Selection {
    Selection { once: selection.channels.is_empty(), ..selection }
}

impl Events {
    /// Says on stderr why nothing may have been shown: globs that are no event's, or all that was asked for together.
    pub(crate) fn tell_empty(&self, sources: &[&dyn Source], shown: u64) {
        let classes = || sources.iter().flat_map(|s| &s.schema().channels).flat_map(|channel| &channel.events);
        let is_none = |glob: &&String| !classes().any(|class| lastwords_formats::select::matches(glob, &class.name));
        let unknown: Vec<&String> = self.events.iter().filter(is_none).collect();
        for glob in &unknown {
            say::note(format_args!("no event is called {}; `lastwords inspect` lists those there are", plain(glob)));
        }
        let channels = || sources.iter().flat_map(|s| &s.schema().channels);
        let is_none = |glob: &&String| !channels().any(|own| lastwords_formats::select::matches(glob, &own.name));
        for glob in self.channels.iter().filter(is_none) {
            say::note(format_args!("no channel is called {}; `lastwords inspect` lists those there are", plain(glob)));
        }
        if unknown.is_empty() {
            self.tell_none(shown);
        }
    }

    /// Says on stderr that nothing is left of what was selected from.
    pub(crate) fn tell_none(&self, shown: u64) {
        if shown == 0 && !self.is_default() {
            say::note(format_args!("no event is left by what was selected: {OPTIONS}"));
        }
    }
}

/// The end of the newest packet, nanoseconds since the epoch.
fn newest(sources: &[&dyn Source]) -> i64 {
    let mut newest = 0;
    let mut bytes = Vec::new();
    for source in sources {
        let mut converter = Converter::new(&source.schema().clock, Rounding::Floor);
        for stream in 0..source.streams().len() {
            let mut packets = source.packets(stream);
            bytes.clear();
            while let Some(packet) = packets.next_packet(&mut bytes) {
                newest = newest.max(converter.nanoseconds(packet.end));
                bytes.clear();
            }
        }
    }
    newest
}
