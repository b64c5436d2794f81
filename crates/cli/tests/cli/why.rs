//! `why`: the cause of an end, for programs that end in each way, and for other inputs.

use crate::child::{Running, run_in, start as start_app, task, wait_for};
use crate::cores::core_of;
use crate::dying::lock;
use crate::support::{Place, assert_members, small, tool, trace_dat, wait_until};
use crate::view::head;
use lastwords::{Session, event};
use lastwords_testkit::text::Text as _;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that the child of the cgroup may use, and those that it takes.
pub(crate) const LIMIT: usize = 64 << 20;
const TAKEN: usize = 4 * LIMIT;

/// The program that ends.
#[test]
fn child() {
    let Some(how) = task() else { return };
    let (how, ready) = how.split_once(' ').expect("a task and a file");
    let session = Session::builder("shop").start().expect("a session");
    if !how.starts_with("bare") {
        lastwords::crash::install_panic_hook();
        lastwords::crash::install_default_signal_handlers().expect("handlers");
    }
    event!(shop, "order", id = 1u64);
    event!(shop, "failed", level: ERROR, code = -5i32, text = "\u{1b}[2Jno\nstock");
    for id in 2u64..9 {
        event!(shop, "order", id = id);
    }
    if how == "large" {
        let text = "x".repeat(8000);
        (0..60u64).for_each(|id| event!(shop, "large", id = id, text = text.as_str()));
    }
    fs::write(ready, "ready").expect("the ready file");
    match how {
        "closes" => drop(session),
        "exit_0" => std::process::exit(0),
        "exit_3" => std::process::exit(3),
        "closes,_exit_4" => {
            drop(session);
            std::process::exit(4);
        }
        "error" => drop(session.finish(Err::<(), _>("no stock"))),
        "panic" => panic!("no such item: {}", 7),
        "caught" => {
            let _ = std::panic::catch_unwind(|| panic!("it was caught"));
            event!(shop, "order", id = 9u64);
            std::process::exit(3);
        }
        "again" => {
            for _ in 0..3 {
                let _ = std::panic::catch_unwind(|| panic!("in the same words"));
            }
            std::process::exit(3);
        }
        "long" => panic!("{}", "é\n".repeat(100_000)),
        "thread" => {
            let _ = std::thread::spawn(|| panic!("it ends its thread")).join();
            event!(shop, "order", id = 9u64);
            std::process::exit(3);
        }
        "fault" | "bare_fault" => fault(),
        "abort" | "bare_abort" => std::process::abort(),
        "bare_memory" => {
            // The parent puts this process into a cgroup first.
            wait_for(&Path::new(ready).with_extension("go"));
            let mut taken: Vec<Vec<u8>> = Vec::new();
            (0..TAKEN >> 20).for_each(|n| taken.push(vec![n as u8 | 1; 1 << 20]));
            std::hint::black_box(&taken);
        }
        _ => std::thread::sleep(std::time::Duration::from_secs(60)),
    }
}

/// Reads where no memory is, without unsafe code: writes another address over a pointer.
pub(crate) fn fault() {
    let value = Box::new(7u64);
    let place = std::ptr::from_ref(&value).addr() as u64;
    let memory = fs::File::options().write(true).open("/proc/self/mem").expect("its memory");
    memory.write_all_at(&16u64.to_ne_bytes(), place).expect("written");
    println!("{}", std::hint::black_box(&value));
}

/// Starts a child of this task, and waits until it has recorded.
fn start(place: &Place, how: &str) -> Running {
    let ready = place.at("ready");
    let task = format!("{how} {}", ready.display());
    let running = run_in(place, "exec \"$@\"", "why::child", &task);
    wait_for(&ready);
    running
}

/// A place with the session of a child that has ended by itself, or by a signal from outside.
pub(crate) fn ended(how: &str, signal: Option<Signal>) -> Place {
    let place = Place::new();
    let mut child = start(&place, how);
    signal.into_iter().for_each(|signal| child.signal(signal));
    child.wait();
    place
}

