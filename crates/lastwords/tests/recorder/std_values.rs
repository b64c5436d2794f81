//! Records values of the standard library, and values that are formatted.

use crate::fields::session;
use crate::support::{cut_values, lines};
use lastwords::event;

#[test]
fn values_of_the_standard_library() {
    alone!();
    use std::ffi::{CString, OsStr};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, UNIX_EPOCH};
    let dir = tempfile::tempdir().expect("a folder");
    let (_session, folder) = session("library", dir.path(), "t13:*");
    let none: Option<u16> = None;
    event!(t13, "options", a = Some(7u8), b = none, c = Some(-1i64), d = Some(true), tail = 9u8);
    let (text, nothing): (Option<&str>, Option<String>) = (Some("None"), None);
    event!(
        t13,
        "texts",
        text,
        nothing,
        owned = Some(String::from("a\0b")),
        empty = Some(""),
        tail = 9u8
    );
    event!(
        t13,
        "times",
        a = Duration::new(u64::MAX, 999_999_999),
        b = Duration::from_nanos(5),
        tail = 9u8
    );
    let before = UNIX_EPOCH - Duration::from_nanos(1);
    event!(
        t13,
        "clocks",
        a = UNIX_EPOCH + Duration::new(7, 8),
        b = before,
        c = UNIX_EPOCH - Duration::from_secs(3)
    );
    let path = PathBuf::from("/a/path");
    event!(
        t13,
        "paths",
        path,
        b = Path::new("b"),
        c = OsStr::from_bytes(b"\xff"),
        d = CString::from(c"text"),
        e = c""
    );
    let (four, six) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    event!(
        t13,
        "addresses",
        four,
        six,
        any = IpAddr::V6(six),
        socket = SocketAddr::from((four, 80)),
        tail = 9u8
    );
    let expected = [
        "t13:options a=[7] b=[] c=[-1] d=[true] tail=9",
        "t13:texts text=\"Some(None)\" nothing=\"None\" owned=\"Some(a\\u{1a}b)\" empty=\"Some()\" tail=9",
        "t13:times a=[18446744073709551615 999999999] b=[0 5] tail=9",
        "t13:clocks a=[7 8] b=[-1 999999999] c=[-3 0]",
        "t13:paths path=\"/a/path\" b=\"b\" c=\"\u{fffd}\" d=\"text\" e=\"\"",
        "t13:addresses four=\"127.0.0.1\" six=\"::1\" any=\"::1\" socket=\"127.0.0.1:80\" tail=9",
    ];
    assert_eq!(lines(&folder), expected);
    for len in [0, 1, 7, 60, 300, 3000, 9000] {
        event!(t13, "long", text = Some("x".repeat(len)), path = Path::new(&"y".repeat(len)));
    }
    let long = &lines(&folder)[expected.len()..];
    for (line, len) in long.iter().zip([0, 1, 7, 60, 300, 3000, 9000]) {
        assert_eq!(
            *line,
            format!("t13:long text=\"Some({})\" path={:?}", "x".repeat(len), "y".repeat(len))
        );
    }
    assert_eq!(long.len(), 7);
}

#[test]
fn values_that_are_formatted() {
    alone!();
    #[derive(Debug)]
    struct Point {
        x: i32,
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (_session, folder) = session("formatted", dir.path(), "t14:*");
    let (point, number, raw) = (Point { x: 3 }, 7u128, "a\0b");
    event!(t14, "both", ?point, again = ?&point, %number, shown = %number + 1, plain = 5u8, raw = %raw,);
    event!(t14, "level", level: WARN, inner = ?point.x, number = number as u64);
    for len in [250, 253, 254, 300] {
        event!(t14, "cut", ascii = %"a".repeat(len), wide = %"é".repeat(len / 2), tail = 9u8);
    }
    let cut = |text: String| match text.len() {
        ..=253 => format!("{text:?}"),
        // Each character has two bytes. A character that would not fit completely is left out.
        _ if text.starts_with('é') => format!("\"{}…\"", &text[..252]),
        _ => format!("\"{}…\"", &text[..253]),
    };
    let mut expected = vec![
        "t14:both point=\"Point { x: 3 }\" again=\"Point { x: 3 }\" number=\"7\" shown=\"8\" plain=5 raw=\"a\\u{1a}b\""
            .to_owned(),
        "t14:level inner=\"3\" number=7".into(),
    ];
    for len in [250, 253, 254, 300] {
        let (ascii, wide) = (cut("a".repeat(len)), cut("é".repeat(len / 2)));
        expected.push(format!("t14:cut ascii={ascii} wide={wide} tail=9"));
    }
    assert_eq!(lines(&folder), expected);
    assert_eq!(cut_values(&folder), 4, "two values of two events");
}
