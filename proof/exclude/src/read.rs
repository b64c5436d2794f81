//! Reads parts of a kernel as the program does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use lastwords_bpf::{Bpf, Content, Map};
use lastwords_bytes::Budget;
use lastwords_ftrace::histogram::Histogram;
use lastwords_ftrace::text::{Options, write_trace};
use lastwords_ftrace::{Choice, Tracing, UNKNOWN, counters};
use lastwords_image::vmcore::Physical;
use lastwords_image::{Image, unwatched};
use lastwords_kernel::pstore::Zone;
use lastwords_kernel::tasks::NAMELESS;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_kernel::{Kernel, Sources, find};
use lastwords_perf::{Buffer, Event, Perf};
use lastwords_trace::evidence::Gap;

/// An event's line, a record, a row.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    /// Microseconds, as the kernel rounds them, or a position.
    pub(crate) time: u64,
    /// CPU.
    pub(crate) cpu: String,
    /// Task and flags.
    pub(crate) task: String,
    pub(crate) flags: String,
    /// The event and its fields.
    pub(crate) text: String,
    /// Bytes of a record.
    pub(crate) size: usize,
}

/// What was read of one thing: a trace array, a buffer, a histogram, a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Array {
    pub(crate) name: String,
    pub(crate) lines: Vec<Line>,
    /// Lines that are there, too, if it is not known which are wanted: those of the snapshot,
    /// records that perf has read.
    pub(crate) more: Vec<Line>,
    /// Facts, as far as they are known.
    pub(crate) facts: Vec<(&'static str, Option<String>)>,
    /// The losses of the account.
    pub(crate) losses: BTreeSet<String>,
    /// Bytes that were read, or that the account counts as lost; none if a loss has no size.
    pub(crate) bytes: Option<u64>,
    /// The account has a note on events whose format cannot be evaluated.
    pub(crate) has_notes: bool,
}

/// The parts of a kernel, which are judged one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Part {
    /// Trace arrays of ftrace.
    Ftrace,
    /// BPF programs and maps.
    Bpf,
    /// Buffers of perf.
    Perf,
    /// Histograms of triggers.
    Histograms,
    /// Memory that survives a reset.
    Pstore,
}

/// What was read of each part.
pub(crate) type Parts = BTreeMap<Part, Vec<Array>>;

/// Reads parts of the memory of a dump of `size` bytes. Returns the machine and its page tables, in
/// words, and what was read.
pub(crate) fn parts(
    physical: &Physical,
    size: u64,
    image: Arc<dyn Image>,
    parts: &[Part],
) -> Result<(String, Parts)> {
    let physical = Physical { image, ..physical.clone() };
    let budget = Arc::new(Budget::for_input(size));
    let found =
        find::kernel(&physical, &budget, &unwatched).map_err(|error| anyhow::anyhow!("{error}"))?;
    let machine = physical.machine.or_else(|| found.info.machine()).context("no machine")?;
    let machine = format!("{machine:?}, page tables of {} levels", found.memory.levels());
    let memory = Arc::new(found.memory);
    let sources = Sources::default();
    let kernel = Arc::new(Kernel::open(memory.clone(), &found.info, sources, budget.clone())?);
    let read = |part: &Part| {
        let arrays = match part {
            Part::Ftrace => ftrace(&kernel, &memory)?,
            Part::Bpf => bpf(&kernel)?,
            Part::Perf => perf(&kernel)?,
            Part::Histograms => histograms(&kernel),
            Part::Pstore => pstore(&*physical.image, &budget)?,
        };
        Ok((*part, arrays))
    };
    Ok((machine, parts.iter().map(read).collect::<Result<Parts>>()?))
}

/// Returns the losses among gaps.
fn losses(gaps: &[Gap]) -> BTreeSet<String> {
    gaps.iter().filter(|gap| gap.cause.is_loss()).map(|gap| format!("{gap:?}")).collect()
}

