//! The panic hook.

use std::fmt::Write as _;
use std::panic::PanicHookInfo;
use std::sync::Once;

use lastwords_abi::header::LEN_FULL;

use super::MAX_FRAMES;
use super::message::cut_to;
use super::unwind::{Frames, unwind};
use crate::process::cut;
use crate::record::callsite;
use crate::record::dispatch::record_to;
use crate::record::encode::writer::Bytes;
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

/// The arguments as text, without allocation; the parts that find no room are left out.
pub(super) fn written<'a>(room: &'a mut [u8], arguments: std::fmt::Arguments<'_>) -> &'a str {
    let len = {
        let mut text = Text(Bytes::new(room));
        let _ = text.write_fmt(arguments);
        text.0.len()
    };
    let bytes = &room[..len];
    std::str::from_utf8(bytes)
        .unwrap_or_else(|error| std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default())
}

struct Text<'a>(Bytes<'a>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        use crate::record::encode::Out;
        self.0.raw(s.as_bytes());
        Ok(())
    }
}
