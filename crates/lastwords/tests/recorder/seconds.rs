//! Tests rings for a number of seconds. Their size follows from a given rate, or from the rate of
//! an earlier session.

use crate::common::plain;
use std::path::Path;
use std::time::{Duration, Instant};

use lastwords::{Builder, Session, event};
use lastwords_control::Handle;

/// Size of an event of [`record`] with its header, in bytes.
const EVENT: u64 = 4 + 64;

fn builder(dir: &Path) -> Builder {
    let main = plain("main").sub_buffers(4, 16 << 10);
    Session::builder("seconds").dir(dir).channel(main).listen(false)
}

/// Returns the number of sub-buffers of the first channel, and the bytes of each.
fn shape(session: &Session) -> (u64, u64) {
    let folder = session.folder().expect("a folder");
    let details =
        Handle::open(folder).expect("the session").summary().details.expect("what it says");
    (details.channels[0].sub_buffers.into(), details.channels[0].sub_buffer_size)
}

#[test]
fn a_rate_that_is_given() {
    alone!(in dir);
    for (rate, seconds, expected) in
        [(1 << 20, 10, 4 << 20), (1000, 3, 4096), (100_000, 2, 128 << 10)]
    {
        let session = builder(dir.path()).seconds(seconds).rate(rate).start().expect("a session");
        let (count, each) = shape(&session);
        assert_eq!((count, each), (4, expected), "{rate} bytes a second");
        assert!(
            (count - 1) * each >= rate * u64::from(seconds),
            "all but the sub-buffer that is overwritten"
        );
    }
}

#[test]
fn the_rate_of_the_session_before() {
    alone!(in dir);
    let first = builder(dir.path()).seconds(2).start().expect("a session");
    assert_eq!(shape(&first), (4, 16 << 10), "nothing was measured yet");
    let begun = Instant::now();
    let mut events = 0u64;
    while begun.elapsed() < Duration::from_millis(400) {
        for _ in 0..50 {
            event!(s, "e", a = [events; 8]);
            events += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let lived = begun.elapsed();
    drop(first);
    let second = builder(dir.path()).seconds(2).start().expect("a session");
    let (count, each) = shape(&second);
    let rate = (events * EVENT) as f64 / lived.as_secs_f64();
    let held = ((count - 1) * each) as f64 / rate;
    // One CPU may have recorded only half of the events, sizes are powers of two, and the session
    // lived a little longer than it recorded.
    assert!(
        (0.5..6.0).contains(&held),
        "{count} x {each} bytes hold {held} s of {rate} bytes a second"
    );
    assert!(each > 16 << 10, "{each}: not the default");
}
