//! Process cores: written by the kernel with the default filter, by gcore, compressed with zstd.

use crate::child::{EVENTS, Running, THREADS, start};
use crate::recovery::assert_whole;
use crate::support::{Place, entries, tool};
use std::path::PathBuf;

/// The core that the kernel left in the place.
pub(crate) fn core_of(place: &Place) -> PathBuf {
    let is_core =
        |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("core"));
    let found = entries(place.path()).into_iter().find(is_core);
    found.unwrap_or_else(|| {
        let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        panic!(
            "no core in {}: kernel.core_pattern is {pattern:?}, set it to `core`",
            place.path().display()
        )
    })
}

fn reported(place: &Place, core: &str) {
    let ran = place.run(&["report", core]);
    ran.has_status(0);
    assert_whole(&ran.out);
    ran.says("nothing lost");
}

#[test]
fn kernel_core_of_a_memfd_session_plain_and_compressed() {
    let place = Place::new();
    start(&place, "memfd", "abort").ended();
    let core = core_of(&place);
    let core = core.to_str().unwrap();
    reported(&place, core);
    let report = place.json(&["inspect", core, "--json"]);
    let session = &report["sessions"][0];
    assert_eq!(session["back_end"], "memfd");
    assert_eq!(session["process_core"]["signal"], 6);
    assert_eq!(session["events"], THREADS * EVENTS);
    tool("zstd", &["-q", core, "-o", &format!("{core}.zst")]);
    reported(&place, &format!("{core}.zst"));
    // Both hold the same: it is shown once.
    let ran = place.run(&["report", core, &format!("{core}.zst"), "--strict"]);
    ran.has_status(0).says("note: session app is in ");
    assert_whole(&ran.out);
    // The folder knows that the memory is gone.
    place.run(&["report", "app"]).has_status(1).says("give a core");
}

#[test]
fn kernel_core_of_a_heap_session() {
    let place = Place::new();
    start(&place, "heap", "abort").ended();
    reported(&place, core_of(&place).to_str().unwrap());
}

#[test]
fn gcore_of_each_memory() {
    for memory in ["memfd", "heap", "shm"] {
        let place = Place::new();
        let child = start(&place, memory, "wait");
        let core = place.at("taken");
        if memory == "shm" {
            // Mappings of files that others share, too: bit 3 of core(5).
            std::fs::write(format!("/proc/{}/coredump_filter", child.pid()), "0x3b").unwrap();
        }
        tool("gcore", &["-o", core.to_str().unwrap(), &child.pid().to_string()]);
        reported(&place, &format!("{}.{}", core.display(), child.pid()));
    }
}

#[test]
fn a_live_session_in_memory_is_read_through_proc() {
    for memory in ["memfd", "heap"] {
        let place = Place::new();
        let child = start(&place, memory, "wait");
        reported(&place, "app");
        // With a core of it beside, and by its process, too: the same events, once.
        let pid = child.pid().to_string();
        tool("gcore", &["-o", place.at("taken").to_str().unwrap(), &pid]);
        assert_whole(&place.ok(&["report", "app", &format!("taken.{pid}"), "--pid", &pid]));
        let ran = place.run(&["report", "--pid", &pid]);
        ran.has_status(0);
        assert_whole(&ran.out);
    }
}

#[test]
fn a_process_without_sessions_says_so() {
    let place = Place::new();
    let child = Running::sleeping();
    let ran = place.run(&["report", "--pid", &child.pid().to_string()]);
    ran.has_status(1).says("mem: no session is in this process; ");
}

#[test]
fn a_core_without_sessions_says_why() {
    let place = Place::new();
    let child = Running::sleeping();
    let taken = place.at("taken");
    tool("gcore", &["-o", taken.to_str().unwrap(), &child.pid().to_string()]);
    let ran = place.run(&["inspect", &format!("{}.{}", taken.display(), child.pid())]);
    ran.has_status(1).says("no session is in this process core");
}
