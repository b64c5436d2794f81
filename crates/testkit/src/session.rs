//! Builds synthetic sessions: assembles channels, rings and records into the regions of
//! docs/ABI.md.

use crate::checksum::checksum;
use crate::counters::Metrics;
use crate::image::{Image, Region, Spot};
use crate::layout::{region as rg, registry as rc, session as se, spans as sp, stream as st};
use crate::put::Order;
use crate::ring::{Event, Ring, Spec};
use crate::schema::{Record, Type};

/// Description of a channel.
#[derive(Debug, Clone)]
pub struct ChannelSpec {
    /// Name.
    pub name: String,
    /// A `MODE_` number: overwrite or discard.
    pub mode: u32,
    /// Flags; bit 0: event headers have the size of the payload.
    pub flags: u32,
    /// Bits of the contexts that are recorded.
    pub contexts: u32,
    /// Bytes of a sub-buffer.
    pub size: u64,
    /// Number of sub-buffers in a half.
    pub count: u64,
    /// True if the data are in pages on the writer's heap.
    pub paged: bool,
}

impl ChannelSpec {
    /// A channel in overwrite mode without contexts.
    pub fn new(name: &str, size: u64, count: u64) -> Self {
        Self {
            name: name.into(),
            mode: se::OVERWRITE,
            flags: 0,
            contexts: 0,
            size,
            count,
            paged: false,
        }
    }
}

/// An open span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Id.
    pub id: u64,
    /// Id of the parent, or 0.
    pub parent: u64,
    /// Clock when the span was opened.
    pub opened: u64,
    /// Process and thread that opened the span: `pid << 32 | tid`.
    pub opener: u64,
    /// Process and thread that entered it last, or 0.
    pub entered: u64,
    /// Severity, 1 to 5.
    pub level: u32,
    /// Target, name, fields.
    pub text: [String; 3],
}

/// The session's clock area.
#[derive(Debug, Clone)]
pub struct ClockSpec {
    /// A `CLOCK_` number.
    pub kind: u32,
    /// Ticks per second.
    pub frequency: u64,
    /// Three samples: clock, monotonic, realtime, width.
    pub samples: [[u64; 4]; 3],
    /// Index of the newest sample.
    pub newest: u32,
}

impl Default for ClockSpec {
    /// CLOCK_MONOTONIC; its zero was at a wall time of 1,700,000,000 s.
    fn default() -> Self {
        let sample = |t: u64| [t, t, 1_700_000_000_000_000_000 + t, 50];
        Self {
            kind: se::CLOCK_MONOTONIC,
            frequency: 1_000_000_000,
            samples: [sample(1), sample(5), [0; 4]],
            newest: 1,
        }
    }
}

/// A session under construction.
#[derive(Debug, Clone)]
pub struct Session {
    /// Byte order of the whole image.
    pub order: Order,
    /// UUID.
    pub uuid: [u8; 16],
    /// Name.
    pub name: String,
    /// Default reservation algorithm of the streams.
    pub reservation: u32,
    /// Number of entries in the thread table.
    pub threads: usize,
    /// Clock.
    pub clock: ClockSpec,
    /// Channels, in order of id.
    pub channels: Vec<ChannelSpec>,
    /// Streams, in order of index.
    pub rings: Vec<Ring>,
    /// Records of the registry, in order.
    pub records: Vec<Record>,
    /// Open spans.
    pub spans: Vec<Span>,
    /// Counters and histograms, if there is a region for them.
    pub metrics: Option<Metrics>,
    /// Number of entries in the span table; 0 = no span region.
    pub span_capacity: usize,
    /// The session's flip word.
    pub flip: u32,
    /// State of the snapshot.
    pub snapshot: u32,
    /// Index plus one of the only stream that was swapped; 0 = all.
    pub snapshot_stream: u32,
}

impl Session {
    /// An empty session.
    pub fn new(name: &str, reservation: u32) -> Self {
        Self {
            order: Order::Little,
            uuid: *b"\x1a\x5e\x00words-uuid!\x07\x08",
            name: name.into(),
            reservation,
            threads: 8,
            clock: ClockSpec::default(),
            channels: Vec::new(),
            rings: Vec::new(),
            records: vec![Record::Env { key: "tracer_name".into(), value: "testkit".into() }],
            spans: Vec::new(),
            metrics: None,
            span_capacity: 0,
            flip: 0,
            snapshot: se::SNAPSHOT_OFF,
            snapshot_stream: 0,
        }
    }

