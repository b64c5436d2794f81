//! An instance of tracefs: its files, and what the kernel says when a write fails.

use anyhow::{Context, bail};
use lastwords_ftrace::Stats;
use lastwords_ftrace::dat;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// `O_NONBLOCK`.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// Characters before the command in a line of `error_log`.
const CARET: usize = "  Command: ".len();

/// The tracer that records nothing.
pub(crate) const NO_TRACER: &str = "nop";

/// Files with a list of words, of which each write adds some. `trace` is one that can only be emptied.
const LISTS: [&str; 6] = [
    "trace",
    "set_ftrace_filter",
    "set_ftrace_notrace",
    "set_graph_function",
    "set_event_pid",
    "set_ftrace_pid",
];

/// An event that has triggers `hist`.
pub(crate) struct WithHistograms {
    pub(crate) system: String,
    pub(crate) name: String,
    /// The file of its triggers.
    trigger: PathBuf,
    /// One of its histograms has an action.
    acts: bool,
}

/// The folder of an instance, or the top folder of tracefs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Returns the top folder. Only what all instances share is read and written there.
    pub(crate) fn top(tracefs: &Path) -> Self {
        Self { path: tracefs.to_owned() }
    }

    /// Returns the instance with a name, whether or not it exists.
    pub(crate) fn named(tracefs: &Path, name: &str) -> Self {
        Self { path: tracefs.join("instances").join(name) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the instance, with recording off.
    ///
    /// # Errors
    /// An instance has the name, or the kernel refuses.
    pub(crate) fn make(&self) -> anyhow::Result<()> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
                "{}: this instance exists: name it with --instance to record in it, or remove what a killed recorder left by `lastwords restore`",
                self.path.display()
            ),
            made => made.with_context(|| format!("{}: cannot be made", self.path.display()))?,
        }
        let stopped = self.write("tracing_on", "0");
        if stopped.is_err() {
            self.remove()?;
        }
        stopped
    }

    /// Returns true if the instance exists.
    pub(crate) fn exists(&self) -> bool {
        self.path.join("tracing_on").exists()
    }

    /// Returns the name of the clock, which is in brackets among the others.
    ///
    /// # Errors
    /// The file cannot be read, or no clock is chosen.
    pub(crate) fn clock(&self) -> anyhow::Result<String> {
        let text = self.read("trace_clock")?;
        let chosen = text
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .map(|(chosen, _)| chosen);
        Ok(chosen
            .with_context(|| format!("{}: no clock is chosen", self.path.display()))?
            .to_owned())
    }

    /// Returns the number of the instance's folder, which another instance of the same name does
    /// not have; none if the instance does not exist.
    pub(crate) fn inode(&self) -> Option<u64> {
        fs::metadata(&self.path).ok().map(|meta| meta.ino())
    }

    /// Removes the instance with all that is in its rings. Histograms with variables keep an
    /// instance busy, so they are removed first where it is.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        let mut removed = fs::remove_dir(&self.path);
        if removed.as_ref().is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
            self.drop_histograms();
            removed = fs::remove_dir(&self.path);
        }
        removed.with_context(|| format!("{}: cannot be removed", self.path.display()))
    }

    /// Removes the triggers `hist` of all events. Those with an action come first: the kernel keeps
    /// a histogram whose variables another one uses. What it refuses shows when the instance is
    /// removed.
    fn drop_histograms(&self) {
        let mut events = self.histograms();
        events.sort_by_key(|event| !event.acts);
        for event in events {
            // The kernel drops the histograms of a file that is truncated.
            let _ = OpenOptions::new().write(true).truncate(true).open(&event.trigger);
        }
    }

    /// Returns the events that have triggers `hist`, by system and name.
    pub(crate) fn histograms(&self) -> Vec<WithHistograms> {
        let folders = |path: &Path| {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let mut all: Vec<PathBuf> =
                entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
            all.sort();
            all
        };
        let name = |path: Option<&Path>| {
            let name = path.and_then(Path::file_name).unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let mut events = Vec::new();
        for folder in folders(&self.path.join("events")).iter().flat_map(|system| folders(system)) {
            let trigger = folder.join("trigger");
            let text = fs::read_to_string(&trigger).unwrap_or_default();
            let mut lines = text.lines().filter(|line| line.starts_with("hist:")).peekable();
            if lines.peek().is_some() {
                let acts = lines.any(|line| line.contains(":on"));
                let (system, name) = (name(folder.parent()), name(Some(&folder)));
                events.push(WithHistograms { system, name, trigger, acts });
            }
        }
        events
    }

    pub(crate) fn read(&self, name: &str) -> anyhow::Result<String> {
        let path = self.path.join(name);
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes a text into a file. The file is opened for appending: files such as `set_event` and
    /// `dynamic_events` drop all that they have when they are truncated.
    ///
    /// # Errors
    /// The kernel refuses. The message has the text of the kernel's `error_log` if it logged the
    /// error.
    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let log_before = self.log();
        let written = OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
        let Err(error) = written else { return Ok(()) };
        let place = format!("{}: cannot write {text:?}: {error}", path.display());
        match newest_error(&log_before, &self.log()) {
            Some(why) => Err(anyhow::Error::new(why).context(place)),
            None => bail!("{place}"),
        }
    }

    /// Returns true if the instance has a tracer, and not events alone.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn has_tracer(&self) -> anyhow::Result<bool> {
        Ok(self.setting("current_tracer")? != NO_TRACER)
    }

    /// Returns a setting in the form that [`Instance::set`] takes: the text of the file, or of a
    /// list, its words by line without the kernel's remarks.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn setting(&self, name: &str) -> anyhow::Result<String> {
        let text = self.read(name)?;
        if !LISTS.contains(&name) {
            return Ok(text.trim().to_owned());
        }
        let is_word = |line: &&str| !line.starts_with('#') && !line.starts_with("no pid");
        let words = text.lines().filter(is_word).filter_map(|line| line.split_whitespace().next());
        Ok(words.collect::<Vec<_>>().join("\n"))
    }

    /// Makes a setting what [`Instance::setting`] returned.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn set(&self, name: &str, text: &str) -> anyhow::Result<()> {
        if !LISTS.contains(&name) {
            return self.write(name, text);
        }
        let path = self.path.join(name);
        // The kernel empties a list that is truncated.
        let opened = OpenOptions::new().write(true).truncate(true).open(&path);
        let mut file = opened.with_context(|| path.display().to_string())?;
        text.lines().try_for_each(|word| {
            file.write_all(format!("{word}\n").as_bytes())
                .with_context(|| format!("{}: cannot write {word:?}", path.display()))
        })
    }

    /// Returns the text of `error_log`, which kernels before 5.2 do not have.
    fn log(&self) -> String {
        self.read("error_log").unwrap_or_default()
    }

    /// Opens `trace_pipe_raw` of a CPU. Reading it never blocks.
    pub(crate) fn open_raw(&self, cpu: u32) -> anyhow::Result<File> {
        self.open_ring(cpu, "trace_pipe_raw")
    }

    /// Opens `snapshot_raw` of a CPU: what [`Instance::open_raw`] is for the snapshot.
    pub(crate) fn open_snapshot(&self, cpu: u32) -> anyhow::Result<File> {
        self.open_ring(cpu, "snapshot_raw")
    }

    fn open_ring(&self, cpu: u32, file: &str) -> anyhow::Result<File> {
        let path = self.path.join(format!("per_cpu/cpu{cpu}/{file}"));
        let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&path);
        opened.with_context(|| path.display().to_string())
    }

    /// Returns the CPUs of the rings by rising number.
    pub(crate) fn cpus(&self) -> anyhow::Result<Vec<u32>> {
        let path = self.path.join("per_cpu");
        let entries = fs::read_dir(&path).with_context(|| path.display().to_string())?;
        let number =
            |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok();
        let mut cpus: Vec<u32> = entries.filter_map(|entry| number(entry.ok()?)).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Returns the trace options that are on, those of the tracer included.
    pub(crate) fn options(&self) -> anyhow::Result<Vec<String>> {
        Ok(lastwords_open::options_on(&self.read("trace_options")?))
    }

    /// Returns the events that are enabled, as `SYSTEM:EVENT`.
    pub(crate) fn enabled(&self) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.read("set_event")?.lines().map(str::to_owned).collect())
    }

    /// Returns the counters of a CPU's ring.
    pub(crate) fn stats(&self, cpu: u32) -> anyhow::Result<Stats> {
        Ok(dat::counters(&self.read(&format!("per_cpu/cpu{cpu}/stats"))?))
    }

    /// Returns the bytes of a sub-buffer. Kernels before 6.8 have no file for it; their sub-buffers
    /// are pages.
    pub(crate) fn sub_buffer_size(&self) -> u32 {
        let size = self
            .read("buffer_subbuf_size_kb")
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok());
        size.map_or_else(
            || u32::try_from(rustix::param::page_size()).unwrap_or(4096),
            |size| size.saturating_mul(1024),
        )
    }
}

