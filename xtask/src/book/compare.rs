//! Compares the output of a command with the output that a page shows.

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
    use super::compare;

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
