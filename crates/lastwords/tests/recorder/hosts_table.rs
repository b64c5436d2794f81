//! A table of hostile hosts. In each, an application must end as it would without a recorder, and
//! each event must be in the session or counted. `cargo xtask hosts` prints the table.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use crate::common;
use crate::common::{
    check, child_dir, filter, is_root, limit, limit_address_space, lost, mappings, mount, plain,
    record, spawn, unmount,
};
use lastwords::{Scope, Session};

/// A host that is hostile to recorders: its effects on the process before the process begins, and
/// while it runs.
struct Host {
    name: &'static str,
    /// Runs in the child, before anything else.
    before: fn(&Path),
    /// Runs in the child after the first half of the events.
    during: fn(&Path),
}

const NOTHING: fn(&Path) = |_| ();

const HOSTS: &[Host] = &[
    Host { name: "a friendly one", before: NOTHING, during: NOTHING },
    Host { name: "a full tmpfs", before: |dir| small_tmpfs(dir, "64k"), during: NOTHING },
    Host { name: "a tmpfs that fills up", before: |dir| small_tmpfs(dir, "16m"), during: fill },
    Host { name: "a read-only folder", before: read_only, during: NOTHING },
    Host {
        name: "no folder",
        before: |dir| std::fs::remove_dir(dir).expect("removed"),
        during: NOTHING,
    },
    Host { name: "no /proc", before: |_| cover("/proc"), during: NOTHING },
    Host { name: "no /dev/shm", before: |_| cover("/dev/shm"), during: NOTHING },
    Host {
        name: "truncated files",
        before: NOTHING,
        during: |dir| files(dir).for_each(|file| set_len(&file, 0)),
    },
    Host {
        name: "files cut in half",
        before: NOTHING,
        during: |dir| files(dir).for_each(|file| set_len(&file, 65536)),
    },
    Host { name: "unlinked files", before: NOTHING, during: unlink },
    Host { name: "RLIMIT_FSIZE 0", before: |_| limit(libc::RLIMIT_FSIZE, 0, 0), during: NOTHING },
    Host {
        name: "RLIMIT_FSIZE later",
        before: NOTHING,
        during: |_| limit(libc::RLIMIT_FSIZE, 0, 0),
    },
    Host { name: "RLIMIT_AS", before: |_| limit_address_space(1 << 20), during: NOTHING },
    Host { name: "RLIMIT_AS later", before: NOTHING, during: |_| limit_address_space(0) },
    Host { name: "RLIMIT_NOFILE", before: |_| limit(libc::RLIMIT_NOFILE, 5, 5), during: NOTHING },
    Host {
        name: "RLIMIT_NOFILE later",
        before: NOTHING,
        during: |_| limit(libc::RLIMIT_NOFILE, 3, 3),
    },
    Host { name: "RLIMIT_NPROC", before: no_processes, during: NOTHING },
    Host { name: "a filter: EPERM", before: |_| forbid(libc::EPERM, UNUSUAL), during: NOTHING },
    Host { name: "a filter: ENOSYS", before: |_| forbid(libc::ENOSYS, UNUSUAL), during: NOTHING },
    Host {
        name: "a filter: no mmap later",
        before: NOTHING,
        during: |_| forbid(libc::ENOMEM, &[libc::SYS_mmap]),
    },
    Host { name: "a filter: write alone", before: NOTHING, during: |_| allow_only_writing() },
    Host { name: "a filter, then a rule", before: NOTHING, during: follow_a_rule_under_a_filter },
    Host { name: "a folder of 2,000 sessions", before: left_over_folders, during: NOTHING },
];

/// Calls that filters often forbid.
const UNUSUAL: &[libc::c_long] = &[
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_futex_waitv,
    libc::SYS_fallocate,
    libc::SYS_flock,
    libc::SYS_getrandom,
    libc::SYS_prctl,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_ptrace,
    libc::SYS_statx,
];

/// Runs the application: it counts, and prints its counts, with or without a session.
#[test]
fn child_is_an_application() {
    let Some(dir) = child_dir() else { return };
    let host =
        std::env::var("HOST").ok().and_then(|name| HOSTS.iter().find(|host| host.name == name));
    let Some(host) = host else { return };
    let place = dir.join("sessions");
    (host.before)(&place);
    let wanted = std::env::var_os("RECORDED").is_some();
    let builder = Session::builder("host").channel(plain("main"));
    // A session without a folder of its own is in /dev/shm.
    let builder = if host.name == "no /dev/shm" { builder } else { builder.dir(&place) };
    let session = wanted.then(|| builder.start());
    if let Some(Err(error)) = &session {
        eprintln!("not recorded: {error}");
    }
    let mut sum = 0;
    for n in 0..EVENTS {
        if n == EVENTS / 2 {
            (host.during)(&place);
        }
        record(n..n + 1);
        sum += n;
    }
    println!("application: {sum}");
    std::io::Write::flush(&mut std::io::stdout()).expect("written");
    // This ends the process like a crash, and the recorded events are recovered from what is left.
    // SAFETY: the process ends here.
    unsafe { libc::_exit(7) };
}

