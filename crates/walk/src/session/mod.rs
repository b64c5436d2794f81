//! Recovers this recorder's sessions from an image.
//!
//! Regions are found by their magic and grouped by the session's UUID. Each region is read on its own, so damage stays
//! local: without the session region only names and state are lost, not the events; a damaged stream costs that stream;
//! a damaged sub-buffer costs that sub-buffer.

mod added;
mod carve;
mod clock;
mod clock_check;
mod clock_vote;
mod common_context;
mod data;
mod end;
mod events;
mod find;
mod frozen;
mod halves;
pub mod info;
mod late;
mod layout;
mod linear;
mod lockless;
mod loose;
mod packet;
mod pieces;
mod places;
mod plan;
mod planning;
mod read_limit;
mod reader;
mod region;
mod registry;
mod repair_begin;
mod repair_header;
mod schema;
mod session_region;
mod single_bit;
mod spans;
mod sparse;
mod types;
mod window;

use data::Stream as Data;
use find::Rejected;
use info::{ChannelInfo, Info, RegionInfo, StreamInfo};
use lastwords_abi::region as abi;
use lastwords_abi::stream::ANY_CPU;
use lastwords_bytes::{Budget, Error};
use lastwords_image::{Image, Watch};
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use lastwords_trace::schema::Schema;
use lastwords_trace::source::{OpenSpan, PacketReader, Source, Stream};
use late::Late;
use layout::Control;
use loose::{Loose, Pool};
use packet::Identity;
use plan::Outcome;
use planning::Planning;
use region::Region;
use session_region::SessionRegion;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use end::{Begin, End};
pub use places::{RegionPlace, region_places};
pub use read_limit::ReadLimit;
pub use window::Window;

/// Selects the parts of a session to read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Read the snapshot instead of the live ring.
    pub snapshot: bool,
    /// Stop where a consuming read has to stop, instead of at the newest event.
    pub limit: Option<ReadLimit<'a>>,
    /// The session may still be recording. Each stream is copied before it is analyzed, so that events found in it can
    /// still be delivered.
    pub live: bool,
    /// Compare the checksum of a sub-buffer when its packet is delivered, not before. This saves reading all sub-buffers twice.
    /// [`Source::evidence`] is complete in any case: it compares what was not delivered. But where a sub-buffer is
    /// damaged, the clocks and amounts of the streams in [`Session::info`] may be wrong.
    pub late: bool,
    /// Read all of a saved snapshot, not only the window of its trigger.
    pub whole: bool,
}

/// The sessions found in an image.
#[derive(Debug, Default)]
pub struct Sessions {
    /// Sessions, in order of creation.
    pub sessions: Vec<Session>,
    /// Notes about regions that belong to no session.
    pub notes: Vec<String>,
}

/// One session recovered from an image.
pub struct Session {
    info: Info,
    schema: Schema,
    streams: Vec<Stream>,
    data: Vec<(Data, Outcome)>,
    /// Sub-buffers that were found without a region, by index of the stream. Streams that have only such sub-buffers
    /// come after those of `data`.
    loose: BTreeMap<usize, Vec<Loose>>,
    /// The image that contains the sub-buffers of `loose`.
    image: Arc<dyn Image>,
    evidence: Evidence,
    spans: Vec<OpenSpan>,
    /// The state of checksums that are compared late; none if all were compared.
    late: Option<Late>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("info", &self.info).field("evidence", &self.evidence).finish_non_exhaustive()
    }
}

impl Session {
    /// Facts about the session, as `inspect` shows them.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Adds a gap: `what` names a part of the image that cannot be read.
    pub(crate) fn lacks(&mut self, what: &str) {
        self.evidence.gaps.push(gap(what, Cause::Missing));
        self.late.iter_mut().for_each(|late| late.lacks(gap(what, Cause::Missing)));
    }

