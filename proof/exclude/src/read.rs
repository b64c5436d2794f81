//! Reads a kernel's trace arrays as the program does.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use lastwords_bpf::{Bpf, Content, Map};
use lastwords_bytes::Budget;
use lastwords_ftrace::text::{Options, write_trace};
use lastwords_ftrace::{Choice, Tracing, counters};
use lastwords_image::vmcore::Physical;
use lastwords_image::{Image, unwatched};
use lastwords_kernel::{Kernel, Sources, find};

/// An event's line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    /// Microseconds, as the kernel rounds them.
    pub(crate) time: u64,
    /// CPU.
    pub(crate) cpu: String,
    /// Task and flags.
    pub(crate) task: String,
    pub(crate) flags: String,
    /// The event and its fields.
    pub(crate) text: String,
}

/// A trace array as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) name: String,
    pub(crate) lines: Vec<Line>,
    /// Those of the snapshot.
    pub(crate) snapshot: Vec<Line>,
    /// Tracer, clock, and whether it was recording, as far as they are known.
    pub(crate) facts: [Option<String>; 3],
    /// The account counts a loss.
    pub(crate) has_losses: bool,
    /// The account has a note on events whose format cannot be evaluated.
    pub(crate) has_notes: bool,
}

/// Reads all arrays in the memory of a dump of `size` bytes. Returns the machine and its page
/// tables, in words, and the arrays.
pub(crate) fn arrays(
    physical: &Physical,
    size: u64,
    image: Arc<dyn Image>,
) -> Result<(String, Vec<Array>)> {
    let physical = Physical { image, ..physical.clone() };
    let budget = Arc::new(Budget::for_input(size));
    let found =
        find::kernel(&physical, &budget, &unwatched).map_err(|error| anyhow::anyhow!("{error}"))?;
    let machine = physical.machine.or_else(|| found.info.machine()).context("no machine")?;
    let machine = format!("{machine:?}, page tables of {} levels", found.memory.levels());
    let memory = Arc::new(found.memory);
    let kernel = Arc::new(Kernel::open(memory.clone(), &found.info, Sources::default(), budget)?);
    let tracing = lastwords_ftrace::memory::read(&kernel, Some(&memory))?;
    let arrays = (0..tracing.arrays.len()).map(|index| array(&tracing, index));
    let mut arrays = arrays.collect::<Result<Vec<_>>>()?;
    arrays.extend(bpf(&kernel)?);
    Ok((machine, arrays))
}

/// Returns the BPF programs and maps of a kernel as an array, if it has any, with the records of
/// ring buffers and the entries of hash tables. Elements of arrays are left out: those in a page
/// that reads as zero are read as zero.
fn bpf(kernel: &Kernel) -> Result<Option<Array>> {
    let mut bpf = Bpf::read(kernel);
    let line = |time, task: String, text| Line {
        time,
        cpu: String::new(),
        task,
        flags: String::new(),
        text,
    };
    let mut lines: Vec<Line> =
        bpf.programs.iter().map(|program| line(0, String::new(), program.to_string())).collect();
    lines.extend(bpf.maps.iter().map(|map| line(0, String::new(), map.to_string())));
    let maps: Vec<Map> =
        bpf.maps.iter().filter(|map| !map.kind.contains("array")).cloned().collect();
    for map in maps {
        let take = &mut |content| {
            match content {
                Content::Record(record) => {
                    let text = format!("{:?} {:?}", record.state, record.bytes);
                    lines.push(line(record.position, map.words(), text));
                }
                Content::Entry(entry) => {
                    let text = format!("{} {:?} {}", entry.key, entry.cpu, entry.value);
                    lines.push(line(0, map.words(), text));
                }
                Content::Positions(_) | Content::Zeros(..) => {}
            }
            Ok(())
        };
        bpf.content(&map, take)?;
    }
    let array = Array {
        name: "BPF".to_owned(),
        has_losses: bpf.evidence.has_losses(),
        lines,
        snapshot: Vec::new(),
        facts: [None, None, None],
        has_notes: false,
    };
    Ok(Some(array).filter(|array| !array.lines.is_empty() || array.has_losses))
}

fn array(tracing: &Tracing, index: usize) -> Result<Array> {
    let array = tracing.arrays.get(index).context("no array")?;
    let read = |snapshot| -> Result<_> {
        let mut text = Vec::new();
        let summary = write_trace(
            &mut text,
            tracing,
            index,
            &Options {
                no_header: true,
                choice: Choice { snapshot, ..Choice::default() },
                ..Options::default()
            },
        )?;
        let text = String::from_utf8_lossy(&text);
        Ok((text.lines().filter_map(|text| line(text, array.is_in_ns())).collect(), summary))
    };
    let (lines, summary) = read(false)?;
    let snapshot = if array.snapshot.is_some() { read(true)?.0 } else { Vec::new() };
    let ring = array.shown(false).context("no ring")?;
    let mut evidence = ring.checked();
    evidence.append(tracing.evidence.clone());
    evidence.gaps.extend(counters(&**ring));
    Ok(Array {
        name: array.name.clone(),
        lines,
        snapshot,
        facts: [
            array.tracer.clone(),
            array.clock.as_ref().map(|clock| clock.name.clone()),
            array.is_on.map(|on| on.to_string()),
        ],
        has_notes: !summary.notes.is_empty(),
        has_losses: evidence.has_losses() || summary.faults > 0,
    })
}

/// Takes a line apart: `TASK-PID [CPU] FLAGS TIME: TEXT`. Others, such as `##### CPU 1 buffer
/// started ####`, are no events.
fn line(text: &str, is_in_ns: bool) -> Option<Line> {
    let (task, rest) = text.split_once(" [")?;
    let (cpu, rest) = rest.split_once("] ")?;
    let (head, text) = rest.split_once(": ")?;
    let (flags, time) = head.rsplit_once(' ')?;
    let time = match time.split_once('.') {
        Some((seconds, micros)) => seconds
            .trim()
            .parse::<u64>()
            .ok()?
            .checked_mul(1_000_000)?
            .checked_add(micros.parse::<u64>().ok()?)?,
        None if is_in_ns => return None,
        None => time.parse::<u64>().ok()?.saturating_add(500) / 1000,
    };
    let word = |word: &str| word.trim().to_owned();
    Some(Line { time, cpu: word(cpu), task: word(task), flags: word(flags), text: word(text) })
}