/// Number of events of the application.
const EVENTS: u64 = 2000;

#[test]
fn hosts_do_not_end_the_application_and_it_records_what_can_be_recorded() {
    alone!();
    if !is_root() {
        return;
    }
    println!("{:28} {:>8} {:>8} {:>9} {:>6}  note", "host", "without", "with", "recorded", "lost");
    let mut wrong = Vec::new();
    for host in HOSTS {
        let run = |recorded: bool| {
            let dir = tempfile::tempdir().expect("a folder");
            let place = dir.path().join("sessions");
            std::fs::create_dir(&place).expect("a folder");
            std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o700))
                .expect("chmod");
            let mut command = common::test_of_this_module("child_is_an_application");
            command.env(common::DIR, dir.path()).env("HOST", host.name);
            command.env_remove("LASTWORDS_DIR").env_remove("XDG_RUNTIME_DIR");
            if recorded {
                command.env("RECORDED", "1");
            }
            let out = command.output().expect("it runs");
            let text = String::from_utf8_lossy(&out.stdout);
            let said: Vec<String> = text
                .lines()
                .filter_map(|line| Some(line[line.find("application:")?..].to_owned()))
                .collect();
            let note =
                String::from_utf8_lossy(&out.stderr).lines().next().unwrap_or_default().to_owned();
            let found = found(&place);
            unmount(&place);
            (out.status, said, note, found)
        };
        let (without, with) = (run(false), run(true));
        let status = |status: std::process::ExitStatus| match (status.code(), status.signal()) {
            (Some(code), _) => code.to_string(),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        };
        let (recorded, lost) = with.3;
        let (plain, ours) = (status(without.0), status(with.0));
        let row =
            format!("{:28} {plain:>8} {ours:>8} {recorded:>9} {lost:>6}  {}", host.name, with.2);
        println!("{row}");
        let is_same = (without.0, &without.1) == (with.0, &with.1) && with.1.len() == 1;
        // Every event is there or counted, unless the start reported that nothing is recorded, or
        // the files were removed.
        let is_told = with.2.starts_with("not recorded") || recorded + lost == EVENTS;
        let has_files =
            !["truncated files", "files cut in half", "unlinked files"].contains(&host.name);
        if !is_same || (has_files && !is_told) {
            wrong.push(format!(
                "{row}\n  without: {:?} {}\n  with: {:?}",
                without.1, without.2, with.1
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the events that are left in the folder's session, and those that are counted as lost.
fn found(place: &Path) -> (u64, u64) {
    let own = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("host-"))
    };
    let Some(folder) =
        std::fs::read_dir(place).into_iter().flatten().flatten().map(|e| e.path()).find(own)
    else {
        return (0, 0);
    };
    let sessions = lastwords_testkit::naive::read(&folder).unwrap_or_default();
    (sessions.iter().map(|session| session.events().len() as u64).sum(), lost(&folder))
}

fn no_processes(dir: &Path) {
    std::os::unix::fs::chown(dir, Some(65534), Some(65534)).expect("given away");
    // The limit does not apply to root. SAFETY: the calls involve no memory.
    check(unsafe { libc::setgid(65534) | libc::setuid(65534) });
    limit(libc::RLIMIT_NPROC, 0, 0);
}

fn small_tmpfs(dir: &Path, size: &str) {
    mount(dir, 0, &format!("size={size},mode=0700"));
}

/// Hides the contents of `path` from this process.
fn cover(path: &str) {
    // SAFETY: the arguments are C strings, or null pointers if nothing is given.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS));
        let private = libc::MS_REC | libc::MS_PRIVATE;
        check(libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            private,
            std::ptr::null(),
        ));
    }
    mount(Path::new(path), 0, "size=64k");
}

fn fill(dir: &Path) {
    let _ = std::fs::write(dir.join("filling"), vec![1; 32 << 20]);
}

fn read_only(dir: &Path) {
    mount(dir, libc::MS_RDONLY, "size=16m,mode=0700");
}