/// What `why` says of the only session of a place.
fn why(place: &Place, args: &[&str]) -> Value {
    let report = place.json(&[&["why", "shop", "--json"], args].concat());
    assert_eq!(report["schema"], "lastwords.why.v1");
    let [session] = report["inputs"].as_array().expect("a list").as_slice() else {
        panic!("{report}")
    };
    session.clone()
}

#[test]
fn each_end_has_its_cause() {
    let killed =
        "killed by SIGKILL or by a signal without a handler, or left by _exit: unknown which";
    let table = [
        ("closes", None, "good-order", None, "the process exited with status 0"),
        ("exit_0", None, "good-order", Some(0), "the process exited with status 0"),
        ("exit_3", None, "exit", Some(3), "the process exited with status 3"),
        ("closes,_exit_4", None, "exit", Some(4), "the process exited with status 4"),
        ("error", None, "error", None, "the program ended the session with an error"),
        ("panic", None, "panic", None, "panic in thread "),
        ("caught", None, "exit", Some(3), "the process exited with status 3"),
        ("abort", None, "signal", Some(6), "SIGABRT in thread "),
        ("fault", None, "signal", Some(11), "SIGSEGV in thread "),
        ("wait", Some(Signal::FPE), "signal", Some(8), "SIGFPE in thread "),
        ("wait", Some(Signal::TERM), "unknown", None, killed),
        ("wait", Some(Signal::KILL), "unknown", None, killed),
        ("bare_wait", Some(Signal::USR1), "unknown", None, killed),
        ("bare_abort", None, "unknown", None, killed),
    ];
    // A core helper that another test installs writes exit records for processes that cannot.
    let _alone = lock();
    for (how, signal, cause, number, sentence) in table {
        let place = ended(how, signal);
        let session = why(&place, &[]);
        let verdict = &session["verdict"];
        let row = format!("{how} {signal:?}: {verdict:#}");
        assert_eq!(verdict["cause"], cause, "{row}");
        if cause != "good-order" {
            assert_eq!(verdict["number"], number.map_or(Value::Null, Value::from), "{row}");
        }
        let said = verdict["sentence"].as_str().expect("a sentence");
        assert!(said.contains(sentence), "{row}");
        assert_eq!(verdict["last_seen"], cause == "unknown", "{row}");
        assert!(verdict["at_ns"].as_str().expect("a time").len() == 19, "{row}");
        assert_eq!(verdict["evidence"][0]["from"], "exit-record", "{row}");
        // A panic that was caught is a hint.
        let hints = verdict["hints"].to_string();
        assert_eq!(hints.contains("it was caught"), how == "caught", "{row}");
        assert_eq!(session["last_error"]["event"], "shop:failed", "{session:#}");
        assert_eq!(session["lost"], "nothing lost");
        others_agree(&place, verdict, &row);
    }
}

/// Checks that `inspect`, `report`, the page and OTLP have the cause that `why` has.
fn others_agree(place: &Place, verdict: &Value, row: &str) {
    let (cause, sentence) =
        (verdict["cause"].as_str().unwrap(), verdict["sentence"].as_str().unwrap());
    let is_death = cause != "good-order";
    let inspected = place.json(&["inspect", "shop", "--json"]);
    assert_eq!(&inspected["sessions"][0]["verdict"], verdict, "inspect of {row}");
    let crashes = inspected["sessions"][0]["crashes"].as_array().expect("a list");
    let deadly = crashes.iter().filter(|crash| crash["is_cause_of_death"] == true).count();
    assert_eq!(deadly, usize::from(!verdict["crash"].is_null()), "inspect of {row}");
    let ran = place.run(&["report", "shop", "--last", "1"]);
    let last = ran.err.lines().last().unwrap_or_default();
    let what = if cause == "unknown" { "cause unknown" } else { "cause of death" };
    let said = last.strip_prefix(&format!("  {what}: {sentence}"));
    assert!(
        said.is_some_and(|at| at.is_empty() || at.starts_with(", at ")) == is_death,
        "{row}\n{}",
        ran.err
    );
    assert_eq!(ran.err.matches("  cause ").count(), usize::from(is_death), "{row}\n{}", ran.err);
    place.ok(&["view", "shop", "-o", "page.html"]);
    let head = head(&fs::read_to_string(place.at("page.html")).unwrap());
    let whys: Vec<&Value> = head["deaths"].as_array().unwrap().iter().map(|d| &d["why"]).collect();
    let expected = Value::from(format!("shop: {sentence}"));
    assert_eq!(whys, if is_death { vec![&expected] } else { vec![] }, "page of {row}");
    place.ok(&["convert", "shop", "--to", "otlp", "-o", "shop.otlp"]);
    let (body, said) = otlp_verdict(&fs::read_to_string(place.at("shop.otlp")).unwrap());
    assert!(body.starts_with(&format!("shop: {sentence}")), "OTLP of {row}: {body}");
    assert_eq!(said, cause, "OTLP of {row}");
}

