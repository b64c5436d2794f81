//! Rows of a histogram: the order of its table's entries, and what the kernel makes of their keys
//! and sums (`hist_trigger_print_key`, `hist_trigger_print_val` of
//! kernel/trace/trace_events_hist.c).

use super::damaged;
use super::field::Field;
use super::map::{Entries, Entry, Map};
use super::trigger::{Handler, Kind, Trigger};
use crate::histogram::{Key, PERCENT, Row, Value};
use crate::print::bytes::integer;
use crate::print::{Names, Show};
use crate::{Symbols, UNKNOWN};
use lastwords_kernel::{Error, Kernel};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

/// Functions of a stack that is a key (`HIST_STACKTRACE_DEPTH`).
const DEPTH: usize = 16;
/// Most bytes of a text in a variable (`STR_VAR_LEN_MAX`).
const TEXT_MAX: usize = 256;
/// Characters of a bar.
const BAR: u32 = 20;

/// The facts of the kernel that the rows of all histograms need.
pub(super) struct Context<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) names: Names,
    /// Names of system calls; read when the first is needed.
    pub(super) system_calls: Option<(BTreeMap<u64, String>, Option<Error>)>,
}

/// The rows of one histogram, and what is missing in them.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) missing: Vec<Error>,
}

impl<'k> Context<'k> {
    /// Makes rows of the entries of a table.
    pub(super) fn rows(
        &mut self,
        trigger: &Trigger<'k>,
        map: &Map<'k>,
        entries: Entries<'k>,
    ) -> Rows {
        let mut made = Rows::default();
        let is_whole = entries.lost.is_empty();
        let mut entries = merged(entries.found);
        match order(self.kernel, trigger, map) {
            Ok(order) => entries.sort_by(|a, b| compare(self.kernel, &order, a, b)),
            Err(error) => made.missing.push(error),
        }
        let stats = stats(trigger.sums().len(), &entries, is_whole);
        for entry in &entries {
            let mut keys = Vec::new();
            for field in &trigger.keys {
                let key = self.key(trigger, field, entry, &mut made.missing);
                let is_named = trigger.bits.stack != 0 && field.is(trigger.bits.stack);
                let end = if is_named && field.is_field { ".stacktrace" } else { "" };
                keys.push((format!("{}{end}", field.name), key));
            }
            let values = values(trigger, map, entry, &stats, &mut made.missing);
            let more = self.actions(trigger, map, entry, &mut made.missing);
            made.rows.push(Row { keys, values, more });
        }
        made
    }

    fn key(
        &mut self,
        trigger: &Trigger<'k>,
        field: &Field<'k>,
        entry: &Entry<'k>,
        missing: &mut Vec<Error>,
    ) -> Key {
        let bits = &trigger.bits;
        let rest = entry.key.get(field.offset..).unwrap_or_default();
        if field.is(bits.text) && !field.is(bits.hex | bits.sym | bits.sym_offset) {
            let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
            let text = rest.get(..end).unwrap_or_default();
            return Key::Text(String::from_utf8_lossy(text).into_owned());
        }
        if field.is(bits.stack) {
            return self.stack(rest);
        }
        let Some(number) = rest.get(..8) else {
            missing.push(damaged(&entry.element, field.offset as u64, "an offset in a key"));
            return Key::Unknown;
        };
        let number = integer(number, self.kernel.memory.byte_order());
        if field.is(bits.hex) {
            return Key::Number(number);
        }
        if field.is(bits.sym | bits.sym_offset) {
            let show = if field.is(bits.sym) { Show::Plain } else { Show::Offset };
            return Key::Named { name: self.name(number, show), number };
        }
        if field.is(bits.execname) {
            let name = self.thread(entry);
            return Key::Named { name: or_unknown(name, missing), number };
        }
        if field.is(bits.syscall) {
            let name = self.system_call(number);
            return Key::Named { name: or_unknown(name, missing), number };
        }
        if field.is(bits.log2) {
            return Key::Power(number);
        }
        match field.is(bits.bucket) {
            true => Key::Range {
                first: number,
                last: number.wrapping_add(field.buckets).wrapping_sub(1),
            },
            false => Key::Number(number),
        }
    }

    fn name(&mut self, address: u64, show: Show) -> String {
        let mut name = Vec::new();
        self.names.show(&mut name, address, show);
        String::from_utf8_lossy(&name).into_owned()
    }

    fn stack(&mut self, bytes: &[u8]) -> Key {
        let (word, order) =
            (self.kernel.memory.word_size().into(), self.kernel.memory.byte_order());
        let addresses = bytes.chunks_exact(word).take(DEPTH).map(|word| integer(word, order));
        let addresses: Vec<u64> = addresses.take_while(|address| *address != 0).collect();
        Key::Stack(addresses.into_iter().map(|at| self.name(at, Show::Offset)).collect())
    }