    /// Adds a channel; returns its id.
    pub fn channel(&mut self, spec: ChannelSpec) -> u32 {
        self.channels.push(spec);
        u32::try_from(self.channels.len() - 1).unwrap_or(u32::MAX)
    }

    /// Adds a stream to a channel; returns its index. The streams of a channel must be added one
    /// after the other.
    pub fn stream(&mut self, channel: u32, cpu: u32, reservation: u32) -> usize {
        let c = &self.channels[channel as usize];
        let index = self.rings.len();
        self.rings.push(Ring::new(Spec {
            session: self.uuid,
            index: u32::try_from(index).unwrap_or(u32::MAX),
            channel,
            cpu,
            reservation,
            mode: c.mode,
            size: c.size,
            count: c.count,
            payload_size: c.flags & se::FLAG_PAYLOAD_SIZE != 0,
            paged: c.paged,
            order: self.order,
        }));
        index
    }

    /// Adds the description of an event of a channel.
    pub fn event(&mut self, channel: u32, id: u16, name: &str, fields: &[(&str, Type)]) {
        self.records.push(Record::Event {
            channel: u16::try_from(channel).unwrap_or(u16::MAX),
            id,
            level: 3,
            name: ("testkit".into(), name.into()),
            format: String::new(),
            source: ("testkit.rs".into(), u32::from(id) + 1),
            fields: fields.iter().map(|(n, t)| ((*n).to_owned(), t.clone())).collect(),
        });
    }

    /// Swaps all streams and marks a snapshot as taken.
    pub fn snapshot(&mut self) {
        self.flip ^= 1;
        self.snapshot = se::SNAPSHOT_TAKEN;
        self.rings.iter_mut().for_each(Ring::swap);
    }

    /// All events that a correct reader finds in the live halves, with the index of their stream.
    pub fn live_events(&self) -> Vec<(u32, Event)> {
        self.events(|ring| ring.live)
    }

    /// All events of the snapshot, with the index of their stream.
    pub fn snapshot_events(&self) -> Vec<(u32, Event)> {
        self.events(|ring| ring.live ^ 1)
    }

    fn events(&self, half: impl Fn(&Ring) -> usize) -> Vec<(u32, Event)> {
        let of = |ring: &Ring| {
            ring.truth(half(ring)).into_iter().flat_map(|s| s.events).map(|(_, e)| e).collect()
        };
        let with_index = |ring: &Ring| {
            let events: Vec<Event> = of(ring);
            events.into_iter().map(|e| (ring.spec.index, e)).collect::<Vec<_>>()
        };
        self.rings.iter().flat_map(with_index).collect()
    }

    /// Builds the regions.
    pub fn image(&self) -> Image {
        let mut image =
            Image { order: self.order, regions: Vec::new(), pages: Vec::new(), spots: Vec::new() };
        image.regions.push(Region { name: "session".into(), bytes: self.session_region() });
        image.regions.push(Region { name: "registry".into(), bytes: self.registry_region() });
        if self.span_capacity > 0 {
            image.regions.push(Region { name: "spans".into(), bytes: self.spans_region() });
        }
        if let Some(metrics) = &self.metrics {
            let mut bytes = metrics.bytes(self.order);
            self.put_region_header(
                &mut bytes,
                rg::KIND_COUNTERS,
                0,
                crate::layout::counters::INFO_LEN,
            );
            image.regions.push(Region { name: "counters".into(), bytes });
        }
        for ring in &self.rings {
            self.stream_region(ring, &mut image);
        }
        image
    }

