//! The folders of snapshots that triggers of the kernel took, as they are read and watched. That the
//! kernel takes them is a part of `cargo xtask lab --scenario record`.

use crate::record::{self, kills, wait_for_instance};
use crate::stream::{KILL, numbered};
use crate::support::{Place, tool};
use lastwords_testkit::text::Text as _;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

/// A reading of the clock `mono`.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn the_events_of_the_window_are_shown_and_all_with_whole() {
    let Some(place) = record::tracing() else { return };
    let args = ["--size", "8M", "--instance", "lastwords_test", "-o", "k.dat"];
    let mut recorder = record::start(&place, &[&KILL[..], &args].concat());
    wait_for_instance("lastwords_test");
    let mut times = vec![0];
    for third in 0..3 {
        tool("bash", &["-c", &numbered(third * 500, 500)]);
        times.push(now());
    }
    assert_eq!(recorder.end(Signal::INT).status, 0);
    let folder = place.at("k.dat.snapshot-1");
    fs::create_dir(&folder).unwrap();
    fs::rename(place.at("k.dat"), folder.join("trace.dat")).unwrap();
    assert_eq!(
        kills(&folder.join("trace.dat")),
        (0..1500).collect::<Vec<_>>(),
        "trace-cmd reads all of it"
    );
    let shown = |options: &[&str]| -> Vec<u64> {
        let text = place.ok(&[&["report", folder.to_str().unwrap()], options].concat());
        let number = |line: &str| {
            let text = line.split("pid: ").nth(1)?.split(',').next()?;
            u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        text.lines().filter_map(number).map(|number| number - 1_000_000).collect()
    };
    for (begin, end, expected) in [
        (None, None, 0..1500),
        (Some(times[1]), None, 500..1500),
        (None, Some(times[2]), 0..1000),
        (Some(times[1]), Some(times[2]), 500..1000),
    ] {
        let account = json!({
            "schema": "lastwords.kernel-snapshot.v1", "number": 1, "events": ["syscalls:sys_enter_kill"],
            "at": times[3], "begin": begin, "end": end, "unset": 2_500_000_000u64, "limited": 1_000_000_000u64,
        });
        fs::write(folder.join("snapshot.json"), account.to_string()).unwrap();
        assert_eq!(shown(&[]), expected.collect::<Vec<_>>(), "{begin:?} {end:?}");
        assert_eq!(shown(&["--whole"]), (0..1500).collect::<Vec<_>>(), "{begin:?} {end:?}");
        let told = place.run(&["report", folder.to_str().unwrap()]).err;
        told.has("snapshot 1, which syscalls:sys_enter_kill took");
        told.has("no trigger was set for 2.500 s before it, 1.000 s of it for the limit");
        assert_eq!(told.contains("only the window"), begin.is_some() || end.is_some(), "{told}");
    }
    // The snapshot before has a part of the window.
    for (since, is_told) in [(times[1], false), (times[1] + 1_500_000_000, true)] {
        let account = json!({
            "schema": "lastwords.kernel-snapshot.v1", "number": 2, "events": ["a:b"], "at": times[3],
            "begin": times[1] + 1, "since": since, "end": null, "unset": 0, "limited": 0,
        });
        fs::write(folder.join("snapshot.json"), account.to_string()).unwrap();
        let ran = place.run(&["report", folder.to_str().unwrap(), "--strict"]);
        let told = "the first 1.499 s of the window, up to the snapshot before, which has them";
        assert_eq!(ran.has_status(0).err.contains(told), is_told, "{}", ran.err);
    }
    let damaged = json!({
        "schema": "lastwords.kernel-snapshot.v1", "number": 2, "events": [], "at": 5, "begin": 9,
        "end": 8, "unset": 0, "limited": 0,
    });
    fs::write(folder.join("snapshot.json"), damaged.to_string()).unwrap();
    place.run(&["report", folder.to_str().unwrap()]).has_status(1).says("ends before it begins");
    fs::write(folder.join("snapshot.json"), "{}").unwrap();
    place.run(&["report", folder.to_str().unwrap()]).has_status(1).says("snapshot.json: ");
}

