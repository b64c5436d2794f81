//! Damage in the registry costs the descriptions it hits.
#![forbid(unsafe_code)]

use crate::support::recover_arena;
use lastwords_session::Session;
use lastwords_testkit::checksum::checksum;
use lastwords_testkit::image::Image;
use lastwords_testkit::layout::{region as header, registry as layout};
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_trace::source::Source;
use proptest::prelude::*;

/// Offset of the first record in the registry region.
const RECORDS: usize = 192;

fn recover(image: &Image) -> Vec<Session> {
    recover_arena(image).sessions
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
        evidence.has_losses()
            && evidence.gaps.iter().any(|gap| gap.place.contains("7 descriptions found no room"))
    );
}

/// A session of a later minor version costs this program the events whose descriptions it does not
/// know, and it says so.
#[test]
fn records_of_a_later_version_are_named() {
    let order = Order::Little;
    let right = names(&recover(&samples::small(order).image())[0]);
    for kind in [77, layout::EVENT] {
        let mut image = samples::small(order).image();
        let at = registry(&image);
        for region in &mut image.regions {
            order.put16(&mut region.bytes, header::MINOR_AT, 9);
            let fixed = order.at32(&region.bytes, header::FIXED_LEN_AT).expect("a length") as usize;
            let covered = &region.bytes[header::HEADER_LEN..header::HEADER_LEN + fixed];
            let covered = [&region.bytes[..header::CHECK_AT], covered].concat();
            order.put64(&mut region.bytes, header::CHECK_AT, checksum(&covered));
        }
        let mut records = &mut image.regions[at].bytes[RECORDS..];
        let len =
            |records: &[u8]| order.at32(records, layout::RECORD_LEN_AT).expect("a length") as usize;
        while records[layout::RECORD_KIND_AT] != layout::EVENT as u8 {
            let next = len(records).next_multiple_of(8);
            records = &mut records[next..];
        }
        let len = len(records);
        order.put16(records, layout::RECORD_KIND_AT, kind);
        if kind == layout::EVENT {
            // The type of the last field is one that is not defined.
            records[len - 1] = 0xee;
            let sum = checksum(&records[layout::RECORD_HEADER_LEN..len]);
            order.put64(records, layout::RECORD_CHECK_AT, sum);
        }
        let sessions = recover(&image);
        let evidence = sessions[0].evidence();
        assert_eq!(names(&sessions[0]).len() + 1, right.len());
        let said =
            format!("1 record of kind {kind} needs a newer lastwords: the session has format 1.9");
        assert!(
            evidence.has_losses() && evidence.gaps.iter().any(|gap| gap.place.contains(&said)),
            "{evidence:?}"
        );
        assert!(!evidence.notes.iter().any(|note| note.contains("damaged")), "{evidence:?}");
    }
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
