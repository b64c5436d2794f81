//! Words of a command line as inputs: paths, names of sessions, names of instances of the running
//! kernel.

use crate::Result;
use crate::named::of_name;
use crate::same_name::session_instead_of;
use lastwords_open::{Inputs, Opened, Options, tracefs_folder};
use std::path::{Path, PathBuf};

/// Opens the files and folders of all paths, and the sessions of all names. An unreadable or empty
/// input is not an error but an entry in [`Opened::failures`].
///
/// # Errors
/// The same as for [`lastwords_open::open()`].
pub fn open<W: AsRef<str>>(words: &[W], options: &Options<'_>) -> Result<Opened> {
    let options = knowing(options);
    Ok(inputs(words, &options)?.open(&options, &|_| None)?)
}

/// Returns the options with what this machine knows of the state of sessions.
pub(crate) fn knowing<'a>(options: &Options<'a>) -> Options<'a> {
    Options { state: &crate::state, ..options.clone() }
}

/// Finds what words mean, and the process of [`Options::pid`].
///
/// # Errors
/// The process cannot be read.
pub fn inputs<W: AsRef<str>>(words: &[W], options: &Options<'_>) -> Result<Inputs> {
    let words = words.iter().map(AsRef::as_ref);
    if options.memory.split {
        return Ok(Inputs::find(&words.collect::<Vec<&str>>(), options)?);
    }
    let mut inputs = Inputs::new();
    words.for_each(|word| add(&mut inputs, word));
    inputs.add_process(options)?;
    Ok(inputs)
}

fn add(inputs: &mut Inputs, word: &str) {
    let mut notes = Vec::new();
    match path_of(word, &mut notes) {
        Ok(path) => inputs.add_path(&path),
        Err(error) => inputs.add_failure(error),
    }
    notes.into_iter().for_each(|note| inputs.note(note));
}

/// Returns the path that a word means.
fn path_of(word: &str, notes: &mut Vec<String>) -> anyhow::Result<PathBuf> {
    let path = Path::new(word);
    if let Some(folder) = session_instead_of(word, notes) {
        return Ok(folder);
    }
    match std::fs::metadata(path) {
        Ok(_) => Ok(path.to_owned()),
        Err(_) if word.contains('/') => {
            let instance = word.strip_prefix("instances/").and_then(instance_of_name);
            Ok(instance.unwrap_or_else(|| path.to_owned()))
        }
        Err(_) => match (of_name(word, notes), instance_of_name(word)) {
            (Ok(folder), _) | (Err(_), Some(folder)) => Ok(folder),
            (Err(error), None) => Err(error),
        },
    }
}

/// Returns the folder of the running kernel's trace instance that a word means: a folder of
/// tracefs, `instances/NAME` or a name that no session has. Returns none for all else.
#[must_use]
pub fn instance_folder(word: &str) -> Option<PathBuf> {
    let tracefs = tracefs_folder().ok()?;
    let path = path_of(word, &mut Vec::new()).ok()?;
    (path.starts_with(tracefs) && lastwords_open::is_instance(&path)).then_some(path)
}

/// Returns the folder of the running kernel's trace instance with a name.
fn instance_of_name(name: &str) -> Option<PathBuf> {
    let folder = tracefs_folder().ok()?.join("instances").join(name);
    folder.is_dir().then_some(folder).filter(|_| !name.starts_with('.') && !name.is_empty())
}
