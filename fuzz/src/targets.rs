//! The fuzz targets: functions that read any input. A target must never panic, hang or take memory
//! without bound.

use std::io::sink;
use std::sync::Arc;

use crate::image::{Bytes, Found, found_as, own_sessions, walk, walk_bytes};
use crate::scratch::file_of;
use crate::script::{self, Area, Input};
use lastwords_bytes::{Budget, ByteOrder};
use lastwords_ctf::session::Decoder;
use lastwords_ctf::{Version, read, write as ctf};
use lastwords_image::{Image, unwatched};
use lastwords_lttng::{self as lttng, user};
use lastwords_render::{evidence, json, otlp, perfetto, text};
use lastwords_session as session;
use lastwords_testkit::elf::{self, Segment};
use lastwords_testkit::naive;
use lastwords_testkit::put::Order;
use lastwords_testkit::ring::Event;
use lastwords_trace::evidence::Verdict;
use lastwords_trace::schema::{Channel, EventClass, Field, FieldClass, Schema};
use lastwords_trace::source::Source;

/// A name and what it runs.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const ALL: [Target; 28] = [
    ("lttng", lttng),
    ("arena", arena),
    ("session", session),
    ("registry", registry),
    ("stream", stream),
    ("spans", spans),
    ("snapshot", snapshot),
    ("core", core),
    ("core_regions", core_regions),
    ("zstd_core", zstd_core),
    ("decoder", decoder),
    ("ctf", ctf_end_to_end),
    ("ctf2", ctf2_end_to_end),
    ("json", json_end_to_end),
    ("text", text_end_to_end),
    ("recorded", recorded),
    ("differential", differential),
    ("vmcore", crate::kernels::vmcore),
    ("kernel_memory", crate::kernels::kernel_memory),
    ("btf", crate::kernels::btf),
    ("kernel", crate::kernels::kernel),
    ("ctf_metadata", crate::ctf::metadata),
    ("ctf_stream", crate::ctf::stream),
    ("trace_dat", crate::kernels::trace_dat),
    ("print_format", crate::kernels::print_format),
    ("ring_page", crate::kernels::ring_page),
    ("persistent", crate::regions::persistent),
    ("kernel_image", crate::regions::kernel_image),
];

/// Returns the target of a name.
///
/// # Panics
/// There is no such target.
pub fn by_name(name: &str) -> fn(&[u8]) {
    let found = ALL.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no target {name}")).1
}

/// Regions one behind the other, anything changed.
pub fn arena(data: &[u8]) {
    any(&script::arena(data, Area::Arena));
}

/// The session region changed.
pub fn session(data: &[u8]) {
    any(&script::arena(data, Area::Named("session")));
}

/// The registry changed.
pub fn registry(data: &[u8]) {
    any(&script::arena(data, Area::Named("registry")));
}

/// Streams changed.
pub fn stream(data: &[u8]) {
    any(&script::arena(data, Area::Named("stream")));
}

/// The table of spans changed.
pub fn spans(data: &[u8]) {
    any(&script::arena(data, Area::Named("spans")));
}

fn any(bytes: &[u8]) {
    if let Ok(found) = walk_bytes(bytes) {
        assert!(found.events() <= bytes.len() / 4 + 1, "more events than bytes");
    }
}

/// The snapshot in place of the live halves.
pub fn snapshot(data: &[u8]) {
    let bytes = script::arena(data, Area::Arena);
    let len = bytes.len();
    let _ = walk(Bytes::new(bytes.into(), len, None), true);
}

/// A file of any bytes, and the same with an ELF header before it.
pub fn core(data: &[u8]) {
    open(data);
    if data.first() != Some(&0x7f) {
        let mut file = elf::core(Order::Little, &[Segment::new(0x1000, &[0; 64])]);
        let mut input = Input::new(data);
        for _ in 0..16 {
            let at = usize::from(input.u16()) % file.len();
            file[at] = input.u8();
        }
        open(&file);
    }
}

