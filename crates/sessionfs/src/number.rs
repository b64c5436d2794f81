//! Numbers as the kernel reads them from the files of tracefs (`kstrtoul` in lib/kstrtox.c of Linux
//! 6.1).

use rustix::io::Errno;

/// Parses a number, perhaps with a plus sign in front: decimal, hexadecimal with `0x`, octal with
/// `0`.
///
/// # Errors
/// `EINVAL` for other text, `ERANGE` for more than 64 bits.
pub(crate) fn unsigned(text: &str) -> Result<u64, Errno> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => of_digits(hexadecimal, 16),
        None if digits.starts_with('0') => of_digits(digits, 8),
        None => of_digits(digits, 10),
    }
}

/// Parses a write that is a decimal number, perhaps with a newline at its end.
///
/// # Errors
/// The same as for [`unsigned`].
pub(crate) fn written(bytes: &[u8]) -> Result<u64, Errno> {
    let text = std::str::from_utf8(bytes).map_err(|_| Errno::INVAL)?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    of_digits(text.strip_prefix('+').unwrap_or(text), 10)
}

fn of_digits(digits: &str, radix: u32) -> Result<u64, Errno> {
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(Errno::INVAL);
    }
    u64::from_str_radix(digits, radix).map_err(|_| Errno::RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, the number with a prefix for its base, and the decimal number.
    #[test]
    fn numbers_are_those_of_the_kernel() {
        let wrong = Err(Errno::INVAL);
        for (text, any, decimal) in [
            ("0", Ok(0), Ok(0)),
            ("12", Ok(12), Ok(12)),
            ("+1", Ok(1), Ok(1)),
            ("0x1F", Ok(31), wrong),
            ("0X10", Ok(16), wrong),
            ("010", Ok(8), Ok(10)),
            ("08", wrong, Ok(8)),
            ("18446744073709551615", Ok(u64::MAX), Ok(u64::MAX)),
            ("18446744073709551616", Err(Errno::RANGE), Err(Errno::RANGE)),
            ("0x", wrong, wrong),
            ("", wrong, wrong),
            ("-1", wrong, wrong),
            ("1x", wrong, wrong),
            (" 1", wrong, wrong),
            ("1 ", wrong, wrong),
            ("++1", wrong, wrong),
        ] {
            assert_eq!(unsigned(text), any, "{text:?}");
            assert_eq!(written(text.as_bytes()), decimal, "{text:?}");
            assert_eq!(written(format!("{text}\n").as_bytes()), decimal, "{text:?} with a newline");
        }
        assert_eq!((written(b"1\n\n"), written(b"\xff")), (wrong, wrong));
    }
}
