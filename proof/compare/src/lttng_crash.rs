//! `cargo xtask compare lttng-crash`: damages the shared memory that killed programs left of an
//! LTTng session, and gives it to lttng-crash and to lastwords.
//!
//! Holes: each pattern of sub-buffers that were never committed, stream by stream. The recovered
//! events are compared with the events in the undamaged sub-buffers. Hostile headers: edge values
//! in each field of the stream's header, of its positions and of its packets' headers. The runs
//! that end by a signal, or do not end, are counted.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::run::Programs;
use rig::ended::End;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shared-memory folder of a session that nobody writes any more; without it, the stored
    /// case's
    folder: Option<PathBuf>,
    /// Mutants of one field in N (1: all)
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Ours, built already; without it, it is built
    #[arg(long)]
    program: Option<PathBuf>,
}

/// A field: offset and bytes.
type Field = (usize, usize);

/// Fields of `struct lttng_crash_abi`: length, byte order, versions, word size, kind; sizes, count
/// and mode.
const SELF: &[Field] = &[
    (0, 8),
    (16, 8),
    (24, 2),
    (26, 2),
    (28, 2),
    (30, 1),
    (31, 1),
    (96, 8),
    (104, 8),
    (112, 8),
    (120, 4),
];
/// Its tables of offsets (11 of 4 bytes), lengths (8 of one byte), strides (3 of 4 bytes).
const TABLES: [(usize, usize, usize); 3] = [(32, 4, 11), (76, 1, 8), (84, 4, 3)];
/// Fields of a packet's header and context.
const PACKET: &[Field] = &[
    (0, 4),
    (4, 8),
    (20, 4),
    (24, 8),
    (32, 8),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (72, 8),
    (80, 4),
];

/// A stream's file, and where things are in it.
struct Stream {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Stream {
    fn number(&self, offset: usize, len: usize) -> u64 {
        let mut raw = [0u8; 8];
        if let Some(bytes) = self.bytes.get(offset..offset + len) {
            raw[..len].copy_from_slice(bytes);
        }
        u64::from_le_bytes(raw)
    }

    fn slots(&self) -> usize {
        self.number(112, 8) as usize
    }

    /// Where the commit counter of a slot is.
    fn counter(&self, slot: usize) -> usize {
        (self.number(40, 4) + self.number(44, 4)) as usize + slot * self.number(84, 4) as usize
    }

    /// Where the data of a slot are.
    fn data(&self, slot: usize) -> usize {
        let id = self.number(self.number(48, 4) as usize + slot * self.number(88, 4) as usize, 8)
            & 0xffff_ffff;
        let row = self.number(56, 4) + id * self.number(92, 4) + self.number(60, 4);
        let pages = self.number(row as usize, 8);
        self.number((pages + self.number(64, 4)) as usize, 8) as usize
    }
}

/// A folder in which one stream is damaged at a time.
struct Bench {
    programs: Programs,
    root: PathBuf,
    folder: PathBuf,
    streams: Vec<Stream>,
}

/// Compares.
pub(super) fn run(args: &Args) -> Result<()> {
    let root = std::env::temp_dir().join(format!("lastwords-compare-{}", std::process::id()));
    std::fs::create_dir_all(&root)?;
    let done = compare(args, &root);
    let _ = std::fs::remove_dir_all(&root);
    done
}

fn compare(args: &Args, root: &Path) -> Result<()> {
    let folder = root.join("in");
    std::fs::create_dir(&folder)?;
    let case = rig::beside().join("cases/ust-shm-crash/shm.tar");
    let copied = match &args.folder {
        Some(from) => Command::new("cp").arg("-r").arg(from).arg(&folder).status(),
        None if case.is_file() => {
            Command::new("tar").arg("xf").arg(&case).arg("-C").arg(&folder).status()
        }
        None => {
            bail!(
                "name the shared-memory folder of a session (`lttng create --shm-path`) that nobody writes any more"
            )
        }
    };
    anyhow::ensure!(copied.context("a copy of the input")?.success(), "the input cannot be copied");
    let mut streams = Vec::new();
    find(&folder, &mut streams)?;
    anyhow::ensure!(!streams.is_empty(), "{} has no stream of LTTng", folder.display());
    let bench = Bench {
        programs: Programs::new(args.program.clone())?,
        root: root.to_path_buf(),
        folder,
        streams,
    };
    let holes = bench.holes()?;
    let deaths = bench.mutants(args.every.max(1))?;
    if holes + deaths > 0 {
        bail!("ours: {holes} patterns with another count, {deaths} deaths");
    }
    Ok(())
}

fn find(folder: &Path, streams: &mut Vec<Stream>) -> Result<()> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            find(&path, streams)?;
            continue;
        }
        let bytes = std::fs::read(&path)?;
        if bytes.starts_with(&lastwords_lttng::user::MAGIC) {
            streams.push(Stream { path, bytes });
        }
    }
    Ok(())
}

