//! Filters, triggers and restrictions of a mounted session, as the kernel has them.

use super::mount::{Mount, events, sequences};
use crate::child::start;
use crate::support::Place;
use lastwords_testkit::text::Text as _;

#[test]
fn filters_and_triggers_of_events() {
    let place = Place::new();
    let _app = start(&place, "shm", "tick");
    let mount = Mount::start(&place);
    let ticks = |command: &str| {
        let text = mount.ok(&format!("{command}; sleep 0.1; echo > trace; sleep 0.2; cat trace"));
        assert!(sequences(&text, "test:tock:").len() > 10, "{text}");
        sequences(&text, "test:tick:")
    };
    let odd = ticks("echo '(sequence & 1) == 1' > events/test/tick/filter");
    assert!(odd.len() > 5 && odd.iter().all(|sequence| sequence % 2 == 1), "{odd:?}");
    assert_eq!(
        mount.ok("cat events/test/tick/filter events/test/tock/filter"),
        "(sequence & 1) == 1\nnone\n"
    );
    // A filter stays with its event while the event is disabled, and is set while it is.
    assert!(ticks("echo 0 > events/test/tick/enable").is_empty());
    assert_eq!(mount.ok("cat events/test/tick/filter"), "(sequence & 1) == 1\n");
    assert!(ticks("echo '(sequence & 1) == 0' > events/test/tick/filter").is_empty());
    assert_eq!(mount.ok("cat events/test/tick/enable"), "0\n");
    for command in [
        "echo 1 > events/test/enable",
        "echo > set_event; echo test: > set_event",
        "echo 1 > events/enable",
    ] {
        let even = ticks(command);
        assert!(
            even.len() > 5 && even.iter().all(|sequence| sequence % 2 == 0),
            "{command}: {even:?}"
        );
    }
    let all = ticks("echo 0 > events/test/tick/filter; cat events/test/tick/filter");
    assert!(all.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() > 10, "{all:?}");
    assert_eq!(
        mount.ok("echo 'sequence >= 0' > events/test/filter; cat events/test/t*ck/filter"),
        "sequence >= 0\n".repeat(2)
    );

    let text = mount.ok("cat events/test/tick/trigger");
    text.has("# traceon traceoff snapshot enable_event disable_event");
    let text = mount.refused("echo 'snapshot if bytes > 1' > events/test/tick/trigger");
    text.has("a field of the event");
    mount.refused("echo stacktrace > events/test/tick/trigger").has("the recorder takes no stacks");
    mount.ok("echo '!traceoff' > events/test/tick/trigger");
    let set = "echo 'traceoff if sequence > 3' > events/test/tock/trigger";
    assert_eq!(
        mount.ok(&format!("{set}; sleep 0.3; cat tracing_on events/test/tock/trigger")),
        "0\ntraceoff:unlimited if sequence > 3\n"
    );
    mount.refused(set).has("has such a trigger");
    let on = "echo '!traceoff' > events/test/tock/trigger; sleep 0.1; echo 1 > tracing_on; sleep 0.1; cat tracing_on events/test/tock/trigger";
    mount.ok(on).starts("1\n# Available");
}

