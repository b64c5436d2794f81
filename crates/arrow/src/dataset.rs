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

use crate::Error;
use crate::schema::{Table, VERSION};
use crate::write::{Format, Writer};
use arrow_array::RecordBatch;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// The end of the name of a file that is being written.
const PARTIAL: &str = ".partial";
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
    /// The folder cannot be made.
    pub fn open(folder: &Path) -> Result<Self, Error> {
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
            File::options().write(true).create(true).truncate(true).open(&partial)
        };
        // Whoever removes the last crash of the day removes the folder.
        let file = open().or_else(|_| open()).map_err(|error| Error::file(&partial, error))?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| Error::file(&partial, error.into()))?;
        let writer = Writer::new(Format::Parquet, &table.schema())?;
        let (table, out) = (self.folder(table), BufWriter::new(file));
        Ok(Part { table, folder, name, partial, writer: Some(writer), out })
    }

    /// Removes what killed writers have left, and finishes removals that were cut short. Returns the
    /// number of these files and removals.
    ///
    /// # Errors
    /// A folder of the data set cannot be read.
    pub fn clean(&self) -> Result<usize, Error> {
        let mut removed = self.finish_removals()?;
        for table in Table::ALL {
            for day in entries(&self.folder(table))? {
                for path in entries(&day)? {
                    let is_partial = path.to_string_lossy().ends_with(PARTIAL);
                    if is_partial && is_left(&path) && fs::remove_file(&path).is_ok() {
                        removed = removed.saturating_add(1);
                    }
                }
            }
        }
        Ok(removed)
    }
}

/// Returns true if no writer holds the file.
fn is_left(path: &Path) -> bool {
    File::open(path)
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
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
    writer: Option<Writer>,
    out: BufWriter<File>,
}

impl Part {
    /// Writes a batch.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        self.writer.as_mut().map_or(Ok(()), |writer| writer.write(batch, &mut self.out))
    }

    /// Puts the part in its place, and removes the part of the same crash of another day. Returns
    /// the path and the number of bytes.
    ///
    /// # Errors
    /// The file cannot be written or renamed.
    pub fn finish(mut self) -> Result<(PathBuf, u64), Error> {
        let mut bytes = 0;
        let path = self.folder.join(&self.name);
        let of = |error| Error::file(&path, error);
        if let Some(writer) = self.writer.take() {
            bytes = writer.finish(&mut self.out)?;
            self.out.flush().and_then(|()| self.out.get_ref().sync_all()).map_err(of)?;
            fs::rename(&self.partial, &path).map_err(of)?;
            // The name is on the disk, too.
            File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(of)?;
        }
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
        // After `finish` there is no such file.
        let _ = fs::remove_file(&self.partial);
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
}
