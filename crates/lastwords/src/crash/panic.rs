//! The panic hook.

use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::sync::Once;

use lastwords_abi::header::LEN_FULL;

use super::MAX_FRAMES;
use super::unwind::{Frames, unwind};
use crate::process::cut;
use crate::record::callsite;
use crate::record::dispatch::record_to;
use crate::record::encode::{Hex, Joined, hex};

crate::__site!(("crash"), "panic", "", ERROR, ["message", "location", "thread", "backtrace"]);

type Payload<'a> = (Joined<'a>, &'a str, &'a str, &'a [Hex<u64>]);

/// Records each panic as `crash:panic`, then calls the hook that was there. A second call changes nothing.
pub fn install_panic_hook() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        super::refresh_modules();
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            crate::session::ending::note_panic(aborts(info));
            record(info);
            previous(info);
        }));
    });
}

/// Whether the process does not survive the panic: the standard library says so by a panic of its own, "panic in a function that
/// cannot unwind" or "panic in a destructor during cleanup".
fn aborts(info: &PanicHookInfo<'_>) -> bool {
    let message = info.payload().downcast_ref::<&str>();
    cfg!(panic = "abort") || message.is_some_and(|message| message.starts_with("panic in a "))
}

fn record(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let message =
        payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let mut room = [0u8; MOST_TEXT];
    let frames = Frames::new();
    unwind(&frames, 0);
    let mut addresses = [hex(0); MAX_FRAMES];
    let backtrace = frames.copy(&mut addresses);
    let (message, location) = (message.unwrap_or("a payload that is no text"), location(info, &mut room));
    let current = std::thread::current();
    let thread = cut(current.name().unwrap_or(""), MOST_TEXT);
    callsite::prime::<__LwSite, Payload<'_>>(&__LW_CALLSITE);
    let Some(desc) = __LW_CALLSITE.desc() else { return };
    // Cut so that the channel's sub-buffers hold it: the backtrace gets half of them at most where the message needs the other
    // half, the message what is left.
    __LW_CALLSITE.each_slot(desc, &mut |slot, id| {
        let sub_buffer = slot.channel.streams().first().map_or(0, |stream| stream.room() as usize);
        // The header may be needed twice where an event begins a sub-buffer; texts have a NUL, the backtrace a count.
        let others = 2 * LEN_FULL + slot.contexts_len + location.len() + 1 + thread.len() + 1 + 4;
        let room = sub_buffer.saturating_sub(others);
        let for_backtrace = room.saturating_sub(message.len() + 1).max(room / 2);
        let backtrace = &backtrace[..backtrace.len().min(for_backtrace / size_of::<u64>())];
        let mut note = [0u8; 48];
        let message = cut_to(message, room - size_of_val(backtrace), &mut note);
        let payload: Payload<'_> = (message, location, thread, backtrace);
        record_to(slot, id, payload);
    });
}

/// Most bytes of location and thread.
const MOST_TEXT: usize = 256;

/// `file:line:column`, cut where it is longer than the room.
fn location<'a>(info: &PanicHookInfo<'_>, room: &'a mut [u8; MOST_TEXT]) -> &'a str {
    let Some(at) = info.location() else { return "" };
    written(room, format_args!("{}:{}:{}", at.file(), at.line(), at.column()))
}

/// The arguments as text, without allocation, cut to the room.
fn written<'a>(room: &'a mut [u8], arguments: std::fmt::Arguments<'_>) -> &'a str {
    let most = room.len();
    let mut rest = &mut *room;
    // An error says that there was no more room.
    let _ = rest.write_fmt(arguments);
    let len = most - rest.len();
    room[..len].utf8_chunks().next().map_or("", |text| text.valid())
}

/// Most NULs inside a message: each is a piece of the payload of its own, of which there is a limited number.
const MOST_NULS: usize = 16;

/// As much of the text as fits into `room` bytes with its NUL, with a note of what was cut off where that is not all.
fn cut_to<'a>(text: &'a str, room: usize, note: &'a mut [u8; 48]) -> Joined<'a> {
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
