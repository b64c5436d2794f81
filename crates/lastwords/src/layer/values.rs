//! Takes the values of a `tracing` event or span into a payload.

use std::fmt::{self, Write as _};

use tracing_core::field::{Field, Visit};

use super::class::Form;
use super::message;
use super::payload::Payload;
use super::signature::Type;

impl Payload {
    /// Records a value that is `Debug` alone, and passes its text to `see`. A message that is the
    /// name of the site's events is left out.
    #[inline]
    pub(super) fn debug(&mut self, field: &Field, value: &dyn fmt::Debug, see: impl FnOnce(&[u8])) {
        if self.site.message_at == field.index()
            && let Some(text) = message::constant(value)
            // Nearly always it is the same text in memory.
            && (std::ptr::eq(text, self.site.desc.name) || text == self.site.desc.name)
        {
            self.form.set(Form::IS_NAMED);
        } else {
            self.debug_text(field.index(), value, see);
        }
    }

    #[inline(never)]
    fn debug_text(&mut self, index: usize, value: &dyn fmt::Debug, see: impl FnOnce(&[u8])) {
        self.text(index, |payload| {
            let start = payload.here();
            // If formatting fails, the part written so far is recorded.
            let _ = write!(payload, "{value:?}");
            see(payload.text_from(start));
        });
    }
}

impl Visit for Payload {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.scalar(field.index(), Type::Unsigned, value.to_ne_bytes(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.scalar(field.index(), Type::Signed, value.to_ne_bytes(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.scalar(field.index(), Type::Float, value.to_ne_bytes(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.scalar(field.index(), Type::Bool, [u8::from(value)], value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.index(), |payload| payload.write_cut(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.debug(field, value, |_| ());
    }
}