/// Writes what a recorder keeps of its recording. Its process is this one.
fn write_journal(place: &Place, instance: &str, takes_snapshots: bool, boot: &str) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let start = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().to_owned();
    let journal = json!({
        "version": 1, "pid": std::process::id(), "start_time": start.parse::<u64>().unwrap(),
        "pid_namespace": fs::metadata("/proc/self/ns/pid").unwrap().ino(), "boot_id": boot,
        "instance": instance, "inode": null, "definitions": [], "clock": "mono",
        "output": place.at(&format!("{instance}.dat")), "force": false, "stream": false,
        "snapshots": takes_snapshots, "in_place": null, "finished": null,
    });
    let path = place.sessions().join(format!(".record-{instance}.json"));
    fs::create_dir_all(place.sessions()).unwrap();
    fs::write(path, journal.to_string()).unwrap();
}

/// Saves a snapshot as a recorder does. Returns its folder.
fn save(place: &Place, instance: &str, number: u32, limited: u64) -> String {
    let (new, folder) = (place.at("new"), place.at(&format!("{instance}.dat.snapshot-{number}")));
    fs::create_dir(&new).unwrap();
    let account = json!({
        "schema": "lastwords.kernel-snapshot.v1", "number": number, "events": ["a:b"], "at": 1,
        "begin": null, "end": null, "unset": limited, "limited": limited,
    });
    fs::write(new.join("snapshot.json"), account.to_string()).unwrap();
    fs::rename(new, &folder).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn the_snapshots_of_a_recording_are_watched_until_it_ends() {
    let place = Place::new();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let watch = |args: &[&str]| place.run(&[&["trigger", "watch"], args].concat());
    watch(&["own"]).has_status(1).says("own: no session of that name");
    write_journal(&place, "own", false, boot.trim());
    watch(&["own"]).has_status(1).says("no --trigger of the recording takes snapshots");
    write_journal(&place, "own", true, "another boot");
    watch(&["own.dat"]).has_status(1).says("own: its recorder was killed").says("restore");
    write_journal(&place, "own", true, boot.trim());
    save(&place, "own", 1, 0);
    // By its instance, its file, and as the only one; a command removes what it has read.
    let command = "echo \"$LASTWORDS_SESSION\" >> ran; rm -r \"$LASTWORDS_SNAPSHOT\"";
    for (number, name) in [(2, Some("own")), (3, Some("own.dat")), (4, None)] {
        let mut watcher = place
            .command()
            .args(["trigger", "watch"].into_iter().chain(name))
            .args(["--exec", command])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = BufReader::new(watcher.stderr.take().unwrap()).lines();
        said.next().unwrap().unwrap().has("watching own");
        let mut out = BufReader::new(watcher.stdout.take().unwrap()).lines();
        let folder = save(&place, "own", number, 0);
        assert_eq!(out.next().unwrap().unwrap(), folder);
        let folder = save(&place, "own", number + 10, 2_000_000_000);
        assert_eq!(out.next().unwrap().unwrap(), folder);
        said.next().unwrap().unwrap().has("no trigger was set for 2.0 s before it");
        // The last snapshot is found, too.
        let folder = save(&place, "own", number + 20, 0);
        fs::remove_file(place.sessions().join(".record-own.json")).unwrap();
        assert_eq!(out.next().unwrap().unwrap(), folder);
        assert!(out.next().is_none() && watcher.wait().unwrap().success());
        write_journal(&place, "own", true, boot.trim());
    }
    assert_eq!(fs::read_to_string(place.at("ran")).unwrap(), "own\n".repeat(9));
    write_journal(&place, "other", true, boot.trim());
    watch(&[]).has_status(1).says("2 recordings of the kernel run; name one: other, own");
}
