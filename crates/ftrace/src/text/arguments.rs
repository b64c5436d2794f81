//! Arguments of functions (`print_function_args` of `trace_output.c`, since Linux 6.15): the
//! content of the registers at the entry of a function, by the names and types of its parameters.

use crate::{ParameterKind, Tracing, is_since};
use lastwords_bytes::low_u32;
use lastwords_trace::integer::extend;

use super::slot::Slot;
use crate::print::{Names, Spec, hex, number};

/// The form in which a kernel keeps and prints arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// Number of registers that an entry keeps (`FTRACE_REGS_MAX_ARGS`).
    most: usize,
    /// True if unsigned integers are hexadecimal.
    unsigned_is_hex: bool,
    /// True if names follow the values of enumerators.
    names_enumerators: bool,
    word_size: u32,
    order: lastwords_bytes::ByteOrder,
}

impl Form {
    pub(crate) fn from_tracing(tracing: &Tracing) -> Self {
        let most = match tracing.machine.as_str() {
            "x86_64" => 6,
            "s390x" => 5,
            _ => 8,
        };
        let unsigned_is_hex = is_since(&tracing.release, (6, 18));
        let names_enumerators = is_since(&tracing.release, (7, 1));
        let (word_size, order) = (tracing.word_size.into(), tracing.byte_order);
        Self { most, unsigned_is_hex, names_enumerators, word_size, order }
    }

    /// Returns the registers of an entry whose member `args` is at `slot`, or `None` if it has too
    /// few. If the entry has one more, the first one is the return address and is skipped.
    pub(crate) fn registers<'a>(&self, slot: Slot, payload: &'a [u8]) -> Option<&'a [u8]> {
        let size = self.most.saturating_mul(self.word_size as usize);
        let rest = if slot.offset == 0 { &[] } else { slot.rest(payload) };
        let skip = if rest.len() > size { self.word_size as usize } else { 0 };
        rest.get(skip..)?.get(..size)
    }

    /// Appends `(name=value, …)`.
    pub(crate) fn write(
        &self,
        out: &mut Vec<u8>,
        names: &mut Names,
        function: u64,
        registers: &[u8],
    ) {
        out.push(b'(');
        let parameters = names.parameters(function);
        let register = |index: usize| {
            let word = self.word_size;
            Slot { offset: low_u32(index as u64).saturating_mul(word), size: word }
                .unsigned(registers, self.order)
        };
        let mut at = 0;
        for (index, parameter) in parameters.iter().flat_map(|all| all.iter()).enumerate() {
            if index > 0 {
                out.extend_from_slice(b", ");
            }
            if at >= self.most {
                out.extend_from_slice(b"...");
                break;
            }
            out.extend_from_slice(parameter.name.as_bytes());
            out.push(b'=');
            let value = register(at);
            match &parameter.kind {
                ParameterKind::Unknown => {
                    out.push(b'?');
                    address(out, value);
                }
                ParameterKind::Pointer => address(out, value),
                ParameterKind::Number { signed: false } if self.unsigned_is_hex => {
                    address(out, value)
                }
                ParameterKind::Number { .. } => self.signed(out, value),
                ParameterKind::Enumeration { names } => {
                    self.signed(out, value);
                    let name = names.iter().find(|(of, _)| *of == value.cast_signed());
                    if let Some((_, name)) = name.filter(|_| self.names_enumerators) {
                        out.extend_from_slice(format!(" [{name}]").as_bytes());
                    }
                }
                ParameterKind::Other { kind, size } => {
                    out.extend_from_slice(format!("({kind})[0x{value:x}").as_bytes());
                    for _ in 1..size.div_ceil(self.word_size) {
                        out.push(b':');
                        at = at.saturating_add(1);
                        if at >= self.most {
                            out.extend_from_slice(b"...])");
                            return;
                        }
                        address(out, register(at));
                    }
                    out.push(b']');
                }
            }
            at = at.saturating_add(1);
        }
        out.push(b')');
    }

    fn signed(&self, out: &mut Vec<u8>, value: u64) {
        let value = if self.word_size == 4 { extend(value, 4) } else { value.cast_signed() };
        number(out, Spec::default(), value.unsigned_abs(), value < 0, 10, false);
    }
}

fn address(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    hex(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::silent;

    fn shown(release: &str, function: u64, registers: &[i64]) -> String {
        let mut tracing = silent();
        (tracing.release, tracing.machine) = (release.into(), "x86_64".into());
        let payload: Vec<u8> = registers.iter().flat_map(|value| value.to_le_bytes()).collect();
        let payload = [&[0; 8][..], &payload].concat();
        let (form, mut names, mut out) =
            (Form::from_tracing(&tracing), Names::new(&tracing, false), Vec::new());
        if let Some(registers) = form.registers(Slot { offset: 8, size: 0 }, &payload) {
            form.write(&mut out, &mut names, function, registers);
        }
        String::from_utf8(out).unwrap()
    }

    const WORK: u64 = 0xffff_ffff_8100_0100;
    const REGISTERS: [i64; 6] = [0x1000, -2, 16, -1, 0x77, 5];

    /// Tests the form of Debian's kernels.
    #[test]
    fn by_name_and_type() {
        let six = "(work=0x1000, cpu=-2, flags=16, state=-1, range=(STRUCT)[0x77:0x5], ...)";
        assert_eq!(shown("6.16.12+deb13-cloud-amd64", WORK, &REGISTERS), six);
        assert_eq!(shown("6.18.15", WORK, &REGISTERS), six.replace("=16", "=0x10"));
        let named = six.replace("=16", "=0x10").replace("state=-1", "state=-1 [BUSY]");
        assert_eq!(shown("7.1.13", WORK, &REGISTERS), named);
    }

    #[test]
    fn unknown_and_missing_arguments() {
        assert_eq!(shown("7.1.13", 0xffff_ffff_8100_0000, &REGISTERS), "()");
        assert_eq!(shown("7.1.13", WORK, &REGISTERS[..5]), "");
        // The return address precedes the registers.
        let seven = [&[0x4444][..], &REGISTERS].concat();
        assert_eq!(shown("7.1.13", WORK, &seven), shown("7.1.13", WORK, &REGISTERS));
    }
}
