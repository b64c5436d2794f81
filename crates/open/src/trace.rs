//! Defines a trace that was found, and the forms in which it can be read.

use crate::counts::fold;
use crate::ended::with_newest;
use crate::{Lttng, Machine, Origin, RecoveredSession};
use lastwords_ctf::program::Hides as _;
use lastwords_ctf::read::{self, Reader};
use lastwords_ctf::{Error, Version};
use lastwords_folders::Ended;
use lastwords_ftrace::ctf::{self, Form, Remarks};
use lastwords_ftrace::page::Events;
use lastwords_ftrace::{Array, Choice, Ring};
use lastwords_render::redact::Redaction;
use lastwords_render::select::Selection;
use lastwords_trace::clock::Rounding;
use lastwords_trace::parallel;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A trace. A clone shares its events.
#[derive(Clone)]
pub struct Trace {
    /// The name of the session or instance. `top` is the top level of a kernel.
    pub name: String,
    /// The input in which it was found.
    pub origin: Arc<Origin>,
    /// Its events.
    pub body: Body,
    /// The fields whose values are hidden.
    pub(crate) redaction: Arc<Redaction>,
    /// The time of its newest event, once all events were read for it.
    pub(crate) newest: Arc<OnceLock<Option<i64>>>,
}

/// The events of a trace.
#[derive(Clone)]
pub enum Body {
    /// A session of lastwords.
    Session(Arc<RecoveredSession>),
    /// A session of LTTng in memory.
    Lttng(Arc<Lttng>),
    /// A folder of CTF.
    Ctf(Arc<read::Trace>),
    /// A trace array of a kernel's ftrace.
    Ftrace {
        /// Its position in the arrays of the machine of [`Trace::origin`].
        array: usize,
        /// The snapshot is read in place of the live ring.
        snapshot: bool,
    },
}

/// A clock that nothing relates to real time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnrelatedClock {
    /// The name of the clock.
    pub name: String,
    /// An ID that is equal for the same clock in other traces, if known.
    pub uid: Option<String>,
}

/// A trace array of a kernel's ftrace, with the ring that is read.
#[derive(Clone, Copy)]
pub struct Ftrace<'a> {
    /// The kernel's tracer.
    pub machine: &'a Machine,
    /// The position of the array.
    pub index: usize,
    /// The array.
    pub array: &'a Array,
    /// The snapshot is read in place of the live ring.
    pub snapshot: bool,
    /// The ring that is read: the live one or the snapshot. It is none if there is no snapshot.
    pub ring: Option<&'a Arc<dyn Ring>>,
    /// The fields whose values are hidden.
    redaction: &'a Redaction,
}

impl Trace {
    /// Returns the session, if the trace is one of lastwords.
    #[must_use]
    pub fn session(&self) -> Option<&RecoveredSession> {
        if let Body::Session(session) = &self.body { Some(session) } else { None }
    }

    /// Returns the session of LTTng, if the trace is one.
    #[must_use]
    pub fn lttng(&self) -> Option<&Lttng> {
        if let Body::Lttng(lttng) = &self.body { Some(lttng) } else { None }
    }

    /// Returns the trace in a folder of CTF, if it is one.
    #[must_use]
    pub fn ctf(&self) -> Option<&read::Trace> {
        if let Body::Ctf(trace) = &self.body { Some(trace) } else { None }
    }