/// Returns body and cause of the only record in OTLP that has a cause.
fn otlp_verdict(lines: &str) -> (String, String) {
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let cause = |record: &Value| {
        let attributes = list(record, "attributes");
        let own = attributes.iter().find(|own| own["key"] == "lastwords.cause")?;
        Some(own["value"]["stringValue"].as_str()?.to_owned())
    };
    let records = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .flat_map(|line| list(&line, "resourceLogs"))
        .flat_map(|logs| list(&logs, "scopeLogs"))
        .flat_map(|logs| list(&logs, "logRecords"));
    let found: Vec<(String, String)> = records
        .filter_map(|one| Some((one["body"]["stringValue"].as_str()?.to_owned(), cause(&one)?)))
        .collect();
    let [one] = found.as_slice() else { panic!("{found:?}") };
    one.clone()
}

/// The panics and signals of the only session of a place.
fn crashes(place: &Place) -> Vec<Value> {
    let report = place.json(&["inspect", "shop", "--json"]);
    report["sessions"][0]["crashes"].as_array().expect("a list").clone()
}

/// A panic whose message is cut to the room of each channel is one, and panics in the same words
/// are several.
#[test]
fn each_panic_counts_once() {
    let place = ended("again", None);
    assert_eq!(crashes(&place).len(), 3);
    let place = ended("long", None);
    let [crash] = crashes(&place).try_into().expect("one panic");
    assert_eq!(crash["is_cause_of_death"], true, "{crash}");
    let text = place.ok(&["report", "shop", "-e", "crash:panic"]);
    assert_eq!(text.lines().count(), 1, "the copy in the other channel is shorter");
    assert!(text.len() > 100_000, "the longer one is shown");
}

/// If a program forked, events do not say which of its processes they are of. Those of other
/// threads do not show that the process of a crash went on.
#[test]
fn other_threads_of_a_forked_program_prove_no_survival() {
    let place = ended("thread", None);
    assert_eq!(crashes(&place)[0]["later_events"], 1, "of the only process");
    add_process(&place);
    let [crash] = crashes(&place).try_into().expect("one panic");
    assert_members(&crash, &json!({ "later_events": 0, "is_cause_of_death": false }));
    place.run(&["report", "shop"]).err.has("other threads went on, of this or another process");
    let place = ended("caught", None);
    add_process(&place);
    assert_eq!(crashes(&place)[0]["later_events"], 1, "of the same thread");
}

/// Adds a process to the table of the only session of a place, as a fork does.
fn add_process(place: &Place) {
    use lastwords_testkit::layout::session as layout;
    let options = fs::File::options().read(true).write(true).open(place.session().join("session"));
    let file = options.expect("the session");
    let mut four = [0; 4];
    // Where the table of processes is.
    let at = (layout::INFO_AT + layout::CPUS_AT + 4 * 4) as u64;
    file.read_exact_at(&mut four, at).expect("its place");
    let second = u64::from(u32::from_ne_bytes(four)) + layout::PROCESS_LEN as u64;
    file.write_all_at(&1u32.to_ne_bytes(), second).expect("written");
}

