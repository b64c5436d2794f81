//! Events of which rules hide fields by name: those of `event!`, `mark!` and of C. (The layer for
//! `tracing` hides values before it encodes them.)
//!
//! A callsite with such a field never takes the fast path, and no channel gets its description.
//! Chained to it is a callsite whose description has a text for each hidden field. The values are
//! encoded on the stack, and those of hidden fields are replaced before the event is recorded:
//! no allocation, no lock, no system call.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::process::kept_memory;
use crate::record::callsite::Callsite;
use crate::record::dispatch::record_to;
use crate::record::encode::{Out as _, Parts, Pieces};
use crate::record::filter::Question;
use crate::record::slot::{Flaws, RecorderSlot};
use crate::record::takes;
use crate::session::desc::{EventDesc, FieldDesc, FieldType};
use crate::session::hidden::{self, Hashing, Mark, Way};

/// Returns true if a rule hides a field of the event.
pub(crate) fn applies(desc: &EventDesc) -> bool {
    hidden::turn() != 0 && desc.fields.iter().any(|field| hidden::way(field.name).is_some())
}

/// Records an event of a callsite that hides fields. `parts` is its payload.
#[cold]
#[inline(never)]
pub(crate) fn record<P: AsRef<[u8]>>(
    site: &'static Callsite,
    desc: &'static EventDesc,
    parts: &[P],
    flaws: Flaws,
) {
    // A rule that is added meanwhile is for later events: payload and description must agree.
    let turn = hidden::turn();
    let mut buffer = [0; 2048];
    let mut pieces = Pieces::new(&mut buffer);
    let mut cursor = Cursor { parts, at: 0 };
    let is_whole =
        desc.fields.iter().try_for_each(|field| put(field, turn, &mut cursor, &mut pieces));
    let hidden = site.hiding(desc, turn);
    let (Some(()), Some((site, desc)), Some(parts)) = (is_whole, hidden, pieces.finish()) else {
        return takes::count_unregistered(Some(desc), 0);
    };
    record_parts(site, desc, parts, flaws);
}

/// Records a payload in each slot that takes the event.
pub(super) fn record_parts(
    site: &'static Callsite,
    desc: &'static EventDesc,
    parts: &[&[u8]],
    flaws: Flaws,
) {
    let payload = Parts(parts);
    let ask = &mut |question: Question<'_>, slot: &RecorderSlot| question.answer(slot, &payload);
    let mut count = flaws.count();
    site.each_slot(desc, ask, &mut |slot, id| {
        record_to(slot, id, payload);
        count(slot);
    });
}

/// Moves the value of a field from the payload to the pieces, hidden if a rule says so. Returns
/// none if the payload does not have it.
fn put<'a, P: AsRef<[u8]>>(
    field: &FieldDesc,
    turn: u32,
    from: &mut Cursor<'a, P>,
    to: &mut Pieces<'a>,
) -> Option<()> {
    match hidden::way_by(turn, field.name) {
        None => from.value(&field.ty, &mut |bytes| match bytes.len() {
            // References to long values; the others are copied.
            64.. => to.source(bytes),
            _ => to.raw(bytes),
        }),
        Some(way) => {
            let mark = from.mark(&field.ty, way)?;
            to.raw(mark.as_bytes());
            to.raw(&[0]);
            Some(())
        }
    }
}

/// A position in a payload.
struct Cursor<'a, P> {
    parts: &'a [P],
    /// Bytes of the first part that were passed.
    at: usize,
}

