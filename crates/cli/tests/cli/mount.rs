//! `mount`: a session used by `sh` as the kernel's tracefs is.

use crate::child::{EVENTS, Running, THREADS, start};
use crate::support::{Place, Ran, entries, ran, wait_until};
use lastwords_testkit::text::Text as _;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A mount; unmounted when dropped.
pub(crate) struct Mount<'p> {
    place: &'p Place,
    server: Running,
}

impl<'p> Mount<'p> {
    /// Mounts the place's sessions on its folder `m`.
    pub(crate) fn start(place: &'p Place) -> Self {
        let folder = place.at("m");
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = place.command();
        command.arg("mount").arg(&folder).arg("--foreground").stdout(Stdio::piped());
        let mut server = Running::start(&mut command);
        let mut line = String::new();
        BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(
            line.contains("sessions/"),
            "the mount failed; it needs /dev/fuse, and fusermount3 unless root runs it"
        );
        Self { place, server }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.place.at("m").join(name)
    }

    /// Runs a script in the mount.
    pub(crate) fn sh(&self, script: &str) -> Ran {
        ran(Command::new("sh").args(["-c", script]).current_dir(self.at("")).output().expect("sh"))
    }

    /// Runs a script that must end with 0; its stdout.
    pub(crate) fn ok(&self, script: &str) -> String {
        let ran = self.sh(script);
        assert_eq!(ran.status, 0, "{script}\n{}\n{}", ran.out, ran.err);
        ran.out
    }

    /// Runs a script that must fail; what `error_log` has then.
    pub(crate) fn refused(&self, script: &str) -> String {
        let ran = self.sh(&format!("echo > error_log; {script}"));
        assert_ne!(ran.status, 0, "{script}\n{}", ran.out);
        self.ok("cat error_log")
    }

    fn is_there(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        mounts.contains(&format!(
            "lastwords {} fuse",
            self.place.at("m").canonicalize().unwrap().display()
        ))
    }

    fn wait_until_gone(&mut self) {
        let is_gone = |server: &mut Running| server.child.try_wait().unwrap().is_some();
        wait_until("it is unmounted", || is_gone(&mut self.server) && !self.is_there());
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ =
            Command::new("kill").arg(self.server.pid().to_string()).stderr(Stdio::null()).status();
        let _ = self.server.wait();
    }
}

