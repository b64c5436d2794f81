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
#[inline(never)]
pub fn record_words(
    site: &'static Callsite,
    words: &[u64],
    len: usize,
    describe: impl FnOnce() -> Option<&'static EventDesc>,
) {
    let payload = InWords { words, len };
    each_slot(site, describe, &mut |slot, id| dispatch::record_to(slot, id, payload));
}

/// Records the same of at most 24 bytes. The words are arguments of their own, so that they stay in registers up to the ring
/// where nothing precedes them but the thread's id.
#[inline(always)]
pub fn record_short(
    site: &'static Callsite,
    (first, second, third): (u64, u64, u64),
    len: usize,
    describe: impl FnOnce() -> Option<&'static EventDesc>,
) {
    match site.only() {
        Some((slot, id)) if slot.contexts == 0 => {
            // What is lost is counted in the stream.
            let _ = slot.channel.record_words(id, [first, second, third], len);
        }
        Some((slot, id)) if slot.contexts == bits::TID => record_short_with_tid(slot, id, len, first, second, third),
        _ => record_any_short(site, first, second, third, len, describe),
    }
}

#[inline(never)]
fn record_short_with_tid(slot: &'static RecorderSlot, id: u16, len: usize, first: u64, second: u64, third: u64) {
    let words = prepend::<4>(identity::identity().tid, &[first, second, third]);
    let _ = slot.channel.record_words(id, words, len + 4);
}

#[inline(never)]
fn record_any_short(
    site: &'static Callsite,
    first: u64,
    second: u64,
    third: u64,
    len: usize,
    describe: impl FnOnce() -> Option<&'static EventDesc>,
) {
    record_words(site, &[first, second, third], len.min(24), describe);
}

/// Records a payload of at most 16 bytes, which lies in whole words, and a text behind it whose NUL `text` includes.
#[inline(always)]
pub fn record_text(
    site: &'static Callsite,
    (first, second): (u64, u64),
    len: usize,
    text: &[u8],
    describe: impl FnOnce() -> Option<&'static EventDesc>,
) {
    match (site.only(), text) {
        (Some((slot, id)), [without_nul @ .., _]) if slot.contexts == 0 && without_nul.len() >= 8 => {
            // What is lost is counted in the stream.
            let _ = slot.channel.record_tail(id, [first, second], len, Tail::Text(without_nul));
        }
        (Some((slot, id)), [without_nul @ .., _]) if slot.contexts == bits::TID && without_nul.len() >= 8 => {
            record_text_with_tid(slot, id, len, first, second, without_nul);
        }
        _ => record_any_text(site, first, second, len.min(16), text, describe),
    }
}

#[inline(never)]
fn record_text_with_tid(slot: &'static RecorderSlot, id: u16, len: usize, first: u64, second: u64, without_nul: &[u8]) {
    let words = prepend::<3>(identity::identity().tid, &[first, second]);
    let _ = slot.channel.record_tail(id, words, len + 4, Tail::Text(without_nul));
}

#[inline(never)]
fn record_any_text(
    site: &'static Callsite,
    first: u64,
    second: u64,
    len: usize,
    text: &[u8],
    describe: impl FnOnce() -> Option<&'static EventDesc>,
) {
    let payload = WithText(InWords { words: &[first, second], len }, text);
    each_slot(site, describe, &mut |slot, id| dispatch::record_to(slot, id, payload));
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
    each_slot(site, describe, &mut |slot, id| dispatch::record_to(slot, id, Parts(parts)));
}

/// Calls `record` for each slot that takes the event.
fn each_slot(
    site: &'static Callsite,
    describe: impl FnOnce() -> Option<&'static EventDesc>,
    record: &mut dyn FnMut(&'static RecorderSlot, u16),
) {
    if let Some((slot, id)) = site.only() {
        return record(slot, id);
    }
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
