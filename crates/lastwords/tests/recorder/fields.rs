//! Records every type of field, every size of text, markers, levels, contexts and several sessions,
//! and reads them back.

use crate::common;
use crate::common::{lost_by, plain, start};
use crate::registries::Held;
use crate::support;
use crate::support::{changed_texts, lines, lines_after};
use lastwords::context::UserContext;
use lastwords::{ChannelConfig, FieldType, Session, event, hex, mark};
use lastwords_abi::stream::LOST_LOCK;

pub(crate) fn session(
    name: &str,
    dir: &std::path::Path,
    glob: &str,
) -> (Session, std::path::PathBuf) {
    let channel = plain("main");
    start(Session::builder(name).dir(dir).channel(channel).events(glob))
}

#[derive(Clone, Copy)]
enum State {
    Idle,
    Busy = 7,
}
lastwords::labels!(State as u8 { Idle => "idle", Busy => "busy" });

#[derive(Clone, Copy)]
enum Sign {
    Minus = -1,
}
lastwords::labels!(Sign as i16 { Minus => "minus" });

#[test]
fn every_type() {
    alone!(in dir);
    let (_session, folder) = session("types", dir.path(), "t1:*");
    event!(t1, "unsigned", a = 1u8, b = 2u16, c = 3u32, d = u64::MAX, e = 5usize);
    event!(t1, "signed", a = -1i8, b = -2i16, c = -3i32, d = i64::MIN, e = -5isize);
    event!(t1, "float", a = 0.5f32, b = -1e300f64, yes = true, no = false);
    event!(
        t1,
        "hex",
        a = hex(0xabu8),
        b = hex(0xdead_beefu32),
        c = hex(-1i16),
        d = [hex(1u16), hex(255)]
    );
    event!(t1, "hexes", a = &[hex(1u64), hex(u64::MAX)][..]);
    event!(t1, "pointer", p = std::ptr::without_provenance::<u8>(0x1000));
    event!(t1, "arrays", a = [1u16, 2, 3], b = [0.5f64; 2], c = [7u8; 3], none = [0u32; 0]);
    event!(
        t1,
        "slices",
        a = &[1u32, 2][..],
        b = vec![-1i64],
        bytes = &b"\x01\xff"[..],
        none = &[0u16; 0][..]
    );
    let owned = String::from("owned");
    event!(t1, "texts", a = "text", owned, c = std::borrow::Cow::Borrowed("cow"), d = 'é', e = "");
    event!(t1, "labels", a = State::Idle, b = State::Busy, c = Sign::Minus);
    event!("t1", "nothing", r#type = 1u8);
    event!(t1, "mixed", a = 1u8, s = "x", b = 2u64, s2 = "yz", c = -3i16);
    let expected = [
        "t1:unsigned a=1 b=2 c=3 d=18446744073709551615 e=5",
        "t1:signed a=-1 b=-2 c=-3 d=-9223372036854775808 e=-5",
        &format!("t1:float a=0.5 b={} yes=true no=false", -1e300f64),
        "t1:hex a=0xab b=0xdeadbeef c=0xffff d=[0x1 0xff]",
        "t1:hexes a=[0x1 0xffffffffffffffff]",
        "t1:pointer p=0x1000",
        "t1:arrays a=[1 2 3] b=[0.5 0.5] c=[7 7 7] none=[]",
        "t1:slices a=[1 2] b=[-1] bytes=01ff none=[]",
        "t1:texts a=\"text\" owned=\"owned\" c=\"cow\" d=\"é\" e=\"\"",
        "t1:labels a=idle b=busy c=minus",
        "t1:nothing type=1",
        "t1:mixed a=1 s=\"x\" b=2 s2=\"yz\" c=-3",
    ];
    assert_eq!(lines(&folder), expected);
}

#[test]
fn texts_of_every_length() {
    alone!(in dir);
    let (_session, folder) = session("texts", dir.path(), "t2:*");
    let mut expected = Vec::new();
    let lengths = (0..140).chain([250, 255, 256, 257, 300, 2040, 2047, 2048, 2049, 5000]);
    for len in lengths {
        let text: String = (0..len).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
        event!(t2, "last", a = 7u32, b = u64::MAX, s = text);
        event!(t2, "first", s = text, a = 7u32, b = 9u8);
        expected.push(format!("t2:last a=7 b=18446744073709551615 s={text:?}"));
        expected.push(format!("t2:first s={text:?} a=7 b=9"));
    }
    assert_eq!(lines(&folder), expected);
}

#[test]
fn inner_nuls_become_sub() {
    alone!(in dir);
    let (_session, folder) = session("nuls", dir.path(), "t3:*");
    let mut expected = Vec::new();
    for len in [1, 2, 7, 8, 9, 15, 16, 17, 40, 100, 300, 3000] {
        for at in [0, len / 2, len - 1] {
            let mut text = vec![b'x'; len];
            text[at] = 0;
            let text = String::from_utf8(text).expect("text");
            event!(t3, "nul", a = 1u32, s = text);
            expected.push(format!("t3:nul a=1 s={:?}", text.replace('\0', "\x1a")));
        }
    }
    assert_eq!(lines(&folder), expected);
    assert_eq!(changed_texts(&folder), expected.len() as u64);
    let (whole, nul) = (Some("whole"), "a\0b".to_owned());
    event!(t3, "others", s = whole, o = Some(nul.as_str()), c = b"\0\0", n = [0u8; 9]);
    event!(t3, "sub", s = "a real \x1a is as it was");
    assert_eq!(changed_texts(&folder), expected.len() as u64 + 1, "an option of text");
    // Two texts of each event in each of two forms: in one piece, and in several.
    let long = "x".repeat(3000);
    event!(t3, "two", a = nul, b = ?nul.as_bytes(), c = "\0\0", d = "none");
    event!(t3, "long", a = long, b = nul, c = "\0\0");
    assert_eq!(changed_texts(&folder), expected.len() as u64 + 5);
}

#[test]
fn long_payloads_and_too_long_ones() {
    alone!(in dir);
    let (_session, folder) = session("long", dir.path(), "t4:*");
    let slice: Vec<u64> = (0..4000).collect();
    let text = "y".repeat(10_000);
    event!(t4, "long", a = 1u8, slice = slice, s = text, array = [9u16; 600], z = 2u8);
    let nul_text = format!("{}\0{}", "a".repeat(3000), "b".repeat(3000));
    event!(t4, "pieces", s = nul_text);
    event!(t4, "refused", s = "z".repeat(70_000));
    event!(t4, "refused", s = "\0".repeat(10_000));
    event!(t4, "after");
    let shown = lines(&folder);
    assert_eq!(shown.len(), 3);
    assert!(shown[0].contains("3998 3999] s=\"yyy"), "{}", &shown[0][..100]);
    assert!(shown[0].ends_with("9 9] z=2"));
    assert_eq!(shown[1], format!("t4:pieces s={:?}", nul_text.replace('\0', "\x1a")));
    assert_eq!(shown[2], "t4:after");
}

#[test]
fn markers_and_levels() {
    alone!(in dir);
    let channel = ChannelConfig::new("main").contexts(lastwords::Context::NONE);
    let few = ChannelConfig::new("few")
        .contexts(lastwords::Context::NONE)
        .max_level(lastwords::Level::Warn);
    let builder = Session::builder("marks").dir(dir.path()).channel(channel).channel(few);
    let (_session, folder) = start(builder.events("marker:t5*").events("t5:*"));
    let (prev, next) = (1u32, "two");
    mark!("t5 nothing");
    mark!("t5 prev {} next {}", prev, next);
    mark!("t5 {name} and {} and {}", 1u8, name = "n", -2i64,);
    event!(t5, "bad", level: ERROR, code = 3u8);
    event!(t5, "so so", level: WARN);
    event!(t5, "fine", level: DEBUG);
    let shown = support::channel_lines(&folder, 0);
    let of = |channel| {
        shown
            .iter()
            .filter(move |e| e.0 == channel)
            .map(|e| (e.1, e.2.as_str()))
            .collect::<Vec<_>>()
    };
    let main = [
        (3, "marker:t5 nothing"),
        (3, "marker:t5 prev {} next {} arg0=1 arg1=\"two\""),
        (3, "marker:t5 {name} and {} and {} arg0=1 name=\"n\" arg1=-2"),
        (1, "t5:bad code=3"),
        (2, "t5:so so"),
        (4, "t5:fine"),
    ];
    assert_eq!(of(0), main);
    assert_eq!(of(1), [(1, "t5:bad code=3"), (2, "t5:so so")]);
}

#[test]
fn contexts_before_the_payload() {
    alone!(in dir);
    let channel = ChannelConfig::new("main")
        .contexts(lastwords::Context::ALL)
        .context(UserContext::new("request", || 0x1122u16));
    let (_session, folder) =
        start(Session::builder("contexts").dir(dir.path()).channel(channel).events("t6:*"));
    let record = || event!(t6, "one", text = "a text that is longer than sixteen bytes", n = 5u64);
    std::thread::Builder::new()
        .name("worker".into())
        .spawn(record)
        .expect("a thread")
        .join()
        .expect("it ends");
    event!(t6, "big", text = "b".repeat(500));
    event!(t6, "huge", text = "c".repeat(5000));
    let shown = lines_after(&folder, 4 + 4 + 16 + 4 + 2);
    assert_eq!(shown[0], "t6:one text=\"a text that is longer than sixteen bytes\" n=5");
    assert_eq!((shown[1].len(), shown[2].len()), (514, 5015));
    let events = common::events(&folder);
    let first =
        events.iter().map(|(_, event)| event).min_by_key(|event| event.clock).expect("an event");
    assert_eq!(first.body[..4], std::process::id().to_ne_bytes());
    assert_ne!(first.body[4..8], std::process::id().to_ne_bytes());
    assert_eq!(&first.body[8..24], b"worker\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(first.body[28..30], 0x1122u16.to_ne_bytes());
}

#[test]
fn contexts_whose_type_is_known_late() {
    alone!(in dir);
    let number = FieldType::Unsigned { bytes: 8, base: 10 };
    let fill = |room: &mut [u8]| room.copy_from_slice(&(room.as_ptr().addr() % 16).to_ne_bytes());
    let number = UserContext::of_type("place", number, fill).expect("a size");
    let text = UserContext::of_type(String::from("text"), FieldType::Text { bytes: 8 }, |room| {
        room[0] = b'x'
    });
    let text = text.expect("a size");
    assert!(UserContext::of_type("none", FieldType::String, |_| ()).is_none());
    let channel = ChannelConfig::new("main")
        .contexts(lastwords::Context::NONE)
        .context(UserContext::new("all", || u64::MAX));
    let channel = channel.context(number).context(text);
    let builder = Session::builder("late").dir(dir.path()).channel(channel).events("late:*");
    let session = builder.start().expect("a session");
    event!(late, "one");
    let events = common::events(&common::folder(&session));
    let expected = [&[0xff; 8][..], &[0; 8], b"x\0\0\0\0\0\0\0"].concat();
    assert_eq!(events.iter().map(|(_, event)| &event.body).collect::<Vec<_>>(), [&expected]);
}

#[test]
fn thread_ids_alone() {
    alone!(in dir);
    let channel = ChannelConfig::new("main").contexts(lastwords::Context::TID);
    let (_session, folder) =
        start(Session::builder("tids").dir(dir.path()).channel(channel).events("t7:*"));
    for len in [0, 1, 3, 4, 7, 8, 9, 16, 24, 40, 100, 300, 3000] {
        event!(t7, "text", n = len as u32, s = "q".repeat(len));
        event!(t7, "fixed", n = len as u64);
    }
    // SAFETY: the call has no arguments.
    let me = unsafe { libc::gettid() }.to_ne_bytes();
    let events = common::events(&folder);
    assert!(events.iter().all(|(_, event)| event.body[..4] == me));
    let shown = lines_after(&folder, 4);
    assert_eq!(shown.len(), 26);
    assert_eq!(shown[24], format!("t7:text n=3000 s={:?}", "q".repeat(3000)));
}

#[test]
fn several_sessions_take_one_event() {
    alone!(in dir);
    let (first, first_folder) = session("first", dir.path(), "t8:*");
    let record = |n: u32| event!(t8, "number", n, s = "text");
    record(1);
    let (second, second_folder) = session("second", dir.path(), "t8:*");
    record(2);
    first.disable("t8:*").expect("a rule");
    record(3);
    first.enable("t8:*").expect("a rule");
    second.stop();
    record(4);
    first.remove();
    second.resume();
    record(5);
    let shown = lines(&second_folder);
    assert_eq!(
        shown,
        ["t8:number n=2 s=\"text\"", "t8:number n=3 s=\"text\"", "t8:number n=5 s=\"text\""]
    );
    assert!(!first_folder.exists());
}

#[test]
fn disabled_values_are_not_evaluated() {
    alone!(in dir);
    let (session, folder) = session("lazy", dir.path(), "t9:*");
    session.disable("t9:*").expect("a rule");
    let mut evaluated = 0;
    for round in 0..3 {
        if round == 2 {
            session.enable("t9:*").expect("a rule");
        }
        event!(
            t9,
            "value",
            n = {
                evaluated += 1;
                evaluated
            }
        );
    }
    // When a callsite is reached for the first time, it is evaluated after the values.
    assert_eq!(evaluated, 2);
    assert_eq!(lines(&folder), ["t9:value n=2"]);
}

fn show<T: lastwords::Field>(value: T, tail: u16) {
    event!(t10, "value", value, tail);
    mark!("t10 {}", value);
}

/// A text of eight bytes.
#[derive(Clone, Copy)]
struct Name;

impl lastwords::Field for Name {
    const TYPE: lastwords::FieldType = lastwords::FieldType::Text { bytes: 8 };
    const FIXED: Option<usize> = Some(8);
    type Short<'a> = Self;

    fn short(&self) -> Self {
        *self
    }

    fn write(&self, out: &mut impl lastwords::Out) {
        out.raw(b"a name\0\0");
    }
}

#[derive(Clone, Copy)]
enum OneAsA {
    One = 1,
}
lastwords::labels!(OneAsA as u8 { One => "a" });

#[derive(Clone, Copy)]
enum OneAsB {
    One = 1,
}
lastwords::labels!(OneAsB as u8 { One => "b" });

#[test]
fn a_generic_function_has_an_event_for_each_type() {
    alone!(in dir);
    let channel = ChannelConfig::new("main").contexts(lastwords::Context::NONE);
    let builder = Session::builder("generic")
        .dir(dir.path())
        .channel(channel)
        .events("t10:*")
        .events("marker:t10*");
    let (session, folder) = start(builder);
    let mut expected = Vec::new();
    let many = format!("[{}]", ["1"; 258].join(" "));
    for round in 0..3u16 {
        show(7u8, round);
        show(7u16, round);
        show(hex(7u16), round);
        show(-7i16, round);
        show(0.25f32, round);
        show(1.5f64, round);
        show(true, round);
        show("a text", round);
        show(&b"\x01\xff"[..], round);
        show(&[7u16][..], round);
        show(&[true][..], round);
        show([1u16, 2], round);
        show([1u16, 2, 3], round);
        show([1u16; 258], round);
        show(Name, round);
        show(OneAsA::One, round);
        show(OneAsB::One, round);
        show(Sign::Minus, round);
        let numbers = ["7", "7", "0x7", "-7", "0.25", "1.5", "true"];
        let lists = ["\"a text\"", "01ff", "[7]", "[true]", "[1 2]", "[1 2 3]", &many];
        for value in numbers.iter().chain(&lists).chain(&["a name", "a", "b", "minus"]) {
            expected.push(format!("t10:value value={value} tail={round}"));
            expected.push(format!("marker:t10 {{}} arg0={value}"));
        }
        session.disable("t10:value").expect("a rule");
        show(8u8, 99);
        expected.push("marker:t10 {} arg0=8".into());
        session.enable("t10:value").expect("a rule");
    }
    assert_eq!(lines(&folder), expected);
}

/// A value that claims to be large, and to be nothing, and writes 4 bytes.
#[derive(Clone, Copy)]
struct Liar;

impl lastwords::Field for Liar {
    const TYPE: lastwords::FieldType = lastwords::FieldType::Text { bytes: 28 };
    const FIXED: Option<usize> = Some(28);
    type Short<'a> = Self;

    fn short(&self) -> Self {
        *self
    }

    fn size(&self) -> usize {
        0
    }

    fn write(&self, out: &mut impl lastwords::Out) {
        out.raw(b"lies");
    }
}

#[test]
fn a_field_that_lies_of_its_size_is_as_large_as_its_type() {
    alone!(in dir);
    let (_session, folder) = session("liar", dir.path(), "t11:*");
    for n in 0..10u32 {
        event!(t11, "liar", liar = Liar);
        event!(t11, "next", n);
    }
    let expected: Vec<_> =
        (0..10).flat_map(|n| ["t11:liar liar=lies".into(), format!("t11:next n={n}")]).collect();
    assert_eq!(lines(&folder), expected);
}

#[test]
fn an_event_that_cannot_be_made_known_now_is_counted_and_known_later() {
    alone!(in dir);
    let (session, folder) = session("held", dir.path(), "t12:*");
    let record = |n: u32| event!(t12, "number", n);
    let held = Held::new(&session);
    record(1);
    record(2);
    drop(held);
    record(3);
    assert_eq!(lines(&folder), ["t12:number n=3"]);
    assert_eq!(lost_by(&folder, LOST_LOCK..=LOST_LOCK), 2);
}

#[test]
fn whether_an_event_is_enabled() {
    alone!(in dir);
    let asked = || {
        (
            lastwords::event_enabled!(t15, "asked"),
            lastwords::event_enabled!("t15", "other", level: DEBUG),
        )
    };
    assert_eq!(asked(), (false, false), "no session");
    let (session, folder) = session("asked", dir.path(), "t15:*");
    assert_eq!(asked(), (true, true));
    session.disable("t15:asked").expect("a rule");
    assert_eq!(asked(), (false, true));
    drop(session);
    assert_eq!(asked(), (false, false), "it has ended");
    assert!(
        !folder.join("stream-0000").exists() || lines(&folder).is_empty(),
        "asking records nothing"
    );
}

#[test]
fn raw_identifiers_name_fields_without_their_mark() {
    alone!();
    assert_eq!(
        ["r#type", "type", "r"].map(lastwords::__private::plain_name),
        ["type", "type", "r"]
    );
}