/// A line of which only the text is known.
fn line_of(text: String) -> Line {
    Line { text, ..Line::default() }
}

/// Returns the list of perf's buffers with their events, and the records of each.
fn perf(kernel: &Arc<Kernel>) -> Result<Vec<Array>> {
    let mut perf = Perf::read(kernel);
    let listed = std::mem::take(&mut perf.evidence.gaps);
    let mut arrays =
        vec![Array { name: "list".to_owned(), losses: losses(&listed), ..Array::default() }];
    for buffer in perf.buffers.clone() {
        let name = format!("buffer at {:#x}", buffer.address);
        for event in &buffer.events {
            let is_raw = event.name.contains("/config=");
            let name = if is_raw { UNKNOWN } else { &event.name }.to_owned();
            arrays[0].lines.push(line_of(Event { name, ..event.clone() }.to_string()));
        }
        let (lines, own) = records(&mut perf, &buffer)?;
        let position = buffer.positions.consumed;
        let mut all = buffer.clone();
        all.positions.consumed = None;
        let more = records(&mut perf, &all)?.0;
        let is_own = |gap: &&Gap| {
            !gap.place.contains("perf buffer")
                || gap.place.contains(&format!("{:#x}", buffer.address))
        };
        let gaps: Vec<Gap> = listed.iter().filter(is_own).chain(&own).cloned().collect();
        let lost = own.iter().filter(|gap| gap.cause.is_loss() && gap.events != Some(0));
        let lost: Option<u64> = lost.map(|gap| gap.bytes).sum();
        let bytes: usize = lines.iter().map(|line| line.size).sum();
        let (cpu, owner) = (buffer.cpu.map(|cpu| cpu.to_string()), &buffer.owner);
        let owner =
            Some(format!("{} {}", owner.comm, owner.pid)).filter(|_| owner.comm != NAMELESS);
        let Buffer { size, is_overwritten, is_backward, is_paused, .. } = buffer;
        let mode = format!("{size} {is_overwritten} {is_backward} {is_paused} {}", buffer.lost);
        arrays.push(Array {
            facts: vec![
                ("cpu", cpu),
                ("owner", owner),
                ("mode", Some(mode)),
                ("position", position.map(|at| at.to_string())),
            ],
            losses: losses(&gaps),
            bytes: lost.map(|lost| lost + bytes as u64),
            ..Array { name, lines, more, ..Array::default() }
        });
    }
    Ok(arrays)
}

/// Returns the records of a buffer, and what is lost of them.
fn records(perf: &mut Perf, buffer: &Buffer) -> Result<(Vec<Line>, Vec<Gap>)> {
    let mut lines = Vec::new();
    perf.records(buffer, &mut |record| {
        let text = format!("{} {:02x?}", record.kind, record.bytes);
        let size = record.bytes.len();
        lines.push(Line { time: record.position, size, ..line_of(text) });
        Ok(())
    })?;
    Ok((lines, std::mem::take(&mut perf.evidence.gaps)))
}

/// Returns the histograms of each event.
fn histograms(kernel: &Arc<Kernel>) -> Vec<Array> {
    let read = lastwords_ftrace::memory::histograms(kernel);
    let losses = losses(&read.evidence.gaps);
    let mut arrays: BTreeMap<String, Array> = BTreeMap::new();
    for histogram in read.histograms {
        let Histogram { instance, event, trigger, state, hits, entries, dropped, .. } = &histogram;
        let name = format!("{instance} {event}");
        let array = arrays.entry(name.clone()).or_insert_with(|| Array {
            losses: losses.clone(),
            ..Array { name, ..Array::default() }
        });
        let head = format!("{trigger} {state} hits={hits} entries={entries} dropped={dropped}");
        array.lines.push(line_of(head));
        // The word for parts that are not known, and no brackets as those of fields.
        let row = |row| format!("row={row:?}").replace("Unknown", UNKNOWN).replace(" (", "(");
        array.lines.extend(histogram.rows.iter().map(row).map(line_of));
    }
    let list = Array { name: "list".to_owned(), losses, ..Array::default() };
    arrays.into_values().chain([list]).collect()
}

