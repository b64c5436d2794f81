//! Records a payload in one channel of one session. The form of the payload chooses between the
//! three functions of [`lastwords_ring::Channel`]: words, words and a text, or parts.

use std::mem::MaybeUninit;

use lastwords_abi::context as bits;
use lastwords_abi::header::MAX_COMPACT_ID;
use lastwords_abi::stream::LOST_TOO_BIG;
use lastwords_ring::{Tail, prepend};

use crate::process::identity;
use crate::record::context;
use crate::record::encode::writer::{Bytes, Image, ON_STACK, Words, has_no_nul, short_text};
use crate::record::encode::{Out, Parts, Pieces, Values, add};
use crate::record::slot::RecorderSlot;

/// Records one payload in one slot.
#[inline(always)]
pub(crate) fn record_to<V: Values + Copy>(slot: &'static RecorderSlot, id: u16, values: V) {
    match slot.contexts {
        0 => record_body(slot, id, values),
        bits::TID => record_with_tid(slot, id, values.again()),
        _ => record_with_contexts(slot, id, values.again()),
    }
}

/// Records a payload that is complete and is copied once, if at most the thread id precedes it.
/// Returns true if the slot's channel knows the time of the event:
/// [`Channel::newest_time`](lastwords_ring::Channel::newest_time).
#[inline(always)]
pub(crate) fn record_bytes(slot: &'static RecorderSlot, id: u16, bytes: &[u8]) -> bool {
    let first = match slot.contexts {
        0 => None,
        bits::TID => Some(identity::tid()),
        _ => return record_bytes_elsewhere(slot, id, bytes),
    };
    slot.channel.record_bytes(id, first, bytes) || record_bytes_elsewhere(slot, id, bytes)
}

/// Records a payload that is the first `len` bytes of `mask`, in memory order, followed by `values`,
/// whose number differs from event to event. Returns false if nothing was recorded; otherwise the
/// slot's channel knows the time of the event.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(crate) fn record_masked(
    slot: &'static RecorderSlot,
    id: u16,
    (mask, len): (u32, usize),
    values: &[u8],
) -> bool {
    let (head, len) = match slot.contexts {
        0 => (prepend::<1>(mask, &[])[0], len),
        bits::TID => (prepend::<1>(identity::tid(), &prepend::<1>(mask, &[]))[0], len + 4),
        _ => return false,
    };
    len <= 8 && slot.channel.record_varying(id, head, len, values)
}

/// Records a payload of `N` numbers as [`record_bytes`] does. With the thread id, they are in `W`
/// words.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(crate) fn record_numbers<const N: usize, const W: usize>(
    slot: &'static RecorderSlot,
    id: u16,
    numbers: [u64; N],
) -> bool {
    const { assert!(W == N + 1) };
    let is_recorded = match slot.contexts {
        0 => slot.channel.record_number_words(id, numbers, 8 * N),
        bits::TID => {
            let words = prepend::<W>(identity::tid(), &numbers);
            slot.channel.record_number_words(id, words, 8 * N + 4)
        }
        _ => false,
    };
    is_recorded || record_bytes_elsewhere(slot, id, numbers.map(u64::to_ne_bytes).as_flattened())
}

