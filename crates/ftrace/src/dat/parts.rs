//! Writes the parts of a file that describe the machine. Both versions of the format have the same
//! bytes here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::{Array, Format, Ring, Stats, Tracing};
use lastwords_bytes::ByteOrder;

use super::needed::Needed;
use super::options::MOST_CPUS;
use super::{WriteOptions, id, relation};
use crate::ctf::put;
use crate::format_file;

/// Appends integers in the file's byte order.
pub(super) struct Put {
    pub(super) bytes: Vec<u8>,
    order: ByteOrder,
}

impl Put {
    pub(super) fn new(order: ByteOrder) -> Self {
        Self { bytes: Vec::new(), order }
    }

    pub(super) fn u16(&mut self, value: u16) {
        put(&mut self.bytes, self.order, value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        put(&mut self.bytes, self.order, value.to_le_bytes());
    }

    /// Appends a number of bytes or parts. A section with more than 4 GiB cannot be written.
    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    pub(super) fn u64(&mut self, value: u64) {
        put(&mut self.bytes, self.order, value.to_le_bytes());
    }

    /// Appends text and a NUL.
    pub(super) fn string(&mut self, text: &str) {
        self.bytes.extend(text.bytes().filter(|b| *b != 0));
        self.bytes.push(0);
    }

    /// Appends a length of eight bytes and text.
    pub(super) fn sized(&mut self, text: &[u8]) {
        self.u64(text.len() as u64);
        self.bytes.extend_from_slice(text);
    }
}

/// Returns the descriptions in the order of a file: id, name of the section, and bytes. The symbols
/// are those that the sub-buffers of `rings` need, or all.
pub(super) fn descriptions(
    tracing: &Tracing,
    rings: &[(&str, Option<&dyn Ring>)],
    sub_buffer_size: u32,
    how: &WriteOptions,
) -> [(u16, &'static str, Vec<u8>); 6] {
    let rings: Vec<&dyn Ring> = rings.iter().filter_map(|(_, ring)| *ring).collect();
    let needed = if how.all_symbols { None } else { Needed::new(tracing, &rings) };
    [
        (id::HEADER_INFO, "headers", headers(tracing, sub_buffer_size)),
        (id::FTRACE_EVENTS, "ftrace events", own_events(tracing)),
        (id::EVENT_FORMATS, "events format", events(tracing, &|_| true)),
        (id::KALLSYMS, "kallsyms", kallsyms(tracing, needed.as_ref())),
        (id::PRINTK, "printk", printk(tracing)),
        (id::COMMAND_LINES, "command lines", command_lines(tracing)),
    ]
}

/// Returns what a file `perf.data` has of the tracer (its feature `TRACING_DATA`, in version 0.6):
/// the formats of the events with these ids, the texts of `trace_printk`, and names of tasks.
///
/// ```
/// # use lastwords_ftrace::{HeaderPage, Tracing, dat};
/// let order = lastwords_bytes::ByteOrder::Little;
/// let tracing = Tracing::from_uname("", HeaderPage::of_word_size(8), order);
/// let data = dat::tracing_data(&tracing, &[314].into());
/// assert!(data.starts_with(b"\x17\x08\x44tracing0.6\0"));
/// ```
#[must_use]
pub fn tracing_data(tracing: &Tracing, ids: &BTreeSet<u16>) -> Vec<u8> {
    let begin = super::write::begin(tracing, "0.6", tracing.page_size).bytes;
    let no_formats = 0u32.to_le_bytes().to_vec();
    // perf skips the symbols, and has its own.
    let no_symbols = no_formats.clone();
    let events = events(tracing, &|format| ids.contains(&format.id));
    let headers = headers(tracing, tracing.page_size);
    [begin, headers, no_formats, events, no_symbols, printk(tracing), command_lines(tracing)]
        .concat()
}

/// Returns `header_page` and `header_event`.
fn headers(tracing: &Tracing, sub_buffer_size: u32) -> Vec<u8> {
    let mut put = Put::new(tracing.byte_order);
    put.string("header_page");
    put.sized(format_file::write_header_page(tracing.header_page, sub_buffer_size).as_bytes());
    put.string("header_event");
    put.sized(format_file::HEADER_EVENT.as_bytes());
    put.bytes
}

/// Returns the formats of ftrace's own entries.
fn own_events(tracing: &Tracing) -> Vec<u8> {
    let own: Vec<&Format> = tracing.formats.values().filter(|f| f.system == "ftrace").collect();
    let mut put = Put::new(tracing.byte_order);
    put.count(own.len());
    formats(&mut put, &own);
    put.bytes
}

fn formats(put: &mut Put, all: &[&Format]) {
    let mut text = String::new();
    for format in all {
        text.clear();
        format_file::write(format, &mut text);
        put.sized(text.as_bytes());
    }
}

/// Returns the formats of the other events for which `wanted` is true, by system.
fn events(tracing: &Tracing, wanted: &dyn Fn(&Format) -> bool) -> Vec<u8> {
    let mut systems: BTreeMap<&str, Vec<&Format>> = BTreeMap::new();
    for format in tracing.formats.values().filter(|f| f.system != "ftrace" && wanted(f)) {
        systems.entry(&format.system).or_default().push(format);
    }
    let mut put = Put::new(tracing.byte_order);
    put.count(systems.len());
    for (system, all) in systems {
        put.string(system);
        put.count(all.len());
        formats(&mut put, &all);
    }
    put.bytes
}

/// Returns a length of four bytes and text.
fn short(tracing: &Tracing, text: &str) -> Vec<u8> {
    let mut put = Put::new(tracing.byte_order);
    put.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    put.bytes.extend_from_slice(text.as_bytes());
    put.bytes
}

/// Returns the needed rows of `/proc/kallsyms`, or all.
pub(super) fn kallsyms(tracing: &Tracing, needed: Option<&Needed>) -> Vec<u8> {
    let mut text = String::new();
    let width = usize::from(tracing.word_size) * 2;
    tracing.symbols.each(&mut |row| {
        if needed.is_some_and(|needed| !needed.has(&row)) {
            return;
        }
        let _ = write!(text, "{:0width$x} {} {}", row.address, row.kind, row.name);
        if let Some(module) = row.module {
            let _ = write!(text, "\t[{module}]");
        }
        text.push('\n');
    });
    short(tracing, &text)
}

/// Returns `printk_formats`.
fn printk(tracing: &Tracing) -> Vec<u8> {
    let mut text = String::new();
    for (address, format) in &tracing.printk_formats {
        let _ = write!(text, "0x{address:x} : \"");
        for c in format.chars() {
            match c {
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                other => text.push(other),
            }
        }
        text.push_str("\"\n");
    }
    short(tracing, &text)
}

/// Returns `saved_cmdlines`.
fn command_lines(tracing: &Tracing) -> Vec<u8> {
    let mut text = String::new();
    for (pid, comm) in &tracing.comms {
        let _ = writeln!(text, "{pid} {}", comm.replace(['\n', '\0'], " "));
    }
    let mut put = Put::new(tracing.byte_order);
    put.sized(text.as_bytes());
    put.bytes
}

/// Returns the text of `per_cpu/cpuN/stats`.
pub(super) fn statistics(cpu: u32, stats: &Stats) -> String {
    format!(
        "CPU: {cpu}\nentries: {}\noverrun: {}\ncommit overrun: {}\nbytes: {}\ndropped events: {}\nread events: {}\n",
        stats.entries, stats.overrun, stats.commit_overrun, stats.bytes, stats.dropped, stats.read
    )
}

/// The version of lastwords.
const OWN: &str = concat!("lastwords ", env!("CARGO_PKG_VERSION"));

/// The separator between the version of lastwords and the missing parts of a file, in the option of
/// the version, which trace-cmd shows as it is.
pub(super) const MISSING: &str = "\nmissing: ";

/// The text between the version and the tracer of the first array, with the options that are on
/// there.
pub(super) const TRACER: &str = "\ntracer: ";

/// Returns the tracer of an array and its options, if it has a tracer. Files of trace-cmd do not
/// name it.
fn tracer(array: &Array) -> Option<String> {
    let is_set = !matches!(array.tracer.as_deref(), None | Some("" | "nop"));
    let mut options: Vec<&str> =
        array.options.iter().flatten().chain(&array.tracer_options).map(String::as_str).collect();
    options.sort_unstable();
    options.dedup();
    let words = [&[array.tracer_name()], options.as_slice()].concat().join(" ");
    is_set.then(|| format!("{TRACER}{}", words.replace(['\n', '\0'], " ")))
}

/// The clocks that every machine has, as `trace_clock` lists them.
const CLOCKS: &str = "local global counter uptime perf mono mono_raw boot tai";

/// Returns the content of `trace_clock`, with the array's own clock as the selected one.
pub(super) fn clock(tracing: &Tracing, chosen: &str) -> String {
    let chosen = if chosen.is_empty() { "local" } else { chosen };
    let known = if tracing.clocks.trim().is_empty() { CLOCKS } else { tracing.clocks.as_str() };
    let mut clocks: Vec<&str> =
        known.split_whitespace().map(|c| c.trim_matches(['[', ']'])).collect();
    if !clocks.contains(&chosen) {
        clocks.push(chosen);
    }
    let marked: Vec<String> = clocks
        .iter()
        .map(|c| if *c == chosen { format!("[{c}]") } else { (*c).to_owned() })
        .collect();
    format!("{}\n", marked.join(" "))
}

/// Returns the options that both versions have: id and data. `rings`: the name and ring of each
/// array; the top level is the first.
pub(super) fn common_options(
    tracing: &Tracing,
    rings: &[(&str, Option<&dyn Ring>)],
    chosen_clock: &str,
    how: &WriteOptions,
) -> Vec<(u16, Vec<u8>)> {
    let text = |text: &str| [text.as_bytes(), b"\0"].concat();
    let mut out = vec![(id::TRACE_CLOCK, text(&clock(tracing, chosen_clock)))];
    let of_host = how.relation.as_ref().map(|relation| relation.real_time);
    if let Some(date) = of_host.unwrap_or(tracing.real_time) {
        out.push((id::DATE, text(&format!("{:#x}", date / 1000))));
    }
    if !tracing.uname.is_empty() || !tracing.release.is_empty() {
        let uname = match tracing.uname.as_str() {
            "" => format!("Linux (none) {} {}", tracing.release, tracing.machine),
            known => known.to_owned(),
        };
        out.push((id::UNAME, text(&uname)));
    }
    let missing =
        how.missing.as_ref().map(|what| format!("{MISSING}{}", what.replace(['\n', '\0'], " ")));
    out.push((
        id::VERSION,
        text(
            &[
                OWN,
                &tracing.arrays.first().and_then(tracer).unwrap_or_default(),
                &missing.unwrap_or_default(),
            ]
            .concat(),
        ),
    ));
    // Readers find the correction of a CPU by its number.
    let cpus = rings.iter().filter_map(|(_, ring)| *ring).flat_map(|ring| ring.cpus());
    let cpus = cpus.map(|cpu| cpu.cpu.saturating_add(1)).max().unwrap_or(1).max(tracing.cpus);
    out.extend(how.relation.iter().flat_map(|relation| {
        relation::options(relation, cpus.min(MOST_CPUS) as usize, tracing.byte_order)
    }));
    for (name, ring) in rings {
        // trace-cmd puts the name of an instance before its counters.
        if !name.is_empty() {
            out.push((id::CPU_STAT, text(&format!("\nBuffer: {name}\n\n"))));
        }
        let cpus = ring.map(Ring::cpus).unwrap_or_default().iter();
        out.extend(cpus.map(|cpu| (id::CPU_STAT, text(&statistics(cpu.cpu, &cpu.stats)))));
    }
    out
}
