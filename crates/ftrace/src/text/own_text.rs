//! The text of ftrace's own entries.

use super::arguments::Form;
use super::context::{self, EventInfo, Tasks};
use super::flags::{Flags, address};
use super::own::{Own, state_letter};
use super::slot::Slot;
use crate::print::{Env, hex, padded_hex, print_binary};
use crate::{Mapped, Tracing};
use lastwords_bytes::{ByteOrder, low_u32};
use lastwords_trace::text::number::unsigned;

/// Address in a stack that marks a trampoline (`FTRACE_TRAMPOLINE_MARKER`).
const TRAMPOLINE: u64 = i32::MAX as u64;
/// Most callers of a user stack (`FTRACE_STACK_ENTRIES`).
const USER_CALLERS: usize = 8;

/// The values that some entries show besides their own bytes.
pub(crate) struct Around<'a> {
    pub(crate) flags: &'a Flags,
    pub(crate) at: EventInfo,
    /// The clock counts nanoseconds.
    pub(crate) in_ns: bool,
    pub(crate) tracing: &'a Tracing,
    pub(crate) tasks: &'a Tasks<'a>,
}

/// Appends the text, including the line feed. Returns false if a file of a user stack is not known.
pub(crate) fn write(
    out: &mut Vec<u8>,
    own: &Own,
    mut env: Env<'_, '_>,
    around: &Around<'_>,
) -> bool {
    let &Around { flags, at, in_ns, tracing, tasks } = around;
    let (payload, order, word) = (env.payload, env.machine.order, env.machine.word_size);
    let get = |slot: &Slot| slot.unsigned(payload, order);
    match own {
        Own::Function { ip, parent, arguments } => {
            let is_there = arguments.offset > 0 && payload.len() > arguments.offset as usize;
            let form = is_there.then(|| Form::from_tracing(tracing));
            let registers =
                form.and_then(|form| Some((form, form.registers(*arguments, payload)?)));
            function(out, &mut env, flags, get(ip), get(parent), registers);
            out.push(b'\n');
        }
        Own::Repeats { ip, parent, count, top, bottom } => {
            function(out, &mut env, flags, get(ip), get(parent), None);
            out.extend_from_slice(format!(" (repeats: {}, last_ts:", get(count)).as_bytes());
            context::time(out, at.time.wrapping_sub(get(top) << 32 | get(bottom)), in_ns);
            out.extend_from_slice(b")\n");
        }
        Own::Switch { is_wakeup, previous, next, cpu } => {
            let states = [previous, next].map(|slots| slots.map(|slot| get(&slot)));
            switch(out, *is_wakeup, states, get(cpu), tasks);
        }
        Own::KernelStack { callers } => kernel_stack(out, &mut env, flags, *callers),
        Own::UserStack { process, callers } => {
            return user_stack(out, &mut env, flags, (get(process), *callers));
        }
        Own::BinaryPrint { ip, .. } | Own::Put { ip, .. } | Own::Print { ip, .. } => {
            address(out, env.names, get(ip), flags, word);
            out.extend_from_slice(b": ");
            message(out, own, env);
        }
        Own::RawData { id, data } => raw_data(out, get(id), data.rest(payload)),
        Own::Hardware(slots) => hardware(out, slots, &env, &tracing.machine),
        Own::OsNoise(slots) => noise(out, slots, &env),
        Own::TimerLatency([number, context, latency]) => {
            let context = match get(context) {
                0 => "irq",
                1 => "thread",
                _ => "user-ret",
            };
            let line = format!(
                "#{:<5} context {context:>6} timer_latency {:>9} ns\n",
                get(number),
                get(latency)
            );
            out.extend_from_slice(line.as_bytes());
        }
        Own::Branch { correct, function, file, line } => {
            let mark = if get(correct) != 0 { "  ok  " } else { " MISS " };
            out.extend_from_slice(format!("[{mark}] ").as_bytes());
            for name in [function, file] {
                out.extend_from_slice(name.text(payload));
                out.push(b':');
            }
            // The kernel prints it with `%d`.
            out.extend_from_slice(format!("{}\n", low_u32(get(line)).cast_signed()).as_bytes());
        }
        Own::Block(block) => {
            block.write(out, payload, order, at, tasks, flags.block);
        }
        // Only its own tracer can print it.
        Own::Memory(_) => {
            out.extend_from_slice(format!("Unknown type {}\n", at.common.id).as_bytes())
        }
        // `graph` prints these.
        Own::GraphEntry(_) | Own::GraphExit(_) => {}
    }
    true
}

/// Appends the text of a context switch or a wake-up: process, priority and state of the two tasks.
fn switch(
    out: &mut Vec<u8>,
    is_wakeup: bool,
    [[pid, priority, state], [next_pid, next_priority, next_state]]: [[u64; 3]; 2],
    cpu: u64,
    tasks: &Tasks<'_>,
) {
    let arrow = if is_wakeup { "  +" } else { "==>" };
    let comm = tasks.comm(low_u32(next_pid));
    let line = format!(
        " {pid:7}:{priority:3}:{} {arrow} [{cpu:03}] {next_pid:7}:{next_priority:3}:{} {comm}\n",
        state_letter(state),
        state_letter(next_state)
    );
    out.extend_from_slice(line.as_bytes());
}

