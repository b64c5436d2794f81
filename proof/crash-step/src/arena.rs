//! The memory that outlives the child: one memfd, mapped by it and by us, with the progress that it
//! reports and a session.
//!
//! The progress is no part of the recorder: plain stores behind each call. The session is laid out
//! as docs/ABI.md says.

use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use anyhow::{Context as _, Result, bail};
use lastwords_abi::region;
use lastwords_abi::registry::{self, RegistryControl};
use lastwords_abi::session::{self as abi, SessionInfo};
use lastwords_abi::stream::{ANY_CPU, StreamInfo};
use lastwords_ring::init::write_region;
use lastwords_ring::{StreamSpec, init_stream};
use lastwords_testkit::put::Order;
use lastwords_testkit::schema::{Record, Type};

use super::scenario::{MAX_EVENTS, MAX_THREADS, MAX_WRITERS, Scenario};

/// UUID of every session here.
pub(crate) const SESSION: [u8; 16] = *b"crash-step-sess.";
/// Entries of the table of threads.
pub(crate) const THREADS: usize = 8;
/// Event ids that are described.
const IDS: u16 = 41;

/// The report of the child.
#[repr(C)]
pub(crate) struct Progress {
    pub(crate) threads: [ThreadProgress; MAX_THREADS],
    pub(crate) writers: [WriterProgress; MAX_WRITERS],
    /// Snapshots begun, and done with.
    pub(crate) swaps: [AtomicU64; 2],
    /// 1 when recorders were perhaps still at work in the old halves when the last snapshot was
    /// done.
    pub(crate) restless: AtomicU64,
}

/// The report of one thread.
#[repr(C)]
pub(crate) struct ThreadProgress {
    /// Where its process has the arena.
    pub(crate) base: AtomicU64,
    /// 1 before it begins to record.
    pub(crate) ready: AtomicU32,
    /// 1 when it has nothing left to do.
    pub(crate) finished: AtomicU32,
}

/// The report of one writer; events are counted from 0.
#[repr(C)]
pub(crate) struct WriterProgress {
    /// Calls begun.
    pub(crate) begun: AtomicU64,
    /// One of `RESULT_` for each event, stored when its call has returned.
    pub(crate) results: [AtomicU8; MAX_EVENTS],
    /// Clock before the call.
    pub(crate) before: [AtomicU64; MAX_EVENTS],
    /// Clock after it.
    pub(crate) after: [AtomicU64; MAX_EVENTS],
}

/// The call returned `Ok`.
pub(crate) const RESULT_OK: u8 = 1;
/// The call returned an error.
pub(crate) const RESULT_LOST: u8 = 2;

/// Where everything is, as offsets in the arena.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) session: u64,
    pub(crate) control: u64,
    pub(crate) threads: u64,
    registry: u64,
    /// Each stream's specification and place.
    pub(crate) streams: Vec<(StreamSpec, u64)>,
    /// Pages of paged streams.
    pages: u64,
    pub(crate) len: u64,
}

const PAGE: u64 = 4096;
const REGISTRY_LEN: u64 = 2 * PAGE;

impl Layout {
    /// The arena of a scenario whose threads run on `cpu`.
    pub(crate) fn new(scenario: &Scenario, cpu: u32) -> Self {
        let session = (size_of::<Progress>() as u64).next_multiple_of(PAGE);
        let control = session + PAGE;
        let threads = session + offsets().threads;
        let registry = session + session_len();
        let mut at = registry + REGISTRY_LEN;
        let mut streams = Vec::new();
        let extra = u32::from(scenario.reservation == abi::RESERVATION_RSEQ);
        for index in 0..=cpu + extra {
            let unbound = index > cpu;
            let info = StreamInfo {
                channel: 0,
                cpu: if unbound { ANY_CPU } else { index },
                reservation: if unbound { abi::RESERVATION_LOCKLESS } else { scenario.reservation },
                mode: scenario.mode,
                sub_buffer_size: scenario.sub_buffer_size,
                sub_buffers: scenario.sub_buffers,
                page_size: if scenario.paged { PAGE as u32 } else { 0 },
                slots_off: [0; 2],
                data_off: [0; 2],
            };
            let spec =
                StreamSpec::new(SESSION, index, info).expect("a scenario has a sound geometry");
            streams.push((spec, at));
            at += spec.region_len();
        }
        let pages = at;
        let paged: u64 =
            streams.iter().filter(|(s, _)| s.page_size != 0).map(|(s, _)| 2 * s.half_size()).sum();
        Self { session, control, threads, registry, streams, pages, len: pages + paged }
    }

