//! Converts the fields of each event class to a message.

use lastwords_bytes::low_u8;
use lastwords_ctf::program::Code;
use lastwords_trace::class::EventClass;
use lastwords_trace::ftrace::{Format, Tracing};
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};

use super::Symbols;
use crate::fields::{Role, roles};
use crate::perfetto::proto::Message;
use crate::perfetto::table::{Kind, KnownField, Table};
use crate::text::number::{octet, signed, unsigned};

/// `FtraceEvent.generic`.
const GENERIC: u32 = 327;
/// `FtraceEvent.print`.
const PRINT: u32 = 3;
/// `FtraceEvent.sys_enter`.
const SYS_ENTER: u32 = 329;
/// `FtraceEvent.sys_exit`.
const SYS_EXIT: u32 = 330;

/// The destination of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Perfetto has no field for it.
    Omitted,
    /// A field of Perfetto's message for the event.
    Field {
        number: u32,
        kind: Kind,
        /// The value is the address of a function. The number of its symbol is written if it has one.
        is_symbol: bool,
        /// The value is a device number in the kernel's encoding.
        is_device: bool,
    },
    /// A field of `GenericFtraceEvent`. Functions are written as their names.
    Generic { is_function: bool },
}

/// An event class.
#[derive(Debug)]
pub(super) struct Class<'t> {
    /// Number of the field of `FtraceEvent` that holds the message.
    pub(super) number: u32,
    /// The event's name, if the message is a `GenericFtraceEvent`.
    pub(super) name: Option<&'t str>,
    pub(super) code: &'t Code,
    /// The destination of each node.
    targets: Vec<Target>,
    roles: Vec<Role>,
}

impl<'t> Class<'t> {
    pub(super) fn new(event: &'t EventClass, code: &'t Code, tracing: &Tracing, table: &Table) -> Self {
        let whole = event.name.as_deref().unwrap_or_default();
        let (system, name) = whole.split_once(':').unwrap_or(("", whole));
        let roles = roles(code);
        let mut class = Self { number: GENERIC, name: Some(name), code, targets: Vec::new(), roles };
        let own = |number, kind| Target::Field { number, kind, is_symbol: false, is_device: false };
        if system == "ftrace" && matches!(name, "print" | "bprint" | "bputs") {
            class.fill(PRINT, |_, node| match node.name.as_str() {
                "ip" => own(1, Kind::Unsigned),
                "msg" => own(2, Kind::Text),
                _ => Target::Omitted,
            });
        } else if let Some(number) = call(system, name) {
            // Newer kernels append copies of the data that pointers refer to.
            let most = if number == SYS_ENTER { 6 } else { 1 };
            class.fill(number, |at, node| match (at, &node.shape) {
                (0, _) => own(1, Kind::Signed),
                (_, Shape::Integer { length: 32 | 64, .. }) if at <= most => own(2, Kind::Unsigned),
                _ => Target::Omitted,
            });
        } else if let Some((number, known)) = table.find(system, name) {
            let format = u16::try_from(event.id).ok().and_then(|id| tracing.formats.get(&id));
            class.fill(number, |_, node| {
                known.iter().find(|known| known.name == node.name).map_or(Target::Omitted, |known| slot(known, format))
            });
        } else {
            let is_function = |name: &str| matches!(name, "ip" | "parent_ip" | "func" | "caller" | "retaddr");
            class.fill(GENERIC, |_, node| Target::Generic {
                is_function: system == "ftrace" && is_function(&node.name),
            });
        }
        class
    }

    /// Sets the destination of each field. `target` receives the position of the field, from 0 on.
    fn fill(&mut self, number: u32, target: impl Fn(usize, &Node) -> Target) {
        self.number = number;
        self.name = self.name.filter(|_| number == GENERIC);
        let mut at = 0;
        for (node, role) in self.code.nodes().iter().zip(&self.roles) {
            let is_field = *role != Role::Hidden && !node.name.is_empty();
            self.targets.push(if is_field { target(at, node) } else { Target::Omitted });
            at = at.saturating_add(usize::from(is_field));
        }
    }

    fn target(&self, node: NodeId) -> Target {
        self.targets.get(node as usize).copied().unwrap_or(Target::Omitted)
    }

    /// Returns true if the node is a signed integer.
    fn is_signed(&self, node: NodeId) -> bool {
        let node = self.code.nodes().get(node as usize);
        matches!(node.map(|node| &node.shape), Some(Shape::Integer { signed: true, .. }))
    }
}

/// Returns the number of the field of `FtraceEvent` for the event of a system call.
fn call(system: &str, name: &str) -> Option<u32> {
    match system {
        "syscalls" if name.starts_with("sys_enter_") => Some(SYS_ENTER),
        "syscalls" if name.starts_with("sys_exit_") => Some(SYS_EXIT),
        _ => None,
    }
}