    /// The same session without packets, and with one more gap.
    fn without_packets(&self, gap: Gap) -> Self {
        let mut evidence = self.evidence.clone();
        evidence.gaps.push(gap);
        Self {
            info: self.info.clone(),
            schema: self.schema.clone(),
            streams: self.streams.clone(),
            data: Vec::new(),
            loose: BTreeMap::new(),
            image: Arc::clone(&self.image),
            evidence,
            spans: self.spans.clone(),
            late: None,
        }
    }

    /// The session as it is found when all checksums are compared first; none if that makes no difference.
    fn checked(&self) -> Option<&Self> {
        self.late.as_ref().filter(|late| !late.is_done())?.again(self)
    }
}

impl Source for Session {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn packets(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        if let Some(checked) = self.late.as_ref().and_then(Late::known) {
            return checked.packets(stream);
        }
        let planned = self.data.get(stream).map(|(data, outcome)| reader::Reader {
            stream: data,
            packets: outcome.packets.iter(),
            budget: Budget::for_input(data.region.held),
            buf: Vec::new(),
            late: self.late.as_ref().map(|late| late.of(self, stream)),
            is_whole: true,
        });
        match (self.loose.get(&stream), planned) {
            (Some(loose), planned) => {
                Box::new(loose::Reader { image: &*self.image, planned, loose: loose.iter().peekable() })
            }
            (None, Some(planned)) => Box::new(planned),
            (None, None) => Box::new(Nothing),
        }
    }

    fn evidence(&self) -> &Evidence {
        self.checked().map_or(&self.evidence, |checked| &checked.evidence)
    }

    fn contents(&self) -> Vec<u64> {
        self.evidence.contents(self.streams.len())
    }

    fn open_spans(&self) -> &[OpenSpan] {
        self.checked().map_or(&self.spans, |checked| &checked.spans)
    }
}

/// The packet reader of a stream index that does not exist.
struct Nothing;

impl PacketReader for Nothing {
    fn next_packet(&mut self, _: &mut Vec<u8>) -> Option<lastwords_trace::source::PacketInfo> {
        None
    }
}

/// Finds every session in an image.
///
/// # Errors
/// The budget is spent.
pub fn find(
    image: &Arc<dyn Image>,
    options: &Options<'_>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Sessions, Error> {
    build(image, None, options, budget, watch)
}

/// Finds every session, and also data that no region leads to: sub-buffers that their own checksum proves, and regions
/// whose pages are scattered over the memory of a machine.
///
/// # Errors
/// The budget is spent.
pub fn carve(
    image: &Arc<dyn Image>,
    options: &Options<'_>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Sessions, Error> {
    let carved = carve::find(image, budget, watch)?;
    let whole = Arc::clone(&carved.image);
    build(&whole, Some((image, carved.loose)), options, budget, watch)
}

/// The image that was searched, and the sub-buffers found in it, by session.
type Carved<'a> = (&'a Arc<dyn Image>, BTreeMap<[u8; 16], Vec<Loose>>);

fn build(
    image: &Arc<dyn Image>,
    carved: Option<Carved<'_>>,
    options: &Options<'_>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Sessions, Error> {
    let regions = find::regions(&**image, budget, watch)?;
    let mut found = Sessions::default();
    let mut rejected = regions.rejected;
    let mut groups: BTreeMap<[u8; 16], (Vec<Region>, Vec<Loose>)> = BTreeMap::new();
    for region in regions.regions {
        groups.entry(region.session).or_default().0.push(region);
    }
    let (raw, loose) = carved.map_or((image, BTreeMap::new()), |(raw, loose)| (raw, loose));
    for (uuid, loose) in loose {
        // Open sub-buffers have no checksum. Alone they do not prove that a session exists.
        let is_proven = loose.iter().any(|l| l.verdict == lastwords_trace::evidence::Verdict::Committed);
        if is_proven || groups.contains_key(&uuid) {
            groups.entry(uuid).or_default().1 = loose;
        }
    }
    for (uuid, (regions, loose)) in groups {
        let builder = Builder { image, raw, options, budget, watch, notes: Vec::new() };
        let of_session: Vec<Rejected> = rejected.extract_if(.., |r| r.is_of(&uuid)).collect();
        found.sessions.push(builder.build(uuid, regions, &of_session, loose::sorted(loose))?);
    }
    found.notes = rejected.into_iter().map(|r| r.why).collect();
    found.sessions.sort_by_key(|s| (s.info.created_realtime, s.info.uuid));
    Ok(found)
}

