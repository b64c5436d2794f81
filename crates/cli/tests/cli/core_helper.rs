//! `lastwords core-helper`: what is saved of a process that a signal kills, and whether the core
//! goes where it went before.

use crate::child::{EVENTS, Running, THREADS, start, start_in};
use crate::dying::{CorePattern, Dying, help, help_by, install_program};
use crate::recovery::assert_whole;
use crate::support::{NOBODY, Place, Ran, entries, folders, ran, stored, tool, wait_for_some};
use lastwords_testkit::text::Text as _;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Saves the sessions of a process as the helper does when the process dies of a signal. Returns
/// what there is to say.
fn save(place: &Place, dying: &Dying<'_>, signal: u8) -> String {
    let ran = help(
        place,
        &["pipe", &dying.pid().to_string(), &signal.to_string(), "1", "/bin/true"],
        &[],
    );
    ran.has_status(0);
    ran.err
}

/// The copies of sessions of a process in a folder of sessions.
fn copies(sessions: &Path, pid: u32) -> Vec<PathBuf> {
    let all = if sessions.exists() { entries(sessions) } else { Vec::new() };
    let mark = format!("app.dead-{pid}-");
    all.into_iter()
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&mark))
        .collect()
}

/// Runs the program as a user. It is opened as root, because it may lie where others may not look.
fn run_as(uid: u32, args: &[&str]) -> String {
    let script = "exec 9<\"$1\"; uid=$2; shift 2; exec setpriv --reuid=$uid --regid=$uid --clear-groups /proc/self/fd/9 \"$@\"";
    let uid = uid.to_string();
    tool("sh", &[&["-c", script, "sh", env!("CARGO_BIN_EXE_lastwords"), &uid], args].concat()).out
}

/// The one copy is whole, says the signal, and belongs to the user alone.
fn assert_copy(place: &Place, sessions: &Path, pid: u32, signal: &str, uid: u32) {
    let copies = copies(sessions, pid);
    let [copy] = &copies[..] else { panic!("{copies:?} in {}", sessions.display()) };
    let path = copy.to_str().unwrap();
    assert_whole(&place.ok(&["report", path, "--strict"]));
    run_as(uid, &["list", path]).has(&format!("by process {pid}: {signal}"));
    let inspected: serde_json::Value =
        serde_json::from_str(&run_as(uid, &["inspect", path, "--json"])).unwrap();
    let ended = &inspected["sessions"][0]["ended"];
    assert!(ended["how"] == "signal" && ended["pid"] == pid, "{ended}");
    assert_eq!(fs::metadata(copy).unwrap().mode() & 0o7777, 0o700);
    for file in entries(copy) {
        let meta = file.symlink_metadata().unwrap();
        assert!(meta.is_file() && meta.mode() & 0o7777 == 0o600 && meta.uid() == uid, "{meta:?}");
    }
}

#[test]
fn a_session_that_would_go_with_its_process_is_copied() {
    for memory in ["heap", "memfd"] {
        let place = Place::new();
        let mut child = Dying::hold(&place, || start(&place, memory, "abort"));
        let pid = child.pid();
        let told = save(&place, &child, 11);
        child.kill();
        told.has("copied at SIGSEGV to ").lacks("cannot be read");
        assert_copy(&place, &place.sessions(), pid, "SIGSEGV", 0);
        // The copy becomes what any session becomes.
        let copy = copies(&place.sessions(), pid).remove(0);
        place.ok(&["recover", copy.to_str().unwrap(), "--to", "ctf", "-o", "trace"]);
        let events =
            tool("babeltrace2", &[place.at("trace").to_str().unwrap()]).out.lines().count() as u64;
        assert_eq!(events, THREADS * EVENTS);
        // Only the regions are in it, and not the rest of the process.
        let bytes = stored(&copy);
        assert!(bytes < 4 << 20, "{bytes} bytes");
    }
}

