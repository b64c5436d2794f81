//! The panic hook.

use std::panic::PanicHookInfo;
use std::sync::Once;

use super::unwind::{Frames, unwind};
use super::{Addresses, MAX_FRAMES};
use crate::encode::writer::Bytes;
use crate::event;

/// Records each panic as `crash:panic`, then calls the hook that was there. A second call changes nothing.
pub fn install_panic_hook() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        super::refresh_modules();
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            crate::session::keep_all();
            record(info);
            previous(info);
        }));
    });
}

fn record(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let message =
        payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let mut room = [0u8; 256];
    let location = location(info, &mut room);
    let frames = Frames::new();
    unwind(&frames, 0);
    let mut addresses = [0; MAX_FRAMES];
    let thread = std::thread::current();
    event!(
        crash,
        "panic",
        level: ERROR,
        message = message.unwrap_or("a payload that is no text"),
        location = location,
        thread = thread.name().unwrap_or(""),
        backtrace = Addresses(frames.copy(&mut addresses)),
    );
}

/// `file:line:column`, without allocation; cut where it is longer than the room.
fn location<'a>(info: &PanicHookInfo<'_>, room: &'a mut [u8; 256]) -> &'a str {
    let Some(at) = info.location() else { return "" };
    let len = {
        let mut text = Text(Bytes::new(room));
        let _ = std::fmt::write(&mut text, format_args!("{}:{}:{}", at.file(), at.line(), at.column()));
        text.0.len()
    };
    let bytes = &room[..len];
    std::str::from_utf8(bytes)
        .unwrap_or_else(|error| std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default())
}

struct Text<'a>(Bytes<'a>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        use crate::encode::Out;
        self.0.raw(s.as_bytes());
        Ok(())
    }
}
