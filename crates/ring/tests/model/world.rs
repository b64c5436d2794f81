//! A session with the types of loom: one channel of streams with both halves.

use std::sync::Arc;

use lastwords_abi::session::{MODE_OVERWRITE, RESERVATION_LOCKLESS, RESERVATION_RSEQ, Thread};
use lastwords_abi::stream::{ANY_CPU, Slot, StreamControl, StreamInfo};
use lastwords_abi::sync::AtomicU32;
use loom::cell::UnsafeCell;
use loom::sync::Mutex;

use super::MAX_TIDS;
use crate::channel::SessionParts;
use crate::record::Tail;
use crate::stream::Stream;
use crate::{Channel, ClockKind, StreamSpec};

/// Number of bytes that share a shadow cell. Events have an even number of bytes.
const GRAIN: usize = 2;

/// The settings of a modelled session.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// A `RESERVATION_` constant.
    pub reservation: u32,
    /// A `MODE_` constant.
    pub mode: u32,
    /// Sub-buffers of a half, a power of two.
    pub sub_buffers: u32,
    /// Number of streams that are bound to a CPU.
    pub cpus: u32,
    /// Number of entries of the thread table.
    pub threads: usize,
    /// Thread `tid` has entry `tid - 1` from the beginning. Otherwise each thread claims its own.
    pub claimed: bool,
    /// The spare halves have memory.
    pub spare: bool,
    /// Threads cannot know whether others live.
    pub foreign: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            reservation: RESERVATION_LOCKLESS,
            mode: MODE_OVERWRITE,
            sub_buffers: 2,
            cpus: 1,
            threads: 2,
            claimed: true,
            spare: false,
            foreign: false,
        }
    }
}

/// Bytes of a sub-buffer in all models.
pub const SUB_BUFFER: u64 = 256;

/// A session, freed when dropped.
pub struct World {
    /// The handle that records into the one channel.
    pub channel: Channel,
    /// The session's parts.
    pub parts: SessionParts,
    pub(super) dead: Vec<AtomicU32>,
    pub(super) claimed: bool,
    /// For each CPU the section that runs there, 0 = none.
    pub(super) cpus: Vec<Mutex<u64>>,
    data: Vec<Data>,
    flip: *mut AtomicU32,
    namespaces: *mut AtomicU32,
    threads: *mut [Thread],
    controls: Vec<*mut StreamControl>,
    slots: Vec<*mut [Slot]>,
}

// SAFETY: the pointers lead to the world's own allocations, which only `drop` frees; the ring's
// protocols share everything else.
unsafe impl Send for World {}
// SAFETY: as for Send.
unsafe impl Sync for World {}

/// A half's bytes and their shadows.
struct Data {
    bytes: *mut [u64],
    shadow: Vec<UnsafeCell<()>>,
}

impl Data {
    fn new(len: usize) -> Self {
        let bytes = Box::into_raw(vec![0u64; len / 8].into_boxed_slice());
        Self { bytes, shadow: (0..len / GRAIN).map(|_| UnsafeCell::new(())).collect() }
    }

    fn base(&self) -> *mut u8 {
        self.bytes.cast()
    }
}

fn leak<T>(value: T) -> (*mut T, &'static T) {
    let raw = Box::into_raw(Box::new(value));
    // SAFETY: the value was just allocated. It is freed when the world is dropped, after all its
    // users.
    (raw, unsafe { &*raw })
}

fn leak_slice<T: Default>(len: usize) -> (*mut [T], &'static [T]) {
    let raw = Box::into_raw((0..len).map(|_| T::default()).collect::<Vec<T>>().into_boxed_slice());
    // SAFETY: the reasons of `leak` apply.
    (raw, unsafe { &*raw })
}

impl World {
    /// Makes an empty session. A model must make it first.
    #[must_use]
    pub fn new(shape: Shape) -> Arc<Self> {
        super::restart_clock();
        super::migrate(0);
        let (flip_raw, flip) = leak(AtomicU32::new(0));
        let (threads_raw, threads) = leak_slice::<Thread>(shape.threads);
        let (namespaces_raw, namespaces) = leak(AtomicU32::new(u32::from(shape.foreign)));
        let parts = SessionParts { flip, clock_area: None, threads, namespaces };
        let mut bound: Vec<(u32, u32)> =
            (0..shape.cpus).map(|cpu| (cpu, shape.reservation)).collect();
        if shape.reservation == RESERVATION_RSEQ {
            bound.push((ANY_CPU, RESERVATION_LOCKLESS));
        }
        let (mut data, mut controls, mut slots, mut streams) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (index, (cpu, reservation)) in bound.into_iter().enumerate() {
            let half =
                |at: usize| if at == 0 || shape.spare { shape.sub_buffers as usize } else { 0 };
            let halves = [0, 1].map(|at| Data::new(SUB_BUFFER as usize * half(at)));
            let (control_raw, control) = leak(StreamControl::default());
            let tables = [0, 1].map(|at| leak_slice::<Slot>(half(at)));
            streams.push(stream(
                &shape,
                index as u32,
                cpu,
                reservation,
                control,
                &halves,
                tables.map(|t| t.1),
            ));
            data.extend(halves);
            controls.push(control_raw);
            slots.extend(tables.map(|t| t.0));
        }
        let world = Arc::new(Self {
            channel: Channel::new(parts, streams, ClockKind::Monotonic, 0),
            parts,
            claimed: shape.claimed,
            dead: (0..MAX_TIDS).map(|_| AtomicU32::new(0)).collect(),
            cpus: (0..shape.cpus.max(1)).map(|_| Mutex::new(0)).collect(),
            data,
            flip: flip_raw,
            namespaces: namespaces_raw,
            threads: threads_raw,
            controls,
            slots,
        });
        super::set_world(Arc::as_ptr(&world));
        if shape.claimed {
            crate::threads::assume(threads, 0);
        }
        world
    }

