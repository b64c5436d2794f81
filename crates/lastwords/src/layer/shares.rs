//! Measures the values of an event that has no room for all of them, so that each text gets a fair
//! share of the room.

use std::fmt::{self, Write as _};

use tracing_core::field::{Field, Visit};

use super::payload::VALUES_ROOM;
use super::signature::MOST_FIELDS;

/// The sizes of an event's values.
struct Sizes {
    /// Bytes of numbers, and of the NULs of texts.
    fixed: usize,
    texts: [u32; MOST_FIELDS],
    count: usize,
    /// Numbers are texts.
    is_text: bool,
}

/// Returns the largest size that each text of the event may have, so that all values fit: texts
/// that are shorter leave the rest of their share to the others. `record` passes the values.
#[cold]
#[inline(never)]
pub(super) fn share(is_text: bool, record: impl FnOnce(&mut dyn Visit)) -> usize {
    let mut sizes = Sizes { fixed: 0, texts: [0; MOST_FIELDS], count: 0, is_text };
    record(&mut sizes);
    let texts = &mut sizes.texts[..sizes.count];
    // This sort takes no memory from the heap.
    texts.sort_unstable();
    let mut left = VALUES_ROOM.saturating_sub(sizes.fixed);
    for (at, len) in texts.iter().enumerate() {
        let share = left / (sizes.count - at);
        if *len as usize > share {
            return share;
        }
        left -= *len as usize;
    }
    VALUES_ROOM
}

impl Sizes {
    fn text(&mut self, len: usize) {
        self.fixed += 1;
        if let Some(place) = self.texts.get_mut(self.count) {
            *place = u32::try_from(len).unwrap_or(u32::MAX);
            self.count += 1;
        }
    }

    fn number(&mut self, size: usize, value: &dyn fmt::Display) {
        if self.is_text {
            let mut len = Len(0);
            let _ = write!(len, "{value}");
            self.text(len.0);
        } else {
            self.fixed += size;
        }
    }
}

/// Counts the bytes of formatted text.
struct Len(usize);

impl fmt::Write for Len {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

impl Visit for Sizes {
    fn record_u64(&mut self, _: &Field, value: u64) {
        self.number(8, &value);
    }

    fn record_i64(&mut self, _: &Field, value: i64) {
        self.number(8, &value);
    }

    fn record_f64(&mut self, _: &Field, value: f64) {
        self.number(8, &value);
    }

    fn record_bool(&mut self, _: &Field, value: bool) {
        self.number(1, &value);
    }

    fn record_str(&mut self, _: &Field, value: &str) {
        self.text(value.len());
    }

    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        let mut len = Len(0);
        let _ = write!(len, "{value:?}");
        self.text(len.0);
    }
}
