//! A crate that forbids unsafe code can use every macro, inside a module named like anything.
#![forbid(unsafe_code)]

use crate::support;
use lastwords::{Session, event, mark};

mod core {}
mod std {}

#[derive(Clone, Copy)]
enum Colour {
    Red,
}
lastwords::labels!(Colour as u32 { Red => "red" });

#[test]
fn macros_expand_to_safe_code() {
    alone!();
    let dir = ::tempfile::tempdir().expect("a folder");
    let channel = ::lastwords::ChannelConfig::new("main").contexts(::lastwords::Context::NONE);
    let session =
        Session::builder("safe").dir(dir.path()).channel(channel).start().expect("a session");
    let enabled = 1u8;
    event!(safe, "event", enabled, colour = Colour::Red, text = "text");
    mark!("mark {}", enabled);
    let shown = support::lines(session.folder().expect("a folder"));
    assert_eq!(shown, ["safe:event enabled=1 colour=red text=\"text\"", "marker:mark {} arg0=1"]);
}
