//! Common code of the tests of sessions: numbered events, a naive reader, and children that run
//! this same test program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lastwords::{Builder, ChannelConfig, Session, Triggered};
use lastwords_testkit::naive;
use lastwords_testkit::ring::Event;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

/// Name of the variable with the folder in which a child records.
pub(crate) const DIR: &str = "LASTWORDS_TEST_DIR";

/// Makes a small channel whose events are payload only.
pub(crate) fn plain(name: &str) -> ChannelConfig {
    ChannelConfig::new(name).sub_buffers(4, 64 << 10).contexts(lastwords::Context::NONE)
}

/// Returns the builder of a session in `dir` with the channel `main`, which is [`plain`].
pub(crate) fn with_main(name: impl Into<String>, dir: impl Into<PathBuf>) -> Builder {
    Session::builder(name).dir(dir).channel(plain("main"))
}

/// Returns all numbers of a range.
pub(crate) fn every<T>(range: std::ops::Range<T>) -> Vec<T>
where
    std::ops::Range<T>: Iterator<Item = T>,
{
    range.collect()
}

/// Records numbers as events of `test:number`.
pub(crate) fn record(numbers: std::ops::Range<u64>) {
    for number in numbers {
        lastwords::event!(test, "number", number = number);
    }
}

/// Returns the only session that a naive reader finds in a folder.
pub(crate) fn read(folder: &Path) -> naive::Session {
    let mut sessions = naive::read(folder).expect("the folder is readable");
    assert_eq!(sessions.len(), 1, "{}", folder.display());
    sessions.remove(0)
}

/// Returns its events, with the index of their stream.
pub(crate) fn events(folder: &Path) -> Vec<(u32, Event)> {
    read(folder).events()
}

/// Returns events' payloads, in order of time.
fn bodies(mut events: Vec<(u32, Event)>) -> Vec<Vec<u8>> {
    events.sort_by_key(|(_, event)| event.clock);
    events.into_iter().map(|(_, event)| event.body).collect()
}

/// Returns the payloads of a channel's events or of its snapshot's, in order of time.
pub(crate) fn bodies_of(
    folder: &Path,
    channel: u32,
    events: impl Fn(&naive::Session) -> Vec<(u32, Event)>,
) -> Vec<Vec<u8>> {
    let session = read(folder);
    let mut events = events(&session);
    events.retain(|(stream, _)| session.streams[*stream as usize].channel == channel);
    bodies(events)
}

/// Returns the numbers in events' payloads, in order of time.
fn numbers_of(events: Vec<(u32, Event)>) -> Vec<u64> {
    let number = |body: &Vec<u8>| body.first_chunk::<8>().map(|bytes| u64::from_ne_bytes(*bytes));
    bodies(events).iter().filter_map(number).collect()
}

/// Returns the session's numbers that a naive reader finds in a folder.
pub(crate) fn numbers(folder: &Path) -> Vec<u64> {
    numbers_of(events(folder))
}

/// Returns the oldest number of each stream that a naive reader finds in a folder. A process that
/// changed the CPU leaves its older numbers in one stream while it overwrites the numbers behind
/// them in another.
pub(crate) fn oldest_of_streams(folder: &Path) -> BTreeSet<u64> {
    let mut streams: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    let all = events(folder).into_iter();
    all.for_each(|(stream, event)| streams.entry(stream).or_default().push((stream, event)));
    streams.into_values().filter_map(|events| numbers_of(events).first().copied()).collect()
}

/// Returns the snapshot's numbers that a naive reader finds in a folder.
pub(crate) fn snapshot_numbers(folder: &Path) -> Vec<u64> {
    numbers_of(read(folder).snapshot_events())
}

/// Returns the numbers in a file that contains all regions.
pub(crate) fn numbers_in_file(file: &Path) -> Vec<u64> {
    let bytes = std::fs::read(file).expect("the file is readable");
    let sessions = naive::read_files(&[&bytes]);
    assert_eq!(sessions.len(), 1, "{}", file.display());
    numbers_of(sessions[0].events())
}

/// Starts a session.
pub(crate) fn started(builder: Builder) -> Session {
    builder.start().expect("a session")
}

/// Starts a session, and returns it with its folder.
pub(crate) fn start(builder: Builder) -> (Session, PathBuf) {
    let session = started(builder);
    let folder = folder(&session);
    (session, folder)
}

/// Returns the session's folder.
pub(crate) fn folder(session: &Session) -> PathBuf {
    session.folder().expect("a folder").to_owned()
}

/// Starts the test `name` of this program as a child that records in `dir`.
pub(crate) fn spawn(name: &str, dir: &Path, variables: &[(&str, &str)]) -> Child {
    test_of_this_module(name)
        .env(DIR, dir)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the child starts")
}

/// Runs the test `name` of this program as a child that records in `dir`, to its end.
pub(crate) fn end_of(name: &str, dir: &Path, variables: &[(&str, &str)]) -> ExitStatus {
    spawn(name, dir, variables).wait().expect("it ends")
}

