//! Callsites of other languages: their payloads come as bytes that are ready, in words or in parts.

use lastwords_abi::session::context as bits;

use crate::callsite::{self, Callsite};
use crate::encode::{Out, Pieces, Values};
use crate::registry::EventDesc;
use crate::target::Target;

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
    enabled: u32,
    words: &[u64],
    len: usize,
    describe: impl FnOnce() -> Option<&'static EventDesc>,
) {
    let payload = InWords { words, len };
    if enabled.is_power_of_two()
        && let Some((target, id)) = site.target(enabled.trailing_zeros() as usize)
    {
        record_in(target, id, payload);
    } else {
        slow(site, describe, &mut |target, id| record_in(target, id, payload));
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
    slow(site, describe, &mut |target, id| callsite::record_to(target, id, Parts(parts)));
}

#[cold]
#[inline(never)]
fn slow(
    site: &'static Callsite,
    describe: impl FnOnce() -> Option<&'static EventDesc>,
    record: &mut dyn FnMut(&'static Target, u16),
) {
    if let Some(desc) = site.desc().or_else(describe) {
        site.each_target(desc, record);
    }
}

/// Words that need no shifting go to the ring from where they are.
#[inline(always)]
fn record_in(target: &Target, id: u16, payload: InWords<'_>) {
    if target.contexts != 0 {
        if target.contexts == bits::TID {
            return callsite::record_with_tid(target, id, payload);
        }
        return callsite::record_to(target, id, payload);
    }
    let (words, len) = (payload.words, payload.len);
    // What is lost is counted in the stream.
    let _ = match (len.div_ceil(8), words) {
        (0, _) => target.channel.record_fixed(id, &[], 0),
        (1, [a, ..]) => target.channel.record_fixed(id, &[*a], len),
        (2, [a, b, ..]) => target.channel.record_fixed(id, &[*a, *b], len),
        (3, [a, b, c, ..]) => target.channel.record_fixed(id, &[*a, *b, *c], len),
        (4, [a, b, c, d, ..]) => target.channel.record_fixed(id, &[*a, *b, *c, *d], len),
        _ => return callsite::record_to(target, id, payload),
    };
}
