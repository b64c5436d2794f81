//! The options of a file: clock, name of the machine, counters, buffers.

use std::collections::BTreeMap;

use crate::Stats;
use lastwords_bytes::Error;

use super::clock::Correction;
use super::id;
use super::listing::{reader, string};
use super::parts::{MISSING, TRACER};
use lastwords_bytes::ByteOrder;

/// Most CPUs of a file or a buffer.
pub(super) const MOST_CPUS: u32 = 1 << 16;

/// The data of a CPU: CPU, offset and size in the file.
pub(super) type CpuData = (u32, u64, u64);

/// A buffer that an option describes.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffer {
    /// Name of the instance.
    pub(super) name: String,
    /// Offset of its section (version 7) or of its table (version 6).
    pub(super) offset: u64,
    /// Its clock, or a list of clocks with the selected one in brackets.
    pub(super) clock: String,
    /// Bytes of a sub-buffer; set in version 7.
    pub(super) page_size: u32,
    /// The data of its CPUs; set in version 7.
    pub(super) cpu_data: Vec<CpuData>,
    /// Its counters, by CPU.
    pub(super) stats: BTreeMap<u32, Stats>,
}

/// The content of a file's options.
#[derive(Debug, Default)]
pub(super) struct FileOptions {
    pub(super) clocks: String,
    /// The file names a clock: in the option, or in version 6 after each table.
    pub(super) has_clock: bool,
    /// The program that wrote the file.
    pub(super) version: String,
    pub(super) uname: String,
    /// Nanoseconds that are added to the clocks' readings to get the real time.
    pub(super) real_time: Option<i64>,
    pub(super) cpus: u32,
    pub(super) buffers: Vec<Buffer>,
    /// Counters by buffer and CPU.
    stats: BTreeMap<String, BTreeMap<u32, Stats>>,
    /// The buffer to which the next counters belong, if one was named.
    stats_of: String,
    /// The number of the recording.
    pub(super) trace_id: Option<u64>,
    /// The time correction of all buffers.
    pub(super) correction: Correction,
    /// The parts that the file lacks, if the program that wrote it knew of them.
    pub(super) missing: Option<String>,
    /// The tracer of the first buffer, and the options that are on there. Empty if the file does
    /// not name it.
    pub(super) tracer: Vec<String>,
    /// Errors of options that cannot be read.
    pub(super) faults: Vec<String>,
    /// Ids and offsets of sections; set in version 7.
    pub(super) sections: Vec<(u16, u64)>,
}

impl FileOptions {
    /// Reads the options of a section of version 7. Returns the offset of the next section, or 0 if
    /// this is the last one.
    pub(super) fn read_section(&mut self, section: &[u8], order: ByteOrder) -> Result<u64, Error> {
        let mut from = reader(section, order);
        while from.left() >= 6 {
            let (option, size) = (from.u16()?, from.u32()?);
            let value = from.take(usize::try_from(size).unwrap_or(usize::MAX))?;
            if option == id::DONE {
                return Ok(reader(value, order).u64().unwrap_or(0));
            }
            self.read_or_lose(option, value, order, true);
        }
        Ok(0)
    }

    /// Reads an option. An option that cannot be read is recorded as a loss.
    pub(super) fn read_or_lose(
        &mut self,
        id: u16,
        data: &[u8],
        order: ByteOrder,
        has_sections: bool,
    ) {
        if let Err(error) = self.read(id, data, order, has_sections) {
            self.faults.push(format!("the option of id {id}: {error}"));
        }
    }