/// Does the same, and checks that the child succeeds.
pub(crate) fn succeeds(name: &str, dir: &Path, variables: &[(&str, &str)]) {
    let status = end_of(name, dir, variables);
    assert!(status.success(), "{name} {variables:?}: {status}");
}

/// Name of the variable with the module of the test that has a process of its own, which its
/// children inherit.
const MODULE: &str = "LASTWORDS_TEST_MODULE";

/// Runs a test, whose path ends with a function's name, in a process of its own, and checks that it
/// passed. Returns false if this is that process.
pub(crate) fn ran_alone(path: &str) -> bool {
    if std::env::var_os(MODULE).is_some() {
        return false;
    }
    let mut parts = path.rsplit("::").skip(1);
    let (name, module) = (parts.next().expect("the test"), parts.next().expect("its module"));
    let run = test(module, name).env(MODULE, module).output().expect("this program starts");
    let said =
        format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(
        run.status.success() && said.contains("1 passed"),
        "in a process of its own: {}\n{said}",
        run.status
    );
    print!("{said}");
    true
}

/// Returns the command that runs a test of this program alone.
fn test(module: &str, name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([&format!("{module}::{name}"), "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// Returns the command that runs a test of the module of the calling test, which has a process of
/// its own.
pub(crate) fn test_of_this_module(name: &str) -> Command {
    test(&std::env::var(MODULE).expect("a test that called `alone!`"), name)
}

/// Returns the folder in which this process must record, if it is a child.
pub(crate) fn child_dir() -> Option<PathBuf> {
    std::env::var_os(DIR).map(PathBuf::from)
}

/// Waits until `done` returns true, at most ten seconds.
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}: not within 10 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the counts of a session's triggers.
pub(crate) fn triggered(session: &Session) -> Triggered {
    let handle = lastwords_control::Handle::open(&folder(session)).expect("it opens");
    handle.triggered()
}

/// Waits until so many snapshots are saved.
pub(crate) fn wait_for_saved(session: &Session, count: u32) {
    wait_for("saved snapshots", || triggered(session).saved == count);
}

/// Returns the only session in a folder of sessions.
pub(crate) fn only_session(dir: &Path) -> PathBuf {
    let found = lastwords_control::list(Some(dir)).expect("the folder is listed");
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].folder.clone()
}

/// Waits until there is a session in a folder of sessions, and returns it.
pub(crate) fn wait_for_session(dir: &Path) -> PathBuf {
    wait_for("the session", || {
        lastwords_control::list(Some(dir)).is_ok_and(|found| !found.is_empty())
    });
    only_session(dir)
}

/// Returns what a session says of itself.
pub(crate) fn details(folder: &Path) -> lastwords_control::Details {
    let session = lastwords_control::Handle::open(folder).expect("it opens");
    session.summary().details.expect("details")
}

/// Returns whether this is root, who alone may mount and change limits.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid cannot fail.
    let is_root = unsafe { libc::geteuid() == 0 };
    if !is_root {
        eprintln!("only root can do this");
    }
    is_root
}

/// Sends SIGKILL to the calling process.
pub(crate) fn kill_self() -> ! {
    // SAFETY: the call involves no memory.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!("killed")
}

/// Stops threads at the end of a scope, also when a check in it failed.
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the events that a session's streams have counted as lost.
pub(crate) fn lost(folder: &Path) -> u64 {
    use lastwords_abi::stream::{LOST_FULL, LOST_LOCK};
    lost_by(folder, LOST_FULL..=LOST_LOCK)
}

/// Returns those that were lost by some causes, which are places of the streams' counters.
pub(crate) fn lost_by(folder: &Path, causes: std::ops::RangeInclusive<usize>) -> u64 {
    use lastwords_abi::stream::{CONTROL_OFF, StreamControl};
    let at = CONTROL_OFF + std::mem::offset_of!(StreamControl, lost);
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let streams =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("stream-"));
    let words = |bytes: Vec<u8>| -> u64 {
        let counters = bytes.get(at..).unwrap_or_default();
        let words = counters.as_chunks::<8>().0.get(causes.clone()).unwrap_or_default();
        words.iter().map(|word| u64::from_ne_bytes(*word)).sum()
    };
    streams.map(|entry| words(std::fs::read(entry.path()).unwrap_or_default())).sum()
}

/// Leaves this process `more` bytes of address space.
pub(crate) fn limit_address_space(more: u64) {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("sizes");
    let pages: u64 = statm.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    limit(libc::RLIMIT_AS, pages * 4096 + more, libc::RLIM_INFINITY);
}

/// Sets a limit of this process.
pub(crate) fn limit(which: libc::__rlimit_resource_t, soft: u64, hard: u64) {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the limit applies to this process only.
    check(unsafe { libc::setrlimit(which, &raw const limit) });
}

