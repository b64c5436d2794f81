//! Geometry of a session: its regions and what lies where in the session region.

use std::fs;

use lastwords_abi::region::{HEADER_SIZE, REGION_ALIGN};
use lastwords_abi::session::{
    Channel, ClockArea, Control, MAX_CHANNELS, MAX_PROCESSES, MAX_THREADS, Process, RESERVATION_LOCKLESS,
    RESERVATION_RSEQ, SessionInfo, Thread,
};
use lastwords_abi::spans::{SPANS_OFF, Span};
use lastwords_abi::stream::ANY_CPU;
use lastwords_ring::StreamSpec;
use lastwords_ring::backend::{ARENA_FILE, PLACES_FILE, Plan};

use super::config::ChannelConfig;

/// Names of the regions, which are those of their files.
pub(crate) const SESSION: &str = "session";
pub(crate) const REGISTRY: &str = "registry";
pub(crate) const SPANS: &str = "spans";
/// Most CPUs that get a stream of their own.
const MOST_CPUS: u32 = 4096;

/// Name of a stream's region.
pub(crate) fn stream_name(index: u32) -> String {
    format!("stream-{index:04}")
}

/// Whether a file of that name in a session's folder is the session's.
pub(crate) fn is_file(name: &str) -> bool {
    let stream = || name.strip_prefix("stream-").is_some_and(|index| index.bytes().all(|byte| byte.is_ascii_digit()));
    [SESSION, REGISTRY, SPANS, PLACES_FILE, ARENA_FILE].contains(&name) || stream()
}

/// What lies where in the session region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offsets {
    pub(crate) control: u32,
    pub(crate) clock: u32,
    pub(crate) channels: u32,
    pub(crate) processes: u32,
    pub(crate) threads: u32,
    /// Bytes of the region.
    pub(crate) len: u64,
}

impl Offsets {
    pub(crate) fn new() -> Self {
        let mut at = HEADER_SIZE as usize + size_of::<SessionInfo>();
        let mut place = |size: usize| {
            let here = at.next_multiple_of(64);
            at = here + size;
            here as u32
        };
        let control = place(size_of::<Control>());
        let clock = place(size_of::<ClockArea>());
        let channels = place(MAX_CHANNELS * size_of::<Channel>());
        let processes = place(MAX_PROCESSES * size_of::<Process>());
        let threads = place(MAX_THREADS * size_of::<Thread>());
        let len = (at as u64).next_multiple_of(REGION_ALIGN);
        Self { control, clock, channels, processes, threads, len }
    }
}

/// What the layout is made from.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) uuid: [u8; 16],
    pub(crate) channels: &'a [ChannelConfig],
    pub(crate) cpus: u32,
    pub(crate) reservation: u32,
    pub(crate) page_size: u32,
    pub(crate) snapshot: bool,
    pub(crate) registry_len: u64,
    pub(crate) spans: u32,
}

/// All regions of a session: session, registry, spans (where there are any), streams.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) plans: Vec<Plan>,
    pub(crate) specs: Vec<StreamSpec>,
    /// For each channel, its first stream and how many it has.
    pub(crate) of_channel: Vec<(u32, u32)>,
    /// Bytes of memory that the session takes.
    pub(crate) needs: u64,
}

impl Layout {
    pub(crate) fn new(wish: &Wish<'_>) -> Self {
        let registry = wish.registry_len.next_multiple_of(REGION_ALIGN);
        let mut plans = vec![Plan::whole(SESSION, Offsets::new().len), Plan::whole(REGISTRY, registry)];
        if wish.spans > 0 {
            let len = (SPANS_OFF + wish.spans as usize * size_of::<Span>()) as u64;
            plans.push(Plan::whole(SPANS, len.next_multiple_of(REGION_ALIGN)));
        }
        let (mut specs, mut of_channel) = (Vec::new(), Vec::new());
        for (id, channel) in wish.channels.iter().enumerate() {
            let first = specs.len() as u32;
            let unbound = (wish.reservation == RESERVATION_RSEQ).then_some((ANY_CPU, RESERVATION_LOCKLESS));
            for (cpu, reservation) in (0..wish.cpus).map(|cpu| (cpu, wish.reservation)).chain(unbound) {
                specs.push(spec(wish, channel, id as u32, specs.len() as u32, cpu, reservation));
            }
            of_channel.push((first, specs.len() as u32 - first));
        }
        let paged_halves = if wish.snapshot { 2 } else { 1 };
        let pages: u64 = specs.iter().filter(|s| s.page_size != 0).map(|s| s.half_size() * paged_halves).sum();
        plans.extend(specs.iter().map(|spec| stream_plan(spec, wish.snapshot)));
        let needs = pages + plans.iter().map(|plan| plan.len - (plan.sparse.end - plan.sparse.start)).sum::<u64>();
        Self { plans, specs, of_channel, needs }
    }
}

fn spec(wish: &Wish<'_>, channel: &ChannelConfig, id: u32, index: u32, cpu: u32, reservation: u32) -> StreamSpec {
    StreamSpec {
        session: wish.uuid,
        index,
        channel: id,
        cpu,
        reservation,
        mode: channel.mode,
        sub_buffer_size: channel.sub_buffer_size,
        sub_buffers: channel.sub_buffers,
        page_size: wish.page_size,
    }
}

/// The spare half needs no memory until snapshots are enabled.
fn stream_plan(spec: &StreamSpec, snapshot: bool) -> Plan {
    let mut plan = Plan::whole(stream_name(spec.index), spec.region_len());
    if !snapshot && spec.page_size == 0 {
        plan.sparse = spec.data_range(1);
    }
    plan
}

/// CPUs that are, or can be plugged in without a new board: one more than the highest of them.
pub(crate) fn cpus() -> u32 {
    let listed = fs::read_to_string("/sys/devices/system/cpu/present").ok();
    let highest = listed.as_deref().and_then(|list| list.trim().rsplit([',', '-']).next()?.parse::<u32>().ok());
    // SAFETY: no memory is involved.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let count = highest.map_or_else(|| u32::try_from(configured).unwrap_or(1), |highest| highest + 1);
    count.clamp(1, MOST_CPUS)
}
