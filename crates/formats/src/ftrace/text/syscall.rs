//! System calls (`print_syscall_enter`, `print_syscall_exit`): `sys_openat(dfd: ffffff9c, …)`, `sys_openat -> 0x3`.

use lastwords_trace::ftrace::{Field, Format};
use lastwords_trace::schema::ByteOrder;

use super::own::Slot;
use crate::ftrace::print::hex;

/// How a system call's event is printed.
#[derive(Debug)]
pub(crate) enum Syscall {
    /// The call and the names and places of its arguments.
    Enter { name: String, arguments: Vec<Argument>, prefixed: bool },
    /// The call and the place of what it gave back.
    Exit { name: String, result: Slot },
}

/// An argument of a system call.
#[derive(Debug)]
pub(crate) struct Argument {
    name: String,
    kind: String,
    slot: Slot,
    /// Where the locator of the text that it pointed to stands.
    text: Option<Slot>,
}

impl Syscall {
    /// Of an event of system `syscalls`; none where it is no such event. Since Linux 6.18 (`prefixed`) numbers over 9 begin
    /// with `0x`.
    pub(crate) fn of(format: &Format, prefixed: bool) -> Option<Self> {
        if format.system != "syscalls" {
            return None;
        }
        let own = || format.fields.iter().filter(|f| !f.is_common);
        if let Some(rest) = format.name.strip_prefix("sys_enter_") {
            // The first is the number of the call; those behind the arguments hold copies of strings.
            let is_copy = |f: &Field| f.declaration.starts_with("__data_loc");
            let argument = |f: &Field| {
                let kind = f.declaration.strip_suffix(&f.name).unwrap_or(&f.declaration).trim_end();
                let copy = format!("__{}_val", f.name);
                let text = own().find(|c| c.name == copy && c.declaration.contains("char"));
                Argument {
                    name: f.name.clone(),
                    kind: kind.to_owned(),
                    slot: Slot { offset: f.offset, size: f.size },
                    text: text.map(|c| Slot { offset: c.offset, size: c.size }),
                }
            };
            let arguments = own().skip(1).filter(|f| !is_copy(f)).map(argument).collect();
            return Some(Self::Enter { name: format!("sys_{rest}"), arguments, prefixed });
        }
        let rest = format.name.strip_prefix("sys_exit_")?;
        let result = own().find(|f| f.name == "ret").map(|f| Slot { offset: f.offset, size: f.size })?;
        Some(Self::Exit { name: format!("sys_{rest}"), result })
    }

    /// Appends the event's text, without line feed.
    pub(crate) fn write(&self, out: &mut Vec<u8>, payload: &[u8], order: ByteOrder, verbose: bool) {
        match self {
            Self::Enter { name, arguments, prefixed } => {
                out.extend_from_slice(name.as_bytes());
                out.push(b'(');
                for (index, argument) in arguments.iter().enumerate() {
                    if index > 0 {
                        out.extend_from_slice(b", ");
                    }
                    if verbose {
                        out.extend_from_slice(argument.kind.as_bytes());
                        out.push(b' ');
                    }
                    argument.write(out, payload, order, *prefixed);
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

impl Argument {
    fn write(&self, out: &mut Vec<u8>, payload: &[u8], order: ByteOrder, prefixed: bool) {
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(b": ");
        let value = self.slot.unsigned(payload, order);
        if prefixed && value >= 10 {
            out.extend_from_slice(b"0x");
        }
        hex(out, value);
        let told = self.text.map_or(0, |slot| slot.unsigned(payload, order));
        let (begin, length) = ((told & 0xffff) as usize, (told >> 16) as usize);
        if let Some(text) = payload.get(begin..begin + length).filter(|text| !text.is_empty()) {
            out.extend_from_slice(b" \"");
            out.extend_from_slice(text.split(|b| *b == 0).next().unwrap_or_default());
            out.push(b'"');
        }
    }
}
