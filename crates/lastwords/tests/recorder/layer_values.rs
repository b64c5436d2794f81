//! Tests the values of `tracing` in shapes that are rare: optional fields in all combinations, many
//! fields, texts that do not fit, values in any order, spans of several recorders, and more kinds
//! of events than the registry has room for. What must be recorded is computed from the values
//! alone.
#![cfg(feature = "tracing")]

use lastwords_testkit::random::Random;
use lastwords_testkit::text::Text as _;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::{plain, start};
use crate::support;
use crate::support::{changed_texts, cut_values, open_spans};
use lastwords::{ChannelConfig, Session};
use tracing::field::Empty;
use tracing::{Dispatch, error, info, info_span};
use tracing_core::field::{FieldSet, Value};
use tracing_core::{Interest, Kind, Level, Metadata, identify_callsite};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

pub(crate) fn session(dir: &Path) -> (Session, PathBuf) {
    let main = plain("main").sub_buffers(16, 64 << 10);
    let errors = ChannelConfig::errors().contexts(lastwords::Context::NONE);
    let builder = Session::builder("values").dir(dir).channel(main).channel(errors);
    start(builder.events("*layer*:*").events("span:*"))
}

pub(crate) fn on_a_registry() -> Dispatch {
    Dispatch::new(tracing_subscriber::registry().with(lastwords::layer::layer()))
}

/// Runs the test with the layer and with the subscriber, each in a session of its own.
fn with_each(run: impl Fn(&Path)) {
    for recorder in [on_a_registry(), Dispatch::new(lastwords::layer::subscriber())] {
        let dir = tempfile::tempdir().expect("a folder");
        let (session, folder) = session(dir.path());
        tracing::dispatcher::with_default(&recorder, || run(&folder));
        drop(session);
    }
}

/// Returns the lines of the main channel.
pub(crate) fn lines(folder: &Path) -> Vec<String> {
    let lines =
        support::channel_lines(folder, 0).into_iter().filter(|line| line.0 == 0).map(|line| line.2);
    support::with_ids_renamed(lines)
}

/// Returns the fields of a line, without the event's name.
fn fields(line: &str) -> &str {
    line.split_once(' ').map_or("", |(_, fields)| fields)
}

/// Returns the text of a field, whose value has no quotes.
fn text<'l>(line: &'l str, field: &str) -> &'l str {
    let start = line.find(&format!("{field}=\"")).unwrap_or_else(|| panic!("{field} of {line}"));
    line[start..].split('"').nth(1).expect("a quoted text")
}

/// Returns the number of descriptions of events with this name.
fn classes(folder: &Path, name: &str) -> usize {
    support::places(folder).into_iter().filter(|(of, _)| of == name).count()
}

