//! What is written is what babeltrace2 reads.

use std::process::Command;

use super::*;
use crate::ftrace::samples::{FUNCTION, OPEN, PRINT, STACK, page, payload, ring, tracing, wake, words};
use lastwords_trace::ftrace::Stats;

fn sample() -> Tracing {
    let stats = Stats { entries: 5, overrun: 3, ..Stats::default() };
    let function = 0xffff_ffff_8100_0100u64;
    let stack = [&2u32.to_le_bytes()[..], &[0; 4], &words(&[function, 16])].concat();
    let first = [
        (100, wake(7)),
        (200, payload(PRINT, 0, 0, 7, &[&words(&[function])[..], b"a \"b\"\n\0\0"].concat())),
        (300, payload(OPEN, 0, 0, 7, &[&2u32.to_le_bytes()[..], &[0; 4], &words(&[u64::MAX])].concat())),
    ];
    let second = [
        (400, payload(STACK, 0, 0, 0, &stack)),
        (500, payload(FUNCTION, 0, 0, 9, &words(&[function, 1]))),
        (600, payload(999, 0, 0, 9, b"abcd")),
    ];
    let pages = vec![page(&first, None), page(&second, Some(9))];
    tracing(ring(vec![Vec::new(), pages], stats), ring(Vec::new(), stats))
}

fn printed(folder: &Path) -> (String, String) {
    let ran = Command::new("babeltrace2").args(["--clock-cycles", "--no-delta"]).arg(folder).output();
    let ran = ran.expect("babeltrace2 is installed: cargo xtask setup");
    assert!(ran.status.success());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(ran.stdout), text(ran.stderr))
}

#[test]
fn babeltrace_reads_every_event() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("trace");
    let tracing = sample();
    let choice = Choice::default();
    let summary = write(&folder, &tracing, 0, &choice, &Beside::default(), Version::V1_8).unwrap();
    assert_eq!(summary.events, 5);
    assert_eq!(summary.notes, ["1 events have no format; CTF cannot express them"]);
    let (out, err) = printed(&folder);
    let context = |flags: &str, pid: u32, comm: &str| {
        format!("{{ cpu_id = 1 }}, {{ flags = {flags}, pid = {pid}, comm = \"{comm}\" }}")
    };
    let (worker, idle) =
        (context("0x0, preempt_count = 0x0", 7, "worker"), context("0x0, preempt_count = 0x0", 0, "<idle>"));
    let expected = [
        format!(
            "[00000000000000000100] sched:wake: {}, {{ comm = \"init\", pid = 9 }}",
            context("0x1, preempt_count = 0x11", 7, "worker")
        ),
        format!(
            "[00000000000000000200] ftrace:print: {worker}, {{ ip = 0xFFFFFFFF81000100, msg = \"a \\\"b\\\"\\n\" }}"
        ),
        format!("[00000000000000000300] syscalls:sys_enter_open: {worker}, {{ __syscall_nr = 2, flags = -1 }}"),
        format!(
            "[00000000000000000400] ftrace:kernel_stack: {idle}, {{ size = 2, _caller_length = 2, caller = [ [0] = \
             0xFFFFFFFF81000100, [1] = 0x10 ] }}"
        ),
        format!(
            "[00000000000000000500] ftrace:function: {}, {{ ip = 0xFFFFFFFF81000100, parent_ip = 0x1 }}",
            context("0x0, preempt_count = 0x0", 9, "a long name here")
        ),
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
    assert!(err.contains("discarded 9 events"), "{err}");
}

#[test]
fn a_choice_is_kept_to() {
    let dir = tempfile::tempdir().unwrap();
    let tracing = sample();
    let count = |name: &str, choice: &Choice| {
        write(&dir.path().join(name), &tracing, 0, choice, &Beside::default(), Version::V2).map(|s| s.events)
    };
    assert_eq!(count("a", &Choice { events: vec!["ftrace:*".into()], ..Choice::default() }).unwrap(), 3);
    assert_eq!(count("b", &Choice { since: Some(200), until: Some(400), ..Choice::default() }).unwrap(), 3);
    assert_eq!(count("c", &Choice { cpus: vec![0], ..Choice::default() }).unwrap(), 0);
    assert!(count("d", &Choice { last: Some(1), ..Choice::default() }).is_err());
    assert!(count("a", &Choice::default()).is_err(), "it is there already");
}