/// Records a payload that [`record_bytes`] has not recorded in the lane of this thread. Returns
/// false, because the time of the event is not known.
#[inline(never)]
fn record_bytes_elsewhere(slot: &'static RecorderSlot, id: u16, bytes: &[u8]) -> bool {
    let tid = || identity::tid();
    // Fewer than eight bytes become a word in memory order.
    let word = || {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    // The stream counts the event if it is lost.
    let _ = match (slot.contexts, bytes.len()) {
        (0, 8..) => slot.channel.record_words(id, [], 0, Some(Tail::Bytes(bytes))),
        (bits::TID, 8..) => {
            slot.channel.record_words(id, prepend::<1>(tid(), &[]), 4, Some(Tail::Bytes(bytes)))
        }
        (0, len) => slot.channel.record_words(id, [word()], len, None),
        (bits::TID, len) => {
            slot.channel.record_words(id, prepend::<2>(tid(), &[word()]), len + 4, None)
        }
        _ => {
            record_with_contexts(slot, id, Parts(&[bytes]));
            Ok(())
        }
    };
    false
}

/// The values with the thread id in front, which most channels request. The result is a payload
/// like any other.
#[derive(Clone, Copy)]
struct WithTid<V>(u32, V);

impl<V: Values> Values for WithTid<V> {
    const FIXED: Option<usize> = add(Some(4), V::FIXED);
    const HEAD: Option<usize> = add(Some(4), V::HEAD);

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        out.scalar(u64::from(self.0), 4);
        self.1.write(out);
    }

    #[inline(always)]
    fn write_head(&self, out: &mut impl Out) {
        out.scalar(u64::from(self.0), 4);
        self.1.write_head(out);
    }

    #[inline(always)]
    fn last_text(&self) -> &[u8] {
        self.1.last_text()
    }

    #[inline]
    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        out.scalar(u64::from(self.0), 4);
        self.1.pieces(out);
    }
}

#[inline(never)]
fn record_with_tid<V: Values + Copy>(slot: &'static RecorderSlot, id: u16, values: V) {
    record_body(slot, id, WithTid(identity::tid(), values));
}

/// Records a payload without contexts. The number of words of a fixed size is known at compile
/// time.
#[inline(always)]
fn record_body<V: Values + Copy>(slot: &'static RecorderSlot, id: u16, values: V) {
    if id > MAX_COMPACT_ID {
        return record_sized(slot, id, values.again());
    }
    match const { words_of(V::FIXED) } {
        0 => record_exact::<0, V>(slot, id, &values),
        1 => record_exact::<1, V>(slot, id, &values),
        2 => record_exact::<2, V>(slot, id, &values),
        3 => record_exact::<3, V>(slot, id, &values),
        4 => record_exact::<4, V>(slot, id, &values),
        5 => record_exact::<5, V>(slot, id, &values),
        6 => record_exact::<6, V>(slot, id, &values),
        7 => record_exact::<7, V>(slot, id, &values),
        8 => record_exact::<8, V>(slot, id, &values),
        _ => match const { words_before_text(V::HEAD) } {
            0 => record_text::<0, 1, V>(slot, id, values),
            1 => record_text::<1, 2, V>(slot, id, values),
            2 => record_text::<2, 3, V>(slot, id, values),
            3 => record_text::<3, 4, V>(slot, id, values),
            _ => record_sized(slot, id, values.again()),
        },
    }
}

/// Returns the bytes of a fixed size; 0 if the size is not fixed.
const fn len_of(fixed: Option<usize>) -> usize {
    match fixed {
        Some(len) => len,
        None => 0,
    }
}

/// Returns the words of a fixed size; a large number if the size is not fixed.
const fn words_of(fixed: Option<usize>) -> usize {
    match fixed {
        Some(size) => size.div_ceil(8),
        None => usize::MAX,
    }
}

/// Returns the words of the values before a last text; a large number if the section cannot keep
/// them in registers.
const fn words_before_text(head: Option<usize>) -> usize {
    match head {
        Some(head) if head <= Tail::MOST_BEFORE => head.div_ceil(8),
        _ => usize::MAX,
    }
}

/// Records a payload of a fixed size, in as few words as possible.
#[inline(always)]
fn record_exact<const W: usize, V: Values>(slot: &'static RecorderSlot, id: u16, values: &V) {
    // The stream counts the event if it is lost.
    let _ = slot.channel.record_words(
        id,
        words_by::<W>(|out| values.write(out)),
        const { len_of(V::FIXED) },
        None,
    );
}

