//! A session on the heap, and a plain reader of its streams written from docs/ABI.md.
#![allow(dead_code, reason = "each test file uses its part")]

use std::alloc::{Layout, alloc_zeroed};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use lastwords_abi::session as abi;
use lastwords_abi::stream::{ANY_CPU, SKIPPED, StreamInfo};
use lastwords_ring::SessionParts;
use lastwords_ring::swap::{Rest, Swap};
use lastwords_ring::{Channel, ClockKind, Stream, StreamSpec, init_stream};

pub(crate) const THREADS: usize = 16;
pub(crate) const RESERVATIONS: [u32; 3] =
    [abi::RESERVATION_RSEQ, abi::RESERVATION_LOCKLESS, abi::RESERVATION_LOCKED];

/// Returns memory that is zeroed, page-aligned, and never freed.
pub(crate) fn pages(len: usize) -> *mut u8 {
    // SAFETY: the layout has a size above 0.
    unsafe { alloc_zeroed(Layout::from_size_align(len.max(1), 4096).expect("a layout")) }
}

pub(crate) fn session_region() -> *mut u8 {
    let region = pages(128 * 1024);
    let control_off = 4096u32;
    let clock_off = control_off + size_of::<abi::Control>() as u32;
    let threads_off = (clock_off + size_of::<abi::ClockArea>() as u32).next_multiple_of(64);
    // SAFETY: the region has 128 KiB, more than all the parts; all-zero is a valid `SessionInfo`.
    unsafe {
        let info = &mut *region.add(128).cast::<abi::SessionInfo>();
        info.control_off = control_off;
        info.clock_off = clock_off;
        info.threads_off = threads_off;
        info.threads = THREADS as u32;
    }
    region
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub reservation: u32,
    pub mode: u32,
    pub sub_buffer_size: u64,
    pub sub_buffers: u32,
    pub paged: bool,
    pub flags: u32,
    pub clock: ClockKind,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            reservation: abi::RESERVATION_RSEQ,
            mode: abi::MODE_OVERWRITE,
            sub_buffer_size: 4096,
            sub_buffers: 4,
            paged: false,
            flags: 0,
            clock: ClockKind::Tsc,
        }
    }
}

fn stream(shape: &Shape, index: u32, cpu: u32, reservation: u32) -> Stream {
    let info = StreamInfo {
        channel: 0,
        cpu,
        reservation,
        mode: shape.mode,
        sub_buffer_size: shape.sub_buffer_size,
        sub_buffers: shape.sub_buffers,
        page_size: if shape.paged { 4096 } else { 0 },
        slots_off: [0; 2],
        data_off: [0; 2],
    };
    let spec = StreamSpec::new(*b"0123456789abcdef", index, info).expect("a ring");
    let region = pages(spec.region_len() as usize);
    // SAFETY: the pages are new, zeroed, never freed, and have the length that the specification
    // requires. The page tables are filled with pages that live as long.
    unsafe {
        init_stream(region, &spec);
        if shape.paged {
            for half in 0..2 {
                let table = region.add(spec.data_range(half).start as usize).cast::<u64>();
                for page in 0..(spec.half_size() / 4096) as usize {
                    table.add(page).write(pages(4096) as u64);
                }
            }
        } else {
            // The data is filled, so that the tests notice bytes that a recorder does not store.
            let data = spec.data_range(0).start..spec.data_range(1).end;
            region.add(data.start as usize).write_bytes(0xaa, (data.end - data.start) as usize);
        }
        Stream::attach(region, spec.region_len()).expect("a stream")
    }
}

pub(crate) fn parts() -> SessionParts {
    parts_of(session_region())
}

/// The parts of what [`session_region`] made.
pub(crate) fn parts_of(region: *mut u8) -> SessionParts {
    // SAFETY: an initialised region, which is never freed; nobody changes its info.
    unsafe {
        SessionParts::of_region(
            region,
            &*region.add(lastwords_abi::region::HEADER_SIZE as usize).cast::<abi::SessionInfo>(),
        )
    }
}

pub(crate) fn channel_in(parts: SessionParts, shape: &Shape) -> &'static Channel {
    // SAFETY: the only argument is a constant.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as u32;
    channel_on(cpus, parts, shape)
}

/// Makes a channel with streams of its own for this many CPUs. Threads on other CPUs share the
/// last.
pub(crate) fn channel_on(cpus: u32, parts: SessionParts, shape: &Shape) -> &'static Channel {
    let mut streams: Vec<Stream> =
        (0..cpus).map(|cpu| stream(shape, cpu, cpu, shape.reservation)).collect();
    if shape.reservation == abi::RESERVATION_RSEQ {
        streams.push(stream(shape, cpus, ANY_CPU, abi::RESERVATION_LOCKLESS));
    }
    Box::leak(Box::new(Channel::new(parts, streams, shape.clock, shape.flags)))
}

