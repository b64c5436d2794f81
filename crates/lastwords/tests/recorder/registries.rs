//! Reaches callsites while a registry cannot be written. Events that can be recorded are recorded,
//! and the rest are counted.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::mpsc;

use crate::common::{folder, lost_by, numbers, with_main};
use lastwords::{Session, event};
use lastwords_abi::stream::{LOST_LOCK, LOST_NO_ENTRY};

/// Holds a registry's lock with the id of a thread that lives until this is dropped.
pub(crate) struct Held {
    file: File,
    _stop: mpsc::Sender<()>,
}

/// Offset of the lock in the registry's file.
const LOCK_AT: u64 = 128;

impl Held {
    pub(crate) fn new(session: &Session) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let (tell, tid) = mpsc::channel();
        std::thread::spawn(move || {
            // SAFETY: the call has no arguments.
            tell.send(unsafe { libc::gettid() } as u64).expect("the test listens");
            stopped.recv().expect_err("nothing is sent");
        });
        let registry = folder(session).join("registry");
        let file = File::options().write(true).open(registry).expect("a registry");
        let owner = tid.recv().expect("a thread") << 32;
        file.write_all_at(&owner.to_ne_bytes(), LOCK_AT).expect("the lock is written");
        Self { file, _stop: stop }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.file.write_all_at(&[0; 8], LOCK_AT).expect("the lock is given back");
    }
}

fn begin(name: &str, dir: &Path) -> Session {
    with_main(name, dir).start().expect("a session")
}

#[test]
fn an_id_that_was_given_beside_a_busy_registry_is_not_used_in_another_session() {
    alone!(in dir);
    let late = |number: u64| event!(test, "late", number = number);
    let first = begin("first", dir.path());
    let second = begin("second", dir.path());
    // Ids are given in the order of the first events: in the first session, `late` has an id that
    // is not 0.
    event!(test, "early", number = 0u64);
    let held = Held::new(&second);
    late(1);
    assert_eq!(
        numbers(&folder(&first)),
        [0, 1],
        "a registry that is busy costs its own session only"
    );
    assert_eq!(
        (numbers(&folder(&second)), lost_by(&folder(&second), LOST_LOCK..=LOST_LOCK)),
        (vec![0], 1)
    );
    drop(first);
    drop(held);
    // This session takes the slot of the first, and has no description yet.
    let third = begin("third", dir.path());
    late(2);
    assert_eq!(numbers(&folder(&third)), [2], "the event has an id that the registry describes");
    drop((second, third));
}

#[test]
fn events_without_a_description_are_counted() {
    alone!(in dir);
    let small = with_main("small", dir.path()).registry_size(4096);
    let session = small.start().expect("a session");
    macro_rules! many {
        ($($name:literal)*) => { $(event!(test, $name, number = 7u64, text = "some text for a longer description");)* };
    }
    let before = numbers(&folder(&session)).len() as u64;
    let mut all = 0;
    for _ in 0..3 {
        many!("a" "b" "c" "d" "e" "f" "g" "h" "i" "j" "k" "l" "m" "n" "o" "p" "q" "r" "s" "t" "u" "v" "w" "x" "y" "z");
        many!("aa" "ab" "ac" "ad" "ae" "af" "ag" "ah" "ai" "aj" "ak" "al" "am" "an" "ao" "ap" "aq" "ar" "as" "at" "au" "av" "aw" "ax" "ay" "az");
        all += 52;
    }
    let found = numbers(&folder(&session)).len() as u64 - before;
    let lost = lost_by(&folder(&session), LOST_NO_ENTRY..=LOST_NO_ENTRY);
    assert!(lost > 0, "the registry was to be too small: {found} events");
    assert_eq!(found + lost, all);
}

#[test]
fn what_is_kept_stays_apart() {
    alone!();
    use lastwords::__private::{keep, keep_all};
    let kept: Vec<&[u64; 100]> = (0..1000).map_while(|n| keep([n; 100])).collect();
    assert_eq!(kept.len(), 1000);
    assert!((0..).zip(kept).all(|(n, words)| *words == [n; 100]));
    assert_eq!(keep_all((0..1000u16).map(Some)).map(<[_]>::to_vec), Some((0..1000).collect()));
    assert_eq!(keep_all([None::<u8>; 0]).map(<[_]>::len), Some(0));
    let long = keep_all((0..100_000u32).map(Some)).map(<[_]>::to_vec);
    assert_eq!(long, Some((0..100_000).collect()), "more than a chunk has");
    assert_eq!(keep_all([Some(1), None]), None);
}
