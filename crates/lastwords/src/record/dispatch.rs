//! Payloads into a target's ring: by the size that is known when the program is compiled, on to ever more general ways.

use lastwords_abi::header::LEN_COMPACT;
use lastwords_abi::session::context as bits;

use crate::process::identity;
use crate::record::context;
use crate::record::encode::writer::{Bytes, Pieces as PieceList, Words, has_no_nul};
use crate::record::encode::{Out, Pieces, Values};
use crate::record::slot::RecorderSlot;

/// Records one payload in one target.
#[inline(always)]
pub(crate) fn record_to<V: Values + Copy>(target: &'static RecorderSlot, id: u16, values: V) {
    match target.contexts {
        0 => record_body(target, id, values),
        bits::TID => record_with_tid(target, id, values.again()),
        _ => record_with_contexts(target, id, values.again()),
    }
}

/// The thread id, which most channels ask for, in front of the values: a payload like any other.
#[derive(Clone, Copy)]
struct WithTid<V>(u32, V);

impl<V: Values> Values for WithTid<V> {
    const FIXED: Option<usize> = match V::FIXED {
        Some(size) => Some(size + 4),
        None => None,
    };
    const HEAD: Option<usize> = match V::HEAD {
        Some(size) => Some(size + 4),
        None => None,
    };

