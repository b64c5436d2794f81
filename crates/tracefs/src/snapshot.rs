//! Saves a snapshot of an instance, which a trigger took, in a folder of its own beside the trace.

use crate::changes::{Changes, beside, numbered_beside};
use crate::save::{self, Part, Parts, Saved};
use anyhow::{Context, bail, ensure};
use lastwords_ftrace::dat::WriteOptions;
use lastwords_ftrace::{CpuRing, Ring as _, Stats, Tracing};
use lastwords_open::{Bundle, Fired, SNAPSHOT_FILE, SNAPSHOT_TRACE, tracer_real_time};
use lastwords_trace::evidence::{Cause, Gap};
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the folder of a snapshot of a recording. Numbers are from 1.
pub(crate) fn path(output: &Path, number: u32) -> PathBuf {
    beside(output, &format!(".snapshot-{number}"))
}

/// Returns the snapshots beside a file, by their numbers.
pub(crate) fn existing(output: &Path) -> Vec<(u32, PathBuf)> {
    numbered_beside(output, ".snapshot-")
}

/// Makes room for the snapshots of a recording.
///
/// # Errors
/// There are snapshots of another recording, and they are not to be replaced.
pub(crate) fn make_room(output: &Path, force: bool) -> anyhow::Result<()> {
    for (_, path) in existing(output) {
        if !force {
            bail!("{}: it exists; --force replaces it", path.display());
        }
        remove(&path)?;
    }
    Ok(())
}

/// Removes a saved snapshot. Files of others in its folder are left, and are an error, as is a
/// folder of another user or a link: in a folder where others may write, they could have made it.
pub(crate) fn remove(path: &Path) -> anyhow::Result<()> {
    let meta = path.symlink_metadata().with_context(|| path.display().to_string())?;
    let is_own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    ensure!(is_own, "{}: it is no folder of this user", path.display());
    for file in [SNAPSHOT_FILE, SNAPSHOT_TRACE] {
        match fs::remove_file(path.join(file)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| path.join(file).display().to_string());
            }
            _ => {}
        }
    }
    fs::remove_dir(path).with_context(|| format!("{}: cannot be removed", path.display()))
}

/// Returns the number of the next snapshot beside a file.
pub(crate) fn next_number(output: &Path) -> u32 {
    existing(output).last().map_or(1, |(number, _)| number.saturating_add(1))
}

/// The sub-buffers of a snapshot, which were taken out of the kernel's memory.
pub(crate) struct Taken {
    ring: Parts,
    tracing: Tracing,
}

impl Taken {
    /// Makes a file for each CPU, which has nothing yet.
    ///
    /// # Errors
    /// The instance cannot be read, or a file cannot be made.
    pub(crate) fn new(changes: &Changes) -> anyhow::Result<Self> {
        let instance = changes.instance();
        let sub_buffer_size = instance.sub_buffer_size();
        let tracing = Bundle::of_running_tracer(None)?.tracing();
        let (mut parts, mut cpus) = (Vec::new(), Vec::new());
        for cpu in instance.cpus()? {
            let name = format!(".{}.s{cpu}", changes.journal.instance);
            parts.push(Part::nameless(beside(&changes.journal.output, &name))?);
            cpus.push(CpuRing { cpu, sub_buffers: 0, sub_buffer_size, stats: Stats::default() });
        }
        Ok(Self { ring: Parts::new(parts, 0, cpus, tracing.header_page), tracing })
    }

    /// Takes what the spare ring has, and clears it.
    ///
    /// # Errors
    /// It cannot be read, or a file cannot be written.
    pub(crate) fn take(&mut self, changes: &Changes) -> anyhow::Result<()> {
        let instance = changes.instance();
        for at in 0..self.ring.cpus().len() {
            let CpuRing { cpu, sub_buffer_size, .. } = self.ring.cpus()[at];
            let part = self.ring.part(at).context("the file of a CPU")?;
            let count = copy(&instance.open_snapshot(cpu)?, cpu, part, sub_buffer_size)?;
            self.ring.cpus_mut()[at].sub_buffers += count;
        }
        instance.write("snapshot", "2")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.cpus().iter().all(|cpu| cpu.sub_buffers == 0)
    }

    /// Returns the time of the last event in readings of the instance's clock; 0 if there is none.
    pub(crate) fn last(&self) -> u64 {
        let mut bytes = Vec::new();
        let mut last = 0;
        for (at, ring) in self.ring.cpus().iter().enumerate() {
            let Some(index) = ring.sub_buffers.checked_sub(1) else { continue };
            let info = self.ring.sub_buffer(at, index, &mut bytes);
            last = self
                .ring
                .events(&bytes, &info)
                .flatten()
                .map(|event| event.time)
                .fold(last, u64::max);
        }
        last
    }