    /// Offsets of the pages of stream `index`'s `half`; every other one, so that no two follow each
    /// other.
    pub(crate) fn page_offsets(
        &self,
        index: usize,
        half: usize,
    ) -> impl Iterator<Item = u64> + use<> {
        let size = self.streams[index].0.half_size();
        let first = self.pages + (2 * index + half) as u64 * size;
        let n = size / PAGE;
        (0..n).map(move |i| first + (i * 7 + 3) % n * PAGE)
    }
}

struct Offsets {
    clock: u64,
    channels: u64,
    processes: u64,
    threads: u64,
}

fn offsets() -> Offsets {
    let clock = PAGE + size_of::<abi::Control>() as u64;
    let channels = clock + size_of::<abi::ClockArea>() as u64;
    let processes = channels + (size_of::<abi::Channel>() * abi::MAX_CHANNELS) as u64;
    let threads =
        (processes + (size_of::<abi::Process>() * abi::MAX_PROCESSES) as u64).next_multiple_of(64);
    Offsets { clock, channels, processes, threads }
}

fn session_len() -> u64 {
    (offsets().threads + (size_of::<abi::Thread>() * THREADS) as u64).next_multiple_of(PAGE)
}

/// The arena, mapped here.
#[derive(Debug)]
pub(crate) struct Arena {
    file: File,
    base: *mut u8,
    len: usize,
}

impl Arena {
    /// A new arena with an empty session in it.
    pub(crate) fn create(scenario: &Scenario, layout: &Layout) -> Result<Self> {
        // SAFETY: the name is a C string; flags 0: the child inherits the descriptor.
        let fd = unsafe { libc::memfd_create(c"lastwords-crash-step".as_ptr(), 0) };
        if fd < 0 {
            bail!("memfd_create: {}", std::io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(layout.len).context("the arena's length")?;
        let arena = Self::map(file, layout.len)?;
        arena.fill_session(scenario, layout);
        arena.fill_registry(layout);
        for (spec, at) in &layout.streams {
            // SAFETY: `Layout` gave the region its length at a multiple of the page size in fresh,
            // zeroed memory.
            unsafe { init_stream(arena.at(*at), spec) };
        }
        Ok(arena)
    }

    /// The arena that the parent made, in the child.
    pub(crate) fn inherited(fd: i32, len: u64) -> Result<Self> {
        // SAFETY: the parent left this descriptor open for us, and nothing else here owns it.
        Self::map(unsafe { File::from_raw_fd(fd) }, len)
    }

    fn map(file: File, len: u64) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len as usize,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            bail!("cannot map the arena of {len} bytes: {}", std::io::Error::last_os_error());
        }
        Ok(Self { file, base: base.cast(), len: len as usize })
    }

