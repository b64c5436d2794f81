//! Writes a kernel's trace: bundles of events for each CPU, and the names of the tasks.
//!
//! If Perfetto has a message for an event, the event is written as this message, so that Perfetto
//! draws slices of the scheduler, interrupts, system calls and the function graph. Other events are
//! written as `GenericFtraceEvent`, with the names of their fields. Times are readings of the
//! trace's clock, which Perfetto interprets as the time since boot.

mod class;

use std::collections::HashMap;

use lastwords_ctf::read::{Due, Reader, Trace};
use lastwords_trace::class::Scope;
use lastwords_trace::tracer::{Addresses, Thread};
use lastwords_trace::visit::NodeId;

use super::proto::{Message, put_message};
use super::table::Table;
use super::{FtraceClock, Kernel, NEEDS_STATE, Process, STATE_CLEARED, packet, put_packet};
use crate::fields::IntegerField;
use class::{Class, Fields};

/// Number of bytes of events from which on a bundle is written.
const BUNDLE: usize = 64 << 10;
/// Maximum number of addresses that are looked up. Further addresses are written as numbers.
const MAX_SYMBOLS: usize = 1 << 20;

/// The events of one CPU that are not yet written.
#[derive(Default)]
struct Bundle {
    cpu: u32,
    events: Vec<u8>,
    /// Events are missing before the first event.
    lost: bool,
    /// The packet's count of discarded events at the last event.
    discarded: u64,
}

/// Writes the events of a trace array.
pub(super) struct Events<'t> {
    kernel: &'t Kernel<'t>,
    trace: &'t Trace,
    clock: Option<FtraceClock>,
    /// The context field that holds the task's id.
    pid: Option<NodeId>,
    table: Table,
    /// The event classes by position. An entry is made at the first event of the class.
    classes: Vec<Option<Class<'t>>>,
    symbols: Symbols,
    /// The bundle of each stream.
    bundles: Vec<Bundle>,
    packet: Message,
    event: Message,
    inner: Message,
}

/// The names of functions.
struct Symbols {
    names: Box<dyn Addresses>,
    /// The number of each address in the interned data; none if the address has no symbol.
    numbers: HashMap<u64, Option<u64>>,
    /// `InternedData` that is not yet written.
    interned: Message,
}

impl Symbols {
    /// Returns the number of the symbol at an address, and interns the symbol if it is new. Returns
    /// none if the address has no symbol or too many addresses were looked up.
    fn number(&mut self, address: u64) -> Option<u64> {
        if let Some(number) = self.numbers.get(&address) {
            return *number;
        }
        if self.numbers.len() >= MAX_SYMBOLS {
            return None;
        }
        let number =
            self.names.has(address).then_some((self.numbers.len() as u64).saturating_add(1));
        self.numbers.insert(address, number);
        let number = number?;
        let name = self.functions(&[address]);
        // `InternedData.kernel_symbols`.
        self.interned.nested(26, |symbol| {
            symbol.number(1, number);
            symbol.text(2, &name);
        });
        Some(number)
    }

    /// Returns the names of functions. A function without a name is shown as `0x…`.
    fn functions(&mut self, addresses: &[u64]) -> Vec<u8> {
        let mut text = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            if index > 0 {
                text.extend_from_slice(b" <- ");
            }
            self.names.show(&mut text, *address);
        }
        text
    }
}

impl<'t> Events<'t> {
    /// `clock` relates the array's clock to the time since boot.
    pub(super) fn new(
        kernel: &'t Kernel<'t>,
        trace: &'t Trace,
        clock: Option<FtraceClock>,
    ) -> Self {
        let context = trace.program.code(Scope::CommonContext, 0, 0);
        let pid = context.and_then(|code| code.nodes().iter().position(|node| node.name == "pid"));
        Self {
            kernel,
            trace,
            clock,
            pid: pid.and_then(|at| NodeId::try_from(at).ok()),
            table: Table::new(),
            classes: Vec::new(),
            symbols: Symbols {
                names: kernel.tracer.addresses(),
                numbers: HashMap::new(),
                interned: Message::default(),
            },
            bundles: Vec::new(),
            packet: Message::default(),
            event: Message::default(),
            inner: Message::default(),
        }
    }

    /// Returns true if the trace at this position is the kernel's.
    pub(super) fn is_of(&self, trace: usize) -> bool {
        self.kernel.trace == trace
    }

    /// Appends packets that describe the machine, the tasks and the counters of the ring buffer.
    pub(super) fn head(&mut self, out: &mut Vec<u8>) {
        let machine = self.kernel.tracer.machine();
        // The text of uname: system, host, release, version (several words), machine.
        let version = machine.uname.split_once(machine.release).map_or("", |(_, rest)| rest.trim());
        let version = version.strip_suffix(machine.name).unwrap_or(version).trim();
        self.packet.nested(packet::SYSTEM_INFO, |info| {
            info.nested(1, |uname| {
                uname.text(1, b"Linux");
                uname.text(2, version.as_bytes());
                uname.text(3, machine.release.as_bytes());
                uname.text(4, machine.name.as_bytes());
            });
            info.number(6, u64::from(machine.page_size));
            info.number(8, u64::from(machine.cpus));
        });
        self.packet.number(packet::SEQUENCE_FLAGS, STATE_CLEARED);
        put_packet(out, &mut self.packet);
        self.tasks(out);
        self.packet.nested(packet::FTRACE_STATS, |stats| {
            stats.number(1, 2);
            for (cpu, counted) in self.kernel.tracer.counters() {
                stats.nested(2, |of| {
                    let numbers =
                        [u64::from(cpu), counted.entries, counted.overrun, counted.commit_overrun];
                    (1u32..).zip(numbers).for_each(|(field, number)| of.number(field, number));
                    of.number(5, counted.bytes);
                    of.number(8, counted.dropped);
                    of.number(9, counted.read);
                });
            }
        });
        put_packet(out, &mut self.packet);
    }

