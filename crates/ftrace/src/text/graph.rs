//! The function_graph tracer (`trace_functions_graph.c`).

use crate::relative_time::time_before;
use crate::{Array, Ring, Tracing};
use lastwords_bytes::ByteOrder;
use lastwords_trace::integer::extend;

use super::arguments::Form;
use super::context::{self, Common, EventInfo, Tasks};
use super::flags::Flags;
use super::merge::Merge;
use super::own::{GraphEntry, GraphExit};
use crate::print::{Names, Show, Spec, hex, number};
use lastwords_trace::text::number::{digit, unsigned};

/// Greatest depth at which the entered function is remembered (`FTRACE_RETFUNC_DEPTH`).
const DEPTH: usize = 50;
/// Limit of the depth, which a hostile entry can set to any number.
const DEEPEST: i64 = 500;
/// Width of the column of `task-pid`, in which the text is centered.
const TASK_WIDTH: usize = 14;

/// Name of the function graph tracer.
const FUNCTION_GRAPH: &str = "function_graph";
/// Tracers of latencies, which draw graphs if an option is set.
const LATENCY_TRACERS: [&str; 6] =
    ["irqsoff", "preemptoff", "preemptirqsoff", "wakeup", "wakeup_rt", "wakeup_dl"];

/// Returns true if the array's tracer prints graphs of functions.
pub(crate) fn draws(array: &Array) -> bool {
    let is_asked =
        LATENCY_TRACERS.contains(&array.tracer_name()) && array.has_option("display-graph");
    array.tracer_name() == FUNCTION_GRAPH || is_asked
}

/// State of printing that is shared by the kinds of lines.
pub(crate) struct State<'a> {
    pub(crate) tasks: Tasks<'a>,
    pub(crate) names: Names,
    pub(crate) order: ByteOrder,
    pub(crate) flags: Flags,
    pub(crate) time_start: u64,
    pub(crate) arguments: Form,
    /// The layout of exit events.
    pub(crate) exit: Option<GraphExit>,
}

/// Columns, from the options of the tracer.
#[derive(Debug, Clone, Copy)]
struct Columns {
    overrun: bool,
    cpu: bool,
    overhead: bool,
    task: bool,
    duration: bool,
    absolute: bool,
    relative: bool,
    irqs: bool,
    tail: bool,
    value: bool,
    value_hex: bool,
    return_address: bool,
}

impl Columns {
    /// `before`: times are shown as those before a reading of the clock, and so they are shown at
    /// all.
    fn new(array: &Array, before: bool) -> Self {
        let is_own = array.tracer_name() == FUNCTION_GRAPH;
        let unknown = is_own && array.tracer_options.is_empty();
        // A tracer of latencies that draws graphs has its own columns.
        let is_other = !is_own && draws(array);
        let wakes = is_other && array.tracer_name().starts_with("wakeup");
        let on = |name: &str| {
            array.tracer_options.iter().any(|o| o.strip_prefix("funcgraph-") == Some(name))
        };
        Self {
            overrun: on("overrun"),
            cpu: unknown || is_other || on("cpu"),
            overhead: unknown || wakes || on("overhead"),
            task: is_other || on("proc"),
            duration: unknown || is_other || on("duration"),
            absolute: on("abstime") || before,
            relative: is_other || on("reltime"),
            irqs: unknown || wakes || on("irqs"),
            tail: on("tail"),
            value: on("retval"),
            value_hex: on("retval-hex"),
            return_address: on("retaddr"),
        }
    }
}

/// State of a CPU.
#[derive(Debug, Clone)]
struct Lane {
    last_pid: Option<u32>,
    depth: i64,
    /// Depth at which hidden interrupt code was entered.
    irq_depth: Option<i64>,
    entered: [u64; DEPTH],
}

/// Prints the lines of the graph.
pub(crate) struct Graph {
    columns: Columns,
    lanes: Vec<Lane>,
    cpu_digits: u32,
    /// Range of addresses of interrupt entries.
    irq_text: (u64, u64),
}

/// Content of the duration column if it has no duration.
#[derive(Clone, Copy)]
enum Fill {
    Full,
    Start,
    End,
}

impl Graph {
    pub(crate) fn new(tracing: &Tracing, array: &Array, ring: &dyn Ring, before: bool) -> Self {
        let highest = ring
            .cpus()
            .iter()
            .map(|c| c.cpu)
            .max()
            .unwrap_or(0)
            .max(tracing.cpus.saturating_sub(1));
        let is_graph = draws(array);
        let mut irq_text = (0, 0);
        if is_graph {
            tracing.symbols.each(&mut |row| match row.name {
                "__irqentry_text_start" => irq_text.0 = row.address,
                "__irqentry_text_end" => irq_text.1 = row.address,
                _ => {}
            });
        }
        let lane = Lane { last_pid: None, depth: 0, irq_depth: None, entered: [0; DEPTH] };
        let lanes = vec![lane; if is_graph { ring.cpus().len() } else { 0 }];
        let cpu_digits = highest.max(1).ilog10().saturating_add(1);
        Self { columns: Columns::new(array, before), lanes, cpu_digits, irq_text }
    }

