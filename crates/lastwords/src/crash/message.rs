//! A panic's message, cut to the room that there is.

use super::panic::written;
use crate::record::encode::writer::INNER_NUL;
use crate::record::encode::{Field, Out, Pieces, short};
use crate::session::registry::FieldType;

/// A text, and a note of what was cut off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    text: &'a str,
    note: &'a str,
}

/// Most NULs inside: each is a piece of the payload of its own, of which there is a limited number.
const MOST_NULS: usize = 16;

impl<'a> Message<'a> {
    /// As much of the text as fits into `room` bytes with its NUL, with a note where that is not all.
    pub(super) fn cut_to(text: &'a str, room: usize, note: &'a mut [u8; 48]) -> Self {
        let end = text.match_indices('\0').nth(MOST_NULS).map_or(text.len(), |(at, _)| at);
        if end == text.len() && end < room {
            return Self { text, note: "" };
        }
        let kept = cut(text, end.min(room.saturating_sub(note.len() + 1)));
        let note = written(note, format_args!("… ({} bytes were cut off)", text.len() - kept.len()));
        Self { text: kept, note }
    }
}

/// As much of the text as `most` bytes hold, cut at a character.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

impl Field for Message<'_> {
    const TYPE: FieldType = FieldType::String;
    const FIXED: Option<usize> = None;
    short!(Self);

    fn size(&self) -> usize {
        self.text.len() + self.note.len() + 1
    }

    fn write(&self, out: &mut impl Out) {
        for (i, run) in self.text.split('\0').enumerate() {
            if i > 0 {
                out.raw(&[INNER_NUL]);
            }
            out.raw(run.as_bytes());
        }
        out.raw(self.note.as_bytes());
        out.raw(&[0]);
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        for (i, run) in self.text.split('\0').enumerate() {
            if i > 0 {
                out.raw(&[INNER_NUL]);
            }
            out.0.source(run.as_bytes());
        }
        out.raw(self.note.as_bytes());
        out.raw(&[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, room: usize) -> String {
        let mut note = [0; 48];
        let message = Message::cut_to(text, room, &mut note);
        assert!(message.size() <= room.max(49), "{message:?}");
        format!("{}{}", message.text, message.note)
    }

    #[test]
    fn what_is_cut_is_told() {
        assert_eq!(shown("short", 6), "short");
        assert_eq!(shown(&"é".repeat(100), 100), format!("{}… (150 bytes were cut off)", "é".repeat(25)));
        assert_eq!(shown("long", 0), "… (4 bytes were cut off)");
        assert_eq!(shown(&"a\0".repeat(40), 4096), format!("{}a… (47 bytes were cut off)", "a\0".repeat(16)));
    }
}
