//! Opens files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::{Array, Clock, CpuRing, HeaderPage, Stats, Tracing, UNKNOWN};
use lastwords_bytes::{Budget, ByteOrder, Error as Located, ErrorKind};
use lastwords_trace::evidence::{Cause, Evidence, SubBuffer, Verdict};
use lastwords_trace::tracer::counts_nanoseconds;

use super::MAGIC;
use super::chunks::{Algorithm, Chunks};
use super::listing::{DESCRIPTIONS, Machine, reader};
use super::options::{Buffer, CpuData, FileOptions, MOST_CPUS};
use super::reader::{Source, SourceReader};
use super::ring::{Data, FileRing};
use super::sections;
use lastwords_ctf::{Error, Result};

/// Size limits of a sub-buffer in bytes. The kernel's smallest is a page; the largest is set by
/// `RB_WRITE_MASK`.
const SMALLEST_PAGE: u32 = 1 << 12;
const LARGEST_PAGE: u32 = 1 << 20;
/// Most bytes of a list of clocks.
const LONGEST_CLOCKS: u64 = 1 << 12;
/// Options with which trace-cmd shows entries of the function graph tracer. A file does not name
/// the tracer that wrote them.
const GRAPH_OPTIONS: [&str; 3] = ["funcgraph-duration", "funcgraph-overhead", "funcgraph-irqs"];

/// Words that follow the descriptions and the number of CPUs in version 6.
const END_OF_DESCRIPTIONS: [&[u8]; 2] = [b"options  \0", b"flyrecord\0"];

/// The fixed header of a file.
struct FileHeader {
    word_size: u8,
    page_size: u32,
    algorithm: Algorithm,
}

/// Returns the clock with this name; none for [`UNKNOWN`].
#[must_use]
pub fn clock(name: &str) -> Option<Clock> {
    (name != UNKNOWN).then(|| Clock { name: name.to_owned(), is_in_ns: counts_nanoseconds(name) })
}

/// Opens a trace.dat file of version 6 or 7. Descriptions are read at once; sub-buffers are read
/// when they are asked for.
///
/// # Errors
/// The file cannot be read, is not a trace.dat file, has an unknown version or compression, or ends
/// before its buffers are described. Positions in errors are offsets in the file. An error is also
/// returned if `budget` is spent.
pub fn open(path: &Path, budget: &Arc<Budget>) -> Result<Tracing> {
    let mut tracing = read(path, budget).map_err(Error::Input)?;
    for gap in &mut tracing.evidence.gaps {
        gap.place = format!("{}: {}", path.display(), gap.place);
    }
    Ok(tracing)
}

fn read(path: &Path, budget: &Arc<Budget>) -> std::result::Result<Tracing, Located> {
    let mut source = Source::open(path, budget)?;
    let mut at = source.at(0);
    if at.bytes(MAGIC.len() as u64)? != MAGIC {
        return Err(source.at(0).unexpected(0, "the magic bytes of a trace.dat file"));
    }
    let version = at.string()?;
    let (order, word_size) = (at.u8()?, at.u8()?);
    let place = at.offset;
    if order > 1 || !matches!(word_size, 4 | 8) {
        return Err(source.at(place).unexpected(
            u64::from(word_size),
            "a byte order of 0 or 1, and a word size of 4 or 8",
        ));
    }
    source.order = if order == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let mut at = source.at(place);
    let page_size = at.u32()?;
    let mut begin = FileHeader { word_size, page_size, algorithm: Algorithm::None };
    match version.as_str() {
        "6" => version_6(&source, at.offset, &begin),
        "7" => {
            let name = at.string()?;
            at.string()?;
            begin.algorithm = Algorithm::parse(&name).ok_or_else(|| {
                at.unexpected(0, &format!("compression none, zstd or zlib; this is {name:?}"))
            })?;
            let first = at.u64()?;
            version_7(&source, first, &begin)
        }
        other => Err(source.at(10).unexpected(0, &format!("version 6 or 7; this is {other:?}"))),
    }
}

fn version_7(
    source: &Source,
    first: u64,
    begin: &FileHeader,
) -> std::result::Result<Tracing, Located> {
    let mut options = FileOptions::default();
    let truncation = sections::options(source, begin.algorithm, first, &mut options)?;
    let mut machine = sections::machine(source, begin.algorithm, &options);
    if let Some(truncation) = truncation {
        sections::report_missing(source, &truncation, &options, &mut machine);
    }
    let mut arrays = Vec::new();
    for buffer in std::mem::take(&mut options.buffers) {
        // A copy of the file would have an entry for each of the machine's CPUs, whether or not it
        // has data.
        source
            .entries((buffer.cpu_data.len() as u64).max(u64::from(options.cpus.min(MOST_CPUS))))?;
        let is_compressed = sections::header(source, buffer.offset).is_ok_and(|h| h.is_compressed);
        let algorithm = if is_compressed { begin.algorithm } else { Algorithm::None };
        let page_size = if buffer.page_size > 0 { buffer.page_size } else { begin.page_size };
        arrays.push(array(
            source,
            &mut machine,
            &options,
            &buffer,
            page_size,
            (is_compressed, algorithm),
        ));
    }
    Ok(tracing(source, begin, machine, &options, arrays))
}

