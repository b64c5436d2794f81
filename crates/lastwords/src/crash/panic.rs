//! The panic hook.

use std::panic::PanicHookInfo;
use std::sync::Once;

use lastwords_abi::header::LEN_FULL;

use super::MAX_FRAMES;
use super::unwind::{Frames, unwind};
use crate::process::cut;
use crate::record::callsite;
use crate::record::dispatch::record_to;
use crate::record::encode::{Field as _, Formatted, Hex, Joined, hex};

crate::__site!(("crash"), "panic", "", ERROR, ["message", "location", "thread", "backtrace"]);

type Payload<'a> = (Joined<'a>, Formatted<MOST_TEXT>, &'a str, &'a [Hex<u64>]);

/// Records each panic as `crash:panic`, then calls the previous hook. A second call changes
/// nothing.
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

/// Returns true if the process does not survive the panic. The standard library announces that by
/// another panic: "panic in a function that cannot unwind" or "panic in a destructor during
/// cleanup".
fn aborts(info: &PanicHookInfo<'_>) -> bool {
    let message = info.payload().downcast_ref::<&str>();
    cfg!(panic = "abort") || message.is_some_and(|message| message.starts_with("panic in a "))
}

fn record(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let frames = Frames::new();
    unwind(&frames, 0);
    let mut addresses = [hex(0); MAX_FRAMES];
    let backtrace = frames.copy(&mut addresses);
    let message = message.unwrap_or("a payload that is no text");
    let location =
        info.location().map_or_else(Formatted::empty, |at| Formatted::new(format_args!("{at}")));
    let current = std::thread::current();
    let thread = cut(current.name().unwrap_or(""), MOST_TEXT);
    callsite::prime::<__LwSite, Payload<'_>>(&__LW_CALLSITE);
    let Some(desc) = __LW_CALLSITE.desc() else { return };
    // The payload is cut to fit into the channel's sub-buffers. If the message needs more than half
    // of the room, the backtrace gets at most the other half. The message gets the rest.
    let whole: Payload<'_> = (Joined([message, "", ""]), location, thread, backtrace);
    __LW_CALLSITE.each_slot(
        desc,
        &mut |question, slot| question.answer(slot, &whole),
        &mut |slot, id| {
            let sub_buffer =
                slot.channel.streams().first().map_or(0, |stream| stream.room() as usize);
            // The header may be needed twice if the event begins a sub-buffer; the backtrace has a
            // count.
            let others = 2 * LEN_FULL + slot.contexts_len + location.size() + thread.size() + 4;
            let room = sub_buffer.saturating_sub(others);
            let for_backtrace = room.saturating_sub(message.len() + 1).max(room / 2);
            let backtrace = &backtrace[..backtrace.len().min(for_backtrace / size_of::<u64>())];
            let mut note = Formatted::empty();
            let message = cut_to(message, room - size_of_val(backtrace), &mut note);
            let payload: Payload<'_> = (message, location, thread, backtrace);
            record_to(slot, id, payload);
        },
    );
}

/// Largest number of bytes of location and thread.
const MOST_TEXT: usize = 256;
/// Largest size of the note of what was cut off, in bytes.
const NOTE_ROOM: usize = 48;

/// Largest number of NULs inside a message. Each is a separate piece of the payload, and the number
/// of pieces is limited.
const MOST_NULS: usize = 16;

/// Returns as much of the text as fits into `room` bytes with its NUL. If the text is cut, a note
/// of what was cut off follows.
fn cut_to<'a>(text: &'a str, room: usize, note: &'a mut Formatted<NOTE_ROOM>) -> Joined<'a> {
    let end = text.match_indices('\0').nth(MOST_NULS).map_or(text.len(), |(at, _)| at);
    if end == text.len() && end < room {
        return Joined([text, "", ""]);
    }
    let kept = cut(text, end.min(room.saturating_sub(NOTE_ROOM + 1)));
    *note = Formatted::new(format_args!("… ({} bytes were cut off)", text.len() - kept.len()));
    Joined([kept, str::from_utf8(note.as_bytes()).unwrap_or_default(), ""])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, room: usize) -> String {
        let mut note = Formatted::empty();
        let message = cut_to(text, room, &mut note);
        assert!(message.size() <= room.max(49), "{message:?}");
        message.0.concat()
    }

    #[test]
    fn what_is_cut_is_told() {
        assert_eq!(shown("short", 6), "short");
        assert_eq!(
            shown(&"é".repeat(100), 100),
            format!("{}… (150 bytes were cut off)", "é".repeat(25))
        );
        assert_eq!(shown("long", 0), "… (4 bytes were cut off)");
        assert_eq!(
            shown(&"a\0".repeat(40), 4096),
            format!("{}a… (47 bytes were cut off)", "a\0".repeat(16))
        );
    }
}