    /// Saves the snapshot as a folder with its account.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn save(self, changes: &Changes, fired: &Fired) -> anyhow::Result<Saved> {
        let Self { mut ring, mut tracing } = self;
        let mut gaps = Vec::new();
        for at in 0..ring.cpus().len() {
            let found = count(&ring, at);
            gaps.extend(found.gap);
            ring.cpus_mut()[at].stats.read = found.events;
        }
        let events = ring.cpus().iter().map(|cpu| cpu.stats.read).fold(0, u64::saturating_add);
        let ring = Arc::new(ring);
        tracing.real_time = tracer_real_time(&changes.journal.clock);
        tracing.arrays =
            vec![save::array(&changes.instance(), &changes.journal.clock, Arc::clone(&ring))?];
        let folder = path(&changes.journal.output, fired.number);
        let new =
            beside(&changes.journal.output, &format!(".{}.snapshot", changes.journal.instance));
        // A killed recorder may have left it.
        let _ = remove(&new);
        DirBuilder::new().mode(0o700).create(&new).with_context(|| new.display().to_string())?;
        let write = || {
            let (path, how) = (new.join(SNAPSHOT_TRACE), WriteOptions::default());
            let bytes = save::write_new(&path, &tracing, &[Arc::clone(&ring)], &how, |_| Ok(()))?;
            let account = new.join(SNAPSHOT_FILE);
            fs::write(&account, serde_json::to_vec_pretty(fired)?)
                .with_context(|| account.display().to_string())?;
            fs::rename(&new, &folder).with_context(|| folder.display().to_string())?;
            Ok(bytes)
        };
        let bytes = write().inspect_err(|_: &anyhow::Error| _ = remove(&new))?;
        let cpus = ring.cpus().iter().map(|cpu| cpu.cpu).collect();
        Ok(Saved {
            path: folder,
            bytes,
            events,
            cpus,
            gaps,
            is_stream: false,
            snapshots: Vec::new(),
            histograms: None,
            buffer: None,
            buffers: Vec::new(),
        })
    }
}

/// Saves the snapshot that a killed recorder left in the instance; none if no trigger took one
/// since the last that it saved.
///
/// # Errors
/// The snapshot cannot be read, or the folder cannot be written.
pub(crate) fn save_left(changes: &Changes) -> anyhow::Result<Option<Saved>> {
    let mut taken = Taken::new(changes)?;
    taken.take(changes)?;
    if taken.is_empty() {
        return Ok(None);
    }
    let instance = changes.instance();
    let has_fired = |event: &String| {
        let file = event.replacen(':', "/", 1);
        instance
            .read(&format!("events/{file}/trigger"))
            .is_ok_and(|text| crate::triggers::has_fired(&text))
    };
    let events: Vec<String> = instance.enabled()?.into_iter().filter(has_fired).collect();
    let fired = Fired::new(next_number(&changes.journal.output), events, taken.last());
    taken.save(changes, &fired).map(Some)
}

/// Copies the sub-buffers of a CPU's snapshot, and returns their number.
fn copy(mut raw: &File, cpu: u32, part: &Part, size: u32) -> anyhow::Result<usize> {
    let mut bytes = vec![0; size as usize];
    let mut count = 0;
    loop {
        bytes.fill(0);
        match raw.read(&mut bytes) {
            Ok(0) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("CPU {cpu}: the snapshot cannot be read"));
            }
            Ok(_) => {
                (&part.file).write_all(&bytes).with_context(|| part.path.display().to_string())?;
                count += 1;
            }
        }
    }
}

/// The events of a CPU, and those that were overwritten before them.
struct Counted {
    events: u64,
    gap: Option<Gap>,
}

fn count(ring: &Parts, at: usize) -> Counted {
    let mut bytes = Vec::new();
    let (mut events, mut missed, mut is_known) = (0, 0u64, true);
    for index in 0..ring.cpus()[at].sub_buffers {
        let info = ring.sub_buffer(at, index, &mut bytes);
        events += ring.events(&bytes, &info).flatten().count() as u64;
        if let Some(number) = info.missed {
            missed += number.unwrap_or(0);
            is_known &= number.is_some();
        }
    }
    let gap = (missed > 0 || !is_known).then(|| {
        Gap::new(Some(at), Cause::Overwritten, "before the snapshot".to_owned())
            .with_events(is_known.then_some(missed))
    });
    Counted { events, gap }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_numbered_replaced_and_never_removed_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("a.dat");
        assert_eq!(next_number(&output), 1);
        for name in
            ["a.dat.snapshot-2", "a.dat.snapshot-11", "a.dat.snapshot-x", "b.dat.snapshot-40"]
        {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(path(&output, 2).join(SNAPSHOT_TRACE), "x").unwrap();
        assert_eq!(next_number(&output), 12);
        assert!(make_room(&output, false).unwrap_err().to_string().contains("--force replaces it"));
        make_room(&output, true).unwrap();
        assert_eq!(next_number(&output), 1);
        // A folder with files of others, and a link to a snapshot.
        fs::create_dir(path(&output, 1)).unwrap();
        fs::write(path(&output, 1).join("mine"), "x").unwrap();
        assert!(make_room(&output, true).unwrap_err().to_string().contains("cannot be removed"));
        let other = folder.path().join("other");
        fs::rename(path(&output, 1), &other).unwrap();
        fs::write(other.join(SNAPSHOT_TRACE), "x").unwrap();
        std::os::unix::fs::symlink(&other, path(&output, 1)).unwrap();
        assert!(
            make_room(&output, true).unwrap_err().to_string().contains("no folder of this user")
        );
        assert!(other.join(SNAPSHOT_TRACE).exists());
    }
}
