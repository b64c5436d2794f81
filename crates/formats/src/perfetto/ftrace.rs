//! A kernel's trace: bundles of events for each CPU, with what names tasks.
//!
//! Events that Perfetto knows are written as its own messages, so that it draws slices of the scheduler, interrupts, system
//! calls and the function graph; others as `GenericFtraceEvent`, their fields by name. Times are those of the trace's
//! clock, which Perfetto takes for the time since the boot.

mod class;

use std::collections::HashMap;

use lastwords_ctf::read::{Due, Reader, Trace};
use lastwords_trace::class::Scope;
use lastwords_trace::visit::{NodeId, Visitor};

use super::proto::{Message, put_message};
use super::table::Table;
use super::{Kernel, NEEDS_STATE, STATE_CLEARED, packet, put_packet};
use crate::ftrace::print::{Names, Show};
use class::{Class, Fields};

/// Bytes of events after which a bundle is written.
const BUNDLE: usize = 64 << 10;
/// Symbols that are told to the reader; addresses of more stay numbers.
const MOST_SYMBOLS: usize = 1 << 20;

/// The events of one CPU that are not written yet.
#[derive(Default)]
struct Bundle {
    cpu: u32,
    events: Vec<u8>,
    /// Events are missing before the first.
    lost: bool,
    /// How many events were missing until the last that came.
    discarded: u64,
}

/// Writes the events of a trace array.
pub(super) struct Events<'t> {
    kernel: &'t Kernel<'t>,
    trace: &'t Trace,
    /// The context's field with the task.
    pid: Option<NodeId>,
    table: Table,
    /// By position of the event class; made when the first of a kind comes.
    classes: Vec<Option<Class<'t>>>,
    symbols: Symbols,
    /// By stream.
    bundles: Vec<Bundle>,
    packet: Message,
    event: Message,
    inner: Message,
}

/// Functions by name.
struct Symbols {
    names: Names,
    /// Addresses that were told to the reader, by number.
    known: HashMap<u64, Option<u64>>,
    /// `InternedData` that no packet has yet.
    interned: Message,
}

impl Symbols {
    /// The number that stands for the name of a function; none where the address has no symbol.
    fn number(&mut self, address: u64) -> Option<u64> {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        if self.known.len() >= MOST_SYMBOLS {
            return None;
        }
        let number = self.names.has(address).then_some((self.known.len() as u64).saturating_add(1));
        self.known.insert(address, number);
        let number = number?;
        let name = self.functions(&[address]);
        // `InternedData.kernel_symbols`.
        self.interned.nested(26, |symbol| {
            symbol.number(1, number);
            symbol.text(2, &name);
        });
        Some(number)
    }

    /// The names of functions, or `0x…` where there is none.
    fn functions(&mut self, addresses: &[u64]) -> Vec<u8> {
        let mut text = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            if index > 0 {
                text.extend_from_slice(b" <- ");
            }
            self.names.show(&mut text, *address, Show::Bare);
        }
        text
    }
}

/// Takes the number of one field.
struct One {
    node: Option<NodeId>,
    value: u64,
}

impl Visitor for One {
    fn integer(&mut self, node: NodeId, value: u64) {
        if self.node == Some(node) {
            self.value = value;
        }
    }
}

impl<'t> Events<'t> {
    pub(super) fn new(kernel: &'t Kernel<'t>, trace: &'t Trace) -> Self {
        let context = trace.program.code(Scope::CommonContext, 0, 0);
        let pid = context.and_then(|code| code.nodes().iter().position(|node| node.name == "pid"));
        Self {
            kernel,
            trace,
            pid: pid.and_then(|at| NodeId::try_from(at).ok()),
            table: Table::new(),
            classes: Vec::new(),
            symbols: Symbols {
                names: Names::new(kernel.tracing, false),
                known: HashMap::new(),
                interned: Message::default(),
            },
            bundles: Vec::new(),
            packet: Message::default(),
            event: Message::default(),
            inner: Message::default(),
        }
    }

    /// It is for the trace at this position.
    pub(super) fn is_of(&self, trace: usize) -> bool {
        self.kernel.trace == trace
    }

    /// Appends machine, tasks, counters.
    pub(super) fn head(&mut self, out: &mut Vec<u8>) {
        let Kernel { tracing, ring, .. } = self.kernel;
        // uname's words: system, host, release, version (several words), machine.
        let version = tracing.uname.split_once(&tracing.release).map_or("", |(_, rest)| rest.trim());
        let version = version.strip_suffix(&tracing.machine).unwrap_or(version).trim();
        self.packet.nested(packet::SYSTEM_INFO, |info| {
            info.nested(1, |uname| {
                uname.text(1, b"Linux");
                uname.text(2, version.as_bytes());
                uname.text(3, tracing.release.as_bytes());
                uname.text(4, tracing.machine.as_bytes());
            });
            info.number(6, u64::from(tracing.page_size));
            info.number(8, u64::from(tracing.cpus));
        });
        self.packet.number(packet::SEQUENCE_FLAGS, STATE_CLEARED);
        put_packet(out, &mut self.packet);
        self.tasks(out);
        self.packet.nested(packet::FTRACE_STATS, |stats| {
            stats.number(1, 2);
            for cpu in ring.cpus() {
                stats.nested(2, |of| {
                    let numbers = [u64::from(cpu.cpu), cpu.stats.entries, cpu.stats.overrun, cpu.stats.commit_overrun];
                    (1u32..).zip(numbers).for_each(|(field, number)| of.number(field, number));
                    of.number(5, cpu.stats.bytes);
                    of.number(8, cpu.stats.dropped);
                    of.number(9, cpu.stats.read);
                });
            }
        });
        put_packet(out, &mut self.packet);
    }

