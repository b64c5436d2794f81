//! Inputs: the places of traces that were found at paths, before any of them is read.

use crate::candidate::Candidate;

use crate::locate;
use crate::places;
use crate::source::{GivenMetadata, INSTANCE, Key, Location, Opening, alone};
use crate::{DumpedKernel, Error, Failure, Opened, Options, Result, chain, duplicates};
use lastwords_bytes::Budget;
use lastwords_session::ReadLimit;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sessions, files and folders that are to be opened, each once.
#[derive(Debug)]
pub struct Inputs {
    candidates: Vec<Candidate>,
    /// The index of the candidate of each file or folder.
    known: HashMap<Key, usize>,
    notes: Vec<String>,
}

impl Default for Inputs {
    fn default() -> Self {
        Self::new()
    }
}

impl Inputs {
    /// Makes an empty list. Raises the number of files that this process may open to what the
    /// system allows: a folder of sessions has thousands of streams.
    #[must_use]
    pub fn new() -> Self {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // If the system refuses this, the files beyond the limit are reported as missing.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        Self::empty()
    }

    fn empty() -> Self {
        Self { candidates: Vec::new(), known: HashMap::new(), notes: Vec::new() }
    }

    /// Finds what is at some paths, and what [`Options::pid`] names.
    ///
    /// # Errors
    /// The process of [`Options::pid`] cannot be read. A path that cannot be read is a failure of
    /// what is opened.
    pub fn find<P: AsRef<Path>>(paths: &[P], options: &Options<'_>) -> Result<Self> {
        let mut inputs = Self::new();
        if options.memory.split {
            inputs
                .add(Candidate::split(paths.iter().map(|path| path.as_ref().to_owned()).collect()));
        } else {
            paths.iter().for_each(|path| inputs.add_path(path.as_ref()));
        }
        inputs.add_process(options)?;
        Ok(inputs)
    }

    /// Adds what is at a path.
    pub fn add_path(&mut self, path: &Path) {
        locate::of_path(path, &mut self.notes)
            .into_iter()
            .for_each(|candidate| self.add(candidate));
    }

    /// Adds an input that cannot be opened, with the reason.
    pub fn add_failure(&mut self, why: anyhow::Error) {
        self.add(Candidate::named(Err(why)));
    }

    /// Adds the sessions of the process that [`Options::pid`] names, if it names one.
    ///
    /// # Errors
    /// The process cannot be read.
    pub fn add_process(&mut self, options: &Options<'_>) -> Result<()> {
        if let Some(pid) = options.pid {
            let wrong = |why| Error::Process { pid, why: chain(&why) };
            let found = places::of_process(pid).map_err(wrong)?;
            found.into_iter().for_each(|candidate| self.add(candidate));
        }
        Ok(())
    }

    /// Adds a remark.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    fn add(&mut self, candidate: Candidate) {
        let next = self.candidates.len();
        let key = candidate.location.as_ref().ok().map(Location::key);
        let at = key.map_or(next, |key| *self.known.entry(key).or_insert(next));
        match self.candidates.get_mut(at) {
            Some(before) => before.is_named |= candidate.is_named,
            None => self.candidates.push(candidate),
        }
    }

    fn locations(&self) -> impl Iterator<Item = &Location> {
        self.candidates.iter().filter_map(|candidate| candidate.location.as_ref().ok())
    }

    /// Returns the paths of all inputs that can be opened, each once.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for location in self.locations() {
            if !paths.contains(&location.shown) {
                paths.push(location.shown.clone());
            }
        }
        paths
    }

    /// Returns the inputs that cannot be opened, as far as it is known before they are: files that
    /// are no input, folders that lack something.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        let failure = |candidate: &Candidate| {
            let error = candidate.location.as_ref().err()?;
            Some(Failure::new(candidate.path().map(Path::to_owned), candidate.is_named, error))
        };
        self.candidates.iter().filter_map(failure).collect()
    }

    /// Leaves out the inputs of a path, and tells this reason as their failure.
    pub fn refuse(&mut self, path: &Path, why: &anyhow::Error) {
        for candidate in &mut self.candidates {
            if candidate.location.as_ref().is_ok_and(|location| location.shown == path) {
                candidate.location = Err(anyhow::anyhow!("{}", chain(why)));
            }
        }
    }

    /// Returns the inputs of some paths, to be opened once more.
    #[must_use]
    pub fn only(&self, is_wanted: impl Fn(&Path) -> bool) -> Self {
        let mut inputs = Self::empty();
        let wanted = self.locations().filter(|location| is_wanted(&location.shown));
        wanted.for_each(|location| inputs.add(Candidate::named(Ok(location.clone()))));
        inputs
    }

    /// Takes out the instances of the running kernel. `begin` makes of each what is returned, or
    /// none if it is not wanted; where it fails, the instance is a failure of what is opened.
    pub fn take_instances<T>(
        &mut self,
        begin: impl Fn(&Path) -> anyhow::Result<Option<T>>,
    ) -> Vec<T> {
        let mut instances = Vec::new();
        self.known.clear();
        for mut candidate in std::mem::take(&mut self.candidates) {
            let instance = candidate.location.as_ref().ok().filter(|found| found.is_of(&INSTANCE));
            match instance.map(|found| begin(found.path())) {
                Some(Ok(instance)) => {
                    instances.extend(instance);
                    continue;
                }
                Some(Err(error)) => candidate.location = Err(error),
                None => {}
            }
            self.add(candidate);
        }
        instances
    }

    /// Returns the candidates, in the order in which they were added.
    pub(crate) fn into_candidates(self) -> Vec<Candidate> {
        self.candidates
    }

    /// Opens the kernels of all dumps, without their traces. An input that has none is a failure.
    #[must_use]
    pub fn kernels(self, options: &Options<'_>) -> (Vec<DumpedKernel>, Vec<Failure>) {
        let (mut kernels, mut failures) = (Vec::new(), Vec::new());
        for candidate in self.candidates {
            let path = candidate.path().map(Path::to_owned);
            match candidate.location.and_then(|location| alone(&location, options)) {
                Ok(kernel) => kernels.push(kernel),
                Err(error) => failures.push(Failure::new(path, candidate.is_named, &error)),
            }
        }
        (kernels, failures)
    }

    /// Opens everything. `limit` returns how far the session of a path is read, or none if it is
    /// read completely.
    ///
    /// # Errors
    /// The same as for [`crate::open()`].
    pub fn open<'u>(
        self,
        options: &Options<'_>,
        limit: &dyn Fn(&Path) -> Option<ReadLimit<'u>>,
    ) -> Result<Opened> {
        let mut opened = Opened { notes: self.notes, ..Opened::default() };
        let metadata = GivenMetadata::read(options).map_err(|why| {
            let path = options.metadata.clone().unwrap_or_default();
            Error::Metadata { path, why: chain(&why) }
        })?;
        for candidate in self.candidates {
            let path = candidate.path().map(Path::to_owned);
            let Candidate { location, is_named, .. } = candidate;
            let done = location.and_then(|location| {
                let (given, limit) = (&metadata, limit(&location.shown));
                let budget = Arc::new(Budget::default().times(options.budget));
                let (location, opened) = (&location, &mut opened);
                Opening { location, options, given, budget, limit, opened }.open()
            });
            for error in opened.errors.split_off(0).into_iter().chain(done.err()) {
                opened.failures.push(Failure::new(path.clone(), is_named, &error));
            }
        }
        duplicates::join(&mut opened, &Budget::default().times(options.budget));
        duplicates::drop_copies(&mut opened);
        Ok(opened)
    }
}