#[test]
fn optional_fields_in_all_combinations_have_few_classes() {
    alone!();
    with_each(|folder| {
        let mut expected = Vec::new();
        let mut order: Vec<u64> = (0..1 << 12).collect();
        // Any order, so that no class is the last one by chance.
        order.sort_by_key(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for bits in order {
            let has = |bit: u64| bits >> bit & 1 == 1;
            let text = format!("t{bits}");
            info!(
                bits,
                a = has(0).then_some(1u64),
                b = has(1).then_some(-2i64),
                c = has(2).then_some(0.5),
                d = has(3).then_some(true),
                e = has(4).then_some(text.as_str()),
                f = has(5).then_some(6u64),
                g = has(6).then_some(7u64),
                h = has(7).then_some(8u64),
                i = has(8).then_some(9u64),
                j = has(9).then_some(10u64),
                k = has(10).then_some("eleven"),
                l = has(11).then_some(12u64),
                "optional"
            );
            let values = [
                "1",
                "-2",
                "0.5",
                "true",
                &format!("{text:?}"),
                "6",
                "7",
                "8",
                "9",
                "10",
                "\"eleven\"",
                "12",
            ];
            let shown = (0..12).zip('a'..).filter(|(bit, _)| has(*bit));
            let shown: String =
                shown.map(|(bit, name)| format!(" {name}={}", values[bit as usize])).collect();
            expected.push(format!("recorder::layer_values:optional bits={bits}{shown}"));
        }
        assert_eq!(lines(folder), expected);
        let classes = classes(folder, "optional");
        assert!(classes <= 2 * 12 + 1, "{classes} classes for 12 optional fields");
    });
}

/// A place where values of any type are recorded.
fn generic<T: Value>(value: T) {
    info!(value, "generic");
}

#[test]
fn a_field_of_many_types_keeps_its_values() {
    alone!();
    with_each(|folder| {
        generic(1u8);
        generic(-1i8);
        generic("text");
        generic(0.25);
        generic(true);
        let shown: Vec<_> = lines(folder).iter().map(|line| fields(line).to_owned()).collect();
        assert_eq!(shown, ["value=1", "value=-1", "value=\"text\"", "value=0.25", "value=true"]);
    });
}

/// Fields whose types change with each event: the values are as they were, whatever class they are
/// in.
#[test]
fn types_that_change_at_random_have_a_limited_number_of_classes() {
    alone!();
    fn value(kind: u64) -> Box<dyn Value> {
        match kind % 4 {
            0 => Box::new(kind),
            1 => Box::new(-(kind as i64)),
            2 => Box::new(kind % 8 == 2),
            _ => Box::new(format!("t{kind}")),
        }
    }
    fn shown(kind: u64) -> String {
        match kind % 4 {
            0 => kind.to_string(),
            1 => format!("-{kind}"),
            2 => (kind % 8 == 2).to_string(),
            _ => format!("\"t{kind}\""),
        }
    }
    with_each(|folder| {
        let mut random = Random(1);
        let mut expected = Vec::new();
        for _ in 0..1500 {
            let mut kind = || random.below(1 << 14);
            let kinds = [kind(), kind(), kind(), kind(), kind()];
            let [a, b, c, d, e] = kinds.map(value);
            info!(a = &*a, b = &*b, c = &*c, d = &*d, e = &*e, "changing");
            let values =
                kinds.iter().zip('a'..).map(|(kind, name)| format!("{name}={}", shown(*kind)));
            expected.push(values.collect::<Vec<_>>().join(" "));
        }
        // Beyond the limit of classes, numbers are texts.
        let shown: Vec<_> =
            lines(folder).iter().map(|line| fields(line).replace('"', "")).collect();
        let expected: Vec<_> = expected.iter().map(|line| line.replace('"', "")).collect();
        assert_eq!(shown, expected);
        let classes = classes(folder, "changing");
        assert!(classes <= 60, "{classes} classes");
    });
}

/// A callsite that is made while the program runs.
struct Made {
    metadata: std::sync::OnceLock<Metadata<'static>>,
}

impl tracing_core::Callsite for Made {
    fn set_interest(&self, _: Interest) {}
    fn metadata(&self) -> &Metadata<'_> {
        self.metadata.get().expect("set when it is made")
    }
}

fn made(name: &'static str, names: Vec<&'static str>) -> &'static Metadata<'static> {
    let site: &'static Made = Box::leak(Box::new(Made { metadata: std::sync::OnceLock::new() }));
    let fields = FieldSet::new(Vec::leak(names), identify_callsite!(site));
    site.metadata.get_or_init(|| {
        Metadata::new(name, "layer", Level::INFO, None, None, None, fields, Kind::EVENT)
    })
}

#[test]
fn any_number_of_fields() {
    alone!();
    with_each(|folder| {
        macro_rules! event {
            ($count:literal) => {{
                let names = (0..$count).map(|n| &*String::leak(format!("f{n}"))).collect();
                let metadata = made("many", names);
                let values: [u64; $count] = std::array::from_fn(|n| n as u64 * 3);
                let fields: Vec<_> = metadata.fields().iter().collect();
                let pairs: [_; $count] =
                    std::array::from_fn(|n| (&fields[n], Some(&values[n] as &dyn Value)));
                tracing_core::Event::dispatch(metadata, &metadata.fields().value_set(&pairs));
                let last = lines(folder).pop().expect("an event");
                let expected: String = (0..$count).map(|n| format!(" f{n}={}", n * 3)).collect();
                assert_eq!(last, format!("layer:many{expected}"));
            }};
        }
        event!(40);
        event!(41);
        event!(46);
        event!(64);
        event!(255);
        event!(256);
        event!(400);
        assert_eq!(cut_values(folder), 0);
        // 600 numbers have no room: the first ones are there, and the others are counted.
        let names = (0..600).map(|n| &*String::leak(format!("f{n}"))).collect();
        let metadata = made("too many", names);
        let fields: Vec<_> = metadata.fields().iter().collect();
        let pairs: [_; 600] = std::array::from_fn(|n| (&fields[n], Some(&7u64 as &dyn Value)));
        tracing_core::Event::dispatch(metadata, &metadata.fields().value_set(&pairs));
        let last = lines(folder).pop().expect("an event");
        let recorded = last.matches("=7").count() as u64;
        assert!(
            recorded >= 400 && recorded + cut_values(folder) == 600,
            "{recorded} + {}",
            cut_values(folder)
        );
    });
}

