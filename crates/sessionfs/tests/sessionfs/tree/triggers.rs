//! The file `trigger` of events, against a model of the kernel's and the kernel itself.

use std::path::PathBuf;

use lastwords::{ChannelConfig, event};
use lastwords_sessionfs::Errno;
use lastwords_testkit::random::Random;

use super::Place;

/// Events of the kernel that do not happen while the test runs, so that no trigger fires.
const NEVER: [&str; 3] = ["sched_process_hang", "sched_move_numa", "sched_skip_cpuset_numa"];

/// The `trigger` files of the kernel's own events, in an instance that ends with this; none if this
/// is not root or there is no tracefs.
struct Kernel {
    folder: PathBuf,
    words: String,
}

impl Kernel {
    fn new() -> Option<Self> {
        let folder = PathBuf::from(format!(
            "/sys/kernel/tracing/instances/lastwords-tree-{}",
            std::process::id()
        ));
        std::fs::create_dir(&folder).ok()?;
        let mut kernel = Self { folder, words: String::new() };
        if !NEVER.iter().all(|event| kernel.path(event).is_file()) {
            return None;
        }
        kernel.words = kernel.read(NEVER[0]);
        Some(kernel)
    }

    fn path(&self, event: &str) -> PathBuf {
        self.folder.join("events/sched").join(event).join("trigger")
    }

    fn read(&self, event: &str) -> String {
        std::fs::read_to_string(self.path(event)).unwrap()
    }