    /// Returns the trace array, if the trace is one of a kernel's ftrace.
    #[must_use]
    pub fn ftrace(&self) -> Option<Ftrace<'_>> {
        let Body::Ftrace { array: index, snapshot } = self.body else { return None };
        let machine = self.origin.machine.as_ref()?;
        let array = machine.array(index)?;
        let (ring, redaction) = (array.shown(snapshot), &*self.redaction);
        Some(Ftrace { machine, index, array, snapshot, ring, redaction })
    }

    /// Returns true if fields are hidden. What copies packets or pages would show them.
    #[must_use]
    pub fn is_redacted(&self) -> bool {
        !self.redaction.is_empty()
    }

    /// Returns true if the values of a field of an event are hidden.
    #[must_use]
    pub fn hides(&self, event: &str, field: &str) -> bool {
        self.redaction.field(event, field).is_some()
    }

    /// Returns true if [`Trace::packets`] can return the trace as packets.
    #[must_use]
    pub fn has_packets(&self) -> bool {
        self.ftrace().is_none()
            && self.lttng().is_none_or(|lttng| !lttng.session.metadata.text.is_empty())
    }

    /// Returns the trace as packets, with the names that metadata of a version use. Returns none
    /// for a kernel's ftrace and for packets without a description.
    ///
    /// # Errors
    /// The description does not decode its events.
    #[must_use]
    pub fn packets(&self, version: Version) -> Option<Result<read::Trace, Error>> {
        let path = &self.origin.path;
        let trace = match &self.body {
            Body::Session(found) => {
                Some(lastwords_ctf::session::trace(&found.session, path, version))
            }
            _ if !self.has_packets() => None,
            Body::Lttng(lttng) => Some(lttng.session.trace(path)),
            // It was opened with the hidden fields.
            Body::Ctf(trace) => return Some(Ok((**trace).clone())),
            Body::Ftrace { .. } => None,
        };
        Some(trace?.and_then(|trace| hiding(trace, &self.redaction)))
    }

    /// Returns the trace as packets that have at least the selected events. Returns none for
    /// packets without a description.
    ///
    /// # Errors
    /// The description does not decode its events; a time is selected, and nothing relates the
    /// clock of a kernel's trace to real time.
    pub(crate) fn selected(&self, selection: &Selection) -> Result<Option<read::Trace>, Error> {
        let Some(array) = self.ftrace() else { return self.packets(Version::V2).transpose() };
        let choice = array.choice(selection)?;
        array.packets(&self.origin.path, &choice, Form::Plain, &Remarks::default()).map(Some)
    }

    /// Returns the CPUs of its streams.
    #[must_use]
    pub fn cpus(&self) -> BTreeSet<u32> {
        if let Some(ftrace) = self.ftrace() {
            return ftrace.ring.iter().flat_map(|ring| ring.cpus()).map(|cpu| cpu.cpu).collect();
        }
        let Some(Ok(trace)) = self.packets(Version::V2) else { return BTreeSet::new() };
        trace.streams.iter().filter_map(|stream| read::cpu(&trace, stream)).collect()
    }

    /// Returns the clock of its events if nothing relates it to real time. Times then count from an
    /// origin of the clock's own.
    #[must_use]
    pub fn unrelated_clock(&self) -> Option<UnrelatedClock> {
        if let Some(ftrace) = self.ftrace() {
            // The arrays of one machine share their clocks.
            let (name, uid) = (
                ftrace.array.clock_name().to_owned(),
                Some(self.origin.path.display().to_string()),
            );
            return ftrace.real_time().is_none().then_some(UnrelatedClock { name, uid });
        }
        match self.ctf() {
            Some(trace) => unrelated_clock(trace),
            None => unrelated_clock(&self.packets(Version::V2)?.ok()?),
        }
    }

    /// Returns the time of its newest event in nanoseconds since the epoch, if known. The first
    /// call reads all events of the trace.
    #[must_use]
    pub fn newest(&self) -> Option<i64> {
        if let Some(ftrace) = self.ftrace() {
            return Some(ftrace.newest().saturating_add(ftrace.real_time()?));
        }
        *self.newest.get_or_init(|| self.read_newest())
    }

    /// Returns how a session ended, if it is one in its own folder that has ended.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        Some(with_newest(self.session()?.ended?, || self.newest()))
    }

    fn read_newest(&self) -> Option<i64> {
        let trace = self.packets(Version::V2)?.ok()?;
        let newest =
            parallel::map(&trace.streams, parallel::cpus(), |_, stream| newest_of(&trace, stream));
        newest.into_iter().flatten().max()
    }
}

