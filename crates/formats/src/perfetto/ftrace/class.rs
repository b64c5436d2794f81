//! Kinds of events, and how each becomes a message.

use lastwords_trace::ftrace::{Format, Tracing};

use super::Writer;
use crate::ftrace::print::Show;
use crate::ftrace::text::At;
use crate::ftrace::values::{Column, Datum, columns};
use crate::perfetto::proto::Message;
use crate::perfetto::table::{Kind, Known, Table};

/// `FtraceEvent.generic`.
const GENERIC: u32 = 327;
/// `FtraceEvent.print`.
const PRINT: u32 = 3;
/// `FtraceEvent.sys_enter`.
const SYS_ENTER: u32 = 329;
/// `FtraceEvent.sys_exit`.
const SYS_EXIT: u32 = 330;

/// A field and what becomes of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot<'a> {
    number: u32,
    kind: Kind,
    column: Column<'a>,
    /// A function: its address becomes the number of its symbol, where it has one.
    is_symbol: bool,
    /// A device's number as the kernel has it.
    is_device: bool,
}

/// A kind of event.
#[derive(Debug, Clone)]
pub(super) enum Class<'a> {
    /// Perfetto has a message for it.
    Known { number: u32, slots: Vec<Slot<'a>> },
    /// What programs and the kernel printed.
    Print { ip: Option<Column<'a>> },
    /// Of a system call by name: its number, and its arguments or result.
    Call { number: u32, nr: Column<'a>, rest: Vec<Column<'a>> },
    /// Any other.
    Generic { name: String, slots: Vec<(Column<'a>, bool)> },
}

/// By event id.
pub(super) fn classes(tracing: &Tracing) -> Vec<Option<Class<'_>>> {
    let last = tracing.formats.keys().next_back().map_or(0, |id| usize::from(*id) + 1);
    let mut classes = vec![None; last];
    let table = Table::new();
    for (id, format) in &tracing.formats {
        if let Some(place) = classes.get_mut(usize::from(*id)) {
            *place = Some(class(format, tracing.word_size, &table));
        }
    }
    classes
}

fn class<'a>(format: &'a Format, word_size: u8, table: &Table) -> Class<'a> {
    let columns = columns(format, word_size);
    if format.system == "ftrace" && matches!(format.name.as_str(), "print" | "bprint" | "bputs") {
        return Class::Print { ip: columns.into_iter().find(|column| column.field.name == "ip") };
    }
    if let Some(call) = call(format, &columns) {
        return call;
    }
    if let Some((number, known)) = table.find(&format.system, &format.name) {
        let slots = known.iter().filter_map(|known| slot(known, &columns)).collect();
        return Class::Known { number, slots };
    }
    let of_ftrace = format.system == "ftrace";
    let named = |column: Column<'_>| {
        of_ftrace && matches!(column.field.name.as_str(), "ip" | "parent_ip" | "func" | "caller" | "retaddr")
    };
    let slots = columns.into_iter().map(|column| (column, named(column))).collect();
    Class::Generic { name: format.name.clone(), slots }
}

fn call<'a>(format: &Format, columns: &[Column<'a>]) -> Option<Class<'a>> {
    if format.system != "syscalls" {
        return None;
    }
    let number = if format.name.starts_with("sys_enter_") {
        SYS_ENTER
    } else if format.name.starts_with("sys_exit_") {
        SYS_EXIT
    } else {
        return None;
    };
    let (nr, rest) = columns.split_first()?;
    // Newer kernels append copies of what pointers lead to.
    let rest = rest.iter().filter(|column| column.field.size == 8 || column.field.size == 4);
    let is_copy = |column: &&Column<'_>| column.field.declaration.starts_with("__data_loc");
    Some(Class::Call { number, nr: *nr, rest: rest.filter(|c| !is_copy(c)).copied().collect() })
}

fn slot<'a>(known: &Known, columns: &[Column<'a>]) -> Option<Slot<'a>> {
    let column = *columns.iter().find(|column| column.field.name == known.name)?;
    let declaration = &column.field.declaration;
    let is_function = matches!(known.name, "func" | "function" | "caller" | "shrink");
    Some(Slot {
        number: known.number,
        kind: known.kind,
        column,
        is_symbol: known.kind == Kind::Unsigned && is_function,
        is_device: declaration.starts_with("dev_t "),
    })
}