#[test]
fn texts_share_the_room() {
    alone!();
    with_each(|folder| {
        info!(body = %"B".repeat(5000), user = "ada", n = 7, err = ?Some("disk full"), "request");
        info!(user = "ada", body = "é".repeat(3000).as_str(), "request 2");
        info!("{} {}", "C".repeat(5000), "tail");
        assert_eq!(cut_values(folder), 3);
        let lines = lines(folder);
        let body = text(&lines[0], "body");
        assert!(
            body.len() > 3000
                && body.trim_end_matches('…').bytes().all(|byte| byte == b'B')
                && body.ends_with('…')
        );
        lines[0].ends(" user=\"ada\" n=7 err=\"Some(\\\"disk full\\\")\"");
        let body = text(&lines[1], "body");
        assert!(
            body.len() > 3000
                && body.trim_end_matches('…').chars().all(|c| c == 'é')
                && body.ends_with('…')
        );
        lines[1].has(" user=\"ada\"");
        text(&lines[2], "message").ends("C…");
    });
}

/// Texts of random sizes in random places: those that are not cut are whole, and those that are cut
/// have equal shares, of which no whole text has more.
#[test]
fn shares_are_fair() {
    alone!();
    with_each(|folder| {
        let mut random = Random(7);
        let mut below = |most| random.index(most);
        let mut cut = 0;
        for round in 0..200 {
            let mut size = || if below(3) == 0 { below(5000) } else { below(40) };
            let sizes = [size(), size(), size(), size(), size()];
            let [a, b, c, d, e] = sizes.map(|size| "x".repeat(size));
            info!(a, b = %b, round, c = ?format_args!("{c}"), d = d.as_str(), "{e}");
            let line = lines(folder).pop().expect("an event");
            let found = ["a", "b", "c", "d", "message"].map(|field| text(&line, field));
            let is_cut = |at: &usize| found[*at].ends_with('…');
            let shares: Vec<usize> = (0..5).filter(is_cut).map(|at| found[at].len()).collect();
            let share = shares.iter().copied().max().unwrap_or(usize::MAX);
            assert!(shares.iter().all(|len| share - len <= 3), "{sizes:?}: {shares:?}");
            for at in (0..5).filter(|at| !is_cut(at)) {
                assert_eq!(found[at].len(), sizes[at], "{sizes:?}");
                assert!(sizes[at] <= share.saturating_add(3), "{sizes:?}");
            }
            assert!(sizes.iter().sum::<usize>() > 3072 || shares.is_empty(), "{sizes:?}");
            line.has(&format!(" round={round}"));
            cut += shares.len() as u64;
            assert_eq!(cut_values(folder), cut);
        }
        assert!(cut > 50);
    });
}

/// A text ends at its first NUL, so that each NUL inside is replaced. Such texts are counted, in
/// fields and in the spans of events.
#[test]
fn texts_with_nuls_are_counted() {
    alone!();
    with_each(|folder| {
        info!(a = "plain", b = "\x1a", "no NUL");
        assert_eq!(changed_texts(folder), 0);
        info!(a = "x\0y", b = %"long enough for words\0", c = ?"escaped\0", d = 0, "fields");
        assert_eq!(changed_texts(folder), 2);
        lines(folder).pop().expect("an event").has("a=\"x\\u{1a}y\"");
        info!("a message {}", "with\0 one");
        assert_eq!(changed_texts(folder), 3);
        let span = info_span!("outer", who = %"a\0da");
        let new = changed_texts(folder);
        assert!(new > 3, "the event of the new span: {new}");
        span.in_scope(|| info!("inside"));
        assert_eq!(changed_texts(folder), new + 1, "the text of the span");
        span.in_scope(|| lastwords::event!(layer, "inside", a = "\0", b = 0));
        assert_eq!(changed_texts(folder), new + 3, "the text of the span and a field");
        info!(a = "\0".repeat(5000), "cut too");
        assert_eq!((changed_texts(folder), cut_values(folder)), (new + 4, 1));
    });
}

/// A text of which not even the mark of its cut has room is left out, and is counted.
#[test]
fn no_text_is_cut_without_a_mark() {
    alone!();
    with_each(|folder| {
        let names = (0..510).map(|n| &*String::leak(format!("f{n}"))).collect();
        let metadata = made("full", names);
        let fields: Vec<_> = metadata.fields().iter().collect();
        let text = "t".repeat(50);
        let value = |n: usize| if n < 380 { &7u64 as &dyn Value } else { &text as &dyn Value };
        let pairs: [_; 510] = std::array::from_fn(|n| (&fields[n], Some(value(n))));
        tracing_core::Event::dispatch(metadata, &metadata.fields().value_set(&pairs));
        let last = lines(folder).pop().expect("an event");
        assert_eq!((last.matches("=7").count(), cut_values(folder)), (380, 130));
        last.lacks("=\"\"");
    });
}