    /// The descriptor that a child inherits.
    pub(crate) fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Address of the byte at `offset`.
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        assert!((offset as usize) < self.len, "offset {offset} lies outside the arena");
        self.base.wrapping_add(offset as usize)
    }

    /// The report of the child.
    pub(crate) fn progress(&self) -> &Progress {
        // SAFETY: the arena begins with it; all its fields are atomics, for which any bytes are
        // valid.
        unsafe { &*self.base.cast::<Progress>() }
    }

    /// The bytes as they are now. The threads that write them must be stopped while the slice is
    /// used.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped as long as `self` lives. Whoever asks has stopped all
        // writers.
        unsafe { core::slice::from_raw_parts(self.base, self.len) }
    }

    /// Enters the pages of paged streams in their tables, by their addresses in this process.
    pub(crate) fn fill_pages(&self, layout: &Layout) {
        for (index, (spec, at)) in
            layout.streams.iter().enumerate().filter(|(_, (s, _))| s.page_size != 0)
        {
            for half in 0..2 {
                let table = self.at(at + spec.data_range(half).start).cast::<u64>();
                for (entry, page) in layout.page_offsets(index, half).enumerate() {
                    // SAFETY: the table has an entry for each page of the half.
                    unsafe { table.add(entry).write(self.at(page) as u64) };
                }
            }
        }
    }

    fn fill_session(&self, scenario: &Scenario, layout: &Layout) {
        let o = offsets();
        let mut info = SessionInfo {
            created_realtime: 1,
            created_monotonic: 1,
            creator_start: 0,
            creator_pidns: 0,
            creator_pid: std::process::id(),
            uid: 0,
            reservation: scenario.reservation,
            backend: abi::BACKEND_MEMFD,
            scope: abi::SCOPE_USER,
            cpus: layout.streams.iter().filter(|(s, _)| s.cpu != ANY_CPU).count() as u32,
            control_off: PAGE as u32,
            clock_off: o.clock as u32,
            channels_off: o.channels as u32,
            processes_off: o.processes as u32,
            threads_off: o.threads as u32,
            threads: THREADS as u32,
            boot_id: [0; 16],
            name: [0; 64],
            hostname: [0; 64],
            program: [0; 256],
        };
        info.name[..10].copy_from_slice(b"crash-step");
        // SAFETY: the region is `session_len` bytes of fresh zeroed memory at a page's start; every
        // shape lies in it where `offsets` put it, aligned, and nobody else uses it yet.
        unsafe {
            let base = self.at(layout.session);
            let control = &*base.add(PAGE as usize).cast::<abi::Control>();
            control.recording.store(1, Relaxed);
            control.snapshot.store(abi::SNAPSHOT_READY, Relaxed);
            let clock = &*base.add(o.clock as usize).cast::<abi::ClockArea>();
            clock.kind.store(abi::CLOCK_TSC, Relaxed);
            clock.frequency.store(1_000_000_000, Relaxed);
            clock.samples[0].clock.store(1, Relaxed);
            clock.samples[0].monotonic.store(1, Relaxed);
            clock.samples[0].realtime.store(1, Relaxed);
            let channel = &mut *base.add(o.channels as usize).cast::<abi::Channel>();
            channel.recording.store(1, Relaxed);
            channel.next_id.store(u32::from(IDS), Relaxed);
            (channel.mode, channel.flags) = (scenario.mode, scenario.flags);
            channel.streams = layout.streams.len() as u32;
            channel.sub_buffer_size = scenario.sub_buffer_size;
            channel.sub_buffers = scenario.sub_buffers;
            channel.name[..4].copy_from_slice(b"main");
            channel.state.store(1, Relaxed);
            write_region(base, region::KIND_SESSION, session_len(), SESSION, 0, info);
        }
    }

    fn fill_registry(&self, layout: &Layout) {
        // The machines that the rig knows have this order.
        let records: Vec<u8> =
            (0..IDS).flat_map(|id| description(id).encode(Order::Little)).collect();
        let end = registry::RECORDS_OFF + records.len();
        assert!(end as u64 <= REGISTRY_LEN);
        // SAFETY: the region is fresh memory at a page's start, and the records fit in it.
        unsafe {
            let base = self.at(layout.registry);
            core::ptr::copy_nonoverlapping(
                records.as_ptr(),
                base.add(registry::RECORDS_OFF),
                records.len(),
            );
            (*base.add(registry::CONTROL_OFF).cast::<RegistryControl>())
                .end
                .store(end as u64, Relaxed);
            write_region(base, region::KIND_REGISTRY, REGISTRY_LEN, SESSION, 0, [0; 0]);
        }
    }
}

use std::sync::atomic::Ordering::Relaxed;

// SAFETY: the memory is shared by design; whoever writes it uses atomics or has stopped the others.
unsafe impl Send for Arena {}
// SAFETY: as for Send.
unsafe impl Sync for Arena {}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// The description of event `id`: one field of raw bytes.
fn description(id: u16) -> Record {
    Record::Event {
        channel: 0,
        id,
        level: registry::level::INFO,
        name: ("crash".into(), format!("event{id}")),
        format: String::new(),
        source: ("crash_step".into(), 1),
        fields: vec![("bytes".into(), Type::Bytes)],
    }
}

const _: () = assert!(size_of::<StreamInfo>() == 64);
