//! Reads and writes bundles. A bundle describes the events of a kernel. It is saved while the
//! kernel runs, for the case that only the kernel's ring buffer is left.
//!
//! A bundle is a tar archive compressed by zstd. Its files have their names below tracefs and
//! /proc: `events/SYSTEM/NAME/format`, `events/header_page`, `kallsyms`, `modules`,
//! `printk_formats`, `saved_cmdlines`, `saved_tgids`, `trace_clock`, `uname`, `notes` (the kernel's
//! ELF notes with its build id), `btf/vmlinux`.

use lastwords_bytes::{Budget, ByteOrder};
use lastwords_ftrace::{Format, HeaderPage, Tracing};
use lastwords_ftrace::{dat, format_file};
use lastwords_image::decompress;
use lastwords_kernel::notes;
use lastwords_trace::evidence::{Evidence, Gap};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The level of compression. Saving stays quick, and kallsyms shrinks to a tenth.
const LEVEL: i32 = 9;

/// The files that are read from a bundle besides those in `events/`.
const FILES: [&str; 9] = [
    "kallsyms",
    "modules",
    "printk_formats",
    "saved_cmdlines",
    "saved_tgids",
    "trace_clock",
    "uname",
    "notes",
    "btf/vmlinux",
];

/// The files that are lists.
const LISTS: [&str; 5] = ["kallsyms", "modules", "printk_formats", "saved_cmdlines", "saved_tgids"];

/// The files with the names of tasks, which change while the kernel runs.
const TASKS: [&str; 2] = ["saved_cmdlines", "saved_tgids"];

/// The folder of the state of lastwords, unless the environment variable `LASTWORDS_STATE` names
/// another.
const STATE: &str = "/var/lib/lastwords";

/// Returns the folder in which the unit `lastwords-bundle.service` saves the bundle of each kernel.
#[must_use]
pub fn folder() -> PathBuf {
    let state = std::env::var_os("LASTWORDS_STATE").filter(|state| !state.is_empty());
    state.map_or_else(|| PathBuf::from(STATE), PathBuf::from).join("bundles")
}

/// Returns the folder where tracefs is mounted.
///
/// # Errors
/// It is not mounted, or this user may not enter it.
pub fn tracefs_folder() -> Result<&'static Path, BundleError> {
    let mut places =
        ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(Path::new).into_iter();
    places.find(|path| path.join("events").is_dir()).ok_or(BundleError::NoTracefs)
}

/// The reason why a bundle cannot be made, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// tracefs is not mounted, or this user may not enter it.
    #[error(
        "/sys/kernel/tracing: tracefs is not there, or not for this user: `mount -t tracefs nodev /sys/kernel/tracing`"
    )]
    NoTracefs,
    /// A file or folder cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        #[source]
        error: std::io::Error,
    },
    /// There is no format of an event.
    #[error("{from}: no format of an event is in it (events/SYSTEM/NAME/format)")]
    NoFormat {
        /// The folder, or the name of the bundle.
        from: String,
    },
    /// The bytes are not those of a bundle.
    #[error("{from}: no bundle of lastwords")]
    NoBundle {
        /// The name of the bundle.
        from: String,
        /// The reason.
        #[source]
        error: std::io::Error,
    },
    /// The budget is spent.
    #[error(transparent)]
    Budget(#[from] lastwords_bytes::Error),
}

impl BundleError {
    /// A file cannot be used, because of an error.
    fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }
}

/// A bundle in memory.
#[derive(Debug, Default)]
pub struct Bundle {
    /// The files by name.
    files: BTreeMap<String, Vec<u8>>,
    /// Files that could not be read, and why.
    pub missing: Vec<String>,
    /// The fact that the end of the archive is missing, which takes files with it.
    cut: Option<Gap>,
}

impl Bundle {
    /// Makes a bundle of the files in a folder. They have their names below tracefs and /proc.
    ///
    /// # Errors
    /// The folder cannot be read, or has no format of an event.
    pub fn of_tree(tree: &Path) -> Result<Self, BundleError> {
        let mut bundle = Self::default();
        bundle.add_events(&tree.join("events"), None)?;
        for name in FILES {
            bundle.add(name, &tree.join(name));
        }
        bundle.check(tree)?;
        Ok(bundle)
    }

