//! The recorder's handle on one channel. It selects the stream and the algorithm.

use lastwords_abi::session::{
    CHANNEL_FULL_HEADERS, CHANNEL_PAYLOAD_SIZE, ClockArea, Control, RESERVATION_LOCKED,
    RESERVATION_LOCKLESS, RESERVATION_RSEQ, SessionInfo, Thread,
};
use lastwords_abi::stream::ANY_CPU;
use lastwords_abi::sync::AtomicU32;
use lastwords_abi::sync::Ordering::{Acquire, Relaxed};

use crate::clock::ClockKind;
use crate::flush::Persist;
use crate::hooks::fault;
use crate::init::bytes_of;
use crate::memory::{Contiguous, Memory, Paged};
use crate::record::{Lost, Padded, Record, ShortText, Tail};
use crate::reserve::rseq_fast::RseqFast;
use crate::reserve::{locked, lockless, rseq};
use crate::stream::Stream;
use crate::{cpu, os};

/// Pointers to the parts of a session, for recorders of any of its channels.
#[derive(Debug, Clone, Copy)]
pub struct SessionParts {
    pub(crate) flip: &'static AtomicU32,
    pub(crate) clock_area: Option<&'static ClockArea>,
    pub(crate) threads: &'static [Thread],
    pub(crate) namespaces: &'static AtomicU32,
}

impl SessionParts {
    /// Finds the parts of a mapped session region. `info` is a checked copy of the region's info:
    /// another process may change the info in the region at any time, so its offsets are not read
    /// again.
    ///
    /// # Safety
    /// `region` is a session region of this version, initialised, mapped read-write until the
    /// process ends. The offsets in `info` lie in it, with what stands there, and are aligned for
    /// it.
    #[must_use]
    pub unsafe fn of_region(region: *mut u8, info: &SessionInfo) -> Self {
        // SAFETY: the caller has checked the offsets.
        unsafe {
            let control = &*region.add(info.control_off as usize).cast::<Control>();
            Self {
                flip: &control.flip,
                namespaces: &control.namespaces,
                clock_area: Some(&*region.add(info.clock_off as usize).cast::<ClockArea>()),
                threads: core::slice::from_raw_parts(
                    region.add(info.threads_off as usize).cast::<Thread>(),
                    info.threads as usize,
                ),
            }
        }
    }

    /// Returns the half of `stream` that recorders use now.
    #[inline]
    pub(crate) fn live_half(&self, stream: &Stream) -> usize {
        // Acquire: a recorder that sees the flip also sees the reset of the half that happened
        // before it.
        let order = if fault!(RelaxedFlip) { Relaxed } else { Acquire };
        ((self.flip.load(order) ^ stream.control.flip.load(order)) & 1) as usize
    }

    /// Returns true if owners of locks may be of another pid namespace.
    pub(crate) fn is_foreign(&self) -> bool {
        self.namespaces.load(Acquire) != 0
    }
}

/// Records into one channel. The fields of the fast path come first.
#[derive(Debug)]
pub struct Channel {
    streams: alloc::boxed::Box<[Stream]>,
    fast: RseqFast,
    /// Streams that are bound to a CPU.
    cpus: u32,
    paged: bool,
    pub(crate) payload_size: bool,
    /// Every event has its id and the whole clock, in a header of 18 bytes, so that it can be read
    /// whatever happened to earlier events. Other channels have most often the compact header of 4
    /// bytes, which the fast path writes itself.
    pub(crate) full_headers: bool,
    pub(crate) parts: SessionParts,
    reservation: u32,
    pub(crate) clock: ClockKind,
    /// When events are written back into persistent memory. [`Persist::Event`] needs a reservation
    /// other than `rseq`: a section cannot wait for a flush before its last store.
    pub persist: Persist,
    /// Called when a sub-buffer is closed, to keep the clock's calibration up to date.
    pub refresh: Option<fn(&ClockArea)>,
}