pub(crate) fn channel(shape: &Shape) -> &'static Channel {
    channel_in(parts(), shape)
}

/// Binds this thread to the CPU on which it runs, and returns that.
pub(crate) fn bind_to_this_cpu() -> usize {
    let cpu = lastwords_ring::current_cpu() as usize;
    bind_to(cpu);
    cpu
}

/// Binds this thread to a CPU.
pub(crate) fn bind_to(cpu: usize) {
    // SAFETY: the calls only use a local set.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
    }
}

/// Returns bytes as words, with zeros behind them.
pub(crate) fn words<const W: usize>(bytes: &[u8]) -> [u64; W] {
    let mut padded = bytes.to_vec();
    padded.resize(8 * W, 0);
    std::array::from_fn(|n| u64_at(&padded, 8 * n))
}

/// Takes a snapshot of all streams.
///
/// # Safety
/// Both halves of each stream have memory, and only this thread swaps.
pub(crate) unsafe fn swap(parts: SessionParts, channel: &Channel, is_alone: bool) -> Rest {
    let streams: Vec<&Stream> = channel.streams().iter().collect();
    let swap = Swap { parts, streams: &streams, are_all: true, is_alone, persists: false };
    // SAFETY: the caller guarantees the conditions.
    unsafe { swap.run() }.expect("locks are free")
}

/// Returns the events that the streams count as lost.
pub(crate) fn lost(channel: &Channel) -> u64 {
    channel.streams().iter().map(Stream::lost).sum()
}

/// Copies `len` bytes of a half, from offset `first` on. Both are multiples of the page size if the
/// half is paged.
///
/// # Safety
/// The half has memory, and nobody writes these bytes meanwhile.
pub(crate) unsafe fn copy(stream: &Stream, half: usize, first: u64, len: u64) -> Vec<u8> {
    let base = stream.data(half);
    // SAFETY: `Stream::attach` has checked the data or page table of the half; the caller
    // guarantees the rest.
    let bytes = |at: *const u8, len: u64| unsafe { std::slice::from_raw_parts(at, len as usize) };
    match u64::from(stream.spec().page_size) {
        0 => bytes(base.wrapping_add(first as usize), len).to_vec(),
        page_size => {
            let pages = (first / page_size) as usize..((first + len) / page_size) as usize;
            // SAFETY: the table has an entry for each page.
            let page = |index| unsafe { base.cast::<u64>().add(index).read() } as *const u8;
            // The half is copied page by page, because recorders continue meanwhile, and could come
            // round to the copied place.
            pages.map(|index| bytes(page(index), page_size)).collect::<Vec<_>>().concat()
        }
    }
}

/// Copies the place of sub-buffer `number`.
///
/// # Safety
/// The half has memory, and nobody writes in that sub-buffer meanwhile.
pub(crate) unsafe fn copy_sub_buffer(stream: &Stream, half: usize, number: u64) -> Vec<u8> {
    let size = stream.spec().sub_buffer_size;
    // SAFETY: the caller guarantees the conditions.
    unsafe { copy(stream, half, number * size % stream.half_size(), size) }
}

/// Returns true if sub-buffer `number` is closed: its events and its header are complete, and
/// nobody writes in it until the ring comes round to its place.
fn is_closed(stream: &Stream, half: usize, number: u64) -> bool {
    let size = stream.spec().sub_buffer_size;
    if stream.spec().reservation != abi::RESERVATION_LOCKLESS {
        return stream.position(half) >= (number + 1) * size;
    }
    let slots = stream.slots(half);
    let places = slots.len() as u64;
    slots[(number % places) as usize].committed.load(Acquire) == (number / places + 1) * size
}

/// One event: clock, id, payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub clock: u64,
    pub id: u16,
    pub payload: Vec<u8>,
}

pub(crate) fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(b[at..at + 8].try_into().expect("8 bytes"))
}