fn slot(known: &KnownField, format: Option<&Format>) -> Target {
    let field = format.and_then(|format| format.fields.iter().find(|field| field.name == known.name));
    let is_function = matches!(known.name, "func" | "function" | "caller" | "shrink");
    Target::Field {
        number: known.number,
        kind: known.kind,
        is_symbol: known.kind == Kind::Unsigned && is_function,
        is_device: field.is_some_and(|field| field.declaration.starts_with("dev_t ")),
    }
}

/// Converts a device number to the encoding of user space (`new_encode_dev`).
fn device(kernel: u64) -> u64 {
    let (major, minor) = (kernel >> 20, kernel & 0xf_ffff);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// Returns numbers, separated by commas.
fn numbers(values: &[u64], is_signed: bool) -> Vec<u8> {
    let mut text = Vec::new();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        match is_signed {
            true => signed(&mut text, value.cast_signed()),
            false => unsigned(&mut text, *value),
        }
    }
    text
}

/// Encodes the fields of an event as its message.
pub(super) struct Fields<'a, 't> {
    pub(super) class: &'a Class<'t>,
    pub(super) message: &'a mut Message,
    pub(super) symbols: &'a mut Symbols,
    /// The current array, and the node and values of its elements.
    pub(super) array: Option<(NodeId, NodeId, Vec<u64>)>,
}

impl Fields<'_, '_> {
    /// Appends a field of `GenericFtraceEvent`.
    fn named(&mut self, node: NodeId, put: impl FnOnce(&mut Message)) {
        let Some(node) = self.class.code.nodes().get(node as usize) else { return };
        self.message.nested(2, |field| {
            field.text(1, node.name.as_bytes());
            put(field);
        });
    }

    fn put(&mut self, field: u32, value: u64, signed: bool) {
        match signed {
            true => self.message.signed(field, value.cast_signed()),
            false => self.message.number(field, value),
        }
    }
}

impl Visitor for Fields<'_, '_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        if let Some((_, element, values)) = &mut self.array {
            *element = node;
            return values.push(value);
        }
        let signed = self.class.is_signed(node);
        match self.class.target(node) {
            Target::Field { number, kind: Kind::Unsigned, is_symbol: true, .. } if !signed => {
                let symbol = self.symbols.number(value).unwrap_or(value);
                self.message.number(number, symbol);
            }
            Target::Field { number, kind: Kind::Text, .. } => {
                if let Some(text) = self.symbols.names.text_at(value).filter(|_| !signed) {
                    self.message.text(number, text.split(|b| *b == 0).next().unwrap_or_default());
                }
            }
            Target::Field { number, kind: Kind::Unsigned | Kind::Signed, is_device, .. } => {
                self.put(number, if is_device && !signed { device(value) } else { value }, signed);
            }
            Target::Generic { is_function: true } if !signed => {
                let text = self.symbols.functions(&[value]);
                self.named(node, |field| field.text(3, &text));
            }
            Target::Generic { .. } if signed => self.named(node, |field| field.signed(4, value.cast_signed())),
            Target::Generic { .. } => self.named(node, |field| field.number(5, value)),
            Target::Field { .. } | Target::Omitted => {}
        }
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        match self.class.target(node) {
            Target::Field { number, kind: Kind::Text, .. } => self.message.text(number, bytes),
            Target::Field { number, kind: Kind::Bytes, .. } => self.message.octets(number, bytes),
            Target::Generic { .. } => self.named(node, |field| field.text(3, bytes)),
            Target::Field { .. } | Target::Omitted => {}
        }
    }

    fn begin_array(&mut self, node: NodeId, _: u64) {
        self.array = Some((node, node, Vec::new()));
    }

    fn end_array(&mut self, _: NodeId) {
        let Some((node, element, values)) = self.array.take() else { return };
        let is_bytes = self.class.roles.get(node as usize) == Some(&Role::Bytes);
        let signed = self.class.is_signed(element);
        match self.class.target(node) {
            Target::Field { number, kind: Kind::Bytes, .. } if is_bytes => {
                self.message.octets(number, &values.iter().map(|value| low_u8(*value)).collect::<Vec<_>>());
            }
            Target::Field { number, kind: Kind::Unsigned | Kind::Signed, .. } if !is_bytes => {
                values.iter().for_each(|value| self.put(number, *value, signed));
            }
            Target::Generic { is_function } => {
                let text = match is_function && !signed {
                    _ if is_bytes => values.iter().flat_map(|value| octet(low_u8(*value))).collect(),
                    true => self.symbols.functions(&values),
                    false => numbers(&values, signed),
                };
                self.named(node, |field| field.text(3, &text));
            }
            Target::Field { .. } | Target::Omitted => {}
        }
    }
}
