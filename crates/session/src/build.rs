//! Makes a session of its regions: finds what is there, reads what describes it, plans each stream,
//! and puts all together.

use crate::counters;
use crate::data::Stream as Data;
use crate::end::End;
use crate::find::{self, Rejected};
use crate::info::{ChannelInfo, Info, RegionInfo, StreamInfo};
use crate::layout::Control;
use crate::loose::{self, Loose, Pool};
use crate::outcome::Outcome;
use crate::packet::Identity;
use crate::planning::Planning;
use crate::region::Region;
use crate::schema::{self, Resolved};
use crate::session::Late;
use crate::session_region::{self, SessionRegion};
use crate::spans::{self, Spans};
use crate::{Options, Session, Sessions, added, clock_area, gap, registry};
use lastwords_abi::region as abi;
use lastwords_abi::stream::ANY_CPU;
use lastwords_bytes::{Budget, Error};
use lastwords_folders::SnapshotState;
use lastwords_image::{Image, Watch};
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use lastwords_trace::metrics::Metrics;
use lastwords_trace::schema::Schema;
use lastwords_trace::source::Stream;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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

/// Finds every session, and also data that no region leads to: sub-buffers that their own checksum
/// proves, and regions whose pages are scattered over the memory of a machine.
///
/// # Errors
/// The budget is spent.
pub fn carve(
    image: &Arc<dyn Image>,
    options: &Options<'_>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Sessions, Error> {
    let carved = crate::carve::find(image, budget, watch)?;
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
        let is_proven =
            loose.iter().any(|l| l.verdict == lastwords_trace::evidence::Verdict::Committed);
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

/// What all steps of making a session use.
pub(crate) struct Builder<'a> {
    pub(crate) image: &'a Arc<dyn Image>,
    /// The image that contains the sub-buffers that were found without a region.
    pub(crate) raw: &'a Arc<dyn Image>,
    pub(crate) options: &'a Options<'a>,
    pub(crate) budget: &'a Budget,
    pub(crate) watch: Watch<'a>,
    notes: Vec<String>,
}

/// The regions of a session, by kind. If several regions have the same kind and index, the one with
/// the most bytes in the image is kept.
#[derive(Default)]
struct Regions {
    session: Option<Region>,
    registry: Option<Region>,
    spans: Option<Region>,
    counters: Option<Region>,
    streams: BTreeMap<u32, Region>,
}

impl Regions {
    /// Returns true if every region that the session can have was found.
    fn are_complete(&self, info: &Info) -> bool {
        let of = |channel: &ChannelInfo| {
            let streams =
                channel.first_stream..channel.first_stream.saturating_add(channel.streams);
            self.streams.range(streams).count() as u64 == u64::from(channel.streams)
        };
        let has_counters = self.counters.is_some() || info.metrics_room == [0; 2];
        let has_others = self.session.is_some() && self.registry.is_some() && self.spans.is_some();
        has_others && has_counters && !info.channels.is_empty() && info.channels.iter().all(of)
    }
}

/// Returns when the session was created, by both clocks.
fn created(info: &Info) -> clock_area::Created {
    clock_area::Created { realtime: info.created_realtime, monotonic: info.created_monotonic }
}

/// Returns a note on triggers that took no snapshot, if there are any.
fn limited(count: u32) -> Option<String> {
    let triggers = if count == 1 { "trigger" } else { "triggers" };
    let why = "because of the limit of the session or of a condition";
    (count > 0).then(|| format!("{count} {triggers} took no snapshot, {why}"))
}

/// The regions of a session, and the state that its session region tells.
struct Found {
    uuid: [u8; 16],
    regions: Regions,
    session: SessionRegion,
    data: Vec<Data>,
    /// For a consuming or following read: the range of each stream.
    ends: Option<Vec<Option<End>>>,
    /// All regions, for people; the version and the word size that they tell.
    listed: Vec<RegionInfo>,
    minor: u16,
    word_size: u32,
    /// Streams whose geometry is wrong.
    refused: Vec<Gap>,
}

/// A session's facts and the descriptions of its events.
struct Described {
    info: Info,
    schema: Resolved,
    spans: Spans,
}

