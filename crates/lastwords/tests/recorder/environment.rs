//! Tests what the environment of an application and its recorder do to each other: no folder, the
//! variable `LASTWORDS`, and `errno`.

use crate::common::{child_dir, folder, numbers, record, succeeds, with_main};
use crate::endings::start;
use lastwords::Session;
use lastwords_testkit::text::Text as _;
#[test]
fn an_application_starts_without_its_recorder() {
    alone!(in dir);
    let file = dir.path().join("file");
    std::fs::write(&file, "no folder").expect("a file");
    let session = with_main("off", &file).start_or_disabled();
    session.note().starts("disabled: ").has("file");
    assert!(
        matches!(session.problem(), Some(lastwords::Error::Io { .. })),
        "{:?}",
        session.problem()
    );
    assert_eq!((session.name().as_str(), session.folder(), session.uuid()), ("off", None, [0; 16]));
    record(0..10);
    session.disable("test:*").expect("nothing to do");
    session.stop();
    session.resume();
    session
        .snapshot(lastwords::snapshot::Rings::All)
        .expect_err("nothing is recorded")
        .to_string()
        .has("disabled")
        .has("file");
    assert_eq!(session.finish(Ok::<_, ()>(7)), Ok(7));
    let session = with_main("on", dir.path()).start_or_disabled();
    assert!(session.problem().is_none() && session.folder().is_some_and(|folder| folder.exists()));
}

#[test]
fn child_asks_for_what_its_environment_says() {
    let Some(dir) = child_dir() else { return };
    let session = Session::builder("asked").dir(&dir).events("test:*").start().expect("it starts");
    record(0..5);
    lastwords::event!(shop, "order", level: DEBUG, number = 5u64);
    lastwords::event!(shop, "detail", level: TRACE, number = 6u64);
    lastwords::event!(other, "alarm", level: ERROR, number = 7u64);
    std::fs::write(dir.with_extension("note"), session.note()).expect("written");
    let file = std::fs::metadata(folder(&session).join("stream-0000")).expect("a stream").len();
    std::fs::write(dir.with_extension("size"), file.to_string()).expect("written");
}

#[test]
fn the_environment_enables_sizes_and_retains() {
    alone!(in place);
    let dir = place.path().join("base");
    std::fs::create_dir(&dir).expect("a folder");
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("chmod");
    let run = |asked: &str| {
        let name = "child_asks_for_what_its_environment_says";
        succeeds(name, &dir, &[("LASTWORDS", asked)]);
        let said = |what: &str| std::fs::read_to_string(dir.with_extension(what)).expect("said");
        let mut found = lastwords_control::list(Some(&dir)).expect("the list");
        found.sort_by_key(|summary| {
            std::cmp::Reverse(summary.details.as_ref().map_or(0, |details| details.created))
        });
        let newest = found[0].details.clone().expect("details");
        (found.len(), newest, said("note"), said("size").parse::<u64>().expect("a number"))
    };
    let (_, plain, note, size) = run("");
    note.lacks("LASTWORDS");
    let (_, asked, note, smaller) = run("shop=debug,size=256K,retain=1,loud=very");
    note.has("\"loud=very\" is ignored").has("trace");
    assert!(smaller < size, "{smaller} bytes, {size} without");
    assert!(asked.bytes < plain.bytes);
    let rules: Vec<_> =
        asked.rules.iter().map(|rule| (rule.enable, rule.pattern.as_str(), rule.level)).collect();
    assert!(
        rules.ends_with(&[(false, "*", None), (true, "shop:*", Some(lastwords::Level::Debug))]),
        "{rules:?}"
    );
    assert_eq!(asked.channels[0].events, 1, "shop:order alone");
    let (sessions, ..) = run("retain=1");
    assert_eq!(sessions, 2, "one that had ended, and the last");
}

/// Returns errno of this thread.
fn errno() -> &'static mut i32 {
    // SAFETY: the C library provides this address for the thread, and no other reference to it is
    // kept.
    unsafe { &mut *libc::__errno_location() }
}

#[test]
fn recording_leaves_errno_as_it_was() {
    alone!(in dir);
    let session = start("errno", dir.path());
    extern "C" fn handler(_signal: i32) {
        lastwords::event!(test, "handled", number = 7u64);
    }
    let action = handler as extern "C" fn(i32);
    // SAFETY: the handler records, which is async-signal-safe.
    unsafe { libc::signal(libc::SIGUSR1, action as libc::sighandler_t) };
    // The first event of a line on a thread describes the line, later ones do not.
    for _ in 0..2 {
        *errno() = 77;
        record(0..1);
        // SAFETY: the signal has a handler.
        unsafe { libc::raise(libc::SIGUSR1) };
        assert_eq!(*errno(), 77);
    }
    assert_eq!(numbers(&folder(&session)), [0, 7, 0, 7]);
}