#[test]
fn a_page_for_a_ticket() {
    let place = ended("panic", None);
    let page = place.ok(&["why", "shop"]);
    let lines: Vec<&str> = page.lines().collect();
    assert!(lines[0].starts_with("session shop: panic in thread "), "{page}");
    assert!(lines[0].contains("no such item: 7 (crates/cli/tests/cli/why.rs:"), "{page}");
    assert!(lines[1].starts_with("  at 20") && lines[1].ends_with(" UTC"), "{page}");
    for head in
        ["evidence", "backtrace", "last error", "last events", "spans at work", "lost", "look next"]
    {
        assert!(lines.contains(&head), "{head} is not in\n{page}");
    }
    assert!(
        lines.iter().any(|line| line.starts_with("  exit record   `panic` by process ")),
        "{page}"
    );
    let after = |head: &str| lines[lines.iter().position(|line| *line == head).unwrap() + 1];
    let error = after("last error");
    assert!(error.contains(" ERROR [") && error.contains(" shop:failed: code=-5 text="), "{page}");
    let report = place.ok(&["report", "shop", "--utc", "--last", "5"]);
    let shown: Vec<&str> = report.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| *line == "last events").unwrap();
    let last = lines[at + 1..][..shown.len()].iter().map(|line| line.trim());
    assert_eq!(last.collect::<Vec<_>>(), shown, "as in the report");
    assert!(!page.contains('\u{1b}'), "an event steers the terminal");
    assert!(page.contains("why::child"), "the backtrace names functions\n{page}");
    assert!(lines.last().unwrap().starts_with("  lastwords view /"), "{page}");
    assert!(lines.len() < 60, "it is one page\n{page}");
}

#[test]
fn a_living_session_lives() {
    let place = Place::new();
    let mut child = start(&place, "wait");
    let session = why(&place, &[]);
    assert_eq!(session["verdict"]["cause"], "alive", "{session:#}");
    place.ok(&["why", "shop"]).starts("session shop: it lives\n");
    // Of a copy of its files nothing shows whether it had ended.
    let copy = place.at("copy");
    tool("cp", &["-a", place.session().to_str().unwrap(), copy.to_str().unwrap()]);
    child.kill();
    let report = place.json(&["why", copy.to_str().unwrap(), "--json"]);
    let verdict = &report["inputs"][0]["verdict"];
    assert_eq!(verdict["cause"], "unknown", "{verdict:#}");
    verdict["sentence"].as_str().unwrap().has("these copied files do not show");
    assert_eq!(why(&place, &[])["verdict"]["cause"], "unknown");
}

/// What `why` says of the only session of a place after the machine was started again: where the
/// boot has another id.
fn why_in_the_next_boot(place: &Place) -> Value {
    fs::write(place.at("boot"), "0b1c2d3e-4f50-4617-8293-a4b5c6d7e8f9\n").unwrap();
    let script = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && LASTWORDS_DIR={} {} why shop --json",
        place.at("boot").display(),
        place.sessions().display(),
        env!("CARGO_BIN_EXE_lastwords")
    );
    let ran = tool("unshare", &["--map-root-user", "--mount", "sh", "-c", &script]);
    let report: Value = serde_json::from_str(&ran.out).expect(&ran.out);
    report["inputs"][0]["verdict"].clone()
}

