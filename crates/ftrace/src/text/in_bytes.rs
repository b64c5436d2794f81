//! The forms of the options `hex` and `bin`: the bytes of numbers, as hexadecimal digits or as they
//! are (`print_hex_fmt` and `print_bin_fmt` of `kernel/trace/trace.c`, and the functions `hex` and
//! `binary` of `trace_output.c`).

use super::context::EventInfo;
use super::own::{Own, state_letter};
use lastwords_bytes::ByteOrder;
use lastwords_trace::text::number::unsigned;

/// A form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InBytes {
    /// Option `hex`: digits of each number, the highest first, and a blank.
    Hex,
    /// Option `bin`: the bytes as they are in memory.
    Binary,
}

impl InBytes {
    /// Appends a number of some bytes.
    fn put(self, out: &mut Vec<u8>, value: u64, size: usize, order: ByteOrder) {
        let bytes = value.to_be_bytes();
        let bytes = bytes.get(bytes.len().saturating_sub(size)..).unwrap_or_default();
        let width = size.saturating_mul(2);
        match (self, order) {
            (Self::Hex, _) => out.extend_from_slice(format!("{value:0width$x} ").as_bytes()),
            (Self::Binary, ByteOrder::Big) => out.extend_from_slice(bytes),
            (Self::Binary, ByteOrder::Little) => out.extend(bytes.iter().rev()),
        }
    }

    /// Appends an event. `own`: the entry if it is one of ftrace's own, or nothing if it is another
    /// event; `None` if the event has no format. `context`: with the task, the CPU and the time
    /// (option `context-info`).
    pub(super) fn event(
        self,
        out: &mut Vec<u8>,
        (at, payload): (EventInfo, &[u8]),
        own: Option<Option<&Own>>,
        context: bool,
        order: ByteOrder,
    ) {
        if context {
            self.put(out, u64::from(at.common.pid), 4, order);
            self.put(out, u64::from(at.cpu), 4, order);
            self.put(out, at.time, 8, order);
        }
        match own {
            None => {}
            Some(Some(Own::Function { ip, parent, .. })) => {
                for slot in [ip, parent] {
                    self.put(out, slot.unsigned(payload, order), slot.size as usize, order);
                }
            }
            Some(Some(Own::Block(block))) if self == Self::Binary => {
                block.binary(out, payload, order, at.time);
            }
            Some(Some(Own::Switch { is_wakeup, previous, next, cpu })) => {
                let [[pid, priority, state], [next_pid, next_priority, next_state]] =
                    [previous, next];
                // In hexadecimal, states are letters.
                let letter = |state: u64, is_wakeup: bool| match self {
                    Self::Hex if is_wakeup => u64::from(b'+'),
                    Self::Hex => u64::from(u32::from(state_letter(state))),
                    Self::Binary => state,
                };
                let mut field = |slot: &super::slot::Slot, value: u64| {
                    self.put(out, value, slot.size as usize, order)
                };
                for slot in [pid, priority] {
                    field(slot, slot.unsigned(payload, order));
                }
                field(state, letter(state.unsigned(payload, order), *is_wakeup));
                for slot in [cpu, next_pid, next_priority] {
                    field(slot, slot.unsigned(payload, order));
                }
                field(next_state, letter(next_state.unsigned(payload, order), false));
            }
            Some(_) => {
                out.extend_from_slice(b"type: ");
                unsigned(out, u64::from(at.common.id));
                out.push(b'\n');
            }
        }
        if self == Self::Hex {
            out.push(b'\n');
        }
    }
}
