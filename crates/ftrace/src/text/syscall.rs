//! System calls (`print_syscall_enter`, `print_syscall_exit`): `sys_openat(dfd: ffffff9c, …)`,
//! `sys_openat -> 0x3`.

use crate::{Field, Format};
use lastwords_bytes::ByteOrder;

use super::slot::Slot;
use crate::print::{Spec, hex, joined, number};

/// The form of a system call's event.
#[derive(Debug)]
pub(crate) enum Syscall {
    /// The entry: the name of the call, and the names and positions of its arguments.
    Enter { name: String, arguments: Vec<Argument>, prefixed: bool, flags: Vec<(u64, String)> },
    /// The exit: the name of the call, and the position of its result.
    Exit { name: String, result: Slot },
}

/// An argument of a system call.
#[derive(Debug)]
pub(crate) struct Argument {
    name: String,
    kind: String,
    slot: Slot,
    /// Locator of the copy of the data that the argument points to.
    copy: Option<Slot>,
    /// True if the copy is bytes, not text.
    is_bytes: bool,
}

impl Syscall {
    /// Prepares an event of system `syscalls`. Returns `None` for other events. `prefixed`: numbers
    /// greater than 9 begin with `0x`, as since Linux 6.18.
    pub(crate) fn from_format(format: &Format, prefixed: bool) -> Option<Self> {
        if format.system != "syscalls" {
            return None;
        }
        let own = || format.fields.iter().filter(|f| !f.is_common);
        if let Some(rest) = format.name.strip_prefix("sys_enter_") {
            // The first field is the number of the call. The fields after the arguments are copies
            // of strings.
            let is_copy = |f: &Field| f.declaration.starts_with("__data_loc");
            let argument = |f: &Field| {
                let kind = f.declaration.strip_suffix(&f.name).unwrap_or(&f.declaration).trim_end();
                let copy = format!("__{}_val", f.name);
                let text = own().find(|c| c.name == copy && c.declaration.contains("char"));
                Argument {
                    name: f.name.clone(),
                    kind: kind.to_owned(),
                    slot: Slot { offset: f.offset, size: f.size },
                    copy: text.map(|c| Slot { offset: c.offset, size: c.size }),
                    is_bytes: format
                        .print_format
                        .contains(&format!("__print_dynamic_array({copy},")),
                }
            };
            let arguments = own().skip(1).filter(|f| !is_copy(f)).map(argument).collect();
            let flags = if rest == "openat" { flags(&format.print_format) } else { Vec::new() };
            return Some(Self::Enter { name: format!("sys_{rest}"), arguments, prefixed, flags });
        }
        let rest = format.name.strip_prefix("sys_exit_")?;
        let result =
            own().find(|f| f.name == "ret").map(|f| Slot { offset: f.offset, size: f.size })?;
        Some(Self::Exit { name: format!("sys_{rest}"), result })
    }