    fn is_irq(&self, function: u64) -> bool {
        (self.irq_text.0..self.irq_text.1).contains(&function)
    }

    fn lane(&mut self, lane: Option<usize>) -> Option<&mut Lane> {
        self.lanes.get_mut(lane?)
    }

    /// Appends the line of an entered function. The next event in `merge` shows whether the
    /// function called others. The entry is skipped there, and so is the exit of a function that
    /// called no other.
    pub(crate) fn entry(
        &mut self,
        out: &mut Vec<u8>,
        state: &mut State<'_>,
        lane: Option<usize>,
        (entry, payload): (GraphEntry, &[u8]),
        at: EventInfo,
        merge: &mut Merge<'_>,
    ) {
        let order = state.order;
        let function = entry.function.unsigned(payload, order);
        let depth = entry.depth.signed(payload, order);
        if self.hides_entry(lane, function, depth) {
            return merge.advance();
        }
        self.prologue(out, state, lane, at, Some(function));
        let exits = exit_of(state, at.common, function, merge);
        merge.settle();
        let Some(leaf) = exits else {
            if let Some(lane) = self.lane(lane) {
                lane.depth = depth;
                if let Some(place) =
                    usize::try_from(depth).ok().and_then(|d| lane.entered.get_mut(d))
                {
                    *place = function;
                }
            }
            self.fill(out, state, Fill::Full);
            indent(out, depth);
            call(out, state, function, entry, payload);
            out.extend_from_slice(b" {");
            if self.columns.return_address && entry.return_address.size > 0 {
                out.extend_from_slice(b" /* <-");
                state.names.show(out, entry.return_address.unsigned(payload, order), Show::Offset);
                out.extend_from_slice(b" */");
            }
            out.push(b'\n');
            return;
        };
        if let Some(lane) = self.lane(lane) {
            lane.depth = depth.saturating_sub(1);
            if let Some(place) = usize::try_from(depth).ok().and_then(|d| lane.entered.get_mut(d)) {
                *place = 0;
            }
        }
        self.duration(out, state, leaf.duration);
        indent(out, depth);
        call(out, state, function, entry, payload);
        out.push(b';');
        let back = entry.return_address.size > 0 && self.columns.return_address;
        let shows_value = self.columns.value;
        if shows_value || back {
            out.extend_from_slice(b" /*");
            if back {
                out.extend_from_slice(b" <-");
                state.names.show(out, entry.return_address.unsigned(payload, order), Show::Offset);
            }
            if shows_value {
                self.value(out, leaf.value);
            }
            out.extend_from_slice(b" */");
        }
        out.push(b'\n');
        self.irq(out, state, at, function, false);
    }

    /// Appends the line of a function that returns after it called others.
    pub(crate) fn exit(
        &mut self,
        out: &mut Vec<u8>,
        state: &mut State<'_>,
        lane: Option<usize>,
        exit: GraphExit,
        payload: &[u8],
        at: EventInfo,
    ) {
        let order = state.order;
        let function = exit.function.unsigned(payload, order);
        let depth = exit.depth.signed(payload, order);
        if self.hides_exit(lane, depth) {
            return;
        }
        let mut matches = true;
        if let Some(lane) = self.lane(lane) {
            lane.depth = depth.saturating_sub(1);
            if let Some(place) = usize::try_from(depth).ok().and_then(|d| lane.entered.get_mut(d)) {
                matches = std::mem::take(place) == function;
            }
        }
        self.prologue(out, state, lane, at, None);
        self.duration(out, state, exit.duration(payload, order));
        indent(out, depth);
        if self.columns.value {
            out.extend_from_slice(b"} /* ");
            state.names.show(out, function, Show::Plain);
            self.value(out, exit.value.unsigned(payload, order));
            out.extend_from_slice(b" */\n");
        } else if matches && !self.columns.tail {
            out.extend_from_slice(b"}\n");
        } else {
            out.extend_from_slice(b"} /* ");
            state.names.show(out, function, Show::Plain);
            out.extend_from_slice(b" */\n");
        }
        if self.columns.overrun {
            out.extend_from_slice(b" (Overruns: ");
            unsigned(out, exit.overrun.unsigned(payload, order));
            out.extend_from_slice(b")\n");
        }
        self.irq(out, state, at, function, false);
    }

