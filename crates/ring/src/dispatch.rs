//! Records into a channel: selects the stream and the algorithm.

use lastwords_abi::session::{RESERVATION_LOCKED, RESERVATION_RSEQ};

use crate::channel::Channel;
use crate::cpu;
use crate::init::bytes_of;
use crate::memory::{Contiguous, Memory, Paged};
use crate::record::{Lost, Padded, Record, ShortText, Tail};
use crate::reserve::{locked, lockless, rseq};
use crate::stream::Stream;

impl Channel {
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

    /// Records an event on the fast path, if that is possible now. The payload is the first `len`
    /// bytes of `words`, in memory order. Returns false if nothing was recorded.
    #[inline(always)]
    #[must_use]
    pub fn record_number_words<const W: usize>(
        &'static self,
        id: u16,
        words: [u64; W],
        len: usize,
    ) -> bool {
        self.fast.record(id, &words, len, len, None)
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

    /// Records an event on the fast path, if that is possible now. The payload is the first `len`
    /// bytes of `head`, of which there are 8 at most, followed by `tail`, which has 16 to 128
    /// bytes. The time that it takes does not depend on whether the tails of a thread's events are
    /// equally long. Returns false if nothing was recorded.
    #[inline(always)]
    #[must_use]
    pub fn record_varying(&'static self, id: u16, head: u64, len: usize, tail: &[u8]) -> bool {
        self.fast.record_varying(id, head, len, tail)
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

    /// Returns the stream of the CPU on which the thread runs now.
    fn home(&self) -> &Stream {
        let cpu = cpu::current() as usize;
        &self.streams[cpu.min(self.cpus.max(1) as usize - 1)]
    }
}
