//! A panic's message, cut to the room that there is.

use super::panic::written;
use crate::process::cut;
use crate::record::encode::Joined;

/// Most NULs inside: each is a piece of the payload of its own, of which there is a limited number.
const MOST_NULS: usize = 16;

/// As much of the text as fits into `room` bytes with its NUL, with a note of what was cut off where that is not all.
pub(super) fn cut_to<'a>(text: &'a str, room: usize, note: &'a mut [u8; 48]) -> Joined<'a> {
    let end = text.match_indices('\0').nth(MOST_NULS).map_or(text.len(), |(at, _)| at);
    if end == text.len() && end < room {
        return Joined([text, "", ""]);
    }
    let kept = cut(text, end.min(room.saturating_sub(note.len() + 1)));
    let note = written(note, format_args!("… ({} bytes were cut off)", text.len() - kept.len()));
    Joined([kept, note, ""])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::encode::Field as _;

    fn shown(text: &str, room: usize) -> String {
        let mut note = [0; 48];
        let message = cut_to(text, room, &mut note);
        assert!(message.size() <= room.max(49), "{message:?}");
        message.0.concat()
    }

    #[test]
    fn what_is_cut_is_told() {
        assert_eq!(shown("short", 6), "short");
        assert_eq!(shown(&"é".repeat(100), 100), format!("{}… (150 bytes were cut off)", "é".repeat(25)));
        assert_eq!(shown("long", 0), "… (4 bytes were cut off)");
        assert_eq!(shown(&"a\0".repeat(40), 4096), format!("{}a… (47 bytes were cut off)", "a\0".repeat(16)));
    }
}
