//! Reads event formats from a kernel's file: the events that are compiled in, with the ids that the
//! kernel gives them at boot.
//!
//! Layout: the section between `__start_ftrace_events` and `__stop_ftrace_events` has pointers to
//! `struct trace_event_call`. At boot, `event_trace_enable` of kernel/trace/trace_events.c walks it
//! in order. A call with a fixed type keeps it; each other call gets the next id from
//! `__TRACE_LAST_TYPE` on, as its class's `raw_init` registers it. The system calls that no entry
//! of the system call table leads to are skipped. Events of modules, probes and synthetic events
//! get later ids in an order that the file does not tell: they have no format here.

use super::formats::{self, NameFlags, declaration, enter_format_of};
use crate::{Field, Format, Symbols as _};
use lastwords_kernel::{Error, Kernel, Object};
use std::collections::{BTreeMap, BTreeSet};

/// Most events that are read.
const EVENTS_MAX: u64 = 1 << 16;
/// Most fields of an event.
const FIELDS_MAX: u64 = 256;
/// Most system calls of a table.
const SYSCALLS_MAX: u64 = 1 << 12;
/// The type of a list of fields that continues in a function (`TRACE_FUNCTION_TYPE`).
const FUNCTION: u64 = u64::MAX;
/// Prefixes of the functions in the system call table, and the texts in place of them that give the
/// names that the events have (`arch_syscall_match_sym_name` of arch/x86/include/asm/ftrace.h).
const PREFIXES: [(&str, &str); 4] =
    [("__x64_sys", "sys"), ("__ia32_sys", "sys"), ("__do_sys", "sys"), ("sys", "sys")];

/// The way in which a class registers its calls at boot.
enum Registration {
    /// The next id.
    Next,
    /// The next id, if the system call is in the table.
    Syscall,
    /// No registration: the type is fixed.
    Fixed,
}

/// Reads the formats of all events that are compiled in, by id.
pub(super) fn read(
    kernel: &Kernel,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<u16, Format>, Error> {
    let last = kernel
        .types
        .enum_value("__TRACE_LAST_TYPE")
        .ok_or_else(|| Error::NoSymbol("__TRACE_LAST_TYPE".into()))?;
    let mut next = u16::try_from(last).unwrap_or(u16::MAX);
    let image = Image {
        kernel,
        flags: NameFlags::from_kernel(kernel),
        common: common(kernel)?,
        replacements: replacements(kernel)?,
        syscalls: syscalls(kernel),
    };
    let mut all = BTreeMap::new();
    for call in pointers(kernel, "__start_ftrace_events", "__stop_ftrace_events", EVENTS_MAX)? {
        let call = kernel.object("trace_event_call", call)?;
        // An id that is not certain makes all later ids uncertain.
        let id = match image.id(&call, &mut next) {
            Ok(Some(id)) => id,
            Ok(None) => continue,
            Err(error) => {
                notes.push(format!(
                    "the ids of events from {next} on are not known, because an event registers in an unknown way: {error}"
                ));
                break;
            }
        };
        match image.format(&call, id) {
            Ok(format) => _ = all.insert(id, format),
            Err(error) => notes.push(format!("the format of event {id} is not known: {error}")),
        }
    }
    // The kernel chooses at boot which system calls have copies, by their numbers.
    if kernel.types.has_member("syscall_metadata", "user_mask") {
        notes.push(
            "entries of system calls are shown without the copies of user memory that follow their arguments".into(),
        );
    }
    if let Some(format) = formats::of_block_tracer(kernel, &image.common) {
        all.insert(format.id, format);
    }
    Ok(all)
}

/// The tables of an image that all events need.
struct Image<'k> {
    kernel: &'k Kernel,
    flags: NameFlags,
    common: Vec<Field>,
    /// By system: words of print formats and the numbers that replace them at boot.
    replacements: BTreeMap<String, Vec<(String, i64)>>,
    /// Names of the system calls in the table, such as `sys_openat`.
    syscalls: BTreeSet<String>,
}

