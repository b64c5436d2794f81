//! The death of a sender of a session costs what was recorded since the last flush, and no more.
#![allow(missing_docs, reason = "a test")]

mod support;

use lastwords::stream_out::Source;
use lastwords::{ChannelConfig, Reservation, Session, event};
use lastwords_stream::wire::Hello;
use lastwords_stream::{Sender, Told, session};
use lastwords_testkit::naive;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::{LIMITS, Running};

/// The values of all events in a session folder, sorted.
fn numbers(folder: &std::path::Path) -> Vec<u64> {
    let session = naive::read(folder).expect("readable").swap_remove(0);
    let all = session.streams.iter().flat_map(|stream| &stream.live).flat_map(|sub| &sub.events);
    // The context is before it.
    let number = |body: &[u8]| body.last_chunk::<8>().map(|bytes| u64::from_ne_bytes(*bytes));
    let mut found: Vec<u64> = all.filter_map(|(_, event)| number(&event.body)).collect();
    found.sort_unstable();
    found
}

#[test]
fn what_was_flushed_is_at_the_receiver() {
    for reservation in [Reservation::Rseq, Reservation::Lockless, Reservation::Locked] {
        let folder = tempfile::tempdir().unwrap();
        let (received, sessions) = (folder.path().join("in"), folder.path().join("s"));
        std::fs::create_dir(&received).unwrap();
        std::fs::create_dir(&sessions).unwrap();
        let running = Running::new(&received, LIMITS);
        let channel = ChannelConfig::new("main").sub_buffers(4, 4096);
        let recorded =
            Session::builder("few").dir(&sessions).channel(channel).reservation(reservation).start().unwrap();
        (0..30u64).for_each(|n| event!(test, "few", n));
        let from = recorded.folder().unwrap().to_owned();
        let address = format!("tcp:{}", running.address).parse().unwrap();
        let (ended, end) = UnixStream::pair().unwrap();
        let sending = std::thread::spawn(move || {
            let sender = Sender::connect(address, &Hello::of_this_machine("few")).unwrap();
            let source = Source::open(&from, false).unwrap();
            session::send(&sender, source, Duration::from_millis(50), ended.as_fd())
        });
        std::thread::sleep(Duration::from_millis(400));
        // More, of which the sub-buffers are closed and sent as a whole, and then a part again.
        (30..500u64).for_each(|n| event!(test, "few", n));
        std::thread::sleep(Duration::from_millis(400));
        // The receiver keeps what has arrived by now, as where a sender is killed.
        let told = running.stop();
        let saved = told.iter().find_map(|told| match told {
            Told::SavedSession(saved) => Some(saved),
            _ => None,
        });
        let saved = saved.expect("the session is saved");
        assert!(saved.ended_early.is_some());
        assert_eq!(numbers(&saved.path), (0..500).collect::<Vec<_>>(), "{reservation:?}");
        drop(end);
        assert!(sending.join().unwrap().is_err(), "the receiver has gone");
        recorded.remove();
    }
}
