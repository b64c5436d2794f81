//! Prints tables for people.

pub(crate) use lastwords_open::escape as plain;
use std::fmt::Write as _;

/// Rows of aligned cells. The first row is the head.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    /// Makes a table with a head.
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.iter().map(ToString::to_string).collect()], indent: 0 }
    }

    /// Sets the number of blanks before each row.
    pub(crate) fn indent(mut self, blanks: usize) -> Self {
        self.indent = blanks;
        self
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|c| plain(&c)).collect());
    }

    /// Returns true if there is no row except the head.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Returns the text, one line for each row. Columns of numbers are aligned to the right.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> =
            (0..columns).map(|c| cells(c).map(|s| s.chars().count()).max().unwrap_or(0)).collect();
        let numeric: Vec<bool> =
            (0..columns).map(|c| cells(c).skip(1).all(|s| is_number(s))).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let _ = if numeric[column] {
                    write!(line, "{cell:>width$}  ")
                } else {
                    write!(line, "{cell:<width$}  ")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn is_number(cell: &str) -> bool {
    cell == "-" || (!cell.is_empty() && cell.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

/// Returns a path as a shell takes it.
pub(crate) fn quoted(path: &str) -> String {
    let path = plain(path);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    match path.chars().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_numbers_stand_right() {
        let mut table = Table::new(["name", "n"]);
        table.row(["a".into(), "10".into()]);
        table.row(["longer".into(), "7".into()]);
        assert_eq!(table.render(), "name     n\na       10\nlonger   7\n");
    }
}