/// Reads the events of one quiet stream's half. Their payloads begin with a u32 that is their
/// length.
pub(crate) fn read(stream: &Stream, half: usize) -> Vec<Event> {
    // SAFETY: callers only read quiet streams.
    let bytes = unsafe { copy(stream, half, 0, stream.half_size()) };
    let size = stream.spec().sub_buffer_size;
    let n = u64::from(stream.spec().sub_buffers);
    let position = stream.position(half);
    let first = stream.control().half[half].first.load(Relaxed);
    let last = position.div_ceil(size);
    let mut events = Vec::new();
    for number in last.saturating_sub(n).max(first / size)..last {
        let at = (number % n * size) as usize;
        let packet = &bytes[at..at + size as usize];
        let content = if (number + 1) * size <= position {
            (u64_at(packet, 48) / 8) as usize
        } else {
            (position - number * size) as usize
        };
        if content < 84 {
            continue;
        }
        let passed_over = stream.control().lost[SKIPPED].load(Relaxed) > 0;
        if passed_over && u64_at(packet, 64) < number {
            continue;
        }
        assert_eq!(u64_at(packet, 64), number, "number of the sub-buffer");
        if (number + 1) * size <= position {
            let sum = lastwords_abi::region::checksum(&packet[..content]);
            assert_eq!(sum, u64_at(packet, size as usize - 8), "checksum of sub-buffer {number}");
        }
        events.extend(split(packet, content));
    }
    events
}

fn split(packet: &[u8], content: usize) -> Vec<Event> {
    let mut clock = u64_at(packet, 32);
    let mut at = 84;
    let mut events = Vec::new();
    while at < content {
        let word = u32::from_ne_bytes(packet[at..at + 4].try_into().expect("4 bytes"));
        let (tag, low) = (word & 31, u64::from(word >> 5));
        let mut full = (clock & !((1 << 27) - 1)) | low;
        if full < clock {
            full += 1 << 27;
        }
        clock = full;
        at += 4;
        let id16 = |at: usize| u16::from_ne_bytes(packet[at..at + 2].try_into().expect("2 bytes"));
        let id = match tag {
            29 => {
                clock = u64_at(packet, at + 6);
                at += 14;
                id16(at - 14)
            }
            30 => {
                at += 6;
                id16(at - 6)
            }
            31 => {
                at += 2;
                id16(at - 2)
            }
            id => id as u16,
        };
        let len = u32::from_ne_bytes(packet[at..at + 4].try_into().expect("4 bytes")) as usize;
        events.push(Event { clock, id, payload: packet[at..at + len].to_vec() });
        at += len;
    }
    assert_eq!(at, content, "the last event ends where the content ends");
    events
}

/// Makes a payload of `len` bytes (at least 8): its length, `sequence`, filler.
pub(crate) fn payload(sequence: u32, len: usize) -> Vec<u8> {
    let mut p = (len as u32).to_ne_bytes().to_vec();
    p.extend(sequence.to_ne_bytes());
    p.extend((8..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(sequence as u8)));
    p
}

pub(crate) fn sequence(event: &Event) -> u32 {
    u32::from_ne_bytes(event.payload[4..8].try_into().expect("4 bytes"))
}

/// Returns the sequences of the events of an id.
pub(crate) fn of_id(events: &[Event], id: u16) -> Vec<u32> {
    events.iter().filter(|event| event.id == id).map(sequence).collect()
}

/// Reads the events of all streams in order of clock. Checks that the clock of each stream rises
/// and that the payloads are right.
pub(crate) fn read_all(channel: &Channel, half: usize) -> Vec<Event> {
    let mut all = Vec::new();
    for stream in channel.streams() {
        let events = read(stream, half);
        assert!(events.is_sorted_by_key(|e| e.clock), "clocks rise in a stream");
        all.extend(events);
    }
    for e in &all {
        assert_eq!(e.payload, payload(sequence(e), e.payload.len()), "payload is whole");
    }
    all.sort_by_key(|e| e.clock);
    all
}

/// Consumes the oldest sub-buffer if it is closed. Returns how many events were in it.
pub(crate) fn consume(stream: &Stream, half: usize) -> usize {
    let size = stream.spec().sub_buffer_size;
    let consumed = stream.control().half[half].consumed.load(Relaxed);
    if !is_closed(stream, half, consumed / size) {
        return 0;
    }
    // SAFETY: a closed sub-buffer does not change until it is consumed.
    let packet = unsafe { copy_sub_buffer(stream, half, consumed / size) };
    let events = split(&packet, (u64_at(&packet, 48) / 8) as usize);
    stream.consume(half, consumed + size);
    events.len()
}

/// Reads the events of the last sub-buffer of a quiet stream, which is open.
pub(crate) fn read_open(stream: &Stream, half: usize) -> Vec<Event> {
    let size = stream.spec().sub_buffer_size;
    let position = stream.position(half);
    if position.is_multiple_of(size) {
        return Vec::new();
    }
    // SAFETY: the stream is quiet.
    split(&unsafe { copy_sub_buffer(stream, half, position / size) }, (position % size) as usize)
}
