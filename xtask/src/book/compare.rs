//! Compares the output of a command with the output that a page shows.
//!
//! [`compare`] compares all of it; `[..]` stands for any characters of a line, a line `...` for any lines. [`compare_like`] is for output of
//! one real run, which has other numbers and another order of lines each time.

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

/// Fails if a line that is shown is not, but for its numbers, a line of an output.
pub(super) fn compare_like(shown: &str, actual: &str) -> Result<()> {
    let numbers = Regex::new(r"[0-9][0-9:.-]*").context("a pattern of numbers")?;
    let shape = |line: &str| numbers.replace_all(line.trim_end(), "#").into_owned();
    let shapes: Vec<String> = actual.lines().map(shape).collect();
    match shown.lines().find(|line| !shapes.contains(&shape(line))) {
        Some(line) => bail!("no line of the output is like this one:\n{line}\n--- actual\n{actual}---"),
        None => Ok(()),
    }
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
