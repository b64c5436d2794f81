//! Verdicts on sessions, from facts that are made up.

use super::*;
use crate::why::OomKills;

/// When the session was last seen alive, or ended.
const END: u64 = 1_700_000_000 * SECOND;
/// When the machine was started.
const BOOT: u64 = END - 1000 * SECOND;
const PID: u32 = 4242;

fn outside() -> Outside {
    Outside { boot_id: Some([1; 16]), hostname: "host".into(), ..Outside::default() }
}

fn killed_line(after: i64, text: &str) -> KernelLine {
    let time = (END - BOOT).saturating_add_signed(after);
    KernelLine { time, text: text.to_owned() }
}

fn oom(pid: u32) -> String {
    format!("Memory cgroup out of memory: Killed process {pid} (shop) total-vm:1kB")
}

fn panic_of(tid: u32, later: u64) -> Crash {
    let tid = tid.to_string();
    let fields = [("vtid", tid.as_str()), ("message", "no such item"), ("thread", "main")];
    Crash::made("crash:panic", &fields, END.cast_signed(), later)
}

fn signal_of(tid: u32, name: &str) -> Crash {
    let tid = tid.to_string();
    let fields = [("vtid", tid.as_str()), ("signal", name)];
    Crash::made("crash:signal", &fields, END.cast_signed(), 0)
}

fn ended(how: Ending) -> State<'static> {
    State::Ended(Ended { how, at: END, pid: PID })
}

/// Judges, after `change` has changed the facts of a process that is gone without a record.
fn judge(
    state: State<'_>,
    crashes: &[Crash],
    outside: &Outside,
    change: impl Fn(&mut Facts<'_>),
) -> Verdict {
    let mut facts = Facts {
        state,
        crashes,
        pids: vec![PID],
        is_shared: false,
        boot: Boot::This,
        is_in_initial_namespace: true,
        boot_real_time: Some(BOOT.cast_signed()),
        has_thread: &|tid| tid == 4250,
        group: None,
        fate: Fate::Unknown,
        outside,
    };
    change(&mut facts);
    facts.judge()
}

fn cause(state: State<'_>, crashes: &[Crash]) -> Cause {
    judge(state, crashes, &outside(), |_| ()).cause
}

#[test]
fn an_exit_record_is_the_cause() {
    let (segv, abrt) = (signal_of(PID, "SIGSEGV"), signal_of(PID, "SIGABRT"));
    assert_eq!(cause(ended(Ending::Closed(None)), &[]), Cause::GoodOrder);
    assert_eq!(cause(ended(Ending::Closed(Some(0))), &[]), Cause::GoodOrder);
    assert_eq!(cause(ended(Ending::Exit(Some(0))), &[]), Cause::GoodOrder);
    assert_eq!(cause(ended(Ending::Exit(None)), &[]), Cause::Unknown);
    assert_eq!(cause(ended(Ending::Exit(Some(3))), &[]), Cause::Exit(3));
    assert_eq!(cause(ended(Ending::Error), &[]), Cause::Error);
    assert_eq!(cause(ended(Ending::Panic), &[]), Cause::Panic);
    assert_eq!(cause(ended(Ending::Signal(Some(11))), &[segv]), Cause::Signal(Some(11)));
    assert_eq!(cause(ended(Ending::Signal(Some(6))), &[abrt]), Cause::Signal(Some(6)));
    assert_eq!(cause(ended(Ending::Signal(None)), &[]), Cause::Signal(None));
    assert_eq!(cause(State::Alive(Witness::Processes, ""), &[]), Cause::Alive);
    assert_eq!(cause(State::Unknown("a copy".into()), &[]), Cause::Unknown);
}

#[test]
fn a_panic_is_the_cause_if_its_own_thread_aborts_or_the_status_says_it() {
    let crashes = [panic_of(7, 0), signal_of(7, "SIGABRT")];
    let verdict = judge(ended(Ending::Signal(Some(6))), &crashes, &outside(), |_| ());
    assert_eq!(verdict.cause, Cause::Panic);
    assert!(verdict.sentence.contains("no such item") && verdict.hints.is_empty(), "{verdict:?}");
    // Another thread aborts: the panic was caught.
    let other = [panic_of(7, 0), signal_of(8, "SIGABRT")];
    let verdict = judge(ended(Ending::Signal(Some(6))), &other, &outside(), |_| ());
    assert_eq!(verdict.cause, Cause::Signal(Some(6)));
    assert!(verdict.hints[0].contains("no such item"), "{verdict:?}");
    // The thread went on before it aborted.
    let late = [panic_of(7, 3), signal_of(7, "SIGABRT")];
    assert_eq!(cause(ended(Ending::Signal(Some(6))), &late), Cause::Signal(Some(6)));
    // 101 is the status of a program whose main thread panicked.
    assert_eq!(cause(ended(Ending::Exit(Some(101))), &[panic_of(PID, 2)]), Cause::Panic);
    assert_eq!(cause(ended(Ending::Exit(Some(101))), &[panic_of(7, 0)]), Cause::Exit(101));
    assert_eq!(cause(ended(Ending::Exit(Some(1))), &[panic_of(PID, 0)]), Cause::Exit(1));
}

/// The kernel gives process 1 of a container no SIGABRT that has no handler: `abort` then faults.
#[test]
fn process_1_that_aborts_dies_of_a_fault() {
    let crashes = [panic_of(1, 0), signal_of(1, "SIGABRT"), signal_of(1, "SIGSEGV")];
    let of = |crashes: &[Crash], change: fn(&mut Facts<'_>)| {
        judge(ended(Ending::Signal(Some(11))), crashes, &outside(), change).cause
    };
    let contain = |facts: &mut Facts<'_>| {
        (facts.pids, facts.is_in_initial_namespace) = (vec![1], false);
    };
    assert_eq!(of(&crashes[1..], contain), Cause::Signal(Some(6)));
    assert_eq!(of(&crashes, contain), Cause::Panic);
    // A fault in another process, in another thread, or later is one.
    assert_eq!(of(&crashes[1..], |_| ()), Cause::Signal(Some(11)));
    let other = [signal_of(2, "SIGABRT"), signal_of(1, "SIGSEGV")];
    assert_eq!(of(&other, contain), Cause::Signal(Some(11)));
    assert_eq!(of(&crashes[2..], contain), Cause::Signal(Some(11)));
}

