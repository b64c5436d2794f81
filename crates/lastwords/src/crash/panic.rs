//! The panic hook.

use std::fmt::Write as _;
use std::panic::PanicHookInfo;
use std::sync::Once;

use lastwords_abi::header::LEN_FULL;

use super::message::{Message, cut};
use super::unwind::{Frames, unwind};
use super::{Addresses, MAX_FRAMES};
use crate::record::callsite::{self, Callsite};
use crate::record::dispatch::record_to;
use crate::record::encode::Site;
use crate::record::encode::writer::Bytes;
use crate::record::slot::RecorderSlot;

struct PanicSite;

impl Site for PanicSite {
    const PROVIDER: &'static str = "crash";
    const NAME: &'static str = "panic";
    const LEVEL: u8 = lastwords_abi::registry::level::ERROR;
    const FORMAT: &'static str = "";
    const FILE: &'static str = file!();
    const LINE: u32 = line!();
    const NAMES: &'static [&'static str] = &["message", "location", "thread", "backtrace"];
}

static SITE: Callsite = Callsite::new();

type Payload<'a> = (Message<'a>, &'a str, &'a str, Addresses<'a>);

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

/// What is known of a panic.
struct Panic<'a> {
    message: &'a str,
    location: &'a str,
    thread: &'a str,
    backtrace: &'a [u64],
}

fn record(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let message =
        payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let mut room = [0u8; MOST_TEXT];
    let frames = Frames::new();
    unwind(&frames, 0);
    let mut addresses = [0; MAX_FRAMES];
    let thread = std::thread::current();
    let panic = Panic {
        message: message.unwrap_or("a payload that is no text"),
        location: location(info, &mut room),
        thread: cut(thread.name().unwrap_or(""), MOST_TEXT),
        backtrace: frames.copy(&mut addresses),
    };
    callsite::prime::<PanicSite, Payload<'_>>(&SITE);
    let Some(desc) = SITE.desc() else { return };
    SITE.each_slot(desc, &mut |slot, id| panic.record_in(slot, id));
}

/// Most bytes of location and thread.
const MOST_TEXT: usize = 256;

impl Panic<'_> {
    /// Records the panic, cut so that the channel's sub-buffers hold it: the backtrace gets half of them at most where the
    /// message needs the other half, the message what is left.
    fn record_in(&self, slot: &'static RecorderSlot, id: u16) {
        let sub_buffer = slot.channel.streams().first().map_or(0, |stream| stream.room() as usize);
        // The header may be needed twice where an event begins a sub-buffer; texts have a NUL, the backtrace a count.
        let others = 2 * LEN_FULL + slot.contexts_len + self.location.len() + 1 + self.thread.len() + 1 + 4;
        let room = sub_buffer.saturating_sub(others);
        let for_backtrace = room.saturating_sub(self.message.len() + 1).max(room / 2);
        let backtrace = &self.backtrace[..self.backtrace.len().min(for_backtrace / size_of::<u64>())];
        let mut note = [0u8; 48];
        let message = Message::cut_to(self.message, room - size_of_val(backtrace), &mut note);
        let payload: Payload<'_> = (message, self.location, self.thread, Addresses(backtrace));
        record_to(slot, id, payload);
    }
}

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
