//! The span of `tracing` in which the events of `event!` and `mark!` happen. The layer knows it.
//! While a thread is in a span, the layer leaves a function here that shows the span, so that an
//! event outside of spans costs one load and one branch more.

use std::mem::MaybeUninit;

use lastwords_abi::spans::TEXT_LEN;

use crate::record::callsite::{self, Callsite, record_cold};
use crate::record::dispatch::record_to;
use crate::record::encode::{Given, Out as _, Parts, Pieces, Site, Values};
use crate::record::filter::Question;
use crate::record::slot::{self, RecorderSlot};
use crate::record::{signature, takes};
use crate::session::desc::{EventDesc, FieldDesc, FieldType};

/// Bytes that a span's text takes at most: the longest text of the table, two bytes for `::` and
/// braces, and the rest of a word.
pub(crate) const SHOWN_LEN: usize = TEXT_LEN + 16;

/// Room for a span's text in an event.
pub(crate) type ShownRoom = [MaybeUninit<u8>; SHOWN_LEN];

/// Writes the text of the span in which this thread is, without NULs. Returns its length and the
/// key of the span; none if the text is not known. Async-signal-safe.
pub(crate) type Show = fn(&mut ShownRoom) -> Option<(usize, u64)>;

/// The fields that an event in a span has after its own.
pub(crate) const FIELDS: [FieldDesc; 2] = [
    FieldDesc { name: "span", ty: FieldType::String },
    FieldDesc { name: "span_id", ty: FieldType::Unsigned { bytes: 8, base: 10 } },
];

#[cfg(feature = "tracing")]
thread_local! {
    static SHOW: std::cell::Cell<Option<Show>> = const { std::cell::Cell::new(None) };
}

/// Returns the function that shows the span in which this thread is, if it is in one.
#[inline(always)]
pub(crate) fn shown_by() -> Option<Show> {
    #[cfg(feature = "tracing")]
    return SHOW.get();
    #[cfg(not(feature = "tracing"))]
    None
}

/// Sets the function while this thread is in a span.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(crate) fn set(show: Option<Show>) {
    SHOW.set(show);
}

/// Returns the first `len` bytes of the room.
///
/// # Safety
/// They are initialised.
unsafe fn text(room: &ShownRoom, len: usize) -> &[u8] {
    let bytes = &room[..len];
    // SAFETY: the caller guarantees that the bytes are initialised.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

/// Records the values of a callsite, and the span in which this thread is. The macros call it when
/// the callsite's `enabled` is not 0.
#[inline(always)]
pub fn record<S: Site, V: Given<S>>(of: &S, site: &'static Callsite, values: V) {
    match shown_by() {
        None => callsite::record(of, site, values),
        Some(show) => record_with::<S, V, _>(site, values.short(), show),
    }
}

/// Records the values and the span that `show` shows. The event lacks the span if its text is not
/// known, or if the values are too large to be collected with it.
#[cold]
#[inline(never)]
fn record_with<S: Site, V: Given<S>, W: Values + Copy>(
    site: &'static Callsite,
    values: W,
    show: Show,
) {
    let mut room = [const { MaybeUninit::uninit() }; SHOWN_LEN];
    let shown = show(&mut room);
    let mut buffer = [0; 1024];
    let mut pieces = Pieces::new(&mut buffer);
    if let Some((len, id)) = shown {
        values.pieces(&mut pieces);
        // SAFETY: `show` has initialised the bytes.
        pieces.source(unsafe { text(&room, len) });
        pieces.raw(&[0]);
        pieces.scalar(id, 8);
        if let Some(parts) = pieces.finish() {
            let signature = const { signature::from_both(V::FIELDS, &FIELDS) };
            return record_parts(site, V::DESC, signature, parts, values.cut());
        }
    }
    record_cold::<S, V, W>(site, values);
}

/// Records a payload that ends with a span.
fn record_parts(
    site: &'static Callsite,
    desc: &'static EventDesc,
    signature: u32,
    parts: &[&[u8]],
    cut: u32,
) {
    let Some((site, desc)) = site.followed_by(&FIELDS, desc, signature) else {
        return takes::count_unregistered(Some(desc), 0);
    };
    let payload = Parts(parts);
    let ask = &mut |question: Question<'_>, slot: &RecorderSlot| question.answer(slot, &payload);
    let mut count = slot::once_a_session(cut);
    site.each_slot(desc, ask, &mut |slot, id| {
        record_to(slot, id, payload);
        count(slot);
    });
}
