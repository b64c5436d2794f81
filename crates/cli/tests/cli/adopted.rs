//! `record --instance` in an instance that exists, and `report` of an instance where the kernel's
//! memory cannot be read. They need root.

use crate::record::{Instance, KILLED, KILLS, kills, state, told, tracing};
use crate::support::{Place, Ran, ran, words};
use lastwords_testkit::text::Text as _;
use std::process::Command;

/// An instance with settings of its own.
fn own(name: &str) -> Instance {
    let own = Instance::new(name);
    own.set("trace_clock", "boot");
    own.set("buffer_size_kb", "512");
    own.set("tracing_on", "0");
    own.set("trace", "");
    own.set("events/sched/sched_process_exit/enable", "1");
    own
}

fn settings(own: &Instance) -> Vec<String> {
    let files = [
        "trace_clock",
        "buffer_size_kb",
        "set_event",
        "tracing_on",
        "current_tracer",
        "options/overwrite",
        "events/syscalls/sys_enter_kill/filter",
    ];
    files.iter().map(|file| format!("{file}: {}", own.get(file))).collect()
}

#[test]
fn an_instance_that_exists_is_used_and_left_as_it_was() {
    let Some(place) = tracing() else { return };
    let own = own("lastwords_own");
    let (before, machine) = (settings(&own), state());
    let new =
        ["-e", "syscalls:sys_enter_kill", "-f", KILLED, "-p", "nop", "--discard", "-C", "mono"];
    for (how, output) in
        [(&new[..], "new.dat"), (&[&new[..6], &["--stream"]].concat(), "stream.dat")]
    {
        let end = words("--size 8M --instance lastwords_own -o");
        let end = [&end[..], &[output, "--", "bash", "-c", KILLS]].concat();
        let done = place.run(&[&["record"], how, &end].concat());
        done.has_status(0);
        let file = place.at(output);
        assert_eq!(kills(&file), (0..20_000).collect::<Vec<_>>(), "{}", done.err);
        let text = place.ok(&["report", file.to_str().unwrap()]);
        assert!(text.contains("sched_process_exit: "), "what was enabled before is recorded, too");
        assert_eq!(told(&done), text.lines().filter(|line| !line.starts_with('#')).count());
        assert_eq!((settings(&own), state()), (before.clone(), machine.clone()), "{output}");
    }
    // Without events of the command line, those of the instance are recorded.
    let done = place.run(&["record", "--instance", "lastwords_own", "-o", "own.dat", "--", "true"]);
    assert!(done.status == 0 && told(&done) > 0, "{}", done.err);
    place
        .run(&words("record --instance lastwords_own -e sched -R traceoff -o x.dat"))
        .has_status(1)
        .says("triggers need an instance");
    assert_eq!(settings(&own), before);
}

/// Runs the program where nobody can read the kernel's memory. A kernel may have no file of it at
/// all.
fn without_kcore(place: &Place, args: &[&str]) -> Ran {
    let mut command = Command::new("unshare");
    let hide =
        "[ ! -e /proc/kcore ] || mount --bind /dev/null /proc/kcore || exit 99; exec \"$0\" \"$@\"";
    command.args(["-m", "sh", "-c", hide]);
    command.arg(env!("CARGO_BIN_EXE_lastwords")).args(args);
    command.current_dir(place.path()).env("LASTWORDS_DIR", place.sessions());
    ran(command.output().expect("unshare"))
}

/// The lines of a kernel's text without the names of tasks: the kernel may take note of one between
/// two reads.
fn unnamed(text: &str) -> Vec<&str> {
    let of_line = |line| match str::split_once(line, " [") {
        Some((task, _)) if !line.starts_with('#') => {
            task.rsplit_once('-').map_or(line, |(name, _)| &line[name.len()..])
        }
        _ => line,
    };
    text.lines().map(of_line).collect()
}

#[test]
fn an_instance_is_read_from_its_files_where_the_kernels_memory_cannot_be() {
    let Some(place) = tracing() else { return };
    let own = own("lastwords_text");
    own.set("tracing_on", "1");
    own.set("trace_marker", "one mark");
    own.set("tracing_on", "0");
    let read = || own.get("trace");
    let text = read();
    text.has("tracing_mark_write: one mark");
    for word in [own.0.to_str().unwrap(), "instances/lastwords_text"] {
        let done = without_kcore(&place, &["report", word]);
        assert_eq!((done.status, unnamed(&done.out)), (0, unnamed(&text)), "{word}: {}", done.err);
        done.says("the kernel's own text");
    }
    without_kcore(&place, &["report", "instances/lastwords_text", "--event", "print"])
        .has_status(1)
        .says("--consume");
    assert_eq!(unnamed(&read()), unnamed(&text), "nothing was consumed");
    without_kcore(&place, &["report", "instances/lastwords_text", "--consume"])
        .has_status(0)
        .prints("one mark");
    assert!(!read().contains("one mark"), "it has left the ring");
}
