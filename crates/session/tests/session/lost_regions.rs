//! Tests of sessions that lost a region: only the contents of that region are missing.
#![forbid(unsafe_code)]

use crate::support::{self, Event, open, recover, region};
use lastwords_session::{Options, Session};
use lastwords_testkit::image::Image;
use lastwords_testkit::layout::session as layout;
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_trace::evidence::{Cause, Verdict};
use lastwords_trace::schema::Field;
use lastwords_trace::source::Source;

/// Clock and bytes of all events of all streams.
fn events(session: &Session) -> Vec<Event> {
    let streams = (0..session.streams().len()).flat_map(|stream| support::events(session, stream));
    streams.map(|(_, event)| event.expect("an event")).collect()
}

fn without(image: &Image, name: &str) -> Image {
    let mut image = image.clone();
    image.regions.retain(|r| !r.name.contains(name));
    image
}

#[test]
fn without_the_session_region_events_and_contexts_are_found_out() {
    for order in [Order::Little, Order::Big] {
        let image = samples::small(order).image();
        let whole = recover(&image);
        let lost = recover(&without(&image, "session"));
        let (whole, lost) = (&whole.sessions[0], &lost.sessions[0]);
        let contexts = |s: &Session| {
            s.schema().channels.iter().map(|c| c.contexts.clone()).collect::<Vec<_>>()
        };
        let (right, found) = (contexts(whole), contexts(lost));
        assert_eq!(right[0], found[0]);
        // A process's id and a thread's look the same: no name is better than a wrong one. The
        // registry knows the other.
        let names = |fields: &[Field]| fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(&right[1]), names(&found[1])),
            (strings(&["vpid", "shard"]), strings(&["context0", "shard"]))
        );
        assert_eq!(right[1][1], found[1][1]);
        assert!(lost.schema().name.is_empty() && !lost.schema().clock.absolute);
        assert!(said(lost, "session region", Cause::Missing), "{:?}", lost.evidence());
        // Behind the hole of a dead thread nothing can be told without the table of threads.
        let (all, found) = (events(whole), events(lost));
        assert!(found.iter().all(|e| all.contains(e)), "nothing is invented");
        assert!(found.len() > all.len() * 9 / 10, "{} of {}", found.len(), all.len());
    }
}

fn strings(of: &[&str]) -> Vec<String> {
    of.iter().map(|s| (*s).to_owned()).collect()
}

/// A gap of this cause, which is a loss, has these words.
fn said(session: &Session, words: &str, cause: Cause) -> bool {
    let evidence = session.evidence();
    evidence.has_losses()
        && evidence.gaps.iter().any(|g| g.cause == cause && g.place.contains(words))
}

#[test]
fn a_session_region_that_is_passed_over_is_a_loss() {
    let mut image = samples::small(Order::Little).image();
    image.regions[0].bytes[400..408].fill(0xff);
    let found = recover(&image);
    assert!(
        said(&found.sessions[0], "session+0x0: offset 0x70", Cause::Damaged),
        "{:?}",
        found.sessions[0].evidence()
    );
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    image.regions.truncate(2);
    assert!(recover(&image).sessions[0].evidence().has_losses(), "the registry alone");
}

#[test]
fn streams_below_the_highest_index_must_have_been() {
    let mut session = samples::one_stream(1, 512, 8, 3);
    (1..6).for_each(|cpu| assert_eq!(session.stream(0, cpu, 1), cpu as usize));
    let mut image = session.image();
    image.regions.retain(|r| r.name == "registry" || r.name.ends_with(['2', '5']));
    assert_eq!(image.regions.len(), 3);
    let found = recover(&image);
    let session = &found.sessions[0];
    for words in ["streams 0 to 1 are not in the image", "streams 3 to 4 are not in the image"] {
        assert!(said(session, words, Cause::Missing), "{:?}", session.evidence().gaps);
    }
    let count = |cause| session.evidence().gaps.iter().filter(|gap| gap.cause == cause).count();
    // The clock's frequency and its relation to wall time were in the session region.
    assert_eq!(
        (count(Cause::Missing), count(Cause::Unknown)),
        (3, 2),
        "{:?}",
        session.evidence().gaps
    );
    assert_eq!(session.evidence().gaps.len(), 5, "{:?}", session.evidence().gaps);
}