struct Builder<'a> {
    image: &'a Arc<dyn Image>,
    /// The image that contains the sub-buffers that were found without a region.
    raw: &'a Arc<dyn Image>,
    options: &'a Options<'a>,
    budget: &'a Budget,
    watch: Watch<'a>,
    notes: Vec<String>,
}

/// The regions of a session, by kind. If several regions have the same kind and index, the one with the most bytes in
/// the image is kept.
#[derive(Default)]
struct Regions {
    session: Option<Region>,
    registry: Option<Region>,
    spans: Option<Region>,
    streams: BTreeMap<u32, Region>,
}

impl Regions {
    /// Returns true if every region that the session can have was found.
    fn are_complete(&self, info: &Info) -> bool {
        let of = |channel: &ChannelInfo| {
            let streams = channel.first_stream..channel.first_stream.saturating_add(channel.streams);
            self.streams.range(streams).count() as u64 == u64::from(channel.streams)
        };
        let has_others = self.session.is_some() && self.registry.is_some() && self.spans.is_some();
        has_others && !info.channels.is_empty() && info.channels.iter().all(of)
    }
}

/// Returns when the session was created, by both clocks.
fn created(info: &Info) -> clock_check::Created {
    clock_check::Created { realtime: info.created_realtime, monotonic: info.created_monotonic }
}

/// Returns a note on triggers that took no snapshot, if there are any.
fn limited(count: u32) -> Option<String> {
    let triggers = if count == 1 { "trigger" } else { "triggers" };
    let why = "because of the limit of the session or of a condition";
    (count > 0).then(|| format!("{count} {triggers} took no snapshot, {why}"))
}