impl<'a> Builder<'a> {
    fn build(
        mut self,
        uuid: [u8; 16],
        all: Vec<Region>,
        rejected: &[Rejected],
        loose: Vec<Loose>,
    ) -> Result<Session, Error> {
        let mut evidence = Evidence::default();
        let mut found = self.find(uuid, all, rejected, &mut evidence)?;
        let pool = Pool { image: &**self.raw, loose };
        let mut described = self.describe(&mut found, &pool, &mut evidence);
        let outcomes = self.plan(&mut found, &described)?;
        let ends = outcomes.iter().flat_map(|outcome| &outcome.packets).map(|packet| packet.end);
        let clock = &described.info.clock;
        spans::set_ages(
            described.spans.open.as_deref_mut().unwrap_or_default(),
            ends.fold(clock.last, u64::max),
            clock.frequency,
        );
        Ok(self.assemble(found.data, described, outcomes, pool, evidence))
    }

    /// Sorts the regions, repairs what can be, and sets where reading ends.
    fn find(
        &mut self,
        uuid: [u8; 16],
        all: Vec<Region>,
        rejected: &[Rejected],
        evidence: &mut Evidence,
    ) -> Result<Found, Error> {
        let (listed, minor) =
            (all.iter().map(region_info).collect(), all.iter().map(|r| r.minor).max().unwrap_or(0));
        let word_size = all.first().map_or(0, |r| r.word_size);
        let mut regions = self.sort(all);
        let mut of_region = Evidence::default();
        let session = self.session_region(regions.session.as_ref(), &mut of_region);
        self.notes.extend(added::remove_unfinished(
            &mut regions.streams,
            &session.info,
            &**self.image,
            self.budget,
        ));
        self.reject(rejected, regions.are_complete(&session.info), evidence);
        evidence.append(of_region);
        let (mut data, refused) = self.streams(&regions);
        // An event is described before it is recorded. So the descriptions are read after the end
        // of the read was set: a consuming read would consume an event that is described in
        // between, and could not decode it.
        let limit = self.options.limit.filter(|limit| limit.session == uuid);
        let threads = regions.session.as_ref().zip(session.threads);
        let ends = limit.map(|limit| limit.freeze(&mut data, threads, self.budget)).transpose()?;
        Ok(Found { uuid, regions, session, data, ends, listed, minor, word_size, refused })
    }

    /// Reads what describes the session and its events.
    fn describe(
        &mut self,
        found: &mut Found,
        pool: &Pool<'_>,
        evidence: &mut Evidence,
    ) -> Described {
        let Found { regions, session, data, .. } = found;
        let of_ends = found.ends.as_ref();
        let of_ends =
            of_ends.map(|ends| data.iter().map(|stream| &stream.region).zip(ends.iter().copied()));
        added::tell(&session.info, self.options.snapshot, of_ends, evidence);
        let mut registry = self.registry(regions.registry.as_ref(), evidence);
        let has_spans = registry.events.values().any(|event| event.name.starts_with("span:"));
        let table = regions.spans.as_ref();
        let mut spans = spans::read(&**self.image, table, has_spans, self.budget);
        self.notes.append(&mut spans.notes);
        let metrics = self.metrics(regions.counters.as_ref(), &session.info, evidence);
        self.swapping(&session.info);
        self.notes.extend(limited(session.info.limited_triggers));
        let (clock, clock_info) = session.clock.resolve(created(&session.info), &mut self.notes);
        evidence.gaps.extend(session.clock.not_known(&clock));
        evidence.gaps.append(&mut found.refused);
        absent_streams(regions, &session.info, &pool.loose, evidence);
        let (uuid, minor, word_size) = (found.uuid, found.minor, found.word_size);
        let regions = std::mem::take(&mut found.listed);
        let told = std::mem::take(&mut session.info);
        let mut info = Info { uuid, minor, word_size, clock: clock_info, regions, ..told };
        info.modules = std::mem::take(&mut registry.modules);
        (info.registry_dropped, info.spans_dropped) = (registry.dropped, spans.dropped);
        info.metrics = metrics;
        self.window(&mut info, evidence);
        let mut schema =
            schema::resolve(&info, clock, &registry, (data, pool), self.budget, &mut self.notes);
        evidence.gaps.append(&mut schema.gaps);
        Described { info, schema, spans }
    }

