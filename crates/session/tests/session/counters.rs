//! Tests of what is read of counters and histograms, whole and damaged.
#![forbid(unsafe_code)]

use crate::support::{first, region};
use lastwords_session::Session;
use lastwords_testkit::counters::{Metrics, lows};
use lastwords_testkit::image::Image;
use lastwords_testkit::layout::counters as l;
use lastwords_testkit::layout::region::{CHECK_AT, HEADER_LEN};
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_trace::source::Source;

/// A session with two counters, of which one has two entries, and a histogram.
fn image(order: Order) -> Image {
    let mut sample = samples::small(order);
    let text = |text: &str| text.to_owned();
    sample.metrics = Some(Metrics {
        room: [8, 2],
        counters: vec![
            (text("requests\x1fmethod\x1fGET\x1fcode\x1f200"), 40),
            (text("bytes"), 1 << 40),
            // Another process wrote it at the same time, with its labels in another order.
            (text("requests\x1fcode\x1f200\x1fmethod\x1fGET"), 2),
        ],
        histograms: vec![(text("latency"), vec![0, 7, 8, 100, 100, 1_000_000])],
        lost: [0, 0],
    });
    sample.image()
}

fn table(image: &mut Image) -> &mut Vec<u8> {
    region(image, "counters")
}

/// Counters with their values, and histograms with their buckets, sum and values in flight.
fn shown(session: &Session) -> Vec<String> {
    let metrics = &session.info().metrics;
    let labels = |labels: &[(String, String)]| {
        labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    };
    let counter = |one: &lastwords_trace::metrics::Counter| {
        format!("{}{{{}}} {}", one.name, labels(&one.labels), one.value)
    };
    let histogram = |one: &lastwords_trace::metrics::Histogram| {
        let buckets = one.buckets.iter().map(|b| format!("{}..{}:{}", b.low, b.high, b.count));
        let buckets = buckets.collect::<Vec<_>>().join(" ");
        let sum = one.sum.map_or_else(|| "?".to_owned(), |sum| sum.to_string());
        format!("{}{{{}}} {buckets} sum {sum} +{}", one.name, labels(&one.labels), one.in_flight)
    };
    let histograms = metrics.histograms.iter().map(histogram);
    metrics.counters.iter().map(counter).chain(histograms).collect()
}

const COUNTERS: [&str; 2] = ["bytes{} 1099511627776", "requests{code=200,method=GET} 42"];
const LATENCY: &str = "latency{} 0..0:1 7..7:1 8..8:1 96..103:2 983040..1048575:1 sum 1000215 +0";

#[test]
fn counters_and_histograms_are_read() {
    for order in [Order::Little, Order::Big] {
        let session = first(&image(order));
        assert_eq!(shown(&session), [COUNTERS[0], COUNTERS[1], LATENCY]);
        let latency = &session.info().metrics.histograms[0];
        assert_eq!(latency.count(), 6);
        let quantile = |part| latency.quantile(part).map(|bucket| (bucket.low, bucket.high));
        assert_eq!(quantile(500), Some((8, 8)));
        assert_eq!(quantile(900), Some((983_040, 1_048_575)));
        assert!(session.evidence().gaps.iter().all(|gap| !gap.place.contains("counter")));
    }
}

/// Two values of one label are no label: neither is shown.
#[test]
fn a_label_that_is_there_twice_is_damage() {
    let mut sample = samples::small(Order::Little);
    let counters = vec![("a\x1fk\x1f1\x1fx\x1f\x1fk\x1f2".to_owned(), 1), ("b".to_owned(), 2)];
    sample.metrics = Some(Metrics { room: [2, 0], counters, histograms: Vec::new(), lost: [0, 0] });
    let session = first(&sample.image());
    assert_eq!(shown(&session), ["b{} 2"]);
    assert_eq!(session.info().metrics.unknown, 1);
    assert!(tells(&session));
}

/// Returns true if the session says what it lacks: in a gap or a note about the tables.
fn tells(session: &Session) -> bool {
    let evidence = session.evidence();
    let gaps = evidence.gaps.iter().map(|gap| &gap.place);
    gaps.chain(&evidence.notes).any(|line| line.contains("counter") || line.contains("histogram"))
}

