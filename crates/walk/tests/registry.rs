//! Damage in the registry costs the descriptions it hits.
#![forbid(unsafe_code)]

use lastwords_testkit::image::Image;
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_trace::source::Source;
use lastwords_walk::Options;
use lastwords_walk::session::Session;
use proptest::prelude::*;

/// Offset of the first record in the registry region.
const RECORDS: usize = 192;

fn recover(image: &Image) -> Vec<Session> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    image.write_arena(file.path()).expect("written");
    lastwords_walk::open(file.path(), &Options::default()).expect("readable").sessions
}

fn registry(image: &Image) -> usize {
    image.regions.iter().position(|r| r.name.contains("registry")).expect("a registry")
}

fn names(session: &Session) -> Vec<(u32, u64, String)> {
    let channels = session.schema().channels.iter();
    channels.flat_map(|c| c.events.iter().map(|e| (c.id, e.id, e.name.clone()))).collect()
}

#[test]
fn a_damaged_record_costs_itself() {
    let image = samples::small(Order::Little).image();
    let at = registry(&image);
    let right = names(&recover(&image)[0]);
    let mut fewest = right.len();
    for byte in (0..400).step_by(3).map(|n| RECORDS + n) {
        let mut bad = image.clone();
        bad.regions[at].bytes[byte] ^= 0x40;
        let sessions = recover(&bad);
        let found = names(&sessions[0]);
        assert!(found.len() + 1 >= right.len(), "byte {byte}: {} of {}", found.len(), right.len());
        assert!(found.iter().all(|n| right.contains(n)), "byte {byte}");
        fewest = fewest.min(found.len());
        if found.len() < right.len() {
            assert!(sessions[0].evidence().has_losses(), "byte {byte}");
        }
    }
    assert_eq!(fewest + 1, right.len(), "some byte was of an event");
}

#[test]
fn a_wrong_kind_is_read_as_what_its_body_is() {
    let mut image = samples::small(Order::Big).image();
    let at = registry(&image);
    let right = names(&recover(&image)[0]);
    image.regions[at].bytes[RECORDS + 5] ^= 0x10;
    let sessions = recover(&image);
    assert_eq!(names(&sessions[0]), right);
    assert!(sessions[0].evidence().notes.iter().any(|n| n.contains("is read as kind")));
}

#[test]
fn events_that_a_full_registry_kept_out_are_a_loss() {
    let mut image = samples::small(Order::Little).image();
    assert!(!recover(&image)[0].evidence().has_losses());
    let at = registry(&image);
    // `dropped` of docs/ABI.md, section 4.
    image.regions[at].bytes[128 + 16] = 7;
    let sessions = recover(&image);
    let evidence = sessions[0].evidence();
    assert!(
        evidence.has_losses() && evidence.gaps.iter().any(|gap| gap.place.contains("7 descriptions found no room"))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_in_the_records_invent_a_description(start in 0usize..600, bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
        let mut image = samples::small(Order::Little).image();
        let right = names(&recover(&image)[0]);
        let at = registry(&image);
        let region = &mut image.regions[at].bytes;
        let start = RECORDS + start % (region.len() - RECORDS - bytes.len());
        region[start..start + bytes.len()].copy_from_slice(&bytes);
        for session in recover(&image) {
            prop_assert!(names(&session).iter().all(|n| right.contains(n)));
        }
    }
}