    /// The name of the thread that made a row, which the kernel keeps in it.
    fn thread(&self, entry: &Entry<'k>) -> Result<String, Error> {
        let data = self.kernel.object("hist_elt_data", entry.element.address("private_data")?)?;
        match data.text("comm")? {
            name if name.is_empty() => Err(damaged(&data, 0, "the name of a thread")),
            name => Ok(name),
        }
    }

    pub(super) fn system_call(&mut self, number: u64) -> Result<String, Error> {
        let kernel = self.kernel;
        let (names, missing) =
            self.system_calls.get_or_insert_with(|| super::super::formats::system_calls(kernel));
        match (names.get(&number), missing) {
            (Some(name), _) => Ok(name.clone()),
            (None, Some(error)) => Err(error.clone()),
            // The kernel's word.
            (None, None) => Ok("unknown_syscall".to_owned()),
        }
    }

    /// What the actions print of a row (`track_data_print`).
    fn actions(
        &self,
        trigger: &Trigger<'k>,
        map: &Map<'k>,
        entry: &Entry<'k>,
        missing: &mut Vec<Error>,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let kernel = self.kernel;
        for action in trigger.actions.iter().filter(|action| action.kind != Kind::Snapshot) {
            let word = match action.handler {
                Handler::Match => continue,
                Handler::Max => "max",
                Handler::Change => "changed",
            };
            let number = |index: Result<u64, Error>| {
                index.and_then(|index| map.variable(&entry.element, index))
            };
            let shown = number(action.tracked()).map(|value| value.to_string());
            let mut line = format!("{word}: {:>10}", or_unknown(shown, missing));
            for (variable, field) in &trigger.saved {
                let name = or_unknown(variable.variable_name(), missing);
                let value = number(variable.variable());
                line += &match field.is(trigger.bits.text) {
                    true => {
                        let text = value.and_then(|at| text_at(kernel, at));
                        format!("  {name}: {:<32}", or_unknown(text, missing))
                    }
                    false => {
                        let shown = value.map(|value| value.to_string());
                        format!("  {name}: {:>10}", or_unknown(shown, missing))
                    }
                };
            }
            lines.push(line);
        }
        lines
    }
}

fn text_at(kernel: &Kernel, address: u64) -> Result<String, Error> {
    kernel.memory.text(address, TEXT_MAX).map_err(Error::hole("the text of a variable"))
}

fn or_unknown(text: Result<String, Error>, missing: &mut Vec<Error>) -> String {
    text.unwrap_or_else(|error| {
        missing.push(error);
        UNKNOWN.to_owned()
    })
}

/// Joins rows with the same key: two CPUs may have made one at the same time.
fn merged(found: Vec<Entry<'_>>) -> Vec<Entry<'_>> {
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for entry in found {
        match places.get(&entry.key).and_then(|at| entries.get_mut(*at)) {
            Some(first) => {
                for (sum, more) in first.sums.iter_mut().zip(&entry.sums) {
                    *sum = sum.zip(*more).map(|(sum, more)| sum.wrapping_add(more));
                }
            }
            None => {
                places.insert(entry.key.clone(), entries.len());
                entries.push(entry);
            }
        }
    }
    entries
}

/// How the kernel compares two rows by one field.
#[derive(Debug, Clone, Copy)]
enum By {
    Sum(usize),
    Text(usize),
    Number { offset: usize, size: usize, is_signed: bool },
    Nothing,
}

/// Returns by what rows are sorted; true: the greatest first. Rows that the kernel's order leaves
/// equal are in the order of their slots.
fn order(kernel: &Kernel, trigger: &Trigger<'_>, map: &Map<'_>) -> Result<Vec<(By, bool)>, Error> {
    let sums = trigger.sums().len() as u64;
    let by = |(index, is_descending): (u64, bool)| {
        if index < sums {
            return Ok((By::Sum(usize::try_from(index).unwrap_or_default()), is_descending));
        }
        let field = map.object.element("fields", index)?;
        let function = field.address("cmp_fn")?;
        let wrong = || damaged(&field, function, "the function that compares a key");
        let symbol = kernel.symbols.at(function).filter(|symbol| symbol.offset == 0);
        let name = symbol.ok_or_else(wrong)?.name;
        let offset = field.fit("offset")?;
        let by = match name.strip_prefix("tracing_map_cmp_").ok_or_else(wrong)? {
            "string" => By::Text(offset),
            "none" => By::Nothing,
            number => {
                let (sign, bits) = number.split_at_checked(1).ok_or_else(wrong)?;
                let bits: usize = bits.parse().map_err(|_| wrong())?;
                By::Number { offset, size: bits / 8, is_signed: sign == "s" }
            }
        };
        Ok((by, is_descending))
    };
    trigger.sort_keys()?.into_iter().map(by).collect()
}

fn compare(kernel: &Kernel, order: &[(By, bool)], a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    let text = |entry: &Entry<'_>, offset: usize| {
        let rest = entry.key.get(offset..).unwrap_or_default().to_vec();
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default().to_vec()
    };
    let number = |entry: &Entry<'_>, offset: usize, size: usize| {
        let bytes = entry.key.get(offset..).and_then(|rest| rest.get(..size)).unwrap_or_default();
        integer(bytes, kernel.memory.byte_order())
    };
    order.iter().fold(Ordering::Equal, |before, (by, is_descending)| {
        let own = match *by {
            By::Sum(at) => a.sums.get(at).cmp(&b.sums.get(at)),
            By::Text(offset) => text(a, offset).cmp(&text(b, offset)),
            By::Number { offset, size, is_signed } => {
                let [a, b] = [a, b].map(|entry| number(entry, offset, size));
                let shift =
                    64u32.saturating_sub(u32::try_from(size).unwrap_or(8).saturating_mul(8));
                match is_signed {
                    true => {
                        let signed = |number: u64| number.wrapping_shl(shift).cast_signed();
                        signed(a).cmp(&signed(b))
                    }
                    false => a.cmp(&b),
                }
            }
            By::Nothing => Ordering::Equal,
        };
        before.then(if *is_descending { own.reverse() } else { own })
    })
}