/// A callsite of many fields whose types change leaves room in the registry for other events.
#[test]
fn many_fields_of_many_types_have_few_classes() {
    alone!();
    with_each(|folder| {
        let names = (0..400).map(|n| &*String::leak(format!("field_number_{n}"))).collect();
        let metadata = made("wide", names);
        let fields: Vec<_> = metadata.fields().iter().collect();
        let kinds: [&dyn Value; 4] = [&7u64, &-7i64, &true, &"t"];
        for event in 0..150usize {
            let value = |n: usize| kinds[event.wrapping_mul(2_654_435_761) >> (n % 16) & 3];
            let pairs: [_; 400] = std::array::from_fn(|n| (&fields[n], Some(value(n))));
            tracing_core::Event::dispatch(metadata, &metadata.fields().value_set(&pairs));
        }
        info!("another kind");
        let lines = lines(folder);
        assert_eq!(
            (lines.len(), lines.last().map(String::as_str)),
            (151, Some("recorder::layer_values:another kind"))
        );
        assert!(classes(folder, "wide") < 30, "{}", classes(folder, "wide"));
    });
}

#[test]
fn an_event_keeps_a_name_of_its_own() {
    alone!();
    with_each(|folder| {
        info!(name: "event horizon", "constant");
        info!(name: "log event", n = 1);
        assert_eq!(
            lines(folder),
            [
                "recorder::layer_values:event horizon message=\"constant\"",
                "recorder::layer_values:log event n=1"
            ]
        );
    });
}

/// A span that a filter hides from the layer is no parent.
#[test]
fn the_parent_is_the_nearest_span_that_the_layer_sees() {
    alone!(in dir);
    let (_session, folder) = session(dir.path());
    let layer =
        lastwords::layer::layer().with_filter(tracing_subscriber::filter::LevelFilter::INFO);
    // The other layer sees all spans.
    let other = tracing_subscriber::layer::Identity::new();
    let recorder = Dispatch::new(tracing_subscriber::registry().with(layer).with(other));
    tracing::dispatcher::with_default(&recorder, || {
        let outer = info_span!("outer");
        let hidden = tracing::debug_span!(parent: &outer, "hidden");
        let _inner = info_span!(parent: &hidden, "inner");
        let alone = tracing::debug_span!(parent: None, "alone");
        let _root = info_span!(parent: &alone, "root");
        let expected = [
            "span:new recorder::layer_values::outer span_id=#1 parent_id=#0",
            "span:new recorder::layer_values::inner span_id=#2 parent_id=#1",
            "span:new recorder::layer_values::root span_id=#3 parent_id=#0",
        ];
        assert_eq!(lines(&folder), expected);
    });
}

#[test]
fn values_in_any_order() {
    alone!();
    with_each(|folder| {
        let span = info_span!("ooo", x = Empty, y = Empty, z = Empty);
        tracing::record_all!(span, z = 3, x = 1, y = "two");
        span.in_scope(|| info!("inside"));
        assert_eq!(open_spans(folder), ["recorder::layer_values|ooo|x=1 y=two z=3"]);
        // The last value of a field counts.
        tracing::record_all!(span, y = "a longer text", y = " 2 ", x = 1.5, x = 7);
        span.record("z", 9);
        let expected = [
            "span:new recorder::layer_values::ooo span_id=#1 parent_id=#0",
            "span:record recorder::layer_values::ooo x=1 y=\"two\" z=3 span_id=#1",
            "recorder::layer_values:inside span=\"recorder::layer_values::ooo{x=1 y=two z=3}\" span_id=#1",
            "span:record recorder::layer_values::ooo x=7 y=\" 2 \" span_id=#1",
            "span:record recorder::layer_values::ooo z=9 span_id=#1",
        ];
        assert_eq!(lines(folder), expected);
        assert_eq!(open_spans(folder), ["recorder::layer_values|ooo|x=1 y=two z=3 x=7 y= 2  z=9"]);
    });
}