impl Ftrace<'_> {
    /// Returns the offset to add to readings of its clock, to get nanoseconds since the epoch.
    /// Returns none if it is not known.
    #[must_use]
    pub fn real_time(&self) -> Option<i64> {
        self.machine.real_time(self.index)
    }

    /// Returns the selected events as packets. `path` is the file of the kernel. The caller applies
    /// [`Choice::last`].
    ///
    /// # Errors
    /// The array has no snapshot, and that is selected.
    pub fn packets(
        &self,
        path: &Path,
        choice: &Choice,
        form: Form,
        remarks: &Remarks,
    ) -> Result<read::Trace, Error> {
        let tracing = &self.machine.tracing;
        let real_time = self.real_time();
        let trace = ctf::trace(path, tracing, self.index, choice, real_time, form, remarks)?;
        hiding(trace, self.redaction)
    }

    /// Returns the choice that selects the same events by the array's clock.
    ///
    /// # Errors
    /// A time is selected, and nothing relates the clock to real time.
    fn choice(&self, selection: &Selection) -> Result<Choice, Error> {
        let real_time = self.real_time();
        let reading = |time: i64| {
            let why = || Error::Schema("no time can be selected: the clock has none".to_owned());
            let reading = time.saturating_sub(real_time.ok_or_else(why)?);
            Ok(u64::try_from(reading).unwrap_or(0))
        };
        Ok(Choice {
            snapshot: self.snapshot,
            cpus: selection.cpus.clone(),
            events: selection.events.clone(),
            filter: selection.filter.clone(),
            since: selection.since.map(reading).transpose()?,
            until: selection.until.map(reading).transpose()?,
            last: None,
        })
    }

    /// Returns true if the array has events, in the live ring or in the snapshot.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.machine.has_events(self.index)
    }

    /// Returns the clock of the newest event, or 0 if there is none.
    #[must_use]
    pub fn newest(&self) -> i64 {
        let (Some(ring), tracing) = (self.ring, &self.machine.tracing) else { return 0 };
        let (mut bytes, mut newest) = (Vec::new(), 0);
        for (n, cpu) in ring.cpus().iter().enumerate() {
            let Some(last) = cpu.sub_buffers.checked_sub(1) else { continue };
            let info = ring.sub_buffer(n, last, &mut bytes);
            let mut events =
                Events::new(&bytes, tracing.header_page, tracing.byte_order, info.committed);
            events.by_ref().for_each(drop);
            newest = newest.max(events.time());
        }
        i64::try_from(newest).unwrap_or(i64::MAX)
    }
}

/// Returns the trace with the hidden fields.
pub(crate) fn hiding(trace: read::Trace, redaction: &Redaction) -> Result<read::Trace, Error> {
    if redaction.is_empty() {
        return Ok(trace);
    }
    trace.hiding(redaction).map_err(|error| Error::Schema(error.to_string()))
}

/// Returns the traces that cannot be merged with the others by time, each with its clock. Nothing
/// relates that clock to real time, and not all other traces have the same clock. The result is
/// empty for a single trace.
#[must_use]
pub fn unrelated_clocks(traces: &[Trace]) -> Vec<(&Trace, UnrelatedClock)> {
    if traces.len() < 2 {
        return Vec::new();
    }
    let clocks: Vec<Option<UnrelatedClock>> = traces.iter().map(Trace::unrelated_clock).collect();
    let is_shared = |clock: &UnrelatedClock| {
        clock.uid.is_some() && clocks.iter().all(|other| other.as_ref() == Some(clock))
    };
    if clocks.iter().flatten().any(is_shared) {
        return Vec::new();
    }
    traces.iter().zip(clocks).filter_map(|(trace, clock)| Some((trace, clock?))).collect()
}

fn unrelated_clock(trace: &read::Trace) -> Option<UnrelatedClock> {
    let class = trace.class();
    let mut clocks = trace
        .streams
        .iter()
        .filter_map(|stream| class.clocks.get(class.streams.get(stream.class)?.clock?));
    let clock = clocks.find(|clock| !clock.is_since_epoch())?;
    Some(UnrelatedClock { name: clock.to_clock().name, uid: clock.identity.uid.clone() })
}

/// Returns the time of the newest event of a stream in nanoseconds since the epoch. This reads all
/// events of the stream.
fn newest_of(trace: &read::Trace, stream: &read::Stream) -> Option<i64> {
    // A time that 64 bits cannot hold belongs to no event.
    let note = |newest: &mut Option<i64>, time: Option<i64>| {
        *newest = (*newest).max(time.filter(|time| *time < i64::MAX))
    };
    let reader = Reader::new(trace, stream).rounded(Rounding::Floor);
    fold(reader, None, |newest, _, time| note(newest, time), |_, _| {})
}
