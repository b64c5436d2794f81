//! Histograms that triggers make (`hist:keys=…`): they are read while they count, and saved beside
//! the trace when the recording ends.
//!
//! A histogram is no part of a trace.dat file, so its text gets a file of its own, `FILE.hist`: for
//! each event the lines that name it ([`lastwords_ftrace::histogram::heading`]), and what its file
//! `hist` prints. Histograms count whether or not the instance records. At the end of a recording
//! they are paused before they are saved, so that all of them end together.

use crate::changes::{Changes, beside};
use crate::error::{Error, Result};
use crate::events::{self, Events};
use crate::instance::Instance;
use crate::rule::Rule;
use crate::save;
use crate::triggers;
use anyhow::Context;
use lastwords_ftrace::histogram::heading;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Returns the file for the histograms of a recording.
pub(crate) fn path(output: &Path) -> PathBuf {
    beside(output, ".hist")
}

/// Returns the events of the rules that have histograms, with their systems.
pub(crate) fn events(known: &Events, rules: &[Rule]) -> anyhow::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for rule in rules.iter().filter(|rule| triggers::has(std::slice::from_ref(rule), "hist")) {
        for (system, event) in events::pairs(&events::select(known, &rule.pattern)?) {
            let event = (system.to_owned(), event.to_owned());
            if !all.contains(&event) {
                all.push(event);
            }
        }
    }
    Ok(all)
}

/// Returns the text of the histograms that an instance has now. They go on counting. The text is
/// empty if there are none.
///
/// # Errors
/// tracefs is not mounted, or the instance does not exist or cannot be read.
pub fn histograms(instance: &str) -> Result<String> {
    let own = Instance::named(lastwords_open::tracefs_folder()?, instance);
    let read = || {
        own.read("tracing_on")?;
        own.histograms()
            .into_iter()
            .map(|event| (event.system, event.name))
            .try_fold(String::new(), |text, event| Ok(text + &of_event(&own, instance, &event)?))
    };
    read().map_err(|error| Error::instance(instance, error))
}

/// Returns the text of one event's histograms.
fn of_event(
    instance: &Instance,
    name: &str,
    (system, event): &(String, String),
) -> anyhow::Result<String> {
    let text = instance.read(&format!("events/{system}/{event}/hist"))?;
    Ok(format!("{}{}\n\n", heading(name, &format!("{system}:{event}")), text.trim_end()))
}