fn function(
    out: &mut Vec<u8>,
    env: &mut Env<'_, '_>,
    flags: &Flags,
    ip: u64,
    parent: u64,
    registers: Option<(Form, &[u8])>,
) {
    address(out, env.names, ip, flags, env.machine.word_size);
    if let Some((form, registers)) = registers {
        form.write(out, env.names, ip, registers);
    }
    if flags.parent && parent != 0 {
        out.extend_from_slice(b" <-");
        address(out, env.names, parent, flags, env.machine.word_size);
    }
}

fn words<'a>(env: &Env<'a, '_>, callers: Slot) -> impl Iterator<Item = u64> + use<'a> {
    let (order, size) = (env.machine.order, env.machine.word_size);
    let chunks = callers.rest(env.payload).chunks_exact(usize::from(size.max(1)));
    chunks.map(move |chunk| Slot { offset: 0, size: u32::from(size) }.unsigned(chunk, order))
}

fn kernel_stack(out: &mut Vec<u8>, env: &mut Env<'_, '_>, flags: &Flags, callers: Slot) {
    let end = if env.machine.word_size == 8 { u64::MAX } else { u64::from(u32::MAX) };
    out.extend_from_slice(b"<stack trace>\n");
    for caller in words(env, callers).take_while(|caller| *caller != end) {
        out.extend_from_slice(b" => ");
        if caller == TRAMPOLINE {
            out.extend_from_slice(b"[FTRACE TRAMPOLINE]");
        } else {
            address(out, env.names, caller, flags, env.machine.word_size);
        }
        out.push(b'\n');
    }
}

/// Appends a user stack (`trace_user_stack_print`). Returns false if a file is not known.
fn user_stack(
    out: &mut Vec<u8>,
    env: &mut Env<'_, '_>,
    flags: &Flags,
    (process, callers): (u64, Slot),
) -> bool {
    out.extend_from_slice(b"<user stack trace>\n");
    let width = u32::from(env.machine.word_size) * 2;
    let mut is_known = true;
    for caller in words(env, callers).take(USER_CALLERS).take_while(|caller| *caller != 0) {
        out.extend_from_slice(b" => ");
        let file = if flags.user_files {
            env.names.mapped(low_u32(process), caller)
        } else {
            Mapped::None
        };
        if let Mapped::File { path, offset } = &file {
            out.extend_from_slice(path.replace('\n', "\\012").as_bytes());
            out.extend_from_slice(b"[+0x");
            hex(out, *offset);
            out.push(b']');
        }
        is_known &= file != Mapped::Unknown;
        if flags.symbol_address || !matches!(file, Mapped::File { .. }) {
            out.extend_from_slice(b" <");
            padded_hex(out, caller, width);
            out.push(b'>');
        }
        out.push(b'\n');
    }
    is_known
}

/// Appends the message of an entry. Returns false for an entry without a message.
pub(crate) fn message(out: &mut Vec<u8>, own: &Own, mut env: Env<'_, '_>) -> bool {
    let (payload, order) = (env.payload, env.machine.order);
    match own {
        Own::Print { text, .. } => {
            let text = text.rest(payload);
            out.extend_from_slice(text.split(|b| *b == 0).next().unwrap_or_default());
        }
        Own::Put { text, .. } => {
            let place = text.unsigned(payload, order);
            match env.names.text_at(place) {
                Some(text) => out.extend_from_slice(&text),
                None => out.extend_from_slice(format!("(0x{place:x})\n").as_bytes()),
            }
        }
        Own::BinaryPrint { format, arguments, .. } => {
            let place = format.unsigned(payload, order);
            let known = env.names.text_at(place);
            let begin = out.len();
            let printed = known.is_some_and(|text| {
                print_binary(&text, arguments.rest(payload), &mut env, out).is_ok()
            });
            if !printed {
                out.truncate(begin);
                out.extend_from_slice(format!("(0x{place:x})\n").as_bytes());
            }
        }
        _ => return false,
    }
    true
}

fn raw_data(out: &mut Vec<u8>, id: u64, data: &[u8]) {
    out.extend_from_slice(b"# ");
    hex_then(out, id, b' ');
    out.extend_from_slice(b"buf:");
    for byte in data {
        out.push(b' ');
        padded_hex(out, u64::from(*byte), 2);
    }
    out.push(b'\n');
}

