//! A file with debug information or a symbol table. What it claims is bounded by its size.

use crate::crash::Function;
use addr2line::demangle_auto;
use gimli::{Dwarf, EndianArcSlice, RunTimeEndian, SectionId};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The most that is read of the debug information of one module.
const MOST_BYTES: u64 = 4 << 30;
/// The most that debug information may grow when it is decompressed: so many times the file's size,
/// and so many bytes.
const MOST_GROWTH: u64 = 32;
const MOST_OF_SMALL: u64 = 64 << 20;
/// The longest name of a symbol, bytes, and the most names in proportion to the file's size.
const LONGEST_NAME: usize = 16 << 10;
const MOST_NAMES: u64 = 4;
/// The deepest tree of debug information that is read: addr2line reads it by recursion.
const DEEPEST: isize = 1000;

type Bytes = EndianArcSlice<RunTimeEndian>;

/// The kinds of files that a server of debug information has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DebugFile {
    /// The debug information.
    DebugInfo,
    /// The program or library itself.
    Executable,
}

impl DebugFile {
    /// Returns the last part of its path on a server.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::DebugInfo => "debuginfo",
            Self::Executable => "executable",
        }
    }
}

/// Why a file gives no symbols.
#[derive(Debug)]
pub(super) enum Why {
    /// It is not there.
    Missing(String),
    /// It is of another build, or cannot be read.
    Refused(String),
}

impl fmt::Display for Why {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Missing(why) | Self::Refused(why)) = self;
        to.write_str(why)
    }
}

/// Checks that a file has a build ID.
///
/// # Errors
/// It has another one or none, or cannot be read.
pub fn check_build_id(path: &Path, build_id: &str) -> Result<(), String> {
    opened(path, build_id, |_, _| ()).map_err(|why| why.to_string())
}

/// Calls `take` with the object in a file, and the file's size, if it has a build ID.
fn opened<T>(
    path: &Path,
    build_id: &str,
    take: impl FnOnce(&object::File<'_, &ReadCache<File>>, u64) -> T,
) -> Result<T, Why> {
    // The path comes from the recording. Opening a pipe or a device could wait, or do
    // something.
    let facts = path.metadata().map_err(|error| Why::Missing(error.to_string()))?;
    if !path.is_absolute() || !facts.is_file() {
        return Err(Why::Missing("it is no file".to_owned()));
    }
    let refused = |error: &dyn fmt::Display| Why::Refused(error.to_string());
    let file = File::open(path).map_err(|error| refused(&error))?;
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).map_err(|error| refused(&error))?;
    let id = object.build_id().map_err(|error| refused(&error))?.unwrap_or_default();
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    if id != build_id {
        let id = if id.is_empty() { "none" } else { &id };
        return Err(Why::Refused(format!(
            "the file is another now: the program that recorded had the build ID {build_id}, the file has {id}"
        )));
    }
    Ok(take(&object, facts.len()))
}

/// The debug information and the symbol table of a module.
pub(super) struct Symbols {
    lines: Option<addr2line::Context<Bytes>>,
    /// The functions of the symbol table: first address, the address behind the last, name as the
    /// linker knows it; in order.
    table: Vec<(u64, u64, String)>,
}

impl Symbols {
    /// Reads a file. Less is believed of one that a server sent (`is_foreign`).
    pub(super) fn read(path: &Path, build_id: &str, is_foreign: bool) -> Result<Self, Why> {
        opened(path, build_id, |object, size| Self {
            lines: lines(object, size, is_foreign),
            table: table(object, size),
        })
    }

    /// Returns true if it has debug information.
    pub(super) fn has_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Returns true if it can name nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_none() && self.table.is_empty()
    }

    /// Returns the functions at an address, the innermost first. Debug information that has lines
    /// only, and no functions, is joined with the symbol table.
    pub(super) fn functions(&self, address: u64) -> Vec<Function> {
        let behind = self.table.partition_point(|(begin, ..)| *begin <= address);
        let symbol = behind
            .checked_sub(1)
            .and_then(|at| self.table.get(at))
            .filter(|(_, end, _)| address < *end);
        let symbol = symbol.map(|(_, _, name)| demangled(name));
        let located = self.lines.as_ref().map_or_else(Vec::new, |lines| inlined(lines, address));
        if located.is_empty() {
            return symbol
                .map(|name| Function { name, file: None, line: None })
                .into_iter()
                .collect();
        }
        let named = |(name, file, line): (Option<String>, _, _)| {
            let name = name.or_else(|| symbol.clone()).unwrap_or_else(|| "?".to_owned());
            Function { name, file, line }
        };
        located.into_iter().map(named).collect()
    }
}

/// Loads the debug information; none if there is none, or it is damaged.
fn lines<'data>(
    object: &impl Object<'data>,
    size: u64,
    is_foreign: bool,
) -> Option<addr2line::Context<Bytes>> {
    object.section_by_name(".debug_info").or_else(|| object.section_by_name(".zdebug_info"))?;
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let mut left = size.saturating_mul(MOST_GROWTH).saturating_add(MOST_OF_SMALL).min(MOST_BYTES);
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
    let dwarf = Dwarf::load(&mut load).ok()?;
    if is_foreign && !is_shallow(&dwarf) {
        return None;
    }
    addr2line::Context::from_dwarf(dwarf).ok()
}

/// Returns true if no tree of debug information is deeper than any compiler makes one.
fn is_shallow(dwarf: &Dwarf<Bytes>) -> bool {
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        let Ok(mut entries) = unit.entries_raw(None) else { continue };
        while !entries.is_empty() {
            if entries.next_depth() > DEEPEST {
                return false;
            }
            let Ok(abbreviation) = entries.read_abbreviation() else { break };
            let attributes = abbreviation.map(|own| own.attributes()).unwrap_or_default();
            if entries.skip_attributes(attributes).is_err() {
                break;
            }
        }
    }
    true
}

fn demangled(name: &str) -> String {
    demangle_auto(Cow::Borrowed(name), None).into_owned()
}

/// Returns the functions of the symbol tables, in order of their addresses.
fn table<'data>(object: &impl Object<'data>, size: u64) -> Vec<(u64, u64, String)> {
    let symbols = object.symbols().chain(object.dynamic_symbols());
    let functions = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
    // Many symbols may claim one long name.
    let mut left = size.saturating_mul(MOST_NAMES);
    let mut table: Vec<(u64, u64, String)> = functions
        .filter_map(|symbol| {
            let (begin, name) = (symbol.address(), symbol.name().ok()?);
            left = left.checked_sub(name.len() as u64).filter(|_| name.len() <= LONGEST_NAME)?;
            Some((begin, begin.checked_add(symbol.size())?, name.to_owned()))
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
        let why = Symbols::read(&program, "00ff", false).err().unwrap().to_string();
        assert!(why.contains("the file is another now"), "{why}");
        for path in ["/dev/null", "relative", "/"] {
            assert!(Symbols::read(Path::new(path), "00ff", false).is_err(), "{path}");
        }
    }
}