    /// Appends the event's text, without a line feed.
    pub(crate) fn write(&self, out: &mut Vec<u8>, payload: &[u8], order: ByteOrder, verbose: bool) {
        match self {
            Self::Enter { name, arguments, flags, .. } if !flags.is_empty() && !verbose => {
                out.extend_from_slice(name.as_bytes());
                out.push(b'(');
                open_at(out, arguments, flags, payload, order);
                out.push(b')');
            }
            Self::Enter { name, arguments, prefixed, .. } => {
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
                    argument.write(
                        out,
                        payload,
                        order,
                        *prefixed,
                        arguments.get(index.saturating_add(1)),
                    );
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

/// Returns the names of flags in a print format: `{ 0x1, "O_WRONLY" }`. The list is empty if the
/// format has no table.
fn flags(print_format: &str) -> Vec<(u64, String)> {
    let rows = print_format.split("{ 0x").skip(1);
    rows.filter_map(|row| {
        let (bits, rest) = row.split_once(", \"")?;
        Some((u64::from_str_radix(bits, 16).ok()?, rest.split_once('"')?.0.to_owned()))
    })
    .collect()
}

/// Appends the arguments of `openat` in the form of kernels that name its flags: numbers are
/// decimal, and the mode is shown only if it is used.
fn open_at(
    out: &mut Vec<u8>,
    arguments: &[Argument],
    flags: &[(u64, String)],
    payload: &[u8],
    order: ByteOrder,
) {
    const USES_MODE: u64 = 0x41_0040;
    for (index, argument) in arguments.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(argument.name.as_bytes());
        out.extend_from_slice(b": ");
        let value = argument.slot.unsigned(payload, order);
        match index {
            2 => {
                name_flags(out, value, flags);
                if value & USES_MODE == 0 {
                    return;
                }
            }
            3 => {
                let spec = Spec { width: 3, zero: true, ..Spec::default() };
                out.push(b'0');
                number(out, spec, value, false, 8, false);
            }
            _ => {
                number(out, Spec::default(), value, false, 10, false);
                argument.write_text(out, payload, order);
            }
        }
    }
}

fn name_flags(out: &mut Vec<u8>, value: u64, flags: &[(u64, String)]) {
    if value == 0 {
        return out.extend_from_slice(b"O_RDONLY");
    }
    let mut begins = true;
    let mut add = |name: &[u8]| {
        if !std::mem::take(&mut begins) {
            out.push(b'|');
        }
        out.extend_from_slice(name);
    };
    if value & 3 == 0 {
        add(b"O_RDONLY");
    }
    let mut left = value;
    for (bits, name) in flags {
        if *bits != 0 && left & bits == *bits {
            add(name.as_bytes());
            left &= !bits;
        }
    }
    if left != 0 {
        let mut rest = b"0x".to_vec();
        hex(&mut rest, left);
        add(&rest);
    }
}

impl Argument {
    fn write(
        &self,
        out: &mut Vec<u8>,
        payload: &[u8],
        order: ByteOrder,
        prefixed: bool,
        next: Option<&Self>,
    ) {
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(b": ");
        let value = self.slot.unsigned(payload, order);
        if prefixed && value >= 10 {
            out.extend_from_slice(b"0x");
        }
        hex(out, value);
        if self.is_bytes {
            // The next argument is the original number of bytes.
            self.write_bytes(
                out,
                payload,
                order,
                next.map_or(0, |next| next.slot.unsigned(payload, order)),
            );
        } else {
            self.write_text(out, payload, order);
        }
    }

    /// Returns the data that the argument points to, as far as the event has it.
    fn copied<'a>(&self, payload: &'a [u8], order: ByteOrder) -> Option<&'a [u8]> {
        let locator = self.copy.map_or(0, |slot| slot.unsigned(payload, order));
        let (begin, length) = ((locator & 0xffff) as usize, (locator >> 16) as usize);
        payload.get(begin..begin.saturating_add(length)).filter(|text| !text.is_empty())
    }

    fn write_text(&self, out: &mut Vec<u8>, payload: &[u8], order: ByteOrder) {
        if let Some(text) = self.copied(payload, order) {
            out.extend_from_slice(b" \"");
            out.extend_from_slice(text.split(|b| *b == 0).next().unwrap_or_default());
            out.push(b'"');
        }
    }

    /// Appends ` (6d:61) "ma"`, with dots if `given` is more than the number of bytes that were
    /// copied. Bytes of which none can be printed have no text.
    fn write_bytes(&self, out: &mut Vec<u8>, payload: &[u8], order: ByteOrder, given: u64) {
        let Some(bytes) = self.copied(payload, order) else { return };
        let is_cut = given > bytes.len() as u64;
        out.extend_from_slice(b" (");
        joined(out, bytes, Some(b':'));
        out.extend_from_slice(if is_cut { b", ...)" } else { b")" });
        if !bytes.iter().any(|byte| matches!(byte, 0x20..=0x7e)) {
            return;
        }
        out.extend_from_slice(b" \"");
        out.extend(bytes.iter().map(|byte| if matches!(byte, 0x20..=0x7e) { *byte } else { b'.' }));
        out.extend_from_slice(if is_cut { b"\"..." } else { b"\"" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    /// Bytes that a system call was given: as text too if one of them can be printed.
    #[test]
    fn bytes_have_a_text_if_one_can_be_printed() {
        let print = r#""fd: 0x%08lx, buf: 0x%08lx (%s), count: 0x%08lx", ((unsigned long)(REC->fd)), ((unsigned long)(REC->buf)), __print_dynamic_array(__buf_val, 1), ((unsigned long)(REC->count))"#;
        let fields = "int __syscall_nr:8:4:1, unsigned int fd:16:8:0, const char * buf:24:8:0, \
                      size_t count:32:8:0, __data_loc char[] __buf_val:40:4:0";
        let (_, format) = samples::format("syscalls", 9, "sys_enter_write", fields, print);
        let syscall = Syscall::from_format(&format, true).expect("a system call");
        let show = |bytes: &[u8], count: u64| {
            let mut payload = vec![0; 44];
            payload[16] = 1;
            payload[32..40].copy_from_slice(&count.to_le_bytes());
            payload[40..44].copy_from_slice(&((bytes.len() as u32) << 16 | 44).to_le_bytes());
            payload.extend_from_slice(bytes);
            let mut out = Vec::new();
            syscall.write(&mut out, &payload, ByteOrder::Little, false);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(show(b"m\n", 2), r#"sys_write(fd: 1, buf: 0 (6d:0a) "m.", count: 2)"#);
        assert_eq!(show(b"\0\0", 16), "sys_write(fd: 1, buf: 0 (00:00, ...), count: 0x10)");
        assert_eq!(show(b"\0\xe9", 2), "sys_write(fd: 1, buf: 0 (00:e9), count: 2)");
    }
}
