//! A data set: a folder with the tables of many crashes, as Parquet files.
//!
//! ```text
//! DATASET/v1/TABLE/day=2026-11-29/part-CRASH_ID.parquet
//! ```
//!
//! A file is written under a name that ends with `.partial`, which no reader takes for a part, and
//! is renamed when it is complete and on the disk. The file in `crashes` is renamed last, so that a
//! crash in that table has all its rows in the others. A part replaces the part of the same crash,
//! also that of another day: a crash is there once. A writer holds a lock on its partial file: what
//! killed writers leave has none, and the next writer removes it.
//!
//! Several processes may write into a data set, also on several machines if their file system has
//! locks. Two that write or remove the same crash wait for each other's renames at a lock file,
//! `v1/.crash-CRASH_ID.lock`, so that all parts of a crash are of one writer.

use crate::Error;
use crate::schema::{Table, VERSION};
use crate::write::{Format, Writer};
use arrow_array::RecordBatch;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The end of the name of a file that is being written.
const PARTIAL: &str = ".partial";
/// The end of the name of a lock file.
const LOCK: &str = ".lock";
/// How often a file is opened again if another process removes it before it is locked.
const TRIES: usize = 1000;
/// The day of crashes whose time is not known, as Hive writes null.
const NO_DAY: &str = "__HIVE_DEFAULT_PARTITION__";

/// A data set.
#[derive(Debug, Clone)]
pub struct DataSet {
    root: PathBuf,
}

impl DataSet {
    /// Opens the data set in a folder, or makes one.
    ///
    /// # Errors
    /// The folder cannot be read or made, or has tables of a newer version ([`Error::Version`]).
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let versions = entries(folder)?.into_iter().filter_map(|path| version_of(&path));
        if let Some(version) = versions.max().filter(|version| *version > VERSION) {
            return Err(Error::Version { path: folder.to_owned(), version });
        }
        let root = folder.join(format!("v{VERSION}"));
        fs::create_dir_all(&root).map_err(|error| Error::file(&root, error))?;
        Ok(Self { root })
    }

    /// Returns the folder of a table.
    #[must_use]
    pub fn folder(&self, table: Table) -> PathBuf {
        self.root.join(table.name())
    }

    /// Begins to write the part of a crash.
    ///
    /// # Errors
    /// The part cannot be made.
    pub fn part(&self, table: Table, id: &str, day: Option<&str>) -> Result<Part, Error> {
        let name = format!("part-{id}.parquet");
        let day = format!("day={}", day.unwrap_or(NO_DAY));
        let folder = self.folder(table).join(&day);
        let partial = folder.join(format!(".{name}.{}{PARTIAL}", std::process::id()));
        let open = || {
            fs::create_dir_all(&folder)?;
            let file = lock(&partial)?;
            // A killed writer of this process id may have left it.
            file.set_len(0).map(|()| file)
        };
        // Whoever removes the last crash of the day removes the folder.
        let file = open().or_else(|_| open()).map_err(|error| Error::file(&partial, error))?;
        let writer = Writer::new(Format::Parquet, &table.schema())?;
        let (table, out) = (self.folder(table), BufWriter::new(file));
        Ok(Part {
            table,
            folder,
            name,
            partial,
            writer: Some(writer),
            out,
            bytes: 0,
            is_placed: false,
        })
    }

    /// Waits until no other process puts parts of a crash in place or removes them. Until the lock is
    /// dropped, others wait.
    ///
    /// # Errors
    /// The lock file cannot be made or locked.
    pub(crate) fn lock(&self, id: &str) -> Result<CrashLock, Error> {
        let path = self.root.join(format!(".crash-{id}{LOCK}"));
        let file = lock(&path).map_err(|error| Error::file(&path, error))?;
        Ok(CrashLock { path, _file: file })
    }

    /// Removes what killed writers have left, and finishes removals that were cut short. Returns the
    /// number of these files and removals.
    ///
    /// # Errors
    /// A folder of the data set cannot be read.
    pub fn clean(&self) -> Result<usize, Error> {
        let mut removed = self.finish_removals()?;
        for path in entries(&self.root)?.iter().filter(|path| ends_with(path, LOCK)) {
            remove_left(path);
        }
        for table in Table::ALL {
            for day in entries(&self.folder(table))? {
                for path in entries(&day)?.iter().filter(|path| ends_with(path, PARTIAL)) {
                    removed = removed.saturating_add(usize::from(remove_left(path)));
                }
            }
        }
        Ok(removed)
    }
}

/// The lock of a crash. It is a file while it is held.
pub(crate) struct CrashLock {
    path: PathBuf,
    _file: File,
}

impl Drop for CrashLock {
    fn drop(&mut self) {
        // The next one to take the lock makes another file. `clean` removes what stays.
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens a file for writing, or makes it, and waits for its lock.
fn lock(path: &Path) -> io::Result<File> {
    for _ in 0..TRIES {
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
        if is_at(&file, path) {
            return Ok(file);
        }
    }
    Err(io::Error::other("other processes remove the file again and again"))
}

/// Returns true if the file is at the path. Only who holds the lock of the file may remove or rename
/// it, so that it stays there.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let (own, found) = (file.metadata().map(identity), path.metadata().map(identity));
    own.is_ok_and(|own| found.is_ok_and(|found| own == found))
}

/// Removes a file that no writer holds. Returns false if one does.
fn remove_left(path: &Path) -> bool {
    let Ok(file) = File::options().write(true).open(path) else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && is_at(&file, path)
        && fs::remove_file(path).is_ok()
}

fn ends_with(path: &Path, end: &str) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(end.as_bytes())
}