/// Records `W` words of fixed sizes, followed by a text. A text of at most seven bytes becomes a
/// part of `S` words, which is one more.
#[inline(always)]
fn record_text<const W: usize, const S: usize, V: Values + Copy>(
    slot: &'static RecorderSlot,
    id: u16,
    values: V,
) {
    let text = values.last_text();
    if let Some(word) = short_text(text) {
        let words = words_by::<S>(|out| {
            values.write_head(out);
            out.scalar(word, 8);
        });
        let most = const { len_of(V::HEAD) + 8 };
        // The stream counts the event if it is lost.
        let _ = slot.channel.record_words_up_to(
            id,
            words,
            const { len_of(V::HEAD) } + text.len() + 1,
            most,
        );
        return;
    }
    if text.len() < 8 || !has_no_nul(text) {
        return record_sized(slot, id, values.again());
    }
    let head = words_by::<W>(|out| values.write_head(out));
    // The stream counts the event if it is lost.
    let _ = slot.channel.record_words(id, head, const { len_of(V::HEAD) }, Some(Tail::Text(text)));
}

/// Returns the words that `write` fills.
#[inline(always)]
fn words_by<const W: usize>(write: impl FnOnce(&mut Words<'_, W>)) -> [u64; W] {
    let mut words = [0; W];
    let mut out = Words::new(&mut words);
    write(&mut out);
    out.finish();
    words
}

/// The values with contexts in front.
struct WithContexts<'a, V>(&'a RecorderSlot, V);

impl<V: Values> Values for WithContexts<'_, V> {
    fn size(&self) -> usize {
        self.0.contexts_len.saturating_add(self.1.size())
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        context::write(self.0.contexts, &self.0.user_contexts, out);
        self.1.write(out);
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        context::write(self.0.contexts, &self.0.user_contexts, out);
        self.1.pieces(out);
    }
}

#[inline(never)]
fn record_with_contexts<V: Values>(slot: &'static RecorderSlot, id: u16, values: V) {
    record_sized(slot, id, WithContexts(slot, values));
}

/// Records a payload of any shape with any id. It takes a copy of the references, so that those of
/// the fast path need no memory.
#[inline(never)]
fn record_sized<V: Values>(slot: &'static RecorderSlot, id: u16, values: V) {
    let mut buffer = [MaybeUninit::uninit(); ON_STACK];
    let mut image = Image::new(&mut buffer);
    values.write(&mut image);
    match image.finish() {
        // The stream counts the event if it is lost.
        Some(payload) => _ = slot.channel.record_padded(id, payload),
        None => record_unusual(slot, id, &values),
    }
}

/// Records a payload that is large, or in which a text contains a NUL.
#[inline(never)]
fn record_unusual<V: Values>(slot: &'static RecorderSlot, id: u16, values: &V) {
    let mut buffer = [0; 2048];
    let mut bytes = Bytes::new(&mut buffer);
    values.write(&mut bytes);
    let changed = bytes.changed();
    match bytes.finish() {
        Some(payload) => record_changed(slot, id, &[payload], changed),
        None => record_pieces(slot, id, values),
    }
}

#[inline(never)]
fn record_pieces<V: Values>(slot: &'static RecorderSlot, id: u16, values: &V) {
    let mut buffer = [0; 1024];
    let mut pieces = Pieces::new(&mut buffer);
    values.pieces(&mut pieces);
    let changed = pieces.changed();
    match pieces.finish() {
        Some(parts) => record_changed(slot, id, parts, changed),
        None => slot.count(LOST_TOO_BIG),
    }
}

/// Records the parts of a payload, and counts the texts in which NULs were replaced.
fn record_changed(slot: &'static RecorderSlot, id: u16, parts: &[&[u8]], changed: u32) {
    // The stream counts the event if it is lost.
    if slot.channel.record_parts(id, parts).is_ok() && changed > 0 {
        slot.session.regions.registry.count_changed(changed);
    }
}
