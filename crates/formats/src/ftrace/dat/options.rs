//! Options: clock, name of the machine, counters, buffers.

use std::collections::BTreeMap;

use lastwords_bytes::Error;
use lastwords_trace::ftrace::Stats;

use super::clock::Correction;
use super::id;
use super::listing::{reader, string};
use lastwords_bytes::ByteOrder;

/// CPUs that a file or a buffer may have.
pub(super) const MOST_CPUS: u32 = 1 << 16;

/// A CPU's data: CPU, offset, size in the file.
pub(super) type Place = (u32, u64, u64);

/// A buffer that an option tells of.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffer {
    /// Name of the instance.
    pub(super) name: String,
    /// Where its section (version 7) or its table (version 6) stands.
    pub(super) offset: u64,
    /// Its clock, or a list with the chosen one in brackets.
    pub(super) clock: String,
    /// Bytes of a sub-buffer; version 7.
    pub(super) page_size: u32,
    /// Version 7.
    pub(super) places: Vec<Place>,
    /// Its counters, by CPU.
    pub(super) stats: BTreeMap<u32, Stats>,
}

/// What the options of a file tell.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) clocks: String,
    /// A clock is told, in the option or (version 6) behind each table.
    pub(super) has_clock: bool,
    /// The program that wrote the file.
    pub(super) version: String,
    pub(super) uname: String,
    /// Nanoseconds from the clocks' readings to the real time.
    pub(super) real_time: Option<i64>,
    pub(super) cpus: u32,
    pub(super) buffers: Vec<Buffer>,
    /// Counters: by buffer, by CPU.
    stats: BTreeMap<String, BTreeMap<u32, Stats>>,
    /// The buffer whose counters follow, where one was named.
    stats_of: String,
    /// What is to be done to the times of all buffers.
    pub(super) correction: Correction,
    /// Options that cannot be read.
    pub(super) wrong: Vec<String>,
    /// Sections: id and offset; version 7.
    pub(super) sections: Vec<(u16, u64)>,
}

impl Told {
    /// Takes in the options of a section of version 7, and gives the offset of the next section; 0 where there is none.
    pub(super) fn options(&mut self, section: &[u8], order: ByteOrder) -> Result<u64, Error> {
        let mut from = reader(section, order);
        while from.left() >= 6 {
            let (option, size) = (from.u16()?, from.u32()?);
            let value = from.take(usize::try_from(size).unwrap_or(usize::MAX))?;
            if option == id::DONE {
                return Ok(reader(value, order).u64().unwrap_or(0));
            }
            self.option_or_loss(option, value, order, true);
        }
        Ok(0)
    }

    /// Takes in an option; one that cannot be read is a loss.
    pub(super) fn option_or_loss(&mut self, id: u16, data: &[u8], order: ByteOrder, has_sections: bool) {
        if let Err(error) = self.option(id, data, order, has_sections) {
            self.wrong.push(format!("the option of id {id}: {error}"));
        }
    }

    /// Takes in an option. Those that are not known are passed over.
    pub(super) fn option(&mut self, id: u16, data: &[u8], order: ByteOrder, has_sections: bool) -> Result<(), Error> {
        let mut from = reader(data, order);
        let text = || String::from_utf8_lossy(data.split(|b| *b == 0).next().unwrap_or_default()).into_owned();
        match id {
            id::TRACE_CLOCK => (self.clocks, self.has_clock) = (text(), true),
            id::DATE => self.real_time = microseconds(&text()).and_then(|date| date.checked_mul(1000)),
            id::VERSION => self.version = text(),
            id::UNAME => self.uname = text(),
            id::OFFSET => self.correction.add_offset(&text()),
            id::TIME_SHIFT => self.correction.read_shift(&mut from)?,
            id::TSC2NSEC => self.correction.read_nanoseconds(&mut from)?,
            id::CPU_COUNT => self.cpus = from.u32()?,
            id::CPU_STAT => {
                let text = text();
                match text.trim().strip_prefix("Buffer: ") {
                    Some(name) => name.clone_into(&mut self.stats_of),
                    None => {
                        if let Some((cpu, stats)) = statistics(&text) {
                            self.stats.entry(self.stats_of.clone()).or_default().entry(cpu).or_insert(stats);
                        }
                    }
                }
            }
            id::BUFFER => {
                let mut buffer = Buffer { offset: from.u64()?, name: string(&mut from)?, ..Buffer::default() };
                if has_sections {
                    buffer.clock = string(&mut from)?;
                    buffer.page_size = from.u32()?;
                    let count = from.u32()?;
                    if count > MOST_CPUS {
                        return Err(from.unexpected(u64::from(count), "a number of CPUs"));
                    }
                    for _ in 0..count {
                        buffer.places.push((from.u32()?, from.u64()?, from.u64()?));
                    }
                    buffer.stats = self.stats_before(&buffer.name);
                }
                self.buffers.push(buffer);
            }
            id::HEADER_INFO..=id::COMMAND_LINES if has_sections => self.sections.push((id, from.u64()?)),
            _ => {}
        }
        Ok(())
    }

    /// This program wrote the file, and not trace-cmd.
    pub(super) fn is_ours(&self) -> bool {
        self.version.starts_with("lastwords")
    }

    /// The clock of a buffer: its own; or the one that is chosen for the machine, where it has none. trace-cmd writes `local` for a
    /// buffer whose clock it did not set itself, and goes by the machine's then.
    ///
    /// A time stamp counter whose readings the file makes nanoseconds has the name that trace-cmd gives it.
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

    /// The counters told of a buffer: those behind its name, or those that nothing was said of. `trace-cmd record` puts
    /// them before each buffer, `extract` all before the first, with names.
    pub(super) fn stats_before(&mut self, buffer: &str) -> BTreeMap<u32, Stats> {
        let mut found = self.stats.remove("").unwrap_or_default();
        found.extend(self.stats.remove(buffer).unwrap_or_default());
        found
    }
}

/// A number of `record --date`: hexadecimal digits behind 0x.
fn microseconds(text: &str) -> Option<i64> {
    i64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// The word in brackets of a list such as `trace_clock` has.
fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// Counters of a CPU, as `per_cpu/cpuN/stats` tells them behind a line with the CPU's number.
fn statistics(text: &str) -> Option<(u32, Stats)> {
    let mut cpu = None;
    let mut stats = Stats::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(": ")) {
        let Ok(value) = value.trim().parse::<u64>() else { continue };
        match key.trim() {
            "CPU" => cpu = u32::try_from(value).ok(),
            "entries" => stats.entries = value,
            "overrun" => stats.overrun = value,
            "commit overrun" => stats.commit_overrun = value,
            "bytes" => stats.bytes = value,
            "dropped events" => stats.dropped = value,
            "read events" => stats.read = value,
            _ => {}
        }
    }
    Some((cpu?, stats))
}
