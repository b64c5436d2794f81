//! Removes crashes from a data set: one by its id, or the oldest by age and size.
//!
//! A crash disappears from `crashes` first, so that a crash in that table always has all its rows in
//! the others. Its part there is renamed to a name that ends with `.removed`, which no reader takes
//! for a part, and is removed last: [`DataSet::clean`] finishes what a killed process began.

use crate::Error;
use crate::dataset::{DataSet, entries};
use crate::schema::Table;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, RecordBatchReader as _};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The end of the name of a part of `crashes` whose crash is being removed.
const REMOVED: &str = ".removed";

/// The limits of a data set, beyond which its oldest crashes are removed. The default has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// The crashes since this time, nanoseconds since the epoch.
    pub since: Option<i64>,
    /// The newest crashes whose files have no more bytes than this.
    pub bytes: Option<u64>,
}

/// A crash in a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its id.
    pub id: String,
    /// The time of the crash in nanoseconds since the epoch; if that is not known, the time at which
    /// it was added.
    pub at: i64,
    /// Bytes of its files in all tables.
    pub bytes: u64,
    /// Its part in `crashes`.
    path: PathBuf,
}

impl DataSet {
    /// Returns the crashes, the oldest first.
    ///
    /// # Errors
    /// A folder or a part of `crashes` cannot be read.
    pub fn stored(&self) -> Result<Vec<Stored>, Error> {
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        let mut crashes = Vec::new();
        for table in Table::ALL {
            for path in self.files(table)? {
                let Some(id) = id_of(&path) else { continue };
                let bytes = path.metadata().map_or(0, |meta| meta.len());
                let size = sizes.entry(id.to_owned()).or_default();
                *size = size.saturating_add(bytes);
                if table == Table::Crashes {
                    match time_of(&path) {
                        // Another process has removed it since.
                        Err(Error::File { error, .. })
                            if error.kind() == io::ErrorKind::NotFound => {}
                        at => crashes.push((id.to_owned(), at?, path)),
                    }
                }
            }
        }
        let stored = crashes.into_iter().map(|(id, at, path)| {
            let bytes = sizes.get(&id).copied().unwrap_or(0);
            Stored { id, at, bytes, path }
        });
        let mut stored: Vec<Stored> = stored.collect();
        stored.sort_by(|one, other| (one.at, &one.id).cmp(&(other.at, &other.id)));
        Ok(stored)
    }

    /// Removes the crashes that are not to be kept. Returns them.
    ///
    /// ```
    /// use lastwords_arrow::{DataSet, Keep};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let set = DataSet::open(folder.path())?;
    /// assert!(set.retain(Keep { bytes: Some(10 << 30), ..Keep::default() })?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A folder or file cannot be read or removed.
    pub fn retain(&self, keep: Keep) -> Result<Vec<Stored>, Error> {
        let mut stored = self.stored()?;
        let mut total = stored.iter().map(|own| own.bytes).fold(0, u64::saturating_add);
        let mut count = 0_usize;
        for own in &stored {
            let is_old = keep.since.is_some_and(|since| own.at < since);
            if !is_old && keep.bytes.is_none_or(|most| total <= most) {
                break;
            }
            self.remove_stored(own)?;
            total = total.saturating_sub(own.bytes);
            count = count.saturating_add(1);
        }
        stored.truncate(count);
        Ok(stored)
    }

    /// Removes a crash. Returns false if it is not there.
    ///
    /// # Errors
    /// A folder or file cannot be read or removed.
    pub fn remove(&self, id: &str) -> Result<bool, Error> {
        let stored = self.stored()?;
        let own = stored.iter().find(|own| own.id == id);
        own.map_or(Ok(false), |own| self.remove_stored(own).map(|()| true))
    }

    fn remove_stored(&self, stored: &Stored) -> Result<(), Error> {
        let mut name = stored.path.as_os_str().to_owned();
        name.push(REMOVED);
        let marked = PathBuf::from(name);
        let _lock = self.lock(&stored.id)?;
        match fs::rename(&stored.path, &marked) {
            // Another process has removed it, or has put it into another day.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::file(&stored.path, error)),
            Ok(()) => self.finish_removal(&marked, &stored.id),
        }
    }

    /// Removes the parts of a crash, and then the file that says that it is being removed.
    fn finish_removal(&self, marked: &Path, id: &str) -> Result<(), Error> {
        for table in Table::ALL.into_iter().filter(|table| *table != Table::Crashes) {
            for path in self.files(table)?.iter().filter(|path| id_of(path) == Some(id)) {
                remove(path)?;
            }
        }
        remove(marked)
    }

    /// Finishes the removals that a killed process began. Returns their number.
    pub(crate) fn finish_removals(&self) -> Result<usize, Error> {
        let mut count = 0_usize;
        for path in self.files(Table::Crashes)? {
            let part = path.to_str().and_then(|path| path.strip_suffix(REMOVED));
            let Some(part) = part.map(Path::new) else { continue };
            let Some(id) = id_of(part) else { continue };
            let _lock = self.lock(id)?;
            // A crash that was added again since then stays.
            match part.exists() {
                true => remove(&path)?,
                false => self.finish_removal(&path, id)?,
            }
            count = count.saturating_add(1);
        }
        Ok(count)
    }

    fn files(&self, table: Table) -> Result<Vec<PathBuf>, Error> {
        let mut files = Vec::new();
        for day in entries(&self.folder(table))? {
            files.extend(entries(&day)?);
        }
        Ok(files)
    }
}