/// A core that holds a session, changed in its ELF headers and in its regions.
pub fn core_regions(data: &[u8]) {
    let mut input = Input::new(data);
    let base = if input.u8() & 1 == 0 {
        lastwords_testkit::samples::paged()
    } else {
        script::sample(input.u8())
    };
    let mut file = base.image().core();
    for _ in 0..32 {
        if input.is_empty() {
            break;
        }
        let wide = input.u8() & 3 == 0;
        let at = if wide { input.u64() as usize } else { usize::from(input.u16()) } % file.len();
        let n = usize::from(input.u8() % 9);
        for (i, byte) in input.take(n).iter().enumerate() {
            if let Some(b) = file.get_mut(at + i) {
                *b = *byte;
            }
        }
    }
    open(&file);
}

/// A zstd frame of any bytes, and a sound one of a core, changed.
pub fn zstd_core(data: &[u8]) {
    let mut input = Input::new(data);
    if input.u8() & 1 == 0 {
        let mut file = vec![0x28, 0xb5, 0x2f, 0xfd];
        file.extend(input.rest());
        return open(&file);
    }
    let mut file = elf::zstd(&script::sample(input.u8()).image().core());
    while !input.is_empty() {
        let at = (usize::from(input.u16()) * 3) % file.len();
        file[at] = input.u8();
    }
    open(&file);
}

fn open(file: &[u8]) {
    let scratch = file_of(file);
    let budget = Budget::default();
    let opened = lastwords_image::open(scratch.path(), &budget, &unwatched);
    if let Ok(opened) = opened {
        let options = session::Options::default();
        let found = session::find(&opened.image, &options, &budget, &unwatched);
        for session in found.iter().flat_map(|f| &f.sessions) {
            drain(session);
        }
    }
}

/// Memory of LTTng's tracers, or its metadata.
pub fn lttng(data: &[u8]) {
    let budget = Budget::for_input(data.len() as u64);
    let image: Arc<dyn Image> = Arc::new(Bytes::new(data.into(), data.len(), None));
    let user = user::image(&image, &budget, &unwatched).map(|found| found.sessions);
    let carved = lttng::carve(&image, &budget, &unwatched);
    let mut bytes = Vec::new();
    for mut session in [user, carved].into_iter().flatten().flatten() {
        for stream in 0..session.streams.len() {
            for packet in 0..session.streams.get(stream).map_or(0, |stream| stream.packets.len()) {
                let _ = session.packet(stream, packet, &mut bytes);
            }
        }
        session.prove(&mut |bytes, _| lttng::Proof {
            good: bytes.len() as u64 / 2,
            fault: Some(String::new()),
            ..Default::default()
        });
    }
    let mut metadata = lttng::Metadata::of_file(data);
    metadata.is_partial = true;
    let _ = (metadata.cut(), metadata.names(&[7; 16]), metadata.property("trace_name"));
}

fn drain(source: &dyn Source) {
    let decoder = Decoder::new(source.schema());
    for (index, stream) in source.streams().iter().enumerate() {
        let (mut reader, mut bytes) = (source.packets(index), Vec::new());
        while let Some(info) = reader.next_packet(&mut bytes) {
            let _ = decoder
                .events(stream.channel, &bytes, info.begin, info.events_at)
                .filter(Result::is_ok)
                .count();
        }
    }
}

