//! Reads the kernel's log, and finds the cause of a crash in it.
//!
//! Layout: `kernel/printk/printk_ringbuffer.c` (Linux 5.10 and later). There is a ring of
//! descriptors, a ring of information about each record, and a ring of text blocks; each block
//! begins with the number of its descriptor.

use crate::tasks::Listing;
use crate::{Error, Kernel, Object};
use lastwords_bytes::Error as BytesError;
use std::fmt;

/// Most records of a log, as a power of two; `CONFIG_LOG_BUF_SHIFT` is at most 25.
const COUNT_BITS_MAX: u64 = 26;
/// Most bytes of the text ring, as a power of two.
const SIZE_BITS_MAX: u64 = 40;
/// Most bytes of text that are returned, which limits the cost of records that share their bytes.
const TEXT_MAX: u64 = 1 << 27;
/// First words of a panic's line.
const PANIC: &str = "Kernel panic - not syncing: ";
/// First words of the lines of an oops.
const OOPS: [&str; 7] = [
    "BUG: ",
    "kernel BUG at ",
    "Oops: ",
    "general protection fault",
    "Internal error: ",
    "Unable to handle kernel ",
    "watchdog: BUG: ",
];

/// One record of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Number of the record since boot.
    pub sequence: u64,
    /// Time since boot by the clock `local`, nanoseconds.
    pub time: u64,
    /// Severity, from 0 (emergency) to 7 (debug).
    pub level: u8,
    /// Facility; 0 for the kernel.
    pub facility: u8,
    /// Text without the newline at its end; it may have several lines.
    pub text: String,
    /// The device's subsystem, `pci`; empty if the record is of no device.
    pub subsystem: String,
    /// The device: `+pci:0000:00:01.0` with its subsystem and name, `b8:0` or `c10:235` with the
    /// numbers of its node, `n2` with the index of a network interface; empty if there is none.
    pub device: String,
}

impl Record {
    /// Returns the lines with subsystem and device that `/dev/kmsg` has after those of the text.
    ///
    /// ```
    /// let mut record = lastwords_kernel::log::Record::default();
    /// record.subsystem = "pci".to_owned();
    /// assert_eq!(record.properties().collect::<Vec<_>>(), [" SUBSYSTEM=pci"]);
    /// ```
    pub fn properties(&self) -> impl Iterator<Item = String> {
        let all = [("SUBSYSTEM", &self.subsystem), ("DEVICE", &self.device)];
        all.into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!(" {name}={value}"))
    }
}

impl fmt::Display for Record {
    /// Formats like `dmesg`: each line begins with the time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.time / 1_000_000_000, self.time % 1_000_000_000 / 1000);
        for (index, line) in self.text.split('\n').enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}[{seconds:5}.{micros:06}] {line}")?;
        }
        Ok(())
    }
}

/// The cause of a kernel's crash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Crash {
    /// Message of the panic; none if the log has no panic.
    pub panic: Option<String>,
    /// First line of the last oops before the panic: `BUG: …`, `Oops: …`; none if there was none.
    pub oops: Option<String>,
    /// Time of the panic's record, or else of the oops's record, nanoseconds since boot.
    pub time: Option<u64>,
    /// CPU that panicked.
    pub cpu: Option<u32>,
}

/// The three rings.
struct Rings<'k> {
    descriptors: Object<'k>,
    infos: Object<'k>,
    count: u64,
    data: u64,
    size: u64,
    word: u64,
}

impl Kernel {
    /// Returns the log, oldest record first.
    #[must_use]
    pub fn log(&self) -> Listing<Record> {
        let mut found = Listing::default();
        if let Err(error) = self.read_log(&mut found) {
            found.missing.push(error);
        }
        found
    }

    fn read_log(&self, found: &mut Listing<Record>) -> Result<(), Error> {
        let ring = self.object("printk_ringbuffer", self.pointer("prb")?)?;
        let count_bits = limited(ring.u64("desc_ring.count_bits")?, COUNT_BITS_MAX)?;
        let size_bits = limited(ring.u64("text_data_ring.size_bits")?, SIZE_BITS_MAX)?;
        let rings = Rings {
            descriptors: ring.pointer("desc_ring.descs")?,
            infos: ring.pointer("desc_ring.infos")?,
            count: 1 << count_bits,
            data: ring.address("text_data_ring.data")?,
            size: 1 << size_bits,
            word: self.memory.word_size().into(),
        };
        // The upper two bits of a descriptor's word are its state.
        let mask = rings.id_mask();
        let head = ring.u64("desc_ring.head_id")? & mask;
        let mut id = ring.u64("desc_ring.tail_id")? & mask;
        let mut left = rings.size.min(TEXT_MAX);
        for _ in 0..rings.count {
            self.budget().steps("log", 1)?;
            match self.record(&rings, id) {
                Ok(record) => {
                    let len = record.as_ref().map_or(0, |record| record.text.len() as u64);
                    let over = || BytesError::budget("log", "bytes of text", len);
                    left = left.checked_sub(len).ok_or_else(over)?;
                    found.rows.extend(record);
                }
                Err(error) if found.missing.len() < 16 => found.missing.push(error),
                Err(_) => {}
            }
            if id == head {
                break;
            }
            id = id.wrapping_add(1) & mask;
        }
        Ok(())
    }