    #[inline(always)]
    fn size(&self) -> usize {
        4 + self.1.size()
    }

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
pub(crate) fn record_with_tid<V: Values + Copy>(target: &'static RecorderSlot, id: u16, values: V) {
    record_body(target, id, WithTid(identity::identity().tid, values));
}

/// Records a payload as it is.
#[inline(always)]
fn record_body<V: Values + Copy>(target: &'static RecorderSlot, id: u16, values: V) {
    match const { words_of(V::FIXED) } {
        0 => record_exact::<0, V>(target, id, &values),
        1..=3 => match const { framed_words_of(V::FIXED) } {
            2 => record_framed::<2, V>(target, id, &values),
            3 => record_framed::<3, V>(target, id, &values),
            _ => record_exact::<3, V>(target, id, &values),
        },
        4 => record_exact::<4, V>(target, id, &values),
        5 => record_exact::<5, V>(target, id, &values),
        6 => record_exact::<6, V>(target, id, &values),
        7 => record_exact::<7, V>(target, id, &values),
        8 => record_exact::<8, V>(target, id, &values),
        _ => record_short(target, id, values),
    }
}

/// A payload whose size is only known now: most often a number or two and a text.
#[inline(always)]
fn record_short<V: Values + Copy>(target: &'static RecorderSlot, id: u16, values: V) {
    if !record_head_and_text(target, id, values) {
        record_of_any_size(target, id, values.again());
    }
}

/// Numbers and then one text, 8 bytes or more of it and no NUL: copied from where they are. False for all other payloads.
#[inline(always)]
fn record_head_and_text<V: Values + Copy>(target: &'static RecorderSlot, id: u16, values: V) -> bool {
    let words = const { framed_words_of(V::HEAD) };
    if words > 3 {
        return false;
    }
    let text = values.last_text();
    if text.len() < 8 || !has_no_nul(text) {
        return false;
    }
    match words {
        2 => record_text::<2, V>(target, id, values, text),
        _ => record_text::<3, V>(target, id, values, text),
    }
    true
}

#[inline(always)]
fn record_text<const W: usize, V: Values + Copy>(target: &'static RecorderSlot, id: u16, values: V, text: &[u8]) {
    let head = framed::<W>(|out| values.write_head(out));
    let size = const { LEN_COMPACT + len_of(V::HEAD) };
    if !target.channel.record_framed_text(id, &head, size, text) {
        // What is lost is counted in the stream.
        let _ = target.channel.record_unframed(id, head, size, Some(text));
    }
}

/// Bytes of what has a fixed size; 0 of what has not.
const fn len_of(fixed: Option<usize>) -> usize {
    match fixed {
        Some(len) => len,
        None => 0,
    }
}

/// Words, 2 at least, of an event of fixed size, or of the part of it that is; a large number for all others.
const fn framed_words_of(fixed: Option<usize>) -> usize {
    match fixed {
        Some(..=12) => 2,
        Some(size) => (LEN_COMPACT + size).div_ceil(8),
        None => usize::MAX,
    }
}

#[inline(always)]
fn record_framed<const W: usize, V: Values>(target: &'static RecorderSlot, id: u16, values: &V) {
    let words = framed::<W>(|out| values.write(out));
    let size = const { LEN_COMPACT + len_of(V::FIXED) };
    if !target.channel.record_framed(id, &words, size) {
        // What is lost is counted in the stream.
        let _ = target.channel.record_unframed(id, words, size, None);
    }
}

/// An event without what is behind its fixed part: a place for the header, then what `write` writes.
#[inline(always)]
fn framed<const W: usize>(write: impl FnOnce(&mut Words<'_, W>)) -> [u64; W] {
    let mut words = [0; W];
    let mut out = Words::new(&mut words);
    out.scalar(0, LEN_COMPACT);
    write(&mut out);
    out.finish();
    words
}

/// Words of a payload of fixed size; a large number for all others.
const fn words_of(fixed: Option<usize>) -> usize {
    match fixed {
        Some(size) => size.div_ceil(8),
        None => usize::MAX,
    }
}

#[inline(always)]
fn record_exact<const W: usize, V: Values>(target: &'static RecorderSlot, id: u16, values: &V) {
    // Of the type, whatever the value says: the words are as many.
    record_words::<W, V>(target, id, values, const { len_of(V::FIXED) });
}

/// Contexts in front of the values.
struct WithContexts<'a, V>(&'a RecorderSlot, V);

impl<V: Values> Values for WithContexts<'_, V> {
    const FIXED: Option<usize> = None;

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
fn record_with_contexts<V: Values>(target: &'static RecorderSlot, id: u16, values: V) {
    let values = WithContexts(target, values);
    record_sized(target, id, &values, values.size());
}

/// Takes a copy of the references, so that those of the fast path need no memory.
#[inline(never)]
fn record_of_any_size<V: Values + Copy>(target: &'static RecorderSlot, id: u16, values: V) {
    record_sized(target, id, &values, values.size());
}

/// A payload of a size that is only known now, or of many words.
#[inline(never)]
fn record_sized<V: Values>(target: &'static RecorderSlot, id: u16, values: &V, size: usize) {
    match size {
        0..=64 => record_words::<8, V>(target, id, values, size),
        65..=128 => record_words::<16, V>(target, id, values, size),
        129..=256 => record_words::<32, V>(target, id, values, size),
        257..=2048 => record_buffered(target, id, values),
        _ => record_pieces(target, id, values),
    }
}

#[inline(always)]
fn record_words<const W: usize, V: Values>(target: &'static RecorderSlot, id: u16, values: &V, size: usize) {
    let mut words = [0; W];
    let mut out = Words::new(&mut words);
    values.write(&mut out);
    out.finish();
    // What is lost is counted in the stream.
    let _ = target.channel.record_fixed(id, &words, size);
}

#[inline(never)]
fn record_buffered<V: Values>(target: &'static RecorderSlot, id: u16, values: &V) {
    let mut buffer = [0u8; 2048];
    let mut bytes = Bytes::new(&mut buffer);
    values.write(&mut bytes);
    if let Some(payload) = bytes.finish() {
        let _ = target.channel.record_parts(id, &[payload]);
    }
}

#[inline(never)]
fn record_pieces<V: Values>(target: &'static RecorderSlot, id: u16, values: &V) {
    let mut pieces = Pieces(PieceList::new());
    values.pieces(&mut pieces);
    if pieces.0.finish(|parts| target.channel.record_parts(id, parts)).is_none() {
        target.lost_too_big();
    }
}