impl<'a, P: AsRef<[u8]>> Cursor<'a, P> {
    /// Returns the rest of the part at the position, which is not empty.
    fn rest(&mut self) -> Option<&'a [u8]> {
        loop {
            let (first, others) = self.parts.split_first()?;
            match first.as_ref().get(self.at..) {
                Some(rest) if !rest.is_empty() => return Some(rest),
                _ => (self.parts, self.at) = (others, 0),
            }
        }
    }

    /// Passes over `len` bytes.
    fn take(&mut self, mut len: usize, see: &mut impl FnMut(&'a [u8])) -> Option<()> {
        while len > 0 {
            let rest = self.rest()?;
            let here = &rest[..len.min(rest.len())];
            see(here);
            (self.at, len) = (self.at + here.len(), len - here.len());
        }
        Some(())
    }

    /// Passes over a text and its NUL, which is seen too.
    fn take_text(&mut self, see: &mut impl FnMut(&'a [u8])) -> Option<()> {
        loop {
            let rest = self.rest()?;
            let nul = rest.iter().position(|byte| *byte == 0);
            let here = nul.map_or(rest, |nul| &rest[..=nul]);
            see(here);
            self.at += here.len();
            if nul.is_some() {
                return Some(());
            }
        }
    }

    /// Passes over a value.
    fn value(&mut self, ty: &FieldType, see: &mut impl FnMut(&'a [u8])) -> Option<()> {
        let element = match ty {
            FieldType::String => return self.take_text(see),
            FieldType::Sequence(element) => element.fixed_size()?,
            FieldType::Bytes => 1,
            _ => return self.take(ty.fixed_size()?, see),
        };
        let (mut count, mut known) = ([0; 4], 0);
        self.take(4, &mut |bytes| {
            count[known..known + bytes.len()].copy_from_slice(bytes);
            known += bytes.len();
            see(bytes);
        })?;
        self.take((u32::from_ne_bytes(count) as usize).checked_mul(element)?, see)
    }

    /// Passes over a value, and returns what is recorded instead.
    fn mark(&mut self, ty: &FieldType, way: Way) -> Option<Mark> {
        let (mut hashing, mut word, mut len) = (Hashing::new(), [0; 8], 0);
        let is_number = matches!(
            ty,
            FieldType::Unsigned { .. }
                | FieldType::Signed { .. }
                | FieldType::Float { .. }
                | FieldType::Bool
                | FieldType::Enum { .. }
        );
        self.value(ty, &mut |bytes| {
            if is_number {
                word[len..len + bytes.len()].copy_from_slice(bytes);
                len += bytes.len();
            } else {
                let is_nul = |byte: &u8| *byte == 0;
                // The NUL at the end of a text is no part of the value.
                hashing.add(match ty {
                    FieldType::String | FieldType::Text { .. } => {
                        &bytes[..bytes.iter().position(is_nul).unwrap_or(bytes.len())]
                    }
                    _ => bytes,
                });
            }
        })?;
        if way == Way::Secret {
            return Some(Mark::secret());
        }
        if is_number {
            // The text does not fail.
            let _ = write_number(&mut hashing, ty, word, len);
        }
        Some(hashing.mark())
    }
}

/// Writes the text of a number of `len` bytes, as `Display` would.
fn write_number(to: &mut Hashing, ty: &FieldType, word: [u8; 8], len: usize) -> std::fmt::Result {
    let raw = if cfg!(target_endian = "little") {
        u64::from_ne_bytes(word)
    } else {
        u64::from_ne_bytes(word) >> (64 - 8 * len)
    };
    let signed = || ((raw << (64 - 8 * len)) as i64) >> (64 - 8 * len);
    match ty {
        FieldType::Signed { .. } | FieldType::Enum { signed: true, .. } => {
            write!(to, "{}", signed())
        }
        FieldType::Float { bytes: 4 } => write!(to, "{}", f32::from_bits(raw as u32)),
        FieldType::Float { .. } => write!(to, "{}", f64::from_bits(raw)),
        FieldType::Bool => write!(to, "{}", raw != 0),
        _ => write!(to, "{raw}"),
    }
}

impl Callsite {
    /// Returns the callsite for the events of this one with hidden fields, and its description.
    /// Makes it if there is none for the first rules, `turn` of them. Returns none if there is no
    /// memory, or if it cannot be registered now.
    fn hiding(
        &'static self,
        desc: &'static EventDesc,
        turn: u32,
    ) -> Option<(&'static Self, &'static EventDesc)> {
        let mut site = self;
        loop {
            // SAFETY: pointers stored there are to values that live for ever.
            let next = unsafe { site.other.load(Acquire).as_ref::<'static>() };
            match next {
                Some(next) if next.hides == turn => {
                    if next.desc().is_none() {
                        next.register(hidden_desc(desc, turn)?);
                    }
                    let hidden = next.desc()?;
                    // The values of a place may have several combinations of types.
                    let fields = desc.fields.iter().map(|own| shown(own, turn));
                    if fields.eq(hidden.fields.iter().copied()) {
                        return Some((next, hidden));
                    }
                    site = next;
                }
                Some(next) => site = next,
                None => {
                    let new = kept_memory::keep(Self::hidden(turn))?;
                    let new = std::ptr::from_ref(new).cast_mut();
                    // If another thread was faster, the loop goes on with what that one made.
                    let _ = site.other.compare_exchange(std::ptr::null_mut(), new, AcqRel, Acquire);
                }
            }
        }
    }
}

/// Returns the field as its values are recorded: a text, if one of the first rules hides it.
fn shown(field: &FieldDesc, turn: u32) -> FieldDesc {
    match hidden::way_by(turn, field.name) {
        Some(_) => FieldDesc { ty: FieldType::String, ..*field },
        None => *field,
    }
}

/// Returns the description with a text for each hidden field; none if there is no memory.
fn hidden_desc(desc: &EventDesc, turn: u32) -> Option<&'static EventDesc> {
    let fields = desc.fields.iter().map(|field| Some(shown(field, turn)));
    kept_memory::keep(EventDesc { fields: kept_memory::keep_all(fields)?, ..*desc })
}
