//! `lastwords core-helper` runs as root for processes of anybody. What a process that dies can do
//! to it: nothing is written with the rights of root, nothing delays its core for long, and nothing
//! is read with more rights than needed.

use crate::child::Running;
use crate::core_helper::start_as_nobody;
use crate::dying::{Dying, Helper, help, help_by, lock};
use crate::silent::Silent;
use crate::support::{NOBODY, Place, tool, wait_until};
use lastwords_testkit::text::Text as _;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// More than a pipe holds.
fn core() -> Vec<u8> {
    (0..300_000u32).map(|at| ((at * 7) >> 3) as u8 | 1).collect()
}

/// Runs a script of Python in the place, without limit of its core.
fn python(place: &Place, script: &str) -> Running {
    let command = "ulimit -c unlimited; exec python3 -c \"$1\"";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command, "sh", script]).current_dir(place.path());
    Running::start(shell.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Starts a process that has this number, in this folder. Others take numbers meanwhile, so that it
/// may need attempts.
fn start_with_number(number: u32, folder: &Path) -> Running {
    for _ in 0..2000 {
        fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string())
            .expect("the last number");
        let child = Running::start(Command::new("sleep").arg("60").current_dir(folder));
        if child.pid() == number {
            return child;
        }
    }
    panic!("number {number} is not free");
}

#[test]
fn a_process_that_gets_the_number_of_a_dead_one_gets_no_core() {
    let (place, roots) = (Place::new(), Place::new());
    let mut dying = Dying::hold(&place, || start_as_nobody(&place, "heap", "abort"));
    let number = dying.pid();
    let _lock = lock();
    let helper =
        Helper::start(&place, &["file", &number.to_string(), "6", "1", "1000000", "-", "core"]);
    // The helper is stopped while it waits for the sessions to be saved.
    let saver = helper.part("save").to_string();
    tool("kill", &["-STOP", &saver]);
    dying.kill();
    let other = start_with_number(number, roots.path());
    tool("kill", &["-CONT", &saver]);
    let ran = helper.end(&core());
    drop(other);
    assert!(!roots.at("core").exists(), "the core is where the other process is: {}", ran.err);
    let meta = fs::metadata(place.at("core")).expect("the core is where the dead process was");
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (NOBODY, 0o600));
    assert!(fs::read(place.at("core")).expect("readable") == core());
}

#[test]
fn a_process_that_is_not_dumped_gets_no_core() {
    let place = Place::new();
    let living = Running::start(Command::new("sleep").arg("60").current_dir(place.path()));
    let pid = living.pid().to_string();
    help(&place, &["file", &pid, "11", "1", "1000000", "-", "core"], &core())
        .has_status(1)
        .says("not dumping");
    assert!(!place.at("core").exists());
}

/// The kernel keeps a process whose first thread has ended, with less to see in `/proc/PID`.
#[test]
fn a_core_is_written_though_the_first_thread_has_ended() {
    let place = Place::new();
    let script = "import ctypes, os, platform, threading, time\n\
        threading.Thread(target=lambda: (time.sleep(0.3), os.abort())).start()\n\
        ctypes.CDLL(None).syscall({'x86_64': 60}.get(platform.machine(), 93), 0)";
    let dying = Dying::hold(&place, || python(&place, script));
    help(&place, &["file", &dying.pid().to_string(), "6", "1", "1000000", "-", "core"], &core())
        .has_status(0);
    assert!(fs::read(place.at("core")).expect("a core") == core());
}

/// A line of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// The process reads memory that never comes, and so shows what it is allowed to do.
fn assert_no_rights(pid: u32) {
    wait_until("it waits", || {
        !status(pid, "State").starts_with('R') && !status(pid, "Uid").starts_with('0')
    });
    let nobody = format!("{NOBODY} {NOBODY} {NOBODY} {NOBODY}");
    assert_eq!([status(pid, "Uid"), status(pid, "Gid")], [nobody.clone(), nobody]);
    assert_eq!(status(pid, "Groups"), "");
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    if Path::new("/proc/sys/kernel/seccomp").exists() {
        assert_eq!(status(pid, "Seccomp"), "2", "a filter");
    }
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("readable") {
        let target =
            fs::read_link(entry.expect("an entry").path()).expect("a link").display().to_string();
        let is_given =
            target.starts_with("socket:") || target.ends_with("/mem") || target == "/dev/null";
        assert!(is_given, "{target} is open");
    }
}

/// Starts a process that maps the file and dies.
fn hold_mapper<'a>(place: &'a Place) -> Dying<'a> {
    let script = "import mmap, os\nf = open('silent', 'r+b')\nm = mmap.mmap(f.fileno(), 1 << 20)\nos.abort()";
    Dying::hold(place, || python(place, script))
}

