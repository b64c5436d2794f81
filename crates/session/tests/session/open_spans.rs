//! Tests of the reports about the table of open spans.
#![forbid(unsafe_code)]

use crate::support::{first, region};
use lastwords_testkit::layout::spans::{
    ABANDONED_AT, DROPPED_AT, EVICTED_AT, INSIDE_AT, SKIPPED_AT, SPAN_LEN, SPANS_AT, STATE_AT,
};
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_testkit::schema::Record;
use lastwords_trace::source::Source;

#[test]
fn spans_that_found_no_room_are_told() {
    for order in [Order::Little, Order::Big] {
        for dropped in [0, 4473] {
            let mut image = samples::small(order).image();
            order.put64(region(&mut image, "spans"), DROPPED_AT, dropped);
            let session = first(&image);
            assert_eq!((session.open_spans().len(), session.info().spans_dropped), (2, dropped));
            let told: Vec<&String> =
                session.evidence().notes.iter().filter(|note| note.contains("no room")).collect();
            let expected = "4473 spans found no room among the 15 entries of the table: which of them were still open is not known";
            assert!(told.iter().all(|note| *note == expected), "{told:?}");
            assert_eq!(told.len(), usize::from(dropped > 0));
        }
    }
}

/// Ids and threads of the open spans of the small sample, and its notes, after `change`.
fn open(order: Order, change: impl Fn(&mut Vec<u8>)) -> (Vec<(u64, u32)>, Vec<String>) {
    let mut sample = samples::small(order);
    let newer =
        lastwords_testkit::session::Span { id: 3, opened: 12_400, ..sample.spans[1].clone() };
    sample.spans.push(newer);
    sample.spans[0].entered = 4242 << 32 | 4244;
    let mut image = sample.image();
    change(region(&mut image, "spans"));
    let session = first(&image);
    let spans = session
        .open_spans()
        .iter()
        .inspect(|span| assert!(span.age > 0 || span.id == 3, "{span:?}"));
    (spans.map(|span| (span.id, span.threads)).collect(), session.evidence().notes.clone())
}

#[test]
fn entered_spans_come_first_and_then_the_newest() {
    for order in [Order::Little, Order::Big] {
        assert_eq!(open(order, |_| ()).0, [(1, 1), (3, 0), (2, 0)]);
        // A generation and two threads, neither of which came last.
        let inside =
            |bytes: &mut Vec<u8>| order.put32(bytes, SPANS_AT + SPAN_LEN + INSIDE_AT, 7 << 16 | 2);
        assert_eq!(open(order, inside).0, [(2, 2), (1, 1), (3, 0)]);
    }
}

#[test]
fn entries_that_are_being_written_are_counted_and_not_listed() {
    for order in [Order::Little, Order::Big] {
        let writing = |bytes: &mut Vec<u8>| {
            order.put32(bytes, SPANS_AT + SPAN_LEN + INSIDE_AT, 7 << 16 | 0xffff)
        };
        let (spans, notes) = open(order, writing);
        assert_eq!(spans, [(1, 1), (3, 0)]);
        let told = "1 entry of the table of open spans was being written and is not listed";
        assert!(notes.iter().any(|note| note == told), "{notes:?}");
        // A thread that adds to the text leaves what was there before.
        let appending = |bytes: &mut Vec<u8>| order.put32(bytes, SPANS_AT + SPAN_LEN + STATE_AT, 2);
        assert_eq!(open(order, appending).0, [(1, 1), (3, 0), (2, 0)]);
    }
}

#[test]
fn spans_and_values_that_are_not_listed_are_told() {
    let order = Order::Little;
    let counts = |bytes: &mut Vec<u8>| {
        order.put64(bytes, EVICTED_AT, 1);
        order.put64(bytes, SKIPPED_AT, 2);
        order.put64(bytes, ABANDONED_AT, 3);
    };
    let notes = open(order, counts).1;
    for told in [
        "1 open span was evicted from the 15 entries of the table, the longest idle ones first: which of them were still open is not known",
        "3 open spans were of a recorder that the program replaced: which of them were still open is not known",
        "2 values recorded on open spans while another thread did so are not shown here",
    ] {
        assert!(notes.iter().any(|note| note == told), "{notes:?}");
    }
}

#[test]
fn without_a_table_it_is_not_known_which_spans_were_open() {
    let told = "there is no table of open spans: which spans were open is not known";
    let small = samples::small(Order::Little);
    assert!(first(&small.image()).knows_open_spans());
    for has_spans in [false, true] {
        let mut sample = small.clone();
        sample.span_capacity = 0;
        if has_spans {
            sample.event(0, 40, "new", &[]);
            let Some(Record::Event { name, .. }) = sample.records.last_mut() else {
                panic!("an event")
            };
            *name = ("span".into(), "new shop::order".into());
        }
        let session = first(&sample.image());
        assert!(!session.knows_open_spans() && session.open_spans().is_empty());
        let notes = &session.evidence().notes;
        assert_eq!(notes.iter().any(|note| note == told), has_spans, "{notes:?}");
    }
}