/// Returns the id of the crash of a part.
fn id_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_prefix("part-")?.strip_suffix(".parquet")
}

/// Removes a file, and the folder of its day if nothing else is in it.
fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::file(path, error));
        }
        _ => {}
    }
    // A folder with other files stays.
    path.parent().into_iter().for_each(|day| _ = fs::remove_dir(day));
    Ok(())
}

/// Returns the time of the crash in a part of `crashes`, or else the time of the file.
fn time_of(path: &Path) -> Result<i64, Error> {
    let of_file = |error| Error::file(path, error);
    let file = File::open(path).map_err(of_file)?;
    let modified = file.metadata().and_then(|meta| meta.modified()).map_err(of_file)?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), ["ts"]);
    let mut reader = builder.with_projection(mask).build()?;
    let at = reader.schema().index_of("ts").ok();
    let batch = reader.next().transpose()?;
    let column = batch
        .zip(at)
        .and_then(|(batch, at)| batch.column(at).as_primitive_opt::<Int64Type>().cloned());
    let known = column.filter(|column| !column.is_empty() && column.is_valid(0));
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let added = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
    Ok(known.map_or(added, |column| column.value(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Cell, Rows};
    use std::collections::BTreeSet;

    /// Adds a crash of a time, with a file in each table.
    fn add(set: &DataSet, id: &str, at: Option<i64>) {
        let day = at.map(|at| format!("1970-01-{:02}", 1 + at / 86_400_000_000_000));
        for table in Table::ALL {
            let mut part = set.part(table, id, day.as_deref()).unwrap();
            if table == Table::Crashes {
                let schema = table.schema();
                let mut rows = Rows::new(schema.clone());
                let cell = |field: &arrow_schema::FieldRef| match field.name().as_str() {
                    "crash_id" => Cell::Text(Some(id)),
                    "ts" => Cell::Number(at),
                    _ => Cell::Number(None),
                };
                let cells: Vec<Cell<'_>> = schema.fields().iter().map(cell).collect();
                rows.row(&cells);
                part.write(&rows.finish().unwrap()).unwrap();
            }
            part.finish().unwrap();
        }
    }

    fn ids(stored: &[Stored]) -> Vec<&str> {
        stored.iter().map(|own| own.id.as_str()).collect()
    }

    /// The ids that have a file in a table, each with their number.
    fn on_disk(set: &DataSet) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for table in Table::ALL {
            for path in set.files(table).unwrap() {
                *found.entry(id_of(&path).unwrap().to_owned()).or_default() += 1;
            }
        }
        found
    }

    const DAY: i64 = 86_400_000_000_000;

    #[test]
    fn the_oldest_go_first_by_age_and_by_size() {
        let place = tempfile::tempdir().unwrap();
        let set = DataSet::open(place.path()).unwrap();
        for (id, at) in
            [("c", Some(3 * DAY)), ("a", Some(DAY)), ("new", None), ("b", Some(2 * DAY))]
        {
            add(&set, id, at);
        }
        let stored = set.stored().unwrap();
        assert_eq!(ids(&stored), ["a", "b", "c", "new"], "an unknown time is that of the file");
        assert_eq!(set.retain(Keep::default()).unwrap(), []);
        let removed = set.retain(Keep { since: Some(2 * DAY), bytes: None }).unwrap();
        assert_eq!(ids(&removed), ["a"]);
        let most = stored[2].bytes + stored[3].bytes;
        let removed = set.retain(Keep { since: None, bytes: Some(most) }).unwrap();
        assert_eq!(ids(&removed), ["b"]);
        let removed = set.retain(Keep { since: None, bytes: Some(most - 1) }).unwrap();
        assert_eq!(ids(&removed), ["c"]);
        assert_eq!(on_disk(&set), BTreeMap::from([("new".to_owned(), Table::ALL.len())]));
        assert!(!set.folder(Table::Events).join("day=1970-01-02").exists());
        assert!(set.remove("new").unwrap() && !set.remove("new").unwrap());
        assert!(on_disk(&set).is_empty());
    }

    /// A process that removes a crash is killed between any two of its steps. The crash is not in
    /// `crashes` then, and the next process removes the rest.
    #[test]
    fn a_removal_that_was_cut_short_is_finished() {
        let place = tempfile::tempdir().unwrap();
        let set = DataSet::open(place.path()).unwrap();
        for removed in 0..Table::ALL.len() {
            add(&set, "a", Some(DAY));
            add(&set, "b", Some(DAY));
            let part = &set.stored().unwrap()[0].path;
            let marked = format!("{}{REMOVED}", part.display());
            fs::rename(part, &marked).unwrap();
            let others = Table::ALL.into_iter().filter(|table| *table != Table::Crashes);
            for table in others.take(removed) {
                let files = set.files(table).unwrap();
                fs::remove_file(files.iter().find(|path| id_of(path) == Some("a")).unwrap())
                    .unwrap();
            }
            assert_eq!(ids(&set.stored().unwrap()), ["b"]);
            assert_eq!(set.clean().unwrap(), 1);
            assert_eq!(on_disk(&set).into_keys().collect::<BTreeSet<_>>(), ["b".to_owned()].into());
        }
        // Added again, it stays.
        add(&set, "a", Some(DAY));
        let part = set.stored().unwrap()[0].path.clone();
        fs::copy(&part, format!("{}{REMOVED}", part.display())).unwrap();
        assert_eq!((set.clean().unwrap(), set.stored().unwrap().len()), (1, 2));
    }
}