/// The kernel marks the session of a process that dies, so that the next boot knows that it was not
/// the end of the machine. The lab has sessions in persistent memory.
#[test]
fn the_next_boot_knows_that_a_process_was_killed_before() {
    let place = Place::new();
    let mut child = start(&place, "wait");
    wait_until("the kernel does not watch the process", || {
        let list = place.json(&["list", "--json"]);
        list["sessions"][0]["processes"][0]["known_by"] == "guard"
    });
    // Nothing shows that the mark would have come from the page cache to the disk.
    let lives = why_in_the_next_boot(&place);
    child.kill();
    let killed = why_in_the_next_boot(&place);
    for (verdict, begin) in [
        (lives, "killed, or ended with its machine ("),
        (killed, "gone before its machine ended ("),
    ] {
        assert_eq!(verdict["cause"], "unknown", "{verdict:#}");
        let sentence = verdict["sentence"].as_str().unwrap();
        assert!(sentence.starts_with(begin), "{verdict:#}");
    }
}

/// A cgroup with a limit of memory, removed when dropped.
pub(crate) struct Cgroup(pub(crate) PathBuf);

impl Cgroup {
    /// Makes one; none where this user may not, or where there is no such controller.
    pub(crate) fn with_limit(bytes: usize) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let (parent, limit) = match root.join("memory/memory.limit_in_bytes").exists() {
            true => (root.join("memory"), "memory.limit_in_bytes"),
            false => (root.to_path_buf(), "memory.max"),
        };
        // Each test has its own.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let own = parent.join(format!("lastwords-test-{}-{number}", std::process::id()));
        fs::create_dir(&own).ok()?;
        let cgroup = Self(own);
        fs::write(cgroup.0.join(limit), bytes.to_string()).ok()?;
        // Memory in swap would not count.
        let _ = fs::write(cgroup.0.join("memory.swap.max"), "0");
        let _ = fs::write(cgroup.0.join("memory.memsw.limit_in_bytes"), bytes.to_string());
        Some(cgroup)
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("it is added");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Returns true if the kernel's log can be read and its process ids are those of this namespace.
fn can_read_log() -> bool {
    let is_initial =
        fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own.ends_with("pid:[4026531836]"));
    is_initial && fs::File::open("/dev/kmsg").is_ok()
}

#[test]
fn the_oom_killer_is_found_in_the_log_of_the_kernel() {
    let Some(cgroup) = Cgroup::with_limit(LIMIT).filter(|_| can_read_log()) else {
        eprintln!("only root can limit memory with a cgroup and read the log of the kernel");
        return;
    };
    let (place, other) = (Place::new(), Place::new());
    let mut child = start(&place, "bare_memory");
    // One that is killed at the same time, by a user.
    let mut beside = start(&other, "wait");
    cgroup.add(child.pid());
    fs::write(place.at("ready.go"), "go").unwrap();
    assert!(!child.wait().success());
    beside.kill();
    let session = why(&place, &[]);
    let verdict = &session["verdict"];
    assert_eq!(verdict["cause"], "out-of-memory", "{verdict:#}");
    let line = verdict["evidence"][1]["text"].as_str().expect("a line of the log");
    assert!(line.contains(&format!("Killed process {} (", child.pid())), "{verdict:#}");
    assert_eq!(
        (&verdict["evidence"][1]["from"], &verdict["last_seen"]),
        (&"kernel-log".into(), &false.into())
    );
    // The other one has the line as a hint, and not as its cause.
    let verdict = &why(&other, &[])["verdict"];
    assert_eq!(verdict["cause"], "unknown", "{verdict:#}");
    assert!(verdict["hints"].to_string().contains(line), "{verdict:#}");
    // The counter of the group does not say which process it was.
    let folder = cgroup.0.to_str().unwrap();
    let verdict = &why(&other, &["--cgroup", folder])["verdict"];
    assert_eq!(verdict["cause"], "unknown", "{verdict:#}");
    let hint = format!("{folder}: 1 process of this control group was killed");
    assert!(verdict["hints"].to_string().contains(&hint), "{verdict:#}");
    other.run(&["why", "shop", "--cgroup", "/proc"]).has_status(1).says("/proc: no control group");
}

