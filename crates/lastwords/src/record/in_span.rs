//! The span of `tracing` in which the events of `event!` and `mark!` happen. The layer knows it. It
//! notes here whether a thread is in a span, so that an event outside of spans costs one load and
//! one branch more. The note takes a byte, because a library that is loaded late gets little memory
//! for its threads.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use lastwords_abi::spans::TEXT_LEN;

use crate::record::callsite::{self, Callsite, record_cold};
use crate::record::encode::{Given, Out as _, Pieces, Site, Values};
use crate::record::slot::Flaws;
use crate::record::{hiding, signature, takes};
use crate::session::desc::{EventDesc, FieldDesc, FieldType};

/// Bytes that a span's text takes at most: the longest text of the table, two bytes for `::` and
/// braces, and the rest of a word.
pub(crate) const SHOWN_LEN: usize = TEXT_LEN + 16;

/// Room for a span's text in an event.
pub(crate) type ShownRoom = [MaybeUninit<u8>; SHOWN_LEN];

/// The text of a span that was written into a [`ShownRoom`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    /// Bytes of the text.
    pub(crate) len: usize,
    /// The key of the span.
    pub(crate) id: u64,
    /// NULs in the text were replaced.
    pub(crate) is_changed: bool,
}

#[cfg(feature = "tracing")]
impl Shown {
    /// Notes what was written of a span: the bytes of the text, and whether NULs were replaced.
    #[inline]
    pub(crate) fn new((len, is_changed): (usize, bool), id: u64) -> Self {
        Self { len, id, is_changed }
    }
}

/// Writes the text of the span in which this thread is, without NULs; none if the text is not
/// known. Async-signal-safe.
pub(crate) type Show = fn(&mut ShownRoom) -> Option<Shown>;

/// The fields that an event in a span has after its own.
pub(crate) const FIELDS: [FieldDesc; 2] = [
    FieldDesc { name: "span", ty: FieldType::String },
    FieldDesc { name: "span_id", ty: FieldType::Unsigned { bytes: 8, base: 10 } },
];

/// The layer's function, once a thread was in a span.
static SHOW: OnceLock<Show> = OnceLock::new();

#[cfg(feature = "tracing")]
thread_local! {
    static IS_INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Returns true if this thread is in a span.
#[inline(always)]
pub(crate) fn is_inside() -> bool {
    #[cfg(feature = "tracing")]
    return IS_INSIDE.get();
    #[cfg(not(feature = "tracing"))]
    false
}

/// Notes whether this thread is in a span, which `show` shows.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(crate) fn note(is_inside: bool, show: Show) {
    SHOW.get_or_init(|| show);
    IS_INSIDE.set(is_inside);
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
    match is_inside() {
        false => callsite::record(of, site, values),
        true => record_with::<S, V, _>(site, values.short()),
    }
}

/// Records the values and the span that [`SHOW`] shows. The event lacks the span if its text is not
/// known, or if the values are too large to be collected with it.
#[cold]
#[inline(never)]
fn record_with<S: Site, V: Given<S>, W: Values + Copy>(site: &'static Callsite, values: W) {
    let mut room = [const { MaybeUninit::uninit() }; SHOWN_LEN];
    let shown = SHOW.get().and_then(|show| show(&mut room));
    let mut buffer = [0; 1024];
    let mut pieces = Pieces::new(&mut buffer);
    if let Some(Shown { len, id, is_changed }) = shown {
        values.pieces(&mut pieces);
        // SAFETY: `show` has initialised the bytes.
        pieces.source(unsafe { text(&room, len) });
        pieces.raw(&[0]);
        pieces.scalar(id, 8);
        let changed = pieces.changed() + u32::from(is_changed);
        let flaws = Flaws { cut: values.cut(), changed };
        if let Some(parts) = pieces.finish() {
            let signature = const { signature::from_both(V::FIELDS, &FIELDS) };
            return record_parts(site, V::DESC, signature, parts, flaws);
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
    flaws: Flaws,
) {
    let Some((site, desc)) = site.followed_by(&FIELDS, desc, signature) else {
        return takes::count_unregistered(Some(desc), 0);
    };
    match site.hides_fields(desc) {
        true => hiding::record(site, desc, parts, flaws),
        false => hiding::record_parts(site, desc, parts, flaws),
    }
}