    /// Makes a bundle of the files of the running kernel. Root can read all of them; for other
    /// users, the symbols are missing.
    ///
    /// # Errors
    /// tracefs is not mounted, or cannot be read.
    pub fn of_running_kernel() -> Result<Self, BundleError> {
        let mut bundle = Self::of_running_tracer(None)?;
        bundle.add("notes", Path::new("/sys/kernel/notes"));
        bundle.add("btf/vmlinux", Path::new("/sys/kernel/btf/vmlinux"));
        Ok(bundle)
    }

    /// Makes a bundle of what describes the events of the running kernel to a reader of them:
    /// formats, symbols, modules and names. Types, by which the kernel's memory is read, are left
    /// out. The formats are those of `recorded`, a list of `SYSTEM:EVENT`, and of the system
    /// `ftrace`, whose events the tracer records by itself. Without a list, they are those of all
    /// events, which takes the kernel a tenth of a second to print.
    ///
    /// # Errors
    /// tracefs is not mounted, or cannot be read.
    pub fn of_running_tracer(recorded: Option<&BTreeSet<String>>) -> Result<Self, BundleError> {
        let tracefs = tracefs_folder()?;
        let mut bundle = Self::default();
        bundle.add_events(&tracefs.join("events"), recorded)?;
        for name in ["printk_formats", "trace_clock"].into_iter().chain(TASKS) {
            bundle.add(name, &tracefs.join(name));
        }
        bundle.add("kallsyms", Path::new("/proc/kallsyms"));
        bundle.add("modules", Path::new("/proc/modules"));
        let uname = rustix::system::uname();
        let words =
            [uname.sysname(), uname.nodename(), uname.release(), uname.version(), uname.machine()];
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        bundle
            .files
            .insert("uname".to_owned(), format!("{} GNU/Linux\n", words.join(" ")).into_bytes());
        bundle.check(tracefs)?;
        Ok(bundle)
    }

    /// Makes a bundle of what has changed since a bundle was made of the running tracer, whose
    /// `modules` are given. That is the names of tasks, and if a module was loaded or unloaded
    /// since then, everything.
    ///
    /// # Errors
    /// tracefs is not mounted, or cannot be read.
    pub fn of_changes(modules: &[(String, u64)]) -> Result<Self, BundleError> {
        let tracefs = tracefs_folder()?;
        let mut bundle = Self::default();
        bundle.add("modules", Path::new("/proc/modules"));
        if bundle.modules() != modules {
            return Self::of_running_tracer(None);
        }
        for name in TASKS {
            bundle.add(name, &tracefs.join(name));
        }
        Ok(bundle)
    }

    fn check(&self, from: &Path) -> Result<(), BundleError> {
        match self.files.keys().any(|name| name.ends_with("/format")) {
            true => Ok(()),
            false => Err(BundleError::NoFormat { from: from.display().to_string() }),
        }
    }