impl Image<'_> {
    /// The id that a call gets at boot; none if the call is not registered. `next` is the next free
    /// id.
    fn id(&self, call: &Object<'_>, next: &mut u16) -> Result<Option<u16>, Error> {
        let fixed: u16 = call.fit("event.type")?;
        let is_registered = match self.registration(call)? {
            Registration::Fixed if fixed == 0 => return Ok(None),
            Registration::Fixed => return Ok(Some(fixed)),
            Registration::Next => true,
            Registration::Syscall => {
                self.syscalls.contains(&metadata(self.kernel, call)?.text("name")?)
            }
        };
        if !is_registered || fixed != 0 {
            return Ok(Some(fixed).filter(|_| is_registered));
        }
        let id = *next;
        *next = next.saturating_add(1);
        Ok(Some(id))
    }

    fn registration(&self, call: &Object<'_>) -> Result<Registration, Error> {
        let function = call.pointer("class")?.address("raw_init")?;
        if function == 0 {
            return Ok(Registration::Fixed);
        }
        match self.function(function).as_str() {
            "trace_event_raw_init" => Ok(Registration::Next),
            "init_syscall_trace" => Ok(Registration::Syscall),
            other => {
                Err(Error::NoSymbol(format!("trace_event_raw_init at {function:#x} ({other})")))
            }
        }
    }

    /// Name of the function that begins at an address; empty if none does.
    fn function(&self, address: u64) -> String {
        let symbol = self.kernel.symbols.at(address).filter(|symbol| symbol.offset == 0);
        symbol.map(|symbol| symbol.name).unwrap_or_default()
    }

    fn format(&self, call: &Object<'_>, id: u16) -> Result<Format, Error> {
        let class = call.pointer("class")?;
        let (name, system) = (self.flags.name(call)?, class.text("system")?);
        let none = Vec::new();
        let replacements = self.replacements.get(&system).unwrap_or(&none);
        let mut fields = self.common.clone();
        let is_enter = self.own_fields(call, &class, replacements, &mut fields)?;
        let print_format = match call.address("print_fmt")? {
            0 if is_enter => enter_format_of(&fields, false),
            // `set_syscall_print_fmt` of kernel/trace/trace_syscalls.c.
            0 if system == "syscalls" => "\"0x%lx\", REC->ret".to_owned(),
            0 => String::new(),
            at => replaced(&self.kernel.text(at)?, replacements),
        };
        Ok(Format { id, system, name, fields, print_format, probed: None })
    }

    /// Appends the fields of a class. Returns true for the entry of a system call, whose fields are
    /// its arguments.
    fn own_fields(
        &self,
        call: &Object<'_>,
        class: &Object<'_>,
        replacements: &[(String, i64)],
        fields: &mut Vec<Field>,
    ) -> Result<bool, Error> {
        let mut offset = self.kernel.types.size_of("trace_entry")?;
        let mut row = self.kernel.object("trace_event_fields", class.address("fields_array")?)?;
        for _ in 0..FIELDS_MAX {
            match row.address("type")? {
                0 => return Ok(false),
                FUNCTION => {
                    let function = self.function(row.address("define_fields")?);
                    if function != "syscall_enter_define_fields" {
                        return Err(Error::NoSymbol(format!(
                            "syscall_enter_define_fields (but {function})"
                        )));
                    }
                    arguments(self.kernel, call, fields)?;
                    return Ok(true);
                }
                _ => {}
            }
            let (size, align) = (row.u64("size")?, row.u64("align")?.max(1));
            offset = offset.checked_next_multiple_of(align).unwrap_or(u64::MAX);
            let (name, type_name) = (row.text("name")?, row.text("type")?);
            let len = if row.has("len") { Some(row.fit("len")?) } else { None };
            fields.push(Field {
                declaration: declaration(&with_number(&type_name, replacements), &name, len),
                name,
                offset: small(offset),
                size: small(size),
                is_signed: row.u64("is_signed")? != 0,
                is_common: false,
            });
            offset = offset.saturating_add(size);
            row = row.moved(row.size());
        }
        Ok(false)
    }
}

/// The metadata of a system call's event.
fn metadata<'k>(kernel: &'k Kernel, call: &Object<'k>) -> Result<Object<'k>, Error> {
    kernel.object("syscall_metadata", call.address("data")?)
}

/// Appends the arguments of a system call (`syscall_enter_define_fields` of
/// kernel/trace/trace_syscalls.c). Each has a word behind the number.
fn arguments(kernel: &Kernel, call: &Object<'_>, fields: &mut Vec<Field>) -> Result<(), Error> {
    let metadata = metadata(kernel, call)?;
    let (types, names) = (metadata.address("types")?, metadata.address("args")?);
    let begin = kernel.types.member("syscall_trace_enter", "args")?.offset;
    let word = u64::from(kernel.memory.word_size());
    let text = |table: u64, at: u64| {
        kernel.memory.pointer(table.wrapping_add(at)).map_err(Error::hole("arguments"))
    };
    for n in 0..metadata.u64("nb_args")?.min(16) {
        let at = n.saturating_mul(word);
        let (type_name, name) = (kernel.text(text(types, at)?)?, kernel.text(text(names, at)?)?);
        let (offset, size) = (small(begin.saturating_add(at)), small(word));
        let declaration = declaration(&type_name, &name, Some(0));
        fields.push(Field { declaration, name, offset, size, is_signed: false, is_common: false });
    }
    Ok(())
}