/// Spans of several recorders have the same ids. Each event must have the span that its own
/// recorder was in.
#[test]
fn spans_of_several_recorders_are_kept_apart() {
    alone!(in dir);
    let (_session, folder) = session(dir.path());
    let recorders = [
        on_a_registry(),
        on_a_registry(),
        Dispatch::new(lastwords::layer::subscriber()),
        on_a_registry(),
    ];
    let names = ["a", "b", "c", "d"];
    let span = |of: usize| {
        tracing::dispatcher::with_default(&recorders[of], || match of {
            0 => info_span!("a", who = "a"),
            1 => info_span!("b", who = "b"),
            2 => info_span!("c", who = "c"),
            _ => info_span!("d", who = "d"),
        })
    };
    let spans: Vec<_> = (0..4).map(span).collect();
    let mut expected = Vec::new();
    // Each recorder's events, while the thread is in the spans of some of them.
    for entered in 0..16usize {
        let inside: Vec<_> =
            (0..4).filter(|of| entered >> of & 1 == 1).map(|of| spans[of].enter()).collect();
        for (of, recorder) in recorders.iter().enumerate() {
            tracing::dispatcher::with_default(recorder, || info!(of, entered, "event"));
            let of_span = if entered >> of & 1 == 1 {
                let name = names[of];
                format!(" span=\"recorder::layer_values::{name}{{who={name}}}\"")
            } else {
                String::new()
            };
            expected
                .push(format!("recorder::layer_values:event of={of} entered={entered}{of_span}"));
        }
        let open: BTreeSet<String> = open_spans(&folder).into_iter().collect();
        let name = |of: usize| {
            let is_in = if entered >> of & 1 == 1 { " entered" } else { "" };
            format!("recorder::layer_values|{0}|who={0}{is_in}", names[of])
        };
        assert_eq!(open, (0..4).map(name).collect(), "{entered:b}");
        drop(inside);
    }
    let lines =
        lines(&folder).into_iter().filter(|line| line.starts_with("recorder::layer_values:"));
    let lines: Vec<_> =
        lines.map(|line| line.split(" span_id=").take(1).collect::<String>()).collect();
    assert_eq!(lines, expected);
    let mut spans = spans;
    drop(spans.remove(1));
    assert_eq!(open_spans(&folder).len(), 3);
}

#[test]
fn the_last_kinds_of_events_are_errors() {
    alone!();
    let ended = ended!(dir, {
        let _session = session(&dir);
        tracing::dispatcher::with_default(&Dispatch::new(lastwords::layer::subscriber()), || {
            // More kinds of events than the registry has room for.
            for n in 0..6000 {
                let name = &*String::leak(format!("{n:0>90}"));
                let metadata = made(name, vec!["x"]);
                let field = metadata.fields().field("x").expect("it has one");
                let values = [(&field, Some(&1u64 as &dyn Value))];
                tracing_core::Event::dispatch(metadata, &metadata.fields().value_set(&values));
            }
            lastwords::event!(layer, "of our own", x = 1u8);
            lastwords::event!(layer, "the last of our own", level: ERROR, x = 2u8);
            error!(code = 5, "this is what ended us");
        });
        // SAFETY: the call involves no memory.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    });
    assert_eq!(
        classes(&ended.folder, &format!("{:0>90}", 5999)) + classes(&ended.folder, "of our own"),
        0,
        "the registry is full"
    );
    let lines = support::channel_lines(&ended.folder, 0);
    let errors: Vec<_> =
        lines.iter().filter(|line| line.1 == 1).map(|line| (line.0, &*line.2)).collect();
    let [own, last] =
        ["layer:the last of our own x=2", "recorder::layer_values:this is what ended us code=5"];
    assert_eq!(errors, [(0, own), (1, own), (0, last), (1, last)]);
}

#[test]
fn a_filter_knows_which_fields_an_event_lacks() {
    alone!(in dir);
    let main = plain("main");
    let (session, folder) = start(Session::builder("filter").dir(dir.path()).channel(main));
    let wanted = |n: u64| {
        (n.is_multiple_of(2)).then_some(n).is_some_and(|a| a > 10)
            || n.is_multiple_of(5) && n.is_multiple_of(3)
    };
    let rule = lastwords::rules::RuleSpec::enable("recorder::layer*:*")
        .with_filter("a > 10 || b == \"five\" && c == 3");
    session.rule(&rule).expect("a rule");
    tracing::dispatcher::with_default(&Dispatch::new(lastwords::layer::subscriber()), || {
        for n in 0..200u64 {
            let (a, b, c) = (
                (n % 2 == 0).then_some(n),
                (n % 5 == 0).then_some("five"),
                (n % 3 == 0).then_some(3),
            );
            info!(a, b, n, c, "filtered");
        }
    });
    let number = |line: &String| line.split(" n=").nth(1)?.split(' ').next()?.parse().ok();
    let found: Vec<u64> = lines(&folder).iter().filter_map(number).collect();
    assert_eq!(found, (0..200).filter(|n| wanted(*n)).collect::<Vec<_>>());
}