    /// Decides of each stream which sub-buffers are delivered.
    fn plan(&self, found: &mut Found, described: &Described) -> Result<Vec<Outcome>, Error> {
        let Described { info, schema: resolved, .. } = described;
        let Found { regions, session, data, ends, .. } = found;
        let threads = regions.session.as_ref().zip(session.threads);
        let planning = Planning {
            options: self.options,
            budget: self.budget,
            watch: self.watch,
            is_carved: !Arc::ptr_eq(self.image, self.raw),
            info,
            flip: session.flip,
            resolved,
            threads,
            ends: ends.take(),
        };
        planning.all(data)
    }

    /// Puts the session together. Sub-buffers that were found without a region fill the places of
    /// damaged ones, or are streams of their own.
    fn assemble(
        mut self,
        data: Vec<Data>,
        described: Described,
        mut outcomes: Vec<Outcome>,
        mut pool: Pool<'_>,
        mut evidence: Evidence,
    ) -> Session {
        let Described { mut info, schema: resolved, spans } = described;
        let fill = |(index, (stream, outcome))| (index, pool.fill(stream, outcome));
        let found = data.iter().zip(&mut outcomes).enumerate().map(fill);
        let mut found: BTreeMap<usize, Vec<Loose>> =
            found.filter(|(_, taken)| !taken.is_empty()).collect();
        let orphans = pool.orphans(|channel| resolved.decoder(channel));
        let mut streams: Vec<Stream> =
            data.iter().map(|d| stream_of(&d.identity, &resolved.schema)).collect();
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
        let late = Late::from_plans(find, self.image, self.options, &planned);
        let (image, schema, spans) = (Arc::clone(self.raw), resolved.schema, spans.open);
        Session { info, schema, streams, data: planned, loose: found, image, evidence, spans, late }
    }

    /// Tells of the window to which the session is cut; removes it if all of the session is read.
    fn window(&self, info: &mut Info, evidence: &mut Evidence) {
        info.window = info.window.filter(|_| !self.options.whole);
        if let Some(window) = &info.window {
            window.tell(info.clock.frequency, info.snapshot.clock, evidence);
        }
    }

    /// Adds a gap for each header that is damaged. If all regions of the session were found, such a
    /// header is none of theirs: a program leaves parts of headers on its stacks, and one may be at
    /// the start of a page.
    fn reject(&mut self, rejected: &[Rejected], are_complete: bool, evidence: &mut Evidence) {
        if are_complete {
            let why = "all regions of the session were found without it";
            self.notes.extend(rejected.iter().map(|r| format!("{}: {why}", r.why)));
        } else {
            evidence.gaps.extend(rejected.iter().map(|r| gap(&r.why, Cause::Damaged)));
        }
    }

    /// Reads the registry; adds gaps for damaged records and for descriptions that did not fit into
    /// the registry.
    fn registry(&mut self, region: Option<&Region>, evidence: &mut Evidence) -> registry::Registry {
        let Some(region) = region else {
            let gap =
                gap("the registry is not in the image: events cannot be decoded", Cause::Missing);
            evidence.gaps.push(gap);
            return registry::Registry::default();
        };
        let mut registry = registry::read(&**self.image, region, self.budget);
        self.notes.append(&mut registry.notes);
        for (offset, bytes) in registry.damage.iter().filter(|d| d.1 > 0) {
            let bytes = Some(*bytes);
            evidence.gaps.push(Gap {
                bytes,
                ..gap(&format!("registry, offset {offset:#x}"), Cause::Damaged)
            });
        }
        if let Some(unread) = registry.unread(region.minor) {
            evidence.gaps.push(gap(&unread, Cause::Undescribed));
        }
        if registry.dropped > 0 {
            let refused = format!("{} descriptions found no room", registry.dropped);
            let place = format!(
                "registry: it was full, {refused}; events of the kinds that it lacks were not recorded"
            );
            evidence.gaps.push(gap(&place, Cause::Refused));
        }
        let flaws = [
            (registry.values_cut, Cause::Cut as fn(u64) -> Cause),
            (registry.values_changed, Cause::Changed),
        ];
        for (values, cause) in flaws.into_iter().filter(|(values, _)| *values > 0) {
            // No event is lost.
            let events = Some(0);
            evidence.gaps.push(Gap { events, ..gap("values of events", cause(values)) });
        }
        registry
    }