    /// Reads an option. Unknown options are skipped.
    pub(super) fn read(
        &mut self,
        id: u16,
        data: &[u8],
        order: ByteOrder,
        has_sections: bool,
    ) -> Result<(), Error> {
        let mut from = reader(data, order);
        let text = || {
            String::from_utf8_lossy(data.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
        };
        match id {
            id::TRACE_CLOCK => (self.clocks, self.has_clock) = (text(), true),
            id::DATE => {
                self.real_time = microseconds(&text()).and_then(|date| date.checked_mul(1000))
            }
            id::VERSION => {
                let text = text();
                let (rest, missing) = split_at_mark(&text, MISSING);
                let (version, tracer) = split_at_mark(rest, TRACER);
                self.missing = missing.map(str::to_owned);
                self.tracer = tracer
                    .map(|words| words.split(' ').map(str::to_owned).collect())
                    .unwrap_or_default();
                version.clone_into(&mut self.version);
            }
            id::UNAME => self.uname = text(),
            id::OFFSET => self.correction.add_offset(&text()),
            id::TRACEID => self.trace_id = Some(from.u64()?),
            id::TIME_SHIFT => self.correction.read_shift(&mut from)?,
            id::TSC2NSEC => self.correction.read_nanoseconds(&mut from)?,
            id::CPU_COUNT => self.cpus = from.u32()?,
            id::CPU_STAT => {
                let text = text();
                match text.trim().strip_prefix("Buffer: ") {
                    Some(name) => name.clone_into(&mut self.stats_of),
                    None => {
                        if let Some((cpu, stats)) = statistics(&text) {
                            self.stats
                                .entry(self.stats_of.clone())
                                .or_default()
                                .entry(cpu)
                                .or_insert(stats);
                        }
                    }
                }
            }
            id::BUFFER => {
                let mut buffer =
                    Buffer { offset: from.u64()?, name: string(&mut from)?, ..Buffer::default() };
                if has_sections {
                    buffer.clock = string(&mut from)?;
                    buffer.page_size = from.u32()?;
                    let count = from.u32()?;
                    if count > MOST_CPUS {
                        return Err(from.unexpected(u64::from(count), "a number of CPUs"));
                    }
                    for _ in 0..count {
                        buffer.cpu_data.push((from.u32()?, from.u64()?, from.u64()?));
                    }
                    buffer.stats = self.stats_before(&buffer.name);
                }
                self.buffers.push(buffer);
            }
            id::HEADER_INFO..=id::COMMAND_LINES if has_sections => {
                self.sections.push((id, from.u64()?))
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns true if this program wrote the file, and not trace-cmd.
    pub(super) fn is_ours(&self) -> bool {
        self.version.starts_with("lastwords")
    }

    /// Returns the clock of a buffer: its own clock, or the machine's clock if the buffer has none.
    /// trace-cmd writes `local` for a buffer whose clock it did not set itself, and then uses the
    /// machine's clock.
    ///
    /// A time stamp counter has the name that trace-cmd gives it if the file converts its readings
    /// to nanoseconds.
    pub(super) fn clock(&self, buffer: &Buffer) -> String {
        if self.correction.is_in_ns() {
            return "tsc2nsec".to_owned();
        }
        let by_default = |clock: &str| clock.is_empty() || clock == "local" && !self.is_ours();
        let of = |text: &str| chosen(text).unwrap_or(text.trim()).to_owned();
        if by_default(&of(&buffer.clock)) {
            chosen(&self.clocks).unwrap_or("local").to_owned()
        } else {
            of(&buffer.clock)
        }
    }

    /// Returns the counters of a buffer: those that follow no name, and those that follow its name.
    /// `trace-cmd record` writes them before each buffer; `trace-cmd extract` writes all of them
    /// before the first buffer, with names.
    pub(super) fn stats_before(&mut self, buffer: &str) -> BTreeMap<u32, Stats> {
        let mut found = self.stats.remove("").unwrap_or_default();
        found.extend(self.stats.remove(buffer).unwrap_or_default());
        found
    }
}

/// Returns what is before and behind a mark, if it is there.
fn split_at_mark<'t>(text: &'t str, mark: &str) -> (&'t str, Option<&'t str>) {
    text.split_once(mark).map_or((text, None), |(before, behind)| (before, Some(behind)))
}

/// Parses the number of `record --date`: 0x and hexadecimal digits.
fn microseconds(text: &str) -> Option<i64> {
    i64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// Returns the word in brackets of a list such as `trace_clock`.
fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// Reads the counters of a CPU: a line with the CPU's number, then the lines of
/// `per_cpu/cpuN/stats`.
fn statistics(text: &str) -> Option<(u32, Stats)> {
    let cpu =
        text.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.trim() == "CPU");
    Some((cpu?.1.trim().parse().ok()?, counters(text)))
}

/// Reads the text of `per_cpu/cpuN/stats`. Counters that it does not have are 0.
#[must_use]
pub fn counters(text: &str) -> Stats {
    let mut stats = Stats::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(": ")) {
        let Ok(value) = value.trim().parse::<u64>() else { continue };
        match key.trim() {
            "entries" => stats.entries = value,
            "overrun" => stats.overrun = value,
            "commit overrun" => stats.commit_overrun = value,
            "bytes" => stats.bytes = value,
            "dropped events" => stats.dropped = value,
            "read events" => stats.read = value,
            _ => {}
        }
    }
    stats
}
