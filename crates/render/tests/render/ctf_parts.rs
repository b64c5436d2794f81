//! Takes parts out of metadata and folders: a part that is missing costs itself and what needs it,
//! and is told.

use crate::support::ctf::{
    CTF2, TSDL, ctf2_stream, folder, metadata_packets, report, sequence, stream,
};
use std::ops::Range;
use std::path::Path;

/// Returns the events of a text without their times, which are not known without their clock, and
/// without the name of the host.
fn events(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| line.rsplit_once(") ").map_or(line, |(_, event)| event).replace("box ", ""))
        .collect()
}

/// Returns the declarations of TSDL.
fn declarations(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b';' if depth == 0 => found.push(std::mem::replace(&mut begin, at + 1)..at + 1),
            _ => {}
        }
    }
    found
}

/// Returns the events that are read with these metadata, which must be among those of the whole,
/// and the remarks.
fn read(metadata: &[u8], bytes: &[u8], whole: &[String], what: &str) -> (Vec<String>, Vec<String>) {
    let folder = folder(metadata, &[("chan_3", bytes)]);
    let (text, remarks) = report(folder.path());
    let found = events(&text);
    assert!(found.iter().all(|event| whole.contains(event)), "{what}: {found:#?}");
    let is_told =
        remarks.iter().any(|remark| remark.contains("metadata") || remark.contains("event id"));
    assert!(is_told || found == whole, "{what}: {remarks:?}");
    (found, remarks)
}

#[test]
fn a_declaration_that_is_missing_costs_itself() {
    let metadata = TSDL.replace("ORDER", "le");
    let stream = stream(false);
    let whole = events(&report(folder(metadata.as_bytes(), &[("chan_3", &stream)]).path()).0);
    assert_eq!(whole.len(), 4);
    for range in declarations(&metadata) {
        let name: String = metadata[range.clone()].trim().chars().take(40).collect();
        let mut gone = metadata.clone();
        gone.replace_range(range.clone(), "");
        let (found, _) = read(gone.as_bytes(), &stream, &whole, &name);
        let least = match name.split_whitespace().next() {
            Some("clock" | "env") => 4,
            Some("event") if name.contains("a:text") => 1,
            _ => 0,
        };
        assert!(found.len() >= least, "{name}: {found:#?}");
        // A hole of any size and at any place: the halves around it are no declaration together.
        let (begin, length) = (range.start, range.len());
        for (from, to) in [(1, 2), (1, 3), (2, 3), (3, 4), (2, 6), (5, 6), (1, 6), (5, 7)] {
            for hole in ["\0\0\0", "\x1a"] {
                let mut torn = metadata.clone();
                torn.replace_range(begin + length * from / 8..begin + length * to / 8, hole);
                let (found, _) =
                    read(torn.as_bytes(), &stream, &whole, &format!("{name}, {from} to {to} of 8"));
                assert!(!name.contains("a:text") || found.len() == 1, "{name}: {found:#?}");
            }
        }
    }
}

#[test]
fn a_packet_of_metadata_that_is_wrong_is_a_hole() {
    let more: String = (2..40)
        .map(|id| {
            format!("event {{ name = \"e{id}\"; id = {id}; stream_id = 0; fields := struct {{ uint8_t a; uint8_t b; }}; }};\n")
        })
        .collect();
    let metadata = TSDL.replace("ORDER", "le") + &more;
    let stream = stream(false);
    let packets = metadata_packets(metadata.as_bytes(), false);
    let whole = events(&report(folder(&packets, &[("chan_3", &stream)]).path()).0);
    assert_eq!(whole.len(), 4);
    let count = packets.len() / 1100;
    assert!(count > 4, "{count} packets");
    for packet in 1..count {
        let range = packet * 1100..(packet + 1) * 1100;
        let mut wrong = packets.clone();
        wrong[range.clone()].fill(0);
        let (zero, _) = read(&wrong, &stream, &whole, &format!("packet {packet} of zeros"));
        wrong.copy_from_slice(&packets);
        wrong[range.start + 5] ^= 1;
        let (other, _) = read(&wrong, &stream, &whole, &format!("packet {packet} of another UUID"));
        let cut = &packets[..range.start + 500];
        let (cut, _) = read(cut, &stream, &whole, &format!("packet {packet} is cut"));
        assert!(
            packet < count - 1 || [zero, other, cut].iter().all(|found| found.len() == 4),
            "packet {packet}"
        );
    }
}

#[test]
fn a_fragment_that_is_wrong_costs_itself() {
    let fragments: Vec<String> = CTF2.iter().map(|fragment| (*fragment).to_owned()).collect();
    let other = r#"{"type":"event-record-class","id":1,"data-stream-class-id":0,"name":"f","payload-field-class":{"type":"structure"}}"#;
    let whole =
        events(&report(folder(&sequence(&fragments), &[("chan_3", &ctf2_stream())]).path()).0);
    assert_eq!(whole.len(), 2);
    for at in 0..fragments.len() {
        for wrong in [&fragments[at][..fragments[at].len() / 2], "", "[]", r#"{"type":"new"}"#] {
            let mut all = fragments.clone();
            all[at] = wrong.to_owned();
            let (found, _) =
                read(&sequence(&all), &ctf2_stream(), &whole, &format!("{at}: {wrong}"));
            assert!(![0, 2, 3].contains(&at) || found.len() == 2, "{at}: {wrong}: {found:?}");
        }
    }
    let mut all = fragments;
    all.push(other[..60].to_owned());
    let (found, remarks) = read(&sequence(&all), &ctf2_stream(), &whole, "another event");
    assert!(
        found == whole && remarks.iter().any(|remark| remark.contains("fragment 7")),
        "{remarks:?}"
    );
}