    /// Reports that this thread accesses the bytes. Another thread may access them only if there is
    /// an order between the two.
    pub(super) fn touch(&self, at: *const u8, len: usize, write: bool) {
        let Some((data, from)) = self.data.iter().find_map(|d| {
            let from = (at as usize).checked_sub(d.base() as usize)?;
            (from < d.shadow.len() * GRAIN).then_some((d, from))
        }) else {
            panic!("{len} bytes outside of all rings");
        };
        if len == 0 {
            return;
        }
        assert!(from + len <= data.shadow.len() * GRAIN, "{len} bytes at {from} leave the ring");
        for cell in &data.shadow[from / GRAIN..=(from + len - 1) / GRAIN] {
            if write { cell.with_mut(|_| ()) } else { cell.with(|_| ()) }
        }
    }

    /// Records the event `sequence` of `thread` with a payload of `len` bytes, an even number of at
    /// least 6.
    pub fn record(&self, thread: u16, sequence: u16, len: usize) -> Result<(), crate::Lost> {
        self.channel.record_parts(1, &[&payload(thread, sequence, len)])
    }

    /// Makes another channel of the same session with the streams of these indices. It stays for
    /// ever.
    pub fn leak_channel(&self, streams: &[usize]) -> &'static Channel {
        let same = |index: &usize| {
            let of = &self.channel.streams()[*index];
            Stream { control: of.control, data: of.data, slots: of.slots, spec: of.spec, ..*of }
        };
        let streams = streams.iter().map(same).collect();
        Box::leak(Box::new(Channel::new(self.parts, streams, ClockKind::Monotonic, 0)))
    }

    /// Records an event on the fast path, or in the general way if the fast path does not: a
    /// payload of 16 bytes in words, or of 40 with a tail.
    pub fn record_fast(
        &self,
        thread: u16,
        sequence: u16,
        with_tail: bool,
    ) -> Result<(), crate::Lost> {
        // SAFETY: the world, and its channel with it, is dropped after all uses. Threads that cache
        // its lanes belong to this execution, and record while they have the world.
        let channel: &'static Channel = unsafe { &*core::ptr::from_ref(&self.channel) };
        Self::record_fast_in(channel, thread, sequence, with_tail)
    }

    /// Records in a channel as [`World::record_fast`] does.
    pub fn record_fast_in(
        channel: &'static Channel,
        thread: u16,
        sequence: u16,
        with_tail: bool,
    ) -> Result<(), crate::Lost> {
        let payload = payload(thread, sequence, if with_tail { 40 } else { 16 });
        let words =
            [0, 8].map(|at| u64::from_ne_bytes(payload[at..at + 8].try_into().expect("8 bytes")));
        if with_tail {
            channel.record_words(1, words, 16, Some(Tail::Bytes(&payload[16..])))
        } else {
            channel.record_words(1, words, 16, None)
        }
    }
}

/// Makes the payload of an event: its length, thread and sequence, then filler.
pub(super) fn payload(thread: u16, sequence: u16, len: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(len);
    for word in [len as u16, thread, sequence] {
        payload.extend(word.to_ne_bytes());
    }
    payload.resize(len, thread as u8 ^ sequence as u8);
    payload
}

fn stream(
    shape: &Shape,
    index: u32,
    cpu: u32,
    reservation: u32,
    control: &'static StreamControl,
    halves: &[Data; 2],
    slots: [&'static [Slot]; 2],
) -> Stream {
    let info = StreamInfo {
        channel: 0,
        cpu,
        reservation,
        mode: shape.mode,
        sub_buffer_size: SUB_BUFFER,
        sub_buffers: shape.sub_buffers,
        page_size: 0,
        slots_off: [0; 2],
        data_off: [0; 2],
    };
    Stream {
        control,
        data: [halves[0].base(), halves[1].base()],
        slots,
        spec: StreamSpec { session: [7; 16], index, info },
        size_shift: SUB_BUFFER.trailing_zeros(),
        slots_shift: shape.sub_buffers.trailing_zeros(),
    }
}

impl Drop for World {
    fn drop(&mut self) {
        super::set_world(core::ptr::null());
        // SAFETY: each pointer came from `Box::into_raw` in `new` and is freed once. The last
        // reference to the world is gone, and with it every thread that used them.
        unsafe {
            drop(Box::from_raw(self.flip));
            drop(Box::from_raw(self.namespaces));
            drop(Box::from_raw(self.threads));
            self.controls.drain(..).for_each(|c| drop(Box::from_raw(c)));
            self.slots.drain(..).for_each(|s| drop(Box::from_raw(s)));
            self.data.iter().for_each(|d| drop(Box::from_raw(d.bytes)));
        }
    }
}
