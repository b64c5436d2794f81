//! Names the frames of backtraces: functions with those inlined into them, files and lines, from
//! the debug information of the modules' files, or else from their symbol tables.
//!
//! A file is used only if its build ID is the one that the recorder saw, so that a program which
//! was built anew in the meantime gives no wrong names. Debug information in a file of its own is
//! looked for where distributions install it: `/usr/lib/debug/.build-id/`.

use crate::crash::{Crash, Frame, Function};
use addr2line::demangle_auto;
use gimli::{Dwarf, EndianArcSlice, RunTimeEndian, SectionId};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most that is read of the debug information of one module.
const MOST_BYTES: u64 = 4 << 30;

type Bytes = EndianArcSlice<RunTimeEndian>;

/// Names the frames of all backtraces from the files of their modules on this machine. Returns a
/// remark for each module whose frames cannot be named.
#[must_use]
pub fn name_frames(crashes: &mut [Crash]) -> Vec<String> {
    let mut modules: BTreeMap<(String, Option<String>), Result<Symbols, String>> = BTreeMap::new();
    for crash in crashes {
        let is_signal = crash.event.ends_with(":signal");
        for (depth, frame) in crash.backtrace.iter_mut().enumerate() {
            let (Some(module), Some(offset)) = (frame.module.clone(), offset(frame)) else {
                continue;
            };
            let id = frame.build_id.clone();
            let symbols = modules
                .entry((module, id))
                .or_insert_with_key(|(path, id)| Symbols::open(path, id.as_deref()));
            if let Ok(symbols) = symbols {
                // A return address is behind the call; the address of a signal is the instruction's
                // own.
                let address =
                    if is_signal && depth == 0 { offset } else { offset.saturating_sub(1) };
                frame.functions = symbols.functions(address);
            }
        }
    }
    let failed =
        modules.into_iter().filter_map(|((path, _), symbols)| Some((path, symbols.err()?)));
    failed.map(|(path, why)| format!("no symbols of {}: {why}", crate::escape(&path))).collect()
}

fn offset(frame: &Frame) -> Option<u64> {
    u64::from_str_radix(frame.offset.as_deref()?.strip_prefix("0x")?, 16).ok()
}

/// The debug information and the symbol table of a module.
struct Symbols {
    lines: Option<addr2line::Context<Bytes>>,
    /// The functions of the symbol table: first address, the address behind the last, name; in
    /// order.
    table: Vec<(u64, u64, String)>,
}

impl Symbols {
    /// Opens the file of a module, and the file with its debug information if there is one.
    fn open(path: &str, build_id: Option<&str>) -> Result<Self, String> {
        let id = build_id.ok_or(
            "it has no build ID, so that nothing shows whether its file is still the same",
        )?;
        let own = Self::read(Path::new(path), id);
        if own.as_ref().is_ok_and(|own| own.lines.is_some()) {
            return own;
        }
        match debug_file(id).filter(|file| file.exists()).map(|file| Self::read(&file, id)) {
            Some(Ok(separate)) => Ok(separate),
            _ => own,
        }
    }

    fn read(path: &Path, build_id: &str) -> Result<Self, String> {
        // The path comes from the recording. Opening a pipe or a device could wait, or do
        // something.
        if !path.is_absolute() || !path.metadata().map_err(|error| error.to_string())?.is_file() {
            return Err("it is no file".to_owned());
        }
        let file = File::open(path).map_err(|error| error.to_string())?;
        let cache = ReadCache::new(file);
        let object = object::File::parse(&cache).map_err(|error| error.to_string())?;
        let id = object.build_id().map_err(|error| error.to_string())?.unwrap_or_default();
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        if id != build_id {
            return Err(format!(
                "the file is another now: the program that recorded had the build ID {build_id}"
            ));
        }
        Ok(Self { lines: lines(&object), table: table(&object) })
    }

