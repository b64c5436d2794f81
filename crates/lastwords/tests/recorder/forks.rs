//! Tests forked children: operations that require a process of one thread work there, and changes
//! of rules still reach them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{
    child_dir, folder, in_fork, is_root, limit, numbers, only_session, record, succeeds, wait_for,
    with_main,
};
use lastwords::Session;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("the list of threads").count()
}

/// Returns 0, or the error number.
fn unshare() -> i32 {
    // SAFETY: the call involves no memory.
    match unsafe { libc::unshare(libc::CLONE_NEWUSER) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
    }
}

fn start(dir: &std::path::Path) -> Session {
    with_main("forks", dir).start().expect("it starts")
}

#[test]
fn a_forked_child_has_one_thread() {
    alone!(in dir);
    let without = in_fork(unshare);
    let _session = start(dir.path());
    record(0..10);
    assert_eq!(in_fork(|| threads() as i32), 1);
    assert_eq!(in_fork(unshare), without, "the session changes nothing");
}

/// Returns true if an event that is recorded now gets into the session.
fn is_recorded(session: &Session, number: u64) -> bool {
    record(number..number + 1);
    numbers(&folder(session)).contains(&number)
}

#[test]
fn a_forked_child_that_records_follows_rules() {
    alone!(in dir);
    let session = start(dir.path());
    record(0..1);
    let parent = std::process::id();
    let told = in_fork(|| {
        let handle = lastwords_control::Handle::open(&folder(&session)).expect("it opens");
        // The first event of the child starts the thread, which then waits for changes.
        assert!(is_recorded(&session, 1) && std::process::id() != parent);
        wait_for("the thread", || threads() == 2);
        // The same works for another process: the words are shared, and the child sees only what is
        // announced there.
        let mut number = 10;
        let mut follows = |glob: fn(&str) -> lastwords::rules::RuleSpec, wanted: bool| {
            let status = in_fork(|| i32::from(handle.rule(&glob("test:*")).is_err()));
            assert_eq!(status, 0);
            wait_for("the change", || {
                number += 1;
                is_recorded(&session, number) == wanted
            });
        };
        follows(|glob| lastwords::rules::RuleSpec::disable(glob), false);
        follows(|glob| lastwords::rules::RuleSpec::enable(glob), true);
        0
    });
    assert_eq!(told, 0);
}

static IN_HANDLER: AtomicBool = AtomicBool::new(false);

extern "C" fn record_in_handler(_: libc::c_int) {
    record(100..101);
    IN_HANDLER.store(true, Ordering::Relaxed);
}

#[test]
fn no_thread_is_started_in_a_signal_handler() {
    alone!(in dir);
    let session = start(dir.path());
    record(0..1);
    // SAFETY: the handler records, which is allowed in handlers.
    unsafe {
        libc::signal(libc::SIGUSR1, record_in_handler as extern "C" fn(libc::c_int) as usize)
    };
    let told = in_fork(|| {
        let count = || numbers(&folder(&session)).iter().filter(|number| **number == 100).count();
        let handle = lastwords_control::Handle::open(&folder(&session)).expect("it opens");
        let record_there = || {
            // SAFETY: the handler was installed above.
            unsafe { libc::raise(libc::SIGUSR1) };
            assert!(IN_HANDLER.swap(false, Ordering::Relaxed));
            assert_eq!(threads(), 1, "no thread is started in a handler");
            count()
        };
        assert_eq!(record_there(), 1);
        // Without a thread, the very next event follows the change.
        handle.rule(&lastwords::rules::RuleSpec::disable("test:*")).expect("disabled");
        assert_eq!(record_there(), 1);
        handle.rule(&lastwords::rules::RuleSpec::enable("test:*")).expect("enabled");
        assert_eq!(record_there(), 2);
        0
    });
    assert_eq!(told, 0);
}

#[test]
fn child_may_have_no_thread() {
    let Some(dir) = child_dir() else { return };
    // SAFETY: the filter applies to this process only.
    unsafe {
        // The limit on processes does not apply to root.
        assert_eq!(libc::setgid(65534) | libc::setuid(65534), 0);
    }
    limit(libc::RLIMIT_NPROC, 0, 0);
    let before = threads();
    let session = start(&dir);
    assert_eq!(threads(), before, "no thread could be started");
    assert!(is_recorded(&session, 1));
    let handle = lastwords_control::Handle::open(&folder(&session)).expect("it opens");
    handle.rule(&lastwords::rules::RuleSpec::disable("test:*")).expect("disabled");
    assert!(!is_recorded(&session, 2), "the next event follows");
    handle.rule(&lastwords::rules::RuleSpec::enable("test:*")).expect("enabled");
    assert!(is_recorded(&session, 3), "the next event follows");
}

#[test]
fn a_session_follows_rules_where_no_thread_can_be_started() {
    alone!();
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).expect("given away");
    // The test runs with the C library's restartable sequences, and with an area of our own.
    for variables in [&[][..], &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]] {
        succeeds("child_may_have_no_thread", dir.path(), variables);
    }
}

/// The thread of `main` of the forked child ends, then its last own thread. Without a session, the
/// process ends then.
#[test]
fn a_process_whose_threads_have_ended_ends() {
    alone!(in dir);
    static DIR: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();
    DIR.set(dir.path().to_owned()).expect("it is set once");
    extern "C" fn last(_: *mut libc::c_void) -> *mut libc::c_void {
        std::thread::sleep(std::time::Duration::from_millis(1500));
        record(10..20);
        std::ptr::null_mut()
    }
    fn thread(run: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void) -> libc::pthread_t {
        // SAFETY: `pthread_t` is a number; all arguments are valid, and `run` takes no argument.
        unsafe {
            let mut thread: libc::pthread_t = std::mem::zeroed();
            let nothing = std::ptr::null_mut();
            assert_eq!(libc::pthread_create(&raw mut thread, std::ptr::null(), run, nothing), 0);
            thread
        }
    }
    /// Forks. In the child, the thread that forked is that of `main`. When it returns, it ends as by
    /// `pthread_exit`.
    extern "C" fn main(_: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the child's only thread goes on as any program does. The process has no others
        // that hold locks: the test's thread waits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let _stays = std::mem::ManuallyDrop::new(start(DIR.get().expect("it is set")));
            record(0..10);
            thread(last);
        }
        std::ptr::without_provenance_mut(child as usize)
    }
    let mut child = std::ptr::null_mut();
    // SAFETY: the thread was made above, and is joined once.
    assert_eq!(unsafe { libc::pthread_join(thread(main), &raw mut child) }, 0);
    let (child, mut status) = (child.addr() as libc::pid_t, 0);
    let begin = std::time::Instant::now();
    // SAFETY: the child is ours, and `status` is valid memory.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if begin.elapsed().as_secs() > 20 {
            // SAFETY: no memory is involved, and the child is ours.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the process lives on without a thread of its own");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
    assert_eq!(numbers(&only_session(dir.path())), (0..20).collect::<Vec<_>>());
}