    fn session_region(&self) -> Vec<u8> {
        let o = self.order;
        let control = rg::HEADER_LEN + se::INFO_LEN + 32;
        let clock = control + se::CONTROL_LEN;
        let channels = clock + se::CLOCK_LEN;
        let processes = channels + se::CHANNELS_MAX * se::CHANNEL_LEN;
        let threads = processes + se::PROCESSES_MAX * se::PROCESS_LEN;
        let end = threads + self.threads * se::THREAD_LEN;
        let mut r = vec![0u8; end.next_multiple_of(rg::PAGE)];
        let cpus =
            self.rings.iter().filter(|r| r.spec.channel == 0 && r.spec.cpu != st::ANY_CPU).count();
        let i = se::INFO_AT;
        o.put64(&mut r, i + se::CREATED_REALTIME_AT, self.clock.samples[0][2]);
        o.put64(&mut r, i + se::CREATED_MONOTONIC_AT, self.clock.samples[0][1]);
        o.put64(&mut r, i + se::CREATOR_START_AT, 12345);
        o.put64(&mut r, i + se::CREATOR_PIDNS_AT, 4_026_531_836);
        o.put32(&mut r, i + se::CREATOR_PID_AT, 4242);
        o.put32(&mut r, i + se::UID_AT, 1000);
        o.put32(&mut r, i + se::RESERVATION_AT, self.reservation);
        o.put32(
            &mut r,
            i + se::BACKEND_AT,
            if self.channels.iter().any(|c| c.paged) { 1 } else { 2 },
        );
        o.put32(&mut r, i + se::SCOPE_AT, 1);
        let areas = [cpus, control, clock, channels, processes, threads, self.threads];
        for (n, v) in areas.iter().enumerate() {
            o.put32(&mut r, i + se::CPUS_AT + 4 * n, u32::try_from(*v).unwrap_or(u32::MAX));
        }
        r[i + se::BOOT_ID_AT..][..16].copy_from_slice(b"boot-id-of-16-by");
        put_text(&mut r, i + se::NAME_AT, &self.name);
        put_text(&mut r, i + se::HOSTNAME_AT, "host");
        put_text(&mut r, i + se::PROGRAM_AT, "/usr/bin/testkit");
        o.put32(&mut r, control + se::FLIP_AT, self.flip);
        o.put32(&mut r, control + se::RECORDING_AT, 1);
        if let Some(metrics) = &self.metrics {
            o.put32(&mut r, control + se::COUNTERS_AT, metrics.room[0]);
            o.put32(&mut r, control + se::HISTOGRAMS_AT, metrics.room[1]);
        }
        o.put32(&mut r, control + se::SNAPSHOT_AT, self.snapshot);
        o.put32(&mut r, control + se::SNAPSHOT_STREAM_AT, self.snapshot_stream);
        self.put_clock(&mut r, clock);
        self.put_channels(&mut r, channels);
        o.put32(&mut r, processes + se::PROCESS_PID_AT, 4242);
        o.put64(&mut r, processes + se::PROCESS_START_AT, 12345);
        self.put_threads(&mut r, threads);
        self.put_region_header(&mut r, rg::KIND_SESSION, 0, se::INFO_LEN);
        r
    }

    fn put_clock(&self, r: &mut [u8], at: usize) {
        let (o, c) = (self.order, &self.clock);
        o.put32(r, at + se::CLOCK_KIND_AT, c.kind);
        o.put32(r, at + se::CLOCK_NEWEST_AT, c.newest);
        o.put64(r, at + se::CLOCK_FREQUENCY_AT, c.frequency);
        for (n, v) in c.samples.iter().flatten().enumerate() {
            o.put64(r, at + se::CLOCK_SAMPLES_AT + 8 * n, *v);
        }
    }

    fn put_channels(&self, r: &mut [u8], at: usize) {
        let o = self.order;
        for (id, c) in self.channels.iter().enumerate() {
            let at = at + id * se::CHANNEL_LEN;
            let of_channel = |r: &&Ring| r.spec.channel as usize == id;
            let first = self.rings.iter().find(of_channel).map_or(0, |r| r.spec.index);
            let streams =
                u32::try_from(self.rings.iter().filter(of_channel).count()).unwrap_or(u32::MAX);
            o.put32(r, at + se::CHANNEL_STATE_AT, 1);
            o.put32(r, at + se::CHANNEL_RECORDING_AT, 1);
            o.put32(r, at + se::CHANNEL_NEXT_ID_AT, 1);
            o.put32(r, at + se::CHANNEL_MODE_AT, c.mode);
            o.put32(r, at + se::CHANNEL_FLAGS_AT, c.flags);
            o.put32(r, at + se::CHANNEL_CONTEXTS_AT, c.contexts);
            o.put32(r, at + se::CHANNEL_FIRST_STREAM_AT, first);
            o.put32(r, at + se::CHANNEL_STREAMS_AT, streams);
            o.put64(r, at + se::CHANNEL_SUB_BUFFER_SIZE_AT, c.size);
            o.put32(r, at + se::CHANNEL_SUB_BUFFERS_AT, u32::try_from(c.count).unwrap_or(u32::MAX));
            put_text(r, at + se::CHANNEL_NAME_AT, &c.name);
        }
    }

