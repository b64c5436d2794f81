//! ftrace's own entries (`trace_entries.h`, `trace_output.c`).

use super::block::Block;
use super::memory::Memory;
use super::slot::Slot;
use crate::Format;
use lastwords_bytes::ByteOrder;

/// Fields of an entry of the tracer `hwlat`.
const HARDWARE: [&str; 8] = [
    "seqnum",
    "duration",
    "outer_duration",
    "tv_sec",
    "tv_nsec",
    "count",
    "nmi_total_ts",
    "nmi_count",
];
/// Fields of an entry of the tracer `osnoise`.
const NOISE: [&str; 8] = [
    "runtime",
    "noise",
    "max_sample",
    "hw_count",
    "nmi_count",
    "irq_count",
    "softirq_count",
    "thread_count",
];
/// Letters of task states (`TASK_STATE_TO_CHAR_STR` by index).
const STATES: &[u8] = b"RSDTtXZPI";

/// One of ftrace's own entries, with the positions of its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Own {
    /// `arguments`: all registers of the entry, if it has them.
    Function {
        ip: Slot,
        parent: Slot,
        arguments: Slot,
    },
    Repeats {
        ip: Slot,
        parent: Slot,
        count: Slot,
        top: Slot,
        bottom: Slot,
    },
    GraphEntry(GraphEntry),
    GraphExit(GraphExit),
    Switch {
        is_wakeup: bool,
        previous: [Slot; 3],
        next: [Slot; 3],
        cpu: Slot,
    },
    KernelStack {
        callers: Slot,
    },
    UserStack {
        process: Slot,
        callers: Slot,
    },
    BinaryPrint {
        ip: Slot,
        format: Slot,
        arguments: Slot,
    },
    Put {
        ip: Slot,
        text: Slot,
    },
    Print {
        ip: Slot,
        text: Slot,
    },
    RawData {
        id: Slot,
        data: Slot,
    },
    Hardware([Slot; 8]),
    OsNoise([Slot; 8]),
    TimerLatency([Slot; 3]),
    /// Only the tracer `mmiotrace` prints it.
    Memory(Memory),
    Branch {
        correct: Slot,
        function: Slot,
        file: Slot,
        line: Slot,
    },
    Block(Block),
}

/// `funcgraph_entry`, `fgraph_retaddr_entry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GraphEntry {
    pub(crate) function: Slot,
    pub(crate) depth: Slot,
    /// The address to which the function returns; an empty slot if that is not recorded.
    pub(crate) return_address: Slot,
    /// Registers, if they were recorded.
    pub(crate) arguments: Slot,
}

/// `funcgraph_exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GraphExit {
    pub(crate) id: u16,
    pub(crate) function: Slot,
    pub(crate) depth: Slot,
    pub(crate) overrun: Slot,
    pub(crate) call_time: Slot,
    pub(crate) return_time: Slot,
    pub(crate) value: Slot,
}

impl GraphExit {
    /// Returns the nanoseconds from the function's call to its return.
    pub(crate) fn duration(&self, payload: &[u8], order: ByteOrder) -> u64 {
        self.return_time
            .unsigned(payload, order)
            .wrapping_sub(self.call_time.unsigned(payload, order))
    }
}

impl Own {
    /// Finds the fields of an event of system `ftrace`. Returns `None` for an event that has no
    /// text of its own.
    pub(crate) fn from_format(format: &Format) -> Option<Self> {
        if format.system != "ftrace" {
            return None;
        }
        let slot = |name| Slot::find(format, name);
        Some(match format.name.as_str() {
            "function" => Self::Function {
                ip: slot("ip"),
                parent: slot("parent_ip"),
                arguments: slot("args"),
            },
            "func_repeats" => Self::Repeats {
                ip: slot("ip"),
                parent: slot("parent_ip"),
                count: slot("count"),
                top: slot("top_delta_ts"),
                bottom: slot("bottom_delta_ts"),
            },
            "funcgraph_entry" | "fgraph_retaddr_entry" => Self::GraphEntry(GraphEntry {
                function: slot("func"),
                depth: slot("depth"),
                return_address: return_address(format),
                arguments: slot("args"),
            }),
            "funcgraph_exit" => Self::GraphExit(GraphExit {
                id: format.id,
                function: slot("func"),
                depth: slot("depth"),
                overrun: slot("overrun"),
                call_time: slot("calltime"),
                return_time: slot("rettime"),
                value: slot("retval"),
            }),
            "context_switch" | "wakeup" => Self::Switch {
                is_wakeup: format.name == "wakeup",
                previous: [slot("prev_pid"), slot("prev_prio"), slot("prev_state")],
                next: [slot("next_pid"), slot("next_prio"), slot("next_state")],
                cpu: slot("next_cpu"),
            },
            "kernel_stack" => Self::KernelStack { callers: slot("caller") },
            "user_stack" => Self::UserStack { process: slot("tgid"), callers: slot("caller") },
            "bprint" => {
                Self::BinaryPrint { ip: slot("ip"), format: slot("fmt"), arguments: slot("buf") }
            }
            "bputs" => Self::Put { ip: slot("ip"), text: slot("str") },
            "print" => Self::Print { ip: slot("ip"), text: slot("buf") },
            "raw_data" => Self::RawData { id: slot("id"), data: slot("buf") },
            "hwlat" => Self::Hardware(HARDWARE.map(slot)),
            "osnoise" => Self::OsNoise(NOISE.map(slot)),
            "timerlat" => Self::TimerLatency(["seqnum", "context", "timer_latency"].map(slot)),
            "mmiotrace_rw" | "mmiotrace_map" => Self::Memory(Memory::from_format(format)),
            "branch" => {
                let [correct, function, file, line] = ["correct", "func", "file", "line"].map(slot);
                Self::Branch { correct, function, file, line }
            }
            "blktrace" => Self::Block(Block::from_format(format)),
            _ => return None,
        })
    }
}

/// Finds the return address in an entry: its own field, or the first of the arguments.
fn return_address(format: &Format) -> Slot {
    let (field, arguments) = (Slot::find(format, "retaddr"), Slot::find(format, "args"));
    let size = Slot::find(format, "func").size;
    let is_first = format.name == "fgraph_retaddr_entry" && field.size == 0 && arguments.offset > 0;
    if is_first { Slot { size, ..arguments } } else { field }
}

/// Returns the letter of a task's state.
pub(crate) fn state_letter(state: u64) -> char {
    char::from(
        usize::try_from(state).ok().and_then(|state| STATES.get(state)).copied().unwrap_or(b'?'),
    )
}
