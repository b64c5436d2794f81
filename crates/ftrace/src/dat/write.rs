//! Writes files. The layout is computed first, so that nothing is written twice and no sub-buffer
//! is kept in memory.

use super::parts::{self, Put};
use super::write_options::WriteOptions;
use super::{MAGIC, id};
use crate::page::{Cursor, Events, MISSED_EVENTS, MISSED_STORED, put_native};
use crate::{Array, Ring, Tracing};
use lastwords_bytes::{ByteOrder, low_u32};
use lastwords_ctf::{Error, Result, Totals, create_file};
use lastwords_trace::evidence::Verdict;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// An array, and its live ring or snapshot, if it has that.
struct Source<'a> {
    array: &'a Array,
    ring: Option<&'a dyn Ring>,
    sub_buffer_size: u32,
}

/// The position of a CPU's data.
#[derive(Debug, Clone, Copy)]
struct CpuExtent {
    cpu: u32,
    /// Position in [`Ring::cpus`], or `None` for a CPU without data.
    lane: Option<usize>,
    offset: u64,
    size: u64,
}

/// The positions of an array's data.
struct ArrayLayout {
    /// The bytes that precede the data, and their offset.
    header: Option<(u64, Vec<u8>)>,
    extents: Vec<CpuExtent>,
}

/// Writes arrays of `tracing` into a new file: the top level, and each instance as a buffer.
/// Returns the totals of each array, with its position in [`Tracing::arrays`]; the bytes of the
/// file's head count for the first.
///
/// # Errors
/// The file exists already or cannot be written, or the version is neither 6 nor 7.
pub fn write(
    path: &Path,
    tracing: &Tracing,
    options: &WriteOptions,
) -> Result<Vec<(usize, Totals)>> {
    let (positions, sources) = sources(tracing, options);
    let (meta, layouts) = layout(tracing, &sources, options, None)?;
    let file = create_file(path)?;
    let mut out = Counted { inner: BufWriter::with_capacity(1 << 20, file), written: 0 };
    let written = copy(&mut out, tracing, &sources, &meta, &layouts);
    let totals = written
        .and_then(|totals| out.inner.flush().map(|()| totals))
        .map_err(Error::io(path, "write"))?;
    Ok(positions.into_iter().zip(totals).collect())
}

/// The position of a CPU's sub-buffers in a file that has everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPosition {
    /// Position of the array in [`Tracing::arrays`].
    pub array: usize,
    /// Position of the CPU in [`Ring::cpus`].
    pub lane: usize,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Size of all sub-buffers of the CPU, in bytes.
    pub size: u64,
}

/// The sub-buffers of one CPU of the first array that a file already has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InPlace {
    /// Position of the CPU in [`Ring::cpus`].
    pub lane: usize,
    /// Offset in the file in bytes, a multiple of the sub-buffer size and of the page size.
    pub offset: u64,
}

/// Writes everything into a file except the sub-buffers. The caller copies them, in the form that
/// the kernel gives to a reader (the committed size in the header, as `trace_pipe_raw` has it), to
/// the positions that are returned. Rings are read for the addresses whose symbols the file needs.
/// The file has its final length afterwards.
///
/// The file is empty, or it has the sub-buffers of `in_place`, which stay where they are: the head
/// is written before them, and all other sub-buffers have positions after them. Returns `None`, and
/// writes nothing, if the head does not fit before them.
///
/// # Errors
/// The file cannot be written (errors name `path`), or the version is neither 6 nor 7.
pub fn write_head(
    file: &File,
    path: &Path,
    tracing: &Tracing,
    options: &WriteOptions,
    in_place: Option<InPlace>,
) -> Result<Option<Vec<DataPosition>>> {
    let (positions, sources) = sources(tracing, options);
    let (meta, layouts) = layout(tracing, &sources, options, in_place)?;
    let mut parts = vec![(0, meta.as_slice())];
    let headers = layouts.iter().filter_map(|layout| layout.header.as_ref());
    parts.extend(headers.map(|(offset, header)| (*offset, header.as_slice())));
    let end_of_part = |(offset, bytes): &(u64, &[u8])| offset.saturating_add(bytes.len() as u64);
    let reaches = |part: &(u64, &[u8]), place: InPlace| {
        part.0 < place.offset && end_of_part(part) > place.offset
    };
    if in_place.is_some_and(|place| parts.iter().any(|part| reaches(part, place))) {
        return Ok(None);
    }
    let (mut data, mut end) = (Vec::new(), parts.iter().map(end_of_part).max().unwrap_or(0));
    for (array, layout) in positions.into_iter().zip(&layouts) {
        for CpuExtent { lane, offset, size, .. } in &layout.extents {
            end = offset.saturating_add(*size).max(end);
            data.extend(lane.map(|lane| DataPosition {
                array,
                lane,
                offset: *offset,
                size: *size,
            }));
        }
    }
    let written = parts.iter().try_for_each(|(offset, bytes)| file.write_all_at(bytes, *offset));
    written.and_then(|()| file.set_len(end)).map_err(Error::io(path, "write"))?;
    Ok(Some(data))
}