/// Any schema, any packet.
pub fn decoder(data: &[u8]) {
    let mut input = Input::new(data);
    let byte_order = if input.u8() & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let contexts = fields(&mut input);
    let classes = usize::from(input.u8() % 4);
    let class = |id: usize, fields: Vec<Field>| EventClass {
        id: id as u64 * 7,
        name: "p:e".into(),
        fields,
        ..EventClass::default()
    };
    let events = (0..classes).map(|id| class(id, fields(&mut input))).collect();
    let channel = Channel { id: 0, name: String::new(), contexts, events };
    let clock = lastwords_trace::clock::Clock {
        name: "c".into(),
        frequency: input.u64(),
        ..lastwords_trace::clock::Clock::default()
    };
    let schema = Schema {
        uuid: [0; 16],
        name: String::new(),
        byte_order,
        env: std::collections::BTreeMap::new(),
        clock,
        channels: vec![channel],
    };
    let decoder = Decoder::new(&schema);
    let (begin, from) = (input.u64(), usize::from(input.u8()));
    let bytes = input.rest();
    let (mut at, mut good) = (from, 0u64);
    let mut failed = false;
    for event in decoder.events(0, bytes, begin, from) {
        match event {
            Ok(e) => {
                assert!(e.start == at && e.start < e.context_at && e.context_at <= e.payload_at);
                assert!(e.payload_at <= e.end && e.end <= bytes.len());
                at = e.end;
                good += 1;
            }
            Err(error) => {
                assert!(error.offset <= bytes.len() + 4, "{error}");
                failed = true;
            }
        }
    }
    let counted = decoder.channel(0).map(|c| c.count(bytes, from));
    assert_eq!(counted.is_some_and(|c| c == Ok(good)), !failed, "counting and decoding agree");
}

fn fields(input: &mut Input<'_>) -> Vec<Field> {
    (0..input.u8() % 4).map(|n| Field { name: format!("f{n}"), class: class(input, 0) }).collect()
}

fn class(input: &mut Input<'_>, depth: u8) -> FieldClass {
    let size = [1, 2, 4, 8, 3, 0, 255, 16];
    let kind = input.u8();
    let size = size[usize::from(kind >> 4) % size.len()];
    match kind % 10 {
        0 | 1 => FieldClass::Integer { size, signed: kind % 10 == 1, base: 10 },
        2 => FieldClass::Float { size },
        3 => FieldClass::Bool,
        4 => FieldClass::String,
        5 => FieldClass::Text { size: u32::from(input.u16()) << (kind >> 4) },
        6 => FieldClass::Bytes,
        7 if depth < 3 => FieldClass::Sequence(Box::new(class(input, depth + 1))),
        8 if depth < 3 => {
            let count = u32::from(input.u16()) << (kind >> 4);
            FieldClass::Array { count, element: Box::new(class(input, depth + 1)) }
        }
        _ => FieldClass::Enum {
            size,
            signed: true,
            labels: vec![(0, "zero".into()), (-1, "minus".into())],
        },
    }
}

/// Writes the recovered sessions as CTF 1.8.
pub fn ctf_end_to_end(data: &[u8]) {
    ctf(data, Version::V1_8);
}

/// Writes the recovered sessions as CTF 2.
pub fn ctf2_end_to_end(data: &[u8]) {
    ctf(data, Version::V2);
}

fn ctf(data: &[u8], version: Version) {
    let scratch =
        tempfile::Builder::new().prefix("lastwords-fuzz-").tempdir().expect("a scratch folder");
    let folder = scratch.path().join("ctf");
    for source in own_sessions(&script::arena(data, Area::Arena)) {
        let _ = std::fs::remove_dir_all(&folder);
        let _ = ctf::write(&source, &folder, version, &read::unwatched);
    }
}

/// The traces of sessions, as far as CTF can say what they look like.
fn traces_of(sessions: Vec<lastwords_session::Session>) -> Vec<read::Trace> {
    let trace = |session| {
        lastwords_ctf::session::trace(&Arc::new(session), std::path::Path::new("fuzz"), Version::V2)
            .ok()
    };
    sessions.into_iter().filter_map(trace).collect()
}

