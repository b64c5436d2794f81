//! Starts and ends many sessions while others record. Each session must have its own events.

use std::path::Path;

use crate::common::{mappings, plain};
use crate::support::lines;
use lastwords::{Memory, Retention, Session, event};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list of descriptors").count()
}

fn start(name: &str, dir: &Path, memory: Memory) -> Session {
    let main = plain("main").sub_buffers(2, 16 << 10);
    let other = plain("other").sub_buffers(2, 16 << 10);
    let builder = Session::builder(name).dir(dir).channel(main).channel(other).backend(memory);
    builder.events("s:*").retention(Retention::ALL).start().expect("a session")
}

#[test]
fn sessions_of_many_threads_keep_their_events_apart() {
    alone!(in dir);
    let kept = std::sync::Mutex::new(Vec::new());
    let run = |thread: u32| {
        for round in 0..40u32 {
            let session = start(&format!("t{thread}-{round}"), dir.path(), Memory::Shm);
            for n in 0..20u32 {
                event!(s, "number", thread, round, n);
                event!(s, "text", text = "some text", thread, round, n);
                match thread % 2 {
                    0 => event!(s, "even", f = 1.5f64, thread, round, n),
                    _ => event!(s, "odd", yes = true, thread, round, n),
                }
            }
            if round % 4 == 3 {
                kept.lock().expect("a list").push((
                    thread,
                    round,
                    session.folder().expect("a folder").to_owned(),
                ));
            }
        }
    };
    let run = &run;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || run(thread));
        }
    });
    for (thread, round, folder) in kept.into_inner().expect("a list") {
        // The events that the others recorded meanwhile are there too, each as one of the four
        // kinds.
        let found = lines(&folder);
        let own = |n: u32| {
            let tail = format!("thread={thread} round={round} n={n}");
            let special = if thread % 2 == 0 {
                format!("s:even f=1.5 {tail}")
            } else {
                format!("s:odd yes=true {tail}")
            };
            [format!("s:number {tail}"), format!("s:text text=\"some text\" {tail}"), special]
        };
        for line in (0..20).flat_map(own) {
            let count = found.iter().filter(|found| **found == line).count();
            assert_eq!(count, 2, "{line}: in both channels of {}", folder.display());
        }
        assert!(found.iter().all(|line| is_one_of_ours(line)), "{}", folder.display());
    }
}

fn is_one_of_ours(line: &str) -> bool {
    let heads = ["s:number ", "s:text text=\"some text\" ", "s:even f=1.5 ", "s:odd yes=true "];
    let Some(rest) = heads.iter().find_map(|head| line.strip_prefix(head)) else { return false };
    let numbers: Vec<u32> =
        rest.split(' ').filter_map(|field| field.split_once('=')?.1.parse().ok()).collect();
    matches!(numbers[..], [0..4, 0..40, 0..20])
}

#[test]
fn what_ends_gives_its_descriptors_back() {
    alone!(in dir);
    for memory in [Memory::Shm, Memory::Memfd, Memory::Heap] {
        start("first", dir.path(), memory.clone()).close();
        let before = descriptors();
        for _ in 0..20 {
            let session = start("again", dir.path(), memory.clone());
            event!(s, "again", n = 1u32);
            session.close();
        }
        assert_eq!(descriptors(), before, "{memory:?}");
    }
}

#[test]
fn looking_at_sessions_leaves_nothing_behind() {
    alone!(in dir);
    let session = start("looked-at", dir.path(), Memory::Shm);
    let folder = session.folder().expect("a folder");
    let (stream, aside) = (folder.join("stream-0000"), folder.join("aside"));
    let look = || {
        let found = lastwords_control::list(Some(dir.path())).expect("a list");
        assert!(found[0].details.is_ok());
        let handle = lastwords_control::Handle::open(folder).expect("a session");
        handle.clear().expect("cleared");
        assert_eq!(handle.summary().name, "looked-at");
        drop(handle);
        // Regions that were mapped before the damage was found are unmapped, too.
        std::fs::rename(&stream, &aside).expect("moved away");
        lastwords_control::Handle::open(folder).expect_err("a region is missing");
        std::fs::rename(&aside, &stream).expect("moved back");
    };
    look();
    let before = (mappings(), descriptors());
    (0..100).for_each(|_| look());
    assert!(mappings() < before.0 + 20, "{} mappings, {before:?} before", mappings());
    assert_eq!(descriptors(), before.1);
}