fn version_6(
    source: &Source,
    offset: u64,
    begin: &FileHeader,
) -> std::result::Result<Tracing, Located> {
    let mut machine = Machine::default();
    let mut options = FileOptions::default();
    // The descriptions follow each other, each with its own lengths.
    let mut at = source.at(offset);
    let window = source.length.saturating_sub(offset).min(1 << 28);
    let bytes = at.clone().bytes(window)?;
    at.offset = descriptions(source, &bytes, offset, &mut machine)?;
    drop(bytes);
    let cpus = at.u32()?;
    if !(1..=MOST_CPUS).contains(&cpus) {
        return Err(at.unexpected(u64::from(cpus), "a number of CPUs"));
    }
    options.cpus = cpus;
    let mut kind = at.bytes(10)?;
    if kind == b"options  \0" {
        loop {
            let id = at.u16()?;
            if id == super::id::DONE {
                break;
            }
            let size = at.u32()?;
            let data = at.bytes(u64::from(size))?;
            options.read_or_lose(id, &data, source.order, false);
        }
        kind = at.bytes(10)?;
    }
    if kind != b"flyrecord\0" {
        return Err(at.unexpected(
            0,
            "the word flyrecord: a file with the text of a latency tracer has no events",
        ));
    }
    let page_size = if machine.data_size > 0 && begin.page_size == 0 {
        machine.data_size.saturating_add(16)
    } else {
        begin.page_size
    };
    let plain = (false, Algorithm::None);
    let stats = options.stats_before("");
    let mut top = Buffer { stats, cpu_data: table(&mut at, cpus)?, ..Buffer::default() };
    top.clock = options.has_clock.then(|| clock_after_table(&mut at)).flatten().unwrap_or_default();
    let mut arrays = vec![array(source, &mut machine, &options, &top, page_size, plain)];
    for mut buffer in std::mem::take(&mut options.buffers) {
        let mut at = source.at(buffer.offset);
        source.entries(u64::from(options.cpus.min(MOST_CPUS)))?;
        buffer.stats = options.stats_before(&buffer.name);
        // The table of an instance follows the data of the buffers before it.
        buffer.cpu_data = match instance_table(&mut at, cpus) {
            Ok(cpu_data) => cpu_data,
            Err(error) if error.kind == ErrorKind::Budget => return Err(error),
            Err(error) => {
                machine.lose(
                    Cause::Missing,
                    None,
                    format!("all of instance {}: {error}", buffer.name),
                );
                continue;
            }
        };
        buffer.clock =
            options.has_clock.then(|| clock_after_table(&mut at)).flatten().unwrap_or_default();
        arrays.push(array(source, &mut machine, &options, &buffer, page_size, plain));
    }
    Ok(tracing(source, begin, machine, &options, arrays))
}

/// Reads the descriptions of a file of version 6, which begin at `offset`. Returns the offset of
/// the number of CPUs behind them. If their lengths do not lead there, it is found by the word that
/// follows it, and what could not be read is a loss.
fn descriptions(
    source: &Source,
    bytes: &[u8],
    offset: u64,
    machine: &mut Machine,
) -> std::result::Result<u64, Located> {
    let mut from = reader(bytes, source.order).based(offset);
    let read = DESCRIPTIONS.iter().try_for_each(|(_, what, read)| {
        read(machine, &mut from)
            .map_err(|error| (format!("{what}, and what follows: {error}"), error))
    });
    let begins = |place: usize, words: &[&[u8]]| {
        let rest = bytes.get(place..).unwrap_or_default();
        words.iter().any(|word| rest.starts_with(word))
    };
    let end = from.offset();
    let (why, error) = match read {
        Err((_, error)) if error.kind == ErrorKind::Budget => return Err(error),
        Err(wrong) => wrong,
        Ok(()) => {
            let behind =
                usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).saturating_add(4);
            if begins(behind, &END_OF_DESCRIPTIONS) || begins(behind, &[b"latency  \0"]) {
                return Ok(end);
            }
            let at = source.at(end.saturating_add(4));
            let error = at.unexpected(
                0,
                "the word options or flyrecord behind the descriptions of the events",
            );
            (format!("the descriptions of the events: {error}"), error)
        }
    };
    let Some(behind) = (4..bytes.len()).find(|place| begins(*place, &END_OF_DESCRIPTIONS)) else {
        return Err(error);
    };
    machine.lose(Cause::Damaged, None, why);
    Ok(offset.saturating_add(behind as u64).saturating_sub(4))
}

