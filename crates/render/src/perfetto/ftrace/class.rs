//! Converts the fields of each event class to a message.

use lastwords_bytes::low_u8;
use lastwords_ctf::program::Code;
use lastwords_trace::class::EventClass;
use lastwords_trace::tracer::Tracer;
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};

use super::Symbols;
use crate::fields::{Role, roles};
use crate::perfetto::proto::Message;
use crate::perfetto::table::{Kind, KnownField, Table};
use lastwords_trace::text::number::{octet, signed, unsigned};

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
        /// The value is the address of a function. The number of its symbol is written if it has
        /// one.
        is_symbol: bool,
        /// The value is a device number in the kernel's encoding.
        is_device: bool,
    },
    /// A field of `GenericFtraceEvent`. Functions are written as their names.
    Generic { is_function: bool },
    /// The text of a marker, as a field of `GenericFtraceEvent` with the kernel's name.
    FreeText,
}

/// An event class.
#[derive(Debug)]
pub(super) struct Class<'t> {
    /// Number of the field of `FtraceEvent` that holds the message.
    pub(super) number: u32,
    /// The event's name, if the message is a `GenericFtraceEvent`.
    pub(super) name: Option<&'t str>,
    pub(super) code: &'t Code,
    /// The class for texts that are not in the form of atrace, if the event is one of
    /// `trace_marker`.
    pub(super) free: Option<Box<Self>>,
    /// The destination of each node.
    targets: Vec<Target>,
    roles: Vec<Role>,
}