/// An offset or a size in an event. One that does not fit is outside of every event.
fn small(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The fields that all events have: the members of `struct trace_entry`.
pub(super) fn common(kernel: &Kernel) -> Result<Vec<Field>, Error> {
    let id = kernel.types.id("trace_entry")?;
    let mut fields = Vec::new();
    for member in kernel.types.members(id) {
        let found = kernel.types.member_of(id, &member)?;
        let is_signed = found.kind == lastwords_kernel::btf::MemberKind::Number { signed: true };
        let type_name = match (found.size, is_signed) {
            (1, false) => "unsigned char",
            (2, false) => "unsigned short",
            (4, false) => "unsigned int",
            _ => "int",
        };
        let name = format!("common_{member}");
        let (offset, size) = (small(found.offset), small(found.size));
        let declaration = format!("{type_name} {name}");
        fields.push(Field { declaration, name, offset, size, is_signed, is_common: true });
    }
    Ok(fields)
}

/// The pointers between two symbols.
fn pointers(kernel: &Kernel, begin: &str, end: &str, most: u64) -> Result<Vec<u64>, Error> {
    let (begin, end) = (kernel.symbol(begin)?, kernel.symbol(end)?);
    let word = u64::from(kernel.memory.word_size());
    let count = end.saturating_sub(begin).checked_div(word).unwrap_or(0).min(most);
    let at = |n: u64| kernel.memory.pointer(begin.wrapping_add(n.saturating_mul(word)));
    (0..count).map(|n| at(n).map_err(Error::hole("a table of pointers"))).collect()
}

/// The words of print formats that the kernel replaces by numbers at boot (`TRACE_DEFINE_ENUM`,
/// `TRACE_DEFINE_SIZEOF`).
fn replacements(kernel: &Kernel) -> Result<BTreeMap<String, Vec<(String, i64)>>, Error> {
    let mut all: BTreeMap<String, Vec<(String, i64)>> = BTreeMap::new();
    if kernel.symbol("__start_ftrace_eval_maps").is_err() {
        return Ok(all);
    }
    for map in pointers(kernel, "__start_ftrace_eval_maps", "__stop_ftrace_eval_maps", EVENTS_MAX)?
    {
        let map = kernel.object("trace_eval_map", map)?;
        let row = (map.text("eval_string")?, map.u64("eval_value")?.cast_signed());
        all.entry(map.text("system")?).or_default().push(row);
    }
    Ok(all)
}

/// Names of the system calls that the table leads to.
fn syscalls(kernel: &Kernel) -> BTreeSet<String> {
    let Ok(table) = kernel.symbol("sys_call_table") else { return BTreeSet::new() };
    let size = kernel.symbols.at(table).map_or(0, |symbol| symbol.size);
    let word = u64::from(kernel.memory.word_size());
    let count = size.checked_div(word).unwrap_or(0).min(SYSCALLS_MAX);
    let functions = (0..count)
        .filter_map(|n| kernel.memory.pointer(table.wrapping_add(n.saturating_mul(word))).ok());
    let names =
        functions.filter_map(|at| kernel.symbols.at(at)).filter(|symbol| symbol.offset == 0);
    let named = |name: String| {
        PREFIXES
            .iter()
            .find_map(|(prefix, plain)| Some(format!("{plain}{}", name.strip_prefix(prefix)?)))
    };
    // The entries of missing system calls all lead to the same function.
    names.filter_map(|symbol| named(symbol.name)).filter(|name| name != "sys_ni_syscall").collect()
}

/// True for the characters of an identifier.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Replaces words of a print format outside of its texts. Members, which follow `.` or `->`, are
/// not replaced.
fn replaced(format: &str, replacements: &[(String, i64)]) -> String {
    if replacements.is_empty() {
        return format.to_owned();
    }
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    let mut in_text = false;
    while let Some(first) = rest.chars().next() {
        let mut len = first.len_utf8();
        if in_text || !is_word(first) {
            in_text ^= first == '"';
            if in_text && first == '\\' {
                len = len.saturating_add(rest.chars().nth(1).map_or(0, char::len_utf8));
            }
        } else {
            let is_member = out.ends_with('.') || out.ends_with("->");
            let begins = |(name, _): &&(String, i64)| {
                rest.strip_prefix(name.as_str()).is_some_and(|behind| !behind.starts_with(is_word))
            };
            if let Some((name, value)) = replacements.iter().find(begins).filter(|_| !is_member) {
                out.push_str(&value.to_string());
                rest = rest.get(name.len()..).unwrap_or_default();
                continue;
            }
            len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        }
        let (taken, behind) = rest.split_at_checked(len).unwrap_or((rest, ""));
        out.push_str(taken);
        rest = behind;
    }
    out
}

/// Replaces the name of an array's length in a type.
fn with_number(type_name: &str, replacements: &[(String, i64)]) -> String {
    let Some((element, length)) = type_name.split_once('[') else { return type_name.to_owned() };
    let name = length.trim_end_matches(']');
    match replacements.iter().find(|(word, _)| word == name) {
        Some((_, value)) => format!("{element}[{value}]"),
        None => type_name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_of_texts_become_numbers() {
        let maps =
            [("A_ONE".to_owned(), 1), ("A".to_owned(), -7), ("sizeof(struct x)".to_owned(), 24)];
        let cases = [
            (r#""A %d \" A", A, A_ONE"#, r#""A %d \" A", -7, 1"#),
            ("REC->A + x.A + A_ONES + A", "REC->A + x.A + A_ONES + -7"),
            ("sizeof(struct x) / 1A", "24 / 1A"),
        ];
        for (format, expected) in cases {
            assert_eq!(replaced(format, &maps), expected);
        }
        assert_eq!(with_number("char[A_ONE]", &maps), "char[1]");
        assert_eq!(with_number("char[16]", &maps), "char[16]");
    }
}