/// Reads a table of the offsets and sizes of the CPUs' data.
fn table(at: &mut SourceReader<'_>, cpus: u32) -> std::result::Result<Vec<CpuData>, Located> {
    at.source.entries(u64::from(cpus))?;
    (0..cpus).map(|cpu| Ok((cpu, at.u64()?, at.u64()?))).collect()
}

/// Reads the table of an instance. Some versions put the number of CPUs before it.
fn instance_table(
    at: &mut SourceReader<'_>,
    mut cpus: u32,
) -> std::result::Result<Vec<CpuData>, Located> {
    if at.clone().bytes(10)? == b"flyrecord\0" {
        at.bytes(10)?;
    } else {
        cpus = at.u32()?;
        let word = at.bytes(10)?;
        if word != b"flyrecord\0" || cpus > MOST_CPUS {
            return Err(at.unexpected(u64::from(cpus), "the word flyrecord and a table of CPUs"));
        }
    }
    table(at, cpus)
}

/// Reads the list of clocks that follows a table in version 6. Returns `None` if something else
/// follows.
fn clock_after_table(at: &mut SourceReader<'_>) -> Option<String> {
    let size = at.u64().ok().filter(|size| (1..=LONGEST_CLOCKS).contains(size))?;
    let text = at.bytes(size).ok()?;
    text.is_ascii().then(|| String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
}

fn array(
    source: &Source,
    machine: &mut Machine,
    options: &FileOptions,
    buffer: &Buffer,
    page_size: u32,
    (is_compressed, algorithm): (bool, Algorithm),
) -> Array {
    if !(SMALLEST_PAGE..=LARGEST_PAGE).contains(&page_size) {
        let note = format!(
            "sub-buffers of {page_size} bytes: the kernel's have {SMALLEST_PAGE} to {LARGEST_PAGE}"
        );
        machine.note(note);
    }
    let page_size = page_size.clamp(SMALLEST_PAGE, LARGEST_PAGE);
    let (mut cpus, mut data, mut faults) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (cpu, offset, size) in &buffer.cpu_data {
        let there = claim(source, machine, *cpu, (*offset, *size));
        let chunks = is_compressed.then(|| {
            let (chunks, wrong) = Chunks::read(source, algorithm, page_size, (*offset, there));
            if let Some(error) = wrong {
                machine.lose(
                    Cause::Damaged,
                    None,
                    format!("CPU {cpu}: its compressed data: {error}"),
                );
            }
            chunks
        });
        let bytes = chunks.as_ref().map_or(there, Chunks::size);
        let stats = counters(options, buffer, *cpu, bytes);
        let whole = bytes.checked_div(u64::from(page_size)).unwrap_or(0);
        let sub_buffers = usize::try_from(whole).unwrap_or(0);
        let rest = bytes.saturating_sub(whole.saturating_mul(u64::from(page_size)));
        if rest > 0 {
            let why = format!("{rest} of its {page_size} bytes are there");
            let (stream, sequence) = (cpus.len(), sub_buffers as u64);
            let row = SubBuffer { stream, sequence, verdict: Verdict::Missing, content: 0, why };
            faults.insert((stream, sub_buffers), row);
        }
        cpus.push(CpuRing { cpu: *cpu, sub_buffers, sub_buffer_size: page_size, stats });
        data.push(Data { offset: *offset, size: bytes, chunks });
    }
    let header_page = machine.header_page.unwrap_or(HeaderPage::of_word_size(8));
    let ring = FileRing {
        source: source.clone(),
        cpus,
        data,
        header_page,
        algorithm,
        unpacked: Mutex::default(),
        faults: Mutex::new(faults),
        missed: Mutex::default(),
        correction: Some(options.correction.clone()).filter(|correction| !correction.is_none()),
        inexact: Mutex::default(),
    };
    Array {
        tracer: Some("nop".to_owned()),
        clock: clock(&options.clock(buffer)),
        tracer_options: GRAPH_OPTIONS.map(str::to_owned).to_vec(),
        ..Array::unknown(&buffer.name, Arc::new(ring))
    }
}

/// Returns how many bytes of a CPU's data the file has, and claims them for this CPU.
fn claim(source: &Source, machine: &mut Machine, cpu: u32, (offset, size): (u64, u64)) -> u64 {
    let mut there = size.min(source.length.saturating_sub(offset));
    if there < size {
        let place =
            format!("CPU {cpu}: the file has {there} of {size} bytes at offset {offset:#x}");
        machine.lose(Cause::Missing, Some(size.saturating_sub(there)), place);
    }
    // The data of the CPUs do not overlap, so all together they cannot be larger than the file.
    if there > source.length.saturating_sub(machine.claimed) {
        let place = format!(
            "CPU {cpu}: {there} bytes at offset {offset:#x} overlap the data of other CPUs"
        );
        machine.lose(Cause::Damaged, Some(there), place);
        there = 0;
    }
    machine.claimed = machine.claimed.saturating_add(there);
    there
}

/// Returns the counters of a CPU. `bytes`: the size of its sub-buffers in the file.
fn counters(options: &FileOptions, buffer: &Buffer, cpu: u32, bytes: u64) -> Stats {
    let mut stats = buffer.stats.get(&cpu).copied().unwrap_or_default();
    if bytes > 0 && (stats.entries == 0 || stats.read > 0 && !options.is_ours()) {
        // trace-cmd drained the ring, so the file has the events that the kernel counts as read.
        // The kernel counts later events as entries, but they are not in the file.
        stats.entries = std::mem::take(&mut stats.read);
    }
    stats
}

/// Sets the tracer of the first array, if the file names it.
fn set_tracer(options: &FileOptions, arrays: &mut [Array]) {
    if let ([tracer, on @ ..], Some(array)) = (options.tracer.as_slice(), arrays.first_mut())
        && options.is_ours()
        && options
            .tracer
            .iter()
            .flat_map(|word| word.bytes())
            .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
    {
        array.tracer = Some(tracer.clone());
        // Without options, the kernel's defaults are those of the text.
        if !on.is_empty() {
            (array.options, array.tracer_options) = (Some(on.to_vec()), on.to_vec());
        }
    }
}

fn tracing(
    source: &Source,
    begin: &FileHeader,
    mut machine: Machine,
    options: &FileOptions,
    mut arrays: Vec<Array>,
) -> Tracing {
    set_tracer(options, &mut arrays);
    for wrong in &options.faults {
        machine.lose(Cause::Damaged, None, wrong.clone());
    }
    if let Some(missing) = options.missing.as_ref().filter(|_| options.is_ours()) {
        machine.lose(Cause::Missing, None, missing.clone());
    }
    let highest = arrays
        .iter()
        .flat_map(|a| a.live.cpus().iter().map(|c| c.cpu.saturating_add(1)))
        .max()
        .unwrap_or(0);
    if let Some(top) = arrays.iter().position(|a| a.name.is_empty()) {
        arrays.swap(0, top);
    }
    let header_page = machine.header_page.unwrap_or(HeaderPage::of_word_size(begin.word_size));
    if machine.more_notes > 0 {
        machine.notes.push(format!("{} more remarks like these", machine.more_notes));
    }
    Tracing {
        page_size: begin.page_size.min(LARGEST_PAGE),
        cpus: if options.cpus > 0 { options.cpus } else { highest },
        formats: machine.formats,
        comms: machine.comms,
        learns_comms: true,
        printk_formats: machine.printk_formats,
        symbols: Arc::new(machine.symbols),
        clocks: options.clocks.clone(),
        real_time: options.real_time,
        times_of: options.correction.shifted_to.or(options.trace_id),
        arrays,
        evidence: Evidence { notes: machine.notes, gaps: machine.gaps, ..Evidence::default() },
        // The kernel's word size may be larger than that of the user space, which the file has.
        ..Tracing::from_uname(&options.uname, header_page, source.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dat::{WriteOptions, write};
    use crate::samples::silent;

    #[test]
    fn a_file_of_ours_names_the_tracer_and_its_options() {
        let of = |tracer: &str, version: u8| {
            let mut machine = silent();
            machine.arrays[0].tracer = Some(tracer.to_owned());
            machine.arrays[0].options =
                Some(vec!["print-parent".to_owned(), "funcgraph-cpu".to_owned()]);
            machine.arrays[0].tracer_options = vec!["funcgraph-cpu".to_owned()];
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("trace.dat");
            let missing = Some("what a sender kept".to_owned());
            write(
                &path,
                &machine,
                &WriteOptions { version: Some(version), missing, ..WriteOptions::default() },
            )
            .unwrap();
            let read = open(&path, &Arc::default()).unwrap();
            assert!(
                read.evidence.gaps.iter().any(|gap| gap.place.contains("a sender kept")),
                "{:?}",
                read.evidence
            );
            let array = read.arrays.into_iter().next().unwrap();
            (array.tracer, array.options)
        };
        for version in [6, 7] {
            let options = ["funcgraph-cpu", "print-parent"].map(str::to_owned).to_vec();
            assert_eq!(
                of("function_graph", version),
                (Some("function_graph".to_owned()), Some(options))
            );
            assert_eq!(of("nop", version), (Some("nop".to_owned()), None));
            assert_eq!(
                of("a\u{1b}[2J", version),
                (Some("nop".to_owned()), None),
                "nothing for a terminal to obey"
            );
        }
    }
}
