//! Entries of the tracer `mmiotrace` (`kernel/trace/trace_mmiotrace.c`), which prints its own form
//! of lines.

use crate::Format;
use lastwords_bytes::ByteOrder;

use super::slot::Slot;

/// An access to a device's memory, or a mapping of that memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    is_map: bool,
    physical: Slot,
    /// The value that was read or written; for a mapping its virtual address.
    value: Slot,
    /// The address of the instruction; for a mapping its length.
    place: Slot,
    map: Slot,
    operation: Slot,
    width: Slot,
}

/// Values of `enum mm_io_opcode`.
const READ: u64 = 1;
const WRITE: u64 = 2;
const PROBE: u64 = 3;
const UNPROBE: u64 = 4;
const UNKNOWN: u64 = 5;

impl Memory {
    /// Finds the fields of `mmiotrace_rw` or `mmiotrace_map`.
    pub(crate) fn from_format(format: &Format) -> Self {
        let is_map = format.name == "mmiotrace_map";
        let slot = |name| Slot::find(format, name);
        let [value, place] = if is_map { ["virt", "len"] } else { ["value", "pc"] }.map(slot);
        let [physical, map, operation, width] = ["phys", "map_id", "opcode", "width"].map(slot);
        Self { is_map, physical, value, place, map, operation, width }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>, payload: &[u8], order: ByteOrder, time: &str) {
        let get = |slot: Slot| slot.unsigned(payload, order);
        let (physical, value, place) = (get(self.physical), get(self.value), get(self.place));
        let (map, width) = (self.map.signed(payload, order), get(self.width));
        let line = match (self.is_map, get(self.operation)) {
            (false, operation @ (READ | WRITE)) => {
                let letter = if operation == READ { 'R' } else { 'W' };
                format!("{letter} {width} {time} {map} {physical:#x} {value:#x} {place:#x} 0\n")
            }
            (false, UNKNOWN) => {
                let [a, b, c] = [value >> 16, value >> 8, value].map(|byte| byte & 0xff);
                format!("UNKNOWN {time} {map} {physical:#x} {a:02x},{b:02x},{c:02x} {place:#x} 0\n")
            }
            (true, PROBE) => {
                format!("MAP {time} {map} {physical:#x} {value:#x} {place:#x} 0x0 0\n")
            }
            (true, UNPROBE) => format!("UNMAP {time} {map} 0x0 0\n"),
            (false, _) => "rw what?\n".into(),
            (true, _) => "map what?\n".into(),
        };
        out.extend_from_slice(line.as_bytes());
    }
}
