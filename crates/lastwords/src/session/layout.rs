//! The geometry of a session: its regions, and the layout of the session region.

use std::fs;
use std::mem::offset_of;

use lastwords_abi::region::{HEADER_SIZE, REGION_ALIGN, RegionHeader};
use lastwords_abi::session::{
    Channel, ClockArea, Control, Filters, MAX_CHANNELS, MAX_PROCESSES, MAX_THREADS, Process, RESERVATION_LOCKLESS,
    RESERVATION_RSEQ, SessionInfo, Thread,
};
use lastwords_abi::spans::{SPANS_OFF, Span};
use lastwords_abi::stream::{ANY_CPU, StreamInfo};
use lastwords_abi::triggers::{Conditions, Triggers};
use lastwords_ring::backend::{ARENA_FILE, PLACES_FILE, Plan};
use lastwords_ring::{Persist, StreamSpec};

use super::regions::is_persistent;
use super::{Builder, ChannelConfig, Error};

/// Names of the regions, which are also the names of their files.
pub(crate) const SESSION: &str = "session";
pub(crate) const REGISTRY: &str = "registry";
pub(crate) const SPANS: &str = "spans";
/// Largest number of CPUs that get a stream of their own.
const MOST_CPUS: u32 = 4096;

/// Returns the name of a stream's region.
pub(crate) fn stream_name(index: u32) -> String {
    format!("stream-{index:04}")
}

/// Returns true if a file of this name in a session's folder belongs to the session.
pub(crate) fn is_file(name: &str) -> bool {
    let stream = || name.strip_prefix("stream-").is_some_and(|index| index.bytes().all(|byte| byte.is_ascii_digit()));
    [SESSION, REGISTRY, SPANS, PLACES_FILE, ARENA_FILE].contains(&name) || stream()
}

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
}
const _: () = assert!(offset_of!(Shape, info) == HEADER_SIZE as usize);

/// All regions of a session (session, registry, spans if there are any, streams), and the settings that they are made
/// from.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) uuid: [u8; 16],
    pub(crate) channels: Vec<ChannelConfig>,
    pub(crate) cpus: u32,
    pub(crate) reservation: u32,
    pub(crate) persist: Persist,
    pub(crate) plans: Vec<Plan>,
    pub(crate) specs: Vec<StreamSpec>,
}

impl Layout {
    /// Computes the layout of the requested session. Returns an error if it is not valid, or takes too much memory.
    pub(crate) fn new(builder: &Builder, uuid: [u8; 16]) -> Result<Self, Error> {
        let persist = builder.persist_policy(is_persistent(builder.memory.kind()))?;
        let reservation = builder.reservation_code(persist)?;
        let (channels, cpus, page_size) = (builder.channels(), cpus(), builder.memory.page_size());
        let unbound = (reservation == RESERVATION_RSEQ).then_some((ANY_CPU, RESERVATION_LOCKLESS));
        let streams: Vec<_> = (0..cpus).map(|cpu| (cpu, reservation)).chain(unbound).collect();
        let mut specs = Vec::new();
        for (channel, config) in (0..).zip(&channels) {
            config.check()?;
            for &(cpu, reservation) in &streams {
                let info = StreamInfo {
                    channel,
                    cpu,
                    reservation,
                    mode: config.mode,
                    sub_buffer_size: config.sub_buffer_size,
                    sub_buffers: config.sub_buffers,
                    page_size,
                    slots_off: [0; 2],
                    data_off: [0; 2],
                };
                let spec = StreamSpec::new(uuid, specs.len() as u32, info);
                specs.push(spec.map_err(|misfit| config.misfit(misfit))?);
            }
        }
        let plans = plans(builder, &specs);
        let paged_halves = if builder.snapshot { 2 } else { 1 };
        let pages: u64 = specs.iter().filter(|s| s.page_size != 0).map(|s| s.half_size() * paged_halves).sum();
        let needs = pages + plans.iter().map(|plan| plan.len - (plan.sparse.end - plan.sparse.start)).sum::<u64>();
        if needs > builder.size_limit {
            return Err(Error::TooLarge { needs, limit: builder.size_limit });
        }
        Ok(Self { uuid, channels, cpus, reservation, persist, plans, specs })
    }
}

/// Returns the memory requests for the regions, in order.
fn plans(builder: &Builder, specs: &[StreamSpec]) -> Vec<Plan> {
    let plan = |name: &str, len: u64| Plan::whole(name, len.next_multiple_of(REGION_ALIGN));
    let spans_len = (SPANS_OFF + builder.spans as usize * size_of::<Span>()) as u64;
    let mut plans = vec![plan(SESSION, size_of::<Shape>() as u64), plan(REGISTRY, builder.registry_len)];
    plans.extend((builder.spans > 0).then(|| plan(SPANS, spans_len)));
    for spec in specs {
        let mut plan = Plan::whole(stream_name(spec.index), spec.region_len());
        // The spare half needs no memory until snapshots are enabled.
        if !builder.snapshot && spec.page_size == 0 {
            plan.sparse = spec.data_range(1);
        }
        plans.push(plan);
    }
    plans
}

/// Returns one more than the highest CPU that exists, or that can be plugged in without a new board.
pub(crate) fn cpus() -> u32 {
    let listed = fs::read_to_string("/sys/devices/system/cpu/present").ok();
    let highest = listed.as_deref().and_then(|list| list.trim().rsplit([',', '-']).next()?.parse::<u32>().ok());
    // SAFETY: no memory is involved.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let count = highest.map_or_else(|| u32::try_from(configured).unwrap_or(1), |highest| highest + 1);
    count.clamp(1, MOST_CPUS)
}
