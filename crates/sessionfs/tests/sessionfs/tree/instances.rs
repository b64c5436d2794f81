//! Channels that are added to an application's session, as instances of the mount.

use lastwords::{ChannelConfig, event};
use lastwords_sessionfs::Errno;

use super::{Place, READ, TRUNCATE, numbers};

/// The session has one snapshot and one set of triggers.
fn shares_snapshot_and_triggers(place: &Place, record: &dyn Fn(std::ops::Range<u64>)) {
    let read = |path: &str| numbers(&place.read(path));
    assert_eq!(place.write("instances/few/snapshot", "1"), Err(Errno::OPNOTSUPP));
    assert_eq!(
        place.write("instances/few/events/second/rare/trigger", "traceoff"),
        Err(Errno::OPNOTSUPP)
    );
    record(43..44);
    place.write("snapshot", "1").unwrap();
    assert_eq!((read("instances/few/snapshot"), read("snapshot")), (vec![1043], vec![42, 43]));
    // It is free for the next one when both buffers have consumed their part of it.
    assert_eq!(read("snapshot_pipe"), [42, 43]);
    assert_eq!((read("instances/few/snapshot"), read("snapshot")), (vec![1043], vec![]));
    let state = || {
        lastwords_control::Handle::open(&place.folder).unwrap().summary().details.unwrap().snapshot
    };
    assert_eq!(state().word(), "taken");
    assert_eq!(read("instances/few/snapshot_pipe"), [1043]);
    assert_eq!(state().word(), "ready");
}

/// An instance goes, and comes again empty.
fn goes_and_comes_again_empty(place: &Place, record: &dyn Fn(std::ops::Range<u64>)) {
    let read = |path: &str| numbers(&place.read(path));
    let open = place.tree.open("instances/few/trace", READ).unwrap();
    assert_eq!(place.tree.remove_folder("instances/few"), Err(Errno::BUSY));
    drop(open);
    record(44..45);
    assert_eq!(place.tree.remove_folder("instances/few"), Ok(()));
    assert_eq!(place.tree.entry("instances/few"), Err(Errno::NOENT));
    record(45..46);
    assert_eq!(place.tree.make_folder("instances/few"), Ok(()));
    assert_eq!(place.read("instances/few/events/second/enable"), "0\n");
    record(46..47);
    assert_eq!((read("instances/few/trace"), read("trace")), (vec![], vec![44, 45, 46]));
}

/// An instance that `mkdir` makes has events of the same application, as many as are enabled in it,
/// and nothing that is done in one buffer changes the other.
#[test]
fn an_instance_is_a_second_buffer_of_the_application() {
    let place = Place::new("second", ChannelConfig::new("main"));
    let record = |numbers: std::ops::Range<u64>| {
        // The session's thread follows the rules within milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(100));
        for number in numbers {
            event!(second, "often", number = number);
            event!(second, "rare", number = number + 1000);
        }
    };
    let read = |path: &str| numbers(&place.read(path));
    record(0..10);
    assert_eq!(place.tree.make_folder("instances/few"), Ok(()));
    assert_eq!(place.tree.make_folder("instances/few"), Err(Errno::EXIST));
    assert_eq!(place.tree.list("instances").unwrap().len(), 1);
    assert_eq!(place.read("instances/few/events/second/enable"), "0\n");
    record(10..20);
    assert_eq!(read("instances/few/trace"), [0u64; 0]);
    // It takes one event alone, and the top level takes all others.
    place.write("instances/few/events/second/rare/enable", "1").unwrap();
    place.write("events/second/rare/enable", "0").unwrap();
    record(20..30);
    assert_eq!(place.read("instances/few/set_event"), "second:rare\n");
    let rare: Vec<u64> = (1020..1030).collect();
    assert_eq!(read("instances/few/trace"), rare);
    let top = |upto: u64| {
        (0..upto).flat_map(|n| [Some(n), Some(n + 1000).filter(|_| n < 20)]).flatten().collect()
    };
    let all: Vec<u64> = top(30);
    assert_eq!(read("trace"), all);
    assert!(
        place.read("instances/few/trace").contains("# entries-in-buffer/entries-written: 10/10 ")
    );
    // A rule of the top level for all channels is not for the instance.
    place.write("events/second/enable", "1").unwrap();
    place.write("events/second/rare/enable", "0").unwrap();
    assert_eq!(place.read("instances/few/events/second/enable"), "X\n");
    place.write("instances/few/events/second/rare/filter", "number != 1035").unwrap();
    place.write("instances/few/tracing_on", "0").unwrap();
    assert_eq!(
        (place.read("tracing_on"), place.read("instances/few/tracing_on")),
        ("1\n".into(), "0\n".into())
    );
    record(30..32);
    place.write("instances/few/tracing_on", "1").unwrap();
    record(32..40);
    assert_eq!(place.read("events/second/rare/filter"), "none\n");
    let rare: Vec<u64> = (1020..1030).chain(1032..1035).chain(1036..1040).collect();
    // The other buffer still has the events that a reader of one consumes.
    assert_eq!(read("instances/few/trace_pipe"), rare);
    assert_eq!((read("instances/few/trace"), read("trace")), (vec![], top(40)));
    record(40..42);
    assert_eq!(read("trace_pipe"), top(42));
    assert_eq!((read("trace"), read("instances/few/trace")), (vec![], vec![1040, 1041]));
    record(42..43);
    drop(place.tree.open("instances/few/trace", TRUNCATE).unwrap());
    assert_eq!((read("instances/few/trace"), read("trace")), (vec![], vec![42]));
    shares_snapshot_and_triggers(&place, &record);
    goes_and_comes_again_empty(&place, &record);
}