/// Returns the version of the tables in a folder: 2 of `v2`, if it has crashes.
fn version_of(path: &Path) -> Option<u32> {
    let number = path.file_name()?.to_str()?.strip_prefix('v')?;
    number.parse().ok().filter(|_| path.join(Table::Crashes.name()).is_dir())
}

/// Returns the paths in a folder; none if it does not exist.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = match fs::read_dir(folder) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
        Err(error) => return Err(Error::file(folder, error)),
    };
    read.map(|entry| Ok(entry.map_err(|error| Error::file(folder, error))?.path())).collect()
}

/// A part that is being written. It is removed unless it is finished.
pub struct Part {
    table: PathBuf,
    folder: PathBuf,
    name: String,
    partial: PathBuf,
    /// None once the part is complete.
    writer: Option<Writer>,
    out: BufWriter<File>,
    bytes: u64,
    /// The partial file has its last name.
    is_placed: bool,
}

impl Part {
    /// Writes a batch.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        self.writer.as_mut().map_or(Ok(()), |writer| writer.write(batch, &mut self.out))
    }

    /// Writes what is left, and waits until all of it is on the disk. Returns the number of bytes of
    /// the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn complete(&mut self) -> Result<u64, Error> {
        if let Some(writer) = self.writer.take() {
            self.bytes = writer.finish(&mut self.out)?;
            let synced = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
            synced.map_err(|error| Error::file(&self.partial, error))?;
        }
        Ok(self.bytes)
    }

    /// Puts the part in its place, and removes the part of the same crash of another day. Returns
    /// the path and the number of bytes.
    ///
    /// # Errors
    /// The file cannot be written or renamed.
    pub fn finish(mut self) -> Result<(PathBuf, u64), Error> {
        let bytes = self.complete()?;
        let path = self.folder.join(&self.name);
        let of = |error| Error::file(&path, error);
        fs::rename(&self.partial, &path).map_err(of)?;
        self.is_placed = true;
        // The name is on the disk, too.
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(of)?;
        for day in entries(&self.table)?.into_iter().filter(|day| *day != self.folder) {
            match fs::remove_file(day.join(&self.name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(of(error)),
                _ => {}
            }
        }
        Ok((path, bytes))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A partial file that has this name later is that of another writer.
        if !self.is_placed {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Cell, Rows};

    fn row(id: &str) -> RecordBatch {
        let mut rows = Rows::new(Table::Losses.schema());
        let mut cells = vec![Cell::Text(Some(id)), Cell::Text(None), Cell::Text(None)];
        cells.extend([Cell::Number(None), Cell::Text(None), Cell::Text(None)]);
        cells.extend([Cell::Bool(Some(true)), Cell::Number(None), Cell::Number(Some(7))]);
        rows.row(&cells);
        rows.finish().unwrap()
    }

    fn files(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for day in entries(folder).unwrap() {
            let name = day.file_name().unwrap().to_string_lossy().into_owned();
            let files = entries(&day).unwrap();
            found.extend(
                files
                    .iter()
                    .map(|file| format!("{name}/{}", file.file_name().unwrap().to_string_lossy())),
            );
        }
        found.sort();
        found
    }

    #[test]
    fn a_crash_is_there_once_and_what_is_not_finished_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        let set = DataSet::open(place.path()).unwrap();
        let table = set.folder(Table::Losses);
        for day in [Some("2026-11-29"), Some("2026-11-29"), None, Some("2026-11-30")] {
            let mut part = set.part(Table::Losses, "a", day).unwrap();
            part.write(&row("a")).unwrap();
            part.finish().unwrap();
            let day = day.unwrap_or(NO_DAY);
            assert_eq!(files(&table), [format!("day={day}/part-a.parquet")]);
        }
        let before = files(&table);
        let mut part = set.part(Table::Losses, "a", Some("2026-11-30")).unwrap();
        part.write(&row("a")).unwrap();
        assert_eq!(set.clean().unwrap(), 0, "its writer lives");
        assert_eq!(files(&table).len(), 2);
        drop(part);
        assert_eq!(files(&table), before);
        // The file of a killed writer.
        let left = table.join("day=2026-11-30/.part-b.parquet.1.partial");
        fs::write(&left, "PAR1").unwrap();
        assert_eq!((set.clean().unwrap(), files(&table)), (1, before));
    }

    /// Threads add and remove the same two crashes, and clean up, at the same time. What one of them
    /// writes, no other one removes, and nothing is left. The locks are those of open files, so that
    /// threads exclude each other as processes do.
    #[test]
    fn writers_of_the_same_crash_do_not_disturb_each_other() {
        let place = tempfile::tempdir().unwrap();
        let set = DataSet::open(place.path()).unwrap();
        let add = |id: &str, day: &str| {
            let part = |table| set.part(table, id, Some(day)).unwrap();
            let mut parts: Vec<Part> = Table::ALL.into_iter().map(part).collect();
            parts.iter_mut().for_each(|part| _ = part.complete().unwrap());
            let _lock = set.lock(id).unwrap();
            parts.into_iter().for_each(|part| _ = part.finish().unwrap());
        };
        std::thread::scope(|scope| {
            for days in [["2026-11-29", "2026-11-30"], ["2026-11-30", "2026-11-29"]] {
                scope.spawn(move || {
                    for number in 0..40 {
                        add(["a", "b"][number % 2], days[number / 2 % 2]);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..60 {
                    set.clean().unwrap();
                    set.remove("b").unwrap();
                }
            });
        });
        add("b", "2026-11-30");
        let of_crashes = files(&set.folder(Table::Crashes));
        assert_eq!(of_crashes.len(), 2, "{of_crashes:?}");
        for table in Table::ALL {
            assert_eq!(files(&set.folder(table)), of_crashes, "{}", table.name());
        }
        assert!(entries(&set.root).unwrap().iter().all(|path| !ends_with(path, LOCK)));
    }
}