/// Saves the histograms of all instances, and returns the file; none if there are no histograms. A
/// second call finds the file of the first.
///
/// # Errors
/// A histogram cannot be read, or the file cannot be written.
pub(crate) fn save(changes: &mut Changes) -> anyhow::Result<Option<PathBuf>> {
    let path = path(&changes.journal.output);
    let is_there = |inode: Option<u64>| {
        inode.is_some() && fs::metadata(&path).ok().map(|meta| meta.ino()) == inode
    };
    if is_there(changes.journal.histograms_saved) {
        return Ok(Some(path));
    }
    let mut text = String::new();
    for changes in changes.existing() {
        let (instance, journal) = (changes.instance(), &changes.journal);
        for event in &journal.histograms {
            let _ = write!(text, "{}", of_event(&instance, &journal.instance, event)?);
        }
    }
    if text.is_empty() {
        return Ok(None);
    }
    let new = beside(&path, ".new");
    let mut written = || {
        let mut file = save::create(&new)?;
        file.write_all(text.as_bytes()).with_context(|| new.display().to_string())?;
        changes.journal.histograms_saved =
            Some(file.metadata().with_context(|| new.display().to_string())?.ino());
        changes.journal.replace(&changes.journals)?;
        save::rename(&new, &path, changes.journal.force)
    };
    if let Err(error) = written() {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    Ok(Some(path))
}

/// Lets the histograms of all instances count no more. One that defines variables cannot be named a
/// second time, so it goes on; its text says that it is active.
pub(crate) fn pause(changes: &Changes) {
    for changes in changes.existing() {
        changes.journal.histograms.iter().for_each(|event| pause_event(&changes.instance(), event));
    }
}

fn pause_event(instance: &Instance, (system, event): &(String, String)) {
    let file = format!("events/{system}/{event}/trigger");
    let text = instance.read(&file).unwrap_or_default();
    let running = text.lines().filter_map(|line| line.strip_suffix(" [active]"));
    for trigger in running.filter(|line| line.starts_with("hist:")) {
        let (head, filter) = trigger.split_at(trigger.find(" if ").unwrap_or(trigger.len()));
        let _ = instance.write(&file, &format!("{head}:pause{filter}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::plan::Plan;

    /// A folder in the form of tracefs with an instance that has a histogram of one event.
    fn tracefs() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let event = folder.path().join("instances/own/events/sched/sched_switch");
        fs::create_dir_all(&event).unwrap();
        fs::write(folder.path().join("instances/own/tracing_on"), "1\n").unwrap();
        fs::write(event.join("hist"), "# event histogram\n# trigger info: hist:keys=pid\n\n")
            .unwrap();
        let triggers = "snapshot:unlimited\nhist:keys=pid:vals=hitcount:size=2048 if pid > 1 [active]\n\
                        hist:keys=cpu:vals=hitcount [paused]\n";
        fs::write(event.join("trigger"), triggers).unwrap();
        folder
    }

    fn changes(tracefs: &Path, folder: &Path) -> Changes {
        let output = folder.join("t.dat");
        let mut journal = Journal::new(&Plan::default(), "own".to_owned(), Vec::new(), output);
        journal.histograms = vec![("sched".to_owned(), "sched_switch".to_owned())];
        Changes { tracefs: tracefs.to_owned(), journals: folder.to_owned(), journal }
    }

    #[test]
    fn histograms_are_paused_and_saved_once() {
        let (tracefs, folder) = (tracefs(), tempfile::tempdir().unwrap());
        let mut changes = changes(tracefs.path(), folder.path());
        pause(&changes);
        let path = save(&mut changes).unwrap().unwrap();
        assert_eq!(path, folder.path().join("t.dat.hist"));
        let expected = "# instance: own\n# event: sched:sched_switch\n\
                        # event histogram\n# trigger info: hist:keys=pid\n\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        // The file of a test has what was appended.
        let file = "instances/own/events/sched/sched_switch/trigger";
        let text = fs::read_to_string(tracefs.path().join(file)).unwrap();
        assert!(
            text.ends_with("[paused]\nhist:keys=pid:vals=hitcount:size=2048:pause if pid > 1\n"),
            "{text}"
        );
        // The journal knows the file, and another is not replaced.
        assert_eq!(save(&mut changes).unwrap(), Some(path));
        assert_eq!(crate::journal::list(folder.path()).unwrap(), [changes.journal.clone()]);
        changes.journal.histograms_saved = None;
        assert!(save(&mut changes).unwrap_err().to_string().contains("t.dat.hist exists"));
        assert!(!folder.path().join("t.dat.hist.new").exists());
        changes.journal.histograms.clear();
        assert_eq!(save(&mut changes).unwrap(), None);
    }

    #[test]
    fn events_with_histograms_are_those_of_their_rules() {
        let known: Events = [("sched".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into();
        let rule = |pattern: &str, trigger: &str| Rule {
            pattern: pattern.to_owned(),
            triggers: vec![trigger.to_owned()],
            ..Rule::default()
        };
        let rules = [
            rule("sched:b", "hist:keys=pid"),
            rule("sched", "hist:keys=cpu"),
            rule("all", "traceoff"),
        ];
        let found = events(&known, &rules).unwrap();
        let names: Vec<&str> = found.iter().map(|(_, event)| event.as_str()).collect();
        assert_eq!(names, ["b", "a"]);
    }
}
