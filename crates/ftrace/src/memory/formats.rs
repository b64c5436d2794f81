//! Reads event formats from memory: the list of event calls, their fields and their print formats.
//!
//! Layout: `ftrace_events` links `struct trace_event_call`. The call's class names the system.
//! [`FieldList`] finds the list of fields, newest first. `ftrace_common_fields` has the fields of all
//! events.

use std::collections::BTreeMap;

use super::compiled;
use super::field_list::FieldList;
use crate::{Field, Format};
use lastwords_kernel::{Error, Kernel, Object};
use lastwords_trace::evidence::{Evidence, Gap};

/// Reads all event formats, by id. Those that cannot be read are in the account.
pub(super) fn read(
    kernel: &Kernel,
    evidence: &mut Evidence,
) -> Result<BTreeMap<u16, Format>, Error> {
    let common =
        kernel.symbol("ftrace_common_fields").and_then(|head| fields(kernel, head, Of::AllEvents)).or_else(|error| {
            evidence
                .notes
                .push(format!("the list of common fields is not known, they are those of struct trace_entry: {error}"));
            compiled::common(kernel)
        })?;
    let flags = NameFlags::from_kernel(kernel);
    let mut formats = BTreeMap::new();
    let mut without_text = 0usize;
    let head = kernel.symbol("ftrace_events")?;
    let (calls, hole) = kernel.entries(head, "trace_event_call", "list")?;
    if let Some(error) = hole {
        let fact = format!(
            "the formats of some events, because the list of event calls has a hole: {error}"
        );
        evidence.gaps.push(Gap::not_known(None, &fact));
    }
    for call in calls {
        match one(kernel, &call, &flags, &common) {
            Ok(format) => {
                without_text =
                    without_text.saturating_add(usize::from(format.print_format.is_empty()));
                formats.insert(format.id, format);
            }
            Err(error) => {
                evidence.gaps.push(Gap::not_known(
                    None,
                    &format!("an event's format: at {:#x}: {error}", call.place()),
                ));
            }
        }
    }
    if let Some(format) = of_block_tracer(kernel, &common) {
        formats.insert(format.id, format);
    }
    if without_text > 0 {
        let fact = format!("the print formats of {without_text} events, whose fields are printed");
        evidence.gaps.push(Gap::not_known(None, &fact));
    }
    Ok(formats)
}

/// Builds the format of the entries of the tracer `blk`, as trace-cmd does, because the kernel has
/// none. An entry is a `struct blk_io_trace` (`blk_io_trace2` from Linux 6.19 on) whose first bytes
/// are the common fields. None for a kernel without that tracer.
pub(super) fn of_block_tracer(kernel: &Kernel, common: &[Field]) -> Option<Format> {
    kernel.symbol("blk_tracer").ok()?;
    let id = u16::try_from(kernel.types.enum_value("TRACE_BLK")?).ok()?;
    let entry =
        ["blk_io_trace2", "blk_io_trace"].into_iter().find(|name| kernel.types.id(name).is_ok())?;
    let mut fields = common.to_vec();
    for name in ["sector", "bytes", "action", "pid", "device", "cpu", "error", "pdu_len"] {
        let member = kernel.types.member(entry, name).ok()?;
        let bits = member.size.checked_mul(8)?;
        fields.push(Field {
            declaration: format!("u{bits} {name}"),
            name: name.to_owned(),
            offset: u32::try_from(member.offset).ok()?,
            size: u32::try_from(member.size).ok()?,
            is_signed: false,
            is_common: false,
        });
    }
    let offset = u32::try_from(kernel.types.size_of(entry).ok()?).ok()?;
    let (declaration, name) = ("char data[]".to_owned(), "data".to_owned());
    fields.push(Field { declaration, name, offset, size: 0, is_signed: false, is_common: false });
    let (system, name) = ("ftrace".to_owned(), "blktrace".to_owned());
    Some(Format {
        id,
        system,
        name,
        fields,
        print_format: "\"%d\", REC->pid".to_owned(),
        probed: None,
    })
}

/// Bits of `trace_event_call.flags` that tell where a call has its name.
pub(super) struct NameFlags {
    tracepoint: u64,
    custom: u64,
}

impl NameFlags {
    pub(super) fn from_kernel(kernel: &Kernel) -> Self {
        let bit = |name: &str| kernel.types.enum_value(name).map_or(0, i64::cast_unsigned);
        Self { tracepoint: bit("TRACE_EVENT_FL_TRACEPOINT"), custom: bit("TRACE_EVENT_FL_CUSTOM") }
    }