impl Channel {
    /// Makes a recorder over the channel's streams, in order of index: one for each CPU, then, if
    /// the session reserves by rseq, the lockless stream. `flags` are the channel's.
    ///
    /// # Panics
    /// `streams` is empty or the streams have different geometries.
    #[must_use]
    pub fn new(
        parts: SessionParts,
        streams: alloc::vec::Vec<Stream>,
        clock: ClockKind,
        flags: u32,
    ) -> Self {
        cpu::init();
        os::prepare_process();
        let first = streams[0].spec;
        let same = |s: &Stream| {
            s.half_size() == streams[0].half_size()
                && s.spec.sub_buffer_size == first.sub_buffer_size
        };
        assert!(streams.iter().all(same), "the streams of a channel have one geometry");
        let cpus = streams.iter().filter(|s| s.spec.cpu != ANY_CPU).count() as u32;
        let paged = first.page_size != 0;
        // A modelled section reads the model's clock.
        let counter = cfg!(loom) || matches!(clock, ClockKind::Tsc | ClockKind::Cntvct);
        let (payload_size, full_headers) =
            (flags & CHANNEL_PAYLOAD_SIZE != 0, flags & CHANNEL_FULL_HEADERS != 0);
        Self {
            fast: RseqFast::new(parts.flip, &streams, counter && !payload_size && !full_headers),
            cpus,
            paged,
            payload_size,
            full_headers,
            parts,
            reservation: first.reservation,
            clock,
            persist: Persist::None,
            refresh: None,
            streams: streams.into_boxed_slice(),
        }
    }

    /// Returns the streams, in order of index.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Records an event whose payload is the first `len` bytes of `words`, in memory order,
    /// followed by `tail`. If the fast path cannot record the event, [`Channel::record_parts`]
    /// does.
    ///
    /// # Errors
    /// The event was lost, and its stream counts why.
    #[inline(always)]
    pub fn record_words<const W: usize>(
        &'static self,
        id: u16,
        words: [u64; W],
        len: usize,
        tail: Option<Tail<'_>>,
    ) -> Result<(), Lost> {
        if self.fast.record(id, &words, len, len, tail) {
            return Ok(());
        }
        self.record_in_parts(id, words, len, tail)
    }

    /// Records like [`Channel::record_words`] an event without a tail whose payload has at most
    /// `most` bytes, and at most 7 fewer. The length need not be known to the compiler: all words
    /// of `most` bytes are stored.
    ///
    /// # Errors
    /// The event was lost, and its stream counts why.
    #[inline(always)]
    pub fn record_words_up_to<const W: usize>(
        &'static self,
        id: u16,
        words: [u64; W],
        len: usize,
        most: usize,
    ) -> Result<(), Lost> {
        if self.fast.record(id, &words, len, most, None) {
            return Ok(());
        }
        self.record_in_parts(id, words, len, None)
    }