    fn put_threads(&self, r: &mut [u8], at: usize) {
        let o = self.order;
        for ring in &self.rings {
            for f in &ring.in_flight {
                let index = usize::try_from(f.owner - 1).unwrap_or(0);
                let thread = at + index / se::LEVELS * se::THREAD_LEN;
                o.put64(r, thread + se::THREAD_OWNER_AT, (9000 + f.owner) << 32 | 4242);
                let level = thread + se::LEVELS_AT + index % se::LEVELS * se::LEVEL_LEN;
                let target = (u64::from(ring.spec.index) << 1 | f.half as u64) + 1;
                let confirmed =
                    if f.confirmed == 0 { 0 } else { target << st::POSITION_BITS | f.confirmed };
                o.put64(r, level + se::TARGET_AT, target);
                o.put64(r, level + se::BEGIN_AT, f.begin);
                o.put64(r, level + se::END_AT, f.end);
                o.put64(r, level + se::CONFIRMED_AT, confirmed);
                o.put64(r, level + se::STATE_AT, f.state);
            }
        }
    }

    fn registry_region(&self) -> Vec<u8> {
        let mut r = vec![0u8; rc::RECORDS_AT];
        self.records.iter().for_each(|record| r.extend(record.encode(self.order)));
        let end = r.len();
        r.resize(end.next_multiple_of(rg::PAGE), 0);
        self.order.put64(&mut r, rc::END_AT, end as u64);
        self.put_region_header(&mut r, rg::KIND_REGISTRY, 0, 0);
        r
    }

    fn spans_region(&self) -> Vec<u8> {
        let o = self.order;
        let mut r = vec![
            0u8;
            (sp::SPANS_AT + self.span_capacity * sp::SPAN_LEN)
                .next_multiple_of(rg::PAGE)
        ];
        o.put32(&mut r, sp::CAPACITY_AT, u32::try_from(self.span_capacity).unwrap_or(u32::MAX));
        o.put64(&mut r, sp::NEXT_ID_AT, 1 + self.spans.iter().map(|s| s.id).max().unwrap_or(0));
        for (n, span) in self.spans.iter().enumerate() {
            let at = sp::SPANS_AT + n * sp::SPAN_LEN;
            let text = span.text.join("\x1f");
            o.put64(&mut r, at + sp::ID_AT, span.id);
            o.put64(&mut r, at + sp::PARENT_AT, span.parent);
            o.put64(&mut r, at + sp::OPENED_AT, span.opened);
            o.put64(&mut r, at + sp::OPENER_AT, span.opener);
            o.put64(&mut r, at + sp::ENTERED_AT, span.entered);
            o.put32(&mut r, at + sp::STATE_AT, 1);
            o.put32(&mut r, at + sp::TEXT_LEN_AT, u32::try_from(text.len()).unwrap_or(u32::MAX));
            o.put32(&mut r, at + sp::LEVEL_AT, span.level);
            put_text(&mut r, at + sp::TEXT_AT, &text);
        }
        self.put_region_header(&mut r, rg::KIND_SPANS, 0, 0);
        r
    }