/// Returns the zones of memory that survives a reset.
fn pstore(image: &dyn Image, budget: &Budget) -> Result<Vec<Array>> {
    let zones = lastwords_kernel::pstore::find(image, budget, &unwatched)?;
    let zone = |zone: Zone| {
        let text = String::from_utf8_lossy(&zone.text);
        Array {
            name: format!("zone at {:#x}", zone.address),
            lines: text.lines().map(|line| line_of(format!("text={line}"))).collect(),
            facts: vec![("kind", Some(format!("{:?}", zone.kind)))],
            losses: zone.missing.into_iter().collect(),
            ..Array::default()
        }
    };
    Ok(zones.into_iter().map(zone).collect())
}

/// Returns the BPF programs and maps of a kernel, with the records of ring buffers and the entries
/// of hash tables. Elements of arrays are left out: those in a page that reads as zero are read as
/// zero.
fn bpf(kernel: &Kernel) -> Result<Vec<Array>> {
    let mut bpf = Bpf::read(kernel);
    let words = bpf.programs.iter().map(ToString::to_string);
    let words = words.chain(bpf.maps.iter().map(ToString::to_string));
    let mut lines: Vec<Line> = words.map(line_of).collect();
    let maps: Vec<Map> =
        bpf.maps.iter().filter(|map| !map.kind.contains("array")).cloned().collect();
    for map in maps {
        let mut put = |time, text| lines.push(Line { time, task: map.words(), ..line_of(text) });
        let take = &mut |content| {
            match content {
                Content::Record(record) => {
                    put(record.position, format!("{:?} {:?}", record.state, record.bytes));
                }
                Content::Entry(entry) => {
                    put(0, format!("{} {:?} {}", entry.key, entry.cpu, entry.value));
                }
                Content::Positions(_) | Content::Zeros(..) => {}
            }
            Ok(())
        };
        bpf.content(&map, take)?;
    }
    let losses = losses(&bpf.evidence.gaps);
    Ok(vec![Array { name: "BPF".to_owned(), lines, losses, ..Array::default() }])
}

/// Returns the trace arrays of a kernel.
fn ftrace(kernel: &Arc<Kernel>, memory: &Arc<VirtualMemory>) -> Result<Vec<Array>> {
    let tracing = lastwords_ftrace::memory::read(kernel, Some(memory))?;
    (0..tracing.arrays.len()).map(|index| array(&tracing, index)).collect()
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
    let more = if array.snapshot.is_some() { read(true)?.0 } else { Vec::new() };
    let ring = array.shown(false).context("no ring")?;
    let mut evidence = ring.checked();
    evidence.append(tracing.evidence.clone());
    evidence.gaps.extend(counters(&**ring));
    let mut losses = losses(&evidence.gaps);
    let bad = evidence.sub_buffers.iter().filter(|sub_buffer| sub_buffer.verdict.is_loss());
    losses.extend(bad.map(|sub_buffer| format!("{sub_buffer:?}")));
    losses.extend((summary.faults > 0).then(|| format!("{} faults", summary.faults)));
    let clock = array.clock.as_ref().map(|clock| clock.name.clone());
    Ok(Array {
        facts: vec![
            ("tracer", array.tracer.clone()),
            ("clock", clock),
            ("state", array.is_on.map(|on| on.to_string())),
        ],
        has_notes: !summary.notes.is_empty(),
        ..Array { name: array.name.clone(), lines, more, losses, ..Array::default() }
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
    let [cpu, task, flags, text] = [cpu, task, flags, text].map(word);
    Some(Line { time, cpu, task, flags, text, size: 0 })
}