    /// Records an event on the fast path, if that is possible now. The payload is the first `len`
    /// bytes of two words, followed by a short text of C. Returns false if nothing was recorded.
    ///
    /// # Safety
    /// The text fulfils the conditions of [`ShortText`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn record_short_text(
        &'static self,
        id: u16,
        words: (u64, u64),
        len: usize,
        text: ShortText,
    ) -> bool {
        // SAFETY: the caller guarantees the conditions.
        unsafe { self.fast.record_short_text(id, words, len, text) }
    }

    /// Records an event on the fast path, if that is possible now. The payload is `first`, if it is
    /// given, followed by `bytes`, of which there are 8 at least. Returns false if nothing was
    /// recorded.
    #[inline(always)]
    #[must_use]
    pub fn record_bytes(&'static self, id: u16, first: Option<u32>, bytes: &[u8]) -> bool {
        self.fast.record_bytes(id, first, bytes)
    }

    /// Returns the time of the newest event in the place of this channel where the thread recorded
    /// last; none if it recorded elsewhere since. Right after [`Channel::record_bytes`] has
    /// recorded an event, it is the time of that event or of one that another thread recorded
    /// since. So a caller that needs the time need not read the clock, which takes as long as a
    /// whole event.
    #[inline(always)]
    #[must_use]
    pub fn newest_time(&'static self) -> Option<u64> {
        self.fast.newest_time()
    }

    /// Records an event of any id whose payload is complete in memory. If the fast path cannot
    /// record the event, [`Channel::record_parts`] does.
    ///
    /// # Errors
    /// The event was lost, and its stream counts why.
    #[inline(always)]
    pub fn record_padded(&'static self, id: u16, payload: Padded<'_>) -> Result<(), Lost> {
        if self.fast.record_padded(id, payload) {
            return Ok(());
        }
        self.record_padded_elsewhere(id, payload)
    }

    /// Records an event that the cached lane did not take.
    #[cold]
    #[inline(never)]
    fn record_padded_elsewhere(&'static self, id: u16, payload: Padded<'_>) -> Result<(), Lost> {
        if self.fast.record_padded_in_new_lane(id, payload) {
            return Ok(());
        }
        self.record_parts(id, &[payload.payload()])
    }

    /// Records an event that the fast path did not record. The words are passed by value, so that
    /// the fast path keeps them in registers.
    #[inline(never)]
    fn record_in_parts<const W: usize>(
        &self,
        id: u16,
        words: [u64; W],
        len: usize,
        tail: Option<Tail<'_>>,
    ) -> Result<(), Lost> {
        let first = &bytes_of(&words)[..len.min(8 * W)];
        match tail {
            None => self.record_parts(id, &[first]),
            Some(Tail::Text(text)) => self.record_parts(id, &[first, text, b"\0"]),
            Some(Tail::Bytes(bytes)) => self.record_parts(id, &[first, bytes]),
        }
    }

    /// Records an event whose payload is the concatenation of `parts`. This is the general path. It
    /// can record every payload that fits into a sub-buffer.
    ///
    /// # Errors
    /// The event was lost, and its stream counts why.
    #[inline]
    pub fn record_parts(&self, id: u16, parts: &[&[u8]]) -> Result<(), Lost> {
        let record = &Record { id, parts, len: parts.iter().map(|part| part.len()).sum() };
        if self.paged {
            self.record_in::<Paged>(record)
        } else {
            self.record_in::<Contiguous>(record)
        }
    }

    #[inline(never)]
    fn record_in<M: Memory>(&self, record: &Record<'_>) -> Result<(), Lost> {
        if self.reservation == RESERVATION_RSEQ {
            return rseq::record::<M>(self, record);
        }
        let home = self.home();
        let done = if self.reservation == RESERVATION_LOCKED {
            locked::record::<M>(self, home, record)
        } else {
            lockless::record::<M>(self, home, record)
        };
        done.inspect_err(|cause| home.count(*cause))
    }

    /// Records in the stream that is bound to no CPU, for a thread in which no section completes.
    #[cold]
    pub(crate) fn record_unbound<M: Memory>(&self, record: &Record<'_>) -> Result<(), Lost> {
        let last = &self.streams[self.streams.len() - 1];
        debug_assert!(last.spec.reservation == RESERVATION_LOCKLESS);
        lockless::record::<M>(self, last, record).inspect_err(|cause| last.count(*cause))
    }

    /// Returns the stream of the CPU on which the thread runs now.
    fn home(&self) -> &Stream {
        let cpu = cpu::current() as usize;
        &self.streams[cpu.min(self.cpus.max(1) as usize - 1)]
    }

    /// Returns the stream of a CPU; none for a CPU that the session does not know.
    #[inline]
    pub(crate) fn stream_of(&self, cpu: u32) -> Option<&Stream> {
        if cpu < self.cpus { self.streams.get(cpu as usize) } else { None }
    }

    pub(crate) fn refresh_clock(&self) {
        if let (Some(refresh), Some(area)) = (self.refresh, self.parts.clock_area) {
            refresh(area);
        }
    }
}
