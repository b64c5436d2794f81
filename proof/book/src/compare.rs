//! Compares the output of a command with the output that a page shows.
//!
//! [`compare`] compares all of it; `[..]` stands for any characters of a line, a line `...` for any
//! lines. [`compare_like`] is for output of one real run, which has other numbers and another order
//! of lines each time.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use regex::Regex;

/// Stands for any characters of a line.
const ANY: &str = "[..]";
/// A line that stands for any lines, or none.
const ANY_LINES: &str = "...";

/// Fails if an output is not the one that is shown.
pub(super) fn compare(shown: &str, actual: &str) -> Result<()> {
    let pattern = Regex::new(&pattern(shown)).context("a pattern of the shown output")?;
    let actual: String = actual.lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
    if pattern.is_match(&actual) {
        return Ok(());
    }
    bail!("the output is not the one that is shown.\n--- shown\n{shown}--- actual\n{actual}---")
}

/// Fails if more than a third of the lines that are shown are not, but for numbers and units of
/// time, lines of an output. Lines that differ only in these count as one. Which events are the
/// last ones before a kill is a matter of chance.
pub(super) fn compare_like(shown: &str, actual: &str) -> Result<()> {
    let numbers =
        Regex::new(r"[0-9][0-9:.-]*(?: (?:us|ms|s)\b)?").context("a pattern of numbers")?;
    let shapes = |text: &str| -> BTreeSet<String> {
        text.lines().map(|line| numbers.replace_all(line.trim_end(), "#").into_owned()).collect()
    };
    let (shown, found) = (shapes(shown), shapes(actual));
    let missing: Vec<&str> = shown.difference(&found).map(String::as_str).collect();
    if missing.len().saturating_mul(3) > shown.len() {
        bail!(
            "no lines of the output are like these:\n{}\n--- actual\n{actual}---",
            missing.join("\n")
        );
    }
    Ok(())
}

/// Returns the regular expression of a shown output.
fn pattern(shown: &str) -> String {
    let mut pattern = String::from(r"\A");
    for line in shown.lines().map(str::trim_end) {
        if line == ANY_LINES {
            pattern.push_str(r"(?:[^\n]*\n)*");
            continue;
        }
        let parts: Vec<String> = line.split(ANY).map(regex::escape).collect();
        pattern.push_str(&parts.join(r"[^\n]*"));
        pattern.push_str(r"\n");
    }
    pattern + r"\z"
}

#[cfg(test)]
mod tests {
    use super::{compare, compare_like};

    #[test]
    fn a_run_is_like_another_but_for_its_numbers() {
        let actual = "05:47:47.94 INFO [001] shop:order: id=7\nshop: nothing lost\n";
        assert!(compare_like("17:00:00.10 INFO [000] shop:order: id=123\n", actual).is_ok());
        assert!(compare_like("17:00:00.10 WARN [000] shop:order: id=123\n", actual).is_err());
        assert!(compare_like("shop: 3 events lost\n", actual).is_err());
        assert!(compare_like("1 ms\n2.5 s\n", "7 us\n").is_ok(), "a unit of time");
        assert!(compare_like("a\nb\nc\n", "a\nc\n").is_ok(), "one of three");
        assert!(compare_like("a\na 1\na 2\nc\nd\n", "a\na 3\n").is_err(), "two of four");
    }

    #[test]
    fn wildcards_stand_for_parts_of_lines_and_for_lines() {
        for (shown, actual) in [
            ("a\n", "a\n"),
            ("a\n", "a  \n"),
            ("a[..]c\n", "abc\n"),
            ("...\nb\n", "a\na\nb\n"),
            ("...\nb\n", "b\n"),
            ("a.b[0]\n", "a.b[0]\n"),
            ("...\n", ""),
        ] {
            assert!(compare(shown, actual).is_ok(), "{shown:?} {actual:?}");
        }
        for (shown, actual) in [
            ("a\n", "b\n"),
            ("a\n", "a\nb\n"),
            ("a.b\n", "axb\n"),
            ("a[..]\n", "a\nb\n"),
            ("...\nb\n", "b\na\n"),
            ("a\n", ""),
        ] {
            assert!(compare(shown, actual).is_err(), "{shown:?} {actual:?}");
        }
    }
}