    /// Name of a call's event.
    pub(super) fn name(&self, call: &Object<'_>) -> Result<String, Error> {
        let set = call.u64("flags")?;
        let is_tracepoint = set & self.tracepoint != 0 && set & self.custom == 0;
        if is_tracepoint { call.pointer("tp")?.text("name") } else { call.text("name") }
    }
}

fn one(
    kernel: &Kernel,
    call: &Object<'_>,
    flags: &NameFlags,
    common: &[Field],
) -> Result<Format, Error> {
    let class = call.pointer("class")?;
    let name = flags.name(call)?;
    let mut all = common.to_vec();
    let list = FieldList::find(kernel, call, &class)?;
    let of = if let FieldList::UserEvent(_) = list { Of::UserEvent } else { Of::Event };
    all.extend(fields(kernel, list.head()?, of)?);
    // Print formats of system calls are allocated separately, and a dump can lack them. That of
    // `openat` has names of flags that are nowhere else in the image.
    let has_names = name == "sys_enter_openat" && all.iter().any(|f| f.name == "__filename_val");
    let made =
        || list.syscall().filter(|_| !has_names).map(|metadata| enter_format(metadata, &all));
    let print_format = call.text("print_fmt").ok().or_else(made).unwrap_or_default();
    let (id, system) = (call.fit("event.type")?, class.text("system")?);
    not_empty(&system, "system", call)?;
    not_empty(&name, "name", call)?;
    Ok(Format {
        id,
        system,
        name,
        fields: all,
        print_format,
        probed: probed_event(kernel, call).ok(),
    })
}

/// Refuses an empty text, which no event has: a page that reads as zero has such.
fn not_empty(text: &str, member: &str, at: &Object<'_>) -> Result<(), Error> {
    let null = || Error::Null {
        structure: format!("event at {:#x}", at.place()),
        member: member.to_owned(),
    };
    if text.is_empty() { Err(null()) } else { Ok(()) }
}

/// The event `system.event` that an event probe is attached to.
fn probed_event(kernel: &Kernel, call: &Object<'_>) -> Result<String, Error> {
    let functions = call.pointer("event.funcs")?;
    if functions.place() != kernel.symbol("eprobe_funcs")? {
        return Err(Error::Null {
            structure: "trace_event_functions".into(),
            member: "eprobe_funcs".into(),
        });
    }
    let event = call.container("trace_probe_event", "call")?;
    let first = kernel.object("list_head", event.address("probes.next")?)?;
    let probe = first.container("trace_probe", "list")?.container("trace_eprobe", "tp")?;
    Ok(format!("{}.{}", probe.text("event_system")?, probe.text("event_name")?))
}

/// Names of the system calls that have events, by number, and the reason why some are missing.
pub(super) fn system_calls(kernel: &Kernel) -> (BTreeMap<u64, String>, Option<Error>) {
    let mut names = BTreeMap::new();
    let head = kernel.symbol("ftrace_events");
    let (calls, mut missing) = head
        .and_then(|head| kernel.entries(head, "trace_event_call", "list"))
        .unwrap_or_else(|error| (Vec::new(), Some(error)));
    let mut add = |call: &Object<'_>| {
        let list = FieldList::find(kernel, call, &call.pointer("class")?)?;
        if let Some(metadata) = list.syscall() {
            let name = metadata.text("name")?;
            not_empty(&name, "name", call)?;
            names.insert(metadata.u64("syscall_nr")?, name);
        }
        Ok(())
    };
    calls.iter().for_each(|call| missing = missing.take().or(add(call).err()));
    (names, missing)
}

/// Builds the print format of a system call's entry as `__set_enter_print_fmt` of
/// kernel/trace/trace_syscalls.c does at boot.
fn enter_format(metadata: &Object<'_>, fields: &[Field]) -> String {
    // Index of the argument with the length of the copied memory; negative for texts, which are
    // NUL-terminated.
    let length = metadata.u64("user_arg_size").unwrap_or_default();
    let copies_are_texts =
        length & 0x80 != 0 || metadata.u64("user_arg_is_str").is_ok_and(|is| is != 0);
    enter_format_of(fields, copies_are_texts)
}

/// Builds the print format from the fields. Copied user memory is in a field `__NAME_val`.
pub(super) fn enter_format_of(fields: &[Field], copies_are_texts: bool) -> String {
    let copy = |name: &str| fields.iter().find(|f| f.name == format!("__{name}_val"));
    let is_copy = |name: &str| name.starts_with("__") && name.ends_with("_val");
    let is_argument = |f: &&Field| !f.is_common && f.name != "__syscall_nr" && !is_copy(&f.name);
    let (mut text, mut values) = (Vec::new(), String::new());
    for Field { name, .. } in fields.iter().filter(is_argument) {
        values.push_str(&format!(", ((unsigned long)(REC->{name}))"));
        let Some(copy) = copy(name) else {
            text.push(format!("{name}: 0x%08lx"));
            continue;
        };
        let (shown, function) = match copies_are_texts {
            true => ("\\\"%s\\\"", format!("__get_str({})", copy.name)),
            false => ("(%s)", format!("__print_dynamic_array({}, 1)", copy.name)),
        };
        text.push(format!("{name}: 0x%08lx {shown}"));
        values.push_str(&format!(", {function}"));
    }
    format!("\"{}\"{values}", text.join(", "))
}