#[test]
fn a_session_that_outlives_its_process_is_marked() {
    let place = Place::new();
    let mut child = Dying::hold(&place, || start(&place, "shm", "abort"));
    let pid = child.pid();
    save(&place, &child, 6).has("marked with SIGABRT in ");
    // The process lives still, and its session with it.
    place.ok(&["list"]).has("live");
    child.kill();
    place.ok(&["list", "app"]).has(&format!("by process {pid}: SIGABRT"));
    assert_whole(&place.ok(&["report", "app", "--strict"]));
    assert_eq!(folders(&place.sessions()).len(), 1);
}

#[test]
fn a_session_in_files_of_another_mount_namespace_is_copied() {
    let place = Place::new();
    // The folder of sessions is a file system that only the process sees.
    let script = "exec unshare -m sh -c 'mount -t tmpfs -o mode=700 none \"$LASTWORDS_DIR\" && exec \"$@\"' sh \"$@\"";
    let mut child = Dying::hold(&place, || start_in(&place, script, "shm", "abort"));
    let pid = child.pid();
    let told = save(&place, &child, 4);
    child.kill();
    told.has("copied at SIGILL to ");
    assert_copy(&place, &place.sessions(), pid, "SIGILL", 0);
}

/// Starts a child as the user `nobody`, which may enter the place and has a folder of sessions in
/// it.
pub(crate) fn start_as_nobody(place: &Place, memory: &str, end: &str) -> Running {
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::chown(place.sessions(), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(place.sessions(), fs::Permissions::from_mode(0o700)).unwrap();
    // The program is opened as root: it may lie in a folder that nobody may enter.
    let script = "ulimit -c unlimited; exec 9<\"$1\"; shift; exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/9 \"$@\"";
    start_in(place, script, memory, end)
}

#[test]
fn a_copy_belongs_to_the_user_of_the_process() {
    let place = Place::new();
    let child = Dying::hold(&place, || start_as_nobody(&place, "heap", "abort"));
    save(&place, &child, 7);
    let copy = copies(&place.sessions(), child.pid()).remove(0);
    for path in entries(&copy).into_iter().chain([copy.clone()]) {
        let meta = fs::symlink_metadata(&path).unwrap();
        assert_eq!(
            (meta.uid(), meta.gid(), meta.mode() & 0o077),
            (65534, 65534, 0),
            "{}",
            path.display()
        );
    }
    assert_whole(&place.ok(&["report", copy.to_str().unwrap(), "--strict"]));
}

#[test]
fn nothing_is_written_where_the_user_may_not_write() {
    let place = Place::new();
    let child = Dying::hold(&place, || start_as_nobody(&place, "heap", "abort"));
    // What the user of the process could have prepared: a link, in place of the folder, to a folder
    // of root.
    let roots = place.at("roots");
    fs::create_dir(&roots).unwrap();
    let link = place.at("link");
    std::os::unix::fs::symlink(&roots, &link).unwrap();
    for sessions in [&roots, &link] {
        let mut command = place.command();
        command.args(["core-helper", "pipe", &child.pid().to_string(), "11", "1", "/bin/true"]);
        help_by(command.env("LASTWORDS_DIR", sessions)).has_status(0).says("session app: ");
    }
    assert!(entries(&roots).is_empty());
}

/// Runs the helper with a core on stdin, as the kernel does where cores go to the file `path`.
fn write_core(
    place: &Place,
    pid: u32,
    dumpable: &str,
    limit: &str,
    path: &str,
    core: &[u8],
) -> i32 {
    help(place, &["file", &pid.to_string(), "11", dumpable, limit, "-", path], core).status
}

#[test]
fn a_core_file_is_made_by_the_rules_of_the_kernel() {
    let place = Place::new();
    let child = Dying::hold(&place, || start_as_nobody(&place, "heap", "abort"));
    let pid = child.pid();
    // Blocks of zeroes and others, and an end within a block.
    let seed = std::process::id() as usize;
    let byte = |at: usize| {
        if (at / 4096 * 31 + seed).is_multiple_of(3) { 0 } else { (at * 7 + seed) as u8 | 1 }
    };
    let core: Vec<u8> = (0..200_000 + seed % 9000).map(byte).collect();
    let file = place.at("core");
    let meta = || fs::symlink_metadata(&file).unwrap();

    // In the process's folder, as its user; a link in the file's place is replaced and not
    // followed.
    let victim = place.at("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, &file).unwrap();
    assert_eq!(write_core(&place, pid, "1", "18446744073709551615", "core", &core), 0);
    assert!(
        meta().is_file()
            && (meta().uid(), meta().gid(), meta().mode() & 0o7777) == (65534, 65534, 0o600)
    );
    assert_eq!(fs::read(&file).unwrap(), core, "seed {seed}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(meta().blocks() * 512 < core.len() as u64, "blocks of zeroes are holes");

    // Up to the process's limit; below a page there is no core.
    assert_eq!(write_core(&place, pid, "1", "50001", "core", &core), 0);
    assert_eq!(fs::read(&file).unwrap(), core[..50_001]);
    fs::remove_file(&file).unwrap();
    assert_eq!(write_core(&place, pid, "1", "0", "core", &core), 0);
    assert!(!file.exists());

    // Of a process with more rights than its user: root's, by an absolute path, and never in place
    // of another file.
    assert_eq!(write_core(&place, pid, "2", "1000000", "core", &core), 1);
    assert!(!file.exists());
    assert_eq!(write_core(&place, pid, "2", "1000000", file.to_str().unwrap(), &core), 0);
    assert_eq!((meta().uid(), meta().mode() & 0o7777), (0, 0o600));
    assert_eq!(write_core(&place, pid, "2", "1000000", victim.to_str().unwrap(), &core), 1);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    // The user of the process cannot replace root's file, so that there is no core.
    fs::create_dir(place.at("roots")).unwrap();
    assert_eq!(write_core(&place, pid, "1", "1000000", "roots/core", &core), 1);
    assert!(entries(&place.at("roots")).is_empty());
}

/// A handler that writes its arguments and the core into the folder in which the process is. Cores
/// of other tests, which run beside this one, are where these look for them.
const HANDLER: &str = "#!/bin/sh\n{ for word; do printf '%s\\n' \"$word\"; done; sed -n '/^Pid:/p' /proc/self/fdinfo/3 2>&1; } > \"/proc/$1/cwd/words\"\n\
    exec cat > \"/proc/$1/cwd/core\"\n";

/// Runs a child that aborts, in a place of its own.
fn aborted(memory: &str) -> (Place, u32) {
    let place = Place::new();
    let child = start(&place, memory, "abort");
    let pid = child.pid();
    child.ended();
    (place, pid)
}

/// Waits for the core, which the handler writes on after the process has ended. Its text is that of
/// the session's events.
fn assert_core(place: &Place) {
    let report = || Some(place.run(&["report", "core", "--strict"])).filter(|ran| ran.status == 0);
    assert_whole(&wait_for_some("the core is whole", report).out);
}

/// While the helper is installed before a file: a process of another user, and one whose limit
/// allows no core.
fn of_another_user_and_without_core() {
    let place = Place::new();
    let child = start_as_nobody(&place, "heap", "abort");
    let (pid, sessions) = (child.pid(), Path::new("/dev/shm/lastwords-65534"));
    child.ended();
    assert_core(&place);
    assert_eq!(fs::metadata(place.at("core")).unwrap().uid(), 65534);
    assert_copy(&place, sessions, pid, "SIGABRT", 65534);
    fs::remove_dir_all(&copies(sessions, pid)[0]).unwrap();

    let place = Place::new();
    let child = start_in(&place, "ulimit -c 0; exec \"$@\"", "heap", "abort");
    let pid = child.pid();
    child.ended();
    let sessions = Path::new("/dev/shm/lastwords-0");
    assert_copy(&place, sessions, pid, "SIGABRT", 0);
    fs::remove_dir_all(&copies(sessions, pid)[0]).unwrap();
    assert!(!place.at("core").exists());
}

/// While the helper is installed: a process in namespaces of its own, whose sessions are in a file
/// system that goes with it.
fn in_a_container(memory: &str) {
    let place = Place::new();
    let sessions = Path::new("/dev/shm/lastwords-0");
    let before = copies(sessions, 1);
    let script = "ulimit -c unlimited; exec unshare -Urmpf --mount-proc sh -c \
                  'mount -t tmpfs -o mode=700 none \"$LASTWORDS_DIR\" && exec \"$@\"' sh \"$@\"";
    start_in(&place, script, memory, "abort").ended();
    let made: Vec<PathBuf> =
        copies(sessions, 1).into_iter().filter(|copy| !before.contains(copy)).collect();
    let [copy] = &made[..] else { panic!("{made:?}") };
    assert_whole(&place.ok(&["report", copy.to_str().unwrap(), "--strict"]));
    // To the first process of a pid namespace, abort(3) cannot deliver SIGABRT, and executes an
    // instruction that faults.
    place.ok(&["list", copy.to_str().unwrap()]).has("by process 1: SIGSEGV");
    // `unshare` ends itself by the same signal, so that the last core in the folder is its own.
    assert!(place.at("core").exists());
    fs::remove_dir_all(copy).unwrap();
}

/// While the helper is installed: cores that fit into a pipe arrive, although nobody has to wait
/// for them to be read.
fn small_cores() {
    for _ in 0..5 {
        let place = Place::new();
        let script = "ulimit -c unlimited; echo 0 > /proc/self/coredump_filter; kill -SEGV $$";
        let mut shell = std::process::Command::new("/bin/sh");
        let status =
            shell.args(["-c", script]).current_dir(place.path()).status().expect("a shell");
        assert!(!status.success());
        let core = fs::read(place.at("core")).expect("the core of a small process");
        assert!(core.starts_with(b"\x7fELF") && core.len() < 64 << 10, "{} bytes", core.len());
    }
}

/// While the helper is installed: many processes crash at the same time, and each core arrives.
fn storm() {
    const PROCESSES: usize = 60;
    let place = Place::new();
    let script = "ulimit -c unlimited; i=0; while [ $i -lt $0 ]; do mkdir $i; \
        (cd $i && exec sh -c 'kill -SEGV $$') & i=$((i + 1)); done; wait";
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", script, &PROCESSES.to_string()]);
    shell.current_dir(place.path()).stderr(std::process::Stdio::null());
    assert!(shell.status().expect("a shell").success());
    let core = |number: usize| fs::read(place.at(&format!("{number}/core"))).unwrap_or_default();
    let without: Vec<usize> =
        (0..PROCESSES).filter(|number| !core(*number).starts_with(b"\x7fELF")).collect();
    assert!(without.is_empty(), "no core of {without:?}");
}

/// The words that the handler got, with one in the place of the process's number.
fn words_of(place: &Place, pid: u32) -> String {
    let words = fs::read_to_string(place.at("words")).unwrap();
    // Only whole words: a number may also be a part of a limit or of this program's name.
    let pid = pid.to_string();
    let named: Vec<&str> =
        words.split_whitespace().map(|word| if word == pid { "PID" } else { word }).collect();
    assert!(named.contains(&"PID"), "{pid} in {words}");
    named.join(" ")
}

/// The sessions of root. Kernels run a helper without environment, so that it uses the places in
/// /dev/shm.
const SESSIONS: &str = "/dev/shm/lastwords-0";

/// The helper and its state, as this machine gets it.
struct Helper {
    program: PathBuf,
    state: PathBuf,
}

impl Helper {
    fn run(&self, verb: &str) -> Ran {
        let mut command = std::process::Command::new(&self.program);
        command.args(["core-helper", verb]);
        if verb != "status" {
            command.arg("--state").arg(&self.state);
        }
        ran(command.output().expect("the program starts"))
    }

    fn succeed(&self, verb: &str) {
        self.run(verb).has_status(0);
    }
}

/// The words of a program, and the kernel's handle of the process if it asks for it, are the same
/// with and without the helper before it.
fn a_program_gets_the_same_words(helper: &Helper, tools: &Place, kept: &CorePattern) {
    let handler = tools.at("handler");
    fs::write(tools.at("handler.text"), HANDLER).unwrap();
    install_program(tools.at("handler.text").to_str().unwrap(), &handler);
    for arguments in ["%P  %s%u %g %d %e-%f %E  %c %% x%", "%P %F"] {
        let pattern = format!("|{} {arguments}", handler.display());
        kept.set(&pattern);
        let words = || {
            let (place, pid) = aborted("memfd");
            assert_core(&place);
            copies(Path::new(SESSIONS), pid)
                .iter()
                .for_each(|copy| fs::remove_dir_all(copy).unwrap());
            words_of(&place, pid)
        };
        let direct = words();
        helper.succeed("install");
        // The state is not needed: the pattern has the old one in it.
        fs::remove_file(helper.state.join("core-helper.json")).unwrap();
        assert_eq!(words(), direct, "the words of `{arguments}`");
        helper.succeed("remove");
        assert_eq!(CorePattern::now().trim_end(), pattern);
    }
}

/// Installs the helper on this machine, for as long as it takes. One test, because there is one
/// core_pattern.
#[test]
fn cores_go_where_they_went_before() {
    let tools = Place::new();
    let helper = Helper { program: tools.at("lastwords"), state: tools.at("state") };
    install_program(env!("CARGO_BIN_EXE_lastwords"), &helper.program);
    let sessions = Path::new(SESSIONS);
    let kept = CorePattern::keep();
    fs::write("/proc/sys/kernel/core_pipe_limit", "0").unwrap();

    // A file.
    assert_eq!(helper.run("status").status, 1);
    helper.succeed("install");
    helper.succeed("status");
    helper.succeed("install");
    CorePattern::now()
        .starts(&format!("|{} core-helper file %P %s %d,%F %c ", helper.program.display()));
    assert_eq!(CorePattern::pipe_limit().trim(), "1024", "the kernel waits for the helper");
    small_cores();
    storm();
    let (heap, pid) = aborted("heap");
    assert_core(&heap);
    assert_copy(&heap, sessions, pid, "SIGABRT", 0);
    copies(sessions, pid).iter().for_each(|copy| fs::remove_dir_all(copy).unwrap());
    let (shm, pid) = aborted("shm");
    shm.ok(&["list", "app"]).has(&format!("by process {pid}: SIGABRT"));
    assert_whole(&shm.ok(&["report", "app", "--strict"]));
    of_another_user_and_without_core();
    in_a_container("heap");
    in_a_container("shm");
    fs::write("/proc/sys/kernel/core_pipe_limit", "0").unwrap();
    helper.run("status").err.has("small cores are lost");
    fs::write("/proc/sys/kernel/core_pipe_limit", "1024").unwrap();
    helper.succeed("uninstall");
    assert_eq!(CorePattern::now(), kept.before, "exactly the pattern of before");
    assert_eq!(CorePattern::pipe_limit().trim(), "0", "and the limit");
    helper.succeed("remove");

    a_program_gets_the_same_words(&helper, &tools, &kept);

    // What cannot be chained is refused, and stays.
    kept.set("|/no/such/handler %p");
    let refused = helper.run("install");
    let pattern = CorePattern::now();
    drop(kept);
    refused.has_status(1).says("no program `/no/such/handler`");
    assert_eq!(pattern.trim_end(), "|/no/such/handler %p");
}