impl Bench {
    /// Runs both on the input as it stands; how each ended and how many events it gave.
    fn both(&self, count: bool) -> Result<[(End, usize); 2]> {
        let outputs = ["ours", "peer"].map(|name| self.root.join(name));
        for output in &outputs {
            let _ = std::fs::remove_dir_all(output);
        }
        let ends = [
            self.programs.ours(&self.folder, &outputs[0])?,
            self.programs.peer(&self.folder, &outputs[1])?,
        ];
        let mut rows = [(ends[0], 0), (ends[1], 0)];
        if count {
            for (row, output) in rows.iter_mut().zip(&outputs) {
                row.1 = self.programs.events(output)?;
            }
        }
        Ok(rows)
    }

    /// Tries each pattern of uncommitted sub-buffers, and prints how many events each program
    /// keeps. Returns the number of patterns for which ours recovers another number of events than
    /// the undamaged sub-buffers hold.
    fn holes(&self) -> Result<usize> {
        let (mut patterns, mut wrong, mut ours_kept, mut peer_kept, mut there) = (0, 0, 0, 0, 0);
        for stream in &self.streams {
            self.alone(stream)?;
            let slots = stream.slots().min(6);
            let mut alone = vec![0; slots];
            for (slot, events) in alone.iter_mut().enumerate() {
                self.write_holes(stream, !(1 << slot))?;
                *events = self.both(true)?[0].1;
            }
            for pattern in 0..1usize << slots {
                self.write_holes(stream, pattern)?;
                let [ours, peer] = self.both(true)?;
                let expected: usize = (0..slots)
                    .filter(|slot| pattern >> slot & 1 == 0)
                    .map(|slot| alone[slot])
                    .sum();
                patterns += 1;
                wrong += usize::from(ours.1 != expected || ours.0 != End::Exit(0));
                (ours_kept, peer_kept, there) =
                    (ours_kept + ours.1, peer_kept + peer.1, there + expected);
            }
            self.together()?;
        }
        println!("holes: {patterns} patterns, {there} events in undamaged sub-buffers");
        println!("  ours         {ours_kept} events, {wrong} patterns with another count");
        println!("  lttng-crash  {peer_kept} events");
        anyhow::ensure!(there > 0, "no events at all");
        Ok(wrong)
    }

    /// Sets each header field to edge values, and prints how often each program died. Returns how
    /// often ours did.
    fn mutants(&self, every: usize) -> Result<usize> {
        let stream = self.streams.first().context("a stream")?;
        self.alone(stream)?;
        let mut fields: Vec<Field> = SELF.to_vec();
        for (at, len, count) in TABLES {
            fields.extend((0..count).map(|n| (at + n * len, len)));
        }
        fields.extend([(stream.number(32, 4) as usize, 8), (stream.number(36, 4) as usize, 8)]);
        for slot in 0..stream.slots() {
            fields.push((stream.counter(slot), 8));
            fields.extend(PACKET.iter().map(|(at, len)| (stream.data(slot) + at, *len)));
        }
        let (mut mutants, mut deaths) = (0, [0, 0]);
        for (at, len) in fields.into_iter().step_by(every) {
            for value in edges(stream.number(at, len), len) {
                let mut bytes = stream.bytes.clone();
                let Some(place) = bytes.get_mut(at..at + len) else { continue };
                place.copy_from_slice(&value.to_le_bytes()[..len]);
                std::fs::write(&stream.path, &bytes)?;
                for (death, row) in deaths.iter_mut().zip(self.both(false)?) {
                    *death += usize::from(matches!(row.0, End::Died | End::Hung));
                }
                mutants += 1;
            }
        }
        self.together()?;
        println!("header fields: {mutants} mutants");
        println!("  ours         {} deaths", deaths[0]);
        println!("  lttng-crash  {} deaths", deaths[1]);
        Ok(deaths[0])
    }

    /// Leaves this stream alone in the folder.
    fn alone(&self, stream: &Stream) -> Result<()> {
        for other in self.streams.iter().filter(|other| other.path != stream.path) {
            std::fs::remove_file(&other.path)?;
        }
        Ok(())
    }

    /// Puts all streams back as they were.
    fn together(&self) -> Result<()> {
        self.streams.iter().try_for_each(|stream| Ok(std::fs::write(&stream.path, &stream.bytes)?))
    }

    /// Takes the commits of the slots whose bits are set.
    fn write_holes(&self, stream: &Stream, pattern: usize) -> Result<()> {
        let mut bytes = stream.bytes.clone();
        let size = stream.number(104, 8);
        for slot in (0..stream.slots()).filter(|slot| pattern >> slot & 1 == 1) {
            let at = stream.counter(slot);
            // As the lap before left it: nothing of this one is committed.
            let counter = stream.number(at, 8);
            let before = counter.saturating_sub(1) / size * size;
            bytes[at..at + 8].copy_from_slice(&before.to_le_bytes());
        }
        std::fs::write(&stream.path, &bytes).with_context(|| stream.path.display().to_string())
    }
}

/// Twelve values at which things break.
fn edges(was: u64, len: usize) -> [u64; 12] {
    let max = u64::MAX >> (64 - 8 * len);
    let half = max / 2;
    [
        0,
        1,
        2,
        7,
        255 & max,
        max,
        max - 1,
        half,
        half + 1,
        was.wrapping_add(1) & max,
        was.wrapping_sub(1) & max,
        (was << 1) & max,
    ]
}
