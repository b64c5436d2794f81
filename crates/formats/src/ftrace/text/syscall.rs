//! System calls (`print_syscall_enter`, `print_syscall_exit`): `sys_openat(dfd: ffffff9c, …)`, `sys_openat -> 0x3`.

use lastwords_trace::ftrace::Format;
use lastwords_trace::schema::ByteOrder;

use super::own::Slot;
use crate::ftrace::print::hex;

/// How a system call's event is printed.
#[derive(Debug)]
pub(crate) enum Syscall {
    /// The call and the names and places of its arguments.
    Enter { name: String, arguments: Vec<(String, String, Slot)> },
    /// The call and the place of what it gave back.
    Exit { name: String, result: Slot },
}

impl Syscall {
    /// Of an event of system `syscalls`; none where it is no such event.
    pub(crate) fn of(format: &Format) -> Option<Self> {
        if format.system != "syscalls" {
            return None;
        }
        let own = || format.fields.iter().filter(|f| !f.is_common);
        if let Some(rest) = format.name.strip_prefix("sys_enter_") {
            // The first is the number of the call; those behind the arguments hold copies of strings.
            let named = |f: &&lastwords_trace::ftrace::Field| !f.declaration.starts_with("__data_loc");
            let argument = |f: &lastwords_trace::ftrace::Field| {
                let kind = f.declaration.strip_suffix(&f.name).unwrap_or(&f.declaration).trim_end();
                (f.name.clone(), kind.to_owned(), Slot { offset: f.offset, size: f.size })
            };
            let arguments = own().skip(1).filter(named).map(argument).collect();
            return Some(Self::Enter { name: format!("sys_{rest}"), arguments });
        }
        let rest = format.name.strip_prefix("sys_exit_")?;
        let result = own().find(|f| f.name == "ret").map(|f| Slot { offset: f.offset, size: f.size })?;
        Some(Self::Exit { name: format!("sys_{rest}"), result })
    }

    /// Appends the event's text, without line feed.
    pub(crate) fn write(&self, out: &mut Vec<u8>, payload: &[u8], order: ByteOrder, verbose: bool) {
        match self {
            Self::Enter { name, arguments } => {
                out.extend_from_slice(name.as_bytes());
                out.push(b'(');
                for (index, (name, kind, slot)) in arguments.iter().enumerate() {
                    if index > 0 {
                        out.extend_from_slice(b", ");
                    }
                    if verbose {
                        out.extend_from_slice(kind.as_bytes());
                        out.push(b' ');
                    }
                    out.extend_from_slice(name.as_bytes());
                    out.extend_from_slice(b": ");
                    hex(out, slot.unsigned(payload, order));
                }
                out.push(b')');
            }
            Self::Exit { name, result } => {
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b" -> 0x");
                hex(out, result.unsigned(payload, order));
            }
        }
    }
}
