//! Classes of event. A site has a class for the events that have the same fields, and one for
//! events that may lack some of them, so that optional fields do not multiply the classes. A class
//! is never removed.

use super::signature::{Shape, Signature};
use crate::record::callsite::Callsite;
use crate::record::dispatch;
use crate::record::encode::Parts;
use crate::record::filter::Question;
use crate::record::slot::RecorderSlot;
use crate::session::desc::EventDesc;

pub(super) struct Class {
    pub(super) shape: Shape,
    pub(super) form: Form,
    pub(super) callsite: Callsite,
    pub(super) desc: EventDesc,
}

impl Class {
    /// Returns true if events of this form, with values of these types, are of the class.
    #[inline]
    pub(super) fn fits(&self, form: Form, signature: &Signature) -> bool {
        self.form == form.of_class() && self.shape.fits(signature)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.form == other.form && self.shape == other.shape
    }

    pub(super) fn record(&'static self, bytes: &[u8], see: &mut dyn FnMut(&'static RecorderSlot)) {
        let ask = &mut |question: Question<'_>, slot: &RecorderSlot| {
            question.answer(slot, &Parts(&[bytes]))
        };
        self.callsite.each_slot(&self.desc, ask, &mut |slot, id| {
            see(slot);
            dispatch::record_bytes(slot, id, bytes);
        });
    }
}

/// Facts of an event that choose its class beside the types of its values. They are in one byte,
/// because a CPU waits where it reads several bytes of which it has just written one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form(pub(super) u8);

impl Form {
    /// The event has a span.
    pub(super) const HAS_SPAN: Self = Self(1);
    /// The message is the name of the event, and no field.
    pub(super) const IS_NAMED: Self = Self(2);
    /// Values are not as they were given. No class has this fact.
    pub(super) const HAS_FLAWS: Self = Self(4);

    #[inline(always)]
    pub(super) fn set(&mut self, fact: Self) {
        self.0 |= fact.0;
    }

    pub(super) fn has(self, fact: Self) -> bool {
        self.0 & fact.0 != 0
    }

    /// Returns the facts that choose a class.
    pub(super) fn of_class(self) -> Self {
        Self(self.0 & !Self::HAS_FLAWS.0)
    }
}