/// Returns the arrays that are written, with their positions.
fn sources<'a>(tracing: &'a Tracing, options: &WriteOptions) -> (Vec<usize>, Vec<Source<'a>>) {
    let wanted = |position: usize| options.arrays.is_empty() || options.arrays.contains(&position);
    let arrays = tracing
        .arrays
        .iter()
        .enumerate()
        .filter(|(position, _)| *position == 0 || wanted(*position));
    arrays.map(|(position, array)| (position, source(array, wanted(position), options))).unzip()
}

/// Returns the start of the file up to the data, and the positions of each array's data.
fn layout(
    tracing: &Tracing,
    sources: &[Source<'_>],
    options: &WriteOptions,
    in_place: Option<InPlace>,
) -> Result<(Vec<u8>, Vec<ArrayLayout>)> {
    let sizes_differ = sources
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a.sub_buffer_size != b.sub_buffer_size));
    match options.version.unwrap_or(if sizes_differ { 7 } else { 6 }) {
        6 => Ok(version_6(tracing, sources, options, in_place)),
        7 => Ok(version_7(tracing, sources, options, in_place)),
        other => Err(Error::Schema(format!("trace.dat of version {other}; there are 6 and 7"))),
    }
}

fn source<'a>(array: &'a Array, wanted: bool, options: &WriteOptions) -> Source<'a> {
    let ring = if options.snapshot { array.snapshot.as_deref() } else { Some(&*array.live) };
    let ring = ring.filter(|_| wanted);
    let size = ring
        .and_then(|r| r.cpus().iter().map(|c| c.sub_buffer_size).max())
        .unwrap_or(4096)
        .max(4096);
    Source { array, ring, sub_buffer_size: size }
}

/// Returns the name and ring of each array.
fn rings<'a>(sources: &[Source<'a>]) -> Vec<(&'a str, Option<&'a dyn Ring>)> {
    sources.iter().map(|source| (source.array.name.as_str(), source.ring)).collect()
}

struct Counted<W: Write> {
    inner: W,
    written: u64,
}

impl<W: Write> Counted<W> {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.written = self.written.saturating_add(bytes.len() as u64);
        self.inner.write_all(bytes)
    }

    fn pad_to(&mut self, offset: u64) -> std::io::Result<()> {
        const ZEROES: [u8; 4096] = [0; 4096];
        while self.written < offset {
            let step = usize::try_from(offset.saturating_sub(self.written)).unwrap_or(usize::MAX);
            self.put(ZEROES.get(..step).unwrap_or(&ZEROES))?;
        }
        Ok(())
    }
}

/// Returns the positions of a ring's CPUs in the file, from `offset` on, or after the data that the
/// file already has. Each position is a multiple of the page size.
fn cpu_extents(
    source: &Source<'_>,
    cpus: &[u32],
    page: u64,
    mut offset: u64,
    in_place: Option<InPlace>,
) -> Vec<CpuExtent> {
    let rings = source.ring.map(Ring::cpus).unwrap_or_default();
    let lanes: HashMap<u32, usize> =
        rings.iter().enumerate().rev().map(|(lane, ring)| (ring.cpu, lane)).collect();
    let size_of = |lane: Option<usize>| {
        let count = lane.and_then(|at| rings.get(at)).map_or(0, |ring| ring.sub_buffers as u64);
        count.saturating_mul(u64::from(source.sub_buffer_size))
    };
    if let Some(place) = in_place {
        offset = offset.max(place.offset.saturating_add(size_of(Some(place.lane))));
    }
    let mut extents = Vec::new();
    for cpu in cpus {
        let lane = lanes.get(cpu).copied();
        let (cpu, size) = (*cpu, size_of(lane));
        if let Some(place) = in_place.filter(|place| lane == Some(place.lane)) {
            extents.push(CpuExtent { cpu, lane, offset: place.offset, size });
            continue;
        }
        offset = offset.next_multiple_of(page);
        extents.push(CpuExtent { cpu, lane, offset, size });
        offset = offset.saturating_add(size);
    }
    extents
}