    fn stream_region(&self, ring: &Ring, image: &mut Image) {
        let (o, spec) = (self.order, &ring.spec);
        let slots = usize::try_from(spec.count).unwrap_or(0) * st::SLOT_LEN;
        let slots_off =
            [st::CONTROL_AT + st::CONTROL_LEN, st::CONTROL_AT + st::CONTROL_LEN + slots];
        let half = usize::try_from(ring.half_len()).unwrap_or(0);
        let in_region =
            if spec.paged { half / rg::PAGE * 8 } else { half }.next_multiple_of(rg::PAGE);
        let first = (slots_off[1] + slots).next_multiple_of(rg::PAGE);
        let data_off = [first, first + in_region];
        let mut r = vec![0u8; first + 2 * in_region];
        let i = st::INFO_AT;
        o.put32(&mut r, i + st::CHANNEL_AT, spec.channel);
        o.put32(&mut r, i + st::CPU_AT, spec.cpu);
        o.put32(&mut r, i + st::RESERVATION_AT, spec.reservation);
        o.put32(&mut r, i + st::MODE_AT, spec.mode);
        o.put64(&mut r, i + st::SUB_BUFFER_SIZE_AT, spec.size);
        o.put32(&mut r, i + st::SUB_BUFFERS_AT, u32::try_from(spec.count).unwrap_or(u32::MAX));
        o.put32(&mut r, i + st::PAGE_SIZE_AT, if spec.paged { 4096 } else { 0 });
        let region = image.regions.len();
        for h in 0..2 {
            o.put64(&mut r, i + st::SLOTS_OFF_AT + 8 * h, slots_off[h] as u64);
            o.put64(&mut r, i + st::DATA_OFF_AT + 8 * h, data_off[h] as u64);
            self.put_half(&mut r, ring, h, slots_off[h]);
            if spec.paged {
                image.add_pages(&mut r, data_off[h], &ring.halves[h].data);
                continue;
            }
            r[data_off[h]..data_off[h] + half].copy_from_slice(&ring.halves[h].data);
            for sub in ring.truth(h) {
                let size = usize::try_from(spec.size).unwrap_or(0);
                let at = data_off[h] + usize::try_from(sub.number % spec.count).unwrap_or(0) * size;
                image.spots.push(Spot {
                    stream: spec.index,
                    half: h,
                    number: sub.number,
                    region,
                    at,
                    len: size,
                });
            }
        }
        let c = st::CONTROL_AT;
        o.put32(&mut r, c + st::FLIP_AT, self.flip ^ u32::try_from(ring.live).unwrap_or(0));
        for (n, lost) in ring.lost.iter().enumerate() {
            o.put64(&mut r, c + st::LOST_AT + 8 * n, *lost);
        }
        self.put_region_header(&mut r, rg::KIND_STREAM, spec.index, st::INFO_LEN);
        image.regions.push(Region { name: format!("stream-{}", spec.index), bytes: r });
    }

    fn put_half(&self, r: &mut [u8], ring: &Ring, h: usize, slots_off: usize) {
        let (o, half) = (self.order, &ring.halves[h]);
        let at = st::CONTROL_AT + st::HALVES_AT + h * st::HALF_LEN;
        let closed = if half.closed { st::CLOSED_BIT } else { 0 };
        o.put64(r, at + st::RESERVE_AT, closed | half.owner << st::POSITION_BITS | half.position);
        o.put64(r, at + st::ATTEMPT_AT, half.attempt);
        o.put64(r, at + st::LAST_CLOCK_AT, half.last_clock);
        o.put64(r, at + st::FIRST_AT, half.first);
        o.put64(r, at + st::CONTIGUOUS_AT, half.contiguous);
        o.put64(r, at + st::CONSUMED_AT, half.consumed);
        for (n, slot) in half.slots.iter().enumerate() {
            let at = slots_off + n * st::SLOT_LEN;
            o.put64(r, at + st::COMMITTED_AT, slot.committed);
            o.put64(r, at + st::CONTENT_END_AT, slot.content_end);
            o.put64(r, at + st::END_CLOCK_AT, slot.end_clock);
        }
    }

    fn put_region_header(&self, r: &mut [u8], kind: u32, index: u32, fixed_len: usize) {
        let o = self.order;
        let size = r.len() as u64;
        r[..16].copy_from_slice(&rg::MAGIC);
        o.put16(r, rg::MAJOR_AT, 1);
        o.put16(r, rg::MINOR_AT, 0);
        o.put32(r, rg::KIND_AT, kind);
        o.put32(r, rg::BYTE_ORDER_AT, rg::BYTE_ORDER_MARK);
        o.put32(r, rg::WORD_SIZE_AT, 8);
        o.put64(r, rg::SIZE_AT, size);
        r[rg::SESSION_AT..rg::SESSION_AT + 16].copy_from_slice(&self.uuid);
        o.put32(r, rg::INDEX_AT, index);
        o.put32(r, rg::FIXED_LEN_AT, u32::try_from(fixed_len).unwrap_or(u32::MAX));
        seal(r, o, fixed_len);
    }
}

/// Writes the checksum into a region's header.
pub fn seal(region: &mut [u8], order: Order, fixed_len: usize) {
    let mut covered = region[..rg::CHECK_AT].to_vec();
    covered.extend(&region[rg::HEADER_LEN..rg::HEADER_LEN + fixed_len]);
    order.put64(region, rg::CHECK_AT, checksum(&covered));
}

fn put_text(r: &mut [u8], at: usize, text: &str) {
    r[at..at + text.len()].copy_from_slice(text.as_bytes());
}
