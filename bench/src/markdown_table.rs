//! A table in markdown, aligned so that it is readable in a terminal too.

use std::fmt;

/// The cell of a figure that does not exist.
pub(crate) const NONE: &str = "–";

/// A table. The first column is text, the others are figures.
#[derive(Debug)]
pub(crate) struct MarkdownTable(Vec<Vec<String>>);

impl MarkdownTable {
    /// Creates a table with these column titles.
    pub(crate) fn new<const COLUMNS: usize>(titles: [&str; COLUMNS]) -> Self {
        Self(vec![titles.map(str::to_owned).to_vec()])
    }

    /// Adds a row.
    pub(crate) fn push<const COLUMNS: usize>(&mut self, cells: [String; COLUMNS]) {
        self.0.push(cells.to_vec());
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| self.0.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max();
        (0..columns).map(|column| width(column).unwrap_or_default()).collect()
    }
}

impl fmt::Display for MarkdownTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (number, row) in self.0.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 { write!(out, "| {cell:<width$} |") } else { write!(out, " {cell:>width$} |") }?;
            }
            if number == 0 {
                write!(out, "\n|---|{}", "---:|".repeat(widths.len().saturating_sub(1)))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned_by_characters() {
        let mut table = MarkdownTable::new(["case", "µs"]);
        table.push(["token".to_owned(), "1.5".to_owned()]);
        table.push(["–".to_owned(), "10.0 (9.0–11.0)".to_owned()]);
        let lines =
            ["| case  |              µs |", "|---|---:|", "| token |             1.5 |", "| –     | 10.0 (9.0–11.0) |"];
        assert_eq!(table.to_string(), lines.join("\n"));
    }
}