/// No checksum covers the names of channels.
#[test]
fn a_name_that_no_channel_has_is_unknown() {
    let image = samples::small(Order::Little).image();
    let whole = recover(&image);
    for damage in [&b"\xff"[..], b"a b\x01", b"\0", b"err\xff\xff\xff"] {
        let mut image = image.clone();
        let bytes = region(&mut image, "session");
        let at = layout::INFO_AT + layout::CHANNELS_OFF_AT;
        let table = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let name = table + layout::CHANNEL_NAME_AT;
        bytes[name..name + damage.len()].copy_from_slice(damage);
        let found = recover(&image);
        let (session, whole) = (&found.sessions[0], &whole.sessions[0]);
        assert_eq!(session.schema().channels[0].name, "", "{damage:?}");
        assert!(said(session, "channel 0: its name", Cause::Unknown), "{damage:?}");
        assert_eq!(events(session), events(whole), "{damage:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_opened_is_a_loss() {
    let folder = tempfile::tempdir().expect("a folder");
    samples::small(Order::Little).image().write_folder(folder.path()).expect("files");
    let spans = std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|e| e.path());
    let spans = spans.into_iter().find(|p| p.to_string_lossy().contains("spans")).expect("spans");
    std::fs::set_permissions(&spans, std::os::unix::fs::PermissionsExt::from_mode(0o000))
        .expect("no rights");
    if std::fs::File::open(&spans).is_ok() {
        return; // The superuser reads all.
    }
    let found = open(folder.path());
    assert!(said(&found.sessions[0], "spans", Cause::Missing));
}

#[test]
fn without_the_registry_packets_are_still_there() {
    let image = samples::small(Order::Little).image();
    let lost = recover(&without(&image, "registry"));
    let session = &lost.sessions[0];
    assert!(session.evidence().gaps.iter().any(|g| g.cause == Cause::Missing));
    assert!(session.evidence().sub_buffers.iter().any(|s| s.verdict == Verdict::Committed));
    let mut bytes = Vec::new();
    assert!(session.packets(0).next_packet(&mut bytes).is_some());
}

#[test]
fn a_bit_of_any_stream_header_costs_nothing() {
    let image = samples::small(Order::Little).image();
    let right = recover(&image);
    let right = events(&right.sessions[0]);
    let streams = (0..image.regions.len()).filter(|r| image.regions[*r].name.contains("stream"));
    for region in streams {
        for bit in (0..192 * 8).step_by(13) {
            let mut bad = image.clone();
            bad.regions[region].bytes[bit / 8] ^= 1 << (bit % 8);
            let found = recover(&bad);
            assert_eq!(found.sessions.len(), 1, "bit {bit}");
            assert!(events(&found.sessions[0]) == right, "region {region}, bit {bit}");
        }
    }
}

#[test]
fn two_sessions_in_one_arena() {
    let (first, second) = (samples::small(Order::Little), samples::one_stream(2, 512, 8, 3));
    let mut arena = first.image().arena();
    let before = arena.len();
    arena.extend(second.image().arena());
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &arena).expect("written");
    let found = open(file.path());
    let same = first.image().regions[0].bytes[40..56] == second.image().regions[0].bytes[40..56];
    assert_eq!(found.sessions.len(), if same { 1 } else { 2 });
    let alone = &arena[..before];
    std::fs::write(file.path(), alone).expect("written");
    let found = open(file.path());
    assert_eq!(found.sessions.len(), 1);
}

#[test]
fn the_snapshot_stands_beside_the_live_ring() {
    let folder = tempfile::tempdir().expect("a folder");
    samples::small(Order::Little).image().write_folder(folder.path()).expect("files");
    let of = |snapshot| {
        lastwords_session::open(folder.path(), &Options { snapshot, ..Options::default() })
            .expect("readable")
    };
    let (live, snapshot) = (of(false), of(true));
    let (live, snapshot) = (events(&live.sessions[0]), events(&snapshot.sessions[0]));
    assert!(!live.is_empty() && !snapshot.is_empty());
    assert!(snapshot.iter().all(|e| !live.contains(e)), "nothing is in both");
}

/// A program's stack may have a part of a region's header, at the start of a page.
#[test]
fn a_part_of_a_header_beside_all_regions_is_no_loss() {
    for order in [Order::Little, Order::Big] {
        let whole = samples::small(order).image();
        let mut image = whole.clone();
        let mut part = whole
            .regions
            .iter()
            .find(|region| region.name.contains("stream"))
            .expect("a stream")
            .clone();
        part.name = "stack".to_owned();
        part.bytes.truncate(4096);
        part.bytes[0x38..].fill(3);
        image.regions.push(part.clone());
        let found = recover(&image);
        let (session, right) = (&found.sessions[0], &recover(&whole).sessions[0]);
        assert_eq!(session.evidence().gaps, right.evidence().gaps);
        assert!(
            session
                .evidence()
                .notes
                .iter()
                .any(|note| note.contains("all regions of the session were found"))
        );
        assert_eq!(events(session), events(right));
        // It is a loss if it may be what is left of a region.
        let mut image = without(&whole, "spans");
        image.regions.push(part);
        let found = recover(&image);
        assert!(found.sessions[0].evidence().gaps.iter().any(|gap| gap.cause == Cause::Damaged));
    }
}