/// The greatest and the total of each sum; none if a row is missing.
fn stats(sums: usize, entries: &[Entry<'_>], is_whole: bool) -> Vec<Option<(u64, u64)>> {
    let of = |at: usize| {
        let all = entries.iter().map(|entry| entry.sums.get(at).copied().flatten());
        let all: Option<Vec<u64>> = all.collect();
        let all = all.filter(|_| is_whole)?;
        let total = all.iter().fold(0u64, |total, sum| total.wrapping_add(*sum));
        Some((all.iter().copied().max().unwrap_or_default(), total))
    };
    (0..sums).map(of).collect()
}

fn values(
    trigger: &Trigger<'_>,
    map: &Map<'_>,
    entry: &Entry<'_>,
    stats: &[Option<(u64, u64)>],
    missing: &mut Vec<Error>,
) -> Vec<(String, Value)> {
    let bits = &trigger.bits;
    let mut values = Vec::new();
    for (at, field) in trigger.sums().iter().enumerate() {
        if at == 0 && !trigger.has_hitcount || field.is(bits.expr) {
            continue;
        }
        let sum = entry.sums.get(at).copied().flatten();
        if sum.is_none() {
            missing.extend(map.sum(&entry.element, at as u64).err());
        }
        let stats = stats.get(at).copied().flatten();
        let (end, value) = match sum {
            _ if at == 0 => ("", sum.map(Value::Number)),
            _ if field.is(bits.percent) => {
                (PERCENT, sum.zip(stats).map(|(sum, (_, total))| Value::Text(percent(sum, total))))
            }
            _ if field.is(bits.graph) => {
                ("", sum.zip(stats).map(|(sum, (most, _))| Value::Text(bar(sum, most))))
            }
            _ => ("", sum.map(Value::Number)),
        };
        values.push((format!("{}{end}", field.name), value.unwrap_or(Value::Unknown)));
    }
    values
}

/// Hundredths of a per cent that a value is of a total; none if there is no total.
fn hundredths(value: u64, total: u64) -> Option<u64> {
    const WHOLE: u64 = 10_000;
    let of = match value < u64::MAX / WHOLE {
        true => value.saturating_mul(WHOLE).checked_div(total),
        false => value.checked_div(total / WHOLE),
    };
    of.or((value == 0).then_some(0)).map(|of| of & u64::from(u32::MAX))
}

/// The word where a part cannot be computed.
const ERROR: &str = "[ERROR]";

fn percent(value: u64, total: u64) -> String {
    let of = |hundredths: u64| format!("{}.{:02}", hundredths / 100, hundredths % 100);
    hundredths(value, total).map_or_else(|| ERROR.to_owned(), of)
}

fn bar(value: u64, most: u64) -> String {
    let of = |hundredths: u64| {
        let len = (hundredths.saturating_mul(BAR.into()) / 10_000).min(BAR.into());
        "#".repeat(usize::try_from(len).unwrap_or_default())
    };
    hundredths(value, most).map_or_else(|| ERROR.to_owned(), of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_total_are_those_of_the_kernel() {
        // The first two are those of the commit that added `.percent`.
        for (value, total, expected) in [
            (1, 3, "33.33"),
            (0, 0, "0.00"),
            (5, 0, ERROR),
            (u64::MAX / 2, u64::MAX, "50.00"),
            (7, 7, "100.00"),
        ] {
            assert_eq!(percent(value, total), expected);
        }
        assert_eq!(bar(1, 2), "#".repeat(10));
        assert_eq!(
            (bar(0, 9), bar(9, 9), bar(1, 21)),
            (String::new(), "#".repeat(20), String::new())
        );
    }
}
