//! `record -A` where a guest's stream is too large or its disk is full. They need root.

use crate::record::{by_trace_cmd, tracing};
use crate::record_guests::Agent;
use crate::record_guests_between::Host;
use crate::support::{tool, wait_until};
use std::fs;
use std::process::Command;

const ENDED: &str = "guest self: its recording has ended early; that of the host goes on";

/// Makes system calls, which are events of the guest, until its recording has ended early.
fn fill(host: &Host<'_>) {
    wait_until("the guest's recording has ended", || {
        tool("dd", &["if=/dev/zero", "of=/dev/null", "bs=1", "count=20000"]);
        host.said().contains(ENDED)
    });
}

/// The line about the end of the guest's recording.
fn end_of_guest(said: &str) -> &str {
    let line = said.lines().find(|line| line.contains("guest self: its recording ended early: "));
    line.unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn a_guest_whose_stream_is_too_large_ends_and_its_host_goes_on() {
    const MOST: u64 = 4 << 20;
    let Some(place) = tracing() else { return };
    let mut agent = Agent::start(&place);
    let most = MOST.to_string();
    let of_guest = ["--max-size", &most, "-e", "raw_syscalls"];
    let mut host = Host::start_as(&place, place.command(), &agent.address, &of_guest);
    fill(&host);
    agent.next("is broken");
    let later = place.at("lw_later");
    fs::copy("/bin/true", &later).unwrap();
    tool(later.to_str().unwrap(), &[]);
    let (status, said) = host.end();
    assert_eq!(status, 0, "{said}");
    let why = format!("the stream is larger than {MOST} bytes (--max-size)");
    assert!(end_of_guest(&said).contains(&why), "{said}");
    // Of the stream, all that came is there: calls of 48 bytes at least, beside the description.
    let calls = by_trace_cmd(&place.at("trace-self.dat"));
    assert!(calls.len() > 10_000, "{}", calls.len());
    let of_host = by_trace_cmd(&place.at("trace.dat"));
    assert!(of_host.iter().any(|(_, line)| line.contains("comm=lw_later")), "{of_host:?}");
    agent.end();
    place.is_restored("the end");
}

/// The disk takes neither the rest of the stream nor the file that is made of it.
#[test]
fn a_full_disk_is_told_with_the_end_of_the_guest_and_its_spool() {
    let Some(place) = tracing() else { return };
    let mut agent = Agent::start(&place);
    fs::create_dir(place.at("in")).unwrap();
    // The disk is there for the host alone, and gone with it.
    let disk = r#"mount -t tmpfs -o size=4M,mode=700 none in && exec "$0" "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", disk, env!("CARGO_BIN_EXE_lastwords")]);
    command.current_dir(place.path()).env("LASTWORDS_DIR", place.sessions());
    let of_guest = ["-o", "in/trace.dat", "-e", "raw_syscalls"];
    let mut host = Host::start_as(&place, command, &agent.address, &of_guest);
    fill(&host);
    agent.next("is broken");
    let (status, said) = host.end();
    assert_eq!(status, 1, "{said}");
    let line = end_of_guest(&said);
    let (why, kept) =
        line.split_once("what arrived is kept there").unwrap_or_else(|| panic!("{said}"));
    assert!(
        why.contains("No space left on device") && kept.contains("No space left on device"),
        "{said}"
    );
    assert!(why.matches(".stream: ").count() == 2, "{said}");
    // The host's instance has the events that could not be saved, and the disk is gone.
    place.run(&["restore"]).has_status(0);
    agent.end();
    place.is_restored("the end");
}
