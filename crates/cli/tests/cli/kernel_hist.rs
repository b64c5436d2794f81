//! `kernel hist` of a file, and `record -v`. That the kernel's histograms are shown and saved as they
//! are is a part of `cargo xtask lab --scenario hist`: not every kernel has them.

use crate::record::{TRACEFS, record, tracing};
use crate::support::Place;
use serde_json::json;
use std::fs;
use std::path::Path;

const TEXT: &str = "# instance: own
# event: syscalls:sys_enter_openat
# event histogram
#
# trigger info: hist:keys=common_pid.execname,flags.hex:vals=hitcount,mode:sort=hitcount:size=2048 [paused]
#

{ common_pid: a\u{1b}[1mb          [        17], flags: 80000 } hitcount:          2 mode:          6
{ common_pid: cat             [        18], flags: 0 } hitcount:          5 mode: 18446744073709551615

Totals:
    Hits: 7
    Entries: 2
    Dropped: 3
";

#[test]
fn a_saved_histogram_is_shown_as_text_and_as_rows() {
    let place = Place::new();
    fs::write(place.at("trace.dat.hist"), TEXT).unwrap();
    let shown = place.ok(&["kernel", "hist", "trace.dat.hist"]);
    assert_eq!(shown, TEXT.replace('\u{1b}', "\\u{1b}"), "nothing steers a terminal");
    let rows = place.json(&["kernel", "hist", "./trace.dat.hist", "--json"]);
    let expected = json!({
        "schema": "lastwords.histograms.v1",
        "source": "./trace.dat.hist",
        "histograms": [{
            "instance": "own",
            "event": "syscalls:sys_enter_openat",
            "trigger": "hist:keys=common_pid.execname,flags.hex:vals=hitcount,mode:sort=hitcount:size=2048",
            "state": "paused",
            "rows": [
                {
                    "keys": { "common_pid": { "value": 17, "label": "a\u{1b}[1mb" }, "flags": 0x80000 },
                    "values": { "hitcount": 2, "mode": 6 },
                },
                {
                    "keys": { "common_pid": { "value": 18, "label": "cat" }, "flags": 0 },
                    "values": { "hitcount": 5, "mode": u64::MAX },
                },
            ],
            "hits": 7,
            "entries": 2,
            "dropped": 3,
        }],
    });
    assert_eq!(rows, expected);
    // Rows that are not there are told.
    fs::write(place.at("less.hist"), TEXT.replace("Entries: 2", "Entries: 4")).unwrap();
    place.run(&["kernel", "hist", "less.hist"]).has_status(0).says("2 rows read").says("has 4");
    place.run(&["kernel", "hist", "nothing"]).has_status(1).says("no such file");
    fs::write(place.at("text"), "what\n").unwrap();
    place.run(&["kernel", "hist", "text"]).has_status(1).says("text: line 1");
}

#[test]
fn events_after_v_are_left_out() {
    let Some(place) = tracing() else { return };
    let enabled = |rules: &[&str]| -> Vec<String> {
        let script = "cat /sys/kernel/tracing/instances/lastwords_left_out/set_event > enabled";
        let args =
            [&["--force", "--instance", "lastwords_left_out"], rules, &["--", "sh", "-c", script]];
        record(&place, &args.concat()).has_status(0);
        let text = fs::read_to_string(place.at("enabled")).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let rules = ["-e", "sched:sched_process_ex*", "-v", "-e", "sched:sched_process_exit"];
    assert_eq!(enabled(&rules), ["sched:sched_process_exec"]);
    assert_eq!(enabled(&[&rules[..2], &rules[3..]].concat()).len(), 2);
    // Each instance has its own, and one that exists gets back what was left out.
    let own = Path::new(TRACEFS).join("instances/lastwords_left_out");
    fs::create_dir(&own).unwrap();
    let enable = own.join("events/sched/sched_process_exit/enable");
    fs::write(&enable, "1").unwrap();
    let more = ["-B", "lastwords_left_out_more", "-e", "sched:sched_process_exit"];
    assert_eq!(enabled(&[&rules[..], &more].concat()), ["sched:sched_process_exec"]);
    assert_eq!(fs::read_to_string(&enable).unwrap(), "1\n");
    fs::remove_dir(&own).unwrap();
    place.is_restored("a recording");
}
