//! More threads record than a session without rseq has entries for. Their losses must be cheap, and
//! they must get entries when other threads end.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::common::{folder, numbers, record, started, wait_for, with_main};
use lastwords::Reservation;

/// Runs a thread that records once and lives until the sender of `end` is dropped.
fn recorder(recorded: Sender<()>, end: Receiver<()>) {
    record(0..1);
    recorded.send(()).expect("told");
    drop(recorded);
    // Nothing is ever sent; the call returns when the sender is dropped.
    let _ = end.recv();
}

#[test]
fn threads_without_a_place_lose_their_events_at_no_cost() {
    alone!(in dir);
    let session = started(with_main("many", dir.path()).reservation(Reservation::Lockless));
    let (recorded, all) = channel();
    let spawn = || {
        let (end, wait) = channel();
        let recorded = recorded.clone();
        let thread = std::thread::Builder::new()
            .stack_size(128 << 10)
            .spawn(move || recorder(recorded, wait));
        (thread.expect("a thread"), end)
    };
    let mut threads: Vec<_> = (0..lastwords_abi::session::MAX_THREADS).map(|_| spawn()).collect();
    threads.iter().for_each(|_| all.recv().expect("it recorded"));
    let path = folder(&session);
    let before = numbers(&path).len();
    record(1..2);
    let start = Instant::now();
    record(2..20_000);
    let took = start.elapsed();
    assert_eq!(numbers(&path).len(), before, "there is no place for this thread");
    // A search for the owners takes milliseconds, so it must not happen for each event.
    assert!(took < Duration::from_secs(1), "19,998 lost events took {took:?}");
    let (thread, end) = threads.pop().expect("a thread");
    drop(end);
    thread.join().expect("it ends");
    wait_for("the place of the thread that ended", || {
        record(20_000..20_001);
        numbers(&path).contains(&20_000)
    });
    for (thread, end) in threads {
        drop(end);
        thread.join().expect("it ends");
    }
}