/// Forks. The child leaves by `_exit`, with what `child` returns, or 101 if it panics.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child may allocate and record: the C library's locks are consistent in it.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let child = std::panic::AssertUnwindSafe(child);
        let status = std::panic::catch_unwind(child).unwrap_or(101);
        // SAFETY: the call ends the child.
        unsafe { libc::_exit(status) };
    }
    pid
}

/// Runs `child` in a forked child. Returns its exit status, or minus the signal that ended it.
pub(crate) fn in_fork(child: impl FnOnce() -> i32) -> i32 {
    let status = wait(fork(child));
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

/// Waits for a child or a thread of this process that is traced. Returns its status.
pub(crate) fn wait(pid: libc::pid_t) -> libc::c_int {
    let mut status = 0;
    // SAFETY: the status is a local variable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// Offsets of the areas of a session region that change.
pub(crate) struct Areas {
    file: std::fs::File,
    pub(crate) control: u64,
    pub(crate) clock: u64,
}

/// Reads the areas of the session region in a folder.
pub(crate) fn areas(folder: &Path) -> Areas {
    use lastwords_abi::region::HEADER_SIZE;
    use lastwords_abi::session::SessionInfo;
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(folder.join("session"))
        .expect("it opens");
    let mut areas = Areas { file, control: 0, clock: 0 };
    let offset =
        |field: usize| u64::from(areas.get::<4>(u64::from(HEADER_SIZE) + field as u64) as u32);
    let control = offset(std::mem::offset_of!(SessionInfo, control_off));
    let clock = offset(std::mem::offset_of!(SessionInfo, clock_off));
    (areas.control, areas.clock) = (control, clock);
    areas
}

impl Areas {
    /// Returns the number of `N` bytes at an offset of the region.
    pub(crate) fn get<const N: usize>(&self, at: u64) -> u64 {
        use std::os::unix::fs::FileExt as _;
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes[..N], at).expect("readable");
        u64::from_le_bytes(bytes)
    }

    /// Writes a number of `N` bytes at an offset of the region, as another process of the session
    /// may.
    pub(crate) fn put<const N: usize>(&self, at: u64, number: u64) {
        use std::os::unix::fs::FileExt as _;
        self.file.write_all_at(&number.to_le_bytes()[..N], at).expect("writable");
    }
}

/// Ends the test if a call of the system has failed.
pub(crate) fn check(result: libc::c_int) {
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn c_string(text: &Path) -> std::ffi::CString {
    std::ffi::CString::new(text.as_os_str().as_encoded_bytes()).expect("no NUL")
}

/// Runs this thread on a CPU.
pub(crate) fn stay_on(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).expect("a CPU of this process");
}

/// Runs this thread on one CPU.
pub(crate) fn stay_on_one_cpu() {
    stay_on(sched_getcpu());
}

/// Returns the number of mappings of this process.
pub(crate) fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("mappings").lines().count()
}

/// Returns the command that runs a test of the calling module in a pid namespace of its own, where
/// it records in `dir`.
pub(crate) fn in_namespace(name: &str, dir: &Path) -> Command {
    let run = test_of_this_module(name);
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--mount", "--fork", "--mount-proc", "--kill-child"]);
    unshare.arg(run.get_program()).args(run.get_args()).env(DIR, dir).stdout(Stdio::null());
    unshare
}

/// Mounts a tmpfs at `path` with these options.
pub(crate) fn mount(path: &Path, flags: libc::c_ulong, options: &str) {
    let (path, options) = (c_string(path), c_string(Path::new(options)));
    let tmpfs = c"tmpfs".as_ptr();
    // SAFETY: the arguments are C strings.
    check(unsafe { libc::mount(tmpfs, path.as_ptr(), tmpfs, flags, options.as_ptr().cast()) });
}

/// Removes the mount at `path`, if there is one.
pub(crate) fn unmount(path: &Path) {
    // SAFETY: the argument is a C string.
    unsafe { libc::umount2(c_string(path).as_ptr(), libc::MNT_DETACH) };
}

/// Returns a statement of a filter of system calls.
fn statement(code: u32, k: u32, jump: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: jump, jf: 0, k }
}

/// Installs a filter for all threads. Calls in `listed` get `then`, all others `other`.
pub(crate) fn filter(listed: &[libc::c_long], then: u32, other: u32) {
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (at, call) in listed.iter().enumerate() {
        let to_the_end = (listed.len() - at) as u8;
        program.push(statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            *call as u32,
            to_the_end,
        ));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, other, 0));
    program.push(statement(libc::BPF_RET | libc::BPF_K, then, 0));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program and its statements live until the calls return.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        check(libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) as libc::c_int);
    }
}

/// Installs a filter for all threads under which each of these system calls kills the process.
pub(crate) fn kill_at_each(calls: &[libc::c_long]) {
    filter(calls, libc::SECCOMP_RET_KILL_PROCESS, libc::SECCOMP_RET_ALLOW);
}
