//! Fields as `trace-cmd report -R` prints them: `name=value name=value`.

use crate::matrix::event::Value;

/// Functions by address, in order.
type Symbols = [(u64, String)];

/// Whether these are the fields that trace-cmd prints.
pub(super) fn are(printed: &str, fields: &[(String, Value)], symbols: &Symbols) -> bool {
    let mut rest = printed;
    for (at, (name, value)) in fields.iter().enumerate() {
        let Some(behind) = rest.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('='))
        else {
            return false;
        };
        let end = match fields.get(at + 1) {
            Some((next, _)) => behind.find(&format!(" {next}=")),
            None => Some(behind.len()),
        };
        let Some((shown, behind)) = end.map(|end| behind.split_at(end)) else { return false };
        if !is(shown, value, symbols) {
            return false;
        }
        rest = behind.strip_prefix(' ').unwrap_or(behind);
    }
    rest.is_empty()
}

/// Whether trace-cmd prints these fields among others, in whatever order: Perfetto's schema has no
/// place for some fields.
pub(super) fn have(printed: &str, fields: &[(String, Value)], symbols: &Symbols) -> bool {
    let has = |(name, value): &(String, Value)| {
        let Some(begin) = format!(" {printed}").find(&format!(" {name}=")) else { return true };
        let behind = &printed[begin + name.len() + 1..];
        // A value may have blanks.
        let mut ends = behind.match_indices(' ').map(|(at, _)| at).chain([behind.len()]);
        ends.any(|end| is(&behind[..end], value, symbols) || is_last(&behind[..end], value))
    };
    fields.iter().all(has)
}

/// Of an array the trace processor keeps the last element.
fn is_last(shown: &str, value: &Value) -> bool {
    let last = shown
        .strip_prefix("ARRAY[")
        .and_then(|bytes| bytes.len().checked_sub(8 * 4 - 1).and_then(|at| bytes.get(at..)));
    last.is_some_and(|last| is_array(&format!("ARRAY[{last}"), std::slice::from_ref(value)))
}

/// Whether trace-cmd shows this value so.
fn is(shown: &str, value: &Value, symbols: &Symbols) -> bool {
    match value {
        Value::Number(number) => is_number(shown, *number, symbols),
        Value::Bool(is) => shown == if *is { "1" } else { "0" },
        Value::Text(text) => {
            shown.trim_end() == text.trim_end() || is_function(shown, text, symbols)
        }
        Value::List(list) => is_array(shown, list),
        _ => false,
    }
}

/// Perfetto has a function's name in place of its address.
fn is_function(shown: &str, name: &str, symbols: &Symbols) -> bool {
    let address = shown.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    address.is_some_and(|address| symbols.iter().any(|(other, of)| *other == address && of == name))
}

/// Numbers are decimal, hexadecimal, or an address in a function.
fn is_number(shown: &str, number: i128, symbols: &Symbols) -> bool {
    let bits = number as u64;
    if shown == "(nil)" {
        return bits == 0;
    }
    if let Some(digits) = shown.strip_prefix("0x") {
        // A negative number has as many digits as its type.
        let mask =
            if number < 0 { u64::MAX >> (64 - 4 * digits.len().clamp(1, 16)) } else { u64::MAX };
        return u64::from_str_radix(digits, 16).is_ok_and(|shown| shown == bits & mask);
    }
    if let Ok(shown) = shown.parse::<i128>() {
        return shown as u64 == bits;
    }
    let (function, offset) = match shown.split_once("+0x") {
        Some((function, offset)) => (function, Some(offset)),
        None => (shown, None),
    };
    let before = &symbols[..symbols.partition_point(|(address, _)| *address <= bits)];
    let Some((begin, _)) = before.last() else { return false };
    let is_offset =
        |offset| u64::from_str_radix(offset, 16).is_ok_and(|offset| offset == bits - begin);
    let mut names = before.iter().rev().take_while(|(address, _)| address == begin);
    offset.is_none_or(is_offset) && names.any(|(_, name)| name == function)
}

/// An array is shown as its bytes: `ARRAY[01, 00, ff, 00]`.
fn is_array(shown: &str, list: &[Value]) -> bool {
    let Some(inner) = shown.strip_prefix("ARRAY[").and_then(|shown| shown.strip_suffix(']')) else {
        return false;
    };
    let words = inner.split([',', ' ']).filter(|word| !word.is_empty());
    let Ok(bytes) = words.map(|word| u8::from_str_radix(word, 16)).collect::<Result<Vec<u8>, _>>()
    else {
        return false;
    };
    let size = bytes.len().checked_div(list.len()).unwrap_or(0);
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let is = |(bytes, value): (&[u8], &Value)| {
        let mask = u64::MAX >> (64 - 8 * bytes.len());
        matches!(value, Value::Number(value) if *value as u64 & mask == number(bytes))
    };
    matches!(size, 1..=8)
        && size * list.len() == bytes.len()
        && bytes.chunks(size).zip(list).all(is)
}