/// An entry of an `error_log`.
#[derive(Debug, thiserror::Error)]
#[error("the kernel says: {text}")]
pub(crate) struct KernelSays {
    /// The entry on one line.
    text: String,
    /// The command and the caret below a place in it, as the kernel prints them.
    pub(crate) caret: Option<String>,
}

/// Returns the last entry of an `error_log`, if the log has changed. An entry begins with its time
/// in brackets, has the command on its second line, and on its third a caret below the place in it.
fn newest_error(before: &str, after: &str) -> Option<KernelSays> {
    if before == after {
        return None;
    }
    let begin = after.rfind("\n[").map_or(0, |at| at + 1);
    let entry = after[begin..].trim_end();
    // The time since boot means nothing to the user.
    let entry = entry.split_once("] ").map_or(entry, |(_, entry)| entry);
    let mut lines = entry.lines();
    let what = lines.next().filter(|what| !what.is_empty())?;
    let shown = lines.next().unwrap_or_default();
    let below = lines.next().unwrap_or_default();
    let caret = below.find('^').and_then(|at| at.checked_sub(CARET));
    Some(match (shown.trim_start().strip_prefix("Command: "), caret) {
        (Some(command), Some(at)) => KernelSays {
            text: format!("{what}: at byte {at} of `{command}`"),
            caret: Some(format!("{shown}\n{below}")),
        },
        _ => KernelSays { text: what.to_owned(), caret: None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_dropped_and_other_triggers_are_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = |event: &str, text: &str| {
            let path = folder.path().join("events/sched").join(event);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("trigger"), text).unwrap();
            path.join("trigger")
        };
        let used = file(
            "sched_waking",
            "hist:keys=pid:vals=hitcount:ts0=common_timestamp.usecs [active]\n",
        );
        let acts = file(
            "sched_switch",
            "hist:keys=next_pid:onmatch(sched.sched_waking).lat($d,next_pid) [active]\n",
        );
        let other = file("sched_stat", "snapshot:count=1\n");
        let none = file("sched_wakeup", "# Available triggers:\n# hist\n");
        Instance::top(folder.path()).drop_histograms();
        let lengths = [used, acts, other, none].map(|path| fs::metadata(path).unwrap().len() > 0);
        assert_eq!(lengths, [false, false, true, true]);
    }

    #[test]
    fn lists_are_words_without_remarks() {
        let folder = tempfile::tempdir().unwrap();
        let instance = Instance::top(folder.path());
        let of = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).unwrap();
            instance.setting(name).unwrap()
        };
        assert_eq!(of("set_ftrace_filter", "#### all functions enabled ####\n"), "");
        assert_eq!(of("set_ftrace_filter", "vfs_read\next4_sync [ext4]\n"), "vfs_read\next4_sync");
        assert_eq!(of("set_ftrace_pid", "no pid\n"), "");
        assert_eq!(of("set_event_pid", "1\n22\n"), "1\n22");
        assert_eq!(of("tracing_cpumask", "3\n"), "3");
        instance.set("set_event_pid", "7\n8").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("set_event_pid")).unwrap(), "7\n8\n");
    }

    #[test]
    fn the_newest_error_is_shown_without_its_time() {
        let old = "[  10.1] a: error: Old\n  Command: x\n           ^\n";
        let new = format!(
            "{old}[  12.5] event filter parse error: error: Field not found\n  Command: foo == 1\n           ^\n"
        );
        let said = "the kernel says: event filter parse error: error: Field not found: at byte 0 of `foo == 1`";
        let newest = newest_error(old, &new).unwrap();
        assert_eq!(newest.to_string(), said);
        assert_eq!(newest.caret.as_deref(), Some("  Command: foo == 1\n           ^"));
        let said = "the kernel says: a: error: Old: at byte 0 of `x`";
        assert_eq!(newest_error("", old).unwrap().to_string(), said);
        assert!(newest_error(old, old).is_none());
    }
}