#[test]
fn no_record_is_unknown_whatever_was_recorded_before() {
    let killed = || ended(Ending::Killed);
    for crashes in [&[][..], &[panic_of(7, 0)], &[signal_of(7, "SIGSEGV")], &[panic_of(7, 9)]] {
        let verdict = judge(killed(), crashes, &outside(), |_| ());
        assert_eq!((verdict.cause, verdict.is_last_seen), (Cause::Unknown, true));
        assert_eq!(verdict.hints.len(), crashes.len(), "{verdict:?}");
    }
    let sentence = |boot| judge(killed(), &[], &outside(), |facts| facts.boot = boot).sentence;
    assert!(sentence(Boot::This).contains("SIGKILL"));
    assert!(sentence(Boot::Earlier).contains("loss of power"));
    assert_eq!(sentence(Boot::Unknown), "killed or lost power: unknown which");
}

#[test]
fn the_log_of_the_kernel_counts_if_process_and_time_agree() {
    let second = SECOND.cast_signed();
    let with = |lines: &[KernelLine], change: &dyn Fn(&mut Facts<'_>)| {
        let outside = Outside { kernel_log: lines.to_vec(), ..outside() };
        judge(ended(Ending::Killed), &[], &outside, change)
    };
    let at = |after, text: &str| with(&[killed_line(after, text)], &|_| ());
    let verdict = at(second / 2, &oom(PID));
    assert_eq!((verdict.cause, verdict.is_last_seen), (Cause::OutOfMemory, false));
    assert_eq!(verdict.at, Some(END + SECOND / 2));
    let fault = |tid: u32| format!("shop[{tid}]: segfault at 0 ip 1 sp 2 error 4");
    assert_eq!(at(0, &fault(PID)).cause, Cause::Signal(Some(11)));
    assert_eq!(at(0, &fault(4250)).cause, Cause::Signal(Some(11)), "one of its threads");
    // Another process, at the same time: a hint.
    for text in [oom(PID + 1), fault(4251)] {
        let other = at(0, &text);
        assert_eq!(other.cause, Cause::Unknown);
        assert!(other.hints.iter().any(|hint| hint.contains(&text)), "{other:?}");
    }
    // The same id at another time: another process had it.
    for after in [-2 * second, 8 * second, -900 * second] {
        let verdict = at(after, &oom(PID));
        assert_eq!((verdict.cause, verdict.hints.len()), (Cause::Unknown, 0), "{after}");
    }
    // The ids of another pid namespace, the log of another boot, several processes.
    let line = [killed_line(0, &oom(PID))];
    let unknown: [&dyn Fn(&mut Facts<'_>); 4] = [
        &|facts| facts.is_in_initial_namespace = false,
        &|facts| facts.boot = Boot::Earlier,
        &|facts| facts.boot_real_time = None,
        &|facts| facts.pids.push(5),
    ];
    for change in unknown {
        assert_eq!(with(&line, change).cause, Cause::Unknown);
    }
    // Two causes prove neither.
    let both = [killed_line(0, &oom(PID)), killed_line(1, &fault(PID))];
    assert_eq!(with(&both, &|_| ()).cause, Cause::Unknown);
    // A record of the end outweighs the log.
    let outside = Outside { kernel_log: line.to_vec(), ..outside() };
    assert_eq!(judge(ended(Ending::Exit(Some(3))), &[], &outside, |_| ()).cause, Cause::Exit(3));
}

#[test]
fn a_given_log_counts_by_its_times() {
    let given = |after| Outside { given_log: vec![killed_line(after, &oom(PID))], ..outside() };
    let cause = |after| {
        judge(ended(Ending::Killed), &[], &given(after), |facts| facts.boot = Boot::Unknown).cause
    };
    assert_eq!(cause(0), Cause::OutOfMemory);
    assert_eq!(cause(60 * SECOND.cast_signed()), Cause::Unknown);
}

/// A record of pstore with these lines, each written so long after the last sign of life.
fn record(lines: &[(u64, &str)]) -> PstoreRecord {
    let line = |(after, text): &(u64, &str)| {
        let micros = (END - BOOT + after) / 1000;
        format!("<0>[{:5}.{:06}] {text}\n", micros / 1_000_000, micros % 1_000_000)
    };
    let lines: String = lines.iter().map(line).collect();
    let text = format!("Panic#1 Part1\n{lines}");
    PstoreRecord { name: "dmesg-efi-1".into(), written: Some(END + SECOND), text }
}

/// A verdict on a session whose process lived until its machine ended.
fn after_reboot(boot: Boot, lines: &[(u64, &str)]) -> Verdict {
    with_record(record(lines), |facts| (facts.boot, facts.fate) = (boot, Fate::LivedOn))
}

fn with_record(record: PstoreRecord, change: impl Fn(&mut Facts<'_>)) -> Verdict {
    let outside = Outside { pstore: vec![record], ..outside() };
    judge(ended(Ending::Killed), &[], &outside, change)
}

#[test]
fn pstore_counts_after_a_reboot_at_the_time_of_the_end() {
    let ends = [
        ("Kernel panic - not syncing: Fatal exception", Cause::KernelPanic, "panicked: Fatal"),
        ("Kernel panic - not syncing: sysrq triggered crash", Cause::KernelPanic, "by sysrq"),
        ("Kernel panic - not syncing: hung_task: blocked tasks", Cause::Lockup, "watchdog"),
        (
            "Kernel panic - not syncing: Out of memory: compulsory panic_on_oom is enabled",
            Cause::OutOfMemory,
            "memory ran out",
        ),
        ("reboot: Restarting system", Cause::Reboot, "a user restarted"),
    ];
    for (line, cause, words) in ends {
        let verdict = after_reboot(Boot::Earlier, &[(SECOND, line)]);
        assert_eq!((verdict.cause, verdict.at), (cause, Some(END + SECOND)), "{line}");
        assert!(verdict.sentence.contains(words), "{verdict:?}");
        for (after, boot) in
            [(SECOND, Boot::This), (SECOND, Boot::Unknown), (200 * SECOND, Boot::Earlier)]
        {
            assert_eq!(after_reboot(boot, &[(after, line)]).cause, Cause::Unknown, "{line}");
        }
    }
}

const PANIC: (u64, &str) = (SECOND, "Kernel panic - not syncing: Fatal exception");

/// SIGKILL may come right before a panic: the guards tell the one from the other.
#[test]
fn a_panic_ends_only_what_lived_until_then() {
    let verdict = |fate| {
        let change = |facts: &mut Facts<'_>| (facts.boot, facts.fate) = (Boot::Earlier, fate);
        with_record(record(&[PANIC]), change)
    };
    let lived = verdict(Fate::LivedOn);
    assert_eq!((lived.cause, lived.at), (Cause::KernelPanic, Some(END + SECOND)));
    assert!(lived.evidence.iter().any(|own| own.from == Witness::Processes), "{lived:?}");
    for (fate, sentence, hint) in [
        (Fate::Died, "gone before its machine ended", "the process did not live until then"),
        (Fate::Unknown, "killed, or ended with its machine", "nothing shows that the process"),
    ] {
        let verdict = verdict(fate);
        assert_eq!((verdict.cause, verdict.at), (Cause::Unknown, Some(END)), "{verdict:?}");
        assert!(verdict.sentence.contains(sentence), "{verdict:?}");
        assert!(verdict.hints.iter().any(|own| own.contains(hint)), "{verdict:?}");
    }
    // What a watchdog finds was stuck for long. Else a process that lives gives signs of it.
    let after = |seconds: u64, words| {
        let late = [(seconds * SECOND, words)];
        let record = PstoreRecord { written: Some(END + seconds * SECOND), ..record(&late) };
        with_record(record, |facts| (facts.boot, facts.fate) = (Boot::Earlier, Fate::LivedOn)).cause
    };
    assert_eq!(after(2, PANIC.1), Cause::KernelPanic);
    assert_eq!(after(6, PANIC.1), Cause::Unknown);
    let stuck = "Kernel panic - not syncing: softlockup: hung tasks";
    assert_eq!((after(90, stuck), after(200, stuck)), (Cause::Lockup, Cause::Unknown));
}

/// Boots of equal length have lines of equal times: only the record's date shows its boot.
#[test]
fn a_record_of_another_boot_is_no_proof() {
    let lived = |facts: &mut Facts<'_>| (facts.boot, facts.fate) = (Boot::Earlier, Fate::LivedOn);
    let cause = |written| with_record(PstoreRecord { written, ..record(&[PANIC]) }, lived).cause;
    assert_eq!(cause(Some(END + SECOND)), Cause::KernelPanic);
    for other in [None, Some(END - 30 * SECOND), Some(END + 30 * SECOND)] {
        assert_eq!(cause(other), Cause::Unknown, "{other:?}");
    }
    let lost = with_record(PstoreRecord { written: None, ..record(&[PANIC]) }, lived);
    assert!(lost.sentence.starts_with("ended with its machine"), "{lost:?}");
}

#[test]
fn guards_show_whether_a_process_lived_until_its_machine_ended() {
    use lastwords_session::info::{Guard, Process};
    // As in docs/ABI.md.
    const SHM: u32 = 2;
    const DAX: u32 = 5;
    const PHYSICAL: u32 = 6;
    let in_memory = |backend, guards: &[Guard], is_original| {
        let process = |guard: &Guard| Process { pid: 1, start: 2, pidns: 3, guard: *guard };
        let processes = guards.iter().map(process).collect();
        Fate::from_info(&Info { backend, processes, ..Info::default() }, is_original)
    };
    let fate = |guards: &[Guard], is_original| in_memory(DAX, guards, is_original);
    assert_eq!(in_memory(PHYSICAL, &[Guard::Held], true), Fate::LivedOn);
    // The mark may not have come from the page cache to the disk.
    assert_eq!(in_memory(SHM, &[Guard::Held], true), Fate::Unknown);
    assert_eq!(in_memory(SHM, &[Guard::Died], true), Fate::Died);
    assert_eq!(fate(&[Guard::Held], true), Fate::LivedOn);
    assert_eq!(fate(&[Guard::Died, Guard::Held], true), Fate::LivedOn);
    assert_eq!(fate(&[Guard::Held], false), Fate::Unknown, "a copy");
    assert_eq!(fate(&[Guard::Died], true), Fate::Died);
    assert_eq!(fate(&[Guard::Died], false), Fate::Died, "it had died before it was copied");
    assert_eq!(fate(&[Guard::Died, Guard::None], true), Fate::Unknown);
    assert_eq!(fate(&[Guard::None], true), Fate::Unknown);
    assert_eq!(fate(&[], true), Fate::Unknown);
}

/// An oops before the panic is shown, a kernel survives an oops without one, and a process may be
/// killed before its machine ends.
#[test]
fn pstore_has_what_led_to_the_end() {
    let (oops, panic) =
        ("BUG: kernel NULL pointer dereference", "Kernel panic - not syncing: Fatal exception");
    let lines = [(SECOND / 2, oops), (SECOND, panic)];
    let verdict = after_reboot(Boot::Earlier, &lines);
    assert!(verdict.evidence.iter().any(|own| own.text.ends_with(oops)), "{verdict:?}");
    assert_eq!(after_reboot(Boot::Earlier, &lines[..1]).cause, Cause::Unknown);
    // All lines of the oops, and none of an older one, which the kernel survived.
    let survived = (0, "kernel BUG at fs/old.c:1!");
    let all = [survived, lines[0], (SECOND * 3 / 4, "Oops: Oops: 0000 [#1]"), lines[1]];
    let verdict = after_reboot(Boot::Earlier, &all);
    let shown = |words: &str| verdict.evidence.iter().any(|own| own.text.ends_with(words));
    assert!(shown(oops) && shown("Oops: 0000 [#1]") && !shown("old.c:1!"), "{verdict:?}");
    let reboot = [(0, oops), (SECOND, "reboot: Restarting system")];
    assert_eq!(after_reboot(Boot::Earlier, &reboot).cause, Cause::Reboot);
    let killed = [(0, oom(PID)), (SECOND, panic.to_owned())];
    let killed: Vec<(u64, &str)> = killed.iter().map(|(at, text)| (*at, text.as_str())).collect();
    assert_eq!(after_reboot(Boot::Earlier, &killed).cause, Cause::OutOfMemory);
}

#[test]
fn the_reason_of_a_reset_is_a_hint() {
    let text =
        "x86/amd: Previous system reset reason [0x02000800]: hardware watchdog timer expired";
    let line = KernelLine { time: SECOND, text: text.into() };
    let judged = |boot| {
        let outside = Outside { kernel_log: vec![line.clone()], ..outside() };
        judge(ended(Ending::Killed), &[], &outside, |facts| facts.boot = boot)
    };
    assert_eq!(judged(Boot::Earlier).cause, Cause::Unknown);
    assert!(judged(Boot::Earlier).hints[0].contains("watchdog timer expired"));
    assert!(judged(Boot::This).hints.is_empty(), "it is of the reset before the session");
    let outside = Outside { given_log: vec![line.clone()], ..outside() };
    let given = judge(ended(Ending::Killed), &[], &outside, |facts| facts.boot = Boot::Unknown);
    assert!(given.hints[0].contains("watchdog timer expired"));
}

#[test]
fn a_watchdog_that_reset_the_machine_is_a_hint() {
    let outside = Outside { watchdogs: vec!["i6300ESB timer".into()], ..outside() };
    let judged = |boot| judge(ended(Ending::Killed), &[], &outside, |facts| facts.boot = boot);
    let verdict = judged(Boot::Earlier);
    assert_eq!(verdict.cause, Cause::Unknown);
    assert!(verdict.hints[0].contains("the watchdog i6300ESB timer reset"), "{verdict:?}");
    for other in [Boot::This, Boot::Unknown] {
        assert!(judged(other).hints.is_empty());
    }
}

#[test]
fn a_core_names_its_signal_unless_a_debugger_may_have_made_it() {
    let core =
        |signal| CoreInfo { signal, pid: Some(9), comm: "shop".into(), ..CoreInfo::default() };
    let judged = |signal, crashes: &[Crash]| {
        let core = core(signal);
        judge(State::Core(&core), crashes, &outside(), |_| ())
    };
    assert_eq!(judged(Some(11), &[]).cause, Cause::Signal(Some(11)));
    let crashes = [panic_of(7, 0), signal_of(7, "SIGABRT")];
    assert_eq!(judged(Some(6), &crashes).cause, Cause::Panic);
    assert_eq!(judged(Some(6), &[panic_of(7, 0)]).cause, Cause::Signal(Some(6)));
    for signal in [None, Some(0), Some(5), Some(19), Some(-1), Some(300)] {
        assert_eq!(judged(signal, &[]).cause, Cause::Unknown, "{signal:?}");
    }
}

#[test]
fn the_counter_of_a_control_group_is_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let read = |file: &str, text: &str| {
        std::fs::write(folder.path().join(file), text).unwrap();
        OomKills::read(folder.path())
    };
    let none = read("memory.oom_control", "oom_kill_disable 0\noom_kill 0\n");
    let two = read("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
    assert_eq!(OomKills::read(&folder.path().join("none")), None);
    for (cgroup, words) in [(two, "2 processes of this"), (none, "no process of this")] {
        let outside = Outside { cgroup, ..outside() };
        let verdict = judge(ended(Ending::Killed), &[], &outside, |_| ());
        assert_eq!(verdict.cause, Cause::Unknown);
        assert!(verdict.hints[0].contains(words), "{verdict:?}");
    }
}

/// The session was in the group `/pods/a/b`, in a container with ids of its own.
fn in_a_pod(facts: &mut Facts<'_>) {
    let path = "/pods/a/b".to_owned();
    let namespace = 0xEFFF_FFFB;
    facts.group = Some(ControlGroup { id: 7, namespace, oom_kills: 1, path });
    facts.is_in_initial_namespace = false;
    facts.pids = vec![1];
}

#[test]
fn a_group_all_of_whose_processes_are_killed_proves_the_cause() {
    let line = |after, path: &str| {
        let text = format!("Tasks in {path} are going to be killed due to memory.oom.group set");
        let log = vec![killed_line(after, &text), killed_line(after, &oom(1))];
        Outside { kernel_log: log, ..outside() }
    };
    let judged = |outside: &Outside, change: fn(&mut Facts<'_>)| {
        judge(ended(Ending::Killed), &[], outside, change).cause
    };
    assert_eq!(judged(&line(0, "/pods/a/b"), in_a_pod), Cause::OutOfMemory);
    assert_eq!(judged(&line(0, "/pods/a"), in_a_pod), Cause::OutOfMemory);
    // Another group, another time, a path of another namespace, several processes, no group.
    let (own, other) = (line(0, "/pods/a/b"), line(0, "/pods/a/bc"));
    assert_eq!(judged(&other, in_a_pod), Cause::Unknown);
    assert_eq!(judged(&line(60 * SECOND.cast_signed(), "/pods/a/b"), in_a_pod), Cause::Unknown);
    let changes: [fn(&mut Facts<'_>); 3] = [
        |facts| {
            in_a_pod(facts);
            facts.group.iter_mut().for_each(|group| group.namespace += 1);
        },
        |facts| {
            in_a_pod(facts);
            facts.pids.push(2);
        },
        |facts| facts.is_in_initial_namespace = false,
    ];
    for change in changes {
        assert_eq!(judged(&own, change), Cause::Unknown);
    }
}

#[test]
fn the_group_of_the_session_is_looked_at() {
    use std::os::unix::fs::MetadataExt as _;
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("pods/a/b");
    std::fs::create_dir_all(&folder).unwrap();
    let id = std::fs::metadata(&folder).unwrap().ino();
    let outside = Outside { control_groups: Some(root.path().to_owned()), ..outside() };
    let hints = |kills: u64, change: fn(&mut Facts<'_>)| {
        std::fs::write(folder.join("memory.events"), format!("oom_kill {kills}\n")).unwrap();
        let verdict = judge(ended(Ending::Killed), &[], &outside, |facts| {
            in_a_pod(facts);
            facts.group.iter_mut().for_each(|group| group.id = id);
            change(facts);
        });
        assert_eq!(verdict.cause, Cause::Unknown);
        verdict.hints.join("\n")
    };
    let none = hints(1, |_| ());
    assert!(none.contains("no process of the session's control group, /pods/a/b,"), "{none}");
    assert!(hints(2, |_| ()).contains("killed 1 process of"));
    assert!(hints(4, |_| ()).contains("killed 3 processes of"));
    // The group is another one, or of an earlier boot; the session has recorded none.
    let changes: [fn(&mut Facts<'_>); 3] = [
        |facts| facts.group.iter_mut().for_each(|group| group.id += 1),
        |facts| facts.boot = Boot::Earlier,
        |facts| facts.group = None,
    ];
    assert!(changes.iter().all(|change| hints(2, *change).is_empty()));
}
