//! Entries of the tracer `blk` (`kernel/trace/blktrace.c`). The kernel has no format for them.
//! Readers make a format named `blktrace` from `struct blk_io_trace`, as trace-cmd does.

use crate::Format;
use crate::relative_time::time_before;
use lastwords_bytes::{ByteOrder, low_u32};

use super::context::{EventInfo, Tasks};
use super::slot::Slot;

/// The positions of the numbers of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    sector: Slot,
    bytes: Slot,
    action: Slot,
    device: Slot,
    error: Slot,
    length: Slot,
    data: Slot,
}

/// The style of the text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockStyle {
    /// Times are shown as those before this reading of the clock.
    pub(crate) before: Option<i64>,
    /// Lines have their own beginning (option `blk_classic`).
    pub(crate) classic: bool,
    /// Actions have names (option `verbose`).
    pub(crate) long: bool,
    /// Groups have names, which only the machine knew (option `blk_cgname`).
    pub(crate) group_names: bool,
}

/// Bits of `action`. This one is set if a control group precedes the data; the next ones are the
/// subject of the action.
const GROUP: u64 = 0x100;
const FLUSH: u64 = 1 << 2;
const WRITE: u64 = 1 << 1;
const SYNC: u64 = 1 << 3;
const NOTIFY: u64 = 1 << 10;
const COMMAND: u64 = 1 << 9;
const AHEAD: u64 = 1 << 11;
const META: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const FUA: u64 = 1 << 15;
const WRITE_ZEROES: u64 = 1 << 22;
/// The first word of an entry for its readers: the magic number and version 7 (`BLK_IO_TRACE_MAGIC`,
/// `BLK_IO_TRACE_VERSION`).
const MAGIC: u32 = 0x6561_7407;
/// Bytes of `struct blk_io_trace` from the sector on.
const FROM_SECTOR: usize = 32;
/// A message for the reader of the trace.
const MESSAGE: u64 = 2 | NOTIFY << 16;

/// Names of actions by number, short and long, and the data that is shown with them.
const ACTIONS: [(&str, &str, ActionData); 15] = [
    ("Q", "queue", ActionData::Request),
    ("M", "backmerge", ActionData::Request),
    ("F", "frontmerge", ActionData::Request),
    ("G", "getrq", ActionData::Request),
    ("S", "sleeprq", ActionData::Request),
    ("R", "requeue", ActionData::Outcome),
    ("D", "issue", ActionData::Request),
    ("C", "complete", ActionData::Outcome),
    ("P", "plug", ActionData::Task),
    ("U", "unplug_io", ActionData::Unplug),
    ("UT", "unplug_timer", ActionData::Unplug),
    ("I", "insert", ActionData::Request),
    ("X", "split", ActionData::Split),
    ("B", "bounce", ActionData::Request),
    ("A", "remap", ActionData::Remap),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActionData {
    Request,
    Outcome,
    Task,
    Unplug,
    Split,
    Remap,
}

impl Block {
    pub(crate) fn from_format(format: &Format) -> Self {
        let slot = |name| Slot::find(format, name);
        let [sector, bytes, action, device] = ["sector", "bytes", "action", "device"].map(slot);
        let [error, length, data] = ["error", "pdu_len", "data"].map(slot);
        Self { sector, bytes, action, device, error, length, data }
    }

    /// Appends the entry in the form of option `bin` (`blk_trace_synthesize_old_trace`): a `struct
    /// blk_io_trace` of version 7 with the time of the event, and the data. The kernel writes the
    /// same number of bytes of a `struct blk_io_trace2`, which is longer, so that the end of its
    /// data is missing.
    pub(crate) fn binary(&self, out: &mut Vec<u8>, payload: &[u8], order: ByteOrder, time: u64) {
        let length = usize::try_from(self.length.unsigned(payload, order)).unwrap_or(usize::MAX);
        let (sequence, rest) = (0u32, self.sector.rest(payload));
        match order {
            ByteOrder::Little => {
                [MAGIC, sequence].iter().for_each(|word| out.extend(word.to_le_bytes()));
                out.extend(time.to_le_bytes());
            }
            ByteOrder::Big => {
                [MAGIC, sequence].iter().for_each(|word| out.extend(word.to_be_bytes()));
                out.extend(time.to_be_bytes());
            }
        }
        out.extend_from_slice(rest.get(..FROM_SECTOR.saturating_add(length)).unwrap_or(rest));
    }

    /// Appends the text, line feed included.
    pub(crate) fn write(
        &self,
        out: &mut Vec<u8>,
        payload: &[u8],
        order: ByteOrder,
        at: EventInfo,
        tasks: &Tasks<'_>,
        style: BlockStyle,
    ) {
        let get = |slot: Slot| slot.unsigned(payload, order);
        let (action, length) =
            (get(self.action), usize::try_from(get(self.length)).unwrap_or(usize::MAX));
        let data = self.data.rest(payload);
        let data = data.get(..length.min(data.len())).unwrap_or_default();
        let group =
            (action & GROUP != 0).then(|| Slot { offset: 0, size: 8 }.unsigned(data, order));
        let data = if group.is_some() { data.get(8..).unwrap_or_default() } else { data };
        let number = (action & 0xffff & !GROUP) as usize;
        let (short, long, what) = if action & !GROUP == MESSAGE {
            ("m", "message", None)
        } else {
            match number.checked_sub(1).and_then(|n| ACTIONS.get(n)) {
                Some((short, long, what)) => (*short, *long, Some(*what)),
                None => {
                    return out
                        .extend_from_slice(format!("Unknown action {number:x}\n").as_bytes());
                }
            }
        };
        let name = if style.long { long } else { short };
        let kind = kind(action >> 16, what.is_none(), get(self.bytes));
        let (major, minor) = device(low_u32(get(self.device)));
        let place = format!("{major:3},{minor:<3} ");
        let line = match group {
            _ if style.classic => {
                let (cpu, pid, time) = (at.cpu, at.common.pid, classic_time(at.time, style.before));
                format!("{place}{cpu:2} {time} {pid:5} {name:>2} {kind:>3} ")
            }
            Some(_) if style.group_names => format!("{place}<...> {name:>2} {kind:>3} "),
            Some(id) => format!("{place}{:x},{:x} {name:>2} {kind:>3} ", low_u32(id), id >> 32),
            None => format!("{place}{name:>2} {kind:>3} "),
        };
        out.extend_from_slice(line.as_bytes());
        let Some(what) = what else {
            out.extend_from_slice(data);
            return out.push(b'\n');
        };
        let comm = tasks.comm(at.common.pid);
        let big = |at: usize| {
            data.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_be_bytes(*b))
        };
        let (sector, bytes, error) = (get(self.sector), get(self.bytes), get(self.error));
        let sectors = bytes >> 9;
        let is_command = action >> 16 & COMMAND != 0;
        let line = match what {
            ActionData::Request if is_command => format!("{bytes} {}[{comm}]\n", command(data)),
            ActionData::Request if sectors == 0 => format!("[{comm}]\n"),
            ActionData::Request => format!("{sector} + {sectors} [{comm}]\n"),
            ActionData::Outcome if is_command => format!("{}[{error}]\n", command(data)),
            ActionData::Outcome if sectors == 0 => format!("{sector} [{error}]\n"),
            ActionData::Outcome => format!("{sector} + {sectors} [{error}]\n"),
            ActionData::Task => format!("[{comm}]\n"),
            ActionData::Unplug => format!("[{comm}] {}\n", big(0)),
            ActionData::Split => format!("{sector} / {} [{comm}]\n", big(0)),
            ActionData::Remap => {
                // `struct blk_io_trace_remap`: two devices and a sector; the most significant byte
                // is first.
                let (major, minor) = device((big(0) >> 32) as u32);
                format!("{sector} + {sectors} <- ({major},{minor}) {}\n", big(8))
            }
        };
        out.extend_from_slice(line.as_bytes());
    }
}

