//! `trace_pipe_raw` and `snapshot_raw` of a mount, read by trace-cmd, whose libtraceevent shares no
//! code with ours.

use crate::child::{EVENTS, THREADS, start};
use crate::mount::{Mount, events};
use crate::support::{Place, ran, tool};
use lastwords_testkit::text::Text as _;
use lastwords_testkit::trace_cmd::{self, Tracing};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Returns the events that trace-cmd reads in the pages of the CPUs' files, with their times.
fn by_trace_cmd(mount: &Mount<'_>, place: &Place, file: &str) -> BTreeMap<String, f64> {
    let path = |name: &str| place.at(name).to_str().unwrap().to_owned();
    let (head, out) = (path("head.dat"), path("out.dat"));
    tool("trace-cmd", &["restore", "-c", "-t", &path("m"), "-k", "/dev/null", "-o", &head]);
    let mut args = vec!["restore".to_owned(), "-i".to_owned(), head, "-o".to_owned(), out.clone()];
    let mut cpus: Vec<String> = mount.ok("ls per_cpu").lines().map(str::to_owned).collect();
    cpus.sort_by_key(|cpu| cpu[3..].parse::<u32>().unwrap());
    for cpu in cpus {
        let to = path(&cpu);
        // The status tells that nothing more is there.
        mount.sh(&format!("dd if=per_cpu/{cpu}/{file} of={to} bs=4096 iflag=nonblock status=none"));
        assert_eq!(std::fs::metadata(&to).unwrap().len() % 4096, 0, "whole pages");
        args.push(to);
    }
    tool("trace-cmd", &args.iter().map(String::as_str).collect::<Vec<_>>());
    let text = tool("trace-cmd", &["report", "-R", "-t", "-i", &out]).out;
    text.lines().filter(|line| line.contains(" [0")).map(of_trace_cmd).collect()
}

/// `<...>-12 [001] 1795631094.242405123: tick:  thread=0 sequence=1`
fn of_trace_cmd(line: &str) -> (String, f64) {
    let (task, rest) = line.split_once(" [").unwrap();
    let (cpu, rest) = rest.split_once("] ").unwrap();
    let (time, rest) = rest.trim().split_once(": ").unwrap();
    let (name, fields) = rest.split_once(':').unwrap();
    let pid = task.trim().rsplit_once('-').unwrap().1;
    (format!("{pid} {cpu} {name} {}", fields.trim()), time.parse().unwrap())
}

/// A line of `trace` in the same form.
fn of_trace(line: &str) -> (String, f64) {
    let (task, rest) = line.split_once(" [").unwrap();
    let (cpu, rest) = rest.split_once("] ").unwrap();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let pid = task.trim().rsplit_once('-').unwrap().1;
    let (head, time) = (format!("{pid} {cpu}"), words[1].trim_end_matches(':').parse().unwrap());
    let event = match words[2] {
        // marker: thread 1 step 3
        "marker:" => format!(
            "{head} thread__thread__step__sequence_ thread={} sequence={}",
            words[4], words[6]
        ),
        "test:tick:" => format!("{head} tick {} {}", words[3], words[4]),
        // Its text has control characters, so that trace-cmd shows bytes; the float is shown as its
        // bits.
        _ => {
            assert_eq!(words[5..], ["text=\"\\e[31mred\\n\"", "share=0.5"], "{line}");
            let bytes: Vec<String> =
                b"\x1b[31mred\n\0".iter().map(|byte| format!("{byte:02x}")).collect();
            let (text, share) = (bytes.join(", "), 0.5f64.to_bits());
            format!("{head} text {} {} text=ARRAY[{text}] share=0x{share:x}", words[3], words[4])
        }
    };
    (event, time)
}

#[test]
fn trace_cmd_reads_the_same_events() {
    let place = Place::new();
    let _app = start(&place, "shm", "wait");
    let mount = Mount::start(&place);
    let expected: BTreeMap<String, f64> =
        events(&mount.ok("cat trace")).into_iter().map(of_trace).collect();
    assert_eq!(expected.len() as u64, THREADS * EVENTS);
    mount.ok("echo 1 > snapshot");
    for _ in ["once", "again"] {
        let found = by_trace_cmd(&mount, &place, "snapshot_raw");
        assert_eq!(found.len(), expected.len());
        for (event, time) in &expected {
            // Each read relates the session's clock to real time anew.
            let is_same = found.get(event).is_some_and(|found| (found - time).abs() < 1e-3);
            assert!(is_same, "{time} {event}: {:?}", found.get(event));
        }
    }
    assert!(by_trace_cmd(&mount, &place, "trace_pipe_raw").is_empty(), "all is in the snapshot");
}

#[test]
fn trace_cmd_records_from_a_mount() {
    if !rustix::process::geteuid().is_root() || !Path::new("/sys/kernel/tracing").is_dir() {
        return;
    }
    let place = Place::new();
    let _app = start(&place, "shm", "tick");
    let mount = Mount::start(&place);
    let [program, words @ ..] = trace_cmd::words(Tracing::Folder(&place.at("m")));
    let mut command = Command::new(program);
    command.args(words).args(["record", "-q", "-o", "record.dat", "-e", "test", "sleep", "0.3"]);
    ran(command.current_dir(place.path()).output().expect("unshare")).has_status(0);
    let text = tool("trace-cmd", &["report", "-i", place.at("record.dat").to_str().unwrap()]).out;
    let ticks = text.lines().filter(|line| line.contains("] ")).filter_map(|line| {
        line.has("thread=0 sequence=");
        let number = line.rsplit_once("sequence=").unwrap().1.trim().parse().unwrap();
        line.contains(" tick: ").then_some(number)
    });
    let ticks: Vec<u64> = ticks.collect();
    // trace-cmd disables all events first, which the application follows a little later, and then
    // enables these.
    let gaps = ticks.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
    assert!(!ticks.is_empty() && gaps <= 1 && ticks.is_sorted(), "{ticks:?}");
    assert_eq!(mount.ok("cat events/enable"), "0\n", "trace-cmd disables what it leaves");
}