/// The events that have the fields of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    AllEvents,
    Event,
    /// An event that a program has registered. Its fields are allocated without zeroing, and `len` is
    /// never set (`user_event_add_field`).
    UserEvent,
}

/// Reads the fields of a list, in the order of the `format` file.
fn fields(kernel: &Kernel, head: u64, of: Of) -> Result<Vec<Field>, Error> {
    let mut fields = Vec::new();
    for field in kernel.list(head, "ftrace_event_field", "link")? {
        let field = field?;
        let name = field.text("name")?;
        let type_name = field.text("type")?;
        not_empty(&name, "name", &field)?;
        not_empty(&type_name, "type", &field)?;
        let len = match of {
            _ if !field.has("len") => None,
            // The kernel's `format` file has this number as bounds; here the type's own bounds stay.
            Of::UserEvent if field.u64("len")? != 0 => None,
            _ => Some(field.fit("len")?),
        };
        fields.push(Field {
            declaration: declaration(&type_name, &name, len),
            name,
            offset: field.fit("offset")?,
            size: field.fit("size")?,
            is_signed: field.u64("is_signed")? != 0,
            is_common: of == Of::AllEvents,
        });
    }
    // The newest field is linked first.
    fields.reverse();
    Ok(fields)
}

/// Formats `TYPE NAME`, with an array's bounds after the name. `len` is the number of elements, if
/// the kernel stores it.
pub(super) fn declaration(type_name: &str, name: &str, len: Option<u32>) -> String {
    let bounds = type_name.find('[').filter(|_| !type_name.starts_with("__data_loc"));
    let Some((element, bounds)) = bounds.and_then(|at| type_name.split_at_checked(at)) else {
        return format!("{type_name} {name}");
    };
    match len {
        None => format!("{element} {name}{bounds}"),
        Some(0) => format!("{element} {name}[]"),
        Some(len) => format!("{element} {name}[{len}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str) -> Field {
        let (declaration, name) = (String::new(), name.to_owned());
        Field { declaration, name, offset: 0, size: 8, is_signed: false, is_common: false }
    }

    /// The texts are those of Linux 7.2.
    #[test]
    fn what_the_kernel_makes_at_the_boot_is_made_again() {
        let fields = |names: &[&str]| names.iter().map(|name| field(name)).collect::<Vec<_>>();
        let plain =
            fields(&["__syscall_nr", "oldname", "newname", "__oldname_val", "__newname_val"]);
        assert_eq!(
            enter_format_of(&plain, true),
            r#""oldname: 0x%08lx \"%s\", newname: 0x%08lx \"%s\"", ((unsigned long)(REC->oldname)), __get_str(__oldname_val), "#
                .to_owned()
                + "((unsigned long)(REC->newname)), __get_str(__newname_val)"
        );
        let bytes = fields(&["__syscall_nr", "fd", "buf", "count", "__buf_val"]);
        assert_eq!(
            enter_format_of(&bytes, false),
            r#""fd: 0x%08lx, buf: 0x%08lx (%s), count: 0x%08lx", ((unsigned long)(REC->fd)), ((unsigned long)(REC->buf)), "#
                .to_owned()
                + "__print_dynamic_array(__buf_val, 1), ((unsigned long)(REC->count))"
        );
        assert_eq!(enter_format_of(&fields(&["__syscall_nr"]), false), r#""""#);
        // An argument whose name ends as that of a copy does.
        let pkey = enter_format_of(&fields(&["__syscall_nr", "init_val"]), false);
        assert_eq!(pkey, r#""init_val: 0x%08lx", ((unsigned long)(REC->init_val))"#);
    }

    #[test]
    fn bounds_stand_behind_the_name() {
        assert_eq!(declaration("char[16]", "comm", Some(16)), "char comm[16]");
        assert_eq!(declaration("char[TASK_COMM_LEN]", "comm", None), "char comm[TASK_COMM_LEN]");
        assert_eq!(declaration("unsigned long[]", "caller", Some(0)), "unsigned long caller[]");
        assert_eq!(declaration("__data_loc char[]", "name", Some(0)), "__data_loc char[] name");
        assert_eq!(declaration("pid_t", "pid", Some(0)), "pid_t pid");
    }
}