/// Returns the alignment of each CPU's data in bytes. Readers map the data into memory.
fn page_of(tracing: &Tracing, source: &Source<'_>) -> u64 {
    u64::from(source.sub_buffer_size.max(tracing.page_size))
}

fn end_of(extents: &[CpuExtent], start: u64) -> u64 {
    extents.iter().map(|p| p.offset.saturating_add(p.size)).max().unwrap_or(start)
}

pub(super) fn begin(tracing: &Tracing, version: &str, sub_buffer_size: u32) -> Put {
    let mut put = Put::new(tracing.byte_order);
    put.bytes.extend_from_slice(MAGIC);
    put.string(version);
    put.bytes.push(u8::from(tracing.byte_order == ByteOrder::Big));
    put.bytes.push(tracing.word_size);
    put.u32(sub_buffer_size);
    put
}

fn option(put: &mut Put, id: u16, data: &[u8]) {
    put.u16(id);
    put.count(data.len());
    put.bytes.extend_from_slice(data);
}

/// Returns the start of a file of version 6 up to the data, and the positions of each array's data.
///
/// CPUs have no number in this version; their position is the number: `0 ..` up to the highest that
/// any ring has. The option of an instance has the offset of its table.
fn version_6(
    tracing: &Tracing,
    sources: &[Source<'_>],
    how: &WriteOptions,
    mut in_place: Option<InPlace>,
) -> (Vec<u8>, Vec<ArrayLayout>) {
    let sub_buffer_size = sources.first().map_or(4096, |s| s.sub_buffer_size);
    let mut put = begin(tracing, "6", sub_buffer_size);
    put.bytes.extend(
        parts::descriptions(tracing, &rings(sources), sub_buffer_size, how)
            .into_iter()
            .flat_map(|(_, _, data)| data),
    );
    let highest = sources
        .iter()
        .filter_map(|s| s.ring)
        .flat_map(|r| r.cpus().iter().map(|c| c.cpu.saturating_add(1)))
        .max();
    let cpus: Vec<u32> = (0..highest.unwrap_or(1).max(tracing.cpus).min(1 << 16)).collect();
    put.count(cpus.len());
    put.bytes.extend_from_slice(b"options  \0");
    let top = sources.first();
    for (id, data) in parts::common_options(
        tracing,
        &rings(sources),
        top.map_or("", |s| s.array.clock_name()),
        how,
    ) {
        option(&mut put, id, &data);
    }
    let mut count = Put::new(tracing.byte_order);
    count.count(cpus.len());
    option(&mut put, id::CPU_COUNT, &count.bytes);
    // The options are followed by the table of the top level and one for each instance. A clock
    // follows each table.
    let clock = |source: &Source<'_>| parts::clock(tracing, source.array.clock_name());
    // The word before the table, an offset and a size for each CPU, the length of the clock, and
    // the clock.
    let table = |source: &Source<'_>| {
        (cpus.len() as u64)
            .saturating_mul(16)
            .saturating_add(clock(source).len() as u64)
            .saturating_add(10 + 8)
    };
    let instances = sources.get(1..).unwrap_or_default();
    let options: u64 =
        instances.iter().map(|s| (s.array.name.len() as u64).saturating_add(2 + 4 + 8 + 1)).sum();
    let tables = (put.bytes.len() as u64).saturating_add(options).saturating_add(2);
    let mut at = tables.saturating_add(top.map_or(0, table));
    for source in instances {
        let mut data = Put::new(tracing.byte_order);
        data.u64(at);
        at = at.saturating_add(table(source));
        data.string(&source.array.name);
        option(&mut put, id::BUFFER, &data.bytes);
    }
    put.u16(id::DONE);
    let mut offset = at;
    let mut layouts = Vec::new();
    for source in sources {
        let extents = cpu_extents(source, &cpus, page_of(tracing, source), offset, in_place.take());
        offset = end_of(&extents, offset);
        put.bytes.extend_from_slice(b"flyrecord\0");
        for extent in &extents {
            put.u64(extent.offset);
            put.u64(extent.size);
        }
        put.sized(clock(source).as_bytes());
        layouts.push(ArrayLayout { header: None, extents });
    }
    (put.bytes, layouts)
}