/// Flips bits of every byte that has a meaning: a value is never shown under a name that it does
/// not have, and what is missing is told.
#[test]
fn damage_of_a_name_never_changes_a_value() {
    for order in [Order::Little, Order::Big] {
        let whole = image(order);
        let histograms = l::ENTRIES_AT + 8 * l::ENTRY_LEN;
        let heads = [0, 1, 2].map(|n| l::ENTRIES_AT + n * l::ENTRY_LEN);
        let heads = heads.into_iter().chain([histograms]).flat_map(|at| at..at + l::COUNT_AT);
        for at in (HEADER_LEN..l::CONTROL_AT + 8).chain(heads) {
            for flip in [0x01, 0x80, 0xff] {
                let mut image = whole.clone();
                table(&mut image)[at] ^= flip;
                let session = first(&image);
                let right = [COUNTERS[0], COUNTERS[1], LATENCY];
                let shown = shown(&session);
                // One of the two entries of a counter may be unknown.
                let parts = ["requests{code=200,method=GET} 40", "requests{code=200,method=GET} 2"];
                let known = |line: &String| {
                    right.contains(&line.as_str()) || parts.contains(&line.as_str())
                };
                assert!(shown.iter().all(known), "byte {at} ^ {flip:#x}: {shown:?}");
                assert!(
                    shown == right || tells(&session),
                    "byte {at} ^ {flip:#x}: {shown:?}, {:?}",
                    session.evidence()
                );
            }
        }
    }
}

/// Values have no checksum. Those of a histogram must fit each other.
#[test]
fn values_of_a_histogram_that_contradict_each_other_are_told() {
    let order = Order::Little;
    let at = l::ENTRIES_AT + 8 * l::ENTRY_LEN;
    let bucket =
        |value: u64| at + l::BUCKETS_AT + 8 * (lows().partition_point(|low| *low <= value) - 1);
    for (place, number, told) in [
        (at + l::COUNT_AT, 7, "7 values were recorded, and its buckets have 6"),
        (bucket(100), 1, "6 values were recorded, and its buckets have 5"),
        (at + l::VALUE_AT, 3, "its sum is 3, and its buckets have 983247 to 1048796"),
        (at + l::VALUE_AT, 1 << 50, "its sum is 1125899906842624, and its buckets"),
    ] {
        let mut image = image(order);
        order.put64(table(&mut image), place, number);
        let session = first(&image);
        let gaps: Vec<_> = session.evidence().gaps.iter().map(|gap| &gap.place).collect();
        assert!(gaps.iter().any(|gap| gap.contains(told)), "{told}: {gaps:?}");
        assert!(session.info().metrics.histograms[0].sum.is_none());
    }
    // A recorder died between the bucket and the count.
    let mut image = image(order);
    order.put64(table(&mut image), at + l::COUNT_AT, 5);
    assert!(shown(&first(&image))[2].ends_with("sum 1000215 +1"));
    order.put64(table(&mut image), at + l::VALUE_AT, 215);
    assert!(shown(&first(&image))[2].ends_with("sum 215 +1"));
    // A sum that may have passed 2^64 is not known.
    order.put64(table(&mut image), bucket(u64::MAX), 1);
    assert!(shown(&first(&image))[2].ends_with("sum ? +2"));
}

#[test]
fn what_found_no_room_or_is_missing_is_told() {
    let order = Order::Big;
    let mut image = image(order);
    order.put64(table(&mut image), l::CONTROL_AT + l::LOST_ADDITIONS_AT, 5);
    order.put64(table(&mut image), l::CONTROL_AT + l::LOST_VALUES_AT, 1);
    order.put32(table(&mut image), l::CONTROL_AT + l::USED_COUNTERS_AT, 4);
    let session = first(&image);
    let gaps: Vec<_> = session.evidence().gaps.iter().map(|gap| gap.place.as_str()).collect();
    for told in [
        "5 additions to counters that found none of the 8 entries free",
        "1 value to histograms that found none of the 2 entries free",
    ] {
        assert!(gaps.contains(&told), "{gaps:?}");
    }
    let note = "1 counter was being entered in the table";
    assert!(session.evidence().notes.iter().any(|line| line.starts_with(note)));
    image.regions.retain(|region| region.name != "counters");
    let session = first(&image);
    let told =
        "the counters region is not in the image: up to 8 counters and 2 histograms are lost";
    assert!(session.evidence().gaps.iter().any(|gap| gap.place == told));
    assert!(session.info().metrics.is_empty());
}

/// A bit of the header that has flipped is found by its checksum.
#[test]
fn a_damaged_header_of_the_table_costs_nothing_or_is_told() {
    for at in 0..CHECK_AT + 8 {
        let mut image = image(Order::Little);
        table(&mut image)[at] ^= 0x10;
        let session = first(&image);
        assert!(shown(&session).len() == 3 || tells(&session), "byte {at}");
    }
}
