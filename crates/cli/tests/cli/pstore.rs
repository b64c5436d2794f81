//! `report --pstore`: what ramoops has kept in a copy of its memory. The copies are made here.

use crate::support::Place;

/// A zone at the beginning of a page of a file.
fn zone(data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    let mut page: Vec<u8> =
        [0x4347_4244, len, len].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    page.extend(data);
    page.resize(page.len().next_multiple_of(4096), 0);
    page
}

#[test]
fn what_pstore_has_kept_is_printed() {
    let place = Place::new();
    let record = zone(b"====1795999000.500000000-D\nPanic#1 Part1\n<4>[    1.000000] last words\n");
    let range = [record, zone(b"of a program\x1b[1m\n")].concat();
    std::fs::write(place.at("range"), &range).unwrap();
    let text = place.ok(&["report", place.at("range").to_str().unwrap(), "--pstore"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with(": record of 2026-11-30 00:36:40.500000 at 0x0"), "{text}");
    assert_eq!(lines[1..3], ["Panic#1 Part1", "<4>[    1.000000] last words"]);
    assert!(lines[3].contains(": messages of programs, ") && lines[3].ends_with(" at 0x1000"));
    assert!(lines[4].starts_with("of a program") && !text.contains('\x1b'), "{text}");
    let data = place.json(&["report", place.at("range").to_str().unwrap(), "--pstore", "--json"]);
    assert_eq!(data["schema"], "lastwords.pstore.v1");
    let zones = &data["memories"][0]["zones"];
    assert_eq!(zones[0]["time"], 1_795_999_000_500_000_000_u64);
    assert_eq!(zones[1]["text"], "of a program\x1b[1m\n");
}

#[test]
fn what_is_missing_is_a_loss() {
    let place = Place::new();
    let name = place.at("range");
    // The rest of a page, of which the head says that it goes on.
    let mut range = zone(&b"[    1.000000] a line\n".repeat(200)[..4096 - 12]);
    for at in [4, 8] {
        range[at..at + 4].copy_from_slice(&5000_u32.to_le_bytes());
    }
    std::fs::write(&name, &range).unwrap();
    let words = ["report", name.to_str().unwrap(), "--pstore", "--strict"];
    place.run(&words).has_status(3).says("the zone at 0x0: 916 of 5000 bytes are missing");
    std::fs::write(&name, vec![0; 8192]).unwrap();
    place.run(&words[..3]).has_status(1).says("nothing of pstore is in this memory");
}