#[test]
fn memory_that_cannot_be_read_does_not_keep_the_core() {
    let place = Place::new();
    let _silent = Silent::mount(&place.at("silent"));
    let dying = hold_mapper(&place);
    let _lock = lock();
    let begun = Instant::now();
    let ran = Helper::start(
        &place,
        &["file", &dying.pid().to_string(), "6", "1", "1000000", "-", "core"],
    )
    .end(&core());
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    ran.has_status(0).says("it took more than 20 s");
    assert!(fs::read(place.at("core")).expect("a core") == core());
}

#[test]
fn memory_is_read_without_rights() {
    let place = Place::new();
    let silent = Silent::mount(&place.at("silent"));
    let dying = hold_mapper(&place);
    let _lock = lock();
    // As of a process with more rights than its user: so its core is root's.
    let (path, pid) = (place.at("core"), dying.pid().to_string());
    let helper = Helper::start(
        &place,
        &["file", &pid, "6", "2", "1000000", "-", path.to_str().expect("a path")],
    );
    assert_no_rights(helper.part("search"));
    drop(silent);
    helper.end(&core()).has_status(0);
    assert!(fs::read(&path).expect("a core") == core());
}

#[test]
fn more_than_four_helpers_do_not_keep_the_core() {
    let place = Place::new();
    let dying = Dying::hold(&place, || start_as_nobody(&place, "heap", "abort"));
    let _lock = lock();
    let pid = dying.pid().to_string();
    // The folder is made by the first helper.
    Helper::start(&place, &["pipe", &pid, "6", "1", "/bin/true"]).end(&[]);
    let slots: Vec<File> = (0..4)
        .map(|slot| {
            let file =
                File::create(format!("/run/lastwords-core-helper/slot-{slot}")).expect("root's");
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("locked");
            file
        })
        .collect();
    let ran = Helper::start(&place, &["file", &pid, "6", "1", "1000000", "-", "core"]).end(&core());
    drop(slots);
    ran.has_status(0).says("other helpers are at work");
    assert!(fs::read(place.at("core")).expect("a core") == core());
}

#[test]
fn a_storm_of_crashes_does_not_fill_the_log() {
    let place = Place::new();
    let living = Running::start(Command::new("sleep").arg("60").current_dir(place.path()));
    let pid = living.pid().to_string();
    let _lock = lock();
    let begun = Instant::now();
    for _ in 0..100 {
        Helper::start(&place, &["pipe", &pid, "11", "1", "/bin/true"]).end(&[]);
    }
    drop(living);
    let log = tool("dmesg", &[]).out;
    let lines =
        log.lines().filter(|line| line.contains(&format!("process {pid} are not saved"))).count();
    // 20 lines in each minute, of which the first and the last may have begun or may end outside of
    // the storm.
    let most = 20 * (begun.elapsed().as_secs() as usize / 60 + 2);
    assert!(lines <= most && lines < 100, "{lines} lines");
}

#[test]
fn the_copies_of_all_users_have_a_quota() {
    let place = Place::new();
    let dying = Dying::hold(&place, || start_as_nobody(&place, "heap", "abort"));
    let script = "mount -t tmpfs none /dev/shm && cd /dev/shm && for user in 1 2 3 4 5 6 7 8; do mkdir -m 700 lastwords-$user && \
        for copy in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do mkdir lastwords-$user/app.dead-$copy-0; done; \
        chown -R $user lastwords-$user; done; \
        exec \"$0\" core-helper pipe \"$1\" 6 1 /bin/true";
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_lastwords")]);
        command.arg(dying.pid().to_string());
        help_by(command.env("LASTWORDS_DIR", place.sessions()).current_dir(place.path())).err
    };
    run(script).has("not copied: all users together have 128 copies");
    let copies = || {
        fs::read_dir(place.sessions()).expect("readable").flatten().map(|entry| entry.file_name())
    };
    assert_eq!(copies().filter(|name| name.to_string_lossy().contains(".dead-")).count(), 0);
    // With one less there is room.
    run(&script.replace("exec", "rmdir lastwords-1/app.dead-1-0; exec"))
        .has("copied at SIGABRT to ");
    for copy in copies().filter(|name| name.to_string_lossy().contains(".dead-")) {
        fs::remove_dir_all(place.sessions().join(copy)).expect("removed");
    }
    // One user cannot fill it, neither with copies nor with other names.
    let one = "mount -t tmpfs none /dev/shm && cd /dev/shm && mkdir lastwords-1 && cd lastwords-1 && \
        seq 1 20001 | xargs touch && seq -f app.dead-%g-0 1 200 | xargs mkdir && cd .. && cp -r lastwords-1 lastwords-x && \
        cp -r lastwords-1 lastwords-2 && chown -R 1 lastwords-*; exec \"$0\" core-helper pipe \"$1\" 6 1 /bin/true";
    run(one).has("copied at SIGABRT to ");
}