    /// Adds the formats of all events, or of some and of those of the system `ftrace`, and the
    /// format of a sub-buffer's header.
    fn add_events(
        &mut self,
        events: &Path,
        recorded: Option<&BTreeSet<String>>,
    ) -> Result<(), BundleError> {
        let folders = |path: &Path| -> Result<Vec<PathBuf>, BundleError> {
            let entries =
                std::fs::read_dir(path).map_err(|error| BundleError::file(path, error))?;
            let mut paths: Vec<PathBuf> =
                entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            paths.retain(|path| path.is_dir());
            paths.sort();
            Ok(paths)
        };
        self.add("events/header_page", &events.join("header_page"));
        for (system, event) in
            recorded.into_iter().flatten().filter_map(|name| name.split_once(':'))
        {
            let name = format!("{system}/{event}/format");
            self.add(&format!("events/{name}"), &events.join(&name));
        }
        let systems = match recorded {
            Some(_) => vec![events.join("ftrace")],
            None => folders(events)?,
        };
        for system in systems {
            for event in folders(&system)? {
                let format = event.join("format");
                if format.is_file()
                    && let Ok(name) = format.strip_prefix(events)
                {
                    self.add(&format!("events/{}", name.display()), &format);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, path: &Path) {
        match std::fs::read(path) {
            Ok(bytes) => _ = self.files.insert(name.to_owned(), bytes),
            Err(error) => self.missing.push(format!("{}: {error}", path.display())),
        }
    }

    /// Writes the bundle. The file must not exist.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), BundleError> {
        let named = |error| BundleError::file(path, error);
        let file = File::create_new(path).map_err(named)?;
        let mut out = self.write_to(BufWriter::new(file), LEVEL).map_err(named)?;
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(named)
    }

    /// Writes the archive of the bundle, compressed by a level of zstd, and returns what it was
    /// written into.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_to<W: std::io::Write>(&self, out: W, level: i32) -> std::io::Result<W> {
        let mut encoder = zstd::Encoder::new(out, level)?;
        // A damaged byte is an error, and no other text.
        encoder.include_checksum(true)?;
        let mut archive = tar::Builder::new(encoder);
        for (name, bytes) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            archive.append_data(&mut header, name, bytes.as_slice())?;
        }
        archive.into_inner()?.finish()
    }