    /// Reads the record of a descriptor. None if the record was never finished, was reused, or its
    /// text was overwritten.
    fn record(&self, rings: &Rings<'_>, id: u64) -> Result<Option<Record>, Error> {
        let index = id & rings.count.wrapping_sub(1);
        let descriptor = element(rings.descriptors, index);
        let state = descriptor.u64("state_var")?;
        let is_finished = matches!(rings.state(state), 1 | 2);
        if state & rings.id_mask() != id || !is_finished {
            return Ok(None);
        }
        let info = element(rings.infos, index);
        let begin = descriptor.u64("text_blk_lpos.begin")?;
        let next = descriptor.u64("text_blk_lpos.next")?;
        let text = match rings.block(begin, next) {
            None => String::new(),
            Some((place, room)) => {
                let owner = self.memory.pointer(place.wrapping_sub(rings.word));
                if owner.map_err(Error::hole("text of the log"))? != id {
                    return Ok(None);
                }
                let len = info.u64("text_len")?.min(room);
                self.budget().bytes("log", len)?;
                let mut text = vec![0; usize::try_from(len).unwrap_or_default()];
                self.memory.read(place, &mut text).map_err(Error::hole("text of the log"))?;
                String::from_utf8_lossy(&text).into_owned()
            }
        };
        // The device's (`struct dev_printk_info`), in arrays that end with a NUL.
        let property =
            |path: &str| if info.has(path) { info.text(path) } else { Ok(String::new()) };
        Ok(Some(Record {
            subsystem: property("dev_info.subsystem")?,
            device: property("dev_info.device")?,
            sequence: info.u64("seq")?,
            time: info.u64("ts_nsec")?,
            level: u8::try_from(info.u64("level")?).unwrap_or_default(),
            facility: u8::try_from(info.u64("facility")?).unwrap_or_default(),
            text,
        }))
    }

    /// Finds the cause of the crash in the log and in the variables that panic sets.
    #[must_use]
    pub fn crash(&self, log: &[Record]) -> Crash {
        let mut crash = Crash::default();
        for record in log {
            let mut lines = record.text.split('\n');
            if let Some(panic) = record.text.strip_prefix(PANIC) {
                crash.panic = Some(panic.into());
                crash.time = Some(record.time);
            } else if crash.panic.is_none()
                && let Some(line) =
                    lines.find(|line| OOPS.iter().any(|oops| line.starts_with(oops)))
            {
                crash.oops = Some(line.into());
                crash.time = Some(record.time);
            }
        }
        // Both variables are -1 until a CPU panics.
        let cpu = |name| self.number(name, 4).ok().and_then(|cpu| u32::try_from(cpu).ok());
        let known = |cpu: &u32| cpu.cast_signed() >= 0;
        crash.cpu = cpu("panic_cpu").filter(known).or_else(|| cpu("crashing_cpu").filter(known));
        crash
    }
}

impl Rings<'_> {
    fn id_mask(&self) -> u64 {
        u64::MAX.wrapping_shr(self.spare_bits().saturating_add(2))
    }

    /// State of a descriptor: 0 reserved, 1 committed, 2 finalized, 3 reusable.
    fn state(&self, state: u64) -> u64 {
        state.wrapping_shr(62u32.saturating_sub(self.spare_bits())) & 3
    }

    fn spare_bits(&self) -> u32 {
        if self.word == 8 { 0 } else { 32 }
    }

    /// Offset of a block's text and its greatest length; none for a record without text.
    fn block(&self, begin: u64, next: u64) -> Option<(u64, u64)> {
        // The size is a power of two.
        let part = |position: u64| {
            (position & !self.size.wrapping_sub(1), position & self.size.wrapping_sub(1))
        };
        let ((lap, index), (next_lap, next_index)) = (part(begin), part(next));
        if begin & 1 != 0 && next & 1 != 0 {
            return None;
        }
        let (from, to) = match next_lap.wrapping_sub(lap) {
            0 => (index, next_index),
            // The block ends at the end of the ring.
            laps if laps == self.size && next_index == 0 => (index, self.size),
            // A block that does not fit before the end of the ring starts again at its beginning.
            laps if laps == self.size => (0, next_index),
            _ => return None,
        };
        let text = from.saturating_add(self.word);
        Some((self.data.wrapping_add(text), to.checked_sub(text)?))
    }
}

/// Element number `index` of an array whose first element is `first`.
fn element(first: Object<'_>, index: u64) -> Object<'_> {
    first.moved(index.wrapping_mul(first.size()))
}

fn limited(bits: u64, most: u64) -> Result<u64, Error> {
    if bits > most {
        Err(BytesError::value("prb", 0, bits, "a power of two that a log may have").into())
    } else {
        Ok(bits)
    }
}