impl Builder<'_> {
    fn build(
        mut self,
        uuid: [u8; 16],
        all: Vec<Region>,
        rejected: &[Rejected],
        loose: Vec<Loose>,
    ) -> Result<Session, Error> {
        let (listed, minor) = (all.iter().map(region_info).collect(), all.iter().map(|r| r.minor).max().unwrap_or(0));
        let word_size = all.first().map_or(0, |r| r.word_size);
        let mut regions = self.sort(all);
        let mut evidence = Evidence::default();
        let mut of_region = Evidence::default();
        let session = self.session_region(regions.session.as_ref(), &mut of_region);
        self.notes.extend(added::remove_unfinished(&mut regions.streams, &session.info, &**self.image, self.budget));
        self.reject(rejected, regions.are_complete(&session.info), &mut evidence);
        evidence.append(of_region);
        let threads = regions.session.as_ref().zip(session.threads);
        let limit = self.options.limit.filter(|limit| limit.session == uuid);
        let mut of_streams = Evidence::default();
        let mut data = self.streams(&regions, &mut of_streams);
        // An event is described before it is recorded. So the descriptions are read after the end of the read was set: a consuming read would
        // consume an event that is described in between, and could not decode it.
        let ends = limit.map(|limit| limit.freeze(&mut data, threads, self.budget)).transpose()?;
        let of_ends = ends.as_ref().map(|ends| data.iter().map(|stream| &stream.region).zip(ends.iter().copied()));
        added::tell(&session.info, self.options.snapshot, of_ends, &mut evidence);
        let mut registry = self.registry(regions.registry.as_ref(), &mut evidence);
        let mut spans = regions.spans.as_ref().map(|r| spans::read(&**self.image, r, self.budget)).unwrap_or_default();
        self.notes.append(&mut spans.notes);
        self.swapping(&session.info);
        self.notes.extend(limited(session.info.limited_triggers));
        let (clock, clock_info) = session.clock.resolve(created(&session.info), &mut self.notes);
        evidence.gaps.extend(session.clock.not_known(&clock));
        evidence.gaps.append(&mut of_streams.gaps);
        absent_streams(&regions, &session.info, &loose, &mut evidence);
        let mut info = Info { uuid, minor, word_size, clock: clock_info, regions: listed, ..session.info };
        info.modules = std::mem::take(&mut registry.modules);
        (info.registry_dropped, info.spans_dropped) = (registry.dropped, spans.dropped);
        self.window(&mut info, &mut evidence);
        let mut pool = Pool { image: &**self.raw, loose };
        let mut resolved = schema::resolve(&info, clock, &registry, (&data, &pool), self.budget, &mut self.notes);
        evidence.gaps.append(&mut resolved.gaps);
        let flip = session.flip;
        let planning = Planning { builder: &self, info: &info, flip, resolved: &resolved, threads, ends };
        let mut outcomes = planning.all(&mut data)?;
        let ends = outcomes.iter().flat_map(|outcome| &outcome.packets).map(|packet| packet.end);
        spans::set_ages(&mut spans.open, ends.fold(info.clock.last, u64::max), info.clock.frequency);
        let fill = |(index, (stream, outcome))| (index, pool.fill(stream, outcome));
        let found = data.iter().zip(&mut outcomes).enumerate().map(fill);
        let mut found: BTreeMap<usize, Vec<Loose>> = found.filter(|(_, taken)| !taken.is_empty()).collect();
        let orphans = pool.orphans(|channel| resolved.decoder(channel));
        let mut streams: Vec<Stream> = data.iter().map(|d| stream_of(&d.identity, &resolved.schema)).collect();
        info.streams = data.iter().zip(&outcomes).map(|(d, o)| stream_info(d, o)).collect();
        self.unsaid(&mut evidence);
        let mut planned = Vec::new();
        for (data, mut outcome) in data.into_iter().zip(outcomes) {
            evidence.sub_buffers.append(&mut outcome.sub_buffers);
            evidence.gaps.append(&mut outcome.gaps);
            evidence.notes.append(&mut outcome.notes);
            planned.push((data, outcome));
        }
        for orphan in orphans {
            orphan.tell(streams.len(), &mut evidence);
            info.streams.push(orphan_info(&orphan.identity));
            found.insert(streams.len(), orphan.loose);
            streams.push(stream_of(&orphan.identity, &resolved.schema));
        }
        let late = Late::of_plans(self.image, self.options, &planned);
        let image = Arc::clone(self.raw);
        Ok(Session {
            info,
            schema: resolved.schema,
            streams,
            data: planned,
            loose: found,
            image,
            evidence,
            spans: spans.open,
            late,
        })
    }

    /// Tells of the window to which the session is cut; removes it if all of the session is read.
    fn window(&self, info: &mut Info, evidence: &mut Evidence) {
        info.window = info.window.filter(|_| !self.options.whole);
        if let Some(window) = &info.window {
            window.tell(info.clock.frequency, info.snapshot.clock, evidence);
        }
    }

    /// Adds a gap for each header that is damaged. If all regions of the session were found, such a header is none of theirs: a
    /// program leaves parts of headers on its stacks, and one may be at the start of a page.
    fn reject(&mut self, rejected: &[Rejected], are_complete: bool, evidence: &mut Evidence) {
        if are_complete {
            let why = "all regions of the session were found without it";
            self.notes.extend(rejected.iter().map(|r| format!("{}: {why}", r.why)));
        } else {
            evidence.gaps.extend(rejected.iter().map(|r| gap(&r.why, Cause::Damaged)));
        }
    }

    /// Reads the registry; adds gaps for damaged records and for descriptions that did not fit into the registry.
    fn registry(&mut self, region: Option<&Region>, evidence: &mut Evidence) -> registry::Registry {
        let Some(region) = region else {
            let gap = gap("the registry is not in the image: events cannot be decoded", Cause::Missing);
            evidence.gaps.push(gap);
            return registry::Registry::default();
        };
        let mut registry = registry::read(&**self.image, region, self.budget);
        self.notes.append(&mut registry.notes);
        for (offset, bytes) in registry.damage.iter().filter(|d| d.1 > 0) {
            let bytes = Some(*bytes);
            evidence.gaps.push(Gap { bytes, ..gap(&format!("registry, offset {offset:#x}"), Cause::Damaged) });
        }
        if let Some(unread) = registry.unread(region.minor) {
            evidence.gaps.push(gap(&unread, Cause::Undescribed));
        }
        if registry.dropped > 0 {
            let refused = format!("{} descriptions found no room", registry.dropped);
            let place =
                format!("registry: it was full, {refused}; events of the kinds that it lacks were not recorded");
            evidence.gaps.push(gap(&place, Cause::Refused));
        }
        if registry.values_cut > 0 {
            // No event is lost.
            let events = Some(0);
            evidence.gaps.push(Gap { events, ..gap("values of events", Cause::Cut(registry.values_cut)) });
        }
        registry
    }

    /// Adds a note if a snapshot was being taken.
    fn swapping(&mut self, info: &Info) {
        if info.snapshot.word() == "swapping" {
            let both = if info.snapshot.locked {
                "what was before the swap is shown with what was after"
            } else {
                "nobody holds the lock for it"
            };
            self.notes.push(format!("a snapshot was being taken: {both}"));
        }
    }

    /// Moves the builder's notes about the whole session to `evidence`, before notes about streams.
    fn unsaid(&mut self, evidence: &mut Evidence) {
        evidence.notes.append(&mut self.notes);
    }

    fn session_region(&self, region: Option<&Region>, evidence: &mut Evidence) -> SessionRegion {
        let Some(region) = region else {
            let place =
                "the session region is not in the image: names, state, clock and the number of streams are lost";
            evidence.gaps.push(gap(place, Cause::Missing));
            return SessionRegion::default();
        };
        let mut session = session_region::read(&**self.image, region, self.budget);
        evidence.gaps.extend(session.lost.drain(..).map(|place| gap(&place, Cause::Missing)));
        session
    }

    fn sort(&mut self, all: Vec<Region>) -> Regions {
        let mut regions = Regions::default();
        for region in all {
            self.notes.extend(region.mended.clone());
            match region.kind {
                abi::KIND_SESSION => self.keep_fullest(&mut regions.session, region),
                abi::KIND_REGISTRY => self.keep_fullest(&mut regions.registry, region),
                abi::KIND_SPANS => self.keep_fullest(&mut regions.spans, region),
                abi::KIND_STREAM => {
                    let mut slot = regions.streams.remove(&region.index);
                    let index = region.index;
                    self.keep_fullest(&mut slot, region);
                    regions.streams.extend(slot.map(|r| (index, r)));
                }
                other => self.notes.push(format!("{}: a region of unknown kind {other} is skipped", region.place())),
            }
        }
        regions
    }

    fn keep_fullest(&mut self, slot: &mut Option<Region>, region: Region) {
        match slot {
            Some(old) if old.held >= region.held => {
                self.notes.push(format!("{}: the same region as {}; the latter is read", region.place(), old.place()));
            }
            _ => *slot = Some(region),
        }
    }

    /// Returns the streams whose geometry is valid; adds a gap for each other stream.
    fn streams(&self, regions: &Regions, evidence: &mut Evidence) -> Vec<Data> {
        let mut streams = Vec::new();
        for region in regions.streams.values() {
            match Data::new(self.image, region) {
                Ok(stream) => streams.push(stream),
                Err(error) => {
                    evidence.gaps.push(gap(&format!("stream {}: {error}", region.index), Cause::Damaged));
                }
            }
        }
        streams
    }
}