/// Returns a time as the classic style of lines has it.
fn classic_time(time: u64, before: Option<i64>) -> String {
    let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
    let Some(before) = before else {
        return format!("{:5}.{rest:09}", low_u32(seconds).cast_signed());
    };
    let mut text = Vec::new();
    time_before(&mut text, time, before, true, 15);
    String::from_utf8_lossy(&text).into_owned()
}

/// Splits the kernel's device number: 12 bits major and 20 bits minor.
fn device(number: u32) -> (u32, u32) {
    (number >> 20, number & 0xf_ffff)
}

/// Returns the letters of a request (`fill_rwbs`).
fn kind(category: u64, is_message: bool, bytes: u64) -> String {
    if is_message {
        return "N".into();
    }
    let has = |bit: u64| category & bit != 0;
    let mut letters = String::new();
    letters.push_str(if has(FLUSH) { "F" } else { "" });
    letters.push_str(match () {
        () if has(DISCARD) => "D",
        () if has(WRITE_ZEROES) => "WZ",
        () if has(WRITE) => "W",
        () if bytes > 0 => "R",
        () => "N",
    });
    for (bit, letter) in [(FUA, 'F'), (AHEAD, 'A'), (SYNC, 'S'), (META, 'M')] {
        letters.extend(has(bit).then_some(letter));
    }
    letters
}

/// Returns `(00 01 ..) `: the bytes of a command without the zeros at its end.
fn command(data: &[u8]) -> String {
    if data.is_empty() {
        return String::new();
    }
    let end = data.iter().rposition(|b| *b != 0).map_or(0, |at| at.saturating_add(1));
    let is_cut = end.saturating_add(1) < data.len();
    let shown = data.get(..=end).filter(|_| is_cut).unwrap_or(data);
    let bytes: Vec<String> = shown.iter().map(|b| format!("{b:02x}")).collect();
    format!("({}{}) ", bytes.join(" "), if is_cut { " .." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn commands_are_cut_where_only_zeroes_follow() {
        assert_eq!(command(&[]), "");
        assert_eq!(command(&[0x12, 0, 0x24]), "(12 00 24) ");
        assert_eq!(command(&[0x12, 0, 0, 0]), "(12 00 ..) ");
        assert_eq!(command(&[0x12, 0]), "(12 00) ");
        assert_eq!(command(&[0, 0, 0]), "(00 ..) ");
    }
}
