//! The recorder's handle on one channel.

use lastwords_abi::session::{
    CHANNEL_FULL_HEADERS, CHANNEL_PAYLOAD_SIZE, ClockArea, Control, SessionInfo, Thread,
};
use lastwords_abi::stream::ANY_CPU;
use lastwords_abi::sync::AtomicU32;
use lastwords_abi::sync::Ordering::{Acquire, Relaxed};

use crate::clock::ClockKind;
use crate::flush::Persist;
use crate::hooks::fault;

use crate::reserve::rseq_fast::RseqFast;
use crate::stream::Stream;
use crate::{cpu, forks};

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
    pub(crate) streams: alloc::boxed::Box<[Stream]>,
    pub(crate) fast: RseqFast,
    /// Streams that are bound to a CPU.
    pub(crate) cpus: u32,
    pub(crate) paged: bool,
    pub(crate) payload_size: bool,
    /// Every event has its id and the whole clock, in a header of 18 bytes, so that it can be read
    /// whatever happened to earlier events. Other channels have most often the compact header of 4
    /// bytes, which the fast path writes itself.
    pub(crate) full_headers: bool,
    pub(crate) parts: SessionParts,
    pub(crate) reservation: u32,
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
        forks::prepare_process();
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