/// Adds gaps for streams that a channel should have, and for missing indices below that of a stream that was found.
fn absent_streams(regions: &Regions, info: &Info, loose: &[Loose], evidence: &mut Evidence) {
    let of = |channel: &ChannelInfo| channel.first_stream..channel.first_stream.saturating_add(channel.streams);
    for channel in &info.channels {
        let here = regions.streams.range(of(channel)).count() as u64;
        let absent = u64::from(channel.streams).saturating_sub(here);
        if absent > 0 {
            let place =
                format!("{absent} of {} streams of channel {} are not in the image", channel.streams, channel.id);
            evidence.gaps.push(gap(&place, Cause::Missing));
        }
    }
    let found: BTreeSet<u32> = regions.streams.keys().copied().chain(loose.iter().map(|l| l.identity.stream)).collect();
    // Each run of missing indices between two streams makes one gap, so a damaged index does not make a million.
    let mut next = 0u32;
    for index in found {
        let unclaimed = |i: &u32| !info.channels.iter().any(|c| of(c).contains(i));
        if next < index && (next..index).take(STREAMS_LOOKED_AT).any(|i| unclaimed(&i)) {
            let last = index.saturating_sub(1);
            let which =
                if next == last { format!("stream {next} is") } else { format!("streams {next} to {last} are") };
            let place = format!("{which} not in the image, though stream {index} is");
            evidence.gaps.push(gap(&place, Cause::Missing));
        }
        next = index.saturating_add(1);
    }
}