/// Appends a section of version 7: its header with the id of its name, and its content.
fn section(put: &mut Put, id: u16, name: u32, data: &[u8]) -> u64 {
    let offset = put.bytes.len() as u64;
    put.u16(id);
    put.u16(0);
    put.u32(name);
    put.u64(data.len() as u64);
    put.bytes.extend_from_slice(data);
    offset
}

/// Returns the start of a file of version 7 up to the data, and the positions of each array's data.
/// Nothing is compressed.
fn version_7(
    tracing: &Tracing,
    sources: &[Source<'_>],
    how: &WriteOptions,
    mut in_place: Option<InPlace>,
) -> (Vec<u8>, Vec<ArrayLayout>) {
    let sub_buffer_size = sources.first().map_or(4096, |s| s.sub_buffer_size);
    let mut put = begin(tracing, "7", sub_buffer_size);
    put.string("none");
    put.string("");
    let first_options = put.bytes.len();
    put.u64(0);
    let mut strings = Put::new(tracing.byte_order);
    let mut name = |text: &str| {
        let at = low_u32(strings.bytes.len() as u64);
        strings.string(text);
        at
    };
    let mut options: Vec<(u16, Vec<u8>)> = Vec::new();
    for (id, title, data) in parts::descriptions(tracing, &rings(sources), sub_buffer_size, how) {
        let offset = section(&mut put, id, name(title), &data);
        let mut value = Put::new(tracing.byte_order);
        value.u64(offset);
        options.push((id, value.bytes));
    }
    let top = sources.first();
    options.extend(parts::common_options(
        tracing,
        &rings(sources),
        top.map_or("", |s| s.array.clock_name()),
        how,
    ));
    let (options_name, buffer_name) = (name("options"), name("buffer flyrecord"));
    let strings_name = name("strings");
    section(&mut put, id::STRINGS, strings_name, &strings.bytes);
    // The options follow everything else except the data. The length of a buffer's option is known
    // before its content.
    let buffer_size = |s: &Source<'_>| {
        let names = s.array.name.len().saturating_add(s.array.clock_name().len());
        lanes(s).len().saturating_mul(20).saturating_add(names).saturating_add(8 + 1 + 1 + 8)
    };
    let fixed: usize = options.iter().map(|(_, data)| data.len().saturating_add(6)).sum();
    let options_size = fixed
        .saturating_add(sources.iter().map(|s| buffer_size(s).saturating_add(6)).sum::<usize>())
        .saturating_add(14);
    let options_at = put.bytes.len() as u64;
    let mut offset = options_at.saturating_add(16).saturating_add(options_size as u64);
    let mut layouts = Vec::new();
    for source in sources {
        let at = offset;
        let extents = cpu_extents(
            source,
            &lanes(source),
            page_of(tracing, source),
            at.saturating_add(16),
            in_place.take(),
        );
        offset = end_of(&extents, at.saturating_add(16));
        let mut header = Put::new(tracing.byte_order);
        header.u16(id::BUFFER);
        header.u16(0);
        header.u32(buffer_name);
        header.u64(offset.saturating_sub(at).saturating_sub(16));
        options.push((id::BUFFER, buffer(tracing, source, at, &extents)));
        layouts.push(ArrayLayout { header: Some((at, header.bytes)), extents });
    }
    let mut all = Put::new(tracing.byte_order);
    options.iter().for_each(|(id, data)| option(&mut all, *id, data));
    option(&mut all, id::DONE, &[0; 8]);
    section(&mut put, id::DONE, options_name, &all.bytes);
    put_native(&mut put.bytes, first_options, options_at, 8, tracing.byte_order);
    (put.bytes, layouts)
}

fn lanes(source: &Source<'_>) -> Vec<u32> {
    source.ring.map(Ring::cpus).unwrap_or_default().iter().map(|c| c.cpu).collect()
}