    /// Appends the beginning of the line of another event, whose text is shown as a comment.
    pub(crate) fn comment_begin(
        &mut self,
        out: &mut Vec<u8>,
        state: &mut State<'_>,
        at: EventInfo,
    ) {
        let depth = self.lanes.get(at.lane).map_or(0, |lane| lane.depth);
        self.prologue(out, state, Some(at.lane), at, None);
        self.fill(out, state, Fill::Full);
        if depth > 0 {
            indent(out, depth.saturating_add(1));
        }
        out.extend_from_slice(b"/* ");
    }

    fn hides_entry(&mut self, lane: Option<usize>, function: u64, depth: i64) -> bool {
        let (shown, is_irq) = (self.columns.irqs, self.is_irq(function));
        let Some(lane) = self.lane(lane).filter(|_| !shown) else { return false };
        if lane.irq_depth.is_some() {
            return true;
        }
        if is_irq {
            lane.irq_depth = Some(depth);
        }
        is_irq
    }

    fn hides_exit(&mut self, lane: Option<usize>, depth: i64) -> bool {
        let shown = self.columns.irqs;
        let Some(lane) = self.lane(lane).filter(|_| !shown) else { return false };
        let Some(entered) = lane.irq_depth else { return false };
        if entered >= depth {
            lane.irq_depth = None;
        }
        true
    }

    /// Appends the columns, after a block for a switch to another task on the CPU, and the mark of
    /// an interrupt's beginning.
    fn prologue(
        &mut self,
        out: &mut Vec<u8>,
        state: &mut State<'_>,
        lane: Option<usize>,
        at: EventInfo,
        entered: Option<u64>,
    ) {
        let pid = at.common.pid;
        let digits = self.cpu_digits;
        if let Some(lane) = self.lane(lane)
            && let Some(before) = lane.last_pid.replace(pid).filter(|before| *before != pid)
        {
            out.extend_from_slice(b" ------------------------------------------\n");
            cpu(out, digits, at.cpu);
            task(out, &state.tasks, before);
            out.extend_from_slice(b" => ");
            task(out, &state.tasks, pid);
            out.extend_from_slice(b"\n ------------------------------------------\n\n");
        }
        if let Some(function) = entered {
            self.irq(out, state, at, function, true);
        }
        if state.flags.context {
            self.context(out, state, at);
        }
    }

    fn context(&self, out: &mut Vec<u8>, state: &mut State<'_>, at: EventInfo) {
        if self.columns.absolute {
            let (seconds, rest) = (at.time / 1_000_000_000, at.time % 1_000_000_000 / 1000);
            match state.flags.before {
                None => out.extend_from_slice(format!("{seconds:5}.{rest:06}").as_bytes()),
                Some(before) => time_before(out, at.time, before, true, 12),
            }
            out.extend_from_slice(b" |  ");
        }
        if self.columns.relative {
            let since = at.time.wrapping_sub(state.time_start) / 1000;
            out.extend_from_slice(format!("{since:9} us |  ").as_bytes());
        }
        if self.columns.cpu {
            cpu(out, self.cpu_digits, at.cpu);
        }
        if self.columns.task {
            task(out, &state.tasks, at.common.pid);
            out.extend_from_slice(b" | ");
        }
        if state.flags.latency {
            out.push(b' ');
            state.tasks.irq_flags(out, at.common);
            out.extend_from_slice(b" | ");
        }
    }

    fn irq(
        &self,
        out: &mut Vec<u8>,
        state: &mut State<'_>,
        at: EventInfo,
        function: u64,
        begins: bool,
    ) {
        if !self.is_irq(function) {
            return;
        }
        if state.flags.context {
            self.context(out, state, at);
        }
        self.fill(out, state, Fill::Start);
        out.extend_from_slice(if begins { b"==========>" } else { b"<==========" });
        self.fill(out, state, Fill::End);
        out.push(b'\n');
    }

    fn fill(&self, out: &mut Vec<u8>, state: &State<'_>, fill: Fill) {
        if !self.columns.duration || !state.flags.context {
            return;
        }
        out.extend_from_slice(match fill {
            Fill::Full => b"              |  ",
            Fill::Start => b"  ",
            Fill::End => b" |",
        });
    }

    fn duration(&self, out: &mut Vec<u8>, state: &State<'_>, duration: u64) {
        if !self.columns.duration || !state.flags.context {
            return;
        }
        out.push(if self.columns.overhead { context::mark(duration) } else { b' ' });
        out.push(b' ');
        let begin = out.len();
        unsigned(out, duration / 1000);
        let length = out.len().saturating_sub(begin);
        if length < 7 {
            out.push(b'.');
            // A duration has at most seven digits in all.
            let digits =
                [duration / 100, duration / 10, duration].map(|number| digit((number % 10) as u8));
            out.extend(digits.iter().take(7usize.saturating_sub(length)));
        }
        let length = out.len().saturating_sub(begin);
        out.extend_from_slice(b" us ");
        out.extend((length..8).map(|_| b' '));
        out.extend_from_slice(b"|  ");
    }