    /// Reads counters and histograms.
    fn metrics(
        &mut self,
        region: Option<&Region>,
        info: &Info,
        evidence: &mut Evidence,
    ) -> Metrics {
        let Some(region) = region else {
            let [counters, histograms] = info.metrics_room;
            if (counters, histograms) != (0, 0) {
                let place = format!(
                    "the counters region is not in the image: up to {counters} counters and {histograms} histograms are lost"
                );
                evidence.gaps.push(gap(&place, Cause::Missing));
            }
            return Metrics::default();
        };
        let mut read = counters::read(&**self.image, region, self.budget);
        self.notes.append(&mut read.notes);
        evidence.gaps.append(&mut read.gaps);
        read.metrics
    }

    /// Adds a note if a snapshot was being taken.
    fn swapping(&mut self, info: &Info) {
        if info.snapshot.state == SnapshotState::Swapping {
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
            let place = "the session region is not in the image: names, state, clock and the number of streams are lost";
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
                abi::KIND_COUNTERS => self.keep_fullest(&mut regions.counters, region),
                abi::KIND_STREAM => {
                    let mut slot = regions.streams.remove(&region.index);
                    let index = region.index;
                    self.keep_fullest(&mut slot, region);
                    regions.streams.extend(slot.map(|r| (index, r)));
                }
                other => self.notes.push(format!(
                    "{}: a region of unknown kind {other} is skipped",
                    region.place()
                )),
            }
        }
        regions
    }

    fn keep_fullest(&mut self, slot: &mut Option<Region>, region: Region) {
        match slot {
            Some(old) if old.held >= region.held => {
                self.notes.push(format!(
                    "{}: the same region as {}; the latter is read",
                    region.place(),
                    old.place()
                ));
            }
            _ => *slot = Some(region),
        }
    }

    /// Returns the streams whose geometry is valid, and a gap for each other stream.
    fn streams(&self, regions: &Regions) -> (Vec<Data>, Vec<Gap>) {
        let (mut streams, mut refused) = (Vec::new(), Vec::new());
        for region in regions.streams.values() {
            match Data::new(self.image, region) {
                Ok(stream) => streams.push(stream),
                Err(error) => {
                    refused.push(gap(&format!("stream {}: {error}", region.index), Cause::Damaged))
                }
            }
        }
        (streams, refused)
    }
}

/// Adds gaps for streams that a channel should have, and for missing indices below that of a stream
/// that was found.
fn absent_streams(regions: &Regions, info: &Info, loose: &[Loose], evidence: &mut Evidence) {
    let of = |channel: &ChannelInfo| {
        channel.first_stream..channel.first_stream.saturating_add(channel.streams)
    };
    for channel in &info.channels {
        let here = regions.streams.range(of(channel)).count() as u64;
        let absent = u64::from(channel.streams).saturating_sub(here);
        if absent > 0 {
            let place = format!(
                "{absent} of {} streams of channel {} are not in the image",
                channel.streams, channel.id
            );
            evidence.gaps.push(gap(&place, Cause::Missing));
        }
    }
    let found: BTreeSet<u32> =
        regions.streams.keys().copied().chain(loose.iter().map(|l| l.identity.stream)).collect();
    // Each run of missing indices between two streams makes one gap, so a damaged index does not
    // make a million.
    let mut next = 0u32;
    for index in found {
        let unclaimed = |i: &u32| !info.channels.iter().any(|c| of(c).contains(i));
        if next < index && (next..index).take(STREAMS_LOOKED_AT).any(|i| unclaimed(&i)) {
            let last = index.saturating_sub(1);
            let which = if next == last {
                format!("stream {next} is")
            } else {
                format!("streams {next} to {last} are")
            };
            let place = format!("{which} not in the image, though stream {index} is");
            evidence.gaps.push(gap(&place, Cause::Missing));
        }
        next = index.saturating_add(1);
    }
}

/// Most missing indices between two streams that are compared with the channels.
const STREAMS_LOOKED_AT: usize = 1 << 16;

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
    let mut with_events =
        outcome.packets.iter().filter(|packet| !packet.pieces.is_empty() && packet.begin > 0);
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