    /// `ProcessTree`: the tasks of the kernel's memory, and those whose thread group ftrace kept.
    fn tasks(&mut self, out: &mut Vec<u8>) {
        let Kernel { tracing, tasks, .. } = self.kernel;
        let mut groups: HashMap<u32, (u32, &str)> = HashMap::new();
        for (pid, tgid) in &tracing.tgids {
            groups.insert(*pid, (*tgid, tracing.comms.get(pid).map_or("", String::as_str)));
        }
        groups.extend(tasks.iter().map(|task| (task.pid, (task.tgid, task.comm.as_str()))));
        let mut sorted: Vec<(u32, (u32, &str))> = groups.into_iter().filter(|(pid, _)| *pid != 0).collect();
        sorted.sort_unstable();
        if sorted.is_empty() {
            return;
        }
        let (leaders, threads): (Vec<_>, Vec<_>) = sorted.into_iter().partition(|(pid, (tgid, _))| pid == tgid);
        self.packet.nested(packet::PROCESS_TREE, |tree| {
            for (pid, (_, comm)) in &leaders {
                tree.nested(1, |process| {
                    process.number(1, u64::from(*pid));
                    process.text(3, comm.as_bytes());
                    process.number(9, 1);
                });
            }
            for (pid, (tgid, comm)) in threads.iter().chain(&leaders) {
                tree.nested(2, |thread| {
                    thread.number(1, u64::from(*pid));
                    thread.text(2, comm.as_bytes());
                    thread.number(3, u64::from(*tgid));
                });
            }
        });
        put_packet(out, &mut self.packet);
    }

    /// Puts an event into the bundle of its stream, which is of this CPU.
    pub(super) fn event(&mut self, stream: usize, cpu: u32, reader: &mut Reader<'_>, due: &Due, out: &mut Vec<u8>) {
        let discarded = reader.packet().and_then(|packet| packet.discarded).unwrap_or(0);
        if self.bundles.len() <= stream {
            self.bundles.resize_with(stream.saturating_add(1), Bundle::default);
        }
        if self.bundles.get(stream).is_some_and(|bundle| discarded > bundle.discarded) {
            self.close(stream, out);
            self.bundles.get_mut(stream).into_iter().for_each(|b| (b.lost, b.discarded) = (true, discarded));
        }
        if !self.fill(reader, due) {
            return;
        }
        let Some(bundle) = self.bundles.get_mut(stream) else { return };
        bundle.cpu = cpu;
        put_message(&mut bundle.events, 2, self.event.bytes());
        if bundle.events.len() >= BUNDLE {
            self.close(stream, out);
        }
    }

    /// Makes the `FtraceEvent` of an event; false where it cannot be decoded.
    fn fill(&mut self, reader: &mut Reader<'_>, due: &Due) -> bool {
        let (program, _) = (&self.trace.program, self.inner.clear());
        let (Some(context), Some(code)) =
            (program.code(Scope::CommonContext, 0, due.class), program.code(Scope::Payload, 0, due.class))
        else {
            return false;
        };
        let Some(described) = self.trace.class().streams.first().and_then(|class| class.events.get(due.class)) else {
            return false;
        };
        if self.classes.len() <= due.class {
            self.classes.resize_with(due.class.saturating_add(1), || None);
        }
        let Some(place) = self.classes.get_mut(due.class) else { return false };
        let made = || Class::new(described, code, self.kernel.tracing, &self.table);
        let class = &*place.get_or_insert_with(made);
        class.name.iter().for_each(|name| self.inner.text(1, name.as_bytes()));
        let (_, decoder, part) = reader.parts();
        let mut pid = One { node: self.pid, value: 0 };
        let mut fields = Fields { class, message: &mut self.inner, symbols: &mut self.symbols, array: None };
        // The reader has accepted the same bytes.
        let Ok(at) = program.visit(decoder, context, &part, due.body, &mut pid) else { return false };
        let is_whole = program.visit(decoder, class.code, &part, at, &mut fields).is_ok();
        self.event.clear();
        self.event.number(1, due.clock);
        self.event.number(2, pid.value & u64::from(u32::MAX));
        self.event.message(class.number, &self.inner);
        is_whole
    }

    /// Writes what all streams have gathered.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        (0..self.bundles.len()).for_each(|stream| self.close(stream, out));
    }

    /// Writes what a stream has gathered, and the symbols it speaks of.
    fn close(&mut self, stream: usize, out: &mut Vec<u8>) {
        let Some(bundle) = self.bundles.get_mut(stream).filter(|bundle| !bundle.events.is_empty()) else { return };
        let mut head = Message::default();
        head.number(1, u64::from(bundle.cpu));
        if bundle.lost {
            head.number(3, 1);
        }
        let mut body = head.bytes().to_vec();
        body.append(&mut bundle.events);
        bundle.lost = false;
        self.packet.octets(packet::FTRACE_EVENTS, &body);
        let interned = &mut self.symbols.interned;
        if !interned.is_empty() {
            self.packet.message(packet::INTERNED_DATA, interned);
            interned.clear();
        }
        self.packet.number(packet::SEQUENCE_FLAGS, NEEDS_STATE);
        put_packet(out, &mut self.packet);
    }
}

#[cfg(test)]
mod tests;
