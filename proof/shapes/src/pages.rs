//! `trace_pipe_raw` of `lastwords mount`: pages of the kernel's ring buffer
//! (`kernel/trace/ring_buffer.c`), decoded by the text of `events/header_page` and of the `format`
//! files alone.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use rig::process::Mount;

use super::found::{Event, Found};
use super::shape::Shape;

/// A field as a line of a `format` file tells it.
#[derive(Debug)]
struct Field {
    name: String,
    /// The type without `__data_loc` and brackets.
    kind: String,
    is_dynamic: bool,
    is_array: bool,
    offset: usize,
    size: usize,
}

/// A class of the shape, as its `format` file tells it.
struct Class {
    index: usize,
    id: u64,
    fields: Vec<Field>,
}

/// Mounts a session, and returns what its CPUs' files have, in order of time. `size` is that of a
/// page in KiB.
pub(super) fn read(
    shape: &Shape,
    lastwords: &Path,
    folder: &Path,
    session: &str,
    size: u32,
) -> Result<Vec<Event>> {
    let at = folder.join("mount");
    std::fs::create_dir(&at)?;
    let _mount = Mount::start(&mut Command::new(lastwords), &at, session)?;
    std::fs::write(at.join("buffer_subbuf_size_kb"), format!("{size}\n"))
        .context("buffer_subbuf_size_kb")?;
    let classes = (0..shape.classes.len()).filter_map(|index| class(shape, &at, index).transpose());
    let classes = classes.collect::<Result<Vec<Class>>>()?;
    let header = std::fs::read_to_string(at.join("events/header_page"))?;
    let data = header.lines().find(|line| line.contains("char data;")).context("header_page")?;
    let (begin, room) = (attribute(data, "offset")?, attribute(data, "size")?);
    let mut found: Vec<(u64, Event)> = Vec::new();
    let mut cpus: Vec<_> =
        std::fs::read_dir(at.join("per_cpu"))?.flatten().map(|entry| entry.path()).collect();
    cpus.sort();
    for path in cpus {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let cpu = name.strip_prefix("cpu").context("the name of a CPU")?.parse()?;
        let bytes = std::fs::read(path.join("trace_pipe_raw"))
            .with_context(|| path.display().to_string())?;
        ensure!(
            bytes.len().is_multiple_of(begin + room),
            "{}: {} bytes are no pages",
            path.display(),
            bytes.len()
        );
        // The order is that of the file; a clock that goes back does not change it.
        let mut latest = 0;
        for page in bytes.chunks(begin + room) {
            each(page, begin, &mut |time, record| {
                latest = time.max(latest);
                let event = event(&classes, record, cpu)?;
                found.push((latest, event));
                Ok(())
            })
            .with_context(|| path.display().to_string())?;
        }
    }
    found.sort_by_key(|(time, _)| *time);
    Ok(found.into_iter().map(|(_, event)| event).collect())
}

/// Reads the format of a class; none if the session has no such event.
fn class(shape: &Shape, mount: &Path, index: usize) -> Result<Option<Class>> {
    let name = shape.name_of(index);
    let (provider, event) = name.split_once(':').context("a name")?;
    let path = mount.join("events").join(provider).join(event).join("format");
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
    let id = text.lines().find_map(|line| line.strip_prefix("ID: ")).context("no id")?.parse()?;
    let number = std::fs::read_to_string(path.with_file_name("id"))?;
    ensure!(number.trim() == format!("{id}"), "{}: {id}, and id is {number}", path.display());
    let lines = text.lines().filter_map(|line| line.strip_prefix("\tfield:"));
    let fields =
        lines.map(|line| field(line).with_context(|| line.to_owned())).collect::<Result<_>>()?;
    Ok(Some(Class { index, id, fields }))
}

fn attribute(line: &str, name: &str) -> Result<usize> {
    let value = line.split(['\t', ';']).find_map(|part| part.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("no {name}"))?.parse()?)
}

fn field(line: &str) -> Result<Field> {
    let (declaration, _) = line.split_once(';').context("no semicolon")?;
    let (declaration, is_dynamic) = match declaration.strip_prefix("__data_loc ") {
        Some(rest) => (rest, true),
        None => (declaration, false),
    };
    let (kind, name) = declaration.rsplit_once(' ').context("no name")?;
    let (name, is_array) =
        name.split_once('[').map_or((name, kind.ends_with("[]")), |(name, _)| (name, true));
    let (offset, size) = (attribute(line, "offset")?, attribute(line, "size")?);
    let kind = kind.trim_end_matches("[]").to_owned();
    Ok(Field { name: name.to_owned(), kind, is_dynamic, is_array, offset, size })
}

