//! Callsites of other languages. Their payloads are complete: in words, in words followed by a
//! text, or in parts.

use lastwords_abi::context as bits;
use lastwords_ring::{ShortText, Tail, prepend};

use crate::process::identity;
use crate::process::keep_loaded;
use crate::record::callsite::Callsite;
use crate::record::dispatch;
use crate::record::encode::{Parts, memory};
use crate::record::hiding;
use crate::record::slot::{Flaws, RecorderSlot};
use crate::record::takes;
use crate::session::desc::EventDesc;

/// Makes the event's description when it is needed; returns none if there is no memory for it.
pub trait Describe: FnOnce() -> Option<&'static EventDesc> {}
impl<F: FnOnce() -> Option<&'static EventDesc>> Describe for F {}

/// A part of a payload.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Part {
    /// Address of the bytes.
    pub data: *const u8,
    /// Number of bytes.
    pub len: usize,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller of `record_parts` gives `len` readable bytes, unchanged during the
        // call.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// Records a payload of at most 24 bytes in whole words; the rest of the last word is zero. The
/// words are separate arguments, so that they stay in registers up to the ring if only the thread's
/// id precedes them. `describe` is called for the event's description when the callsite is reached
/// for the first time.
#[inline(always)]
pub fn record_short(
    site: &'static Callsite,
    (first, second, third): (u64, u64, u64),
    len: usize,
    describe: impl Describe,
) {
    match site.only() {
        Some((slot, id)) if slot.contexts == 0 => {
            // The stream counts the event if it is lost.
            let _ = slot.channel.record_words(id, [first, second, third], len, None);
        }
        Some((slot, id)) if slot.contexts == bits::TID => {
            record_short_with_tid(slot, id, len, first, second, third)
        }
        _ => record_any(site, [first, second, third], len, &[], describe),
    }
}

#[inline(never)]
fn record_short_with_tid(
    slot: &'static RecorderSlot,
    id: u16,
    len: usize,
    first: u64,
    second: u64,
    third: u64,
) {
    let words = prepend::<4>(identity::tid(), &[first, second, third]);
    let _ = slot.channel.record_words(id, words, len + 4, None);
}

/// Records a payload of at most 16 bytes in whole words, followed by a text. `text` includes its
/// NUL.
#[inline(always)]
pub fn record_text(
    site: &'static Callsite,
    (first, second): (u64, u64),
    len: usize,
    text: &[u8],
    describe: impl Describe,
) {
    match (site.only(), text) {
        (Some((slot, id)), [without_nul @ .., _])
            if slot.contexts == 0 && without_nul.len() >= 8 =>
        {
            // The stream counts the event if it is lost.
            let _ =
                slot.channel.record_words(id, [first, second], len, Some(Tail::Text(without_nul)));
        }
        (Some((slot, id)), [without_nul @ .., _])
            if slot.contexts == bits::TID && without_nul.len() >= 8 =>
        {
            record_text_with_tid(slot, id, len, first, second, without_nul);
        }
        _ => record_any(site, [first, second, 0], len, text, describe),
    }
}

/// Records a short text like [`record_text`], if one channel alone takes the event and its fast
/// path can record it now. Returns false if nothing was recorded.
///
/// # Safety
/// The text fulfils the conditions of [`ShortText`].
#[inline(always)]
#[must_use]
pub unsafe fn record_short_text(
    site: &'static Callsite,
    words: (u64, u64),
    len: usize,
    text: ShortText,
) -> bool {
    let only = site.only().filter(|(slot, _)| slot.contexts == 0);
    // SAFETY: the caller guarantees the text.
    only.is_some_and(|(slot, id)| unsafe { slot.channel.record_short_text(id, words, len, text) })
}

#[inline(never)]
fn record_text_with_tid(
    slot: &'static RecorderSlot,
    id: u16,
    len: usize,
    first: u64,
    second: u64,
    without_nul: &[u8],
) {
    let words = prepend::<3>(identity::tid(), &[first, second]);
    let _ = slot.channel.record_words(id, words, len + 4, Some(Tail::Text(without_nul)));
}

/// Records in all channels: `len` bytes of the words, followed by the text.
#[inline(never)]
fn record_any(
    site: &'static Callsite,
    words: [u64; 3],
    len: usize,
    text: &[u8],
    describe: impl Describe,
) {
    let words = memory(&words);
    let payload = [&words[..len.min(words.len())], text];
    each_slot(site, describe, Parts(&payload), &mut |slot, id| {
        dispatch::record_to(slot, id, Parts(&payload))
    });
}

/// Records a payload given in parts.
///
/// # Safety
/// Each part has `len` readable bytes that do not change during the call.
pub unsafe fn record_parts(site: &'static Callsite, parts: &[Part], describe: impl Describe) {
    each_slot(site, describe, Parts(parts), &mut |slot, id| match parts {
        [whole] => _ = dispatch::record_bytes(slot, id, whole.as_ref()),
        _ => dispatch::record_to(slot, id, Parts(parts)),
    });
}

/// Calls `record` for each slot that takes the event with this payload.
fn each_slot<P: AsRef<[u8]>>(
    site: &'static Callsite,
    describe: impl Describe,
    payload: Parts<'_, P>,
    record: &mut dyn FnMut(&'static RecorderSlot, u16),
) {
    if let Some((slot, id)) = site.only() {
        return record(slot, id);
    }
    match described(site, describe) {
        Some(desc) if site.hides_fields(desc) => {
            hiding::record(site, desc, payload.0, Flaws::default())
        }
        Some(desc) => {
            site.each_slot(desc, &mut |question, slot| question.answer(slot, &payload), record)
        }
        None => takes::count_unregistered(None, 0),
    }
}

/// Returns the event's description, or `None` if there is no memory for it.
fn described(site: &'static Callsite, describe: impl Describe) -> Option<&'static EventDesc> {
    if site.desc().is_none() {
        // The callsite of a plug-in, and its description, are read long after the plug-in was
        // closed.
        keep_loaded::library_of(std::ptr::from_ref(site).cast());
    }
    site.desc().or_else(describe)
}

/// Returns true if an event of this callsite is recorded now, or if that is not known yet. This is
/// [`event_enabled!`](crate::event_enabled) for other languages.
pub fn would_record(site: &'static Callsite, describe: impl Describe) -> bool {
    described(site, describe).is_none_or(|desc| site.judged(desc) != 0)
}