    /// Appends `ProcessTree`: the tasks in the kernel's memory, and the tasks whose thread group
    /// the tracer saved.
    fn tasks(&mut self, out: &mut Vec<u8>) {
        let Kernel { tracer, tasks, .. } = self.kernel;
        let saved = tracer.threads().into_iter();
        let mut groups: HashMap<u32, (u32, &str)> =
            saved.map(|Thread { pid, tgid, comm }| (pid, (tgid, comm))).collect();
        groups.extend(tasks.iter().map(|task| (task.pid, (task.tgid, task.comm.as_str()))));
        let processes: HashMap<u32, Process> =
            tasks.iter().filter_map(|task| Some((task.pid, task.process?))).collect();
        let mut sorted: Vec<(u32, (u32, &str))> =
            groups.into_iter().filter(|(pid, _)| *pid != 0).collect();
        sorted.sort_unstable();
        if sorted.is_empty() {
            return;
        }
        let (leaders, threads): (Vec<_>, Vec<_>) =
            sorted.into_iter().partition(|(pid, (tgid, _))| pid == tgid);
        self.packet.nested(packet::PROCESS_TREE, |tree| {
            for (pid, (_, comm)) in &leaders {
                tree.nested(1, |process| {
                    process.number(1, u64::from(*pid));
                    process.text(3, comm.as_bytes());
                    if let Some(known) = processes.get(pid) {
                        process.number(2, u64::from(known.parent));
                        process.number(5, u64::from(known.uid));
                        process.number(7, known.started);
                        process.number(8, u64::from(known.is_kernel_thread));
                    }
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

    /// Adds an event to the bundle of its stream, whose CPU is `cpu`.
    pub(super) fn event(
        &mut self,
        stream: usize,
        cpu: u32,
        reader: &mut Reader<'_>,
        due: &Due,
        out: &mut Vec<u8>,
    ) {
        let discarded = reader.packet().and_then(|packet| packet.discarded).unwrap_or(0);
        if self.bundles.len() <= stream {
            self.bundles.resize_with(stream.saturating_add(1), Bundle::default);
        }
        if self.bundles.get(stream).is_some_and(|bundle| discarded > bundle.discarded) {
            self.close(stream, out);
            self.bundles
                .get_mut(stream)
                .into_iter()
                .for_each(|b| (b.lost, b.discarded) = (true, discarded));
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

    /// Encodes an event as `FtraceEvent`. Returns false if the event cannot be decoded.
    fn fill(&mut self, reader: &mut Reader<'_>, due: &Due) -> bool {
        self.inner.clear();
        let program = &self.trace.program;
        let (Some(context), Some(code)) = (
            program.code(Scope::CommonContext, 0, due.class),
            program.code(Scope::Payload, 0, due.class),
        ) else {
            return false;
        };
        let Some(described) =
            self.trace.class().streams.first().and_then(|class| class.events.get(due.class))
        else {
            return false;
        };
        if self.classes.len() <= due.class {
            self.classes.resize_with(due.class.saturating_add(1), || None);
        }
        let Some(place) = self.classes.get_mut(due.class) else { return false };
        let made = || Class::new(described, code, self.kernel.tracer, &self.table);
        let class = &*place.get_or_insert_with(made);
        class.name.iter().for_each(|name| self.inner.text(1, name.as_bytes()));
        let (_, decoder, part) = reader.parts();
        let mut pid = IntegerField { node: self.pid, value: None };
        let mut fields = Fields::new(class, &mut self.inner, &mut self.symbols);
        // The reader has accepted the same bytes.
        let Ok(at) = program.visit(decoder, context, &part, due.body, &mut pid) else {
            return false;
        };
        let mut is_whole = program.visit(decoder, class.code, &part, at, &mut fields).is_ok();
        let is_free = fields.is_free_text;
        let class = class.free.as_deref().filter(|_| is_free).unwrap_or(class);
        if is_free {
            self.inner.clear();
            class.name.iter().for_each(|name| self.inner.text(1, name.as_bytes()));
            let mut fields = Fields::new(class, &mut self.inner, &mut self.symbols);
            is_whole = program.visit(decoder, class.code, &part, at, &mut fields).is_ok();
        }
        self.event.clear();
        self.event.number(1, due.clock);
        self.event.number(2, pid.value.unwrap_or(0) & u64::from(u32::MAX));
        self.event.message(class.number, &self.inner);
        is_whole
    }

    /// Appends the bundles of all streams.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        (0..self.bundles.len()).for_each(|stream| self.close(stream, out));
    }

    /// Appends the bundle of a stream, and the symbols that its events refer to.
    fn close(&mut self, stream: usize, out: &mut Vec<u8>) {
        let Some(bundle) = self.bundles.get_mut(stream).filter(|bundle| !bundle.events.is_empty())
        else {
            return;
        };
        let mut head = Message::default();
        head.number(1, u64::from(bundle.cpu));
        if bundle.lost {
            head.number(3, 1);
        }
        if let Some(clock) = self.clock {
            let (own, boot) = clock.pair();
            head.number(5, clock.word);
            head.number(6, own);
            head.number(7, boot);
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