/// On x86, the kernel's log has faults that nobody handled.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_fault_without_a_handler_is_found_in_the_log_of_the_kernel() {
    let is_logged =
        fs::read_to_string("/proc/sys/debug/exception-trace").is_ok_and(|on| on.trim() == "1");
    if !is_logged || !can_read_log() {
        eprintln!("the kernel does not log faults, or only root can read them");
        return;
    }
    let _alone = lock();
    let place = ended("bare_fault", None);
    let verdict = &why(&place, &[])["verdict"];
    assert_members(verdict, &json!({ "cause": "signal", "number": 11 }));
    assert_eq!(verdict["evidence"][1]["from"], "kernel-log", "{verdict:#}");
    assert!(
        verdict["evidence"][1]["text"].to_string().contains("]: segfault at 10 "),
        "{verdict:#}"
    );
}

#[test]
fn a_given_log_counts_if_process_and_time_agree() {
    let place = ended("wait", Some(Signal::KILL));
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let inspected = place.json(&["inspect", "shop", "--json"]);
    let session = &inspected["sessions"][0];
    let pid = session["creator"].as_u64().unwrap();
    let log = |pid: u64, seconds: i64| {
        let text = format!(
            "[{:5}.{:06}] Out of memory: Killed process {pid} (shop) total-vm:1kB\n",
            now.tv_sec + seconds,
            now.tv_nsec / 1000
        );
        fs::write(place.at("dmesg"), text).unwrap();
        let verdict = why(&place, &["--kernel-log", "dmesg"])["verdict"].clone();
        verdict["cause"].as_str().unwrap().to_owned()
    };
    if can_read_log() {
        assert_eq!(log(pid, 0), "out-of-memory");
    }
    assert_eq!(log(pid + 1, 0), "unknown");
    assert_eq!(log(pid, 3600), "unknown");
    place.run(&["why", "shop", "--kernel-log", "/nowhere"]).has_status(1).says("/nowhere");
    fs::write(place.at("dmesg"), "Nov 29 09:00:00 host kernel: x\n").unwrap();
    place.run(&["why", "shop", "--kernel-log", "dmesg"]).has_status(1).says("short-monotonic");
}

#[test]
fn inputs_that_do_not_show_an_end_are_unknown() {
    let place = Place::new();
    fs::write(place.at("core"), small(&place, "session", 0).core()).unwrap();
    place.ok(&["recover", "session", "-o", "ctf"]);
    fs::copy(trace_dat("small-7"), place.at("k.dat")).unwrap();
    for (input, what) in [("core", "session"), ("ctf", "trace"), ("k.dat", "trace")] {
        let report = place.json(&["why", input, "--json"]);
        let own = &report["inputs"][0];
        assert_eq!(
            (&own["what"], &own["verdict"]["cause"]),
            (&what.into(), &"unknown".into()),
            "{report:#}"
        );
        assert!(!own["last_events"].as_array().unwrap().is_empty(), "{input}: {own:#}");
        place.ok(&["why", input]).starts(&format!("{what} ")).has("unknown");
    }
    place.run(&["why", "nothing"]).has_status(1).prints_nothing();
}

#[test]
fn a_core_names_its_signal_unless_a_debugger_may_have_made_it() {
    let _alone = lock();
    let place = Place::new();
    start_app(&place, "memfd", "abort").ended();
    let verdict = |core: &Path| {
        let report = place.json(&["why", core.to_str().unwrap(), "--json"]);
        report["inputs"][0]["verdict"].clone()
    };
    let aborted = verdict(&core_of(&place));
    assert_members(&aborted, &json!({ "cause": "signal", "number": 6 }));
    assert_eq!(aborted["evidence"][0]["from"], "core");
    let living = Place::new();
    let running = start_app(&living, "memfd", "wait");
    let core = living.at("copy");
    tool("gcore", &["-o", core.to_str().unwrap(), &running.pid().to_string()]);
    let core = PathBuf::from(format!("{}.{}", core.display(), running.pid()));
    let living = verdict(&core);
    assert_eq!(living["cause"], "unknown", "{living:#}");
    assert!(living["sentence"].as_str().unwrap().contains("a debugger"), "{living:#}");
}