    fn write(&self, event: &str, text: &str) -> Result<usize, Errno> {
        use std::io::Write as _;
        let mut file = std::fs::OpenOptions::new().write(true).open(self.path(event)).unwrap();
        file.write(text.as_bytes())
            .map_err(|error| Errno::from_raw_os_error(error.raw_os_error().unwrap()))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for event in NEVER {
            let text = std::fs::read_to_string(self.path(event)).unwrap_or_default();
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                let _ = self.write(event, &format!("!{line}"));
            }
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Texts of counts, with the numbers that they are for an action without an event and for one with
/// an event.
type Count = Result<Option<u64>, Errno>;

const COUNTS: [(&str, Count, Count); 13] = [
    ("", Ok(None), Ok(None)),
    (":0", Ok(Some(0)), Ok(Some(0))),
    (":1", Ok(Some(1)), Ok(Some(1))),
    (":37", Ok(Some(37)), Ok(Some(37))),
    (":0x1f", Ok(Some(31)), Ok(Some(31))),
    (":017", Ok(Some(15)), Ok(Some(15))),
    (":3:4", Ok(Some(3)), Ok(Some(3))),
    (" 5", Ok(Some(5)), Err(Errno::INVAL)),
    (":", Ok(None), Err(Errno::INVAL)),
    (":08", Err(Errno::INVAL), Err(Errno::INVAL)),
    (":-1", Err(Errno::INVAL), Err(Errno::INVAL)),
    (":18446744073709551615", Ok(None), Ok(None)),
    (":18446744073709551616", Err(Errno::RANGE), Err(Errno::RANGE)),
];

/// Texts behind the count, with the filter that they are.
const FILTERS: [(&str, Result<&str, Errno>); 6] = [
    ("", Ok("")),
    (" if pid == 3", Ok(" if pid == 3")),
    ("\tif pid > 1 && pid < 9", Ok(" if pid > 1 && pid < 9")),
    (" if", Err(Errno::INVAL)),
    (" if nothing == 1", Err(Errno::INVAL)),
    (" garbage", Err(Errno::INVAL)),
];

/// The words of commands; the last two are no actions.
const ACTIONS: [&str; 7] = [
    "traceon",
    "traceoff",
    "snapshot",
    "enable_event",
    "disable_event",
    "traceoff+0",
    "stacktraces",
];

/// The triggers of an event: the kind of each, and its line; the newest first.
type Triggers = Vec<((usize, usize), String)>;

/// A command, as indexes of its parts.
struct Choice {
    /// The event whose file is written.
    at: usize,
    action: usize,
    /// The event that is enabled or disabled; behind the last one, an event that is not there.
    target: usize,
    count: usize,
    filter: usize,
    is_removal: bool,
}

impl Choice {
    fn random(random: &mut Random) -> Self {
        let mut below = |most| random.index(most);
        let (at, action, target, count, filter) =
            (below(3), below(ACTIONS.len()), below(4), below(13), below(6));
        // Most commands are right.
        let (count, filter) = (count * below(2), filter * below(2));
        Self { at, action, target, count, filter, is_removal: below(3) == 0 }
    }

    /// Returns true if the action needs an event.
    fn needs(&self) -> bool {
        ACTIONS[self.action].ends_with("_event")
    }

    /// The name of that event, behind a colon.
    fn name(&self) -> String {
        match (self.needs(), NEVER.get(self.target)) {
            (false, _) => String::new(),
            (true, Some(event)) => format!(":sched:{event}"),
            (true, None) => ":sched:nobody".to_owned(),
        }
    }

    fn command(&self) -> String {
        let (word, mark) = (ACTIONS[self.action], if self.is_removal { "!" } else { "" });
        let name = self.name();
        format!("{mark}{word}{name}{}{}\n", COUNTS[self.count].0, FILTERS[self.filter].0)
    }

    /// Changes the triggers of the event as the kernel does, and returns the result of the write of
    /// `len` bytes.
    fn follow(&self, triggers: &mut Triggers, len: usize) -> Result<usize, Errno> {
        let needs = self.needs();
        let kind = (self.action.max(1), if needs { self.target } else { 0 });
        let kind = (if needs { 3 } else { kind.0 }, kind.1);
        if self.action > 4 || needs && self.target == 3 {
            return Err(Errno::INVAL);
        }
        if self.is_removal {
            let found = triggers.iter().position(|(one, _)| *one == kind);
            found.into_iter().for_each(|found| drop(triggers.remove(found)));
            return Ok(len);
        }
        let times = if needs { COUNTS[self.count].2 } else { COUNTS[self.count].1 }?;
        let filter = FILTERS[self.filter].1?;
        if triggers.iter().any(|(one, _)| *one == kind) {
            return Err(Errno::EXIST);
        }
        let times = times.map_or("unlimited".to_owned(), |times| format!("count={times}"));
        let (word, name) = (ACTIONS[self.action], self.name());
        triggers.insert(0, (kind, format!("{word}{name}:{times}{filter}\n")));
        Ok(len)
    }
}

/// Generated commands lead to what a model of the kernel's triggers says, and to what the kernel
/// does where it has the trigger.
#[test]
fn triggers_are_those_of_the_kernel() {
    let place = Place::new("sched", ChannelConfig::new("main"));
    event!(sched, "sched_process_hang", pid = 0u32);
    event!(sched, "sched_move_numa", pid = 0u32);
    event!(sched, "sched_skip_cpuset_numa", pid = 0u32);
    let kernel = Kernel::new();
    let has = |action: &str| kernel.as_ref().is_some_and(|kernel| kernel.words.contains(action));
    let mut model: [Triggers; 3] = Default::default();
    let (mut random, mut accepted, mut compared) = (Random(5), 0, 0);
    for step in 0..250 {
        let choice = Choice::random(&mut random);
        let (at, word, command) = (choice.at, ACTIONS[choice.action], choice.command());
        let expected = choice.follow(&mut model[at], command.len());
        let path = format!("events/sched/{}/trigger", NEVER[at]);
        assert_eq!(place.write(&path, &command), expected, "step {step}: {command:?}");
        let lines: String = model[at].iter().map(|(_, line)| line.as_str()).collect();
        let none =
            "# Available triggers:\n# traceon traceoff snapshot enable_event disable_event\n";
        assert_eq!(
            place.read(&path),
            if lines.is_empty() { none } else { &lines },
            "step {step}: {command:?}"
        );
        accepted += usize::from(expected.is_ok());
        if let Some(kernel) = kernel.as_ref().filter(|_| choice.action > 4 || has(word)) {
            assert_eq!(
                kernel.write(NEVER[at], &command),
                expected,
                "the kernel, step {step}: {command:?}"
            );
            let lines: Vec<&str> =
                lines.lines().filter(|line| has(line.split(':').next().unwrap())).collect();
            let text = kernel.read(NEVER[at]);
            let own: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            assert_eq!(own, lines, "the kernel, step {step}: {command:?}");
            compared += 1;
        }
    }
    assert!(accepted > 60 && (kernel.is_none() || compared > 150), "{accepted} {compared}");
    println!("{accepted} commands accepted, {compared} compared with the kernel");
}