/// Writes the recovered sessions as JSON lines, as a Perfetto trace and as OTLP.
pub fn json_end_to_end(data: &[u8]) {
    let sessions = own_sessions(&script::arena(data, Area::Arena));
    let (mut out, traces) = (Vec::new(), traces_of(sessions));
    let all = lastwords_render::select::Selection::default();
    let _ = json::write(&traces, &all, &mut out, &read::unwatched, &mut |_| ());
    let _ = perfetto::write((&traces, None, &[]), &all, &mut sink(), &read::unwatched, &mut |_| ());
    let input = otlp::Input { traces: &traces, open_spans: &[], ended: &[] };
    let _ = otlp::write(input, &all, &mut out, &read::unwatched, &mut |_| ());
    let text = String::from_utf8(out).expect("JSON is UTF-8");
    assert!(text.lines().all(|l| l.starts_with('{') && l.ends_with('}')), "one object a line");
}

/// Writes the recovered sessions as text in every style, and their evidence.
pub fn text_end_to_end(data: &[u8]) {
    let sessions = own_sessions(&script::arena(data, Area::Arena));
    sessions.iter().for_each(|source| drop(evidence::Account::new(source).write(100, &mut sink())));
    let traces = traces_of(sessions);
    let selection = lastwords_render::select::Selection::default();
    for style in [text::Style::Babeltrace, text::Style::Fields, text::Style::Raw] {
        let zone = text::Zone::utc();
        let _ = text::write(
            &traces,
            style,
            &selection,
            &zone,
            &mut sink(),
            &read::unwatched,
            &mut |_| (),
        );
    }
}

/// A session recorded step by step: both readers find exactly its truth.
pub fn recorded(data: &[u8]) {
    let session = script::recorded(data);
    let bytes = session.image().arena();
    let naive = naive::read_files(&[&bytes]);
    let found = walk_bytes(&bytes).expect("a sound image");
    let ring = &session.rings[0];
    let truth = ring.truth(ring.live);
    assert_eq!(naive[0].streams[0].live.len(), truth.len());
    for (sub, naive) in truth.iter().zip(&naive[0].streams[0].live) {
        assert_eq!(
            (sub.number, sub.events.len()),
            (naive.number, naive.events.len()),
            "the naive reader"
        );
        let events: Vec<_> = sub.events.iter().map(|(_, e)| e.clone()).collect();
        let Some(own) = found.subs.get(&(0, sub.number)) else {
            panic!("sub-buffer {} is not reported", sub.number);
        };
        if own.verdict == Verdict::Invalid && is_timeless(&found, sub.number) {
            let bodies = |events: &[Event]| {
                events.iter().map(|e| (e.id, e.body.clone())).collect::<Vec<_>>()
            };
            assert_eq!(bodies(&own.events), bodies(&events), "sub-buffer {}", sub.number);
            continue;
        }
        assert_eq!(own.events, events, "sub-buffer {}", sub.number);
        assert_eq!(own.verdict, found_as(sub.expect), "sub-buffer {}", sub.number);
    }
}

/// One recorder died before it wrote the header, another in the first event, and the sub-buffer
/// before is overwritten: the high bits of the clock are nowhere, and the reader says so.
fn is_timeless(found: &Found, number: u64) -> bool {
    let said = format!("0/{number}: invalid the time of its begin is not known");
    found.evidence.contains(&said)
}

/// A damaged session: what both readers call committed is the same in both.
pub fn differential(data: &[u8]) {
    let bytes = script::arena(data, Area::Named("stream"));
    let Ok(found) = walk_bytes(&bytes) else { return };
    let naive = naive::read_files(&[&bytes]);
    if naive.len() != 1 || found.sessions != 1 {
        return;
    }
    for stream in &naive[0].streams {
        for sub in stream.live.iter().filter(|s| s.verdict == naive::Verdict::Committed) {
            let key = (u64::from(stream.index), sub.number);
            let Some(own) = found.subs.get(&key).filter(|s| s.verdict == Verdict::Committed) else {
                continue;
            };
            let events: Vec<_> = sub.events.iter().map(|(_, e)| e.clone()).collect();
            assert_eq!(own.events, events, "{key:?}");
        }
    }
}