    /// Reads a bundle. Its files cost the budget. If the end of the archive is missing, the files
    /// before it are read.
    ///
    /// # Errors
    /// The file is not a bundle, or the budget is spent.
    pub fn read(path: &Path, budget: &Budget) -> Result<Self, BundleError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| BundleError::file(path, error))?;
        budget.admit(file.metadata().map_or(0, |metadata| lastwords_bytes::stored(&metadata)));
        let mut bundle = Self::default();
        match bundle.update_from(&name, file, budget) {
            Err(BundleError::NoBundle { error, .. })
                if error.kind() == ErrorKind::UnexpectedEof && bundle.check(path).is_ok() =>
            {
                let fact = format!(
                    "{name}: the files of the bundle behind the first {}, because its end is missing",
                    bundle.files.len()
                );
                bundle.cut = Some(Gap::not_known(None, &fact));
            }
            read => read?,
        }
        bundle.check(path)?;
        Ok(bundle)
    }

    /// Reads the archive of a bundle. `from` is its name in errors. Its files cost the budget.
    ///
    /// # Errors
    /// The bytes are not a bundle, or the budget is spent.
    pub fn read_from(
        from: &str,
        bytes: impl std::io::Read,
        budget: &Budget,
    ) -> Result<Self, BundleError> {
        let mut bundle = Self::default();
        bundle.update_from(from, bytes, budget)?;
        bundle.check(Path::new(from))?;
        Ok(bundle)
    }

    /// Reads the archive of changes ([`Self::of_changes`]), whose files replace those of the same
    /// names.
    ///
    /// # Errors
    /// The bytes are not an archive, or the budget is spent.
    pub fn update_from(
        &mut self,
        from: &str,
        bytes: impl std::io::Read,
        budget: &Budget,
    ) -> Result<(), BundleError> {
        let named = |error| BundleError::NoBundle { from: from.to_owned(), error };
        let mut archive =
            tar::Archive::new(decompress::reader(from, bytes, budget).map_err(named)?);
        // An archive ends with blocks of zeros. The files behind a block that reads as zero are no
        // part of its end.
        archive.set_ignore_zeros(true);
        for entry in archive.entries().map_err(named)? {
            let mut entry = entry.map_err(named)?;
            budget.steps(from, 1)?;
            let name = entry.path().map_err(named)?.display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(named)?;
            if bytes.len() as u64 != entry.size() {
                return Err(named(ErrorKind::UnexpectedEof.into()));
            }
            self.files.insert(name, bytes);
        }
        Ok(())
    }

    /// Returns what is missing of the archive and of lists in it: each line of a list ends.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        let is_cut = |name: &&str| {
            let last = self.files.get(*name).and_then(|bytes| bytes.last());
            last.is_some_and(|byte| *byte != b'\n')
        };
        let cut = LISTS.into_iter().filter(is_cut);
        let cut = cut.map(|name| {
            Gap::not_known(None, &format!("bundle, {name}: the end of the list is cut off"))
        });
        self.cut.iter().cloned().chain(cut).collect()
    }

    /// Returns a file as text. It is empty if the bundle does not have the file.
    fn text(&self, name: &str) -> String {
        self.files
            .get(name)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .unwrap_or_default()
    }

    /// Returns the description as that of a tracer without arrays, on a machine of the byte order
    /// of this process. Without `events/header_page`, the layout of sub-buffers is that of a 64-bit
    /// kernel.
    #[must_use]
    pub fn tracing(&self) -> Tracing {
        let (formats, notes) = self.formats();
        let uname = self.uname();
        let header_page = self.header_page().unwrap_or(HeaderPage::of_word_size(8));
        Tracing {
            page_size: u32::try_from(rustix::param::page_size()).unwrap_or(4096),
            cpus: std::thread::available_parallelism()
                .map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1)),
            formats,
            comms: self.comms(),
            learns_comms: true,
            tgids: self.tgids(),
            printk_formats: self.printk_formats(),
            symbols: Arc::new(self.kallsyms()),
            clocks: self.clocks(),
            evidence: Evidence { notes, ..Evidence::default() },
            ..Tracing::from_uname(&uname, header_page, ByteOrder::NATIVE)
        }
    }

    /// Returns the words of `uname -a`.
    pub(super) fn uname(&self) -> String {
        self.text("uname").trim_end().to_owned()
    }

    /// Returns the event formats by ID, and remarks on those that cannot be parsed.
    pub(super) fn formats(&self) -> (BTreeMap<u16, Format>, Vec<String>) {
        let (mut formats, mut notes) = (BTreeMap::new(), Vec::new());
        for (name, text) in &self.files {
            let Some(path) =
                name.strip_prefix("events/").and_then(|name| name.strip_suffix("/format"))
            else {
                continue;
            };
            let system = path.split('/').next().unwrap_or_default();
            match format_file::parse(system, &String::from_utf8_lossy(text)) {
                Some(format) => _ = formats.insert(format.id, format),
                None => notes.push(format!("bundle, {name}: the text is no format of an event")),
            }
        }
        (formats, notes)
    }

    /// Returns the format of a sub-buffer's header, if the bundle has it.
    pub(super) fn header_page(&self) -> Option<HeaderPage> {
        format_file::parse_header_page(&self.text("events/header_page"))
    }

    /// Returns the symbols of `/proc/kallsyms`.
    pub(super) fn kallsyms(&self) -> dat::Listed {
        dat::Listed::new(self.text("kallsyms"))
    }

    /// Returns the modules of `/proc/modules` with the addresses of their code.
    #[must_use]
    pub fn modules(&self) -> Vec<(String, u64)> {
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let name = words.next()?.to_owned();
            let address = words.find_map(|word| word.strip_prefix("0x"))?;
            Some((name, u64::from_str_radix(address, 16).ok()?))
        };
        dat::whole_lines(&self.text("modules")).lines().filter_map(row).collect()
    }

    pub(super) fn printk_formats(&self) -> BTreeMap<u64, String> {
        dat::printk_formats(&self.text("printk_formats"))
    }

    pub(super) fn comms(&self) -> BTreeMap<u32, String> {
        dat::comms(&self.text("saved_cmdlines"))
    }

    pub(super) fn tgids(&self) -> BTreeMap<u32, u32> {
        let row = |line: &str| {
            let (pid, tgid) = line.split_once(' ')?;
            Some((pid.parse().ok()?, tgid.trim().parse().ok()?))
        };
        dat::whole_lines(&self.text("saved_tgids")).lines().filter_map(row).collect()
    }

    /// Returns the list of clocks, with the chosen clock in brackets.
    pub(super) fn clocks(&self) -> String {
        self.text("trace_clock").trim_end().to_owned()
    }

    /// Returns the kernel's build id. Returns none if the bundle has no notes.
    pub(super) fn build_id(&self) -> Option<String> {
        notes::build_id(self.files.get("notes")?, self.byte_order())
    }

    /// Returns the kernel's type information.
    pub(super) fn btf(&self) -> Option<&[u8]> {
        self.files.get("btf/vmlinux").map(Vec::as_slice)
    }

    /// Returns the byte order of the kernel's type information. It is little-endian if the bundle
    /// has none.
    pub(super) fn byte_order(&self) -> ByteOrder {
        match self.files.get("btf/vmlinux").and_then(|btf| btf.first_chunk::<2>()) {
            Some([0xeb, 0x9f]) => ByteOrder::Big,
            _ => ByteOrder::Little,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: wake\nID: 7\nformat:\n\tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"\"\n";

    fn read(bytes: &[u8]) -> Result<Bundle, BundleError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Bundle::read(file.path(), &Budget::default())
    }

    /// Each file that is read is whole. A cut is told, and a changed byte refused.
    #[test]
    fn a_cut_bundle_has_the_files_before_the_cut_and_a_damaged_one_none() {
        let mut whole = Bundle::default();
        let symbols: String = (0..20_000u64)
            .map(|at| format!("{:016x} T f_{at}\n", at.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        for (name, text) in [
            ("events/sched/wake/format", FORMAT),
            ("kallsyms", &symbols),
            ("uname", &"Linux ".repeat(600)),
        ] {
            whole.files.insert(name.into(), text.into());
        }
        let packed = whole.write_to(Vec::new(), LEVEL).unwrap();
        let plain = zstd::decode_all(packed.as_slice()).unwrap();
        assert_eq!(read(&packed).unwrap().files, whole.files);
        assert_eq!(
            (read(&plain).unwrap().files, read(&plain).unwrap().cut),
            (whole.files.clone(), None)
        );
        let mut counts = BTreeSet::new();
        for bytes in [&packed, &plain] {
            let near_end = (bytes.len() - 6000..bytes.len()).step_by(100);
            for cut in (0..bytes.len()).step_by(bytes.len() / 300 + 1).chain(near_end) {
                let Ok(found) = read(&bytes[..cut]) else { continue };
                assert!(
                    found.files.iter().all(|(name, text)| whole.files[name] == *text),
                    "cut at {cut}"
                );
                let is_whole = found.files.len() == whole.files.len();
                assert!(is_whole || found.cut.is_some(), "cut at {cut}: {:?}", found.cut);
                counts.insert(found.files.len());
            }
        }
        assert!(counts.contains(&1) && counts.contains(&2), "{counts:?}");
        for at in (0..packed.len()).step_by(packed.len() / 200 + 1) {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x10;
            if let Ok(found) = read(&damaged) {
                assert_eq!(found.files, whole.files, "byte {at}");
            }
        }
        // The head of a file reads as zero: those behind it are not silently missing.
        let begin = plain.windows(8).position(|bytes| bytes == b"kallsyms").unwrap();
        let mut damaged = plain;
        damaged[begin..begin + 512].fill(0);
        assert!(read(&damaged).is_err());
    }

    #[test]
    fn the_last_line_of_a_list_counts_if_it_ends() {
        let mut bundle = Bundle::default();
        for (name, text) in [
            ("saved_cmdlines", "7 shell\n9 init"),
            ("saved_tgids", "7 70\n9 900"),
            ("printk_formats", "0x10 : \"a %d\\n\"\n0x20 : \"b"),
            ("modules", "one 16384 0 - Live 0xffffffffc0000000\ntwo 16384 0 - Live 0xffffffffc0"),
        ] {
            bundle.files.insert(name.into(), text.into());
        }
        assert_eq!(bundle.comms(), BTreeMap::from([(7, "shell".to_owned())]));
        assert_eq!(bundle.tgids(), BTreeMap::from([(7, 70)]));
        assert_eq!(bundle.printk_formats(), BTreeMap::from([(0x10, "a %d\n".to_owned())]));
        assert_eq!(bundle.modules(), [("one".to_owned(), 0xffff_ffff_c000_0000)]);
        assert_eq!(bundle.gaps().len(), 4);
    }
}