fn hardware(out: &mut Vec<u8>, slots: &[Slot; 8], env: &Env<'_, '_>, machine: &str) {
    let [number, inner, outer, _, nanoseconds, count, total, nmi] =
        slots.map(|slot| slot.unsigned(env.payload, env.machine.order));
    let seconds = slots[3].signed(env.payload, env.machine.order);
    let line = format!(
        "#{number:<5} inner/outer(us): {inner:4}/{outer:<5} ts:{seconds}.{nanoseconds:09} count:{count}"
    );
    out.extend_from_slice(line.as_bytes());
    if nmi > 0 {
        // Machines with the generic scheduler clock cannot measure the time in an NMI.
        if machine != "aarch64" && !machine.starts_with("arm") {
            out.extend_from_slice(format!(" nmi-total:{total}").as_bytes());
        }
        out.extend_from_slice(format!(" nmi-count:{nmi}").as_bytes());
    }
    out.push(b'\n');
}

fn noise(out: &mut Vec<u8>, slots: &[Slot; 8], env: &Env<'_, '_>) {
    let [runtime, noise, longest, hardware, nmi, irq, softirq, thread] =
        slots.map(|slot| slot.unsigned(env.payload, env.machine.order));
    let ratio =
        runtime.wrapping_sub(noise).wrapping_mul(10_000_000).checked_div(runtime).unwrap_or(0);
    let (whole, part) = (ratio / 100_000, ratio % 100_000);
    let line = format!(
        "{runtime} {noise:10} {whole:3}.{part:05} {longest:7} {hardware:6} {nmi:6} {irq:6} {softirq:6} {thread:6}\n"
    );
    out.extend_from_slice(line.as_bytes());
}

/// Appends the form of option `raw`. Returns false for an entry without such a form.
pub(crate) fn raw(out: &mut Vec<u8>, own: &Own, env: Env<'_, '_>) -> bool {
    let (payload, order) = (env.payload, env.machine.order);
    let get = |slot: &Slot| slot.unsigned(payload, order);
    match own {
        Own::Function { ip, parent, .. } => {
            hex_then(out, get(ip), b' ');
            hex_then(out, get(parent), b'\n');
        }
        Own::Repeats { ip, parent, count, top, bottom } => {
            numbers(out, &[get(ip), get(parent), get(count), get(top) << 32 | get(bottom)]);
        }
        Own::Switch { is_wakeup, previous, next, cpu } => {
            let letter = |state: u64| state_letter(state);
            let [pid, priority, state] = previous.map(|s| get(&s));
            let [next_pid, next_priority, next_state] = next.map(|s| get(&s));
            let first = if *is_wakeup { '+' } else { letter(state) };
            let (cpu, last) = (get(cpu), letter(next_state));
            let line =
                format!("{pid} {priority} {first} {cpu} {next_pid} {next_priority} {last}\n");
            out.extend_from_slice(line.as_bytes());
        }
        Own::Print { ip, .. } => {
            out.extend_from_slice(b"# ");
            hex_then(out, get(ip), b' ');
            return message(out, own, env);
        }
        Own::BinaryPrint { ip, .. } | Own::Put { ip, .. } => {
            out.extend_from_slice(b": ");
            hex_then(out, get(ip), b' ');
            out.extend_from_slice(b": ");
            return message(out, own, env);
        }
        Own::RawData { id, data } => raw_data(out, get(id), data.rest(payload)),
        Own::Hardware(slots) => {
            let [number, inner, outer, seconds, nanoseconds, ..] = slots.map(|slot| get(&slot));
            out.extend_from_slice(
                format!("{inner} {outer} {seconds} {nanoseconds:09} {number}\n").as_bytes(),
            );
        }
        Own::OsNoise(slots) => numbers(out, &slots.map(|slot| get(&slot))),
        Own::TimerLatency(slots) => numbers(out, &slots.map(|slot| get(&slot))),
        Own::KernelStack { .. }
        | Own::UserStack { .. }
        | Own::GraphEntry(_)
        | Own::GraphExit(_)
        | Own::Memory(_)
        | Own::Branch { .. }
        | Own::Block(_) => return false,
    }
    true
}

fn numbers(out: &mut Vec<u8>, values: &[u64]) {
    for (index, value) in values.iter().enumerate() {
        out.extend((index > 0).then_some(b' '));
        unsigned(out, *value);
    }
    out.push(b'\n');
}

/// Appends the line of an event while `mmiotrace` is the tracer. Only its own entries and messages
/// have a line.
pub(crate) fn mmio_line(
    out: &mut Vec<u8>,
    own: Option<&Own>,
    payload: &[u8],
    order: ByteOrder,
    time: u64,
) {
    let micros = time.wrapping_add(500) / 1000;
    let time = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    match own {
        Some(Own::Memory(memory)) => memory.write(out, payload, order, &time),
        Some(Own::Print { text, .. }) => {
            out.extend_from_slice(format!("MARK {time} ").as_bytes());
            let text = text.rest(payload);
            out.extend_from_slice(text.split(|b| *b == 0).next().unwrap_or_default());
        }
        _ => {}
    }
}

/// Appends lower-case hexadecimal digits and then the byte `then`.
fn hex_then(out: &mut Vec<u8>, value: u64, then: u8) {
    hex(out, value);
    out.push(then);
}