fn unsigned(bytes: &[u8], at: usize, size: usize) -> Result<u64> {
    let bytes = bytes.get(at..at + size).with_context(|| format!("{size} bytes at {at}"))?;
    let mut word = [0; 8];
    word[..size].copy_from_slice(bytes);
    Ok(u64::from_le_bytes(word))
}

/// Calls `take` with the time and the record of each event of a page.
fn each(page: &[u8], begin: usize, take: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let (mut time, commit) = (unsigned(page, 0, 8)?, unsigned(page, 8, 8)?);
    let end = begin + (commit & 0x3fff_ffff) as usize;
    ensure!(end <= page.len() && commit >> 32 == 0, "commit is {commit:#x}");
    let mut at = begin;
    while at < end {
        let head = unsigned(page, at, 4)?;
        at += 4;
        time += head >> 5;
        let length = match head & 31 {
            0 => {
                at += 4;
                unsigned(page, at - 4, 4)? as usize - 4
            }
            30 => {
                time += unsigned(page, at, 4)? << 27;
                at += 4;
                continue;
            }
            kind @ 1..=28 => kind as usize * 4,
            kind => bail!("kind {kind} at {at}"),
        };
        ensure!(at + length <= end, "a record of {length} bytes at {at}, {end} are committed");
        take(time, &page[at..at + length])?;
        at += length;
    }
    Ok(())
}

fn event(classes: &[Class], record: &[u8], cpu: u32) -> Result<Event> {
    let id = unsigned(record, 0, 2)?;
    let class = classes
        .iter()
        .find(|class| class.id == id)
        .with_context(|| format!("INVENTED: type {id}"))?;
    let (mut contexts, mut fields) = (Vec::new(), Vec::new());
    for field in &class.fields {
        let found = value(field, record).with_context(|| format!("{field:?}"))?;
        match field.name.as_str() {
            "common_pid" => contexts.push(("vtid".to_owned(), found)),
            name if name.starts_with("common_") => {}
            name => fields.push((name.to_owned(), found)),
        }
    }
    Ok(Event { class: class.index, cpu: Some(cpu), contexts, fields })
}

fn value(field: &Field, record: &[u8]) -> Result<Found> {
    let (mut at, mut size) = (field.offset, field.size);
    if field.is_dynamic {
        let word = unsigned(record, at, 4)?;
        (at, size) = ((word & 0xffff) as usize, (word >> 16) as usize);
    }
    if !field.is_array {
        return scalar(&field.kind, unsigned(record, at, size)?, size);
    }
    let bytes = record.get(at..at + size).context("an array behind the end")?;
    if field.kind == "char" {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(size);
        ensure!(!field.is_dynamic || end + 1 == size, "a text of {size} bytes ends at {end}");
        return Ok(Found::Text(bytes[..end].to_vec()));
    }
    let width = match field.kind.trim_start_matches(|c: char| c.is_ascii_lowercase()) {
        "" if field.kind == "double" => 8,
        "" if field.kind == "float" => 4,
        "" => 1,
        bits => bits.parse::<usize>()? / 8,
    };
    ensure!(size.is_multiple_of(width), "{size} bytes of elements of {width}");
    let element = |at: usize| scalar(&field.kind, unsigned(bytes, at, width)?, width);
    Ok(Found::List((0..size).step_by(width).map(element).collect::<Result<_>>()?))
}

fn scalar(kind: &str, bits: u64, size: usize) -> Result<Found> {
    let shift = 64 - size * 8;
    Ok(match kind {
        "float" => Found::Double(f64::from(f32::from_bits(bits as u32))),
        "double" => Found::Double(f64::from_bits(bits)),
        "int" | "s8" | "s16" | "s32" | "s64" => {
            Found::Integer(i128::from(((bits << shift) as i64) >> shift))
        }
        "bool" | "unsigned short" | "unsigned char" | "u8" | "u16" | "u32" | "u64" => {
            Found::Integer(i128::from(bits))
        }
        kind => bail!("the type {kind}"),
    })
}