#[test]
fn triggers_fire_as_often_as_they_say() {
    let place = Place::new();
    let _app = start(&place, "shm", "tick");
    let mount = Mount::start(&place);
    let set =
        |event: &str, text: &str| mount.ok(&format!("echo '{text}' > events/test/{event}/trigger"));
    set("tock", "snapshot:1 if sequence > 3");
    let text = mount.ok("sleep 0.3; cat events/test/tock/trigger");
    assert_eq!(text, "snapshot:count=0 if sequence > 3\n");
    // The snapshot was saved as a session, and is shown as the kernel shows it, until it is
    // cleared.
    let snapshot = mount.ok("cat snapshot");
    let taken = sequences(&snapshot, "test:tock:");
    assert_eq!(
        taken,
        (0..).take(taken.len()).collect::<Vec<u64>>(),
        "all that was recorded before"
    );
    assert!(taken.len() > 3 && snapshot.contains("snapshot by the session"), "{snapshot}");
    let triggers = |text: &str| text.matches("lastwords:trigger:").count();
    assert_eq!(triggers(&snapshot) + triggers(&mount.ok("cat trace")), 1);
    mount.ok("echo 2 > snapshot; cat snapshot").has("# * Snapshot is allocated *\n");
    set("tock", "!snapshot");
    mount.ok("cat snapshot").has("# * Snapshot is allocated *\n");

    set("tock", "disable_event:test:tick");
    assert_eq!(
        mount.ok("sleep 0.2; cat events/test/tick/enable events/test/tock/enable"),
        "0*\n1\n"
    );
    let text = mount.ok("sleep 0.1; echo > trace; sleep 0.2; cat trace");
    assert!(!text.contains("test:tick:") && sequences(&text, "test:tock:").len() > 10, "{text}");
    set("tock", "!disable_event:test:tick");
    assert_eq!(mount.ok("cat events/test/tick/enable"), "0\n", "nothing changes it back");
    set("tock", "enable_event:test:tick:3");
    assert_eq!(mount.ok("sleep 0.2; cat events/test/tick/enable"), "1*\n");
    assert_eq!(mount.ok("cat events/test/tock/trigger"), "enable_event:test:tick:count=2\n");
    // Recording starts by an event that is not recorded, because recording is off and the event is
    // disabled.
    mount.ok("echo 0 > events/test/tock/enable; echo 0 > tracing_on");
    set("tock", "traceon:1");
    assert_eq!(mount.ok("sleep 0.2; cat tracing_on"), "1\n");
    assert_eq!(mount.ok("grep traceon events/test/tock/trigger"), "traceon:count=0\n");
    let listed = place.ok(&["trigger", "list", "app"]);
    assert_eq!(
        listed, "test:tock --times 2 --do 'enable:test:tick'\ntest:tock --times 0 --do start\n",
        "the program's own words"
    );
}

/// The threads of an application in another process are restricted, whatever its filters are.
#[test]
fn threads_and_cpus_are_chosen() {
    let place = Place::new();
    let app = start(&place, "shm", "tick");
    let mount = Mount::start(&place);
    let ticks = |command: &str| {
        let text = mount.ok(&format!("{command}; sleep 0.1; echo > trace; sleep 0.2; cat trace"));
        (sequences(&text, "test:tick:"), sequences(&text, "test:tock:").len())
    };
    let text = mount.ok("cat trace");
    let (task, _) = events(&text)[0].split_once(" [").unwrap();
    let tid = task.rsplit_once('-').unwrap().1.trim();
    assert_ne!(tid, app.pid().to_string(), "another thread than the first records");
    let (ticked, tocked) = ticks(&format!(
        "echo 'sequence & 1' > events/test/tick/filter; echo {tid} > set_event_pid"
    ));
    assert!(
        ticked.len() > 5 && ticked.iter().all(|sequence| sequence % 2 == 1) && tocked > 10,
        "{ticked:?} {tocked}"
    );
    assert_eq!(ticks(&format!("echo {} > set_event_pid", app.pid())), (vec![], 0));
    assert_eq!(
        ticks("echo 1 > events/enable; echo 'sequence >= 0' > events/test/tock/filter"),
        (vec![], 0)
    );
    assert_eq!(mount.ok("cat events/test/t*ck/filter"), "sequence & 1\nsequence >= 0\n");
    let (ticked, tocked) = ticks(&format!("echo {tid} >> set_event_pid"));
    assert!(
        ticked.len() > 5 && ticked.iter().all(|sequence| sequence % 2 == 1) && tocked > 10,
        "{ticked:?} {tocked}"
    );
    assert_eq!(ticks(&format!("echo {tid} > set_event_notrace_pid")), (vec![], 0));
    assert!(ticks("echo > set_event_pid; echo > set_event_notrace_pid").1 > 10);
    assert_eq!(ticks("echo 0 > tracing_cpumask"), (vec![], 0));
    assert!(
        place.ok(&["list", "app"]).contains("$ctx.cpu_id == 4294967295"),
        "the rules of the session have it"
    );
    assert!(
        ticks("n=$(ls -d per_cpu/cpu* | wc -l); printf '%x' $(( (1 << n) - 1 )) > tracing_cpumask")
            .1
            > 10
    );
    assert_eq!(
        mount.ok("cat events/test/t*ck/filter set_event_pid"),
        "sequence & 1\nsequence >= 0\n"
    );
    place.ok(&["list", "app"]).lacks("$ctx");
}
