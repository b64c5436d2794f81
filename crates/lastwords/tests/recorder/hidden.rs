//! Rules that hide values, added one after the other while a place records.

use crate::fields::session;
use crate::support::lines;
use lastwords::{Session, event};

/// Records an event whose values have types of their own in each generic function.
fn record<T: lastwords::Field + Copy>(value: T) {
    event!(t9, "turns", turn_a = value, turn_b = value, turn_c = value, turn_d = value);
}

/// Each rule holds for what is recorded after it, and leaves the other fields as they are.
#[test]
fn rules_added_one_by_one() {
    alone!(in dir);
    let (_session, folder) = session("turns", dir.path(), "t9:*");
    let mut others = Vec::new();
    let mut expected = Vec::new();
    let mut hidden = String::new();
    for turn in 0..5u8 {
        record(u64::from(turn));
        record(u16::from(turn));
        for _ in 0..2 {
            let fields = ["a", "b", "c", "d"].map(|name| match hidden.contains(name) {
                true => format!("turn_{name}=\"<secret>\""),
                false => format!("turn_{name}={turn}"),
            });
            expected.push(format!("t9:turns {}", fields.join(" ")));
        }
        if let Some(name) = ["a", "b", "c", "d"].get(usize::from(turn)) {
            hidden.push_str(name);
            let builder = Session::builder("other").dir(dir.path()).events("none:*");
            others.push(builder.secret(format!("turn_{name}")).start().expect("a session"));
        }
    }
    assert_eq!(lines(&folder), expected);
}
