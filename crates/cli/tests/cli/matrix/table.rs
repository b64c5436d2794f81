//! The table in `docs/MATRIX.md`.

use super::{Cell, columns};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A row: a source and its cells, in the order of [`columns`].
pub(super) type Row = (&'static str, Vec<Option<Cell>>);

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/MATRIX.md")
}

/// The tables of these rows, and the messages of what is refused.
fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut messages: Vec<&str> = Vec::new();
    for verb in ["recover", "convert", "report"] {
        let of_verb: Vec<(usize, &str)> = columns()
            .into_iter()
            .enumerate()
            .filter(|(_, (other, _))| *other == verb)
            .map(|(at, (_, format))| (at, format))
            .collect();
        let formats: Vec<&str> = of_verb.iter().map(|(_, format)| *format).collect();
        writeln!(
            text,
            "| `{verb}` | {} |\n|---{}|",
            formats.join(" | "),
            "|---".repeat(formats.len())
        )
        .unwrap();
        for (name, cells) in rows {
            write!(text, "| {name} |").unwrap();
            for (at, _) in &of_verb {
                match &cells[*at] {
                    Some(Cell::Equal(reader)) => write!(text, " equal: {reader} |").unwrap(),
                    Some(Cell::Refused(message)) => {
                        let known = messages.iter().position(|other| other == message);
                        let number = known.unwrap_or_else(|| {
                            messages.push(message);
                            messages.len() - 1
                        });
                        write!(text, " refused (note {}) |", number + 1).unwrap();
                    }
                    None => write!(text, " |").unwrap(),
                }
            }
            text.push('\n');
        }
        text.push('\n');
    }
    text.push_str("Refused, with exit status 1, and nothing is written:\n\n");
    for (number, message) in messages.iter().enumerate() {
        writeln!(text, "{}. `{message}`", number + 1).unwrap();
    }
    text
}

/// The document: before the tables `name`, the tables, and behind them.
fn parts(name: &str) -> [String; 3] {
    let document = std::fs::read_to_string(path()).expect("docs/MATRIX.md");
    let (before, rest) = document
        .split_once(&format!("<!-- {name} -->\n"))
        .expect("the mark where the tables begin");
    let (old, behind) =
        rest.split_once(&format!("<!-- end of {name} -->")).expect("the mark where the tables end");
    [before, old, behind].map(str::to_owned)
}

/// Checks that the document has `count` sources between the marks `name`, and that each cell is
/// equal or refused.
pub(super) fn is_complete(name: &str, count: usize) {
    let [_, tables, _] = parts(name);
    let rows: Vec<&str> = tables.lines().filter(|line| line.starts_with("| a ")).collect();
    assert_eq!(rows.len(), 3 * count, "{tables}");
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').skip(1).map(str::trim).collect();
        let is_known =
            |cell: &&str| cell.starts_with("equal: ") || cell.starts_with("refused (note ");
        assert!(matches!(cells.len(), 1 | 7) && cells.iter().all(is_known), "{row}");
    }
}

/// Compares the tables with those between the marks `name` of the document, or puts them there
/// where that was asked for.
pub(super) fn compare(name: &str, rows: &[Row]) {
    let [before, old, behind] = parts(name);
    let new = format!("\n{}\n", tables(rows));
    if std::env::var_os("LASTWORDS_GOLDEN").is_some_and(|value| value == "write") {
        let document = format!("{before}<!-- {name} -->\n{new}<!-- end of {name} -->{behind}");
        std::fs::write(path(), document).unwrap();
        return;
    }
    let differ = old.lines().zip(new.lines()).find(|(old, new)| old != new);
    assert!(
        old == new,
        "docs/MATRIX.md: {differ:?} (to accept: the command at the top of this module's mod.rs)"
    );
}
