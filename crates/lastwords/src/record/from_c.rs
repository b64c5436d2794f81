//! Callsites of other languages, whose payloads are ready: in words, in words with a text behind them, or in parts.

use lastwords_abi::session::context as bits;
use lastwords_ring::{Tail, prepend};

use crate::process::identity;
use crate::process::keep_loaded;
use crate::record::callsite::Callsite;
use crate::record::dispatch;
use crate::record::encode::{Out, Pieces, Values};
use crate::record::slot::{self, RecorderSlot};
use crate::session::registry::EventDesc;

/// A part of a payload.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Part {
    /// Its bytes.
    pub data: *const u8,
    /// How many.
    pub len: usize,
}

impl Part {
    fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller of `record_parts` gives `len` readable bytes, unchanged during the call.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

#[derive(Clone, Copy)]
struct Parts<'a>(&'a [Part]);

impl Values for Parts<'_> {
    const FIXED: Option<usize> = None;

    fn size(&self) -> usize {
        self.0.iter().map(|part| part.len).fold(0, usize::saturating_add)
    }

    fn write(&self, out: &mut impl Out) {
        self.0.iter().for_each(|part| out.raw(part.bytes()));
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        self.0.iter().for_each(|part| out.0.source(part.bytes()));
    }
}

/// A payload in words: `len` bytes, in memory order.
#[derive(Clone, Copy)]
struct InWords<'a> {
    words: &'a [u64],
    len: usize,
}

impl InWords<'_> {
    /// The first `W` words; zero where there are none.
    #[inline(always)]
    fn first<const W: usize>(&self) -> [u64; W] {
        std::array::from_fn(|n| self.words.get(n).copied().unwrap_or(0))
    }
}

impl Values for InWords<'_> {
    const FIXED: Option<usize> = None;

    #[inline(always)]
    fn size(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        let whole = self.len / 8;
        for word in &self.words[..whole] {
            out.scalar(*word, 8);
        }
        let rest = self.len % 8;
        if rest > 0 {
            let word = self.words[whole];
            let bytes = if cfg!(target_endian = "little") { word } else { word >> (64 - 8 * rest) };
            out.scalar(bytes, rest);
        }
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        self.write(out);
    }
}

/// A text behind a payload in words; its NUL is part of it.
#[derive(Clone, Copy)]
struct WithText<'a>(InWords<'a>, &'a [u8]);

impl Values for WithText<'_> {
    const FIXED: Option<usize> = None;

    fn size(&self) -> usize {
        self.0.len.saturating_add(self.1.len())
    }

    fn write(&self, out: &mut impl Out) {
        self.0.write(out);
        out.raw(self.1);
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        self.0.write(out);
        out.0.source(self.1);
    }
}

/// Records a payload that lies in whole words: the first `len` bytes of `words`, the rest of the last word zero. `describe`
/// is asked for the event's description when the callsite is reached for the first time.
#[inline]
pub fn record_words(
    site: &'static Callsite,
    words: &[u64],
    len: usize,
    describe: impl FnOnce() -> Option<&'static EventDesc>,
) {
    let payload = InWords { words, len };
    match site.only() {
        Some((slot, id)) => record_in(slot, id, payload),
        None => slow(site, describe, &mut |slot, id| record_in(slot, id, payload)),
    }
}

/// Records a payload that lies in whole words, and a text behind it whose NUL `text` includes.
#[inline]
pub fn record_text(
    site: &'static Callsite,
    words: &[u64],
    len: usize,
    text: &[u8],
    describe: impl FnOnce() -> Option<&'static EventDesc>,
) {
    let head = InWords { words, len };
    match site.only() {
        Some((slot, id)) => record_text_in(slot, id, head, text),
        None => slow(site, describe, &mut |slot, id| record_text_in(slot, id, head, text)),
    }
}

#[inline(always)]
fn record_text_in(slot: &'static RecorderSlot, id: u16, head: InWords<'_>, text: &[u8]) {
    let (len, Some(without_nul)) = (head.len, text.split_last().map(|(_, text)| text)) else { return };
    let long = text.len() > 8 && len <= 16;
    // What is lost is counted in the stream.
    let _ = match slot.contexts {
        0 if long => slot.channel.record_tail(id, head.first::<2>(), len, Tail::Text(without_nul)),
        bits::TID if long => {
            let tid = identity::identity().tid;
            slot.channel.record_tail(id, prepend::<3>(tid, &head.first::<2>()), len + 4, Tail::Text(without_nul))
        }
        _ => return dispatch::record_to(slot, id, WithText(head, text)),
    };
}

/// Records a payload given in parts.
///
/// # Safety
/// Each part has `len` readable bytes that do not change during the call.
pub unsafe fn record_parts(
    site: &'static Callsite,
    parts: &[Part],
    describe: impl FnOnce() -> Option<&'static EventDesc>,
) {
    slow(site, describe, &mut |slot, id| dispatch::record_to(slot, id, Parts(parts)));
}

#[cold]
#[inline(never)]
fn slow(
    site: &'static Callsite,
    describe: impl FnOnce() -> Option<&'static EventDesc>,
    record: &mut dyn FnMut(&'static RecorderSlot, u16),
) {
    match described(site, describe) {
        Some(desc) => site.each_slot(desc, record),
        None => slot::count_unregistered(None, 0),
    }
}

/// The event's description. `None` if there is no memory for it.
fn described(
    site: &'static Callsite,
    describe: impl FnOnce() -> Option<&'static EventDesc>,
) -> Option<&'static EventDesc> {
    if site.desc().is_none() {
        // A plug-in's callsite, and its description, are read long after the plug-in was closed.
        keep_loaded::library_of(std::ptr::from_ref(site).cast());
    }
    site.desc().or_else(describe)
}

/// Whether an event of this callsite is recorded now, as [`event_enabled!`](crate::event_enabled) says it of one in Rust. True
/// if that is not known yet.
pub fn would_record(site: &'static Callsite, describe: impl FnOnce() -> Option<&'static EventDesc>) -> bool {
    described(site, describe).is_none_or(|desc| site.judged(desc) != 0)
}

/// A short payload goes to the ring from registers.
#[inline(always)]
fn record_in(slot: &'static RecorderSlot, id: u16, payload: InWords<'_>) {
    let len = payload.len;
    // What is lost is counted in the stream.
    let _ = match slot.contexts {
        0 if len <= 24 => slot.channel.record_words(id, payload.first::<3>(), len),
        bits::TID if len <= 24 => {
            let tid = identity::identity().tid;
            slot.channel.record_words(id, prepend::<4>(tid, &payload.first::<3>()), len + 4)
        }
        _ => return dispatch::record_to(slot, id, payload),
    };
}