/// A device's number as user space has it (`new_encode_dev`).
fn device(kernel: u64) -> u64 {
    let (major, minor) = (kernel >> 20, kernel & 0xf_ffff);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

impl Writer<'_> {
    /// Writes the event's fields into the inner message; its number in `FtraceEvent`.
    pub(super) fn fill(&mut self, payload: &[u8], at: At) -> u32 {
        let id = usize::from(at.common.id);
        let Some(place) = self.classes.get_mut(id) else { return self.unknown(at) };
        let Some(class) = place.take() else { return self.unknown(at) };
        let number = match &class {
            Class::Known { number, slots } => {
                slots.iter().for_each(|slot| self.known(payload, slot));
                *number
            }
            Class::Print { ip } => {
                if let Some(ip) = ip {
                    put_number(&mut self.inner, 1, ip.read(payload, self.tracing.byte_order));
                }
                self.scratch.clear();
                let mut text = std::mem::take(&mut self.scratch);
                self.printer.message(&mut text, payload, at);
                self.inner.text(2, &text);
                self.scratch = text;
                PRINT
            }
            Class::Call { number, nr, rest } => {
                self.call(payload, nr, rest, *number);
                *number
            }
            Class::Generic { name, slots } => {
                self.inner.text(1, name.as_bytes());
                slots.iter().for_each(|(column, named)| self.generic(payload, column, *named));
                GENERIC
            }
        };
        if let Some(place) = self.classes.get_mut(id) {
            *place = Some(class);
        }
        number
    }

    fn unknown(&mut self, at: At) -> u32 {
        self.inner.text(1, format!("unknown {}", at.common.id).as_bytes());
        GENERIC
    }

    fn known(&mut self, payload: &[u8], slot: &Slot<'_>) {
        let number = |value: u64| if slot.is_device { device(value) } else { value };
        match (slot.column.read(payload, self.tracing.byte_order), slot.kind) {
            (Datum::Unsigned(value), Kind::Unsigned) if slot.is_symbol => {
                let told = self.symbol(value).unwrap_or(value);
                self.inner.number(slot.number, told);
            }
            (Datum::Unsigned(address), Kind::Text) => {
                if let Some(text) = self.names.text_at(address) {
                    self.inner.text(slot.number, text.split(|b| *b == 0).next().unwrap_or_default());
                }
            }
            (Datum::Unsigned(value), Kind::Unsigned | Kind::Signed) => self.inner.number(slot.number, number(value)),
            (Datum::Signed(value), Kind::Unsigned | Kind::Signed) => self.inner.signed(slot.number, value),
            (Datum::Bool(value), Kind::Unsigned | Kind::Signed) => self.inner.number(slot.number, u64::from(value)),
            (Datum::Text(text), Kind::Text) => self.inner.text(slot.number, text),
            (Datum::Text(bytes) | Datum::Bytes(bytes), Kind::Bytes) => self.inner.octets(slot.number, bytes),
            (Datum::Numbers(numbers), Kind::Unsigned | Kind::Signed) => {
                numbers.each().for_each(|one| put_number(&mut self.inner, slot.number, one));
            }
            _ => {}
        }
    }

    fn call(&mut self, payload: &[u8], nr: &Column<'_>, rest: &[Column<'_>], number: u32) {
        let order = self.tracing.byte_order;
        put_number(&mut self.inner, 1, nr.read(payload, order));
        let mut left = if number == SYS_ENTER { 6 } else { 1 };
        for column in rest {
            if left > 0 {
                left -= 1;
                put_number(&mut self.inner, 2, column.read(payload, order));
            }
        }
    }

    /// `GenericFtraceEvent.Field`.
    fn generic(&mut self, payload: &[u8], column: &Column<'_>, named: bool) {
        let value = column.read(payload, self.tracing.byte_order);
        let mut field = Message::default();
        field.text(1, column.field.name.as_bytes());
        match value {
            Datum::Unsigned(address) if named => self.functions(&mut field, &[Datum::Unsigned(address)]),
            Datum::Unsigned(value) => field.number(5, value),
            Datum::Signed(value) => field.signed(4, value),
            Datum::Bool(value) => field.number(5, u64::from(value)),
            Datum::Text(text) => field.text(3, text),
            Datum::Bytes(bytes) => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                field.text(3, digits.as_bytes());
            }
            Datum::Numbers(numbers) if named => {
                let numbers: Vec<Datum<'_>> = numbers.each().collect();
                self.functions(&mut field, &numbers);
            }
            Datum::Numbers(numbers) => {
                let words: Vec<String> = numbers.each().map(decimal).collect();
                field.text(3, words.join(",").as_bytes());
            }
            Datum::Outside => return,
        }
        self.inner.message(2, &field);
    }

    /// The names of functions, or `0x…` where there is none.
    fn functions(&mut self, field: &mut Message, addresses: &[Datum<'_>]) {
        self.scratch.clear();
        for (index, address) in addresses.iter().enumerate() {
            let Datum::Unsigned(address) = *address else { continue };
            if index > 0 {
                self.scratch.extend_from_slice(b" <- ");
            }
            self.names.show(&mut self.scratch, address, Show::Bare);
        }
        field.text(3, &self.scratch);
    }
}

fn put_number(message: &mut Message, field: u32, value: Datum<'_>) {
    match value {
        Datum::Unsigned(value) => message.number(field, value),
        Datum::Signed(value) => message.signed(field, value),
        _ => {}
    }
}

fn decimal(value: Datum<'_>) -> String {
    match value {
        Datum::Unsigned(value) => value.to_string(),
        Datum::Signed(value) => value.to_string(),
        _ => String::new(),
    }
}
