//! The geometry of a session: its regions, and the layout of the session region.

use std::mem::offset_of;

use lastwords_abi::counters::{CountersInfo, ENTRIES_OFF, Entry, Histogram, SUB_BITS};
use lastwords_abi::region::{HEADER_SIZE, REGION_ALIGN, RegionHeader};
use lastwords_abi::session::{
    Channel, ClockArea, Control, Filters, Guards, MAX_CHANNELS, MAX_PROCESSES, MAX_THREADS,
    Process, RESERVATION_LOCKLESS, RESERVATION_RSEQ, SessionInfo, Thread,
};
use lastwords_abi::spans::{SPANS_OFF, Span};
use lastwords_abi::stream::{ANY_CPU, StreamInfo};
use lastwords_abi::triggers::{Conditions, Triggers};
use lastwords_ring::backend::Plan;
use lastwords_ring::{Persist, StreamSpec};

use super::backends::is_persistent;
use super::region_names::{COUNTERS, REGISTRY, SESSION, SPANS, stream_name};
use super::streams::first_backed;
use super::{Builder, ChannelConfig, Error};
use crate::process::signals;
/// Bytes of the registry that have memory from the start, if the rest gets it when it is used.
const REGISTRY_FIRST: u64 = 32 << 10;
/// The session region as this version lays it out. Readers use the offsets in [`SessionInfo`].
#[repr(C)]
#[allow(dead_code, reason = "only offsets and the size are asked for")]
pub(crate) struct Shape {
    header: RegionHeader,
    info: SessionInfo,
    pub(crate) control: Control,
    pub(crate) clock: ClockArea,
    pub(crate) channels: [Channel; MAX_CHANNELS],
    pub(crate) processes: [Process; MAX_PROCESSES],
    pub(crate) threads: [Thread; MAX_THREADS],
    pub(crate) filters: Filters,
    pub(crate) triggers: Triggers,
    pub(crate) conditions: Conditions,
    pub(crate) guards: Guards,
}
const _: () = assert!(offset_of!(Shape, info) == HEADER_SIZE as usize);

/// All regions of a session (session, registry, spans and counters if there are any, streams), and the settings
/// that they are made from.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) uuid: [u8; 16],
    pub(crate) channels: Vec<ChannelConfig>,
    pub(crate) cpus: u32,
    pub(crate) reservation: u32,
    pub(crate) persist: Persist,
    pub(crate) plans: Vec<Plan>,
    pub(crate) specs: Vec<StreamSpec>,
    /// The data of the rings gets its memory when it is first used.
    pub(crate) grows: bool,
}

impl Layout {
    /// Computes the layout of the requested session. Returns an error if it is not valid, or takes
    /// too much memory.
    pub(crate) fn new(builder: &Builder, uuid: [u8; 16]) -> Result<Self, Error> {
        let persist = builder.persist_policy(is_persistent(builder.memory.kind()))?;
        let reservation = builder.reservation_code(persist)?;
        let (channels, cpus, page_size) =
            (builder.channels(), builder.cpus(), builder.memory.page_size());
        let mut specs = Vec::new();
        for (channel, config) in (0..).zip(&channels) {
            let place = ChannelPlace {
                uuid,
                channel,
                first_stream: specs.len() as u32,
                cpus,
                reservation,
                page_size,
            };
            specs.append(&mut place.specs(config)?);
        }
        // Threads inherit the blocked signals of the thread that starts the session. One that
        // blocks SIGBUS cannot survive a file system that is full, so it must find the memory of
        // its ring allocated.
        let grows =
            !builder.preallocate && builder.memory.grows() && !signals::is_blocked(libc::SIGBUS);
        let layout = Self {
            uuid,
            channels,
            cpus,
            reservation,
            persist,
            plans: plans(builder, &specs, grows),
            specs,
            grows,
        };
        let needs = layout.needs(builder.snapshot);
        if needs > builder.size_limit {
            return Err(Error::TooLarge { needs, limit: builder.size_limit });
        }
        Ok(layout)
    }

    /// Returns the bytes of memory that the session takes when all its rings are full.
    pub(crate) fn needs(&self, snapshot: bool) -> u64 {
        let halves = if snapshot { 2 } else { 1 };
        // The data, or page tables, of both halves.
        let data = |spec: &StreamSpec| spec.data_range(1).end - spec.data_range(0).start;
        let all: u64 = self.plans.iter().map(|plan| plan.len).sum();
        self.rings() * halves + all - self.specs.iter().map(data).sum::<u64>()
    }