/// Returns the files of the session.
fn files(dir: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let folders = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    folders
        .filter(|path| path.is_dir())
        .flat_map(|path| std::fs::read_dir(path).into_iter().flatten().flatten())
        .map(|e| e.path())
}

fn set_len(file: &Path, len: u64) {
    let file = std::fs::File::options().write(true).open(file).expect("it opens");
    if file.metadata().expect("its length").len() > len {
        file.set_len(len).expect("truncated");
    }
}

fn unlink(dir: &Path) {
    files(dir).for_each(|file| std::fs::remove_file(file).expect("removed"));
}

fn left_over_folders(dir: &Path) {
    for n in 0..2000 {
        let folder = dir.join(format!("other-{n:016x}"));
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).expect("chmod");
    }
}

fn forbid(error: libc::c_int, calls: &[libc::c_long]) {
    filter(calls, libc::SECCOMP_RET_ERRNO | error as u32, libc::SECCOMP_RET_ALLOW);
}

/// Installs a filter under which any system call kills the process, except writing, ending the
/// program and a few others. Recording needs no system call once a thread has recorded an event
/// from a line.
fn allow_only_writing() {
    let needed = [
        libc::SYS_write,
        libc::SYS_exit_group,
        libc::SYS_rt_sigreturn,
        libc::SYS_futex,
        libc::SYS_futex_waitv,
    ];
    // The thread that made this one may still be at that, with calls of its own.
    let main_thread_waits =
        || std::fs::read_to_string("/proc/self/stat").is_ok_and(|stat| stat.contains(") S "));
    while !main_thread_waits() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    filter(&needed, libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS);
}

/// Lets another process add a rule to the session once [`allow_only_writing`] applies, and waits
/// until the session follows it.
fn follow_a_rule_under_a_filter(dir: &Path) {
    let mut command = common::test_of_this_module("child_adds_a_rule");
    command.env(common::DIR, dir).env_remove("HOST");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    // The filter later forbids closing the pipe and waiting for the process.
    let mut other = std::mem::ManuallyDrop::new(command.spawn().expect("it starts"));
    let go = other.stdin.as_mut().expect("a pipe");
    let begun = std::time::Instant::now();
    let is_followed =
        || !lastwords::event_enabled!(later, "told") || begun.elapsed().as_secs() > 20;
    let _ = is_followed();
    allow_only_writing();
    std::io::Write::write_all(go, b"go\n").expect("written");
    while !is_followed() {
        // This waits on a futex, which is allowed.
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

#[test]
fn child_adds_a_rule() {
    let Some(dir) = child_dir() else { return };
    if std::env::var_os("HOST").is_some() {
        return;
    }
    std::io::stdin().read_line(&mut String::new()).expect("a line");
    let sessions = lastwords_control::list(Some(&dir)).expect("the list");
    for session in sessions {
        let handle = lastwords_control::Handle::open(&session.folder).expect("it opens");
        handle.rule(&lastwords::rules::RuleSpec::disable("later:*")).expect("a rule");
    }
}

/// Returns a count: the quick one, or the one for `cargo xtask hosts`.
fn count(quick: usize, all: usize) -> usize {
    if std::env::var_os("LASTWORDS_ALL_HOSTS").is_some() { all } else { quick }
}

#[test]
fn sessions_that_ended_keep_no_mappings() {
    alone!(in dir);
    let many = count(150, 5000);
    let once = || {
        let builder =
            Session::builder("many").dir(dir.path()).channel(plain("main").sub_buffers(2, 4096));
        let session = builder.listen(false).start().expect("it starts");
        record(0..10);
        drop(session);
    };
    (0..20).for_each(|_| once());
    let before = mappings();
    (0..many).for_each(|_| once());
    let more = mappings().saturating_sub(before);
    assert!(more < 50, "{more} mappings more after {many} sessions");
}

#[test]
fn child_joins_and_dies() {
    let Some(dir) = child_dir() else { return };
    let builder = Session::builder("crowd").dir(&dir).scope(Scope::User).channel(plain("main"));
    let _session = builder.start().expect("it joins");
    record(0..10);
    common::kill_self();
}

#[test]
fn many_processes_start_at_once() {
    alone!(in dir);
    let many = count(40, 200);
    let children: Vec<_> =
        (0..many).map(|_| spawn("child_joins_and_dies", dir.path(), &[])).collect();
    let ended: Vec<_> =
        children.into_iter().map(|mut child| child.wait().expect("it ends").signal()).collect();
    assert_eq!(ended, vec![Some(libc::SIGKILL); many], "each of them recorded");
}