    /// Returns the functions at an address, the innermost first. Debug information that has lines
    /// only, and no functions, is joined with the symbol table.
    fn functions(&self, address: u64) -> Vec<Function> {
        let behind = self.table.partition_point(|(begin, ..)| *begin <= address);
        let symbol = behind
            .checked_sub(1)
            .and_then(|at| self.table.get(at))
            .filter(|(_, end, _)| address < *end);
        let symbol = symbol.map(|(_, _, name)| name);
        let located = self.lines.as_ref().map_or_else(Vec::new, |lines| inlined(lines, address));
        if located.is_empty() {
            return symbol
                .map(|name| Function { name: name.clone(), file: None, line: None })
                .into_iter()
                .collect();
        }
        let named = |(name, file, line): (Option<String>, _, _)| {
            let name = name.or_else(|| symbol.cloned()).unwrap_or_else(|| "?".to_owned());
            Function { name, file, line }
        };
        located.into_iter().map(named).collect()
    }
}

/// Returns where distributions install the debug information of a build.
fn debug_file(id: &str) -> Option<PathBuf> {
    let (first, rest) = id.split_at_checked(2)?;
    Some(Path::new("/usr/lib/debug/.build-id").join(first).join(format!("{rest}.debug")))
}

/// Loads the debug information; none if there is none, or it is damaged.
fn lines<'data>(object: &impl Object<'data>) -> Option<addr2line::Context<Bytes>> {
    object.section_by_name(".debug_info").or_else(|| object.section_by_name(".zdebug_info"))?;
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let mut left = MOST_BYTES;
    let mut load = |id: SectionId| -> Result<Bytes, object::Error> {
        let section = object.section_by_name(id.name());
        let size = section.as_ref().and_then(|section| section.compressed_data().ok());
        let size = size.map_or(0, |data| data.uncompressed_size);
        let data = match section {
            Some(section) if size <= left => section.uncompressed_data()?,
            _ => Cow::Borrowed(&[][..]),
        };
        left = left.saturating_sub(size);
        Ok(EndianArcSlice::new(Arc::from(&*data), endian))
    };
    addr2line::Context::from_dwarf(Dwarf::load(&mut load).ok()?).ok()
}

/// Returns the functions of the symbol tables, in order of their addresses.
fn table<'data>(object: &impl Object<'data>) -> Vec<(u64, u64, String)> {
    let symbols = object.symbols().chain(object.dynamic_symbols());
    let functions = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
    let mut table: Vec<(u64, u64, String)> = functions
        .filter_map(|symbol| {
            let (begin, name) = (symbol.address(), symbol.name().ok()?);
            Some((
                begin,
                begin.checked_add(symbol.size())?,
                demangle_auto(Cow::Borrowed(name), None).into_owned(),
            ))
        })
        .collect();
    table.sort();
    table.dedup_by_key(|(begin, ..)| *begin);
    table
}

/// A function by the debug information: its name, source file and line.
type Located = (Option<String>, Option<String>, Option<u32>);

/// Returns the functions at an address by the debug information, the innermost first.
fn inlined(lines: &addr2line::Context<Bytes>, address: u64) -> Vec<Located> {
    let Ok(mut frames) = lines.find_frames(address).skip_all_loads() else { return Vec::new() };
    let mut functions = Vec::new();
    while let Ok(Some(frame)) = frames.next() {
        let name = frame
            .function
            .as_ref()
            .and_then(|function| Some(function.demangle().ok()?.into_owned()));
        let location = frame.location.as_ref();
        let file = location.and_then(|location| location.file).map(str::to_owned);
        functions.push((name, file, location.and_then(|location| location.line)));
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_build_gives_no_names() {
        let program = std::env::current_exe().unwrap();
        let why = Symbols::read(&program, "00ff").err().unwrap();
        assert!(why.contains("the file is another now"), "{why}");
        for path in ["/dev/null", "relative", "/"] {
            assert!(Symbols::read(Path::new(path), "00ff").is_err(), "{path}");
        }
        assert!(Symbols::open(program.to_str().unwrap(), None).is_err());
    }
}