/// Most missing indices between two streams that are compared with the channels.
const STREAMS_LOOKED_AT: usize = 1 << 16;

fn gap(place: &str, cause: Cause) -> Gap {
    Gap { stream: None, place: place.into(), cause, events: None, bytes: None }
}

fn region_info(region: &Region) -> RegionInfo {
    let Region { kind, index, address, size, held, .. } = *region;
    RegionInfo { kind, index, address, size, held, place: region.place() }
}

fn cpu(number: u32) -> Option<u32> {
    (number != ANY_CPU).then_some(number)
}

fn stream_of(of: &Identity, schema: &Schema) -> Stream {
    let channel = schema.channels.iter().position(|c| c.id == of.channel).unwrap_or(0);
    Stream { channel, instance: u64::from(of.stream), cpu: cpu(of.cpu) }
}

/// Describes a stream that has no region, from the common fields of its sub-buffers.
fn orphan_info(of: &Identity) -> StreamInfo {
    let &Identity { stream: index, channel, size: sub_buffer_size, .. } = of;
    StreamInfo { index, channel, cpu: cpu(of.cpu), sub_buffer_size, ..StreamInfo::default() }
}

fn stream_info(data: &Data, outcome: &Outcome) -> StreamInfo {
    let g = &data.geometry;
    let Control { lost, .. } = outcome.control;
    // A sub-buffer of which nothing is left is delivered without clocks.
    let mut with_events = outcome.packets.iter().filter(|packet| !packet.pieces.is_empty() && packet.begin > 0);
    let oldest = with_events.next();
    let ends = oldest.zip(with_events.next_back().or(oldest));
    StreamInfo {
        index: data.region.index,
        channel: g.channel,
        cpu: cpu(g.cpu),
        reservation: g.reservation,
        mode: g.mode,
        sub_buffer_size: g.size,
        sub_buffers: u32::try_from(g.count).unwrap_or(u32::MAX),
        produced: outcome.produced,
        reached: outcome.reached,
        clocks: ends.map(|(oldest, newest)| (oldest.begin, newest.end)),
        held: ends.map_or(0, |(oldest, _)| outcome.produced.saturating_sub(g.start(oldest.number))),
        lost,
    }
}