    /// Returns the bytes of the live halves of all rings.
    pub(crate) fn rings(&self) -> u64 {
        self.specs.iter().map(StreamSpec::half_size).sum()
    }

    /// Returns the bytes of growing rings that are allocated at the start.
    pub(crate) fn first_backed(&self) -> u64 {
        self.specs.iter().map(first_backed).sum()
    }

    /// Returns the bytes of memory that are allocated at the start.
    pub(crate) fn first_needs(&self) -> u64 {
        self.plans.iter().map(|plan| plan.len - (plan.sparse.end - plan.sparse.start)).sum()
    }
}

/// The facts that the streams of a channel share besides the channel's configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChannelPlace {
    /// UUID of the session.
    pub(crate) uuid: [u8; 16],
    /// Id of the channel.
    pub(crate) channel: u32,
    /// Index of the first stream.
    pub(crate) first_stream: u32,
    /// CPUs with a stream of their own.
    pub(crate) cpus: u32,
    /// The session's reservation, a `RESERVATION_` constant of [`lastwords_abi::session`].
    pub(crate) reservation: u32,
    /// Size of the pages of the rings in bytes; 0 if the rings are contiguous.
    pub(crate) page_size: u32,
}

impl ChannelPlace {
    /// Returns the streams of a channel: one for each CPU, and one for threads without restartable
    /// sequences if others need these.
    pub(crate) fn specs(&self, config: &ChannelConfig) -> Result<Vec<StreamSpec>, Error> {
        config.check()?;
        let unbound =
            (self.reservation == RESERVATION_RSEQ).then_some((ANY_CPU, RESERVATION_LOCKLESS));
        let streams = (0..self.cpus).map(|cpu| (cpu, self.reservation)).chain(unbound);
        let spec = |(index, (cpu, reservation))| {
            let info = StreamInfo {
                channel: self.channel,
                cpu,
                reservation,
                mode: config.mode,
                sub_buffer_size: config.sub_buffer_size,
                sub_buffers: config.sub_buffers,
                page_size: self.page_size,
                slots_off: [0; 2],
                data_off: [0; 2],
            };
            StreamSpec::new(self.uuid, index, info).map_err(|misfit| config.misfit(misfit))
        };
        (self.first_stream..).zip(streams).map(spec).collect()
    }
}

/// Returns the memory requests for the regions, in order.
fn plans(builder: &Builder, specs: &[StreamSpec], grows: bool) -> Vec<Plan> {
    let plan = |name: &str, len: u64| Plan::whole(name, len.next_multiple_of(REGION_ALIGN));
    let spans_len = (SPANS_OFF + builder.spans as usize * size_of::<Span>()) as u64;
    let mut registry = plan(REGISTRY, builder.registry_len);
    if grows {
        registry.sparse = REGISTRY_FIRST.min(registry.len)..registry.len;
    }
    let mut plans = vec![plan(SESSION, size_of::<Shape>() as u64), registry];
    plans.extend((builder.spans > 0).then(|| plan(SPANS, spans_len)));
    plans.extend(counters_info(builder).map(|info| {
        let histograms_len = u64::from(info.histograms) * size_of::<Histogram>() as u64;
        plan(COUNTERS, u64::from(info.histograms_off) + histograms_len)
    }));
    plans.extend(
        specs
            .iter()
            .map(|spec| stream_plan(spec, stream_name(spec.index), builder.snapshot, grows)),
    );
    plans
}

/// Returns the geometry of the counters region, if the session has one.
pub(crate) fn counters_info(builder: &Builder) -> Option<CountersInfo> {
    let (counters, histograms) = (builder.counters, builder.histograms);
    let counters_off = ENTRIES_OFF as u32;
    (counters > 0 || histograms > 0).then_some(CountersInfo {
        counters,
        histograms,
        counters_off,
        histograms_off: counters_off + counters * size_of::<Entry>() as u32,
        sub_bits: SUB_BITS,
        reserved: [0; 11],
    })
}

/// Returns the memory request for a stream. `snapshot`: the spare half gets its memory with the
/// live one; otherwise it needs none until snapshots are enabled.
pub(crate) fn stream_plan(spec: &StreamSpec, name: String, snapshot: bool, grows: bool) -> Plan {
    let sparse = match (spec.page_size, grows) {
        (0, true) => spec.data_range(0).start + first_backed(spec)..spec.data_range(1).end,
        (0, false) if !snapshot => spec.data_range(1),
        _ => return Plan::whole(name, spec.region_len()),
    };
    Plan { name, len: spec.region_len(), sparse }
}
