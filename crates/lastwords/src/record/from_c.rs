//! Callsites of other languages: their payloads come as bytes that are ready, in words or in parts.

use lastwords_abi::session::context as bits;

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
    if let Some((target, id)) = site.only() {
        record_in(target, id, payload);
    } else {
        slow(site, describe, &mut |target, id| record_in(target, id, payload));
    }
}

/// Records an event of `size` bytes that lies in 2 or 3 words, its payload behind 4 bytes of zeros, where that is done at
/// once: in one target, with no context but the thread's id. False, and nothing is recorded, where it is not; then
/// [`record_words`] records it.
#[inline(always)]
#[must_use]
pub fn record_framed<const W: usize>(site: &'static Callsite, words: [u64; W], size: usize) -> bool {
    let Some((target, id)) = site.only() else { return false };
    match target.contexts {
        0 => target.channel.record_framed(id, &words, size),
        bits::TID => record_framed_with_tid(target, id, size, words[0], words[1], if W > 2 { words[2] } else { 0 }),
        _ => false,
    }
}

/// The same for one whose first `size` bytes lie in 2 words and which `text`, without NUL inside, and a NUL follow. False, and
/// nothing is recorded, where it is not done at once.
#[inline(always)]
#[must_use]
pub fn record_framed_text(site: &'static Callsite, words: [u64; 2], size: usize, text: &[u8]) -> bool {
    let Some((target, id)) = site.only() else { return false };
    match target.contexts {
        0 => target.channel.record_framed_text(id, &words, size, text),
        bits::TID => {
            let id_and_size = u64::from(id) | (size as u64) << 16;
            record_framed_text_with_tid(target, id_and_size, words[0], words[1], text)
        }
        _ => false,
    }
}

/// The words come one by one, so that they stay in registers.
#[inline(never)]
fn record_framed_with_tid(
    target: &'static RecorderSlot,
    id: u16,
    size: usize,
    first: u64,
    second: u64,
    third: u64,
) -> bool {
    let framed = with_tid(first, second, third);
    match size.saturating_add(4) {
        size @ ..=16 => target.channel.record_framed(id, &[framed[0], framed[1]], size),
        size @ ..=24 => target.channel.record_framed(id, &framed, size),
        _ => false,
    }
}

/// Six words of arguments, which is what comes in registers.
#[inline(never)]
fn record_framed_text_with_tid(
    target: &'static RecorderSlot,
    id_and_size: u64,
    first: u64,
    second: u64,
    text: &[u8],
) -> bool {
    let (id, size) = (id_and_size as u16, (id_and_size >> 16) as usize + 4);
    let framed = with_tid(first, second, 0);
    match size {
        ..=16 => target.channel.record_framed_text(id, &[framed[0], framed[1]], size, text),
        _ => target.channel.record_framed_text(id, &framed, size, text),
    }
}

/// The words with the thread's id behind the header's place; what was in the second half of the third is left out.
#[inline(always)]
fn with_tid(first: u64, second: u64, third: u64) -> [u64; 3] {
    let tid = u64::from(identity::identity().tid);
    if cfg!(target_endian = "little") {
        [tid << 32, first >> 32 | second << 32, second >> 32 | third << 32]
    } else {
        [tid, first << 32 | second >> 32, second << 32 | third >> 32]
    }
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
    slow(site, describe, &mut |target, id| dispatch::record_to(target, id, Parts(parts)));
}

#[cold]
#[inline(never)]
fn slow(
    site: &'static Callsite,
    describe: impl FnOnce() -> Option<&'static EventDesc>,
    record: &mut dyn FnMut(&'static RecorderSlot, u16),
) {
    if site.desc().is_none() {
        // A plug-in's callsite, and its description, are read long after the plug-in was closed.
        keep_loaded::library_of(std::ptr::from_ref(site).cast());
    }
    match site.desc().or_else(describe) {
        Some(desc) => site.each_slot(desc, record),
        None => slot::count_unregistered(None, 0),
    }
}

/// Words that need no shifting go to the ring from where they are.
#[inline(always)]
fn record_in(target: &'static RecorderSlot, id: u16, payload: InWords<'_>) {
    if target.contexts != 0 {
        if target.contexts == bits::TID {
            return dispatch::record_with_tid(target, id, payload);
        }
        return dispatch::record_to(target, id, payload);
    }
    let (words, len) = (payload.words, payload.len);
    // What is lost is counted in the stream.
    let _ = match (len.div_ceil(8), words) {
        (0, _) => target.channel.record_fixed(id, &[], 0),
        (1, [a, ..]) => target.channel.record_fixed(id, &[*a], len),
        (2, [a, b, ..]) => target.channel.record_fixed(id, &[*a, *b], len),
        (3, [a, b, c, ..]) => target.channel.record_fixed(id, &[*a, *b, *c], len),
        (4, [a, b, c, d, ..]) => target.channel.record_fixed(id, &[*a, *b, *c, *d], len),
        _ => return dispatch::record_to(target, id, payload),
    };
}