impl<'t> Class<'t> {
    pub(super) fn new(
        event: &'t EventClass,
        code: &'t Code,
        tracer: &dyn Tracer,
        table: &Table,
    ) -> Self {
        let whole = event.name.as_deref().unwrap_or_default();
        let (system, name) = whole.split_once(':').unwrap_or(("", whole));
        let roles = roles(code);
        let mut class = Self {
            number: GENERIC,
            name: Some(name),
            code,
            free: None,
            targets: Vec::new(),
            roles,
        };
        let own = |number, kind| Target::Field { number, kind, is_symbol: false, is_device: false };
        if system == "ftrace" && matches!(name, "print" | "bprint" | "bputs") {
            let mut free =
                Self { roles: class.roles.clone(), free: None, targets: Vec::new(), ..class };
            free.fill(GENERIC, |_, node| match node.name.as_str() {
                "msg" => Target::FreeText,
                _ => Target::Generic { is_function: false },
            });
            class.free = Some(Box::new(free));
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
            let declaration = |field: &str| tracer.declaration(event.id, field);
            class.fill(number, |_, node| {
                known
                    .iter()
                    .find(|known| known.name == node.name)
                    .map_or(Target::Omitted, |known| slot(known, declaration(known.name)))
            });
        } else {
            let is_function =
                |name: &str| matches!(name, "ip" | "parent_ip" | "func" | "caller" | "retaddr");
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

fn slot(known: &KnownField, declaration: Option<&str>) -> Target {
    let is_function = matches!(known.name, "func" | "function" | "caller" | "shrink");
    Target::Field {
        number: known.number,
        kind: known.kind,
        is_symbol: known.kind == Kind::Unsigned && is_function,
        is_device: declaration.is_some_and(|declaration| declaration.starts_with("dev_t ")),
    }
}

/// Converts a device number to the encoding of user space (`new_encode_dev`).
fn device(kernel: u64) -> u64 {
    let (major, minor) = (kernel >> 20, kernel & 0xf_ffff);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// Returns true for a text that atrace and its users write into `trace_marker`, such as
/// `B|123|name`. Perfetto makes slices and counters of such texts, and reports other texts as
/// errors. It takes every text that begins with `E` for the end of a slice
/// (`ParseSystraceTracePoint` in `src/trace_processor/importers/systrace/systrace_parser.h`).
fn is_of_atrace(text: &[u8]) -> bool {
    let end = text
        .iter()
        .rposition(|byte| !matches!(byte, b'\n' | 0))
        .map_or(0, |last| last.saturating_add(1));
    let mut words = text.get(..end).unwrap_or_default().split(|byte| *byte == b'|');
    let is_unsigned =
        |word: &[u8]| !word.is_empty() && word.len() < 10 && word.iter().all(u8::is_ascii_digit);
    let is_number = |word: Option<&[u8]>| {
        let word = word.map(|word| word.strip_prefix(b"-").unwrap_or(word));
        word.is_some_and(|word| {
            !word.is_empty() && word.len() < 19 && word.iter().all(u8::is_ascii_digit)
        })
    };
    let is_name = |word: Option<&[u8]>| word.is_some_and(|word| !word.is_empty());
    let phase = words.next();
    match (phase, words.next()) {
        (Some(b"E"), group) => group.is_none_or(is_unsigned) && words.next().is_none(),
        (_, group) if !group.is_some_and(is_unsigned) => false,
        (Some(b"B"), _) => words.next().is_some(),
        (Some(b"I"), _) => is_name(words.next()),
        (Some(b"S" | b"F" | b"C"), _) => is_name(words.next()) && is_number(words.next()),
        (Some(b"N"), _) => is_name(words.next()) && is_name(words.next()),
        (Some(b"G"), _) => {
            is_name(words.next()) && is_name(words.next()) && is_number(words.next())
        }
        (Some(b"H"), _) => {
            let is_track = is_name(words.next());
            let (first, second) = (words.next(), words.next());
            is_track && is_number(second.filter(|word| !word.is_empty()).or(first))
        }
        _ => false,
    }
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
    array: Option<(NodeId, NodeId, Vec<u64>)>,
    /// The text of a marker is not in the form of atrace.
    pub(super) is_free_text: bool,
}

impl<'a, 't> Fields<'a, 't> {
    pub(super) fn new(
        class: &'a Class<'t>,
        message: &'a mut Message,
        symbols: &'a mut Symbols,
    ) -> Self {
        Self { class, message, symbols, array: None, is_free_text: false }
    }

    /// Appends text to a field of Perfetto's message.
    fn put_text(&mut self, field: u32, text: &[u8]) {
        self.is_free_text |= self.class.free.is_some() && !is_of_atrace(text);
        self.message.text(field, text);
    }

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
                    self.put_text(number, text.split(|b| *b == 0).next().unwrap_or_default());
                }
            }
            Target::Field { number, kind: Kind::Unsigned | Kind::Signed, is_device, .. } => {
                self.put(number, if is_device && !signed { device(value) } else { value }, signed);
            }
            Target::Generic { is_function: true } if !signed => {
                let text = self.symbols.functions(&[value]);
                self.named(node, |field| field.text(3, &text));
            }
            Target::Generic { .. } if signed => {
                self.named(node, |field| field.signed(4, value.cast_signed()))
            }
            Target::Generic { .. } => self.named(node, |field| field.number(5, value)),
            Target::Field { .. } | Target::FreeText | Target::Omitted => {}
        }
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        match self.class.target(node) {
            Target::Field { number, kind: Kind::Text, .. } => self.put_text(number, bytes),
            Target::FreeText => self.message.nested(2, |field| {
                field.text(1, b"buf");
                field.text(3, bytes);
            }),
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
                self.message
                    .octets(number, &values.iter().map(|value| low_u8(*value)).collect::<Vec<_>>());
            }
            Target::Field { number, kind: Kind::Unsigned | Kind::Signed, .. } if !is_bytes => {
                values.iter().for_each(|value| self.put(number, *value, signed));
            }
            Target::Generic { is_function } => {
                let text = match is_function && !signed {
                    _ if is_bytes => {
                        values.iter().flat_map(|value| octet(low_u8(*value))).collect()
                    }
                    true => self.symbols.functions(&values),
                    false => numbers(&values, signed),
                };
                self.named(node, |field| field.text(3, &text));
            }
            Target::Field { .. } | Target::FreeText | Target::Omitted => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_of_atrace;

    #[test]
    fn texts_of_atrace_are_recognised() {
        let of_atrace = [
            "B|1|a",
            "B|1|",
            "B|1|a|b",
            "E",
            "E|7",
            "E|7\n",
            "C|1|n|-4",
            "C|1|n|4|Blob",
            "S|1|n|2",
            "F|1|n|2",
            "I|1|n",
            "N|1|t|n",
            "G|1|t|n|3",
            "H|1|t|n|3",
            "H|1|t|3",
        ];
        for text in of_atrace {
            assert!(is_of_atrace(text.as_bytes()), "{text}");
        }
        let free = [
            "",
            "\n",
            "hello",
            "End of the world",
            "Error|1",
            "E|x",
            "E|1|more",
            "B",
            "B|x|a",
            "Boot|1|a",
            "C|1|n",
            "C|1|n|x",
            "S|1||2",
            "I|1|",
            "N|1|t|",
            "G|1|t|n",
            "H|1|t",
            "T|1|a",
            "B|12345678901|a",
        ];
        for text in free {
            assert!(!is_of_atrace(text.as_bytes()), "{text}");
        }
    }
}