fn buffer(tracing: &Tracing, source: &Source<'_>, header: u64, extents: &[CpuExtent]) -> Vec<u8> {
    let mut data = Put::new(tracing.byte_order);
    data.u64(header);
    data.string(&source.array.name);
    data.string(source.array.clock_name());
    data.u32(source.sub_buffer_size);
    data.count(extents.len());
    for extent in extents {
        data.u32(extent.cpu);
        data.u64(extent.offset);
        data.u64(extent.size);
    }
    data.bytes
}

fn copy<W: Write>(
    out: &mut Counted<W>,
    tracing: &Tracing,
    sources: &[Source<'_>],
    meta: &[u8],
    layouts: &[ArrayLayout],
) -> std::io::Result<Vec<Totals>> {
    out.put(meta)?;
    let (mut bytes, mut all, mut before) = (Vec::new(), Vec::new(), 0);
    for (source, layout) in sources.iter().zip(layouts) {
        let mut totals = Totals::default();
        if let Some((offset, header)) = &layout.header {
            out.pad_to(*offset)?;
            out.put(header)?;
        }
        for extent in &layout.extents {
            let (Some(ring), Some(lane)) = (source.ring, extent.lane) else { continue };
            out.pad_to(extent.offset)?;
            totals.streams = totals.streams.saturating_add(u64::from(extent.size > 0));
            for index in 0..ring.cpus().get(lane).map_or(0, |c| c.sub_buffers) {
                sub_buffer(&mut bytes, tracing, ring, lane, index, &mut totals);
                bytes.resize(source.sub_buffer_size as usize, 0);
                out.put(&bytes)?;
            }
            out.pad_to(extent.offset.saturating_add(extent.size))?;
        }
        totals.bytes = out.written.saturating_sub(before);
        before = out.written;
        all.push(totals);
    }
    Ok(all)
}

/// Reads a sub-buffer. Its header is changed to contain the committed size and the number of events
/// that are missing before it, as the kernel writes it for a reader.
fn sub_buffer(
    bytes: &mut Vec<u8>,
    tracing: &Tracing,
    ring: &dyn Ring,
    lane: usize,
    index: usize,
    totals: &mut Totals,
) {
    let info = ring.sub_buffer(lane, index, bytes);
    let begin = tracing.header_page.data_offset as usize;
    bytes.resize(bytes.len().max(begin), 0);
    let committed = info.committed.min(bytes.len().saturating_sub(begin));
    totals.packets = totals.packets.saturating_add(u64::from(committed > 0));
    totals.faults = totals
        .faults
        .saturating_add(u64::from(!matches!(info.verdict, Verdict::Committed | Verdict::Open)));
    let committed = drop_consumed(bytes, tracing, committed, info.consumed);
    let events = Events::new(bytes, tracing.header_page, tracing.byte_order, committed);
    totals.events = totals.events.saturating_add(events.flatten().count() as u64);
    let word = usize::from(tracing.header_page.commit_size);
    let mut commit = committed as u64;
    bytes.get_mut(begin.saturating_add(committed)..).unwrap_or_default().fill(0);
    if let Some(count) = info.missed {
        commit |= MISSED_EVENTS;
        if let Some(count) =
            count.filter(|_| begin.saturating_add(committed).saturating_add(word) <= bytes.len())
        {
            commit |= MISSED_STORED;
            put_native(bytes, begin.saturating_add(committed), count, word, tracing.byte_order);
        }
    }
    put_native(bytes, 8, commit, word, tracing.byte_order);
}

/// Removes the events that a consumer has read, and sets the time in the header to the time reached
/// after them. Returns the remaining part of `committed`.
fn drop_consumed(bytes: &mut [u8], tracing: &Tracing, committed: usize, consumed: usize) -> usize {
    let hidden = consumed.min(committed) & !3;
    if hidden == 0 {
        return committed;
    }
    let mut cursor = Cursor::new(bytes, tracing.header_page, tracing.byte_order, hidden);
    while cursor.next(bytes).is_some() {}
    let begin = tracing.header_page.data_offset as usize;
    bytes.copy_within(begin.saturating_add(hidden)..begin.saturating_add(committed), begin);
    put_native(bytes, 0, cursor.time(), 8, tracing.byte_order);
    committed.saturating_sub(hidden)
}
