//! Names the frames of backtraces: functions with those inlined into them, files and lines, from
//! the debug information of the modules' files, or else from their symbol tables.
//!
//! A file is used only if its build ID is the one that the recorder saw, so that a program which
//! was built anew in the meantime gives no wrong names. Files are looked for in this order: the
//! module itself, the folders of [`Symbolizer::new`], `/usr/lib/debug/.build-id/`, where
//! distributions install debug information, and what [`Fetch`] brings. The first one with debug
//! information is used, or else the first one with a symbol table.

mod file;

pub use file::{DebugFile, check_build_id};

use crate::crash::{Crash, Frame};
use file::{Symbols, Why};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Brings the debug information of a build from elsewhere: returns a file, none if nobody has it,
/// or why it cannot be brought.
pub type Fetch = Box<dyn FnMut(&str, DebugFile) -> Result<Option<PathBuf>, String> + Send>;

/// The path of a module and its build ID.
type Module = (String, Option<String>);

/// Names the frames of backtraces. It opens each module once.
#[derive(Default)]
pub struct Symbolizer {
    folders: Vec<PathBuf>,
    fetch: Option<Mutex<Fetch>>,
    modules: Mutex<BTreeMap<Module, Option<Symbols>>>,
}

impl Symbolizer {
    /// Makes a symbolizer that also looks into folders of debug information, and has `fetch` bring
    /// what is in none of them.
    #[must_use]
    pub fn new(folders: Vec<PathBuf>, fetch: Option<Fetch>) -> Self {
        Self { folders, fetch: fetch.map(Mutex::new), modules: Mutex::default() }
    }

    /// Names the frames of backtraces. Returns remarks on each module that was met for the first
    /// time: why its frames cannot be named, and which files were refused.
    #[must_use]
    pub fn name_frames<'c>(&self, crashes: impl IntoIterator<Item = &'c mut Crash>) -> Vec<String> {
        let mut remarks = Vec::new();
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        for crash in crashes {
            let is_signal = crash.event.ends_with(":signal");
            for (depth, frame) in crash.backtrace.iter_mut().enumerate() {
                let (Some(module), Some(offset)) = (frame.module.clone(), offset(frame)) else {
                    continue;
                };
                let symbols = modules
                    .entry((module, frame.build_id.clone()))
                    .or_insert_with_key(|(path, id)| self.open(path, id.as_deref(), &mut remarks));
                if let Some(symbols) = symbols {
                    // A return address is behind the call; the address of a signal is the
                    // instruction's own.
                    let address =
                        if is_signal && depth == 0 { offset } else { offset.saturating_sub(1) };
                    frame.functions = symbols.functions(address);
                }
            }
        }
        remarks
    }

    /// Opens the best file with symbols of a module.
    fn open(&self, path: &str, id: Option<&str>, remarks: &mut Vec<String>) -> Option<Symbols> {
        let shown = crate::escape(path);
        let Some(id) = id else {
            remarks.push(format!(
                "no symbols of {shown}: it has no build ID, so that nothing shows whether its file is still the same"
            ));
            return None;
        };
        let mut best: Option<Symbols> = None;
        let mut reasons = Vec::new();
        let own = Symbols::read(Path::new(path), id, false);
        let is_there = own.is_ok();
        best = take(best, own.map_err(|why| reasons.push(why.to_string())).ok());
        for file in self.candidates(path, id) {
            if best.as_ref().is_some_and(Symbols::has_lines) {
                return best;
            }
            match Symbols::read(&file, id, false) {
                Ok(found) => best = take(best, Some(found)),
                Err(Why::Missing(_)) => {}
                Err(why) => {
                    let file = crate::escape(&file.display().to_string());
                    remarks.push(format!("{file} is not used: {why}"));
                }
            }
        }
        let wanted = [DebugFile::DebugInfo, DebugFile::Executable];
        let wanted = wanted.into_iter().filter(|file| *file == DebugFile::DebugInfo || !is_there);
        for file in wanted {
            if best.as_ref().is_some_and(Symbols::has_lines) {
                return best;
            }
            match self.fetched(id, file) {
                Ok(found) => best = take(best, found),
                Err(why) => reasons.push(why),
            }
        }
        let has_symbols = best.as_ref().is_some_and(|best| !best.is_empty());
        if !reasons.is_empty() && (!has_symbols || is_there) {
            let what = if has_symbols { "no debug information" } else { "no symbols" };
            remarks.push(format!("{what} of {shown}: {}", reasons.join("; ")));
        }
        best
    }

    /// Returns where a file with debug information may be.
    fn candidates(&self, module: &str, id: &str) -> Vec<PathBuf> {
        let by_id = |folder: &Path| {
            let (first, rest) = id.split_at_checked(2)?;
            Some(folder.join(".build-id").join(first).join(format!("{rest}.debug")))
        };
        let name = Path::new(module).file_name();
        let in_folder = |folder: &PathBuf| {
            let named = name.map(|name| folder.join(name));
            let debug = name.map(|name| folder.join(format!("{}.debug", name.to_string_lossy())));
            // The forms of debuginfod's server and cache.
            let cached = [folder.join("buildid").join(id), folder.join(id)];
            let cached = cached.map(|folder| folder.join(DebugFile::DebugInfo.word()));
            by_id(folder).into_iter().chain(cached).chain(debug).chain(named).collect::<Vec<_>>()
        };
        let own = self.folders.iter().flat_map(in_folder);
        own.chain(by_id(Path::new(SYSTEM))).collect()
    }

    /// Returns the symbols in a file that is brought from elsewhere.
    fn fetched(&self, id: &str, file: DebugFile) -> Result<Option<Symbols>, String> {
        let Some(fetch) = &self.fetch else { return Ok(None) };
        let mut fetch = fetch.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = fetch(id, file)? else { return Ok(None) };
        Symbols::read(&path, id, true).map(Some).map_err(|why| format!("{}: {why}", path.display()))
    }
}

/// Where distributions install debug information.
const SYSTEM: &str = "/usr/lib/debug";

/// Returns the better one of two: that with lines, or else the first that has symbols.
fn take(best: Option<Symbols>, found: Option<Symbols>) -> Option<Symbols> {
    match (best, found) {
        (Some(best), Some(found)) if found.has_lines() || best.is_empty() => Some(found),
        (best, found) => best.or(found),
    }
}

fn offset(frame: &Frame) -> Option<u64> {
    u64::from_str_radix(frame.offset.as_deref()?.strip_prefix("0x")?, 16).ok()
}