/// The lines of events.
pub(crate) fn events(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

fn number(line: &str, name: &str) -> Option<u64> {
    let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
    value.parse().ok()
}

/// The numbers of the events of a kind, in the order of the text.
pub(super) fn sequences(text: &str, kind: &str) -> Vec<u64> {
    let of_kind = events(text).into_iter().filter(|line| line.contains(kind));
    of_kind.map(|line| number(line, "sequence").unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn trace_has_what_was_recorded_and_is_not_consumed() {
    let place = Place::new();
    let _app = start(&place, "shm", "wait");
    let mount = Mount::start(&place);
    let text = mount.ok("cat trace");
    let mut found: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for line in events(&text) {
        let is_marker = line.contains(": marker: thread ");
        let words: Vec<&str> = line.split_whitespace().collect();
        let after =
            |word: &str| words[words.iter().position(|w| *w == word).unwrap() + 1].parse().unwrap();
        let (thread, sequence) = match is_marker {
            true => (number(line, "thread").unwrap_or_else(|| after("thread")), after("step")),
            false => (number(line, "thread").unwrap(), number(line, "sequence").unwrap()),
        };
        let name = ["marker:", "test:tick:", "test:text:"][(sequence % 3) as usize];
        assert_eq!(words[4], name, "{line}");
        assert_eq!(line.contains("share=0.5"), sequence % 3 == 2, "{line}");
        assert!(found.entry(thread).or_default().insert(sequence), "twice: {line}");
    }
    let all: BTreeSet<u64> = (0..EVENTS).collect();
    assert_eq!(found, (0..THREADS).map(|thread| (thread, all.clone())).collect());
    let count = THREADS * EVENTS;
    text.starts(&format!(
        "# tracer: nop\n#\n# entries-in-buffer/entries-written: {count}/{count} "
    ));
    // The lines are those of `report`, and reading has consumed nothing.
    let report = place.ok(&["report", "app", "--style", "ftrace", "--no-pager"]);
    assert_eq!(events(&text), events(&report));
    assert_eq!(mount.ok("cat trace"), text);
    let cpus = mount.ok("for cpu in per_cpu/*; do cat $cpu/trace; done");
    let (mut one, mut other) = (events(&text), events(&cpus));
    one.sort_unstable();
    other.sort_unstable();
    assert_eq!(one, other, "the CPUs together have what all have");
    assert_eq!(mount.ok("head -c 1000 trace | wc -c").trim(), "1000");
    assert_eq!(mount.ok("dd if=trace bs=1 skip=500 count=100 status=none"), text[500..600]);
}

#[test]
fn trace_pipe_gives_each_event_once_to_one_reader_after_the_other() {
    let place = Place::new();
    let _app = start(&place, "shm", "tick");
    let mount = Mount::start(&place);
    // `dd` writes all that it reads, and ends by itself; `cat` ends because recording is off.
    let first = mount.ok("dd if=trace_pipe bs=64k count=4 status=none");
    let second = mount.ok("dd if=trace_pipe bs=1k count=7 status=none");
    let third = mount.ok("sleep 0.3; echo 0 > tracing_on; cat trace_pipe");
    let all = [first, second, third].concat();
    for kind in ["test:tick:", "test:tock:"] {
        let found = sequences(&all, kind);
        assert_eq!(found, (0..).take(found.len()).collect::<Vec<u64>>(), "each once, in order");
        assert!(found.len() > 20, "{all}");
    }
    all.lacks("LOST").lacks("#");
    assert_eq!(events(&mount.ok("cat trace")), [] as [&str; 0], "all is consumed");
    // Nothing is recorded, so that this reader would wait for ever.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(0o4000)
        .open(mount.at("trace_pipe"))
        .unwrap();
    let error = std::io::Read::read(&mut &file, &mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    let began = Instant::now();
    mount.sh("timeout 0.5 cat trace_pipe").has_status(124);
    assert!(began.elapsed() < Duration::from_secs(5), "a reader that waits can be ended");
}

#[test]
fn a_snapshot_has_what_was_recorded_before_the_swap() {
    let place = Place::new();
    let _app = start(&place, "shm", "tick");
    let mount = Mount::start(&place);
    mount.ok("cat snapshot").has("# * Snapshot is freed *\n");
    let before = sequences(&mount.ok("cat trace"), "test:tick:");
    let snapshot = mount.ok("echo 1 > snapshot; cat snapshot");
    let taken = sequences(&snapshot, "test:tick:");
    let live = sequences(&mount.ok("sleep 0.1; cat trace"), "test:tick:");
    let all = [taken.clone(), live.clone()].concat();
    assert_eq!(all, (0..).take(all.len()).collect::<Vec<u64>>(), "nothing is in both, or in none");
    assert!(
        taken.len() >= before.len() && live.len() > 10,
        "{} {} {}",
        before.len(),
        taken.len(),
        live.len()
    );
    let report = place.ok(&["report", "app", "--snapshot", "--style", "ftrace", "--no-pager"]);
    // The report of a snapshot does not name threads by what lives.
    let unnamed = |text| -> Vec<&str> {
        events(text).into_iter().filter_map(|line| Some(line.split_once('-')?.1)).collect()
    };
    assert_eq!(unnamed(&snapshot), unnamed(&report));
    mount.ok("echo 2 > snapshot; cat snapshot").has("# * Snapshot is allocated *\n");
    mount.ok("echo 0 > snapshot; cat snapshot").has("# * Snapshot is freed *\n");
    let text = mount.refused("echo 0 > per_cpu/cpu0/snapshot");
    text.has("snapshot: error: only the main snapshot file frees and clears");
}

#[test]
fn events_are_enabled_and_disabled() {
    let place = Place::new();
    let _app = start(&place, "shm", "tick");
    let mount = Mount::start(&place);
    assert_eq!(mount.ok("cat available_events"), "test:tick\ntest:tock\n");
    assert_eq!(
        mount.ok("cat events/enable events/test/enable events/test/tick/enable"),
        "1\n1\n1\n"
    );
    assert_eq!(
        mount.ok("echo 0 > events/test/tick/enable; cat events/test/tick/enable events/enable"),
        "0\nX\n"
    );
    let text = mount.ok("sleep 0.1; echo > trace; sleep 0.2; cat trace");
    assert!(!text.contains("test:tick:") && sequences(&text, "test:tock:").len() > 10, "{text}");
    assert_eq!(
        mount.ok("cat set_event; echo > set_event; cat set_event events/enable"),
        "test:tock\n0\n"
    );
    assert_eq!(
        mount.ok("echo test: >> set_event; echo '!*:tock' >> set_event; cat set_event"),
        "test:tick\n"
    );
    assert_eq!(mount.ok("echo 1 > events/enable; cat events/enable"), "1\n");
    assert!(mount.refused("echo 2 > events/enable").is_empty());
    let text = mount.refused("echo nobody:knows >> set_event");
    text.has("set_event: error: nobody:knows: the session has no such event yet");
    let why = mount.refused("echo 'sequence >' > events/test/tick/filter");
    why.has("] event filter parse error: error: found the end;");
    why.ends("  Command: sequence >\n                     ^\n");
    mount.refused("echo 'bytes > 1' > events/test/tick/filter").has("a field of the event");
    assert_eq!(mount.ok("cat events/test/tick/filter; echo 0 > events/test/tick/filter"), "none\n");
    for (file, value) in
        [("buffer_size_kb", "1"), ("trace_clock", "mono_raw"), ("current_tracer", "function")]
    {
        mount.refused(&format!("echo {value} > {file}")).has(&format!("  Command: {value}\n"));
        mount.ok(&format!("value=$(cat {file} | tr -d '[]') && echo $value > {file}"));
    }
    let text = mount.ok("cat events/test/tick/format");
    text.has("\tfield:u64 sequence;\toffset:16;\tsize:8;\tsigned:0;\n");
    mount.sh("echo x > nothing").has_status(2);
    assert_eq!(mount.ok("cat tracing_on; echo 0 > tracing_on; cat tracing_on"), "1\n0\n");
    place.ok(&["list"]).has("stopped");
}

#[test]
fn lines_have_the_names_that_saved_cmdlines_has() {
    let place = Place::new();
    let _app = start(&place, "shm", "tick");
    let mount = Mount::start(&place);
    let names = mount.ok("cat saved_cmdlines");
    let names: BTreeMap<&str, &str> =
        names.lines().map(|line| line.split_once(' ').expect(line)).collect();
    assert!(names.len() > 1, "the process and its thread: {names:?}");
    for read in ["cat trace", "timeout 1 cat trace_pipe || true"] {
        let text = mount.ok(read);
        let lines = events(&text);
        assert!(lines.len() > 10, "{text}");
        for line in lines {
            let (name, rest) = line.trim_start().split_once('-').expect(line);
            assert_eq!(names.get(rest.split(' ').next().unwrap()), Some(&name), "{names:?} {line}");
        }
    }
}

/// In the session of an application, `mkdir` makes a buffer for some of its events.
#[test]
fn mkdir_makes_a_second_buffer_of_an_application() {
    let place = Place::new();
    let _app = start(&place, "shm", "tick");
    let mount = Mount::start(&place);
    let text = mount.refused("echo hello > trace_marker");
    text.has("trace_marker: error: only the session's own process records in it");
    let text = mount
        .ok("mkdir instances/tocks && cd instances/tocks && echo 1 > events/test/tock/enable && sleep 0.5; cat trace");
    let lines = events(&text);
    assert!(lines.len() > 10 && lines.iter().all(|line| line.contains(" test:tock: ")), "{text}");
    assert_eq!(mount.ok("ls instances; cat instances/tocks/set_event"), "tocks\ntest:tock\n");
    assert!(place.ok(&["list", "app"]).contains("tocks"), "it is a channel of the session");
    let text =
        mount.ok("echo 0 > events/test/tock/enable; sleep 0.3; echo > trace; sleep 0.3; cat trace");
    text.has(" test:tick: ").lacks(" test:tock: ");
    let text = mount.ok("timeout 1 cat instances/tocks/trace_pipe || true");
    assert!(events(&text).len() > 10 && !text.contains(" test:tick: "), "{text}");
    mount.sh("mkdir instances/tocks").says("File exists");
    mount.refused("mkdir 'instances/a b'").has("mkdir: error: ");
    assert_eq!(mount.ok("rmdir instances/tocks; ls instances"), "");
}

#[test]
fn mkdir_makes_a_session_of_the_user_and_rmdir_ends_it() {
    let place = Place::new();
    let _app = start(&place, "user", "wait");
    let mount = Mount::start(&place);
    let text = mount
        .ok("mkdir instances/one && echo 'hello \"world\"' > instances/one/trace_marker && cat instances/one/trace");
    // The writer is the shell, whose command that is.
    let mark = text
        .lines()
        .find(|line| line.ends_with(": tracing_mark_write: hello \"world\""))
        .expect(&text);
    assert!(
        mark.trim_start().starts_with("sh-") || mark.trim_start().starts_with("bash-"),
        "{text}"
    );
    mount.ok("cat trace").lacks("hello");
    assert_eq!(mount.ok("echo 0 > instances/one/events/enable; echo again > instances/one/trace_marker; cat instances/one/trace | grep -c tracing_mark_write:"), "2\n");
    mount.sh("mkdir instances/one").says("File exists");
    mount.sh("mkdir instances/app").says("File exists");
    mount.sh("mkdir other").says("not permitted");
    mount.sh("exec 3< instances/one/trace; rmdir instances/one").says("busy");
    place.ok(&["list"]).has("one-");
    assert_eq!(mount.ok("rmdir instances/one; ls instances"), "");
    place.ok(&["list"]).lacks("one-");
}

/// The session of another application is an instance, and nobody but the application ends it.
#[test]
fn other_sessions_are_instances() {
    let place = Place::new();
    let _first = start(&place, "shm", "wait");
    std::fs::remove_file(place.at("ready")).unwrap();
    let _second: Running = start(&place, "shm", "wait");
    let mount = Mount::start(&place);
    // Both are called `app`: the one that began first is the instance, under that name.
    assert_eq!(mount.ok("ls instances"), "app\n");
    assert_eq!(events(&mount.ok("cat instances/app/trace")).len() as u64, THREADS * EVENTS);
    mount.sh("rmdir instances/app").says("busy");
    let _ = mount.ok("echo 0 > instances/app/tracing_on; test $(cat tracing_on) = 1");
}

#[test]
fn a_mount_ends_with_its_process_however_that_ends() {
    let place = Place::new();
    let _app = start(&place, "shm", "wait");
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let mut mount = Mount::start(&place);
        assert!(mount.is_there());
        // An open file does not keep it.
        let _file = std::fs::File::open(mount.at("trace")).unwrap();
        mount.server.signal(signal);
        mount.wait_until_gone();
    }
    let mut mount = Mount::start(&place);
    let file = std::fs::File::open(mount.at("trace")).unwrap();
    place.run(&["umount", "m"]).has_status(1).says("busy");
    drop(file);
    umount(&place);
    mount.wait_until_gone();
    place.run(&["umount", "m"]).has_status(1).says("no mount of lastwords is here");
    // In the background, the command returns when the folder is mounted.
    place.ok(&["mount", "m"]).starts("m: ");
    std::fs::read_to_string(place.at("m/trace")).unwrap().has("test:tick");
    umount(&place);
}

/// Unmounts by a command. A child that another test is starting may have the folder's files open
/// until it executes its program, so that the folder is busy.
fn unmounted(command: impl FnMut() -> Ran) -> Ran {
    let mut tries =
        std::iter::repeat_with(command).take(2000).inspect(|_| sleep(Duration::from_millis(5)));
    tries
        .find(|ran| ran.status == 0 || !ran.err.contains("busy"))
        .expect("nobody has its files open for 10 s")
}

/// Unmounts `m` by the program.
fn umount(place: &Place) {
    unmounted(|| place.run(&["umount", "m"])).has_status(0);
}

/// The guard of a mount that has ended must not unmount the next one, which may have the same
/// device.
#[test]
fn a_folder_is_mounted_again_at_once() {
    let place = Place::new();
    let _app = start(&place, "shm", "wait");
    std::fs::create_dir(place.at("m")).unwrap();
    let me = std::fs::metadata("/proc/self").unwrap().uid();
    for round in 0..6 {
        place.ok(&["mount", "m"]);
        let told = std::fs::read_to_string(place.at("m/.unread")).unwrap();
        let server = told.trim().strip_prefix("0 ").expect("the process that serves").to_owned();
        // Only root may use the system's own command for a mount that root has made.
        if round % 2 == 0 || me != 0 {
            umount(&place);
            let stat = std::fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
            assert!(
                stat.is_empty() || stat.contains(") Z "),
                "the process has ended when umount returns: {stat}"
            );
        } else {
            assert_eq!(
                unmounted(|| ran(Command::new("umount").arg(place.at("m")).output().unwrap()))
                    .status,
                0
            );
        }
    }
    place.ok(&["mount", "m"]);
    sleep(Duration::from_millis(500));
    assert!(
        std::fs::read_to_string(place.at("m/trace")).unwrap().contains("test:tick"),
        "it is still mounted"
    );
    umount(&place);
}

#[test]
fn a_mount_with_an_open_file_ends_lazily() {
    let place = Place::new();
    let _app = start(&place, "shm", "wait");
    std::fs::create_dir(place.at("m")).unwrap();
    place.ok(&["mount", "m"]);
    let mut file = std::fs::File::open(place.at("m/trace")).unwrap();
    place.run(&["umount", "m"]).has_status(1).says("busy");
    place.run(&["umount", "--lazy", "m"]).has_status(0);
    assert!(entries(&place.at("m")).is_empty(), "the folder is as before");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("its process serves the file until it is closed");
    text.has("test:tick");
}

#[test]
fn what_nobody_has_read_is_told_when_the_mount_ends() {
    let place = Place::new();
    let _app = start(&place, "shm", "wait");
    std::fs::create_dir(place.at("m")).unwrap();
    place.ok(&["mount", "m"]);
    let begin = ran(Command::new("head")
        .args(["-c", "5000", "m/trace_pipe"])
        .current_dir(place.path())
        .output()
        .unwrap());
    assert_eq!(begin.out.len(), 5000);
    assert!(
        !std::fs::read_dir(place.at("m"))
            .unwrap()
            .any(|entry| entry.unwrap().file_name() == ".unread")
    );
    let ended = unmounted(|| place.run(&["umount", "m"]));
    let count = ended
        .err
        .split_once("m: ")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
    ended.has_status(0).says("events are lost: trace_pipe had consumed");
    let had = begin.out.matches('\n').count() as u64;
    // `head` has read more than it has printed.
    assert!(
        count.is_some_and(|count| (1..=THREADS * EVENTS - had).contains(&count)),
        "{}",
        ended.err
    );
}

#[test]
fn nobody_else_may_look() {
    let place = Place::new();
    let app = start(&place, "shm", "wait");
    let mount = Mount::start(&place);
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(place.at("m").to_str().unwrap())).unwrap();
    line.lacks("allow_other").has("nosuid,nodev,noexec").has("default_permissions");
    let me = std::fs::metadata("/proc/self").unwrap().uid();
    let mut folders = vec![mount.at("")];
    while let Some(folder) = folders.pop() {
        for entry in entries(&folder) {
            let meta = entry.symlink_metadata().unwrap();
            assert_eq!((meta.permissions().mode() & 0o077, meta.uid()), (0, me), "{entry:?}");
            folders.extend(meta.is_dir().then_some(entry));
        }
    }
    if me != 0 {
        return;
    }
    // Another user, for whom all folders above are open.
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let script = "cat m/trace; ls m; echo > m/trace";
    let args = ["--reuid", "65534", "--clear-groups", "sh", "-c", script];
    let other = ran(Command::new("setpriv").args(args).current_dir(place.path()).output().unwrap());
    assert!(
        other.status != 0
            && other.out.is_empty()
            && other.err.matches("ermission denied").count() == 3,
        "{}",
        other.err
    );
    assert_eq!(
        events(&mount.ok("cat trace")).len() as u64,
        THREADS * EVENTS,
        "nothing was cleared"
    );
    // The folder of another user's session is refused, also to root.
    drop((mount, app));
    let session = place.session();
    std::os::unix::fs::chown(&session, Some(65534), None).unwrap();
    place.run(&["mount", "m", session.to_str().unwrap()]).has_status(1).says("belongs to");
}

/// The rings of a session that `mkdir` made change their size: no event is lost, and each is read
/// once.
#[test]
fn an_instance_has_rings_of_another_size() {
    let place = Place::new();
    let _app = start(&place, "user", "wait");
    let mount = Mount::start(&place);
    let said = mount.refused("echo 64 > buffer_size_kb");
    said.has("buffer_size_kb: error: the program that started the session chose the size");
    mount.ok("mkdir instances/one");
    let one = |script: &str| mount.ok(&format!("cd instances/one; {script}"));
    assert_eq!(one("cat buffer_size_kb"), "1088\n", "the channels main and errors");
    let mut expected = Vec::new();
    let cpus: u64 = one("ls per_cpu | wc -l").trim().parse().unwrap();
    let total = || one("cat buffer_total_size_kb").trim().parse::<u64>().unwrap();
    let mut before = total();
    for (size, has) in [(512, 576), (2048, 2112), (1088, 1088), (100, 128), (1, 96), (128, 128)] {
        one(&format!(
            "echo 'before {size}' > trace_marker; echo {size} > buffer_size_kb; echo 'after {size}' > trace_marker"
        ));
        expected.extend([format!("before {size}"), format!("after {size}")]);
        assert_eq!(
            one("cat buffer_size_kb per_cpu/cpu0/buffer_size_kb"),
            format!("{has}\n").repeat(2)
        );
        let now = total();
        assert!(now >= before + (has - 64) * cpus, "the rings before stay: {before} {now}");
        before = now;
    }
    let texts = |text: &str| -> Vec<String> {
        let found =
            events(text).into_iter().filter_map(|line| line.split_once(": tracing_mark_write: "));
        found.map(|(_, text)| text.to_owned()).collect()
    };
    let text = one("cat trace");
    assert_eq!(texts(&text), expected, "{text}");
    text.has(&format!("entries-in-buffer/entries-written: {0}/{0} ", expected.len()));
    // Rules and restrictions hold for the new rings.
    one(
        "echo 0 > events/enable; echo 4242 > set_event_pid; echo 256 > buffer_size_kb; echo 'the last' > trace_marker",
    );
    expected.push("the last".to_owned());
    assert_eq!(one("cat set_event_pid"), "4242\n");
    assert_eq!(texts(&one("timeout 1 cat trace_pipe || true")), expected);
    for wrong in ["0", "x", "99999999999999999999"] {
        let _ = mount.refused(&format!("echo {wrong} > instances/one/buffer_size_kb"));
    }
    let why =
        mount.refused("cd instances/one; echo > error_log; echo 64 > per_cpu/cpu0/buffer_size_kb");
    assert_eq!(why, "", "the error is in the instance's log");
    one("cat error_log").has("all CPUs have rings of one size");
    // A process records in 32 channels. Then the size stays.
    for at in 0..23 {
        one(&format!("echo {} > buffer_size_kb", 96 + 32 * (at % 2)));
    }
    one("(echo 128 > buffer_size_kb) 2>&1 || cat error_log")
        .has("no room for another slot")
        .has("32 is the most");
    assert_eq!(
        one(
            "cat buffer_size_kb; echo again > trace_marker; timeout 1 cat trace_pipe | grep -c again"
        ),
        "96\n1\n"
    );
}