/// Returns LTTng's index, version 1.0, of a file that has packets of these sizes.
fn index(sizes: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [0xc1f1_dcc1u32, 1, 0, 56].iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut offset = 0;
    for size in sizes {
        bytes.extend(
            [offset, 8 * size, 8 * size, 1, 2, 0, 0]
                .iter()
                .flat_map(|word: &u64| word.to_be_bytes()),
        );
        offset += size;
    }
    bytes
}

#[test]
fn a_stream_that_its_index_has_is_told() {
    let stream = stream(false);
    let size = stream.len() as u64;
    let metadata = TSDL.replace("ORDER", "le");
    let said = |file: Option<&[u8]>, sizes: &[u64]| {
        let folder = folder(metadata.as_bytes(), &[("chan_3", &stream)]);
        let write = |path: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(path), bytes).expect("written")
        };
        std::fs::create_dir(folder.path().join("index")).expect("a folder");
        write("index/chan_4.idx", &index(sizes));
        file.iter().for_each(|bytes| write("chan_4", bytes));
        let (text, remarks) = report(folder.path());
        assert!(events(&text).len() >= 4, "{text}");
        remarks
            .into_iter()
            .filter(|remark| {
                Path::new(&remark.split(": ").next().unwrap_or("")).ends_with("chan_4")
            })
            .collect::<Vec<_>>()
    };
    let told = |said: &[String], what: &str| matches!(said, [one] if one.contains(what));
    assert!(told(&said(None, &[size]), "there is no such file, and its index has 1 packets"));
    assert!(told(&said(Some(b""), &[size]), "the file is empty"));
    assert!(told(&said(Some(&stream), &[size, 64]), &format!("the file has {size} bytes")));
    assert!(said(None, &[]).is_empty() && said(Some(&stream), &[size - 8]).is_empty());
}

/// Each channel of LTTng has a file for every CPU, and the metadata describe each channel.
#[test]
fn a_stream_that_its_siblings_imply_is_told() {
    let metadata = TSDL.replace("ORDER", "le").replace("\"own\"", "\"lttng-modules\"");
    let other = "stream { id = 1; event.header := struct event_header; };";
    let said = |metadata: &str, files: &[(&str, &[u8])]| -> Vec<String> {
        let (_, remarks) = report(folder(metadata.as_bytes(), files).path());
        remarks.into_iter().filter(|remark| remark.contains("channel")).collect()
    };
    let packets = stream(false);
    let [a, b]: [(&str, &[u8]); 2] = [("a_3", &packets), ("b_3", b"")];
    let both = format!("{metadata}{other}");
    assert_eq!(said(&both, &[a, b, ("a_1", b""), ("b_1", b"")]), [""; 0]);
    let found = said(&both, &[a, b, ("a_1", b"")]);
    assert!(
        matches!(found.as_slice(), [one] if one.ends_with("b_1: there is no such file, and other channels have one for this CPU")),
        "{found:?}"
    );
    let found = said(&both, &[a]);
    assert!(
        matches!(found.as_slice(), [one] if one.ends_with("describe 2 channels, and there are files of 1")),
        "{found:?}"
    );
    // Files that were rotated are not of a CPU each, and other tracers have other names.
    assert_eq!(said(&both, &[("a_0", &packets), b, ("a_1", b"")]), [""; 0]);
    assert_eq!(said(&both.replace("lttng-modules", "own"), &[a, b, ("a_1", b"")]), [""; 0]);
}

/// A stream whose class is missing has no events, and the events of the others keep their streams.
#[test]
fn streams_keep_their_numbers_beside_one_without_class() {
    let metadata = TSDL.replace("ORDER", "le");
    let folder = folder(metadata.as_bytes(), &[("chan_3", &stream(false))]);
    let mut traces =
        lastwords_ctf::read::open(folder.path(), &Default::default()).expect("opened").traces;
    let mut first = traces[0].streams[0].clone();
    (first.class, first.packets) = (usize::MAX, Vec::new());
    traces[0].streams.insert(0, first);
    let mut out = Vec::new();
    let selection = lastwords_render::select::Selection::default();
    let watch = lastwords_ctf::read::unwatched;
    lastwords_render::json::write(&traces, &selection, &mut out, &watch, &mut |_| {})
        .expect("written");
    let text = String::from_utf8(out).expect("text");
    let numbers: Vec<_> =
        text.lines().skip(1).map(|line| line.contains("\"stream\":1,\"cpu\":3")).collect();
    assert_eq!(numbers, [true; 4], "{text}");
}