    fn value(&self, out: &mut Vec<u8>, value: u64) {
        // A negative number of 32 bits can be an error, too.
        let wide = if value >> 31 == 1 { extend(value, 4) } else { value.cast_signed() };
        if !self.columns.value_hex && (-4095..0).contains(&wide) {
            out.extend_from_slice(b" ret=");
            number(out, Spec::default(), wide.unsigned_abs(), true, 10, false);
        } else {
            out.extend_from_slice(b" ret=0x");
            hex(out, value);
        }
    }
}

struct Leaf {
    duration: u64,
    value: u64,
}

/// Returns the exit of the preceding entry, if it is the next event on the CPU.
fn exit_of(state: &State<'_>, entry: Common, function: u64, merge: &mut Merge<'_>) -> Option<Leaf> {
    let order = state.order;
    // This is called even if no format is known for exits, because the entry must be skipped in any
    // case.
    merge.peek_same_cpu(|payload, _| {
        let exit = state.exit?;
        let common = Common::read(payload, order);
        let is_it = common.id == exit.id
            && common.pid == entry.pid
            && exit.function.unsigned(payload, order) == function;
        is_it.then(|| Leaf {
            duration: exit.duration(payload, order),
            value: exit.value.unsigned(payload, order),
        })
    })
}

/// Appends `function(arguments)`.
fn call(
    out: &mut Vec<u8>,
    state: &mut State<'_>,
    function: u64,
    entry: GraphEntry,
    payload: &[u8],
) {
    state.names.show(out, function, Show::Plain);
    match state.arguments.registers(entry.arguments, payload) {
        Some(registers) => state.arguments.write(out, &mut state.names, function, registers),
        None => out.extend_from_slice(b"()"),
    }
}

fn indent(out: &mut Vec<u8>, depth: i64) {
    let spaces = usize::try_from(depth.min(DEEPEST)).unwrap_or(0).saturating_mul(2);
    out.resize(out.len().saturating_add(spaces), b' ');
}

fn cpu(out: &mut Vec<u8>, digits: u32, cpu: u32) {
    out.push(b' ');
    number(out, Spec { width: digits, ..Spec::default() }, u64::from(cpu), false, 10, false);
    out.extend_from_slice(b") ");
}

/// Appends `  task-pid   `, centered in its column.
fn task(out: &mut Vec<u8>, tasks: &Tasks<'_>, pid: u32) {
    let comm = tasks.comm(pid).as_bytes();
    let name =
        [comm.get(..7).unwrap_or(comm), format!("-{}", pid.cast_signed()).as_bytes()].concat();
    let spaces = TASK_WIDTH.saturating_sub(name.len());
    out.resize(out.len().saturating_add(spaces / 2), b' ');
    out.extend_from_slice(&name);
    out.resize(out.len().saturating_add(spaces).saturating_sub(spaces / 2), b' ');
}

/// Appends the header lines.
pub(crate) fn header(out: &mut Vec<u8>, array: &Array, flags: &Flags) {
    if !flags.context {
        return;
    }
    let columns = Columns::new(array, flags.before.is_some());
    if flags.latency {
        let widths =
            [(16, columns.absolute), (16, columns.relative), (4, columns.cpu), (17, columns.task)];
        let width = widths
            .iter()
            .filter(|(_, is_shown)| *is_shown)
            .map(|(width, _)| width)
            .sum::<usize>()
            .min(37);
        for line in [
            "  _-----=> irqs-off        ",
            " / _----=> need-resched    ",
            "| / _---=> hardirq/softirq ",
            "|| / _--=> preempt-depth   ",
            "||| /                      ",
        ] {
            out.extend_from_slice(format!("#{:width$}{line}\n", "").as_bytes());
        }
    }
    let rows = [
        [
            "     TIME       ",
            "   REL TIME     ",
            " CPU",
            "  TASK/PID       ",
            "||||   ",
            "  DURATION   ",
            "               FUNCTION CALLS\n",
        ],
        [
            "      |         ",
            "      |         ",
            " |  ",
            "   |    |        ",
            "||||   ",
            "   |   |      ",
            "               |   |   |   |\n",
        ],
    ];
    for row in rows {
        out.push(b'#');
        let shown = [
            columns.absolute,
            columns.relative,
            columns.cpu,
            columns.task,
            flags.latency,
            columns.duration,
            true,
        ];
        for (text, _) in row.iter().zip(shown).filter(|(_, shown)| *shown) {
            out.extend_from_slice(text.as_bytes());
        }
    }
}
