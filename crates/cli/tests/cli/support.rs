//! Runs the program in a folder of its own.

use lastwords_testkit::image::Image;
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The user and group `nobody` of every Linux system, for tests with another user than root.
pub(crate) const NOBODY: u32 = 65534;

/// A folder for one test: its sessions, its files.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

/// How a run of a program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The program's arguments, for messages of tests that fail.
    pub(crate) args: String,
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder for the test");
        std::fs::create_dir(dir.path().join("sessions")).expect("a folder for its sessions");
        Self { dir }
    }

    /// A place whose folder has this mode, for other users; none where the test is not run by root.
    pub(crate) fn of_root(mode: u32) -> Option<Self> {
        rustix::process::geteuid().is_root().then(|| {
            let place = Self::new();
            std::fs::set_permissions(place.path(), Permissions::from_mode(mode)).unwrap();
            place
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A file or folder in it.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The folder of its sessions.
    pub(crate) fn sessions(&self) -> PathBuf {
        self.at("sessions")
    }

    /// The folder of its only session.
    pub(crate) fn session(&self) -> PathBuf {
        folders(&self.sessions()).into_iter().next().expect("a session")
    }

    /// The program, with this place's sessions and no terminal.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lastwords"));
        command
            .current_dir(self.path())
            .env("LASTWORDS_DIR", self.sessions())
            .env("TZ", "UTC")
            .env_remove("DEBUGINFOD_URLS")
            .env_remove("PAGER");
        command
    }

    /// Runs the program.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let ran = ran(self.command().args(args).output().expect("the program starts"));
        Ran { args: format!("{args:?}"), ..ran }
    }

    /// Runs the program, which must end with 0; its stdout.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.status, 0, "lastwords {args:?}\n{}\n{}", ran.out, ran.err);
        ran.out
    }

    /// Runs the program, which must end with 0; its stdout as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).expect("JSON on stdout")
    }
}

impl Ran {
    fn shown(&self) -> String {
        let Self { args, status, out, err } = self;
        format!("{args}: status {status}\n{out}\n{err}")
    }

    /// Fails unless the program ended with this status.
    #[track_caller]
    pub(crate) fn has_status(&self, status: i32) -> &Self {
        assert_eq!(self.status, status, "{}", self.shown());
        self
    }

    /// Fails unless the program wrote these words to stderr.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> &Self {
        assert!(self.err.contains(words), "{words:?} is missing: {}", self.shown());
        self
    }

    /// Fails unless the program wrote these words to stderr as often.
    #[track_caller]
    pub(crate) fn says_times(&self, words: &str, times: usize) -> &Self {
        let found = self.err.matches(words).count();
        assert_eq!(found, times, "{words:?}: {}", self.shown());
        self
    }

    /// Fails if the program wrote these words to stderr.
    #[track_caller]
    pub(crate) fn does_not_say(&self, words: &str) -> &Self {
        assert!(!self.err.contains(words), "{words:?} is there: {}", self.shown());
        self
    }

    /// Fails unless the program wrote these words to stdout.
    #[track_caller]
    pub(crate) fn prints(&self, words: &str) -> &Self {
        assert!(self.out.contains(words), "{words:?} is missing: {}", self.shown());
        self
    }

    /// Fails if the program wrote these words to stdout.
    #[track_caller]
    pub(crate) fn does_not_print(&self, words: &str) -> &Self {
        assert!(!self.out.contains(words), "{words:?} is there: {}", self.shown());
        self
    }

    /// Fails unless the program wrote as many lines to stdout.
    #[track_caller]
    pub(crate) fn prints_lines(&self, count: usize) -> &Self {
        assert_eq!(self.out.lines().count(), count, "lines: {}", self.shown());
        self
    }

    /// Fails if the program wrote to stdout.
    #[track_caller]
    pub(crate) fn prints_nothing(&self) -> &Self {
        assert!(self.out.is_empty(), "{}", self.shown());
        self
    }
}

/// Writes testkit's sample session into a folder of the place; `number` tells it from others of its
/// kind.
pub(crate) fn small(place: &Place, folder: &str, number: u8) -> Image {
    let image = samples::numbered(Order::Little, number).image();
    image.write_folder(&place.at(folder)).unwrap();
    image
}

/// Returns the events of the JSON lines that `convert` writes: all lines but the head.
pub(crate) fn json_events(lines: &str) -> Vec<Value> {
    lines.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the lines of a kernel's text that describe events: neither its head nor losses.
pub(crate) fn event_lines(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.contains(" [LOST "))
}

/// A trace.dat file of the corpus for fuzzing.
pub(crate) fn trace_dat(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace_dat").join(name)
}

/// The folder of the scripts that root runs.
pub(crate) fn hooks() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hooks").canonicalize().unwrap()
}

/// Fails unless an object has these members.
#[track_caller]
pub(crate) fn assert_members(object: &Value, members: &Value) {
    for (name, value) in members.as_object().expect("members") {
        assert_eq!(&object[name], value, "{name} of {object:#}");
    }
}

/// Makes a folder of this mode and owner.
pub(crate) fn make_folder(path: &Path, mode: u32, owner: u32) {
    std::fs::create_dir(path).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
}

/// The files and folders in a folder, sorted.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The folders in a folder.
pub(crate) fn folders(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| path.is_dir()).collect()
}

/// The bytes that the files of a folder take on disk.
pub(crate) fn stored(folder: &Path) -> u64 {
    entries(folder).iter().map(|file| file.symlink_metadata().unwrap().blocks() * 512).sum()
}

/// Cuts the data of all streams of a session off. What describes the streams stays.
pub(crate) fn cut_streams(session: &Path) {
    let is_stream =
        |path: &&PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("stream");
    for path in entries(session).iter().filter(is_stream) {
        std::fs::File::options().write(true).open(path).unwrap().set_len(4096).unwrap();
    }
}

/// The arguments in a line.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Returns the status and the output of a finished command.
pub(crate) fn ran(output: Output) -> Ran {
    Ran {
        args: String::new(),
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Waits for a value, for a minute at most.
#[track_caller]
pub(crate) fn wait_for_some<T>(what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "not in a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until it is so, for a minute at most.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for_some(what, || is_so().then_some(()));
}

/// Runs another program, which must end with 0.
pub(crate) fn tool(name: &str, args: &[&str]) -> Ran {
    let output = Command::new(name)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{name}: {e}: cargo xtask setup"));
    let ran = ran(output);
    assert_eq!(ran.status, 0, "{name} {args:?}\n{}\n{}", ran.out, ran.err);
    ran
}
