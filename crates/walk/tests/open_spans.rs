//! What is said of the table of open spans.
#![forbid(unsafe_code)]

use lastwords_testkit::layout::spans::DROPPED_AT;
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_trace::source::Source;
use lastwords_walk::Options;

#[test]
fn spans_that_found_no_room_are_told() {
    for order in [Order::Little, Order::Big] {
        for dropped in [0, 4473] {
            let mut image = samples::small(order).image();
            let table = image.regions.iter_mut().find(|region| region.name == "spans").expect("a table");
            order.put64(&mut table.bytes, DROPPED_AT, dropped);
            let folder = tempfile::tempdir().expect("a folder");
            image.write_folder(folder.path()).expect("files");
            let found = lastwords_walk::open(folder.path(), &Options::default()).expect("a readable folder");
            let session = &found.sessions[0];
            assert_eq!((session.open_spans().len(), session.info().spans_dropped), (2, dropped));
            let told: Vec<&String> = session.evidence().notes.iter().filter(|note| note.contains("no room")).collect();
            let expected =
                "4473 spans found no room among the 15 entries of the table: which of them are open is not known";
            assert!(told.iter().all(|note| *note == expected), "{told:?}");
            assert_eq!(told.len(), usize::from(dropped > 0));
        }
    }
}
