//! A CTF trace copied: every event is decoded, packets that cannot be are left out.

use super::error::Error;
use super::folder::{Stream, Trace};
use super::index::{Entry, read_at};
use super::stream::{Next, Reader};
use crate::Totals;
use crate::ctf::{Version, emit};
use crate::folder::{create_file, create_folder};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Bytes that are copied at a time.
const CHUNK: u64 = 1 << 20;

/// Writes `traces` as CTF of a version under `out`, which must not exist: one folder, or one for each. Packets are copied;
/// metadata too, where it is of that version, else written anew. What cannot be read is told to `faults`.
///
/// # Errors
/// A file cannot be read or written; a field class that the version cannot express.
pub fn copy(traces: &[Trace], version: Version, out: &Path, faults: &mut dyn FnMut(Error)) -> crate::Result<Totals> {
    create_folder(out)?;
    let mut totals = Totals::default();
    let mut names: Vec<PathBuf> = Vec::new();
    for trace in traces {
        let folder = match traces {
            [_] => out.to_path_buf(),
            _ => unused(out, trace.path.file_name().map(Path::new).unwrap_or(Path::new("trace")), &names),
        };
        if folder != out {
            create_folder(&folder)?;
        }
        names.push(folder.clone());
        copy_trace(trace, version, &folder, &mut totals, faults)?;
    }
    Ok(totals)
}

/// A path under `out` that no other trace has.
fn unused(out: &Path, name: &Path, names: &[PathBuf]) -> PathBuf {
    let mut path = out.join(name);
    let mut number = 1;
    while names.contains(&path) {
        number += 1;
        path = out.join(format!("{}-{number}", name.display()));
    }
    path
}

fn copy_trace(
    trace: &Trace,
    version: Version,
    folder: &Path,
    totals: &mut Totals,
    faults: &mut dyn FnMut(Error),
) -> crate::Result<()> {
    let mut used: Vec<PathBuf> = Vec::new();
    for stream in &trace.streams {
        let name = stream.files.first().and_then(|file| file.file_name()).unwrap_or_default();
        let path = unused(folder, Path::new(name), &used);
        used.push(path.clone());
        copy_stream(trace, stream, &path, totals, faults)?;
    }
    let path = folder.join("metadata");
    let same = (trace.class().version == 1) == (version == Version::V1_8);
    let metadata = if same {
        let from = trace.path.join("metadata");
        std::fs::read(&from).map_err(crate::Error::io(&from, "read"))?
    } else {
        emit(trace.class(), version)?.into_bytes()
    };
    create_file(&path)?.write_all(&metadata).map_err(crate::Error::io(&path, "write"))?;
    totals.bytes += metadata.len() as u64;
    Ok(())
}

fn copy_stream(
    trace: &Trace,
    stream: &Stream,
    path: &Path,
    totals: &mut Totals,
    faults: &mut dyn FnMut(Error),
) -> crate::Result<()> {
    let mut file = create_file(path)?;
    let mut copier = Copier { stream, open: None, bytes: Vec::new() };
    let mut reader = Reader::new(trace, stream);
    let mut pending: Option<(u32, Entry)> = None;
    let mut events = 0;
    loop {
        match reader.advance() {
            Next::Event(_) => events += 1,
            Next::Loss(_) => {}
            Next::Fault(fault) => {
                totals.faults += 1;
                // What was read of this packet is not in the copy.
                (pending, events) = (None, 0);
                faults(fault);
            }
            next @ (Next::Packet | Next::End) => {
                if let Some(place) = pending.take() {
                    totals.bytes += copier.packet(place, &mut file, path)?;
                    totals.packets += 1;
                    totals.events += std::mem::take(&mut events);
                }
                if matches!(next, Next::End) {
                    break;
                }
                pending = reader.place();
            }
        }
    }
    totals.streams += 1;
    Ok(())
}

struct Copier<'a> {
    stream: &'a Stream,
    open: Option<(u32, File)>,
    bytes: Vec<u8>,
}

impl Copier<'_> {
    fn packet(&mut self, (number, entry): (u32, Entry), out: &mut impl Write, path: &Path) -> crate::Result<u64> {
        let from = self.stream.files.get(number as usize).map_or(Path::new(""), PathBuf::as_path);
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            self.open = Some((number, File::open(from).map_err(crate::Error::io(from, "read"))?));
        }
        let Some((_, file)) = &self.open else { return Ok(0) };
        let mut done = 0;
        while done < entry.size {
            let length = usize::try_from((entry.size - done).min(CHUNK)).unwrap_or(0);
            let read = read_at(file, from, entry.offset.saturating_add(done), length, &mut self.bytes);
            read.map_err(|e| crate::Error::io(from, "read")(std::io::Error::other(e.to_string())))?;
            if self.bytes.is_empty() {
                break;
            }
            out.write_all(&self.bytes).map_err(crate::Error::io(path, "write"))?;
            done += self.bytes.len() as u64;
        }
        Ok(done)
    }
}
