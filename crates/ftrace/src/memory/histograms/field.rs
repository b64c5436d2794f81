//! The fields of a histogram (`struct hist_field`): its keys, values and variables.

use super::{damaged, text};
use crate::UNKNOWN;
use lastwords_kernel::{Error, Kernel, Object};

/// Bits of `hist_field.flags`, whose names the kernel's types have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bits {
    pub(super) hitcount: u64,
    pub(super) key: u64,
    pub(super) text: u64,
    pub(super) hex: u64,
    pub(super) sym: u64,
    pub(super) sym_offset: u64,
    pub(super) execname: u64,
    pub(super) syscall: u64,
    pub(super) stack: u64,
    pub(super) log2: u64,
    pub(super) timestamp: u64,
    pub(super) usecs: u64,
    pub(super) var: u64,
    pub(super) expr: u64,
    pub(super) var_ref: u64,
    pub(super) cpu: u64,
    pub(super) alias: u64,
    pub(super) bucket: u64,
    pub(super) constant: u64,
    pub(super) percent: u64,
    pub(super) graph: u64,
    pub(super) comm: u64,
}

impl Bits {
    pub(super) fn new(kernel: &Kernel) -> Self {
        // A kernel without the name has no such fields.
        let bit = |name: &str| {
            let value = kernel.types.enum_value(&format!("HIST_FIELD_FL_{name}"));
            value.map_or(0, i64::cast_unsigned)
        };
        Self {
            hitcount: bit("HITCOUNT"),
            key: bit("KEY"),
            text: bit("STRING"),
            hex: bit("HEX"),
            sym: bit("SYM"),
            sym_offset: bit("SYM_OFFSET"),
            execname: bit("EXECNAME"),
            syscall: bit("SYSCALL"),
            stack: bit("STACKTRACE"),
            log2: bit("LOG2"),
            timestamp: bit("TIMESTAMP"),
            usecs: bit("TIMESTAMP_USECS"),
            var: bit("VAR"),
            expr: bit("EXPR"),
            var_ref: bit("VAR_REF"),
            cpu: bit("CPU"),
            alias: bit("ALIAS"),
            bucket: bit("BUCKET"),
            constant: bit("CONST"),
            percent: bit("PERCENT"),
            graph: bit("GRAPH"),
            comm: bit("COMM"),
        }
    }
}

/// A key, value or variable.
#[derive(Debug, Clone)]
pub(super) struct Field<'k> {
    object: Object<'k>,
    flags: u64,
    /// Name in a row; `unknown` if the image lacks it.
    pub(super) name: String,
    /// Offset of a key in the whole key, bytes.
    pub(super) offset: usize,
    /// Size of the intervals of `.buckets=SIZE`; 0 for other fields.
    pub(super) buckets: u64,
    /// The stack that is a key is a field of the event.
    pub(super) is_field: bool,
    /// The reason why the name is not known.
    pub(super) missing: Option<Error>,
}

impl<'k> Field<'k> {
    /// Reads a field. A name that cannot be read is noted in it.
    pub(super) fn new(object: Object<'k>, bits: &Bits, stack: &str) -> Result<Self, Error> {
        // The kernel sets it in every field.
        if object.address("hist_data")? == 0 {
            return Err(damaged(&object, 0, "a field of a histogram"));
        }
        let flags = object.u64("flags")?;
        let (name, missing) = match name(&object, bits, stack, 0) {
            Ok(name) => (name, None),
            Err(error) => (UNKNOWN.to_owned(), Some(error)),
        };
        Ok(Self {
            name,
            missing,
            flags,
            offset: object.fit("offset")?,
            // Linux 5.14 added the member.
            buckets: if object.has("buckets") { object.u64("buckets")? } else { 0 },
            is_field: object.address("field")? != 0,
            object,
        })
    }

    /// Returns true if one of the bits is set.
    pub(super) fn is(&self, bits: u64) -> bool {
        self.flags & bits != 0
    }

    /// Index of a variable in an element.
    pub(super) fn variable(&self) -> Result<u64, Error> {
        self.object.u64("var.idx")
    }

    /// Name of a variable; empty if the field is none.
    pub(super) fn variable_name(&self) -> Result<String, Error> {
        match self.object.address("var.name")? {
            0 => Ok(String::new()),
            _ => text(&self.object, "var.name"),
        }
    }

    /// The field as the kernel prints it in a trigger (`hist_field_print` of
    /// kernel/trace/trace_events_hist.c).
    pub(super) fn spec(&self, bits: &Bits) -> Result<String, Error> {
        if let Some(error) = &self.missing {
            return Err(error.clone());
        }
        let mut text = String::new();
        let variable = self.variable_name()?;
        if !variable.is_empty() {
            text = variable + "=";
        }
        if self.is(bits.cpu) {
            text.push_str("common_cpu");
            // Kernels that have names of threads (6.17 to 7.3) print the field's name too.
            if bits.comm != 0 {
                text.push_str(&self.name);
            }
        } else if self.is(bits.comm) {
            text.push_str("common_comm");
        } else if self.is(bits.constant) {
            text.push_str(&self.object.u64("constant")?.to_string());
        } else {
            if self.is(bits.var_ref | bits.alias) {
                text.push('$');
            }
            text.push_str(&self.name);
        }
        if !self.is(bits.var_ref | bits.expr | bits.stack)
            && let Some(modifier) = self.modifier(bits)
        {
            text.push('.');
            text.push_str(modifier);
        }
        if self.buckets != 0 {
            text.push_str(&format!("={}", self.buckets));
        }
        Ok(text)
    }

    fn modifier(&self, bits: &Bits) -> Option<&'static str> {
        let names = [
            (bits.hex, "hex"),
            (bits.sym, "sym"),
            (bits.sym_offset, "sym-offset"),
            (bits.execname, "execname"),
            (bits.syscall, "syscall"),
            (bits.log2, "log2"),
            (bits.bucket, "buckets"),
            (bits.usecs, "usecs"),
            (bits.percent, "percent"),
            (bits.graph, "graph"),
        ];
        names.into_iter().find(|(bit, _)| self.is(*bit)).map(|(_, name)| name)
    }
}

/// The name of a field (`hist_field_name`).
fn name(field: &Object<'_>, bits: &Bits, stack: &str, level: u32) -> Result<String, Error> {
    let flags = field.u64("flags")?;
    let has = |bits: u64| flags & bits != 0;
    if let Some(of_event) = field.pointer_or_null("field")? {
        return text(&of_event, "name");
    }
    if has(bits.log2 | bits.alias | bits.bucket) && level == 0 {
        return name(&field.pointer("operands[0]")?, bits, stack, 1);
    }
    if has(bits.cpu) {
        return Ok("common_cpu".to_owned());
    }
    if has(bits.comm) {
        return Ok("common_comm".to_owned());
    }
    if has(bits.expr | bits.var_ref) {
        // Kernels differ in what they print for the variable of a named event.
        return match field.address("system")? {
            0 => text(field, "name"),
            system => Err(damaged(field, system, "a variable without the name of its event")),
        };
    }
    if has(bits.timestamp) {
        return Ok("common_timestamp".to_owned());
    }
    if has(bits.stack) {
        return Ok(stack.to_owned());
    }
    if has(bits.hitcount) {
        return Ok("hitcount".to_owned());
    }
    // A variable that an action keeps has only the name of a variable.
    if has(bits.constant | bits.var) {
        return Ok(String::new());
    }
    Err(damaged(field, flags, "a field with a name"))
}
